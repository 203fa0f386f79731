"""One query from psql to a noised answer, through the real server."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server

JOIN = (
    "select r_name, dp_count(*) from region join client on c_region = r_id"
    " join purchase on p_client = c_id group by r_name order by r_name"
)


def spent(shop: Any, role: str = "alice") -> float:
    rows = shop.sql("select coalesce(sum(epsilon), 0) from dp.ledger where role = %s", role)
    return float(rows[0][0])


def test_an_analyst_without_privileges_gets_a_plausible_noised_count(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            alice.execute("select count(*) from client")
        value = alice.execute("select dp_count(*) from client").fetchone()[0]
    assert abs(value - 200) < 60  # P(|Lap(1)| >= 60) < 1e-25
    assert spent(shop) == 1.0


def test_the_noise_is_there(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.1")
        alice.execute("set dp.fresh = on")
        values = {alice.execute("select dp_count(*) from client").fetchone()[0] for _ in range(40)}
    assert len(values) > 5  # 40 draws of Lap(10) on at most 5 values: below 1e-20


def test_a_public_domain_is_reported_in_full_and_in_order(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        rows = alice.execute(JOIN).fetchall()
    assert [r[0] for r in rows] == [f"region {i}" for i in range(1, 5)]


def test_empty_groups_of_a_domain_are_reported(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        rows = alice.execute(
            "select c_kind, dp_count(*) from client where c_id < 0 group by c_kind"
        ).fetchall()
    assert {r[0] for r in rows} >= {"a", "b", "c"}


def test_the_same_question_costs_once_and_returns_the_same_numbers(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        first = alice.execute(JOIN).fetchall()
        again = alice.execute(JOIN).fetchall()
        other = alice.execute(
            "select n.r_name as name, dp_count(*) from purchase p, client, region n"
            " where c_id = p.p_client and n.r_id = c_region group by 1 order by 1"
        ).fetchall()
    assert first == again == other
    assert spent(shop) == 1.0


def test_fresh_pays_again(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(JOIN)
        alice.execute("set dp.fresh = on")
        alice.execute(JOIN)
    assert spent(shop) == 2.0


def test_post_processing_of_noised_values_is_free(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        rows = alice.execute(
            "select upper(r_name), dp_count(*) * 2 as twice, round(dp_count(*) / 3.0, 2)"
            " from region join client on c_region = r_id group by r_name"
            " having dp_count(*) > -1000 order by dp_count(*) desc limit 2"
        ).fetchall()
    assert len(rows) == 2
    assert rows[0][0].startswith("REGION")
    assert rows[0][1] >= rows[1][1]
    assert spent(shop) == 1.0


def test_two_aggregates_share_one_budget(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        row = alice.execute(
            "select dp_count(*), dp_count(c_kind), dp_count(*) from client"
        ).fetchone()
    assert row[0] == row[2]
    assert spent(shop) == 1.0


def test_count_of_an_expression_skips_nulls(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 50")
        row = alice.execute("select dp_count(c_kind) from client").fetchone()
    assert abs(row[0] - 133) <= 10


def test_parameters_of_the_extended_protocol(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 50")
        sql = "select dp_count(*) from purchase where p_day < %s and p_amount > %s"
        first = alice.execute(sql, ("2024-02-01", 3)).fetchone()[0]
        second = alice.execute(sql, ("2023-01-01", 3), prepare=True).fetchone()[0]
    assert first > 300
    assert abs(second) <= 10


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
@pytest.mark.parametrize("mode", ["read only", "read write"])
def test_the_charge_survives_rollback_at_any_isolation(shop: Any, level: str, mode: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(f"begin isolation level {level} {mode}")
        alice.execute("select dp_count(*) from client")
        alice.execute("rollback")
    assert spent(shop) == 1.0


def test_the_charge_survives_savepoint_and_exception_block(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("begin")
        alice.execute("savepoint s")
        alice.execute("select dp_count(*) from client")
        alice.execute("rollback to s")
        alice.execute("rollback")
        alice.execute(
            "do $$ declare n bigint; begin begin select dp_count(*) into n from purchase;"
            " raise exception 'undo'; exception when others then null; end; end $$"
        )
    assert spent(shop) == 2.0


def test_grant_and_query_in_one_transaction_do_not_deadlock(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("set statement_timeout = '120s'")
        owner.execute("begin")
        owner.execute("select dp.grant_budget('owner1', epsilon => 5, delta => 1e-6)")
        with pytest.raises(psycopg.Error) as caught:
            owner.execute("select dp_count(*) from client")
        owner.execute("rollback")
    assert caught.value.sqlstate == "PD002"


def test_a_role_without_budget_is_told_what_to_do(shop: Any) -> None:
    shop.sql("grant dp_analyst to mallory")
    with shop.connect(user="mallory") as mallory, pytest.raises(psycopg.Error) as caught:
        mallory.execute("select dp_count(*) from client")
    assert caught.value.sqlstate == "PD002"
    assert "grant_budget" in caught.value.diag.message_hint


def test_an_exhausted_budget_refuses_and_spends_nothing(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', epsilon => 1.5, delta => 1e-6)")
    with shop.connect(user="bob") as bob:
        bob.execute("select dp_count(*) from client")
        with pytest.raises(psycopg.Error) as caught:
            bob.execute("select dp_count(*) from purchase")
        assert caught.value.sqlstate == "PD001"
        bob.execute("set dp.epsilon = 0.5")
        bob.execute("select dp_count(*) from purchase")
    assert spent(shop, "bob") == 1.5


def test_set_role_pays_from_the_role_in_effect(shop: Any) -> None:
    shop.sql("grant alice to bob")
    with shop.connect(user="bob") as bob:
        bob.execute("set role alice")
        bob.execute("select dp_count(*) from client")
    shop.sql("revoke alice from bob")  # roles are the cluster's
    assert spent(shop, "alice") == 1.0
    assert spent(shop, "bob") == 0.0


def test_explain_is_free_and_names_the_cost(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        rows = dict(alice.execute("select * from dp.explain($$" + JOIN + "$$)").fetchall())
    assert "public.client" in rows["private relations"].split(", ")
    assert rows["public relations"] == "public.region"
    assert rows["cost epsilon"] == "1"
    assert "counting SQL" not in rows
    assert spent(shop) == 0.0


def test_only_the_owner_sees_counting_sql_and_sensitivity(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        rows = dict(owner.execute("select * from dp.explain($$" + JOIN + "$$)").fetchall())
        assert "client" in rows["counting SQL"]
        value = owner.execute("select dp.sensitivity($$" + JOIN + "$$)").fetchone()[0]
        assert value >= 20
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute("select dp.sensitivity($$" + JOIN + "$$)")
    assert caught.value.sqlstate == "PD070"


WATCH = in_service("""
from dpsql.server import spi
from dpsql.statistics import counts
counts.prefer_arrays = lambda *parameters: False
execute, spi.seen = spi.SpiDatabase.execute, []
def watched(self, sql, parameters=()):
    spi.seen.append(sql)
    return execute(self, sql, parameters)
