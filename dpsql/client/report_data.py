"""What a report says: views and functions of ``dp``, added up in SQL, as who connects may see them.

Left out unless asked for is what the owner may know and whoever gets the page may not: texts of
questions, and exact numbers of changed rows (PRIVACY.md section 2).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dpsql.client.session import Connection, rows

#: Rows of a table; more are counted.
SHOWN = 200
#: Accounts of a kind whose spending is drawn and listed step by step.
DRAWN = 7
SECTIONS = (
    "budgets",
    "costs",
    "releases",
    "syntheses",
    "refusals",
    "statistics",
    "lockdown",
    "roles",
)
EXTRAS = ("questions", "changes")

_ABOUT = """
select current_database()::text as database, pg_catalog.now() as made_at,
       current_user::text as made_by, pg_catalog.pg_has_role('dp_owner', 'usage') as owner,
       (select extversion from pg_catalog.pg_extension where extname = 'dpsql') as version
"""
_LEDGER = "select status, advice, charged_unanswered, failed from dp.ledger_status"
_BUDGETS = """
select b.account, coalesce(b.role::text, b.relation) as name, b.composition,
       b.epsilon_limit, b.epsilon_spent, b.epsilon_remaining,
       b.delta_limit, b.delta_spent + b.delta_reserved as delta_spent, b.delta_remaining, b.spends,
       b.budget_window::text, b.window_start, b.window_end, b.window_epsilon_spent,
       case b.composition when 'zcdp' then 1 - b.rho_remaining / nullif(b.rho_limit, 0)
            else 1 - b.epsilon_remaining / nullif(b.epsilon_limit, 0) end::float8 as used,
       r.privacy_unit
  from dp.budgets as b
  left join dp.relations as r on b.relation = format('%I.%I', r.schema_name, r.relation_name)
 where b.account = '{account}'
 order by b.epsilon_spent desc, 2
"""
_BURN = """
with burn as (
    select account, coalesce(role::text, relation) as name, step_start, spends, epsilon,
           epsilon_spent
      from dp.burn()),
ranked as (
    select account, name, count(*) over (partition by account) as accounts,
           row_number() over (partition by account order by max(epsilon_spent) desc, name) as place
      from burn group by account, name)
select account, name, step_start, spends, epsilon, epsilon_spent, accounts
  from burn join ranked using (account, name)
 where place <= %(drawn)s order by account desc, name, step_start
"""
_FAILURES = """
select coalesce(role::text, 'all roles') as role, relation, failures, failure_limit, stopped,
       last_charged
  from dp.failures where failures > 0 order by stopped desc, failures desc, 1, 2
"""
# errors of a question are not kept: they hang on its sensitivity, which may be secret
_COSTS = """
select method, mechanism, label, count(*) as spends,
       count(*) filter (where state = 'failed') as failed,
       sum(epsilon) as epsilon, sum(delta) as delta,
       percentile_cont(0.5) within group (order by epsilon::float8) as median_epsilon,
       min(at) as first_at, max(at) as last_at
  from dp.ledger where mechanism is not null and relations <> '{}'
 group by method, mechanism, label order by sum(epsilon) desc, method, mechanism
"""
_QUESTIONS = """
select at, role::text, epsilon, delta, mechanism, state, question from dp.ledger
 order by epsilon desc, at desc limit 50
"""
_RELEASES = """
select name::text, mechanism, noise, epsilon, delta, expected_error, cells, reads,
       released_by::text, measured_at
  from dp.releases order by measured_at desc
"""
_SYNTHESES = """
select target::text, made_by::text, state, epsilon, delta, tables, rows_written, rows, reads,
       cardinality(notes) as notes, created_at, finished_at
  from dp.syntheses order by created_at desc
"""
_REFUSED = """
with width as (
    select case when max(hour) - min(hour) <= interval '4 days' then interval '1 hour'
                when max(hour) - min(hour) <= interval '100 days' then interval '1 day'
                else interval '7 days' end as step
      from dp.refusals)
select date_bin(w.step, r.hour, timestamptz '2001-01-01 00:00+00') as step_start,
       extract(epoch from w.step)::integer as seconds, r.sqlstate, sum(r.refused)::bigint as refused
  from dp.refusals as r cross join width as w group by 1, 2, 3 order by 1, 3
"""
_REASONS = """
select sqlstate, reason, coalesce(hint, advice) as advice, sum(refused)::bigint as refused,
       count(distinct role) as roles, max(hour) as last_hour
  from dp.refusals group by 1, 2, 3 order by 4 desc, 1, 3
