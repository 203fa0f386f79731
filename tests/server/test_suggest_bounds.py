"""dp.suggest_bounds: private bounds of a column, as one question that pays."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import psycopg
import pytest
from scipy.stats import binom

TABLE = """
create table public.v (id serial primary key, i integer, s smallint, g bigint not null default 7,
    n numeric(12,2), m numeric(30,0), w numeric, f float8, r real, neg integer, one integer,
    nulls integer, t text);
insert into public.v (i, s, n, m, w, f, r, neg, one)
select k % 1000, 32767, (k % 1000) / 4.0, 1e25 + k, 1e-15 * k,
       case k % 40 when 0 then 'NaN' when 1 then 'Infinity' when 2 then '-Infinity'
                   else 2 ^ (k % 13) end,
       -0.75, -300 - k % 100, 42
  from generate_series(1, 4000) k;
create table public.nothing (i integer);
create view public.seen as select i from public.v;
alter table public.v owner to owner1;
alter table public.nothing owner to owner1;
grant dp_owner to owner1;
set role owner1;
select dp.protect('public.v'), dp.protect('public.nothing');
select dp.grant_budget('alice', epsilon => 5000);
"""

#: A count is above the truth with a probability of exp(-epsilon): less than 1e-13 for all bins of all calls.
SURE = 40

BIN = """
select dp.bound_bins('v', case when t ~ 'int' then 'bigint' when t ~ '^num' then 'numeric'
                               when t ~ 'date|time' then t else 'double precision' end,
                     b, 1, cardinality(b.cuts) + 1)
  from (select %s::text as t) as t, dp.bound_cuts(t) as b
