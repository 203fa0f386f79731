"""zCDP composition in the server: the conversion, what owners and analysts see, the filter."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from tests.contract.conversion import rho_for
from tests.server.test_dump_restore import dump_and_restore

GRID = [
    (epsilon, delta)
    for epsilon in ("0.000001", "0.01", "0.3", "1", "2.5", "10", "50", "1000")
    for delta in ("1e-100", "1e-15", "5e-9", "5e-7", "0.001", "0.05", "0.5")
]


def normal_tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def test_the_conversion_is_optimal_and_never_above_the_independent_one(database: Any) -> None:
    connection = database.connect()
    for epsilon, delta in GRID:
        rho, back = connection.execute(
            "select r, dp.zcdp_epsilon(r, %s) from dp.zcdp_rho(%s, %s) as r",
            (delta, epsilon, delta),
        ).fetchone()
        best = rho_for(Fraction(epsilon), Fraction(delta))
        assert Fraction(rho) <= best, (epsilon, delta)
        assert Fraction(rho) >= best * (1 - Fraction(1, 10**9)) - Fraction(1, 10**20)
        if rho:
            assert abs(Fraction(back) / Fraction(epsilon) - 1) < Fraction(1, 10**9)


def test_random_conversions_are_outward(database: Any) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    choice = random.Random(seed)
    connection = database.connect()
    for _ in range(60):
        rho = Fraction(round(10 ** choice.uniform(-6, 2), 9)) + Fraction(1, 10**9)
        delta = Fraction(str(float(f"{10 ** choice.uniform(-20, -1):.3g}")))
        amounts = (f"{float(rho):.12f}", f"{float(delta):.40f}")
        (epsilon,) = connection.execute("select dp.zcdp_epsilon(%s, %s)", amounts).fetchone()
        # The independent inverse allows at least the rho that was converted.
        allowed = rho_for(Fraction(epsilon), Fraction(amounts[1]))
        assert allowed >= Fraction(amounts[0])
        assert allowed <= Fraction(amounts[0]) * (1 + Fraction(1, 10**6)) or epsilon == 0


@pytest.mark.parametrize("rho", [0.001, 0.05, 0.5, 3])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_gaussian_mechanism_stays_below_what_its_rho_is_converted_to(
    database: Any, rho: float, delta: float
) -> None:
    rows = database.sql("select dp.zcdp_epsilon(%s::numeric, %s::numeric)", str(rho), str(delta))
    epsilon = float(rows[0][0])
    # Exact delta of N(0, 1) against N(mu, 1), rho = mu^2/2 (Balle and Wang 2018).
    mu = math.sqrt(2 * rho)
    true = normal_tail(epsilon / mu - mu / 2) - math.exp(epsilon) * normal_tail(
        epsilon / mu + mu / 2
    )
    assert delta / 1000 < true <= delta


def test_amounts_outside_the_range_convert_to_nothing_useful(database: Any) -> None:
    assert database.sql("select dp.zcdp_epsilon(0, 1e-6), dp.zcdp_rho(0, 1e-6)") == [(0, 0)]
    assert database.sql("select dp.zcdp_epsilon(1, 1e-250)")[0][0] == math.inf
    assert database.sql("select dp.zcdp_rho(1, 1e-250)") == [(0,)]
    for delta in ("0", "-1"):
        assert database.sql(f"select dp.zcdp_epsilon(1, {delta})")[0][0] == math.inf
        assert database.sql(f"select dp.zcdp_rho(1, {delta})") == [(0,)]
    for x, delta in ((-1, 0), (0, 0.5), (-2, 0.5), (1, 0), (1, -1)):
        assert database.sql(f"select dp.zcdp_offset({x}, {delta})") == [(None,)]


SMALL = "select dp_count(*) from client where c_id > {}"


def test_many_small_questions_fit_where_basic_composition_refuses(shop: Any) -> None:
    """Epsilon 0.02 a question: 50 fit into 1 by adding up, 64 were asked and left much of rho."""
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 1, 1e-6, composition => 'zcdp')")
    with shop.connect(user="bob") as bob:
        bob.execute("set dp.epsilon = 0.02")
        for i in range(64):
            bob.execute(SMALL.format(i))
        row = bob.execute(
            "select composition, epsilon_limit, epsilon_spent, delta_limit, delta_reserved,"
            " rho_spent, rho_limit, epsilon_remaining, spends from dp.budgets"
        ).fetchone()
        cost = bob.execute("select sum(epsilon), sum(rho) from dp.ledger").fetchone()
    assert (row[0], row[1], row[8]) == ("zcdp", 1, 64)
    assert row[2] < 1 < cost[0]
    assert row[4] == row[3] / 2
    assert row[5] == cost[1] < row[6]
    assert Fraction(row[6]) <= rho_for(Fraction(1), Fraction(1, 2 * 10**6))
    # The largest further question that the account has room for is let through, one above is not.
    with shop.connect(user="bob") as bob:
        bob.execute("select set_config('dp.epsilon', %s, false)", (str(row[7] * 2),))
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(SMALL.format(1000))
        assert caught.value.sqlstate == "PD001"
        assert "costs rho = " in caught.value.diag.message_detail
        bob.execute("select set_config('dp.epsilon', %s, false)", (str(row[7]),))
        bob.execute(SMALL.format(1000))
        spent, limit = bob.execute("select epsilon_spent, epsilon_limit from dp.budgets").fetchone()
        assert spent <= limit


def test_an_adaptive_sequence_never_exceeds_and_is_never_refused_early(shop: Any) -> None:
    """A random asker against an oracle that adds up on its own, role and root both under zCDP."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    choice = random.Random(seed)
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 3, 1e-6, composition => 'zcdp')")
        owner.execute("select dp.set_root_cap('client', 2.5, 1e-6, composition => 'zcdp')")
    role_limit = rho_for(Fraction(3), Fraction(1, 2 * 10**6))
    root_limit = rho_for(Fraction(5, 2), Fraction(1, 2 * 10**6))
    role = root = Fraction(0)
    refused = 0
    tolerance = Fraction(1, 10**12)
    with shop.connect(user="bob") as bob:
        for i in range(60):
            epsilon = choice.choice(("0.05", "0.1", "0.2", "0.4"))
            both = choice.random() < 0.6
            table, column = ("client", "c_id") if both else ("purchase", "p_id")
            bob.execute(f"set dp.epsilon = {epsilon}")
            e = float(epsilon)
            rho = Fraction(e * math.tanh(e / 2))
            fits = role + rho <= role_limit and (not both or root + rho <= root_limit)
            question = f"select dp_count(*) from {table} where {column} > {10000 + i}"
            if not fits:
                refused += 1
                with pytest.raises(psycopg.Error) as caught:
                    bob.execute(question)
                assert caught.value.sqlstate == "PD001"
                continue
            answer = bob.execute(question).fetchone()[0]
            role += rho
            root += rho if both else 0
            if answer > 0:  # the next choice follows the answers
                choice.random()
    assert refused
    rows = shop.sql(
        "select account, epsilon_spent, epsilon_limit, rho_spent from dp.budgets"
        " where role = 'bob' or relation = 'public.client' order by account"
    )
    for (account, spent, limit, rho_spent), expected in zip(rows, (root, role), strict=True):
        assert spent <= limit, account
        assert abs(Fraction(rho_spent) - expected) < tolerance


