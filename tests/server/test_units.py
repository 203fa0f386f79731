"""Privacy units along foreign keys: who belongs to whom, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.unit_shop import truth

pytestmark = pytest.mark.server


def test_members_are_found_and_shown(unit_shop: Any) -> None:
    shown = unit_shop.sql(
        "select relation_name, kind, neighbours, privacy_unit from dp.relations order by 1"
    )
    assert shown == [
        ("customer", "protected", "unit", "customer.c"),
        ("item", "protected", "unit", "customer.c by item.o, orders.c"),
        ("nation", "public", None, None),
        ("orders", "protected", "unit", "customer.c by orders.c"),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "select dp_count(*) from customer",
        "select dp_count(*) from orders",
        "select dp_count(*) from item",
        "select dp_count(*) from item where weight > 4",
        "select dp_count(*) from customer join orders using (c) join item using (o)",
        "select dp_count(*) from item i join orders o on o.o = i.o where o.urgent",
        "select dp_count(*) from orders a join orders b on a.c = b.c",
        "select dp_count(*) from item a join item b on a.o = b.o",
        "select dp_count(*) from nation, customer, orders where nation.n = customer.n"
        " and orders.c = customer.c and name = 'two'",
        "select dp_count(*) from nation cross join item",
    ],
)
def test_answers_are_near_the_truth(unit_shop: Any, unit_asker: Any, statement: str) -> None:
    """At epsilon 50 noise of 30 times its largest scale, 1.7, has a probability below 1e-12."""
    ((value,),) = unit_asker.execute(statement).fetchall()
    ((expected,),) = truth(unit_shop, statement)
    assert abs(value - expected) < 52


def test_groups_of_public_relations_are_all_there(unit_shop: Any, unit_asker: Any) -> None:
    statement = (
        "select name, dp_count(*), dp_count(case when urgent then 1 end) from nation join customer"
        " using (n) join orders using (c) group by name order by name"
    )
    rows = unit_asker.execute(statement).fetchall()
    for row, expected in zip(rows, truth(unit_shop, statement), strict=True):
        assert row[0] == expected[0]
        assert all(abs(a - b) < 150 for a, b in zip(row[1:], expected[1:], strict=True))


def test_unknown_groups_pass_a_threshold(unit_shop: Any, unit_asker: Any) -> None:
    unit_asker.execute("set dp.delta = 1e-6")
    rows = unit_asker.execute("select weight, dp_count(*) from item group by weight").fetchall()
    assert {row[0] for row in rows} == set(range(10))


def test_everything_is_charged_to_the_unit_once(unit_shop: Any, unit_asker: Any) -> None:
    unit_asker.execute("select dp_count(*) from customer join orders using (c) join item using (o)")
    rows = unit_shop.sql(
        "select r.relation_name, s.epsilon, s.delta, s.mechanism, s.method from dp.spend s"
        " join dp.root r on r.id = any (s.roots)"
    )
    assert [(r[0], float(r[1]), float(r[2]), *r[3:]) for r in rows] == [
        ("customer", 50.0, 0.0, "quantile", "truncation")
    ]


def test_the_interval_is_public(unit_asker: Any) -> None:
    unit_asker.execute("set dp.epsilon = 1")
    ((low, n, high),) = unit_asker.execute(
        "select dp_interval_low(dp_count(*)), dp_count(*), dp_interval_high(dp_count(*)) from orders"
    ).fetchall()
    assert low < n < high


def test_explain_names_the_neighbours(unit_asker: Any) -> None:
    rows = dict(
        unit_asker.execute("select * from dp.explain('select dp_count(*) from item')").fetchall()
    )
    assert "unit" in rows["neighbours"]
    assert rows["method"].startswith("truncation")
    assert rows["mechanism"].startswith("quantile")
    assert rows["guarantee"].startswith("pure 50")


def test_r2t_on_request(unit_shop: Any, unit_asker: Any) -> None:
    unit_asker.execute("set dp.mechanism = r2t")
    ((value,),) = unit_asker.execute("select dp_count(*) from item").fetchall()
    ((expected,),) = truth(unit_shop, "select dp_count(*) from item")
    # 25 scales L tau/epsilon, beyond which noise is with a probability below 1e-11: below by that of
    # tau = 16, which cuts nobody off, and its margin, 4; above by that of 64, less its margin, 16
    assert expected - 28 <= value <= expected + 80
    error = refused(unit_asker, "select c % 2 = 0, dp_count(*) from orders group by 1")
    assert error.sqlstate == "PD040"
    assert "answers a single number" in str(error)


@pytest.mark.parametrize("call", ["dp_median(weight, 0, 9)", "dp_percentile(weight, 0.9, 0, 9)"])
def test_r2t_finds_no_value_by_rank_and_says_so(unit_asker: Any, call: str) -> None:
    unit_asker.execute("set dp.mechanism = r2t")
    error = refused(unit_asker, f"select {call} from item")
    assert error.sqlstate == "PD040"
    assert "no values by rank" in str(error)
    assert "GROUP BY" not in error.diag.message_hint
    assert "quantile" in error.diag.message_hint


@pytest.mark.parametrize("mechanism", ["auto", "quantile", "r2t"])
def test_explain_says_that_a_given_bound_is_neither_drawn_nor_raced(
    unit_asker: Any, mechanism: str
) -> None:
    """By a setting, and by keys: a customer is one row of customer."""
    unit_asker.execute(f"set dp.mechanism = {mechanism}")
    text = "select value from dp.explain('select dp_count(*) from {}') where item = 'mechanism'"
    given = "quantile: the bound is given by keys or settings"
    for relation, is_given in (("customer", True), ("item", False)):
        ((said,),) = unit_asker.execute(text.format(relation)).fetchall()
        assert said.startswith(given) == is_given
    unit_asker.execute("set dp.max_rows_contributed = 6")
    ((said,),) = unit_asker.execute(text.format("item")).fetchall()
    assert said.startswith(given)


@pytest.mark.parametrize(
    "type_", ["text", "varchar(10)", "char(10)", "numeric(9,0)", "timestamp(0)"]
)
def test_keys_of_any_type_bound_a_unit(unit_shop: Any, unit_asker: Any, type_: str) -> None:
    """Its modifier changes nothing, nor does a link by which rows may find no unit."""
    unit_shop.sql(
        f"create table holder (h {type_} primary key, c int unique);"
        " select dp.protect('holder', privacy_unit => 'h'), dp.declare_public('nation');"
        f" create table paper (p int primary key, h {type_} references holder);"
        " select dp.link('paper', 'holder', array['h'], nulls => 'excluded')"
    )
    text = "select value from dp.explain('select dp_count(*) from {}') where item = 'mechanism'"
    for join in ("holder", "holder x join holder y using (h)"):
        ((said,),) = unit_asker.execute(text.format(join)).fetchall()
        assert said.startswith("quantile: the bound is given by keys"), (join, said)
    ((said,),) = unit_asker.execute(text.format("paper p join holder h using (h)")).fetchall()
    assert not said.startswith("quantile: the bound is given by keys")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("method", "residual"), ("method", "sampling"), ("mechanism", "laplace")],
)
def test_what_is_for_rows_is_refused(unit_asker: Any, setting: str, value: str) -> None:
    unit_asker.execute(f"set dp.{setting} = {value}")
    error = refused(unit_asker, "select dp_count(*) from item")
    assert error.sqlstate == "PD040"
    assert "row by row" in str(error)


def test_owners_tools_for_rows_are_refused(unit_shop: Any) -> None:
    for call in ("dp.sensitivity('{}')", "dp.create_sketch('{}')"):
        error = refused(
            unit_shop.connect(),
            "select " + call.format("select dp_count(*) from orders join item using (o)"),
        )
        assert error.sqlstate == "PD011", call


def test_groups_of_results_of_several_units_are_refused(unit_asker: Any) -> None:
    error = refused(
        unit_asker,
        "select a.urgent, dp_count(*) from orders a join orders b on a.urgent = b.urgent group by 1",
    )
    assert error.sqlstate == "PD011"
    assert "several privacy units" in str(error)
    assert "FILTER" in str(error.diag.message_hint)


def test_rows_and_units_do_not_mix(unit_shop: Any, unit_asker: Any) -> None:
    unit_shop.sql("create table other (c int); select dp.protect('other')")
    error = refused(unit_asker, "select dp_count(*) from other join customer using (c)")
    assert "protected by rows" in str(error)
