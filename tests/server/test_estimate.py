"""dp.estimate: what a statement would cost, how far off it would be, what is left: before paying."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server.unit_shop import SET_UP

COUNT = "select dp_count(*) from client"
SELF_JOIN = "select dp_count(*) from client a join client b on a.c_region = b.c_region"


def estimate(connection: Any, statement: str, *parameters: str) -> list[dict[str, Any]]:
    places = "".join(", %s" for _ in parameters)
    cursor = connection.execute(f"select * from dp.estimate(%s{places})", (statement, *parameters))
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def left(connection: Any, role: str = "alice") -> tuple[Any, ...]:
    sql = "select epsilon_remaining, delta_remaining from dp.budgets where role = %s"
    return tuple(connection.execute(sql, (role,)).fetchone())


def test_a_count_over_one_table_is_foretold_exactly(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.5")
        line, total = estimate(alice, "select dp_count(*) as n from client where c_id > 7")
        assert (line["column_name"], line["aggregate"], line["mechanism"]) == (
            "n", "dp_count", "laplace"
        )  # fmt: skip
        assert (line["epsilon"], line["delta"], line["groups"]) == (Decimal("0.5"), 0, 1)
        assert line["expected_error"] == float(f"{1 / math.sinh(0.5):.4g}")
        assert line["error_95"] == 6
        assert (line["bias"], line["note"]) == (None, None)
        assert (total["column_name"], total["aggregate"]) == (None, "total")
        assert (total["epsilon"], total["delta"]) == (Decimal("0.5"), 0)
        assert (total["stored"], total["refused_by"], total["note"]) == (False, None, None)
        assert shop.sql("select count(*) from dp.spend") == [(0,)]
        n, low, high = alice.execute(
            "select dp_count(*), dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*))"
            " from client where c_id > 7"
        ).fetchone()
        assert (n - low, high - n) == (6, 6)
        assert left(alice) == (total["epsilon_remaining"], total["delta_remaining"])
        assert shop.sql("select rho from dp.spend") == [(total["rho"],)]


def test_costs_are_split_and_add_up(shop: Any) -> None:
    statement = (
        "select c_kind, dp_count(*) as n, dp_count(c_born) + 1 as m, dp_count(*) * 2 as twice"
        " from client group by c_kind having dp_count(*) filter (where c_id > 3) > 0"
    )
    with shop.connect(user="alice") as alice:
        *lines, total = estimate(alice, statement)
        assert [line["column_name"] for line in lines] == ["n, twice", "m", None]
        assert sum(line["epsilon"] for line in lines) == pytest.approx(1)
        assert {line["groups"] for line in lines} == {3}
        assert all(
            line["expected_error"] == pytest.approx(1 / math.sinh(1 / 3), 1e-3) for line in lines
        )
        before = left(alice)
        alice.execute(statement)
        assert left(alice) == (total["epsilon_remaining"], total["delta_remaining"])
        assert before[0] - left(alice)[0] == total["epsilon"]


@pytest.mark.parametrize("mechanism", ["laplace", "cauchy", "calibrated"])
def test_what_depends_on_rows_is_told_at_least(shop: Any, mechanism: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(f"set dp.mechanism = {mechanism}")
        before = estimate(alice, SELF_JOIN)
        line, total = before
        assert line["mechanism"] == mechanism
        assert line["expected_error"] > 0
        assert line["error_95"] > line["expected_error"]
        assert "depends on protected rows" in line["note"]
        # public facts only: whatever the rows are
        shop.sql("delete from purchase")
        shop.sql("update client set c_region = 1")
        shop.sql("insert into client select i, 1 from generate_series(1001, 3000) i")
        assert estimate(alice, SELF_JOIN) == before
        asked = alice.execute(SELF_JOIN).fetchone()
        assert asked is not None
        assert left(alice) == (total["epsilon_remaining"], total["delta_remaining"])


JOIN = "client a join client b on a.c_region = b.c_region"


@pytest.mark.parametrize(
    ("mechanism", "relation"),
    [
        *((m, r) for m in ("auto", "laplace", "cauchy", "calibrated") for r in ("client", JOIN)),
        *((m, "someone") for m in ("quantile", "r2t")),
    ],
)
def test_explain_tells_of_the_error_what_estimate_tells(
    shop: Any, mechanism: str, relation: str
) -> None:
    shop.sql("drop table if exists someone; create table someone (id int, u int not null)")
    shop.sql("select dp.protect('someone', privacy_unit => 'u')")
    with shop.connect(user="alice") as alice:
        alice.execute(f"set dp.mechanism = {mechanism}")
        statement = f"select dp_count(*) from {relation}"
        line, _ = estimate(alice, statement)
        rows = alice.execute("select * from dp.explain(%s)", (statement,)).fetchall()
        (told,) = (value for item, value in rows if item.startswith("expected error"))
        assert "cannot be told" not in told
        assert (line["note"] or "noise scale") in told
        if line["error_95"] is not None:
            assert f"within ±{line['error_95']:g} with probability 0.95" in told


def test_errors_are_shown_to_a_few_digits(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        for epsilon in ("50", "0.3", "0.000007"):
            alice.execute(f"set dp.epsilon = {epsilon}")
            (line, _) = estimate(alice, COUNT)
            rows = dict(alice.execute("select * from dp.explain(%s)", (COUNT,)).fetchall())
            shown = rows["expected error"].split("±")[1].split()
            numbers = [shown[0], shown[-1].rstrip(")"), line["expected_error"], line["error_95"]]
            for number in numbers:
                digits = Decimal(str(number)).normalize().as_tuple().digits
                assert len(digits) <= 4, (epsilon, numbers)


def test_groups_that_are_not_public(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        line, total = estimate(alice, "select c_born, dp_count(*) from client group by c_born")
        assert line["mechanism"] == "threshold"
        assert (line["groups"], total["groups"]) == (None, None)
        assert "of the groups that are shown" in line["note"]
        assert total["delta"] == line["delta"] > 0


def test_units_are_cut_off_and_it_says_so(database: Any) -> None:
    database.sql(SET_UP)
    with database.connect("alice") as alice:
        statement = "select dp_count(*) from orders"
        line, total = estimate(alice, statement)
        assert line["mechanism"] == total["mechanism"] == "quantile"
        assert "off by what they lose" in line["bias"]
        assert "between 1 and 1000000000 (dp.max_contribution)" in line["note"]
        alice.execute("set dp.max_contribution = 1")
        (line, _) = estimate(alice, statement)
        assert line["note"] is None
        alice.execute("reset dp.max_contribution; set dp.mechanism = r2t")
        (line, _) = estimate(alice, statement)
        assert (line["expected_error"], line["error_95"]) == (None, None)
        assert "too low by at most" in line["note"]


def test_a_stored_answer_is_free_for_who_paid(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 10)")
    with shop.connect(user="alice") as alice, shop.connect(user="bob") as bob:
        alice.execute(COUNT)
        total = estimate(alice, COUNT.upper())[-1]
        assert (total["stored"], total["note"]) == (True, "the answer is stored: free")
        assert total["epsilon_remaining"] == left(alice)[0] == 999
        assert estimate(bob, COUNT)[-1]["stored"] is False
        assert estimate(bob, COUNT)[-1]["epsilon_remaining"] == 9
        alice.execute("set dp.fresh = on")
        total = estimate(alice, COUNT)[-1]
        assert (total["stored"], total["epsilon_remaining"]) == (False, 998)


def test_public_questions_are_free(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        line, total = estimate(alice, "select dp_count(*) from region")
        assert (line["mechanism"], line["epsilon"], line["expected_error"]) == ("exact", 0, 0)
        assert total["note"] == "reads no protected row: free"
        assert total["epsilon"] == total["rho"] == 0


def test_refusals_are_foretold_by_the_account_that_refuses(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="bob") as bob:
        owner.execute("select dp.grant_budget('bob', 1.5)")
        bob.execute(COUNT)
        statement = COUNT + " where c_id > 3"
        total = estimate(bob, statement)[-1]
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(statement)
        diag = caught.value.diag
        assert total["refused_by"] == "role"
        assert total["note"] == f"{diag.message_primary}. {diag.message_detail}"
        assert total["epsilon_remaining"] == Decimal("0.5")
        owner.execute("select dp.grant_budget('bob', 100)")
        owner.execute("select dp.set_root_cap('client', 1.5)")
        total = estimate(bob, statement)[-1]
        assert total["refused_by"] == "relation"
        assert "its owner's cap" in total["note"]
        assert total["epsilon_remaining"] == 99
        owner.execute("select dp.revoke_budget('bob')")
        total = estimate(bob, statement)[-1]
        assert (total["refused_by"], total["epsilon_remaining"]) == ("role", None)
        shop.sql("update dp.ledger_incarnation set token = gen_random_uuid()")
        assert estimate(bob, statement)[-1]["refused_by"] == "ledger"


@pytest.mark.parametrize("window", ["", ", budget_window => '1 month'"])
@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_what_is_left_is_what_the_budget_says_afterwards(
    shop: Any, composition: str, window: str
) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="bob") as bob:
        owner.execute(f"select dp.grant_budget('bob', 20, 1e-6, '{composition}'{window})")
        for epsilon in ("0.3", "0.07", "1"):
            bob.execute(f"set dp.epsilon = {epsilon}")
            for statement in (COUNT, SELF_JOIN):
                total = estimate(bob, statement)[-1]
                bob.execute("set dp.fresh = on")
                bob.execute(statement)
                bob.execute("reset dp.fresh")
                told = (total["epsilon_remaining"], total["delta_remaining"])
                for foretold, now in zip(told, left(bob, "bob"), strict=True):
                    assert abs(foretold - now) <= Decimal("1e-12")


def test_parameters_are_taken_as_by_explain(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        statement = "select dp_count(*) from purchase where p_day < $1"
        assert estimate(alice, statement, "2024-03-01")[-1]["epsilon"] == 1


def test_who_asks_and_what_is_refused(shop: Any) -> None:
    shop.sql("create role unknown_to_dpsql login")
    with shop.connect(user="unknown_to_dpsql") as other, pytest.raises(psycopg.Error) as caught:
        other.execute("select * from dp.estimate(%s)", (COUNT,))
    shop.sql("drop role unknown_to_dpsql")
    assert caught.value.sqlstate == "42501"
    with shop.connect(user="alice") as alice:
        for statement, sqlstate in (
            ("select count(*) from client", "PD011"),
            ("select dp_count(*) from client full join region on r_id = c_region", "PD011"),
            (None, "PD040"),
        ):
            with pytest.raises(psycopg.Error) as caught:
                alice.execute("select * from dp.estimate(%s)", (statement,))
            assert caught.value.sqlstate == sqlstate, str(caught.value)
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


def test_an_estimate_waits_for_nobody(shop: Any) -> None:
    """It locks nothing, so that a charge under way does not hold it up."""
    blocker = shop.connect(autocommit=False)
    blocker.execute("lock table dp.role_total in exclusive mode")
    with shop.connect(user="alice") as alice:
        alice.execute("set statement_timeout = '120s'")
        assert estimate(alice, COUNT)[-1]["stored"] is False
    blocker.rollback()
