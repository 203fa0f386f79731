"""Which questions lie in the span of a release: sums of its published cells.

A question over the same block counts, for each of its groups, the rows with some levels of the
release's keys.  If one grouping set of the release tells these keys apart, the answer is a sum of
cells, which are published: a function of released values (PRIVACY.md section 2 (b)), free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.query.aggregates import is_aggregate
from dpsql.query.asked import AskedSet, Form, Part, Predicate, Reads, WorkloadQuestion
from dpsql.query.catalog import Catalog
from dpsql.query.expressions import Builder
from dpsql.query.flatten import Flattener
from dpsql.query.ir import Expr, column, map_columns, render
from dpsql.query.normalise import normalise
from dpsql.query.parse import parse
from dpsql.query.pipeline import shallow


@dataclass(frozen=True, slots=True)
class Sum:
    """How a question is answered from a release.

    Attributes
    ----------
    grouping, query : int, int or None
        The grouping set whose cells are added up, and whose query it is where there are several.
    keys : tuple of int
        For each group key of the question the group column of the released table.
    conditions : tuple of str
        SQL over the released table, called ``r0``; all must be true.
    pinned : tuple of (int, tuple of str)
        Group columns that equal one of some constants, each of which must be in the table.
    """

    grouping: int
    query: int | None
    keys: tuple[int, ...]
    conditions: tuple[str, ...]
    pinned: tuple[tuple[int, tuple[str, ...]], ...]


def reads_of(analysis: Mapping[str, Any], catalog: Catalog) -> Reads | None:
    """Return what rows a question counts, ``None`` where it counts anything but plain rows."""
    with shallow():
        query = parse(str(analysis["sql"]))
        flattener = Flattener(catalog)
        scope = flattener.top(query)
        builder = Builder(catalog, scope.lookup)
        for part in (*(t.expression for t in query.targets), query.having):
            for node in part.walk() if part is not None else ():
                plain = node.value == ("public", "dp_count") and not node.args
                if is_aggregate(node) and not (plain and not node.flags - {"star"}):
                    return None
        return Reads(
            tuple(r.oid for r in flattener.block.relations),
            frozenset(normalise(c) for c in flattener.block.conjuncts),
            tuple(dict.fromkeys(builder.build(node) for node in query.group)),
        )


@dataclass(frozen=True, slots=True)
class Span:
    """What is kept of a release to find the questions that it answers.

    ``columns`` names the group columns of its table, a ranged one by its lower end.
    """

    reads: Reads
    sets: tuple[AskedSet, ...]
    columns: tuple[str, ...]
    groupings: tuple[int, ...]
    several: bool


def within(question: Reads, released: Span) -> Sum | None:
    """Find the grouping set with the fewest keys that answers a question, if there is one."""
    own = released.reads
    if question.relations != own.relations or not own.conditions <= question.conditions:
        return None
    extra = sorted(question.conditions - own.conditions, key=repr)
    places = {key: n for n, key in enumerate(own.keys)}
    needed = set()
    for key in question.keys:
        if key not in places:
            return None
        needed.add(places[key])
    for condition in extra:
        columns = {e for e in condition.walk() if e.kind == "col"}
        if not columns or not columns <= set(places):
            return None
        needed.update(places[c] for c in columns)
    pinned = dict(p for c in extra if (p := _pinned(c, places)) is not None)
    # rows outside of a declared domain are in no cell: their key must be asked for or pinned
    asked_for = {places[key] for key in question.keys}
    for n, every in enumerate(own.whole):
        if not every and n not in asked_for and n not in pinned:
            return None
    fitting = [s for s in released.sets if _answers(s, needed)]
    if not fitting:
        return None
    asked = min(fitting, key=lambda s: len(s.parts))
    shown = {
        asked.parts[place].key: n for n, place in enumerate(asked.shown) if isinstance(place, int)
    }

    def level(col: Expr) -> Expr:
        name = released.columns[shown[places[col]]]
        return column(0, name, col.type, col.type, not_null=False)

    return Sum(
        released.groupings[released.sets.index(asked)],
        asked.query if released.several else None,
        tuple(shown[places[key]] for key in question.keys),
        tuple(render(map_columns(c, level)) for c in extra),
        tuple((shown[n], values) for n, values in pinned.items()),
    )


def _pinned(condition: Expr, places: Mapping[Expr, int]) -> tuple[int, tuple[str, ...]] | None:
    """Read a condition that a key equals a constant, or one of several."""
    listed = condition.kind == "in" and not condition.data
    if not listed and not (condition.kind == "op" and condition.data == "="):
        return None
    key, *values = condition.args
    if key not in places or not all(v.kind == "const" and v.data is not None for v in values):
        return None
    return places[key], tuple(render(v) for v in values)


def _answers(asked: AskedSet, needed: set[int]) -> bool:
    """Whether a set counts all rows, level by level, by all these keys."""
    levels = {p.key for p in asked.parts if p.form.kind == "levels"}
    return not asked.where and len(levels) == len(asked.parts) and needed <= levels


def span_of(released: WorkloadQuestion, groupings: tuple[int, ...]) -> Span:
    """Return what is kept of a release; ``groupings`` are those of its sets."""
    columns = tuple(
        f"{column.name}_low" if ranged else column.name
        for column, ranged in zip(released.columns, released.ranged, strict=True)
    )
    several = any(s.query for s in released.sets)
    return Span(released.reads, released.sets, columns, groupings, several)


def dump(span: Span) -> str:
    """Write a span as JSON."""
    return json.dumps(
        {
            "relations": span.reads.relations,
            "conditions": sorted((_tree(c) for c in span.reads.conditions), key=repr),
            "keys": [_tree(key) for key in span.reads.keys],
            "whole": span.reads.whole,
            "sets": [
                {
                    "query": s.query,
                    "parts": [[p.key, p.form.kind, p.form.width] for p in s.parts],
                    "shown": s.shown,
                    "where": bool(s.where),
                }
                for s in span.sets
            ],
            "columns": span.columns,
            "groupings": span.groupings,
            "several": span.several,
        }
    )


def load(text: str) -> Span:
    """Read what `dump` wrote.  Its expressions are compared with others, and never run."""
    raw = json.loads(text)
    reads = Reads(
        tuple(raw["relations"]),
        frozenset(_expression(c) for c in raw["conditions"]),
        tuple(_expression(key) for key in raw["keys"]),
        tuple(raw["whole"]),
    )
    sets = tuple(
        AskedSet(
            s["query"],
            tuple(Part(key, Form(kind, width)) for key, kind, width in s["parts"]),
            tuple(s["shown"]),
            (Predicate(()),) if s["where"] else (),
        )
        for s in raw["sets"]
    )
    columns, groupings = tuple(raw["columns"]), tuple(raw["groupings"])
    return Span(reads, sets, columns, groupings, raw["several"])


def _tree(e: Expr) -> list[object]:
    return [e.kind, e.type, [_tree(a) for a in e.args], e.data]


def _expression(tree: Any) -> Expr:
    kind, type_, args, data = tree
    return Expr(kind, type_, tuple(map(_expression, args)), _hashable(data))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
