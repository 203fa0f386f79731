"""The sentences of PRIVACY.md section 7, each through the real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import unreadable

COUNT = "select dp_count(*) from client"
JOIN = "select dp_count(*) from client join purchase on p_client = c_region"


def spent(shop: Any, role: str = "alice") -> float:
    rows = shop.sql("select coalesce(sum(epsilon), 0) from dp.ledger where role = %s", role)
    return float(rows[0][0])


def lost(shop: Any, relation: str) -> float:
    rows = shop.sql("select epsilon_spent from dp.budgets where relation = %s", relation)
    return float(rows[0][0])


def refusal(connection: Any, sql: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    return caught.value


@pytest.fixture
def two(shop: Any) -> Any:
    """The shop with a second analyst."""
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', epsilon => 100, delta => 1e-5)")
    return shop


@pytest.fixture
def pooled(two: Any) -> Iterator[Any]:
    """A connection whose user may become either analyst and is none itself."""
    two.sql("grant alice, bob to mallory; revoke dp_analyst from mallory")
    yield two.connect(user="mallory")
    two.sql("revoke alice, bob from mallory")


# One ledger entry per spend, before any private row is read; kept when the query fails.


def test_the_charge_comes_before_reading_and_stays_when_reading_fails(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        shop.sql(
            "grant usage on schema public to alice;"
            "revoke usage on schema public from public, dp_executor"
        )
        unheard = refusal(alice, COUNT + " where c_id > 3")
        assert unheard.sqlstate == "PD012"
        assert "GRANT USAGE ON SCHEMA public TO dp_executor" in str(unheard)
        alice.execute("set dp.fresh = on")
        known = refusal(alice, COUNT)  # a plan that is kept
        assert known.sqlstate == "PD012"
        shop.sql("grant usage on schema public to dp_executor")
        with unreadable(shop, "alice") as failing:
            failing.execute("set dp.fresh = on")
            error = refusal(failing, COUNT)
        assert error.sqlstate == "PD900"
        assert "client" not in str(error)
        rows = alice.execute("select state, epsilon from dp.ledger order by id").fetchall()
        assert rows == [("answered", 1), ("failed", 1)]
        alice.execute(COUNT)
    assert spent(shop) == 3


# Kept per role and per root; a query over several roots debits each; no parallel composition.


def test_a_query_over_several_roots_debits_each_in_full(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(JOIN)
        alice.execute(COUNT)
        relations = alice.execute("select relations from dp.ledger order by id").fetchall()
    assert relations == [(["public.client", "public.purchase"],), (["public.client"],)]
    assert (lost(shop, "public.client"), lost(shop, "public.purchase")) == (2, 1)
    assert spent(shop) == 2


def test_a_self_join_debits_its_root_once(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("select dp_count(*) from client a join client b on a.c_region = b.c_region")
    assert lost(shop, "public.client") == 1


def test_the_cap_of_one_root_refuses_and_debits_no_other(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        owner.execute("select dp.set_root_cap('purchase', 0.5)")
        error = refusal(alice, JOIN)
    assert error.sqlstate == "PD001"
    assert (lost(shop, "public.client"), lost(shop, "public.purchase"), spent(shop)) == (0, 0, 0)


def test_questions_about_disjoint_rows_add_up(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT + " where c_id < 100")
        alice.execute(COUNT + " where c_id >= 100")
    assert lost(shop, "public.client") == 2


# Stable identity: surviving unprotect/protect, rename, drop.


@pytest.mark.parametrize(
    ("between", "relation"),
    [
        ("select dp.unprotect('client'), dp.protect('client')", "public.client"),
        ("alter table client rename to customer", "public.customer"),
        ("create schema other; alter table client set schema other", "other.client"),
        (
            "alter table client rename to customer; drop table customer cascade;"
            " create table customer (c_id int); select dp.protect('customer')",
            "public.customer",
        ),
        (
            "select dp.unprotect('client'); alter table client rename to customer;"
            " drop table customer cascade; create table customer (c_id int);"
            " select dp.protect('customer')",
            "public.customer",
        ),
        (
            "create schema other; alter table client set schema other;"
            " alter schema other rename to another; drop schema another cascade;"
            " create schema another; create table another.client (c_id int);"
            " select dp.protect('another.client')",
            "another.client",
        ),
        (
            "begin; alter table client rename to customer; drop table customer cascade; rollback",
            "public.client",
        ),
    ],
)
def test_a_root_keeps_its_losses(shop: Any, between: str, relation: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
    shop.sql(f"set search_path = public; {between}")
    shop.sql("grant usage on schema public to dp_analyst")
    schema = relation.split(".")[0]
    shop.sql(f"grant usage on schema {schema} to dp_analyst, dp_executor")
    shop.sql("select dp.grant_budget('alice', 1000, 1e-4)")  # remembers the names as they are now
    assert lost(shop, relation) == 1
    with shop.connect(user="alice") as alice:
        alice.execute(f"select dp_count(*) from {relation} where c_id > 0")
    assert lost(shop, relation) == 2
    assert shop.sql("select count(*) from dp.root") == [(2,)]


def test_anybody_can_still_drop_what_is_not_protected(shop: Any) -> None:
    shop.sql("create schema mine authorization mallory")
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create table mine.t (a int); create temp table u (a int)")
        mallory.execute("drop table mine.t, u")


def test_the_extension_can_be_dropped_with_everything_it_watches(shop: Any) -> None:
    shop.sql("drop extension dpsql cascade")
    shop.sql("drop table client cascade")
    assert shop.sql("select count(*) from pg_event_trigger where evtname like 'dpsql%'") == [(0,)]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_role_keeps_its_losses(shop: Any, renamed: bool) -> None:
    shop.sql("drop role if exists first_name, second_name; create role first_name login")
    try:
        shop.sql("select dp.grant_budget('first_name', 2)")
        with shop.connect(user="first_name") as asker:
            asker.execute(COUNT)
        name = "first_name"
        if renamed:
            name = "second_name"
            shop.sql("alter role first_name rename to second_name")
            with shop.connect(user=name) as asker:
                asker.execute("select dp_count(*) from purchase where p_id = 3")
        shop.sql(f"drop role {name}; create role {name} login")
        with shop.connect(user=name) as asker:
            assert refusal(asker, COUNT).sqlstate in ("42501", "PD002")
        shop.sql("select dp.grant_budget(%s::regrole, 2.5)", name)
        with shop.connect(user=name) as asker:
            (remaining,) = asker.execute("select epsilon_remaining from dp.budgets").fetchone()
            assert float(remaining) == (0.5 if renamed else 1.5)
    finally:
        shop.sql("drop role if exists first_name, second_name")


# Quotes depend on public facts.


@pytest.mark.parametrize(
    "question",
    [
        COUNT,
        JOIN,
        "select c_kind, dp_count(*), dp_count(c_born) from client group by c_kind",
        "select p_day, dp_count(*) from purchase group by p_day",
    ],
)
def test_the_quote_is_what_is_charged_whatever_the_data(shop: Any, question: str) -> None:
    costs = []
    with shop.connect(user="alice") as alice:
        for change in ("select 1", "delete from purchase where p_id > 7"):
            shop.sql(change)
            quoted = dict(alice.execute("select * from dp.explain(%s)", (question,)).fetchall())
            alice.execute("set dp.fresh = on")
            alice.execute(question)
            charged = alice.execute(
                "select epsilon, delta, rho from dp.ledger order by id desc limit 1"
            ).fetchone()
            told = [float(quoted[f"cost {unit}"]) for unit in ("epsilon", "delta", "rho")]
            assert told == pytest.approx([float(amount) for amount in charged], rel=1e-11)
            costs.append(charged)
    assert costs[0] == costs[1]


# Cache: what a question is.


@pytest.mark.parametrize(
    "setting",
    [
        "dp.epsilon = 0.9",
        "dp.delta = 2e-8",
        "dp.method = 'elastic'",
        "dp.mechanism = 'calibrated'",
    ],
)
def test_another_setting_is_another_question(shop: Any, setting: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(JOIN)
        alice.execute(f"set {setting}")
        alice.execute(JOIN)
        assert shop.sql("select count(*) from dp.spend") == [(2,)]
        alice.execute("reset all")
        alice.execute(JOIN)
    assert shop.sql("select count(*) from dp.spend") == [(2,)]


@pytest.mark.parametrize(
    "change",
    [
        "alter table client drop constraint client_pkey cascade",
        "alter table client alter c_region drop not null",
        "drop table purchase; create table purchase (p_client int);"
        " select dp.protect('public.purchase')",
    ],
)
def test_another_schema_is_another_question(shop: Any, change: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(JOIN)
        shop.sql(change)
        alice.execute(JOIN)
    assert shop.sql("select count(*) from dp.spend") == [(2,)]


def test_a_constant_is_part_of_the_question_and_its_spelling_is_not(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        for condition in ("c_id > 5", "c_id > 2 + 3", "5 < c_id", "c_id > 6"):
            alice.execute(f"{COUNT} where {condition}")
        alice.execute(f"{COUNT} where c_id > %s", (5,))
    rows = shop.sql("select count(*) from dp.spend")
    assert rows[0][0] in (2, 3)  # the parameter's type may differ from the literal's


# Cache: permission is checked before a hit; a hit costs the root nothing.


def test_a_role_pays_for_what_it_sees_first_and_the_root_does_not(two: Any) -> None:
    with two.connect(user="alice") as alice, two.connect(user="bob") as bob:
        first = alice.execute(COUNT).fetchone()
        assert bob.execute(COUNT).fetchone() == first
        assert bob.execute(COUNT).fetchone() == first
    assert (spent(two), spent(two, "bob"), lost(two, "public.client")) == (1, 1, 1)


LOSSES_OF_PERMISSION = [
    ("revoke dp_analyst from alice", "grant dp_analyst to alice", ("42501", "PD002")),
    (
        "revoke usage on schema public from public",
        "grant usage on schema public to public",
        ("42501", "PD012", "42P01"),
    ),
    ("alter table client enable row level security", "select 1", ("PD012",)),
    ("select dp.unprotect('client')", "select 1", ("PD012",)),
    ("select dp.revoke_budget('alice')", "select 1", ("PD002",)),
]


@pytest.mark.parametrize("form", ["hook", "run", "query"])
@pytest.mark.parametrize(("lose", "regain", "states"), LOSSES_OF_PERMISSION)
def test_permission_is_checked_before_a_hit(
    shop: Any, lose: str, regain: str, states: tuple[str, ...], form: str
) -> None:
    statement = {
        "hook": "select dp_count(*) from public.client",
        "run": "select * from dp.run('select public.dp_count(*) from public.client', null)"
        " as t(n bigint)",
        "query": "select dp.query('select public.dp_count(*) from public.client')",
    }[form]
    try:
        with shop.connect(user="alice") as alice:
            alice.execute(statement)
            alice.execute(statement)
            shop.sql(lose)
            assert refusal(alice, statement).sqlstate in states
        with shop.connect(user="alice") as alice:
            assert refusal(alice, statement).sqlstate in states
        assert spent(shop) == 1
    finally:
        shop.sql(regain)


def test_a_plan_that_another_role_made_gives_no_permission(pooled: Any, two: Any) -> None:
    two.sql("create schema closed; grant usage on schema closed to dp_executor, alice")
    two.sql("create table closed.t as select 1 as a; select dp.protect('closed.t')")
    statement = (
        "select * from dp.run('select public.dp_count(*) from closed.t', null) as t(n bigint)"
    )
    pooled.execute("set role alice")
    pooled.execute(statement)
    pooled.execute("set role bob")
    assert refusal(pooled, statement).sqlstate in ("42501", "PD012")
    assert spent(two, "bob") == 0


# Identity is evaluated at execution; permission and charge use the same role.


def test_the_role_at_execution_pays_for_a_prepared_statement(pooled: Any, two: Any) -> None:
    pooled.execute("set role alice")
    pooled.execute(f"prepare q as {COUNT}")
    pooled.execute("set role bob")
    pooled.execute("execute q")
    assert (spent(two), spent(two, "bob")) == (0, 1)
    pooled.execute("reset role")
    assert refusal(pooled, "execute q").sqlstate in ("42501", "PD002")


def test_the_role_at_the_first_fetch_pays_for_a_cursor(pooled: Any, two: Any) -> None:
    pooled.execute("set role alice")
    pooled.execute(f"begin; declare c cursor for {COUNT}")
    pooled.execute("set local role bob")
    pooled.execute("fetch 1 from c; commit")
    assert (spent(two), spent(two, "bob")) == (0, 1)


def test_a_definer_function_charges_its_caller(two: Any) -> None:
    two.sql(f"create function ask() returns bigint language sql security definer as '{COUNT}'")
    two.sql("alter function ask() owner to bob")
    with two.connect(user="alice") as alice:
        alice.execute("select ask()")
    assert (spent(two), spent(two, "bob")) == (1, 0)


def test_a_reader_caps_what_a_function_of_others_may_spend(two: Any) -> None:
    two.sql(f"create function ask() returns bigint language sql set dp.epsilon = 50 as '{COUNT}'")
    two.sql("alter function ask() owner to bob")
    with two.connect(user="alice") as alice:
        alice.execute("set dp.max_epsilon_per_query = 2")
        error = refusal(alice, "select ask()")
        assert error.sqlstate == "PD040"
        assert "max_epsilon_per_query" in str(error)
        assert spent(two) == 0
        alice.execute("set dp.max_epsilon_per_query = 50")
        alice.execute("select ask()")
    assert spent(two) == 50
