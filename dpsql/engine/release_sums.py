"""Add up the cells of a released table that answer a question, for all of its groups at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.engine.release_table import table_name
from dpsql.relation import quote_identifier, show_name
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    equal,
    join,
    join_all,
    number,
    parameter,
    raw,
    render,
    sql,
    subquery,
    table,
    unnest,
)

if TYPE_CHECKING:
    from dpsql.engine.release_levels import Levels
    from dpsql.ports import Database
    from dpsql.query.span import Span
    from dpsql.query.ways import Chosen, Pick, Way


@dataclass(frozen=True, slots=True)
class Readable:
    """A release that the role may read.

    ``rows``: of a privacy unit so many count.  ``normal``: the noise of its numbers is a sum of
    Gaussian noise, so that their standard errors tell how far off they may be.  ``postprocess``:
    what was made of them.
    """

    name: str
    span: Span
    rows: str | None
    measured_at: str
    cells: int
    normal: bool
    postprocess: str | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What a release says: a number for each group, and how far it may be off.

    ``error`` is the largest standard error, infinite where nothing is known of it; ``exact`` says
    whether ``errors`` are the standard errors themselves, and no bounds of them.
    """

    readable: Readable
    values: list[int]
    errors: list[float]
    exact: bool
    cells: int

    @property
    def error(self) -> float:
        """The largest standard error of a group."""
        return max(self.errors, default=0.0)

    @property
    def told(self) -> str:
        """Say it to the asker."""
        source = self.readable
        shown = show_name("dpv", source.name)
        told = f"answered from the release {shown} of {source.measured_at} at no cost"
        if source.rows:
            told += f"; of each privacy unit at most {source.rows} rows count"
        if self.cells > 1:
            told += f"; made of {self.cells} of its numbers"
        if math.isfinite(self.error):
            told += f"; standard error at most {self.error:.3g}"
        if source.postprocess:
            told += f" before they were post-processed ({source.postprocess})"
        return told


def sums(
    way: Way,
    readable: Readable,
    levels: Levels,
    places: Sequence[tuple[int, ...]],
    database: Database,
) -> Served | None:
    """Add up the cells of all groups; ``None`` where the table lacks one of them."""
    span = readable.span
    grouped = {c.group: c for c in way.chosen if c.group is not None}
    order = [grouped[i] for i in range(len(grouped))]
    found: dict[tuple[int, ...], tuple[object, ...]] = {}
    empty = any(c.picks is not None and not c.picks for c in way.chosen)
    if not empty:
        text, arrays = _statement(way, readable, levels, order, database)
        for *group, value, error, cells in database.execute(text, arrays):
            found[tuple(int(str(g)) for g in group)] = (value, error, cells)
    values, errors = [], []
    most = 0
    picked = {c.key: Counter(p.group for p in c.picks) for c in way.chosen if c.picks is not None}
    for place in places:
        if place and place not in found and not empty:
            return None  # no such combination was released; it may have come up since
        value, error, added = found.get(place, ("0", 0.0, 0))
        cells = int(str(added))
        if way.counted and cells != _expected(way, span, place, picked):
            return None
        most = max(most, cells)
        values.append(int(str(value)))
        errors.append(math.inf if error is None else float(str(error)))
    return Served(readable, values, errors, most <= 1, most)


def _expected(
    way: Way, span: Span, place: tuple[int, ...], picked: Mapping[int, Counter[int]]
) -> int:
    """Count the cells that a group is made of."""
    cells = 1
    for c in way.chosen:
        if c.picks is None:
            cells *= span.levels[c.key].number
        elif c.group is None:
            cells *= len(c.picks)
        else:
            cells *= picked[c.key][place[c.group]]
    return cells


