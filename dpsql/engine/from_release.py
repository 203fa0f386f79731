"""Answer a question from a release that the role may read: nothing is charged.

The role may read the release's table, and so any sum of its cells (PRIVACY.md section 2 (b)).
Rows outside the release's domain are in none of its cells; the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engine.bounding import PROVED
from dpsql.engine.payload import Payload
from dpsql.engine.release_table import table_name
from dpsql.model import Key
from dpsql.relation import quote_identifier, show_name

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared
    from dpsql.engine.request import Role, Settings
    from dpsql.engine.services import Services
    from dpsql.query.span import Sum

_READABLE = """
select r.name::text as name, r.span::text as span, r.terms ->> 'rows' as rows,
  to_char(r.released_at, 'YYYY-MM-DD HH24:MI:SS') as released_at
from dp.stored_release as r
where r.relations @> $1::oid[] and r.incarnation = (select i.token from dp.ledger_incarnation as i)
  and coalesce(has_table_privilege($2::oid, to_regclass(format('dpv.%I', r.name)), 'select'), false)
order by r.rmse nulls last, r.released_at desc
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A release that answers a question, and how."""

    name: str
    released_at: str
    rows: str | None
    sum: Sum
    columns: tuple[str, ...]

    @property
    def told(self) -> str:
        """Say it to the asker."""
        shown = show_name("dpv", self.name)
        return f"answered from the release {shown} of {self.released_at} at no cost" + (
            f"; of each privacy unit at most {self.rows} rows count" if self.rows else ""
        )


def find(prepared: Prepared, role: Role, settings: Settings, services: Services) -> Found | None:
    """Find the latest release that answers a question; with ``dp.fresh`` none does."""
    question = prepared.question
    plain = (
        all(not (q.weights or q.distinct or q.cells) for q in question.aggregates)
        and len(question.aggregates) == 1
    )
    if settings.fresh or question.wants_interval or not plain or question.group_domains is None:
        return None
    relations = sorted({o.relation.oid for o in question.aggregates[0].occurrences})
    rows = services.database.execute(_READABLE, [("oid[]", relations), ("oid", role.oid)])
    if not rows:
        return None
    from dpsql.query.span import load, reads_of, within

    # with the rights of who asks, as every text
    own = reads_of(services.catalog.analyze(prepared.text), services.catalog)
    if own is None:
        return None
    for name, text, most, when in rows:
        span = load(str(text))
        how = within(own, span)
        # units are cut off as the release did it: only if the session asks for the same
        alike = most is None or int(str(most)) == settings.max_rows_contributed
        if how is not None and alike:
            return Found(
                str(name), str(when), None if most is None else str(most), how, span.columns
            )
    return None


def serve(
    prepared: Prepared, groups: list[Key], role: Role, settings: Settings, services: Services
) -> tuple[Payload, str] | None:
    """Answer a question from a release, and say so; ``None`` where none can."""
    found = find(prepared, role, settings, services)
    if found is None or not _has_all(found, services):
        return None
    return _payload(found, groups, services)


def _has_all(found: Found, services: Services) -> bool:
    """Whether the constants that keys are compared with are levels of the release."""
    for column, values in found.sum.pinned:
        missing = services.database.execute(
            f"SELECT count(*) AS n FROM pg_catalog.unnest(ARRAY[{', '.join(values)}]) AS u(c)"
            f" WHERE NOT EXISTS (SELECT FROM {table_name(found.name)} AS r0 WHERE"
            f' r0."grouping" = {found.sum.grouping} AND'
            f" r0.{quote_identifier(found.columns[column])} = u.c)"
        )
        if missing[0][0]:
            return False
    return True


def _payload(found: Found, groups: list[Key], services: Services) -> tuple[Payload, str] | None:
    """Add up cells for all groups; ``None`` where the release lacks one of them."""
    how = found.sum
    keys = [f"CAST(r0.{quote_identifier(found.columns[n])} AS text)" for n in how.keys]
    tests = [f'r0."grouping" = {how.grouping}', *(f"({c})" for c in how.conditions)]
    if how.query is not None:
        tests.append(f"r0.query = {how.query + 1}")
    listed = ", ".join(
        [*(f"{key} AS k{i}" for i, key in enumerate(keys)), "r0.value", "r0.standard_error AS e"]
    )
    by = ", ".join(f"s.k{i}" for i in range(len(keys)))
    rows = services.database.execute(
        f"SELECT {by + ', ' if by else ''}sum(s.e) AS e, round(sum(s.value))::numeric::text AS n"
        f" FROM (SELECT {listed} FROM {table_name(found.name)} AS r0"
        f" WHERE {' AND '.join(tests)}) AS s{' GROUP BY ' + by if by else ''}"
    )
    values = {tuple(None if v is None else str(v) for v in row[:-2]): row[-1] for row in rows}
    errors = [float(str(row[-2])) for row in rows if row[-2] is not None]
    if how.conditions and not keys and values == {(): None}:
        values = {(): "0"}
    if any(group not in values for group in groups) and not how.conditions:
        return None
    told = found.told
    if errors and len(errors) == len(rows):
        told += f"; standard error at most {max(errors):.3g}"
    served = Payload(
        groups=groups,
        values=[[int(str(values.get(group) or 0)) for group in groups]],
        scales=[None],
        mechanism="release",
        method="release",
        label=PROVED,
    )
    return served, told