def test_a_pure_and_an_approximate_question_share_one_account(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 10, 1e-7, composition => 'zcdp')")
    join = "select dp_count(*) from client join purchase on p_client = c_region where p_id > {}"
    with shop.connect(user="bob") as bob:
        bob.execute("set dp.epsilon = 0.1")
        bob.execute("set dp.delta = 2e-8")
        bob.execute(join.format(1))
        bob.execute(join.format(2))
        with pytest.raises(psycopg.Error) as caught:  # 6e-8 is more than half of 1e-7
            bob.execute(join.format(3))
        assert caught.value.sqlstate == "PD001"
        bob.execute(SMALL.format(3))
        row = bob.execute("select delta_spent, delta_remaining from dp.budgets").fetchone()
        assert [float(amount) for amount in row] == [4e-8, 1e-8]
        rows = bob.execute("select rho, rho_delta, delta from dp.ledger order by id").fetchall()
    assert [row[1] == row[2] for row in rows] == [True] * 3
    assert rows[2][2] == 0


def test_views_show_rho_to_twelve_digits_and_the_ledger_keeps_all(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 2, 1e-6, composition => 'zcdp')")
        kept = {"limit": shop.sql("select max(rho_limit) from dp.role_budget")[0][0]}
    with shop.connect(user="bob") as bob:
        bob.execute("set dp.epsilon = 0.123457")
        bob.execute(SMALL.format(1))
        kept["spent"] = shop.sql("select rho from dp.spend")[0][0]
        names = "rho_limit, rho_spent, rho_remaining"
        limit, spent, left = bob.execute(f"select {names} from dp.budgets").fetchone()
        (priced,) = bob.execute("select rho from dp.ledger").fetchone()
    assert max(len(value.as_tuple().digits) for value in kept.values()) > 20
    kept["left"] = kept["limit"] - kept["spent"]
    assert priced == spent
    for shown, exact in zip((limit, spent, left), ("limit", "spent", "left"), strict=True):
        assert len(shown.as_tuple().digits) <= 12
        assert abs(shown / kept[exact] - 1) <= 5e-12
    sizes = "select x, dp.shown_amount(x::numeric) from unnest(array['0','1e-30','123456789012345','-2.5','0.1']) x"
    shown = {x: str(value) for x, value in shop.sql(sizes)}
    assert float(shown.pop("1e-30")) == 1e-30
    assert shown == {"0": "0", "123456789012345": "123456789012000", "-2.5": "-2.5", "0.1": "0.1"}


