"""Sums and averages of values at the ends of their types, and in all parts of a statement.

The noise is taken away in most sessions here; what is left must be PostgreSQL's own answer about
clamped values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.asking import refused, say

pytestmark = pytest.mark.server

SET_UP = """
create table v (id int primary key, k int not null, s smallint, i int, b bigint, n numeric(5,2),
  m numeric(3,-2), u numeric, r real, d double precision, z int, declared double precision);
insert into v values
 (1, 1, 32767, 2147483647, 9223372036854775807, 999.99, 99900, 1e30, 3.4e38, 1.7e308, null, 3.5),
 (2, 1, -32768, -2147483648, -9223372036854775808, -999.99, -99900, 'NaN', 'NaN', 'NaN', null, 99),
 (3, 2, null, null, null, 'NaN', null, 'Infinity', 'Infinity', 'Infinity', null, 'NaN'),
 (4, 2, 0, 0, 0, 0, 0, '-Infinity', '-Infinity', '-Infinity', null, null),
 (5, 2, 1, 1, 1, 0.01, 100, -1e-30, '-0', 4.9e-324, null, -0.25),
 (6, 3, -1, 7, 7, 7.77, 700, 7.7777777, 7.7777777, 7.7777777, null, '-Infinity');
create table f (id int primary key, x real, y double precision);
insert into f select g, 16777216, 1234567890123456 from generate_series(1, 10) g;
create table nothing (i int, n numeric(5,2), d double precision);
create table few (i int, n numeric(5,2), d double precision);
insert into few values (1, 2, 3), (4, 5, 6), (7, 8, 9);
select dp.protect(t, delta => 1) from unnest(array['v', 'f', 'nothing', 'few']::regclass[]) t;
select dp.set_domain('v', 'k', 1, 4);
select dp.set_domain('v', 'declared', -1, 4.5);
select dp.grant_budget('postgres', 1e6, 1), dp.grant_budget('alice', 1e6, 1);
create view w as select id, k, i from v where i is not null;
select dp.declare_view('w');
grant usage on schema public to alice;
"""
#: Bounds beyond, at, within the type, and of no width.
BOUNDS = {
    "s": ("-100000, 100000", "-32768, 32767", "-3, 5", "0, 0", "40000, 50000"),
    "i": ("-2147483648, 2147483647", "-3, 5", "2, 2"),
    "b": ("-9223372036854775808, 9223372036854775807", "-3, 5", "0, 3"),
    "n": ("-1000, 1000", "-0.5, 3.25", "0.125, 0.3"),
    "m": ("-100000, 100000", "-150, 250", "0, 7"),
    "u": ("-1e40, 1e40", "-0.5, 3.25", "5, 5"),
    "r": ("-1e37, 1e37", "-0.5, 3.25", "5, 5"),
    "d": ("-1e40, 1e40", "-0.5, 3.25", "0.1, 0.1"),
}
CASES = [(column, bounds) for column, listed in BOUNDS.items() for bounds in listed]
MOMENTS = ("avg", "var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev")


@pytest.fixture(scope="module")
def numbers(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(numbers: Any) -> Iterator[Any]:
    """A session of the owner without noise."""
    with asking.silent(numbers, "v") as session:
        yield session


@pytest.fixture
def alice(numbers: Any) -> Iterator[Any]:
    with numbers.connect("alice") as session:
        yield session


def one(session: Any, statement: str) -> Any:
    """Return the only value of an answer."""
    ((value,),) = session.execute(statement).fetchall()
    return value


def plain(session: Any, aggregate: str, column: str, bounds: str) -> float:
    """Return PostgreSQL's own aggregate of the clamped numbers; of too few NULL is 0 here."""
    low, high = bounds.split(", ")
    wide = "numeric" if column in "sibnmu" else "double precision"
    value = f"least(greatest({column}::{wide}::numeric, {low}), {high})"
    return float(
        one(session, f"select {aggregate}({value}) from v where {column} is not null") or 0
    )


