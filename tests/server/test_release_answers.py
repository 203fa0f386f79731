"""Questions that prefixes, ranges and unions answer: which are, which are not, and what is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.releasing import declare, release, spent

pytestmark = pytest.mark.server

GAUSSIAN = {"epsilon": 1, "delta": 1e-6, "mechanism": "residual_planner"}
PREFIXES = "select s_state, dp.prefix(s_pieces) as p, dp_count(*) from sale group by cube (1, 2)"
BETWEEN = "select s_state, dp_count(*) from sale where s_pieces between {} and {} group by 1"


@pytest.fixture(scope="module")
def sales(server: Any) -> Iterator[Any]:
    database = declare(server.create_database())
    # as a collation that differs from the database's in the order of letters, or is another name
    database.sql(
        'create table public.shelf (h_id int primary key, h_name text collate "C" not null,'
        " h_width numeric not null);"
        "insert into public.shelf values (1, 'a', 1.0), (2, 'B', 1.00), (3, 'c', 2.5);"
        "alter table public.shelf owner to owner1;"
        "create table public.item (i_shelf int not null references public.shelf, i_state"
        " public.state not null); alter table public.item owner to owner1;"
        "insert into public.item select 1 + i % 3, 'open' from generate_series(1, 30) i"
    )
    database.sql(
        "select dp.protect('public.item'), dp.declare_public('public.shelf'),"
        " dp.set_root_cap('public.sale', 1e6, 1), dp.set_root_cap('public.item', 1e6, 1)",
        user="owner1",
    )
    yield database
    server.drop_database(database)


@pytest.fixture
def exact(sales: Any) -> Iterator[Any]:
    """A session without noise, whose releases are dropped in the end."""
    with asking.silent(sales, "public.sale") as session:
        yield session
        for (name,) in session.execute("select name from dp.releases").fetchall():
            session.execute("select dp.drop_release(%s)", (name,))


def told(session: Any, text: str) -> tuple[list[Any], str | None]:
    """Ask; return the rows, and what is told where a release answered."""
    notices: list[str] = []

    def listen(notice: Any) -> None:
        notices.append(notice.message_primary)

    session.add_notice_handler(listen)
    session.execute("set dp.fresh = off")
    found = session.execute(text).fetchall()
    session.execute("set dp.fresh = on")
    session.remove_notice_handler(listen)
    said = [n for n in notices if n.startswith("answered from the release")]
    return found, said[0] if said else None


def plain(session: Any, text: str) -> list[Any]:
    found: list[Any] = session.execute(text.replace("dp_count", "count")).fetchall()
    return found


RANGES = (
    ("s_pieces between 2 and 4", 2),
    ("s_pieces between 0 and 4", 1),
    ("s_pieces between 0 and 6 and s_pieces <> 3", 3),
    ("s_pieces > 1.5 and s_pieces < 4.5", 2),
    ("not (s_pieces < 2) and 4 >= s_pieces", 2),
    ("s_pieces in (0, 6)", 3),
)


def test_ranges_are_differences_of_prefixes(exact: Any) -> None:
    release(exact, "prefixes", PREFIXES, **GAUSSIAN)
    for condition, cells in RANGES:
        for where in (condition, f"{condition} and s_state <= 'shipped'"):
            text = f"select dp_count(*) from sale where {where}"
            found, said = told(exact, text)
            assert said is not None
            if where == condition:
                assert (f"made of {cells} of its numbers" in said) == (cells > 1)
            assert found == plain(exact, text)
        inner = f"select dp_count(*) from (select s_pieces from sale) as x where {condition}"
        found, said = told(exact, inner)
        assert said is not None
        assert found == plain(exact, inner)


ASKED = (
    # there are pieces outside of the domain, for all that a release knows
    "select dp_count(*) from sale where s_pieces <= 4",
    "select dp_count(*) from sale where s_pieces >= 0",
    "select dp_count(*) from sale where s_pieces between -1 and 4",
    "select dp_count(*) from sale where s_pieces between 2 and 7",
    "select dp_count(*) from sale where s_pieces between 2 and 7.5",
    "select dp_count(*) from sale where s_pieces <> 3",
    "select dp_count(*) from sale where s_pieces::text <= '4' and s_pieces::text >= '1'",
    "select dp_count(*) from sale where s_pieces % 7 between 1 and 3",
    "select dp_count(*) from sale where s_pieces between 1 and 3 or s_state = 'open'",
    "select dp_count(*) from sale where s_pieces in (3, 9)",
    "select dp_count(*) from sale where s_pieces is null",
    "select dp_count(*) from sale",
    # other columns, other counts
    "select dp_count(*) from sale where s_pieces between 1 and 3 and s_id > 5",
    "select dp_count(s_kind) from sale where s_pieces between 1 and 3",
    "select dp_count(*), dp_sum(s_pieces) from sale where s_pieces between 1 and 3",
    "select dp_count(*) from sale as a join place on s_place = p_id where s_pieces = 3",
    "select dp_count(*) from sale where s_pieces between 5 and 2",
)


def test_what_might_differ_on_some_rows_is_asked(exact: Any) -> None:
    release(exact, "prefixes", PREFIXES, **GAUSSIAN)
    assert [text for text in ASKED if told(exact, text)[1] is not None] == []


def test_conditions_of_a_union_are_matched(exact: Any) -> None:
    release(
        exact,
        "both",
        "select s_state, dp_count(*) from sale group by 1 union all"
        " select s_state, dp_count(*) from sale where s_big group by 1 union all"
        " select null, dp_count(*) from sale where s_state > 'open' and not s_big",
        **GAUSSIAN,
    )
    for text, answered in (
        ("select s_state, dp_count(*) from sale where s_big group by 1", True),
        ("select dp_count(*) from sale where s_state in ('open', 'paid') and s_big", True),
        ("select dp_count(*) from sale where not s_big and 'open' < s_state", True),
        ("select s_state, dp_count(*) from sale group by 1", True),
        ("select dp_count(*) from sale where not s_big", False),
        ("select dp_count(*) from sale where not s_big and s_state > 'shipped'", False),
        ("select s_big, dp_count(*) from sale group by 1", False),
    ):
        found, said = told(exact, text)
        assert (said is not None) == answered, text
        counted = plain(exact, text)
        assert {row for row in found if row[-1]} == {row for row in counted if row[-1]}


def test_the_way_with_the_least_error_answers(exact: Any) -> None:
    whole = "select s_state, dp_count(*) from sale group by 1"
    release(exact, "rough", PREFIXES, epsilon=0.01, delta=1e-6, mechanism="residual_planner")
    release(exact, "fine", PREFIXES, **GAUSSIAN)
    release(exact, "rougher", PREFIXES, epsilon=0.001, delta=1e-6, mechanism="residual_planner")
    assert "dpv.fine" in str(told(exact, BETWEEN.format(2, 4))[1])
    ranges = PREFIXES.replace("prefix", "all_ranges")
    release(exact, "ranges", ranges, epsilon=1, delta=1e-6, mechanism="identity")
    found, said = told(exact, BETWEEN.format(2, 4))
    error = exact.execute(
        "select max(standard_error) from dpv.ranges where p_low = 2 and p_high = 4 and"
        ' "grouping" = 0'
    ).fetchone()[0]
    assert "dpv.ranges" in str(said)
    assert f"standard error at most {error:.3g}" in str(said)
    assert "made of" not in str(said)
    assert sorted(map(repr, found)) == sorted(
        repr(row) for row in [*plain(exact, BETWEEN.format(2, 4)), ("paid", 0)]
    )
    assert told(exact, whole)[1] is None


@pytest.mark.parametrize("mechanism", ["identity", "opt_0", "residual_planner", "opt_kron"])
def test_errors_of_sums_are_exact(exact: Any, mechanism: str) -> None:
    """Those of differences are as the table of another release of the same strategy has them."""
    both = f"{PREFIXES} union all {PREFIXES.replace('prefix', 'all_ranges')}"
    release(exact, "both", both, epsilon=1, delta=1e-6, mechanism=mechanism)
    expected = exact.execute(
        "select standard_error from dpv.both where query = 2 and s_state = 'open' and p_low = 2"
        " and p_high = 4"
    ).fetchone()[0]
    # the ranges of the table out of sight, the same number is a difference of prefixes
    exact.execute(
        "delete from dpv.both where query = 2;"
        "update dp.stored_release set span = jsonb_set(span, '{sets}', (select jsonb_agg(s) from"
        " jsonb_array_elements(span -> 'sets') as s where s ->> 'query' = '0'))"
    )
    text = "select dp_count(*) from sale where s_state = 'open' and s_pieces between 2 and 4"
    found, said = told(exact, text)
    assert found == plain(exact, text)
    assert "made of 2 of its numbers" in str(said)
    assert f"standard error at most {expected:.3g}" in str(said)
    exact.execute("update dp.stored_release set span = span - 'spread'")
    said = told(exact, text)[1]
    bound = exact.execute(
        "select sum(standard_error) from dpv.both where s_state = 'open' and p_low in (1, 4)"
    ).fetchone()[0]
    assert f"standard error at most {bound:.3g}" in str(said)
    assert bound > expected


def test_a_domain_that_changed_is_looked_at(exact: Any, sales: Any) -> None:
    release(exact, "prefixes", PREFIXES, **GAUSSIAN)
    by = "select s_pieces, dp_count(*) from sale group by 1"
    assert told(exact, by)[1] is not None
    try:
        exact.execute("select dp.set_domain('public.sale', 's_pieces', 0, 7)")
        assert told(exact, by)[1] is None
        assert told(exact, BETWEEN.format(2, 6))[1] is not None
        assert told(exact, BETWEEN.format(2, 7))[1] is None
    finally:
        exact.execute("select dp.set_domain('public.sale', 's_pieces', 0, 6)")
    # what was kept by another version finds nothing
    exact.execute("update dp.stored_release set span = span - 'form'")
    assert told(exact, by)[1] is None


def test_expressions_are_keys_while_the_same_values_are_declared(exact: Any) -> None:
    release(exact, "halves", "select s_pieces / 2 as half, dp_count(*) from sale group by 1")
    by = "select s_pieces / 2 as half, dp_count(*) from sale group by 1"
    assert told(exact, by)[1] is not None
    # seven pieces would be three pairs, and are in no cell
    assert told(exact, "select dp_count(*) from sale where s_pieces / 2 = 3")[1] is None
    try:
        exact.execute("select dp.set_domain('public.sale', 's_pieces', 0, 5)")
        assert told(exact, by)[1] is None
    finally:
        exact.execute("select dp.set_domain('public.sale', 's_pieces', 0, 6)")


def test_bins_are_compared_in_order(exact: Any) -> None:
    bins = "width_bucket(s_price, 0, 6, 6)"
    query = f"select dp.prefix({bins}) as price, dp_count(*) from sale group by 1"
    release(exact, "bins", query, **GAUSSIAN)
    for condition in (f"{bins} <= 3", f"{bins} > 2", f"{bins} between 2 and 4", f"{bins} = 3"):
        text = f"select dp_count(*) from sale where {condition}"
        found, said = told(exact, text)
        assert said is not None
        assert found == plain(exact, text)
    assert told(exact, "select dp_count(*) from sale where s_price < 3")[1] is None
    assert told(exact, "select dp_count(*) from sale")[1] is None  # NULL is in no prefix


def test_texts_of_another_collation_are_not_ordered(exact: Any) -> None:
    names = "from item join shelf on i_shelf = h_id"
    release(exact, "names", f"select h_name, dp_count(*) {names} group by 1", **GAUSSIAN)
    for condition in ("h_name <= 'b'", "h_name = 'B'", "upper(h_name) = 'B'"):
        text = f"select dp_count(*) {names} where {condition}"
        found, said = told(exact, text)
        assert said is None
        assert found == plain(exact, text)
    text = f"select h_name, dp_count(*) {names} group by 1"
    found, said = told(exact, text)
    assert said is not None
    assert sorted(found) == sorted(plain(exact, text))


def test_equal_numbers_of_unlike_texts_are_one_level(exact: Any) -> None:
    widths = "from item join shelf on i_shelf = h_id"
    release(exact, "widths", f"select h_width, dp_count(*) {widths} group by 1", **GAUSSIAN)
    for condition, answered in (
        ("h_width <= 1", True),
        ("h_width in (1.000, 3)", True),
        ("h_width between 0.5 and 1.00 and h_width is not null", True),
        ("h_width::text = '1.00'", False),
        ("h_width::text like '1.0%'", False),
        ("(h_width * 1)::text = '1.0'", False),
    ):
        text = f"select dp_count(*) {widths} where {condition}"
        found, said = told(exact, text)
        assert (said is not None) == answered, condition
        assert found == plain(exact, text)


def test_volatile_conditions_are_refused_as_ever(exact: Any) -> None:
    release(exact, "prefixes", PREFIXES, **GAUSSIAN)
    text = "select dp_count(*) from sale where s_pieces between 1 and 3 and random() < 0.5"
    exact.execute("set dp.fresh = off")
    assert asking.refused(exact, text).sqlstate == "PD013"


INTERVAL = (
    "select s_state, dp_count(*), dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*))"
    " from sale where s_pieces between {} and {} group by 1"
)


def test_intervals_follow_the_standard_error(sales: Any) -> None:
    with sales.connect("alice") as alice:
        release(alice, "wide", PREFIXES, **GAUSSIAN)
        error = alice.execute(
            "select max(standard_error) from dpv.wide where s_state = 'open' and p = 4"
            ' and "grouping" = 0'
        ).fetchone()[0]
        before = spent(sales)
        found, said = told(alice, INTERVAL.format(0, 4))
        assert "intervals hold at least as often as asked" in str(said)
        half = math.floor(error * math.sqrt(2 * math.log(2 / 0.05)) + 0.5)
        assert all(n - low == high - n == half for _, n, low, high in found)
        assert spent(sales) == before
        alice.execute("set dp.fresh = off")
        (row,) = alice.execute(
            "select dp.query('select dp_count(*) from sale where s_pieces between 0 and 4 and"
            " s_state = ''open''', intervals => 0.95)"
        ).fetchone()
        assert row["dp_count_high"] - row["dp_count"] == half
        assert row["dp_count_covers"] == "all error"
        found, said = told(alice, INTERVAL.format(1, 3))
        assert "made of 2 of its numbers" in str(said)
        told_error = float(str(said).split("standard error at most ")[1].split(";")[0])
        half = told_error * math.sqrt(2 * math.log(2 / 0.05)) + 0.5
        assert all(n - low == high - n == pytest.approx(half, abs=1) for _, n, low, high in found)
        assert spent(sales) == before
        alice.execute("select dp.drop_release('wide')")


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 1, "delta": 0, "mechanism": "opt_kron"},
        {**GAUSSIAN, "mechanism": "identity", "postprocess": "non_negative"},
    ],
)
def test_without_a_known_law_intervals_are_asked_for(sales: Any, terms: Any) -> None:
    with sales.connect("alice") as alice:
        release(alice, "unknown", PREFIXES, **terms)
        assert told(alice, BETWEEN.format(0, 3))[1] is not None
        assert told(alice, INTERVAL.format(0, 3))[1] is None
        alice.execute("select dp.drop_release('unknown')")


def test_explain_tells_of_releases(sales: Any) -> None:
    with sales.connect("alice") as alice:
        release(alice, "told", PREFIXES, **GAUSSIAN)
        before = spent(sales)
        explained = dict(
            alice.execute(f"select * from dp.explain('{BETWEEN.format(1, 3)}')").fetchall()
        )
        assert "dpv.told" in explained["release"]
        assert "made of 2 of its numbers" in explained["release"]
        for text in (
            "select * from dpv.told",
            "select p, rank() over (order by value) from dpv.told",
        ):
            explained = dict(alice.execute("select * from dp.explain(%s)", (text,)).fetchall())
            assert "measured by residual_planner with gaussian noise" in explained["release"]
            assert explained["cost epsilon"] == "0"
        error = asking.refused(
            alice, "select * from dp.explain('select dp_count(*) from dpv.told')"
        )
        assert "query it without dp_count" in str(error.diag.message_hint)
        error = asking.refused(alice, "select s_state, dp_count(*) from sale group by cube (1)")
        assert "dp.release(" in str(error.diag.message_hint)
        mixed = "select * from dp.explain('select * from dpv.told, public.place')"
        assert "dp_count" in str(asking.refused(alice, mixed))
        assert spent(sales) == before
        sales.sql("select dp.grant_budget('bob', 1); grant usage on schema public to bob")
        with sales.connect("bob") as bob:
            error = asking.refused(bob, "select * from dp.explain('select * from dpv.told')")
            assert "measured" not in str(error)
        alice.execute("select dp.drop_release('told')")
