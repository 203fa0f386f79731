"""Privacy units along foreign keys: who belongs to whom, and what may be asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.server.asking import refused, say

pytestmark = pytest.mark.server

# 3,000 customers; customer c has c % 4 orders, order o has 1 + o % 3 items
SET_UP = """
create table nation (n int primary key, name text not null);
insert into nation values (1, 'one'), (2, 'two');
create table customer (c int primary key, n int not null references nation);
insert into customer select g, 1 + g % 2 from generate_series(1, 3000) g;
create table orders (o int primary key, c int not null references customer, urgent boolean not null);
insert into orders select row_number() over (), c, c % 2 = 0
  from customer, generate_series(1, 3) k where k <= c % 4;
create table item (o int not null references orders, k int not null, weight int, primary key (o, k));
insert into item select o, k, o % 10 from orders, generate_series(1, 3) k where k <= 1 + o % 3;
select dp.protect('customer', privacy_unit => 'c');
select dp.declare_public('nation');
grant usage on schema public to alice;
select dp.grant_budget('alice', 100000, 1e-3);
"""


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


@pytest.fixture
def asker(shop: Any) -> Any:
    with shop.connect("alice") as connection:
        connection.execute("set dp.epsilon = 50")
        yield connection


def truth(shop: Any, statement: str) -> list[Any]:
    rows: list[Any] = shop.sql(statement.replace("dp_count", "count"))
    return rows


def test_members_are_found_and_shown(shop: Any) -> None:
    shown = shop.sql(
        "select relation_name, kind, neighbours, privacy_unit from dp.relations order by 1"
    )
    assert shown == [
        ("customer", "protected", "unit", "customer.c"),
        ("item", "protected", "unit", "customer.c by item.o, orders.c"),
        ("nation", "public", None, None),
        ("orders", "protected", "unit", "customer.c by orders.c"),
    ]


@pytest.mark.parametrize("analysed", ["", "pg_class", "pg_class, pg_namespace"])
def test_paths_are_looked_for_twice_for_each_relation(shop: Any, analysed: str) -> None:
    """Once to read what it is, once for the token of what an answer relies on, whatever the plans.

    More often where another transaction, as autovacuum's, ends in between: not a hundred times.
    """
    if analysed:
        shop.sql(f"analyze {analysed}")
    asked = "select * from dp.explain('select dp_count(*) from item join orders using (o)')"
    calls = "select calls from pg_stat_xact_user_functions where funcid = 'dp.unit_paths'::regproc"
    seen = []
    for _ in range(100):
        with shop.connect() as session:
            session.execute("set track_functions = 'all'; begin")
            session.execute(asked)
            seen += session.execute(calls).fetchone()
            session.execute("rollback")
        assert seen[-1] >= 4
        if seen[-1] == 4:
            return
        time.sleep(0.3)
    pytest.fail(f"calls: {seen}")


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
def test_answers_are_near_the_truth(shop: Any, asker: Any, statement: str) -> None:
    """At epsilon 50 noise beyond 3 % has a probability below 1e-12."""
    ((value,),) = asker.execute(statement).fetchall()
    ((expected,),) = truth(shop, statement)
    assert abs(value - expected) < 0.03 * expected + 5


def test_groups_of_public_relations_are_all_there(shop: Any, asker: Any) -> None:
    statement = (
        "select name, dp_count(*), dp_count(case when urgent then 1 end) from nation join customer"
        " using (n) join orders using (c) group by name order by name"
    )
    rows = asker.execute(statement).fetchall()
    for row, expected in zip(rows, truth(shop, statement), strict=True):
        assert row[0] == expected[0]
        assert all(abs(a - b) < 150 for a, b in zip(row[1:], expected[1:], strict=True))


def test_unknown_groups_pass_a_threshold(shop: Any, asker: Any) -> None:
    asker.execute("set dp.delta = 1e-6")
    rows = asker.execute("select weight, dp_count(*) from item group by weight").fetchall()
    assert {row[0] for row in rows} == set(range(10))


def test_everything_is_charged_to_the_unit_once(shop: Any, asker: Any) -> None:
    asker.execute("select dp_count(*) from customer join orders using (c) join item using (o)")
    rows = shop.sql(
        "select r.relation_name, s.epsilon, s.delta, s.mechanism, s.method from dp.spend s"
        " join dp.root r on r.id = any (s.roots)"
    )
    assert [(r[0], float(r[1]), float(r[2]), *r[3:]) for r in rows] == [
        ("customer", 50.0, 0.0, "quantile", "truncation")
    ]


def test_the_interval_is_public(asker: Any) -> None:
    asker.execute("set dp.epsilon = 1")
    ((low, n, high),) = asker.execute(
        "select dp_interval_low(dp_count(*)), dp_count(*), dp_interval_high(dp_count(*)) from orders"
    ).fetchall()
    assert low < n < high


@pytest.mark.parametrize(
    ("statement", "once"),
    [
        ("select {} from customer", True),
        ("select {} from customer join nation using (n) where name = 'one'", True),
        ("select {} from customer a join customer b using (c)", True),
        ("select {} from orders", False),
        ("select {} from customer join orders using (c)", False),
    ],
)
def test_keys_that_give_a_unit_one_result_make_the_bound_public(
    asker: Any, statement: str, once: bool
) -> None:
    """Discrete Laplace of scale 1 is within 3 with 95 %, and no noise goes into the bound."""
    asker.execute("set dp.epsilon = 1")
    ends = "dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*))"
    ((low, high),) = asker.execute(statement.format(ends)).fetchall()
    assert (high - low <= 6) is once


#: A piece is in a pack of a customer, which its key names; some pieces are in none.
PACKS = """
create table pack (c int not null references customer, p int not null, primary key (c, p));
insert into pack select g, 1 + g % 3 from generate_series(1, 3000) g;
create table piece (id int primary key, c int{0}, p int{0}, x int not null,
  foreign key (c, p) references pack);