@pytest.mark.parametrize(("column", "bounds"), CASES)
def test_clamped_values_are_summed_and_averaged(silent: Any, column: str, bounds: str) -> None:
    low, high = map(float, bounds.split(", "))
    for aggregate in ("sum", *MOMENTS):
        found = one(silent, f"select dp_{aggregate}({column}, {bounds}) from v")
        expected = plain(silent, aggregate, column, bounds)
        size = max(abs(low), abs(high), 1) ** (2 if "var" in aggregate else 1)
        if "std" in aggregate:  # the root of what is left of a difference
            assert abs(float(found) ** 2 - expected**2) <= 1e-8 * size**2, aggregate
        else:
            assert abs(float(found) - expected) <= 1e-8 * size, aggregate


@pytest.mark.parametrize("bounds", ["-1000, 1000", "-0.5, 3.25"])
@pytest.mark.parametrize("name", [name for name in MOMENTS if name != "avg"])
def test_deviations_have_about_as_many_digits_as_those_of_postgresql(
    silent: Any, name: str, bounds: str
) -> None:
    low, high = bounds.split(", ")
    value = f"least(greatest(n, {low}), {high})"
    usual = one(silent, f"select scale({name}({value})) from v")
    assert usual >= 12
    assert abs(one(silent, f"select scale(dp_{name}(n, {bounds})) from v") - usual) <= 6


@pytest.mark.parametrize(("column", "bounds"), CASES[:11])
def test_sums_of_exact_numbers_are_exact(silent: Any, column: str, bounds: str) -> None:
    low, high = bounds.split(", ")
    value = f"least(greatest({column}, {low}), {high})"
    assert one(silent, f"select dp_sum({column}, {bounds}) from v") == one(
        silent, f"select sum({value}) from v where {column} is not null"
    )


def test_a_declared_range_moves_values_into_it_and_nan_to_its_end(silent: Any) -> None:
    """Of 3.5, 99, NaN, NULL, -0.25 and -Infinity."""
    row = silent.execute(
        "select dp_sum(declared), dp_avg(declared), dp_count(declared), dp_sum(declared, 0, 4) from v"
    ).fetchone()
    assert row == (pytest.approx(11.25, abs=1e-8), pytest.approx(11.25 / 5, abs=1e-8), 5, 11.5)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("x", 16777214, 16777216),
        ("x", 16777217, 16777219),
        ("y", 1234567890123455, 1234567890123457),
        ("y", 1234567890123450, 1234567890123452),
        ("y", 0.3, 0.30000000001),
    ],
)
def test_narrow_bounds_of_floats_hold(silent: Any, value: str, low: float, high: float) -> None:
    """As numeric a double precision keeps 15 digits, which is coarser than these bounds."""
    found = one(silent, f"select dp_sum({value}::double precision, {low}, {high}) from f")
    assert 10 * low <= found <= 10 * high
    assert low <= one(silent, f"select dp_avg({value}, {low}, {high}) from f") <= high


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("dp_histogram(s, -100000, 100000, 4)", [0, 2, 3, 0]),
        ("dp_histogram(r, -1e39, 1e39, 2)", [0, 3]),
        ("dp_histogram(i, -10000000000, 10000000000, 2)", [1, 4]),
    ],
)
def test_cells_may_be_wider_than_a_type(silent: Any, call: str, expected: list[int]) -> None:
    assert one(silent, f"select {call} from v") == expected


def test_bounds_of_types_are_none_for_rows_but_those_of_expressions_are(silent: Any) -> None:
    for value in ("s", "n", "b / 2", "-i", "s + 1", "n * 2", "case when id > 2 then i end"):
        assert say(silent, f"select dp_sum({value}) from v").startswith("PD011"), value
    assert silent.execute(
        "select dp_sum(i % 10), dp_sum(least(greatest(b, -3), 5)), dp_sum(declared + 1),"
        " dp_sum(case when i between 0 and 7 then i end), dp_sum(coalesce(sign(n), 0)) from v"
    ).fetchall() == [(7 - 8 + 0 + 1 + 7, 5 - 3 - 3 + 0 + 1 + 5, 16.25, 8, 3)]


