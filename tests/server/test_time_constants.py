"""Constants of time, the commonest filter: computed as PostgreSQL does with the asker's TimeZone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.query import functions
from tests.server import asking
from tests.server.asking import refused

pytestmark = pytest.mark.server

#: A moment a day for 23 years, and one every 15 minutes around a change of the clocks.
SET_UP = """
create table sale (id serial primary key, placed_at timestamptz, day date, local timestamp);
insert into sale (placed_at) select t from generate_series(now() - interval '20 years', now()
  + interval '3 years', interval '1 day') as t;
insert into sale (placed_at) select t from generate_series(timestamptz '2026-03-27 00:00+00',
  '2026-04-03 00:00+00', interval '15 minutes') as t;
insert into sale (placed_at) values ('infinity'), ('-infinity'), (null);
update sale set day = placed_at::date, local = placed_at at time zone 'UTC';
select dp.protect('sale'), dp.grant_budget('postgres', 1e6, 1);
"""
FILTERS = [
    "placed_at > now() - interval '1 year'",
    "placed_at > current_timestamp - interval '30 days'",
    "placed_at > current_timestamp + interval '36 hours 5 minutes'",
    "placed_at > interval '1 month' + now()",
    "placed_at > timestamptz '2026-01-01' - interval '1 year'",
    "placed_at < timestamptz '2026-03-29 01:30' + interval '1 day'",
    "placed_at < timestamptz '2026-03-28 02:30' + interval '1 day'",
    "placed_at < timestamptz '2026-03-28 02:30' + interval '24 hours'",
    "placed_at between now() - interval '2 months' and now() - '1 month'::interval",
    "placed_at >= date_trunc('month', now())",
    "placed_at >= date_trunc('month', now()) - interval '1 month'",
    "placed_at >= date_trunc('month', now() - interval '1 month')",
    "placed_at >= (now() - interval '1 year')::date",
    "placed_at >= localtimestamp - interval '1 year'",
    "placed_at > now() - 3 * interval '1 day'",
    "placed_at > now() - (interval '1 year' / 12 + interval '1 day' * 2.5 - interval '1 hour')",
    "day > now() - interval '1 year'",
    "day > now()::date - 7",
    "day >= current_date - 30",
    "day >= current_date - interval '30 days'",
    "day >= date_trunc('month', now())",
    "local > now() - interval '1 year'",
    "local > timestamp '2026-03-28 02:30' - interval '1 year'",
    "now() - placed_at < interval '1 year'",
    "placed_at - timestamptz '2026-03-29 01:30' < interval '36 hours'",
    "placed_at > now() - null::interval",
    "placed_at >= to_timestamp('2026-03-29 01:30:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')",
    "placed_at < to_timestamp(1774751400.5)",
    "day >= to_date('2026-03-28', 'YYYY-MM-DD') - 30",
    "day < make_date(2026, 3, 28)",
    "local < to_timestamp('2026-03-28', 'YYYY-MM-DD')",
]


@pytest.fixture(scope="module")
def sales(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(sales: Any) -> Iterator[Any]:
    with asking.silent(sales, "sale") as session:
        session.prepare_threshold = None  # a literal is read when its statement is prepared
        yield session


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "-05:45"])
@pytest.mark.parametrize("condition", FILTERS)
def test_filters_by_time_count_what_postgresql_counts(
    silent: Any, condition: str, zone: str
) -> None:
    """Infinite values are NULL in arithmetic and where two kinds of time meet, so they are left out."""
    silent.execute(f"set timezone = '{zone}'")
    with silent.transaction():
        text = f"select {{}}(*) from sale where isfinite(placed_at) and {condition}"
        assert (
            silent.execute(text.format("dp_count")).fetchone()
            == silent.execute(text.format("count")).fetchone()
        )


def test_the_zone_and_the_style_of_dates_are_the_askers(silent: Any) -> None:
    """One text counts differently in two zones, and alike in all styles."""
    condition = "placed_at < timestamptz '2026-03-28 02:30' + interval '1 day'"
    found = set()
    for zone in ("UTC", "America/New_York"):
        silent.execute(f"set timezone = '{zone}'")
        for style in ("ISO", "SQL, DMY", "German", "Postgres, MDY"):
            silent.execute(f"set datestyle = '{style}'")
            text = f"select {{}}(*) from sale where isfinite(placed_at) and {condition}"
            ((mine,),) = silent.execute(text.format("dp_count")).fetchall()
            ((own,),) = silent.execute(text.format("count")).fetchall()
            assert mine == own, (zone, style)
            found.add(mine)
    silent.execute("reset datestyle")
    assert len(found) == 2


def test_the_list_names_the_servers_own_operators(silent: Any) -> None:
    for (operator, left, right), (oid, result) in functions.FOLDED.items():
        assert silent.execute(
            "select oprcode::oid, oprresult::regtype::text from pg_operator where oprname = %s"
            " and oprleft = %s::regtype and oprright = %s::regtype",
            (operator, left, right),
        ).fetchall() == [(oid, result)]
    for (name, *arguments), (oid, result) in functions.FOLDED_FUNCTIONS.items():
        assert silent.execute(
            "select p.oid, p.prorettype::regtype::text from pg_proc as p where p.proname = %s"
            " and p.pronamespace = 'pg_catalog'::regnamespace and oidvectortypes(p.proargtypes) = %s",
            (name, ", ".join(arguments)),
        ).fetchall() == [(oid, result)]


@pytest.mark.parametrize(
    ("condition", "state", "hint"),
    [
        ("placed_at + interval '1 year' > now()", "PD013", "Move it to the other side"),
        ("placed_at - interval '1 day' > now()", "PD013", "Move it to the other side"),
        ("placed_at > now() - id * interval '1 day'", "PD013", "The documentation lists"),
        ("placed_at > now() - interval '1 day' / 0", "PD014", None),
        ("day > to_date('2026-13-01', 'YYYY-MM-DD')", "PD014", None),
        ("day > to_date(id::text, 'YYYY')", "PD013", "The documentation lists"),
        ("placed_at > timestamptz '294276-12-31' + interval '1 year'", "PD014", None),
    ],
)
def test_what_is_refused_costs_nothing(
    sales: Any, silent: Any, condition: str, state: str, hint: str | None
) -> None:
    before = sales.sql("select count(*) from dp.ledger")
    error = refused(silent, f"select dp_count(*) from sale where {condition}")
    assert error.sqlstate == state, error
    assert hint is None or str(error.diag.message_hint).startswith(hint)
    assert sales.sql("select count(*) from dp.ledger") == before