"""
_STATISTICS = """
select kind, array_to_string(relations, ', ') as relations, count(*) as kept,
       min(taken_at) as taken_at, now() - min(taken_at) as age,
       bool_and(changes is not null) as usable, max(changes) as changes
  from dp.statistics group by 1, 2 order by 4, 2, 1
"""
_LOCKDOWN = """
select severity, hole, count(*) as number,
       (array_agg(distinct object order by object))[1:5] as objects,
       (array_agg(distinct who order by who))[1:5] as who, min(why) as why,
       min(statement) as statement
  from dp.check_lockdown() group by severity, hole
 order by array_position(array['critical', 'high', 'medium', 'low'], severity), hole
"""
_DECLARED = """
select format('%I.%I', schema_name, relation_name) as relation, kind, neighbours, privacy_unit,
       heuristic_allowed, problem
  from dp.relations order by kind, 1
"""
# releases, exposed views and synthetic rows that a role has a right to; not the extension's views,
# which refuse to show rows
_READERS = """
select b.role::text as role, b.epsilon_remaining, b.delta_remaining,
       (select array_agg(c.relname::text order by c.relname) filter (
                   where pg_catalog.has_table_privilege(r.oid, c.oid, 'select'))
          from pg_catalog.pg_class as c
         where c.relnamespace = 'dpv'::regnamespace and c.relkind in ('r', 'v')
           and not exists (select from pg_catalog.pg_depend as d
                            where d.classid = 'pg_catalog.pg_class'::regclass
                              and d.objid = c.oid and d.deptype = 'e'))
           as readable
  from dp.budgets as b join pg_catalog.pg_roles as r on r.rolname = b.role
 where b.account = 'role' order by b.epsilon_limit > 0 desc, b.role
"""


def collect(
    connection: Connection, *, without: Collection[str] = (), extras: Collection[str] = ()
) -> dict[str, Any]:
    """Read everything in one snapshot.

    Parameters
    ----------
    connection : Connection
        Of the role that the report is for.
    without : collection of str
        Members of `SECTIONS` that are left out.
    extras : collection of str
        Members of `EXTRAS` that are put in.

    Returns
    -------
    dict
        ``about`` and, for each section, its tables; None where it is left out or for owners only.
    """
    connection.execute("begin isolation level repeatable read read only")
    # what is drawn adds lengths to times
    connection.execute("set local timezone to 'UTC'")
    try:
        (about,) = rows(connection, _ABOUT)
        found: dict[str, Any] = {"about": about, **dict.fromkeys(SECTIONS)}
        owner = about["owner"]
        for name in SECTIONS:
            if name in without or (name in ("statistics", "lockdown") and not owner):
                continue
            found[name] = _READ[name](connection)
        about["ledger"] = rows(connection, _LEDGER)[0] if owner else None
        found["questions"] = rows(connection, _QUESTIONS) if "questions" in extras else None
        for row in found["statistics"] or ():
            if "changes" not in extras:
                del row["changes"]
        return found
    finally:
        connection.execute("rollback")


def _limited(connection: Connection, query: str) -> dict[str, Any]:
    """Return the first rows of a query, and how many there are."""
    (number,) = rows(connection, f"select count(*) as number from ({query}) as q")
    return {"rows": rows(connection, f"{query} limit {SHOWN}"), "number": number["number"]}


def _budgets(connection: Connection) -> dict[str, Any]:
    return {
        "role": _limited(connection, _BUDGETS.replace("{account}", "role")),
        "relation": _limited(connection, _BUDGETS.replace("{account}", "relation")),
        "burn": rows(connection, _BURN, drawn=DRAWN),
        "failures": _limited(connection, _FAILURES),
    }


def _refusals(connection: Connection) -> dict[str, Any]:
    (since,) = rows(connection, "select dp.refusals_since() as since")
    return {
        "since": since["since"],
        "over_time": rows(connection, _REFUSED),
        "reasons": _limited(connection, _REASONS),
    }


def _roles(connection: Connection) -> dict[str, Any]:
    return {"declared": _limited(connection, _DECLARED), "readers": _limited(connection, _READERS)}


_READ = {
    "budgets": _budgets,
    "costs": lambda c: rows(c, _COSTS),
    "releases": lambda c: _limited(c, _RELEASES),
    "syntheses": lambda c: _limited(c, _SYNTHESES),
    "refusals": _refusals,
    "statistics": lambda c: rows(c, _STATISTICS),
    "lockdown": lambda c: rows(c, _LOCKDOWN),
    "roles": _roles,
}