def test_a_recorded_loss_counts_in_rho(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 2, 1e-6, composition => 'zcdp')")
        owner.execute("select dp.record_loss('bob', 'client', 0.2, 1e-9, 'on paper')")
        owner.execute("select dp.record_loss('bob', null, 5, 0, 'many small ones', rho => 0.03)")
        owner.execute("select dp.record_loss('bob', null, 30, 0, 'one large one')")
    rows = shop.sql("select rho, rho_delta from dp.loss order by id")
    assert [tuple(map(float, row)) for row in rows] == [(0.02, 1e-9), (0.03, 0), (30, 0)]
    with shop.connect(user="bob") as bob:
        (spent,) = bob.execute("select rho_spent from dp.budgets").fetchone()
        assert float(spent) == 30.05
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(SMALL.format(1))
    assert caught.value.sqlstate == "PD001"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("dp.grant_budget('bob', 1, 1e-6, 'renyi')", "basic or zcdp"),
        ("dp.set_root_cap('client', 1, 1e-6, 'ZCDP')", "basic or zcdp"),
        ("dp.grant_budget('bob', 1, 0, 'zcdp')", "needs a delta"),
        ("dp.set_root_cap('client', 1, 0, 'zcdp')", "needs a delta"),
        ("dp.record_loss('bob', null, 1, 0, 'x', rho => -1)", "at least 0"),
    ],
)
def test_meaningless_compositions_are_refused(shop: Any, call: str, complaint: str) -> None:
    with shop.connect(user="owner1") as owner:
        with pytest.raises(psycopg.Error) as caught:
            owner.execute(f"select {call}")
        assert caught.value.sqlstate == "PD040"
        assert complaint in str(caught.value.diag.message_primary)


def test_limits_follow_whatever_changes_the_cap(shop: Any) -> None:
    limit = "select rho_limit, delta_reserved from dp.root where relation_name = 'client'"
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.set_root_cap('client', 2, 1e-6, 'zcdp')")
        first = shop.sql(limit)[0]
        owner.execute("select dp.protect('client', epsilon => 4)")
        second = shop.sql(limit)[0]
        owner.execute("select dp.set_root_cap('client', null, 1e-4)")
        third = shop.sql(limit)[0]
        owner.execute("select dp.set_root_cap('client', 2, 1e-6, 'basic')")
    assert 0 < first[0] < second[0]
    assert float(first[1]) == float(second[1]) == 5e-7
    assert (third[0], float(third[1])) == (None, 5e-5)
    assert shop.sql(limit) == [(None, 0)]