def test_types_are_those_of_postgresql(silent: Any) -> None:
    for column in "sibnmurd":
        for aggregate in ("sum", *MOMENTS):
            mine = silent.execute(f"select dp_{aggregate}({column}, 0, 1) from v").description
            own = silent.execute(f"select {aggregate}({column}) from v limit 0").description
            assert mine[0].type_code == own[0].type_code, (aggregate, column)
    distinct = silent.execute("select dp_count(distinct d), dp_count(d) from v").description
    assert {c.type_code for c in distinct} == {20}


@pytest.mark.parametrize(
    ("call", "state", "words"),
    [
        ("dp_sum(i)", "PD011", "nothing bounds the argument of dp_sum"),
        ("dp_avg(d)", "PD011", "nothing bounds the argument of dp_avg"),
        ("dp_sum(u * 2)", "PD011", "nothing bounds"),
        ("dp_sum(d, 0, 1e60)", "PD011", "must be below 10^50"),
        ("dp_sum(i, 5, 3)", "PD011", "the lower bound of dp_sum is greater"),
        ("dp_sum(i, 0, null)", "PD011", "must be finite constants"),
        ("dp_sum(i, 0, id)", "PD011", "must be finite constants"),
        ("dp_sum(d, 0, 'infinity')", "PD011", "must be finite constants"),
        ("dp_sum(d, 'nan', 1)", "PD011", "must be finite constants"),
        (
            "dp_percentile(i, 'nan', 0, 100)",
            "PD011",
            "the share of dp_percentile must be a finite constant",
        ),
        ("dp_percentile(i, id, 0, 100)", "PD011", "the share of dp_percentile"),
        ("dp_percentile(i, 0.9, 0, null)", "PD011", "(value, 0.9, 0, 100)"),
        ("dp_percentile(i, 0.9, 5, 1)", "PD011", "(value, 0.9, lower, upper)"),
        ("dp_histogram(i, 0, 100, id)", "PD011", "the number of cells of dp_histogram must be"),
        ("dp_sum(distinct i, 0, 3)", "PD011", "DISTINCT is supported inside dp_count only"),
        ("dp_sum(i, 0, 3 order by i)", "PD011", "ORDER BY"),
        ("dp_sum(dp_sum(i, 0, 1), 0, 1)", "42803", "nested"),
        ("dp_interval_low(dp_stddev(i, 0, 1))", "PD011", "is for dp_count, dp_sum and dp_avg"),
        ("sum(i)", "PD011", "other than the private ones"),
    ],
)
def test_refusals_name_what_to_do_and_cost_nothing(
    numbers: Any, alice: Any, call: str, state: str, words: str
) -> None:
    before = numbers.sql("select count(*) from dp.ledger")
    error = refused(alice, f"select dp_count(*), {call} from v")
    assert error.sqlstate == state, error
    assert words in str(error)
    assert state != "PD011" or error.diag.message_hint
    assert numbers.sql("select count(*) from dp.ledger") == before


@pytest.mark.parametrize("relation", ["nothing", "few"])
def test_of_nothing_the_answer_looks_like_any_other(alice: Any, relation: str) -> None:
    """No aggregate is NULL, and averages are within their bounds whatever the noise is."""
    alice.execute("set dp.epsilon = 0.01; set dp.fresh = on")
    for _ in range(10):
        ((total, *within, n, different),) = alice.execute(
            f"select dp_sum(i, 0, 10), dp_avg(i, 2, 10), dp_avg(n, 2, 10), dp_avg(d, 2, 10),"
            f" dp_count(i) filter (where n < 10), dp_count(distinct i) from {relation}"
        ).fetchall()
        assert all(isinstance(x, int) for x in (total, n, different))
        assert all(2 <= x <= 10 for x in within)
    for bounds in ("-1, 1", "5, 5"):
        for aggregate in MOMENTS[1:]:
            found = one(alice, f"select dp_{aggregate}(d, {bounds}) from {relation}")
            assert math.isfinite(found)
            assert found >= 0


