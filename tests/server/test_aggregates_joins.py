"""Sums over joins, what they cost, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.test_answers_match_the_join import agree
from tests.server import asking
from tests.server.asking import say
from tests.server.binomials import most_failures

pytestmark = pytest.mark.server

SET_UP = """
create table parent (id int primary key, g int, x int, big bigint not null);
insert into parent select n, n % 3, 2 * n - 11, 1::bigint << 61 from generate_series(0, 9) n;
create table child (id int primary key, p int not null references parent, y numeric(6, 2), w real);
insert into child select n, n * n % 10, n / 8.0 - 3, n / 4.0 from generate_series(0, 49) n;
create table edge (a int, b int, w int);
insert into edge select n % 4, n * n % 5 % 4, n % 7 - 2 from generate_series(1, 30) n;
create table rate (g int, f numeric(4, 2));
insert into rate values (0, 1.5), (1, -0.25), (1, 2), (null, 7);
create table flat (v int, u int);
insert into flat select n % 11, n from generate_series(1, 500) n;
select dp.protect(t, delta => 1) from unnest(array['parent', 'child', 'edge', 'flat']::regclass[]) t;
select dp.declare_public('rate');
select dp.set_domain('parent', 'g', 0, 2);
select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e7, 1);
grant usage on schema public to alice;
"""


@pytest.fixture(scope="module")
def shop(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(shop: Any) -> Iterator[Any]:
    with asking.silent(shop, "flat") as session:
        yield session


@pytest.fixture
def alice(shop: Any) -> Iterator[Any]:
    with shop.connect("alice") as session:
        yield session


TRIANGLE = "edge r, edge s, edge t where r.b = s.a and s.b = t.a and t.b = r.a"


@pytest.mark.parametrize(
    "statement",
    [
        # the parent is summed, so no foreign key makes it redundant
        "select {0}sum(x{1}), {0}avg(x{1}) from child join parent on p = parent.id",
        "select {0}sum(x * y{1}), {0}count(*) from child join parent on p = parent.id",
        "select g, {0}sum(x + y{1}) from child join parent on p = parent.id group by g",
        "select {0}sum(w{1}), {0}sum(w * x{1}) from child join parent on p = parent.id",
        # a join column, on either side, and a group key
        "select {0}sum(p{1}), {0}sum(parent.id{1}) from child join parent on p = parent.id",
        "select g, {0}sum(g{1}) from child join parent on p = parent.id where g > 0 group by g",
        # values that belong to several relations and meet late, also in a cycle
        "select {0}sum(x * f{1}) from child join parent on p = parent.id join rate using (g)",
        "select {0}sum(r.w * t.w{1}) from edge r join edge s on r.b = s.a join edge t on s.b = t.a",
        "select {0}sum(r.w + s.w - t.w{1}) from " + TRIANGLE,
        "select {0}sum(r.w * t.w{1}), {0}count(*) from " + TRIANGLE,
        "select {0}sum(r.w * t.w{1}) from " + TRIANGLE + " and r.w + s.w > t.w",
        "select {0}sum(r.w{1}) filter (where r.w < s.w) from " + TRIANGLE + " and r.a <> t.a",
        "select {0}sum(r.w * s.w{1}) from edge r, edge s where r.w < s.w",
        "select {0}var_pop(x * f{1}) from parent join rate using (g)",
        "select {0}sum(case when r.w > s.w then r.w else s.w * 2 end{1}) from edge r, edge s"
        " where r.a = s.b",
        # parts of the join without any common column
        "select {0}sum(x{1}), {0}count(distinct parent.g) from parent cross join rate",
        "select {0}sum(x * y{1}) from parent, child",
        "select {0}count(distinct y) from child join parent on p = parent.id where x < 0",
    ],
)
def test_sums_over_joins_are_those_of_postgresql(silent: Any, statement: str) -> None:
    private = silent.execute(statement.format("dp_", ", -1000, 1000")).fetchall()
    plain = silent.execute(statement.format("", "")).fetchall()
    keys = statement.startswith("select g,")
    assert len(private) >= len(plain)
    for j in range(keys, len(plain[0])):
        assert any(row[j] for row in plain)
        assert agree(
            [(*row[:keys], row[j]) for row in private], [(*row[:keys], row[j]) for row in plain]
        )


def test_sums_beyond_bigint(silent: Any) -> None:
    """Ten values of 2^61, one by one and times the children of each."""
    for statement in (
        "select {0}sum(big{1}) from parent",
        "select {0}sum(big{1}) from parent join child on p = parent.id",
        "select {0}sum(big * (y + 3){1}) from parent join child on p = parent.id",
        "select g, {0}sum(big{1}) from parent, edge group by g order by g",
    ):
        bounds = ", -1e22, 1e22" if "y +" in statement else ", 0, 9000000000000000000"
        private = silent.execute(statement.format("dp_", bounds)).fetchall()
        assert private == silent.execute(statement.format("", "")).fetchall()
        assert max(abs(row[-1]) for row in private) > 2**63


def spends(shop: Any) -> list[tuple[float, float]]:
    rows = shop.sql("select epsilon, delta from dp.spend order by id")
    return [(float(epsilon), float(delta)) for epsilon, delta in rows]


def test_several_aggregates_are_charged_once(shop: Any, alice: Any) -> None:
    alice.execute("set dp.epsilon = 0.75")
    statement = (
        "select dp_sum(v, 0, 10), dp_avg(v, 0, 10), dp_stddev(v, 0, 10), dp_count(*),"
        " dp_count(distinct u) from flat where u > 3"
    )
    before = spends(shop)
    first = alice.execute(statement).fetchall()
    assert spends(shop)[len(before) :] == [(0.75, 0.0)]
    written_otherwise = statement.lower().replace(
        "from flat where", "from flat as f where 3 < u and"
    )
    assert alice.execute(statement).fetchall() == first
    assert alice.execute(written_otherwise).fetchall() == first
    assert len(spends(shop)) == len(before) + 1
    shown = alice.execute(
        "select question, epsilon from dp.ledger where question like '%dp_stddev%'"
    )
    assert [float(row[1]) for row in shown.fetchall()] == [0.75]


def width(session: Any, others: str) -> float:
    """Return how wide the interval around one sum is beside other aggregates."""
    ((low, high, *_),) = session.execute(
        "select dp_interval_low(dp_sum(v, 0, 10)), dp_interval_high(dp_sum(v, 0, 10))"
        f"{others} from flat"
    ).fetchall()
    return float(high - low)


def test_the_budget_is_split_evenly_over_what_is_measured(alice: Any) -> None:
    alice.execute("set dp.epsilon = 0.01")
    alone = width(alice, "")
    assert width(alice, ", dp_sum(v, 0, 10) * 2") == alone
    assert width(alice, ", dp_count(*)") == pytest.approx(2 * alone, rel=0.01)
    # the average of values that are summed needs their number besides
    assert width(alice, ", dp_avg(v, 0, 10)") == pytest.approx(2 * alone, rel=0.01)
    assert width(alice, ", dp_avg(v, 0, 10), dp_count(v)") == pytest.approx(2 * alone, rel=0.01)
    assert width(alice, ", dp_var_pop(v, 0, 10)") == pytest.approx(3 * alone, rel=0.01)
    assert width(alice, ", dp_count(*), dp_count(distinct v)") == pytest.approx(3 * alone, rel=0.01)


def test_wider_bounds_mean_wider_intervals(alice: Any) -> None:
    ((a, b, c, d),) = alice.execute(
        "select dp_interval_high(dp_sum(v, 0, 10)), dp_interval_low(dp_sum(v, 0, 10)),"
        " dp_interval_high(dp_sum(u, -1000, 10)), dp_interval_low(dp_sum(u, -1000, 10)) from flat"
    ).fetchall()
    assert c - d == pytest.approx(100 * (a - b), rel=0.05)


RUNS = 300


@pytest.mark.parametrize(
    ("value", "bounds", "relation"),
    [
        ("v", "0, 10", "flat"),
        ("u / 7.0", "-3.5, 40", "flat"),
        ("x", "-11, 7", "child join parent on p = parent.id"),
    ],
)
def test_intervals_of_sums_cover(
    shop: Any, alice: Any, value: str, bounds: str, relation: str
) -> None:
    """False alarms below 1e-10: more failures than a coverage of 0.9 explains."""
    low, high = bounds.split(", ")
    ((true,),) = shop.sql(f"select sum(least(greatest({value}, {low}), {high})) from {relation}")
    alice.execute("set dp.fresh = on; set dp.epsilon = 1; set dp.confidence = 0.9")
    total = f"dp_sum({value}, {bounds})"
    statement = (
        f"select dp_interval_low({total}), {total}, dp_interval_high({total}) from {relation}"
    )
    missed, off = 0, 0
    for _ in range(RUNS):
        ((low, found, high),) = alice.execute(statement).fetchall()
        assert low < found < high
        missed += not low <= true <= high
        off += found != true
    assert missed <= most_failures(RUNS, 0.1, 1e-10)
    assert off > 0


def test_explain_tells_what_sums_cost_without_asking(shop: Any, alice: Any) -> None:
    before = spends(shop)
    rows = dict(
        alice.execute(
            "select * from dp.explain('select dp_sum(v, 0, 10), dp_avg(v, 0, 10) from flat')"
        ).fetchall()
    )
    assert rows["neighbours"].startswith("one row")
    assert "1" in rows["guarantee"]
    assert "PD011" in say(alice, "select * from dp.explain('select dp_sum(v) from flat')")
    assert spends(shop) == before