def test_dump_and_restore_keep_the_composition(server: Any, shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('alice', 3, 1e-6, 'zcdp')")
        owner.execute("select dp.set_root_cap('client', 2, 1e-6, 'zcdp')")
        owner.execute("select dp.set_answer_lifetime('client', '1 month')")
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.1")
        alice.execute(SMALL.format(1))
    kept = (
        "select role, relation, composition, epsilon_limit, epsilon_spent, rho_limit, rho_spent,"
        " delta_reserved from dp.budgets order by 1, 2",
        "select answer_lifetime from dp.root order by id",
        "select rho, rho_delta from dp.ledger order by id",
    )
    before = [shop.sql(query) for query in kept]
    copy = dump_and_restore(server, shop, "c")
    try:
        assert [copy.sql(query) for query in kept] == before
        assert {row[2] for row in before[0]} == {"basic", "zcdp"}
    finally:
        server.drop_database(copy)


def test_a_replaced_grant_says_what_was_before_and_only_to_its_caller(shop: Any) -> None:
    told: dict[str, list[str]] = {"owner1": [], "bob": []}
    connections = {user: shop.connect(user=user) for user in told}
    for user, connection in connections.items():
        connection.add_notice_handler(
            lambda d, heard=told[user]: heard.append(
                f"{d.message_primary}|{d.message_detail}|{d.message_hint}"
            )
        )
    owner = connections["owner1"]
    owner.execute("select dp.grant_budget('bob', 3, 1e-6)")
    told["owner1"].clear()
    owner.execute("select dp.grant_budget('bob', 5, 1e-5, composition => 'zcdp')")
    (notice,) = told["owner1"]
    assert notice.startswith("the budget of role bob was replaced|")
    assert "Before: epsilon = 3, delta = 0.000001, basic" in notice
    assert "now: epsilon = 5, delta = 0.00001, zcdp composition (rho = " in notice
    assert "under the new composition" in notice
    owner.execute("select dp.grant_budget('bob', 6)")
    assert "now: epsilon = 6, delta = 0.000001, zcdp" in told["owner1"][1]
    connections["bob"].execute("select * from dp.budgets")
    assert not told["bob"]


def test_changing_the_composition_after_answers_says_that_the_deltas_add_up(shop: Any) -> None:
    heard: list[str] = []
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        owner.add_notice_handler(lambda d: heard.append(f"{d.message_primary}|{d.message_detail}"))
        owner.execute("select dp.grant_budget('alice', 900, 3e-6, 'zcdp')")
        owner.execute("select dp.grant_budget('alice', 900, 1e-6, 'basic')")
        owner.execute("select dp.set_root_cap('client', 900, 1e-6, 'zcdp')")
        owner.execute("select dp.set_root_cap('client', 900, 1e-6, 'basic')")
        assert not any("deltas add up" in text for text in heard)
        alice.execute("select dp_count(*) from client")
        heard.clear()
        owner.execute("select dp.grant_budget('alice', 900, 2e-6)")
        owner.execute("select dp.set_root_cap('client', 900, 2e-6)")
        assert not any("deltas add up" in text for text in heard)
        heard.clear()
        owner.execute("select dp.grant_budget('alice', 900, 3e-6, 'zcdp')")
        owner.execute("select dp.set_root_cap('client', 900, 5e-6, 'zcdp')")
        owner.execute("select dp.set_root_cap('purchase', 900, 5e-6, 'zcdp')")
    role, relation = heard
    assert role.startswith("the budget of role alice was replaced|")
    assert role.endswith("the deltas add up: the promise is epsilon with delta = 0.000005.")
    assert relation.startswith("the composition of relation public.client was changed|")
    assert relation.endswith("the deltas add up: the promise is epsilon with delta = 0.000007.")


def test_budgets_say_what_each_row_is_about(shop: Any) -> None:
    shop.sql("create role client_owner")
    try:
        rows = shop.sql("select account, role::text, relation from dp.budgets order by 1, 2, 3")
    finally:
        shop.sql("drop role client_owner")
    assert rows == [
        ("relation", None, "public.client"),
        ("relation", None, "public.purchase"),
        ("role", "alice", None),
    ]