"""


@pytest.fixture(scope="module")
def values(server: Any) -> Any:
    database = server.create_database()
    database.sql(TABLE)
    yield database
    server.drop_database(database)


@pytest.fixture(scope="module")
def alice(values: Any) -> Any:
    return values.connect(user="alice")


def suggest(connection: Any, arguments: str) -> Any:
    return connection.execute(
        "select lower, upper, epsilon_spent, outside_at_most, statement"
        f" from dp.suggest_bounds({arguments})"
    ).fetchone()


def numbers(found: Any) -> tuple[Any, Any]:
    """Return the bounds as numbers."""
    return tuple(None if v is None else Fraction(v) for v in found[:2])  # type: ignore[return-value]


def spent(database: Any) -> list[tuple[Any, ...]]:
    return database.sql("select epsilon, delta, mechanism from dp.ledger order by id")


@pytest.mark.parametrize(
    ("column", "lower", "upper"),
    [
        ("i", 0, 1023),
        ("s", 16384, 32767),
        ("g", 4, 7),
        ("n", 0, 255.99),
        ("m", 9671406556917033397649408, 19342813113834066795298815),
        ("w", 0, 2**-32),
        ("f", 0, 8192),
        ("r", -1, -0.5),
        ("neg", -511, -256),
        ("one", 32, 63),
    ],
)
def test_occupied_bins_are_found(alice: Any, column: str, lower: float, upper: float) -> None:
    found = suggest(alice, f"'public.v', '{column}', epsilon => {SURE}, confidence => 0.99")
    assert tuple(map(float, numbers(found))) == (float(lower), float(upper))
    assert found[2] == SURE
    # what is in the open bins counts as outside: 100 rows each are infinite
    assert 0 <= found[3] - (200 if column == "f" else 0) < 500


@pytest.mark.parametrize(
    ("type_name", "extremes"),
    [
        ("smallint", ["-32768", "32767", "16384", "-16384", "-16385"]),
        ("bigint", ["-9223372036854775808", "9223372036854775807", "-4611686018427387904"]),
        ("numeric(12,2)", ["9999999999.99", "-9999999999.99", "0.01", "-0.01", "0.02", "255.99"]),
        ("numeric(3,-2)", ["99900", "-99900", "100", "-100"]),
        ("numeric(2,5)", ["0.00099", "-0.00001", "0.00001"]),
        ("numeric", ["1e30", "-1e30", "1e-30", "-1e-30", "18446744073709551616"]),
        ("real", ["3e38", "-1e-45", "1e-45", "Infinity"]),
        ("double precision", ["1e308", "-5e-324", "-Infinity"]),
    ],
)
def test_every_value_is_in_the_bin_that_says_so(
    values: Any, type_name: str, extremes: list[str]
) -> None:
    powers = [str(sign * 2**j) for j in range(15) for sign in (1, -1)] + ["0", "1", "-1"]
    plain = [] if type_name in ("numeric(3,-2)", "numeric(2,5)") else powers
    bin_of = values.sql(BIN, type_name)[0][0]
    rows = values.sql(
        f"""
        select v::text, b.open, dp.bound_of_bin(b, {bin_of}, false)::text,
               dp.bound_of_bin(b, {bin_of}, true)::text
          from (select v::{type_name} as v from unnest(%s::text[]) v) v, dp.bound_cuts('{type_name}') b
        """,
        [*extremes, *plain],
    )
    assert len(rows) == len(extremes) + len(plain)
    for value, is_open, low, high in rows:
        if is_open and abs(float(value)) >= 2**64:
            assert float(low if float(value) < 0 else high) in (-(2**64), 2**64)
            continue
        assert Fraction(low) <= Fraction(value) <= Fraction(high), (value, low, high)
        assert abs(float(high) - float(low)) <= max(abs(float(value)), 2**-32), (value, low, high)


@pytest.mark.parametrize("arguments", ["'public.v', 'nulls'", "'public.nothing', 'i'"])
def test_no_values_suggest_nothing(alice: Any, arguments: str) -> None:
    found = suggest(alice, arguments + f", epsilon => {SURE}")
    assert found[:2] == (None, None)
    assert found[4] is None
    assert 0 <= found[3] < 500


def test_the_statement_declares_the_bounds(values: Any, alice: Any) -> None:
    for column, kind in (("n", "bounds"), ("f", "bounds"), ("one", "range"), ("m", "bounds")):
        found = suggest(alice, f"'public.v', '{column}', epsilon => {SURE + 1}")
        values.sql("set role owner1; " + found[4])
        declared = values.sql(
            "select kind, lower::numeric, upper::numeric from dp.domains where column_name = %s",
            column,
        )
        assert [(k, float(low), float(high)) for k, low, high in declared] == [
            (kind, float(found[0]), float(found[1]))
        ]
        values.sql(f"set role owner1; select dp.drop_domain('public.v', '{column}')")


def test_of_a_listed_domain_only_members_are_looked_at(values: Any, alice: Any) -> None:
    values.sql("set role owner1; select dp.set_domain('public.v', 'i', 5, 20)")
    assert numbers(suggest(alice, f"'public.v', 'i', {SURE}")) == (4, 31)
    values.sql("set role owner1; select dp.set_domain('public.v', 'i', -5000000, 20)")
    assert numbers(suggest(alice, f"'public.v', 'i', {SURE}")) == (0, 1023)
    values.sql("set role owner1; select dp.drop_domain('public.v', 'i')")


def test_it_is_one_question_and_stored_like_any(values: Any, alice: Any) -> None:
    before = spent(values)
    first = suggest(alice, "'public.v', 'i', 0.5")
    after = spent(values)
    assert len(after) == len(before) + 1
    assert (0.5, 0) in [(float(e), float(d)) for e, d, _ in after]
    assert suggest(alice, "'public.v', 'i', 0.5") == first
    assert len(spent(values)) == len(after)
    alice.execute("set dp.epsilon = 0.25")
    assert float(suggest(alice, "'public.v', 'i'")[2]) == 0.25
    assert alice.execute("show dp.epsilon").fetchone() == ("0.25",)
    assert alice.execute("show dp.confidence").fetchone() == ("0.95",)
    assert alice.execute("show dp.delta").fetchone()[0] != "0"
    alice.execute("reset dp.epsilon")


@pytest.mark.parametrize(
    ("arguments", "state", "said"),
    [
        ("'public.v', 't'", "PD040", "text"),
        ("'public.v', 'nope'", "PD040", "does not exist"),
        ("'public.seen', 'i'", "PD040", "not of a table"),
        ("'public.v', 'i', confidence => 1", "PD040", "confidence"),
        ("'public.v', 'i', null", "PD040", "epsilon"),
        ("'public.v', 'i', 0", "PD", "epsilon"),
        ("'public.v', 'i', 101", "PD", "epsilon"),
        ("'pg_catalog.pg_class', 'relpages'", "PD", "pg_class"),
    ],
)
def test_refusals_cost_nothing(
    values: Any, alice: Any, arguments: str, state: str, said: str
) -> None:
    before = spent(values)
    with pytest.raises(psycopg.Error) as caught:
        suggest(alice, arguments)
    assert caught.value.sqlstate.startswith(state), caught.value.sqlstate
    assert said in str(caught.value)
    assert spent(values) == before


def test_a_role_without_budget_gets_nothing(values: Any, alice: Any) -> None:
    values.sql("select dp.grant_budget('bob', epsilon => 0.1)")
    with pytest.raises(psycopg.Error) as caught:
        suggest(values.connect(user="bob"), "'public.v', 'i', 0.5, 0.9")
    assert caught.value.sqlstate == "PD001"
    values.sql("create role unknown_to_dpsql login")
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        values.connect(user="unknown_to_dpsql") as session,
    ):
        suggest(session, "'public.v', 'i'")
    values.sql("drop role unknown_to_dpsql")


def test_the_highest_confidence_survives_the_digits_of_a_setting(alice: Any) -> None:
    for column in ("s", "i", "g", "n", "m", "f"):
        assert suggest(alice, f"'public.v', '{column}', 20, 0.999")[4] is not None


BEYOND = """
create table public.beyond (k int primary key, tenth float8, high float8, each float8, until date, far numeric, minus int);
insert into public.beyond
select k, case when k % 10 = 0 then 'Infinity'::float8 else k % 100 end, 'Infinity',
       case when k % 2 = 0 then '-Infinity'::float8 else 'Infinity' end,
       case when k % 10 = 0 then 'infinity'::date else date '2020-01-01' + k % 366 end,
       1e30, -100 - k % 3900
  from generate_series(1, 8000) k;
