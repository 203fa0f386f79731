"""Answer a question from a release that the role may read: nothing is charged.

The role may read the release's table, and so any sum of its cells (PRIVACY.md section 2 (b)).
Rows outside the release's domain are in none of its cells; the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine.methods.base import PROVED
from dpsql.engine.payload import Payload
from dpsql.engine.release_meaning import meaning_known
from dpsql.engine.release_sums import Readable, Served, sums
from dpsql.engine.release_table import table_name
from dpsql.model import Key
from dpsql.sqltree import render, sql, table

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared
    from dpsql.engine.release_levels import Levels
    from dpsql.engine.request import Role, Settings
    from dpsql.engine.services import Services
    from dpsql.ports import Database
    from dpsql.query.asked import Reads
    from dpsql.query.ways import Asked

_READABLE = """
select r.name::text as name, (r.span - array['levels', 'spread'])::text as span,
  r.terms ->> 'rows' as rows,
  to_char(r.measured_at, 'YYYY-MM-DD HH24:MI:SS') as measured_at, r.cells,
  r.noise = 'gaussian' and r.terms ->> 'postprocess' = 'none' as normal,
  nullif(r.terms ->> 'postprocess', 'none') as postprocess
from dp.stored_release as r
where r.relations @> $1::oid[] and r.incarnation = (select i.token from dp.ledger_incarnation as i)
  and coalesce(has_table_privilege($2::oid, to_regclass(format('dpv.%I', r.name)), 'select'), false)
order by r.terms ->> 'postprocess' = 'none' desc, r.measured_at desc
"""
#: A release that was dropped, or whose reader lost it, since the list was read.
_GONE = ("42P01", "42501")
#: Ways whose errors are compared, in releases of at most so many cells; in larger ones the first.
_COMPARED = 8
_FEW_CELLS = 1_000_000


def serve(
    prepared: Prepared, groups: list[Key], role: Role, settings: Settings, services: Services
) -> tuple[Payload, str] | None:
    """Answer a question from a release, and say so; ``None`` where none can.

    Of all releases and all ways the one with the least standard error answers, as far as it is
    known; of equals one that is not post-processed, the latest.  With ``dp.fresh`` none does.
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
        found = _from_one(readable, reads, groups, prepared, services)
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
    for name, text, most, when, cells, normal, way in rows:
        # units are cut off as the release did it: only if the session asks for the same
        if most is not None and int(str(most)) != settings.max_rows_contributed:
            continue
        span = load(str(text))
        if span is not None:
            limit, way = (None if value is None else str(value) for value in (most, way))
            size = int(str(cells))
            found.append(Readable(str(name), span, limit, str(when), size, bool(normal), way))
    return found


def _from_one(
    readable: Readable,
    reads: Reads,
    groups: Sequence[Key],
    prepared: Prepared,
    services: Services,
) -> Served | None:
    """Answer from one release, if it still is there when its table is read."""
    try:
        return _from(readable, reads, groups, prepared, services)
    except Exception as error:
        if getattr(error, "sqlstate", None) in _GONE:
            return None
        raise


def _from(
    readable: Readable,
    reads: Reads,
    groups: Sequence[Key],
    prepared: Prepared,
    services: Services,
) -> Served | None:
    """Answer from one release, in the way with the least error."""
    from dpsql.engine.release_errors import standard_errors
    from dpsql.engine.release_levels import Levels
    from dpsql.query.ways import asked_of, ways

    span, database = readable.span, services.database
    asked = asked_of(reads, span.reads)
    # the levels have lost the collation of their column, which an order of texts follows
    if asked is None or (prepared.collated and asked.tests):
        return None
    # a release cuts units off before rows are looked at by their keys, a question afterwards
    if readable.rows is not None and asked.tests:
        return None
    if asked.groups and not groups:
        return None
    if span.meaning != meaning_known(span.reads, services):
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
    if not found or not _is_free(readable.name, database):
        return None
    if not _is_seen(readable.name, database):
        return None
    if errors := standard_errors(asked, readable.name, span, truth, places, database):
        served = sums(found[0], readable, levels, places, database)
        if served is not None:
            return replace(served, errors=errors, exact=True)
    best: Served | None = None
    for way in found[: _COMPARED if readable.cells <= _FEW_CELLS else 1]:
        served = sums(way, readable, levels, places, database)
        if served is not None and (best is None or served.error < best.error):
            best = served
    return best


def _is_free(name: str, database: Database) -> bool:
    """Whether no other transaction is replacing or dropping the table, whose end nobody knows."""
    text = "select coalesce(dp.lock_at_once(to_regclass($1)), false) as free"
    return bool(database.execute(text, [("text", table_name(name))])[0][0])


def _is_seen(name: str, database: Database) -> bool:
    """Whether the snapshot has the table's rows: not of one that was replaced after it."""
    released = table(table_name(name))
    statement = sql("SELECT EXISTS (SELECT FROM :released) AS seen", released=released)
    return bool(database.execute(render(statement))[0][0])


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