def _statement(
    way: Way, readable: Readable, levels: Levels, order: Sequence[Chosen], database: Database
) -> tuple[str, list[tuple[str, object]]]:
    """Write the statement that adds up the cells of each group."""
    span = readable.span
    released = table_name(readable.name)
    types = _column_types(released, database)
    inner = [sql("r.value"), sql("r.standard_error AS e")]
    joins: list[Tree] = []
    signs: list[Tree] = []
    numbers: dict[int, int] = {}
    arrays: list[tuple[str, object]] = []
    for c in way.chosen:
        low, high = span.columns[c.place]
        if any(c.key in test.keys for test in way.spanning):
            value = cast(column("r", quote_identifier(low)), span.reads.keys[c.key].type)
            inner.append(aliased(value, f'"k{c.key}"'))
        if c.picks is None:
            continue
        n = numbers[c.key] = len(joins)
        ends = [("low", low), *([("high", high)] if c.ranged and high is not None else [])]
        inner += [aliased(_same(column("r", quote_identifier(x))), f"{end}{n}") for end, x in ends]
        joins.append(_picked(n, [(end, types[x]) for end, x in ends], len(arrays)))
        arrays += _arrays(c.picks, levels.texts(c.key))
        signs.append(column(f"p{n}", "sign"))
    tests = [sql('r."grouping" = :grouping', grouping=number(span.groupings[way.place]))]
    if span.several:
        tests.append(sql("r.query = :query", query=number(span.sets[way.place].query + 1)))
    by = [column(f"p{numbers[c.key]}", "g") for c in order]
    statement = sql(
        "SELECT :groups, CAST(CAST(coalesce(round(sum(:signed)), 0) AS numeric) AS text) AS n,"
        " CASE WHEN count(r0.e) = count(*) THEN coalesce(sum(r0.e), 0) END AS e,"
        " count(*) AS cells FROM (SELECT :shown FROM :released AS r WHERE :tests) AS r0"
        " WHERE :spanning GROUP BY :by",
        groups=[aliased(g, f"g{i}") for i, g in enumerate(by)],
        signed=join_all(exp.Mul, [sql("r0.value"), *(signs or [number(1)])]),
        shown=inner,
        released=table(released),
        tests=all_of(tests),
        spanning=all_of(exp.Paren(this=raw(test.sql)) for test in way.spanning),
        by=by,
    )
    statement.set("joins", joins)
    return render(statement), arrays


def _picked(n: int, ends: Sequence[tuple[str, str]], before: int) -> Tree:
    """Join the picks of a column, by the ends of its levels, which have types."""
    listed = [aliased(_same(cast(column("u", end), type_)), end) for end, type_ in ends]
    arrays = enumerate(("text[]", "text[]", "int4[]", "int4[]"), before + 1)
    picks = sql(
        "SELECT :listed, u.sign, u.g FROM :picks",
        listed=listed,
        picks=unnest(
            [cast(parameter(place), type_) for place, type_ in arrays],
            "u",
            ["low", "high", "sign", "g"],
        ),
    )
    same = all_of(equal(column(f"p{n}", end), column("r0", f"{end}{n}")) for end, _ in ends)
    return join(subquery(picks, f"p{n}"), same)


def _same(value: Tree) -> Tree:
    from dpsql.engine.release_levels import same_text

    return same_text(value, "text")


def _arrays(picks: Sequence[Pick], texts: Sequence[str | None]) -> list[tuple[str, object]]:
    return [
        ("text[]", [texts[p.low] for p in picks]),
        ("text[]", [texts[p.high] for p in picks]),
        ("int4[]", [p.sign for p in picks]),
        ("int4[]", [p.group for p in picks]),
    ]


def _column_types(table: str, database: Database) -> dict[str, str]:
    """Return the types of a table's columns by name."""
    rows = database.execute(
        "select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type"
        " from pg_attribute as a where a.attrelid = to_regclass($1) and a.attnum > 0"
        " and not a.attisdropped",
        [("text", table)],
    )
    return {str(name): str(type_) for name, type_ in rows}
