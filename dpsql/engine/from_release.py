"""Answer a question from a release that the role may read: nothing is charged.

The role may read the release's table, and so any sum of its cells (PRIVACY.md section 2 (b)).
Rows outside the release's domain are in none of its cells; the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.engine.bounding import PROVED
from dpsql.engine.payload import Payload
from dpsql.engine.release_table import table_name
from dpsql.model import Key
from dpsql.relation import quote_identifier, show_name

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared
    from dpsql.engine.release_levels import Levels
    from dpsql.engine.request import Role, Settings
    from dpsql.engine.services import Services
    from dpsql.ports import Database
    from dpsql.query.asked import Reads
    from dpsql.query.span import Span
    from dpsql.query.ways import Asked, Chosen, Pick, Way

_READABLE = """
select r.name::text as name, (r.span - array['levels', 'spread'])::text as span,
  r.terms ->> 'rows' as rows,
  to_char(r.released_at, 'YYYY-MM-DD HH24:MI:SS') as released_at, r.cells,
  r.noise = 'gaussian' and r.terms ->> 'postprocess' = 'none' as normal
from dp.stored_release as r
where r.relations @> $1::oid[] and r.incarnation = (select i.token from dp.ledger_incarnation as i)
  and coalesce(has_table_privilege($2::oid, to_regclass(format('dpv.%I', r.name)), 'select'), false)
order by r.released_at desc
"""
#: Ways whose errors are compared, in releases of at most so many cells; in larger ones the first.
_COMPARED = 8
_FEW_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Readable:
    """A release that the role may read.

    ``rows``: of a privacy unit so many count.  ``normal``: the noise of its numbers is a sum of
    Gaussian noise, so that their standard errors tell how far off they may be.
    """

    name: str
    span: Span
    rows: str | None
    released_at: str
    cells: int
    normal: bool


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
        told = f"answered from the release {shown} of {source.released_at} at no cost"
        if source.rows:
            told += f"; of each privacy unit at most {source.rows} rows count"
        if self.cells > 1:
            told += f"; made of {self.cells} of its numbers"
        if math.isfinite(self.error):
            told += f"; standard error at most {self.error:.3g}"
        return told


def serve(
    prepared: Prepared, groups: list[Key], role: Role, settings: Settings, services: Services
) -> tuple[Payload, str] | None:
    """Answer a question from a release, and say so; ``None`` where none can.

    Of all releases and all ways the one with the least standard error answers, as far as it is
    known; of equals that of the latest release.  With ``dp.fresh`` none does.
    """
    question, reads = prepared.question, prepared.reads
    if settings.fresh or reads is None or question.group_domains is None:
        return None
    if len(question.aggregates) != 1:
        return None
    (counted,) = question.aggregates
    if counted.weights or counted.distinct or counted.cells:
        return None
    best: Served | None = None
    for readable in _readable(reads, role, settings, services.database):
        if question.wants_interval and not readable.normal:
            continue
        found = _from(readable, reads, groups, prepared, services.database)
        if found is None or (question.wants_interval and not _tells_interval(found)):
            continue
        if best is None or found.error < best.error:
            best = found
    if best is None:
        return None
    payload = Payload(
        groups=groups,
        values=[list(best.values)],
        scales=[None],
        mechanism="release",
        method="release",
        label=PROVED,
        errors=best.errors if question.wants_interval else None,
    )
    told = best.told
    if question.wants_interval:
        told += "; intervals hold at least as often as asked, since its noise is Gaussian"
    return payload, told


def _tells_interval(found: Served) -> bool:
    return found.exact and math.isfinite(found.error)


def _readable(reads: Reads, role: Role, settings: Settings, database: Database) -> list[Readable]:
    rows = database.execute(_READABLE, [("oid[]", sorted(set(reads.relations))), ("oid", role.oid)])
    if not rows:
        return []
    from dpsql.query.span import load

    found = []
    for name, text, most, when, cells, normal in rows:
        # units are cut off as the release did it: only if the session asks for the same
        if most is not None and int(str(most)) != settings.max_rows_contributed:
            continue
        span = load(str(text))
        if span is not None:
            limit = None if most is None else str(most)
            found.append(Readable(str(name), span, limit, str(when), int(str(cells)), bool(normal)))
    return found


def _from(
    readable: Readable,
    reads: Reads,
    groups: Sequence[Key],
    prepared: Prepared,
    database: Database,
) -> Served | None:
    """Answer from one release, in the way with the least error."""
    from dpsql.engine.release_errors import standard_errors
    from dpsql.engine.release_levels import Levels
    from dpsql.query.ways import asked_of, ways

    span = readable.span
    asked = asked_of(reads, span.reads)
    # the levels have lost the collation of their column, which an order of texts follows
    if asked is None or (prepared.collated and asked.tests):
        return None
    levels = Levels(readable.name, span, database)
    keys = {*asked.groups, *(n for test in asked.tests for n in test.keys)}
    if not levels.are_kept(keys) or not levels.hold(asked):
        return None
    places = _places(asked, groups, levels)
    if places is None:
        return None
    shown = [frozenset(column) for column in zip(*places, strict=True)] if asked.groups else []
    truth = levels.truth(asked.tests)
    found = ways(asked, span, truth, shown)
    if found and (errors := standard_errors(asked, readable.name, span, truth, places, database)):
        served = _sums(found[0], readable, levels, places, database)
        if served is not None:
            return replace(served, errors=errors, exact=True)
    best: Served | None = None
    for way in found[: _COMPARED if readable.cells <= _FEW_CELLS else 1]:
        served = _sums(way, readable, levels, places, database)
        if served is not None and (best is None or served.error < best.error):
            best = served
    return best


def _places(asked: Asked, groups: Sequence[Key], levels: Levels) -> list[tuple[int, ...]] | None:
    """Write the question's groups as levels; ``None`` where one is no level of the release."""
    columns = []
    for i, key in enumerate(asked.groups):
        values = list(dict.fromkeys(group[i] for group in groups))
        found = levels.places(key, values)
        if found is None:
            return None
        place = dict(zip(values, found, strict=True))
        columns.append([place[group[i]] for group in groups])
    return list(zip(*columns, strict=True)) if columns else [() for _ in groups]