insert into piece select g, c, p, g % 10 from generate_series(1, 6000) g
  join pack on c = 1 + g % 2000;
"""
LOOSE = """
insert into piece values (6001, null, 1, 0), (6002, 1, null, 0), (6003, 999999, null, 0), (6004, null, null, 0);
select dp.link('piece', 'pack', array['c', 'p'], nulls => 'excluded')
"""


@pytest.mark.parametrize("loose", [False, True])
def test_parents_that_only_hand_the_unit_on_are_not_read(shop: Any, loose: bool) -> None:
    shop.sql(PACKS.format("" if loose else " not null") + LOOSE * loose)
    one, both = "public.piece", "public.pack, public.piece"
    with shop.connect() as owner:
        for asked, read, redundant in (
            ("dp_count(*) from piece", one, None),
            ("dp_count(distinct c) from piece", one, None),
            ("dp_sum(x, 0, 9) from piece where x > 4", one, None),
            ("dp_count(*) from piece a join piece b using (c)", one, None),
            ("dp_count(*) from piece a join piece b on a.x = b.x", one, None),
            ("dp_count(*) from piece join pack using (c, p)", one, "public.pack"),
            ("dp_count(*) from piece i join pack k on i.c = k.c", both, None),
            ("dp_count(*) from piece i join pack k using (c, p) where k.p > 1", both, None),
        ):
            rows = owner.execute("select * from dp.explain(%s)", [f"select {asked}"]).fetchall()
            told = dict(rows)
            assert told["privacy unit"] == "public.pack.c", asked
            assert told["private relations"] == read, asked
            assert ('"pack"' in told["counting SQL"]) is (read == both), asked
            assert told.get("redundant joins", "None:").partition(":")[0] == str(redundant), asked


def test_none_of_several_parents_that_hand_the_unit_on_is_read(shop: Any) -> None:
    shop.sql(
        PACKS.format(" not null")
        + "create table slice (c int, p int, s int, primary key (c, p, s), foreign key (c, p) references pack);"
        " create table crumb (c int not null, p int not null, s int not null,"
        " foreign key (c, p, s) references slice)"
    )
    explain = "select value from dp.explain('select dp_count(*) from crumb') where item = 'private relations'"
    assert shop.sql(explain) == [("public.crumb",)]
    # the way is cut between the two: only the first key says that a parent is there
    shop.sql(
        "alter table slice drop constraint slice_c_p_fkey;"
        " select dp.link('slice', 'pack', array['c', 'p'], nulls => 'excluded')"
    )
    assert shop.sql(explain) == [("public.crumb, public.pack",)]


@pytest.mark.parametrize("loose", [False, True])
def test_units_that_are_handed_on_are_found_without_the_parent(
    shop: Any, asker: Any, loose: bool
) -> None:
    shop.sql(PACKS.format("" if loose else " not null") + LOOSE * loose)
    shown = shop.sql("select privacy_unit from dp.relations where relation_name = 'piece'")
    assert shown == [("customer.c by piece.(c, p), pack.c",)]
    # a unit counts once, and noise of scale 1/50 is 0 but for a probability below 1e-20
    ((units,),) = asker.execute("select dp_count(distinct c) from piece").fetchall()
    assert units == 2000
    # noise beyond 3 % has a probability below 1e-12, as above
    counting = "select dp_count(*) from piece"
    ((value,),) = asker.execute(counting).fetchall()
    assert abs(value - 6000) < 180
    error = refused(asker, "select c, dp_count(*) from piece group by c")
    assert "names the privacy unit" in str(error)
    # the key that a plan relies on is watched, though the parent is not read
    shop.sql("alter table piece drop constraint piece_c_p_fkey")
    if not loose:
        assert refused(asker, counting).sqlstate == "PD012"
        return
    shop.sql("insert into piece select 7000 + g, g, 9, 0 from generate_series(1, 2000) g")
    ((value,),) = asker.execute(counting).fetchall()
    assert abs(value - 6000) < 180


def test_explain_names_the_neighbours(asker: Any) -> None:
    rows = dict(
        asker.execute("select * from dp.explain('select dp_count(*) from item')").fetchall()
    )
    assert "unit" in rows["neighbours"]
    assert rows["method"].startswith("truncation")
    assert rows["mechanism"].startswith("quantile")
    assert rows["guarantee"].startswith("pure 50")


def test_r2t_on_request(shop: Any, asker: Any) -> None:
    asker.execute("set dp.mechanism = r2t")
    ((value,),) = asker.execute("select dp_count(*) from item").fetchall()
    ((expected,),) = truth(shop, "select dp_count(*) from item")
    # 4 L ln(20 L) tau/epsilon with L = 40, tau = 6
    assert expected - 130 <= value <= expected
    error = refused(asker, "select c % 2 = 0, dp_count(*) from orders group by 1")
    assert error.sqlstate == "PD040"
    assert "answers a single number" in str(error)


@pytest.mark.parametrize("call", ["dp_median(weight, 0, 9)", "dp_percentile(weight, 0.9, 0, 9)"])
def test_r2t_finds_no_value_by_rank_and_says_so(asker: Any, call: str) -> None:
    asker.execute("set dp.mechanism = r2t")
    error = refused(asker, f"select {call} from item")
    assert error.sqlstate == "PD040"
    assert "no values by rank" in str(error)
    assert "GROUP BY" not in error.diag.message_hint
    assert "quantile" in error.diag.message_hint


@pytest.mark.parametrize("mechanism", ["auto", "quantile", "r2t"])
def test_explain_says_that_a_given_bound_is_neither_drawn_nor_raced(
    asker: Any, mechanism: str
) -> None:
    """By a setting, and by keys: a customer is one row of customer."""
    asker.execute(f"set dp.mechanism = {mechanism}")
    text = "select value from dp.explain('select dp_count(*) from {}') where item = 'mechanism'"
    given = "quantile: the bound is given by keys or settings"
    for relation, is_given in (("customer", True), ("item", False)):
        ((said,),) = asker.execute(text.format(relation)).fetchall()
        assert said.startswith(given) == is_given
    asker.execute("set dp.max_rows_contributed = 6")
    ((said,),) = asker.execute(text.format("item")).fetchall()
    assert said.startswith(given)


@pytest.mark.parametrize(
    "type_", ["text", "varchar(10)", "char(10)", "numeric(9,0)", "timestamp(0)"]
)
def test_keys_of_any_type_bound_a_unit(shop: Any, asker: Any, type_: str) -> None:
    """Its modifier changes nothing, nor does a link by which rows may find no unit."""
    shop.sql(
        f"create table holder (h {type_} primary key, c int unique);"
        " select dp.protect('holder', privacy_unit => 'h'), dp.declare_public('nation');"
        f" create table paper (p int primary key, h {type_} references holder);"
        " select dp.link('paper', 'holder', array['h'], nulls => 'excluded')"
    )
    text = "select value from dp.explain('select dp_count(*) from {}') where item = 'mechanism'"
    for join in ("holder", "holder x join holder y using (h)"):
        ((said,),) = asker.execute(text.format(join)).fetchall()
        assert said.startswith("quantile: the bound is given by keys"), (join, said)
    ((said,),) = asker.execute(text.format("paper p join holder h using (h)")).fetchall()
    assert not said.startswith("quantile: the bound is given by keys")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("method", "residual"), ("method", "sampling"), ("mechanism", "laplace")],
)
def test_what_is_for_rows_is_refused(asker: Any, setting: str, value: str) -> None:
    asker.execute(f"set dp.{setting} = {value}")
    error = refused(asker, "select dp_count(*) from item")
    assert error.sqlstate == "PD040"
    assert "row by row" in str(error)


def test_owners_tools_for_rows_are_refused(shop: Any) -> None:
    for call in ("dp.sensitivity('{}')", "dp.create_sketch('{}')"):
        error = refused(
            shop.connect(),
            "select " + call.format("select dp_count(*) from orders join item using (o)"),
        )
        assert error.sqlstate == "PD011", call


def test_groups_of_results_of_several_units_are_refused(asker: Any) -> None:
    error = refused(
        asker,
        "select a.urgent, dp_count(*) from orders a join orders b on a.urgent = b.urgent group by 1",
    )
    assert error.sqlstate == "PD011"
    assert "several privacy units" in str(error)
    assert "FILTER" in str(error.diag.message_hint)


def test_rows_and_units_do_not_mix(shop: Any, asker: Any) -> None:
    shop.sql("create table other (c int); select dp.protect('other')")
    error = refused(asker, "select dp_count(*) from other join customer using (c)")
    assert "protected by rows" in str(error)


def test_a_dropped_foreign_key_ends_questions_and_a_new_one_begins_them(
    shop: Any, asker: Any
) -> None:
    asker.execute("select dp_count(*) from item")
    shop.sql("alter table item drop constraint item_o_fkey")
    assert refused(asker, "select dp_count(*) from item").sqlstate == "PD012"
    shop.sql("alter table item add foreign key (o) references orders")
    asker.execute("select dp_count(*) from item")
    shop.sql("create table visit (c int not null references customer)")
    asker.execute("select dp_count(*) from visit")
    shop.sql("revoke select on visit from dp_executor")
    error = refused(asker, "select dp_count(*) from visit")
    assert error.diag.message_detail == "The reason: role dp_executor may not read it."
    assert "GRANT SELECT ON public.visit TO dp_executor" in str(error.diag.message_hint)


def test_a_dropped_foreign_key_in_the_middle_ends_questions(shop: Any, asker: Any) -> None:
    asker.execute("select dp_count(*) from item")
    shop.sql("alter table orders drop constraint orders_c_fkey")
    assert refused(asker, "select dp_count(*) from item").sqlstate == "PD012"


def test_rows_without_a_unit_are_refused_or_excluded(shop: Any, asker: Any) -> None:
    shop.sql(
        "create table call (id int primary key, c int references customer);"
        " insert into call select g, case when g % 2 = 0 then 1 + g % 3000 end"
        " from generate_series(1, 4000) g; grant select on call to dp_executor"
    )
    error = refused(asker, "select dp_count(*) from call")
    assert error.sqlstate == "PD012"
    assert "c can be NULL" in str(error.diag.message_detail)
    shop.sql("select dp.link('call', 'customer', array['c'], nulls => 'excluded')")
    ((value,),) = asker.execute("select dp_count(*) from call").fetchall()
    assert abs(value - 2000) < 180
    shop.sql("select dp.unlink('call', 'customer', array['c'])")
    assert refused(asker, "select dp_count(*) from call").sqlstate == "PD012"


def test_a_link_without_a_foreign_key(shop: Any, asker: Any) -> None:
    shop.sql(
        "create table mail (c int not null); insert into mail select 1 + g % 5000"
        " from generate_series(1, 5000) g"
    )
    assert refused(asker, "select dp_count(*) from mail").sqlstate == "PD012"
    shop.sql("select dp.link('mail', 'customer', array['c'])")
    assert "no foreign key" in str(
        refused(asker, "select dp_count(*) from mail").diag.message_detail
    )
    shop.sql("select dp.link('mail', 'customer', array['c'], nulls => 'excluded')")
    ((value,),) = asker.execute("select dp_count(*) from mail").fetchall()
    assert abs(value - 3000) < 90  # who is no customer is never counted


def test_a_parent_without_a_key_is_refused(shop: Any, asker: Any) -> None:
    """A row with several parents would belong to several units."""
    shop.sql("create table part (o int not null, x int); create table box (x int not null);")
    shop.sql(
        "insert into part select o, o % 5 from orders; insert into box select o % 5 from orders"
    )
    shop.sql("select dp.link('part', 'orders', array['o'], nulls => 'excluded')")
    shop.sql("select dp.link('box', 'part', array['x'], array['x'], nulls => 'excluded')")
    asker.execute("select dp_count(*) from part")
    error = refused(asker, "select dp_count(*) from box")
    assert "unique key" in str(error.diag.message_detail)
    error = refused(asker, "select dp_count(*) from box join part using (x)")
    assert "unique key" in str(error.diag.message_detail)


@pytest.mark.parametrize(
    ("parent", "said"), [("customer", "refer to other rows of it by k"), ("orders", "in a circle")]
)
def test_keys_in_a_circle_are_cut_by_the_owner(
    shop: Any, asker: Any, parent: str, said: str
) -> None:
    shop.sql(f"alter table customer add k int references {parent}")
    assert said in str(refused(asker, "select dp_count(*) from orders").diag.message_detail)
    shop.sql(f"select dp.link('customer', '{parent}', array['k'], follow => false)")
    asker.execute("select dp_count(*) from orders")
    assert dict(shop.sql("select relation_name, problem from dp.relations"))["orders"] is None


@pytest.mark.parametrize(
    ("before", "call", "why"),
    [
        ("", "dp.declare_public('orders')", "belong to privacy units"),
        ("", "dp.protect('orders')", "belong to privacy units"),
        ("", "dp.protect('customer', privacy_unit => 'none')", "has no column"),
        ("create table t (a int)", "dp.protect('t', privacy_unit => 'a')", "can be NULL"),
        (
            "create table t (a int primary key); create table s (a int references t);"
            " select dp.declare_public('s')",
            "dp.protect('t', privacy_unit => 'a')",
            "declared otherwise",
        ),
        (
            "create table t (a int primary key); create table s (a int references t);"
            " select dp.protect('s')",
            "dp.protect('t', privacy_unit => 'a')",
            "declared otherwise",
        ),
        ("", "dp.link('item', 'nation', array['o', 'k'])", "no primary key of 2"),
        ("", "dp.link('item', 'nation', array['z'])", "does not exist"),
        ("", "dp.link('item', 'nation', array['o'], nulls => 'public')", "refused or excluded"),
        ("", "dp.unlink('item', 'nation', array['o'])", "not linked"),
    ],
)
def test_declarations_that_contradict(shop: Any, before: str, call: str, why: str) -> None:
    if before:
        shop.sql(before)
    error = refused(shop.connect(), f"select {call}")
    assert error.sqlstate == "PD040"
    assert why in str(error)


def test_a_public_relation_that_begins_to_refer_to_a_unit_is_refused(shop: Any, asker: Any) -> None:
    shop.sql(
        "create table s (c int not null); insert into s values (1); select dp.declare_public('s')"
    )
    assert say(asker, "select dp_count(*) from s") == "[(1,)]"
    shop.sql("alter table s add foreign key (c) references customer")
    error = refused(asker, "select dp_count(*) from s")
    assert error.sqlstate == "PD012"
    assert "units of customer.c" in str(error.diag.message_detail)


def test_one_notion_for_ever_once_spent(shop: Any, asker: Any) -> None:
    shop.sql("create table t (a int primary key); insert into t values (1); select dp.protect('t')")
    shop.sql("select dp.protect('t', privacy_unit => 'a')")  # nothing was spent yet
    shop.sql("select dp.protect('t')")
    asker.execute("select dp_count(*) from t")
    error = refused(shop.connect(), "select dp.protect('t', privacy_unit => 'a')")
    assert "row by row" in str(error)
    shop.sql("select dp.unprotect('t')")
    error = refused(shop.connect(), "select dp.protect('t', privacy_unit => 'a')")
    assert "row by row" in str(error)
    asker.execute("select dp_count(*) from item")
    shop.sql("select dp.unprotect('customer')")
    assert "privacy unit c" in str(refused(shop.connect(), "select dp.protect('customer')"))
    shop.sql("select dp.protect('customer', privacy_unit => 'c')")
    asker.execute("select dp_count(*) from item")


def test_a_dropped_relation_keeps_its_notion_with_its_root(shop: Any, asker: Any) -> None:
    asker.execute("select dp_count(*) from item")
    shop.sql("drop table item, orders, customer; create table customer (c int primary key)")
    error = refused(shop.connect(), "select dp.protect('customer')")
    assert "privacy unit c" in str(error)


def test_unprotecting_takes_the_members_along(shop: Any, asker: Any) -> None:
    shop.sql("select dp.unprotect('customer')")
    reading = "select relname from pg_class where has_table_privilege('dp_executor', oid, 'select') and relname = any (%s)"
    names = ["customer", "orders", "item", "nation"]
    with shop.connect() as owner:
        assert owner.execute(reading, [names]).fetchall() == [("nation",)]
    for relation in names[:3]:
        assert refused(asker, f"select dp_count(*) from {relation}").sqlstate == "PD012"
