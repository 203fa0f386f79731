"""The text that identifies a question: equal for equivalent texts, never for different ones.

It is a complete description of what is counted (relations by OID, join attributes,
filters, predicates, group keys and their domains), so two questions with one text are the
same function of the data.  Equivalent texts meet because aliases, join syntax and the
order of conjuncts are gone already, and because occurrences are sorted by what is said
about them; ties (self-joins) are broken by trying the permutations.
"""

from __future__ import annotations

import re
from itertools import permutations, product
from math import factorial, prod

from dpsql.model import GroupDomain, JoinQuery, Occurrence
from dpsql.query.emit import Emitted
from dpsql.query.ir import NAME, NO_TYPE, STRING, Expr, render
from dpsql.query.normalise import normalise

_VERSION = "2"
_MAX_PERMUTATIONS = 120
_ALIAS = re.compile(rf"{STRING}|{NAME}|{NO_TYPE}\br\d+(?=\.)")


def canonical(counted: list[Emitted], domains: tuple[GroupDomain, ...] | None) -> str:
    """Write the canonical text of a question."""
    parts = [_VERSION, *(describe(e) for e in counted)]
    if domains is None:
        parts.append("domains unknown")
    else:
        parts.extend(f"{d.positions} {d.identity}" for d in domains)
    return "\n".join(parts)


def _neutral(sql: str) -> str:
    """Write ``r`` for an occurrence's alias outside of quotes."""
    return _ALIAS.sub(lambda m: "r" if m[0][0] not in "'\"" else m[0], sql)


def describe(emitted: Emitted) -> str:
    """Write what one join query counts."""
    query = emitted.query
    best: str | None = None
    for order in _orders(query):
        text = _text(emitted, order)
        if best is None or text < best:
            best = text
    return best or ""


def _colours(query: JoinQuery) -> list[str]:
    """Refine what is known of each occurrence by what it is joined to."""
    own = []
    for o in query.occurrences:
        groups = [
            (query.groups.index(u.attribute), u.sql) for u in o.uses if u.attribute in query.groups
        ]
        weights = [_neutral(w.sql) for w in query.weights if w.occurrences == {o.index}]
        own.append(repr((_named(o), [_neutral(f) for f in o.filters], sorted(groups), weights)))
    colours = own
    for _ in range(2):
        refined = []
        for o in query.occurrences:
            around = sorted(
                (_neutral(u.sql), colours[p.index], _neutral(v.sql))
                for u in o.uses
                for p in query.occurrences
                if p is not o
                for v in p.uses
                if v.attribute == u.attribute
            )
            refined.append(repr((own[o.index], around)))
        ranks = {c: i for i, c in enumerate(sorted(set(refined)))}
        colours = [f"{ranks[c]:04}" for c in refined]
    return colours


def _named(occurrence: Occurrence) -> int | str:
    """Name a relation, or what is read in its place: how often a row counts differs.

    What is told of relations themselves never changes: stored answers are found by it.
    """
    relation = occurrence.relation
    if not relation.source:
        return relation.oid
    return f"{relation.oid} agreed by {relation.keys} on {relation.source}"


def _orders(query: JoinQuery) -> list[tuple[int, ...]]:
    colours = _colours(query)
    cells: dict[str, list[int]] = {}
    for index, colour in enumerate(colours):
        cells.setdefault(colour, []).append(index)
    sorted_cells = [cells[c] for c in sorted(cells)]
    if prod(factorial(len(cell)) for cell in sorted_cells) > _MAX_PERMUTATIONS:
        return [tuple(i for cell in sorted_cells for i in cell)]
    arrangements = product(*(permutations(cell) for cell in sorted_cells))
    return [tuple(i for cell in cells_ for i in cell) for cells_ in arrangements]


def _text(emitted: Emitted, order: tuple[int, ...]) -> str:
    query = emitted.query
    numbers: dict[int, int] = {}
    lines = []
    for index in order:
        o = query.occurrences[index]
        uses = []
        known = sorted(
            o.uses,
            key=lambda u: (numbers.get(u.attribute, len(query.attributes)), _neutral(u.sql)),
        )
        for use in known:
            number = numbers.setdefault(use.attribute, len(numbers))
            attribute = query.attributes[use.attribute]
            uses.append(f"a{number}={_neutral(use.sql)}::{attribute.type_name}")
        filters = sorted(_neutral(f) for f in o.filters)
        lines.append(f"{_named(o)} [{', '.join(uses)}] [{' & '.join(filters)}]")
    predicates = sorted(render(normalise(_renumber(p, numbers))) for p in emitted.predicates)
    told: dict[int, int | str] = dict(numbers)
    if emitted.computed is not None and query.computed is not None:
        told[query.computed.attribute] = render(_renumber(emitted.computed, numbers))
    groups = [told[g] for g in query.groups]
    parts = [*lines, f"where {predicates}", f"by {groups}"]
    if query.distinct:
        parts.append(f"distinct {[told[a] for a in query.distinct]}")
    if query.cells:
        parts.append(f"in {query.cells} cells, rank {query.rank}")
    if emitted.value is not None:
        (weight,) = query.weights
        places = sorted(order.index(o) for o in weight.occurrences)
        value = _neutral(render(_renumber(emitted.value, numbers)))
        parts.append(f"sum {value} of {places} in {weight.digits} {weight.low} {weight.high}")
    return "; ".join(parts)


def _renumber(e: Expr, numbers: dict[int, int]) -> Expr:
    if e.kind == "attribute":
        return Expr("attribute", e.type, data=numbers[int(e.data)])  # type: ignore[call-overload]
    args = tuple(_renumber(a, numbers) for a in e.args)
    return Expr(e.kind, e.type, args, e.data)