def _sums(
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
    if all(c.picks is None or c.picks for c in way.chosen):
        sql, arrays = _statement(way, readable, levels, order, database)
        for *group, value, error, number in database.execute(sql, arrays):
            found[tuple(int(str(g)) for g in group)] = (value, error, number)
    values, errors = [], []
    most = 0
    for place in places:
        value, error, number = found.get(place, ("0", 0.0, 0))
        cells = int(str(number))
        if way.counted and cells != _expected(way, span, place):
            return None
        most = max(most, cells)
        values.append(int(str(value)))
        errors.append(math.inf if error is None else float(str(error)))
    return Served(readable, values, errors, most <= 1, most)


def _expected(way: Way, span: Span, place: tuple[int, ...]) -> int:
    """Count the cells that a group is made of."""
    number = 1
    for c in way.chosen:
        if c.picks is None:
            number *= span.levels[c.key].number
        elif c.group is None:
            number *= len(c.picks)
        else:
            number *= sum(p.group == place[c.group] for p in c.picks)
    return number


def _statement(
    way: Way, readable: Readable, levels: Levels, order: Sequence[Chosen], database: Database
) -> tuple[str, list[tuple[str, object]]]:
    """Write the statement that adds up the cells of each group."""
    span = readable.span
    table = table_name(readable.name)
    types = _column_types(table, database)
    inner = ["r.value", "r.standard_error AS e"]
    joins: list[str] = []
    signs: list[str] = []
    numbers: dict[int, int] = {}
    arrays: list[tuple[str, object]] = []
    for c in way.chosen:
        low, high = span.columns[c.place]
        if any(c.key in test.keys for test in way.spanning):
            type_ = span.reads.keys[c.key].type
            inner.append(f'CAST(r.{quote_identifier(low)} AS {type_}) AS "k{c.key}"')
        if c.picks is None:
            continue
        n = numbers[c.key] = len(joins)
        ends = [("low", low), *([("high", high)] if c.ranged and high is not None else [])]
        inner += [f"{_same(f'r.{quote_identifier(x)}')} AS {end}{n}" for end, x in ends]
        listed = [f"{_same(f'CAST(u.{end} AS {types[x]})')} AS {end}" for end, x in ends]
        k = len(arrays)
        joins.append(
            f"JOIN (SELECT {', '.join(listed)}, u.sign, u.g FROM unnest(${k + 1}::text[],"
            f" ${k + 2}::text[], ${k + 3}::int4[], ${k + 4}::int4[]) AS u(low, high, sign, g))"
            f" AS p{n} ON {' AND '.join(f'p{n}.{end} = r0.{end}{n}' for end, _ in ends)}"
        )
        arrays += _arrays(c.picks, levels.texts(c.key))
        signs.append(f"p{n}.sign")
    tests = [f'r."grouping" = {span.groupings[way.place]}']
    if span.several:
        tests.append(f"r.query = {span.sets[way.place].query + 1}")
    sign = " * ".join(signs) or "1"
    by = ", ".join(f"p{numbers[c.key]}.g" for c in order)
    where = " AND ".join(f"({test.sql})" for test in way.spanning)
    sql = (
        f"SELECT {by + ', ' if by else ''}coalesce(round(sum(r0.value * {sign})), 0)::numeric::text"
        f" AS n, CASE WHEN count(r0.e) = count(*) THEN coalesce(sum(r0.e), 0) END AS e, count(*)"
        f" AS cells FROM (SELECT {', '.join(inner)} FROM {table} AS r WHERE {' AND '.join(tests)})"
        f" AS r0 {' '.join(joins)}{' WHERE ' + where if where else ''}"
        f"{' GROUP BY ' + by if by else ''}"
    )
    return _named(sql, by), arrays


def _named(sql: str, by: str) -> str:
    """Give the group columns names of their own."""
    if not by:
        return sql
    listed = by.split(", ")
    named = ", ".join(f"{name} AS g{i}" for i, name in enumerate(listed))
    return sql.replace(f"SELECT {by}, ", f"SELECT {named}, ", 1)


def _same(value: str) -> str:
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
