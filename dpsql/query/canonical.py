"""The text that identifies a question: equal for equivalent texts, never for different ones.

It is a complete description of what is counted (relations by OID, join attributes,
filters, predicates, group keys and their domains), so two questions with one text are the
same function of the data.  Equivalent texts meet because aliases, join syntax and the
order of conjuncts are gone already, and because occurrences are sorted by what is said
about them; ties (self-joins) are broken by trying the permutations.
"""

from __future__ import annotations

from itertools import permutations, product
from math import factorial, prod
from typing import NamedTuple

from dpsql.model import GroupDomain, JoinQuery, Occurrence
from dpsql.query.described import described
from dpsql.query.emit import Emitted
from dpsql.query.ir import Expr, map_columns
from dpsql.query.normalise import normalise

_VERSION = "2"
_MAX_PERMUTATIONS = 120


def canonical(counted: list[Emitted], domains: tuple[GroupDomain, ...] | None) -> str:
    """Write the canonical text of a question."""
    parts = [_VERSION, *(describe(e) for e in counted)]
    if domains is None:
        parts.append("domains unknown")
    else:
        parts.extend(f"{d.positions} {d.identity}" for d in domains)
    return "\n".join(parts)


def _neutral(e: Expr) -> str:
    """Describe an expression with ``r`` for the alias of every occurrence."""
    return described(map_columns(e, lambda c: Expr("col", c.type, data=("", *c.data[1:]))))  # type: ignore[index]


class _Texts(NamedTuple):
    """The neutral texts of one occurrence: of its attributes, by their numbers, and its filters."""

    uses: list[tuple[int, str]]
    filters: list[str]


def describe(emitted: Emitted) -> str:
    """Write what one join query counts."""
    query = emitted.query
    texts = [
        _Texts([(u.attribute, _neutral(u.expression)) for u in o.uses], [*map(_neutral, o.filters)])
        for o in query.occurrences
    ]
    return min(_text(emitted, texts, order) for order in _orders(query, texts))


def _colours(query: JoinQuery, texts: list[_Texts]) -> list[str]:
    """Refine what is known of each occurrence by what it is joined to."""
    own = []
    for o in query.occurrences:
        groups = [
            (query.groups.index(u.attribute), described(u.expression))
            for u in o.uses
            if u.attribute in query.groups
        ]
        weights = [_neutral(w.expression) for w in query.weights if w.occurrences == {o.index}]
        own.append(repr((_named(o), texts[o.index].filters, sorted(groups), weights)))
    colours = own
    for _ in range(2):
        refined = []
        for o in query.occurrences:
            around = sorted(
                (u, colours[p.index], v)
                for a, u in texts[o.index].uses
                for p in query.occurrences
                if p is not o
                for b, v in texts[p.index].uses
                if b == a
            )
            refined.append(repr((own[o.index], around)))
        ranks = {c: i for i, c in enumerate(sorted(set(refined)))}
        colours = [f"{ranks[c]:04}" for c in refined]
    return colours


def _named(occurrence: Occurrence) -> int | str:
    """Name a relation, or what is read in its place: how often a row counts differs.

    What is texts of relations themselves never changes: stored answers are found by it.
    """
    relation = occurrence.relation
    if not relation.source:
        return relation.oid
    return f"{relation.oid} agreed by {relation.keys} on {relation.source}"


def _orders(query: JoinQuery, texts: list[_Texts]) -> list[tuple[int, ...]]:
    colours = _colours(query, texts)
    cells: dict[str, list[int]] = {}
    for index, colour in enumerate(colours):
        cells.setdefault(colour, []).append(index)
    sorted_cells = [cells[c] for c in sorted(cells)]
    if prod(factorial(len(cell)) for cell in sorted_cells) > _MAX_PERMUTATIONS:
        return [tuple(i for cell in sorted_cells for i in cell)]
    arrangements = product(*(permutations(cell) for cell in sorted_cells))
    return [tuple(i for cell in cells_ for i in cell) for cells_ in arrangements]


def _text(emitted: Emitted, texts: list[_Texts], order: tuple[int, ...]) -> str:
    query = emitted.query
    numbers: dict[int, int] = {}
    lines = []
    for index in order:
        o = query.occurrences[index]
        uses = []
        known = sorted(
            texts[index].uses, key=lambda use: (numbers.get(use[0], len(query.attributes)), use[1])
        )
        for a, text in known:
            number = numbers.setdefault(a, len(numbers))
            uses.append(f"a{number}={text}::{query.attributes[a].type_name}")
        filters = " & ".join(sorted(texts[index].filters))
        lines.append(f"{_named(o)} [{', '.join(uses)}] [{filters}]")
    predicates = sorted(described(normalise(_renumber(p, numbers))) for p in emitted.predicates)
    names: dict[int, int | str] = dict(numbers)
    if query.computed is not None:
        made = _renumber(query.computed.expression, numbers)
        names[query.computed.attribute] = described(made)
    groups = [names[g] for g in query.groups]
    parts = [*lines, f"where {predicates}", f"by {groups}"]
    if query.distinct:
        parts.append(f"distinct {[names[a] for a in query.distinct]}")
    if query.cells:
        parts.append(f"in {query.cells} cells, rank {query.rank}")
    if emitted.value is not None:
        (weight,) = query.weights
        places = sorted(order.index(o) for o in weight.occurrences)
        value = _neutral(_renumber(emitted.value, numbers))
        parts.append(f"sum {value} of {places} in {weight.digits} {weight.low} {weight.high}")
    return "; ".join(parts)


def _renumber(e: Expr, numbers: dict[int, int]) -> Expr:
    if e.kind == "attribute":
        return Expr("attribute", e.type, data=numbers[int(e.data)])  # type: ignore[call-overload]
    args = tuple(_renumber(a, numbers) for a in e.args)
    return Expr(e.kind, e.type, args, e.data)