alter table public.beyond owner to owner1;
set role owner1;
select dp.protect('public.beyond');
"""


@pytest.fixture(scope="module")
def beyond(values: Any) -> None:
    values.sql(BEYOND)


def told(connection: Any, arguments: str) -> tuple[Any, list[str]]:
    """Return what is suggested, and the warnings; nobody asked for intervals, so none are explained."""
    warnings: list[str] = []

    def keep(diagnostic: Any) -> None:
        assert "dp_interval" not in (diagnostic.message_primary or "")
        if diagnostic.severity_nonlocalized == "WARNING":
            warnings.append(f"{diagnostic.message_primary} {diagnostic.message_detail}")

    connection.add_notice_handler(keep)
    try:
        return suggest(connection, arguments), warnings
    finally:
        connection.remove_notice_handler(keep)


@pytest.mark.parametrize(
    ("column", "ends"), [("tenth", ("0", "128")), ("until", ("2020-01-01", "2020-12-31"))]
)
def test_infinities_bound_nothing_and_count_as_outside(
    alice: Any, beyond: None, column: str, ends: tuple[str, str]
) -> None:
    found, warnings = told(alice, f"'public.beyond', '{column}', {SURE}, 0.99")
    assert found[:2] == ends
    assert 0 <= found[3] - 800 < 500
    (warning,) = warnings
    assert "infinite" in warning
    assert f"up to {round(found[3])} rows" in warning


@pytest.mark.parametrize("column", ["high", "each", "far"])
def test_where_all_is_beyond_the_bins_nothing_is_suggested(
    alice: Any, beyond: None, column: str
) -> None:
    found, warnings = told(alice, f"'public.beyond', '{column}', {SURE}, 0.99")
    assert (found[0], found[1], found[4]) == (None, None, None)
    assert 0 <= found[3] - 8000 < 500
    (warning,) = warnings
    assert warning.startswith("no bounds are suggested for public.beyond." + column)


def test_zero_is_taken_where_it_costs_little(values: Any, alice: Any, beyond: None) -> None:
    """Of ends 64 and 127 the nearer one stays; of -4095 and -64 it becomes 0."""
    assert numbers(suggest(alice, f"'public.beyond', 'minus', {SURE}")) == (-4095, 0)
    costs = values.sql(
        """
        select l, u, dp.bound_may_be_zero(b, dp_bin.l, dp_bin.u) from dp.bound_cuts('integer') b,
          lateral (values (b.zero + 8, b.zero + 10), (b.zero + 8, b.zero + 11), (b.zero - 10, b.zero - 6),
                          (b.zero - 7, b.zero - 6), (b.zero + 1, b.zero + 9), (b.zero - 3, b.zero + 9),
                          (b.zero - 9, b.zero + 1)) as dp_bin(l, u)
        """
    )
    assert [row[2] for row in costs] == [False, True, True, False, False, False, False]


def test_much_outside_is_told(values: Any, alice: Any, beyond: None) -> None:
    """All 8,000 rows are in one bin of 65: at epsilon 20 that is sure, at 0.05 hardly.

    Then each empty bin may hold 220 rows, the number for a false alarm of 0.001/65 together, and four of them are
    a tenth.  Fewer are outside only if empty bins near both ends seem occupied: 10 pairs, less than 1e-9.
    """
    values.sql("alter table public.beyond add plenty int default 100")
    assert told(alice, "'public.beyond', 'plenty', 20, 0.99")[1] == []
    found, warnings = told(alice, "'public.beyond', 'plenty', 0.05, 0.999")
    (warning,) = warnings
    assert warning.startswith(
        f"up to {round(found[3])} rows may have values of public.beyond.plenty outside of {found[0]} and"
    )


MOMENTS = """
create table public.m (id serial primary key, d date, t timestamp, z timestamptz(3), none timestamp);
insert into public.m (d, t, z)
select date '1992-01-01' + k % 2557, timestamp '1969-12-31 23:59:59.999999', now()
  from generate_series(1, 4000) k;