def test_columns_of_nulls_and_filters_that_never_hold_give_nothing(silent: Any) -> None:
    assert silent.execute(
        "select dp_sum(z, 0, 5), dp_avg(z, 2, 6), dp_count(z), dp_count(distinct z),"
        " dp_sum(i, 0, 5) filter (where null), dp_sum(i, 0, 5) filter (where z > 0),"
        " dp_sum(null::int, 0, 5), dp_var_samp(z, 0, 4) from v"
    ).fetchall() == [(0, 4, 0, 0, 0, 0, 0, 0)]


def test_groups_without_rows_and_with_nulls_only(silent: Any) -> None:
    rows = silent.execute(
        "select k, dp_sum(z, 0, 5), dp_sum(s, -3, 5), dp_avg(s, -3, 5), dp_count(s) from v"
        " group by k order by dp_sum(s, -3, 5) desc, k"
    ).fetchall()
    assert [(k, z, s, float(a), n) for k, z, s, a, n in rows] == [
        (1, 0, 2, 1.0, 2),
        (2, 0, 1, 0.5, 2),
        (4, 0, 0, 0.0, 0),
        (3, 0, -1, -1.0, 1),
    ]


def test_output_clauses_work_on_aggregates(silent: Any) -> None:
    assert silent.execute(
        "select k, dp_sum(id, 0, 10) / dp_count(*), 2 * dp_sum(id, 0, 10) + k from v group by k"
        " having dp_sum(id, 0, 10) > 5 and dp_avg(id, 0, 10) < 5 order by dp_avg(id, 0, 10) desc"
    ).fetchall() == [(2, 4, 26)]  # (3 + 4 + 5) / 3; of integers the quotient is one
    assert one(silent, "select dp_sum(id, 0, 9) / 2 from v") == 10


@pytest.mark.parametrize(
    "source",
    [
        "w",
        "(select id, k, i from v where i is not null) as q",
        "(select * from w where true) as q natural join (select id, k from v) as o",
    ],
)
def test_views_and_sub_queries(silent: Any, source: str) -> None:
    assert one(silent, f"select dp_sum(i, -5, 5) from {source}") == 6
    text = (
        f"with c as (select * from {source}) select dp_sum(x.i, -5, 5) from c as x where x.k <> 3"
    )
    assert one(silent, text) == 1
    assert one(silent, f"select 2 * t from (select dp_sum(i, -5, 5) as t from {source}) as a") == 12


def test_parameters_are_bounds_and_conditions(silent: Any) -> None:
    statement = "select dp_sum(i, %s::int, %s::int), dp_sum(i * %s, -9, 9) from v where id < %s"
    for high in (3, 4):
        found = silent.execute(statement, (0, high, 2, 6), prepare=True).fetchall()
        assert found == [(high + 1, 9 - 9 + 0 + 2)]
    silent.execute("prepare q(int) as select dp_sum(i, 0, $1) from v")
    assert one(silent, "execute q(5)") == 11
    assert "finite constants" in str(refused(silent, "execute q(null)"))
    silent.execute("deallocate q")


def test_constants_keys_and_truth_can_be_summed(silent: Any) -> None:
    assert silent.execute(
        "select dp_sum(1), dp_sum(7, 0, 3), dp_sum(2.5), dp_sum((i > 0)::int), dp_sum(id % 3),"
        " dp_sum(case when i > 0 then 1.5 end), dp_sum(id, 0, 9) from v"
    ).fetchall() == [(6, 18, 15, 3, 6, 4.5, 21)]
    assert silent.execute(
        "select k, dp_sum(k), dp_avg(k) from v group by k order by k"
    ).fetchall() == [(1, 2, 1), (2, 6, 2), (3, 3, 3), (4, 0, 1)]