spi.SpiDatabase.execute = watched
""")
SEEN = function_in_service(
    "pg_temp.seen",
    "setof text",
    """
import json
from dpsql.server import spi
return json.dumps(spi.seen)
""",
)
#: How a cycle is cut depends on the sizes of relations.
CYCLE = """select dp_count(*) from purchase a, purchase b, client c, client d
  where a.p_client = c.c_id and b.p_client = d.c_id and c.c_region = d.c_region and a.p_day = b.p_day"""


@pytest.mark.parametrize("asked", [CYCLE, CYCLE.replace("dp_count(*)", "dp_sum(a.p_amount, 0, 9)")])
def test_the_sql_that_owners_see_is_what_runs(shop: Any, asked: str) -> None:
    shop.sql(
        "insert into client select i, 1, date '1960-01-01' + i % 30 from generate_series(1000, 9000) i"
    )
    shop.sql("analyze client, purchase; select dp.grant_budget('postgres', 10, 1e-6)")
    with silent(shop, "client", WATCH, SEEN) as session:
        rows = dict(session.execute("select * from dp.explain(%s)", (asked,)).fetchall())
        session.execute(asked)
        seen = [sql for (sql,) in session.execute("select pg_temp.seen()").fetchall()]
    assert rows["counting SQL"] in seen


def test_an_interval_is_shown_when_the_scale_is_public(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        row = alice.execute(
            "select dp_count(*), dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*))"
            " from client"
        ).fetchone()
    assert row[1] < row[0] < row[2]
    assert row[0] - row[1] == row[2] - row[0] == 3  # P(|DLap(1)| > 3) <= 0.05


def test_query_works_without_the_hook(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        rows = alice.execute("select dp.query($$" + JOIN + "$$)").fetchall()
    assert len(rows) == 4
    assert set(rows[0][0]) == {"r_name", "dp_count"}


def test_an_answer_can_be_kept_in_a_table_of_the_analyst(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("create temp table mine as " + JOIN)
        alice.execute("insert into mine " + JOIN)
        rows = alice.execute("select * from mine order by 1").fetchall()
    assert len(rows) == 8
    assert rows[0] == rows[1]
    assert spent(shop) == 1.0


def test_a_cursor_is_charged_at_first_fetch(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("begin")
        alice.execute("declare c cursor for " + JOIN)
        assert spent(shop) == 0.0
        alice.execute("fetch 1 from c")
        assert spent(shop) == 1.0
        alice.execute("commit")


def test_explain_and_describe_cost_nothing(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        plan = alice.execute("explain (costs off) " + JOIN).fetchall()
    assert "client" not in str(plan)
    assert spent(shop) == 0.0


def test_a_new_row_does_not_expire_the_stored_answer(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        first = alice.execute("select dp_count(*) from client").fetchone()
        shop.sql("insert into client values (1000, 1, null, null)")
        assert alice.execute("select dp_count(*) from client").fetchone() == first


def test_a_dropped_key_invalidates_the_plan(shop: Any) -> None:
    sql = "select dp_count(*) from client join purchase on p_client = c_id"
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(sql)
        before = owner.execute("select dp.sensitivity($$" + sql + "$$)").fetchone()[0]
        shop.sql("alter table purchase drop constraint purchase_p_client_fkey")
        shop.sql("alter table client drop constraint client_pkey")
        after = owner.execute("select dp.sensitivity($$" + sql + "$$)").fetchone()[0]
        alice.execute("set dp.fresh = on")
        alice.execute(sql)
    assert after > before


def test_a_view_that_the_owner_declared_is_expanded(shop: Any) -> None:
    shop.sql("create view good as select c_id, c_region from client where c_kind = 'a'")
    shop.sql("alter view good owner to owner1")
    sql = "select dp_count(*) from good join region on r_id = c_region"
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(sql)
        assert caught.value.sqlstate == "PD012"
        with shop.connect(user="owner1") as owner:
            owner.execute("select dp.declare_view('good')")
        alice.execute("set dp.epsilon = 50")
        value = alice.execute(sql).fetchone()[0]
    assert abs(value - 66) <= 10


def test_an_error_in_post_processing_says_so_and_the_counts_stay_free(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select ln(dp_count(*) - dp_count(*)) from client")
        assert caught.value.sqlstate == "PD041"
        assert "logarithm of zero" in caught.value.diag.message_primary
        alice.execute("select dp_count(*) from client")
    assert spent(shop) == 1.0


def test_gigabytes_are_not_made_from_a_short_statement(shop: Any) -> None:
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute("select format('%1000000000s', 'x'), dp_count(*) from client")
    assert caught.value.sqlstate == "PD013"