update public.m set z = timestamptz '2023-12-31 23:30:00+00' + (id % 3600) * interval '1 second';
update public.m set d = 'infinity' where id % 40 = 0;
alter table public.m owner to owner1;
set role owner1;
select dp.protect('public.m');
"""


def test_dates_and_timestamps_are_found_by_years(values: Any, alice: Any) -> None:
    values.sql(MOMENTS)
    found = {
        column: suggest(alice, f"'public.m', '{column}', {SURE}, 0.99")
        for column in ("d", "t", "z", "none")
    }
    # what is infinite, 100 rows, is outside and bounds nothing
    assert found["d"][:2] == ("1992-01-01", "1998-12-31")
    assert 0 <= found["d"][3] - 100 < 500
    assert found["t"][:2] == ("1969-01-01 00:00:00", "1969-12-31 23:59:59.999999")
    # bins are years in UTC, whatever the zone of the session is
    assert found["z"][:2] == ("2023-01-01 00:00:00+00", "2024-12-31 23:59:59.999+00")
    assert found["none"][:2] == (None, None)
    for column in ("d", "t", "z"):
        values.sql("set role owner1; " + found[column][4])
    declared = values.sql(
        "select column_name, kind from dp.domains where relation_name = 'm' order by 1"
    )
    assert declared == [("d", "range"), ("t", "bounds"), ("z", "bounds")]


@pytest.mark.parametrize(
    ("type_name", "extremes"),
    [
        ("date", ["-infinity", "infinity", "4713-01-01 BC", "0001-01-01", "2999-12-31", "5000-01-01"]),
        ("timestamp without time zone", ["-infinity", "infinity", "4713-01-01 BC", "294276-01-01"]),
        ("timestamp with time zone", ["infinity", "1970-01-01 00:00:00+00", "2024-12-31 23:59:59+05"]),
    ],
)  # fmt: skip
def test_every_moment_is_in_the_bin_that_says_so(
    values: Any, type_name: str, extremes: list[str]
) -> None:
    bin_of = values.sql(BIN, type_name)[0][0]
    edges = [f"{year}-{day}" for year in (1900, 1999, 2100) for day in ("01-01", "12-31")]
    rows = values.sql(
        f"""
        select v::text, {bin_of} in (1, cardinality(b.cuts) + 1),
               v between dp.bound_text('{type_name}', dp.bound_of_bin(b, {bin_of}, false))::{type_name}
                     and dp.bound_text('{type_name}', dp.bound_of_bin(b, {bin_of}, true))::{type_name}
          from (select v::{type_name} as v from unnest(%s::text[]) v) v, dp.bound_cuts('{type_name}') b
        """,
        [*extremes, *edges],
    )
    assert len(rows) == len(extremes) + len(edges)
    for value, is_open, inside in rows:
        assert inside or is_open, value
        assert is_open == ("infinity" in value or "BC" in value or value[:4] in ("5000", "2942"))


def test_public_relations_cost_nothing(values: Any, alice: Any) -> None:
    values.sql(
        """
        create table public.known as select generate_series(5, 900) as n;
        alter table public.known owner to owner1;
        set role owner1;
        select dp.declare_public('public.known');
        """
    )
    before = spent(values)
    found = suggest(alice, "'public.known', 'n'")
    assert (numbers(found), found[2:4]) == ((0, 1023), (0, 0))
    assert spent(values) == before


def test_a_bin_is_seen_by_its_units_and_not_by_their_rows(database: Any) -> None:
    """Some units have a thousand rows in one bin; others, of one row, are far out.

    By rows the bound of a unit, hence the noise, would follow the thousand rows and hide 120 rows of
    120 units: 100 units exceed any bound below 1000, so that the noise has a scale of 1000/16 and intervals
    that exclude 0 from 550 rows on.  By units the scale is 1/16 nearly always, and at most 66/16, as there are
    66 bins: intervals exclude 0 from 40 units on, and 100 or 120 are missed with a probability below 1e-10.
    No other bin is seen at this confidence but for one time in a thousand, so hardly ever in each of four.
    """
    database.sql(
        """
        create table p (id int primary key);
        create table visit (v int primary key, p int not null references p);
        create table item (v int not null references visit, paid int);
        insert into p select generate_series(1, 2000);
        insert into visit select id, id from p;
        insert into item select 1 + k % 100, 100 from generate_series(1, 100000) k;
        insert into item select 500 + k, 1000000 from generate_series(1, 120) k;
        select dp.protect('p', privacy_unit => 'id'), dp.grant_budget('alice', epsilon => 100);
        """
    )
    alice = database.connect(user="alice")
    alice.execute("set dp.fresh = on")
    found = [numbers(suggest(alice, "'item', 'paid', 20, 0.999")) for _ in range(4)]
    assert (0, 1048575) in found


def test_units_are_protected_and_no_number_outside_is_told(database: Any) -> None:
    database.sql(
        """
        create table p (id int primary key);
        create table visit (p int not null references p, paid numeric(10,2));
        insert into p select generate_series(1, 2000);
        insert into visit select 1 + k % 2000, 10 * 2 ^ (k % 3) from generate_series(1, 12000) k;
        insert into visit select 1, 9000000 from generate_series(1, 50000);
        select dp.protect('p', privacy_unit => 'id'), dp.grant_budget('alice', epsilon => 100);
        """
    )
    alice = database.connect(user="alice")
    alice.execute("set dp.fresh = on")
    # The unit with many rows is one in its bin, and the others are in sight whatever is drawn: all of the
    # 80 bins leave a scale of 80/3.2 and intervals of 300 around 2000.  A time is lost if some empty bin, or
    # that of the one unit, seems occupied: less than 0.001; four times in a row less than 1e-12.
    told_each = [told(alice, "'visit', 'paid', 4, 0.999") for _ in range(4)]
    found = [f for f, _ in told_each]
    assert (8, Fraction(6399, 100)) in [numbers(f) for f in found]
    assert [f[3] for f in found] == [None] * 4
    for (lower, *_), warnings in told_each:
        assert lower is None or "is not known" in warnings[0]
    assert [(float(e), float(d)) for e, d, _ in spent(database)] == [(4, 0)] * 4


def test_the_stated_confidence_holds(values: Any, alice: Any) -> None:
    """Each call is wrong with a probability of at most 1/10; 100 calls, false alarm below 1e-9."""
    calls, stated = 100, 0.9
    tail = binom(calls, 1 - stated)
    allowed = next(k for k in range(calls) if tail.sf(k) < 1e-9)
    values.sql(
        "insert into public.nothing select 5 from generate_series(1, 12);"
        "insert into public.nothing select 5000 from generate_series(1, 4)"
    )
    alice.execute("set dp.fresh = on")
    wrong = 0
    for _ in range(calls):
        found = suggest(alice, f"'public.nothing', 'i', 1, {stated}")
        (lower, upper), outside = numbers(found), found[3]
        rows = [5] * 12 + [5000] * 4
        beyond = sum(lower is None or not lower <= v <= upper for v in rows)
        # an end in an empty bin is a false alarm; 4..7 and 4096..8191 have rows, and 0 is better than 4 for both
        ends = (None, None), (4, 7), (4096, 8191), (0, 8191)
        wrong += beyond > outside or (lower, upper) not in ends
    alice.execute("set dp.fresh = off")
    assert wrong <= allowed, f"{wrong} of {calls} wrong, {allowed} are allowed"


@pytest.mark.parametrize(
    ("arguments", "state", "message"),
    [
        ("null, null", "PD040", 'parameter "relation" must not be null'),
        ("'v', null", "PD040", 'parameter "column_name" must not be null'),
        ("'v', 'x'", "PD040", "column x of relation "),
        ("'v', 'i', 1e-1000", "PD040", 'parameter "confidence" must be between'),
        ("'v', 'i', 'NaN'", "PD040", 'parameter "confidence" must be between'),
        ("'v', 'i', 1, 1e-1000", "PD040", 'parameter "confidence" must be between'),
    ],
)
def test_arguments_that_mean_nothing(
    values: Any, alice: Any, arguments: str, state: str, message: str
) -> None:
    before = spent(values)
    with pytest.raises(psycopg.Error) as caught:
        suggest(alice, arguments)
    assert caught.value.sqlstate == state
    assert caught.value.diag.message_primary.startswith(message)
    assert len(str(caught.value.diag.message_detail)) < 100
    assert spent(values) == before
