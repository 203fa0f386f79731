"""Stored answers: how long they live, who sees them, what purging them costs (nothing back)."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

COUNT = "select dp_count(*) from client"
JOIN = "select dp_count(*) from client join purchase on p_client = c_region"


def spent(shop: Any, role: str = "alice") -> float:
    rows = shop.sql("select coalesce(sum(epsilon), 0) from dp.ledger where role = %s", role)
    return float(rows[0][0])


def lost(shop: Any, relation: str = "public.client") -> float:
    rows = shop.sql("select epsilon_spent from dp.budgets where relation = %s", relation)
    return float(rows[0][0])


def hear(connection: Any) -> list[str]:
    heard: list[str] = []
    connection.add_notice_handler(lambda d: heard.append(f"{d.severity}: {d.message_primary}"))
    return heard


def pass_time(shop: Any, interval: str) -> None:
    """Make all stored answers older."""
    shop.sql(f"update dp.answer set taken_at = taken_at - interval '{interval}'")


def test_an_answer_lives_as_long_as_its_owner_says(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        owner.execute("select dp.set_answer_lifetime('client', '24 hours')")
        pass_time(shop, "23 hours")
        alice.execute(COUNT)
        assert spent(shop) == 1
        pass_time(shop, "1 hour")
        alice.execute(COUNT)
        assert spent(shop) == 2
        alice.execute(COUNT)
        assert spent(shop) == 2
        owner.execute("select dp.set_answer_lifetime('client', null)")
        pass_time(shop, "100 years")
        alice.execute(COUNT)
        assert spent(shop) == 2


def test_the_shortest_lifetime_of_the_relations_counts(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(JOIN)
        alice.execute(COUNT)
        owner.execute("select dp.set_answer_lifetime('client', '1 year')")
        owner.execute("select dp.set_answer_lifetime('purchase', '1 hour')")
        pass_time(shop, "2 hours")
        alice.execute(COUNT)
        assert spent(shop) == 2
        alice.execute(JOIN)
        assert spent(shop) == 3


def test_the_answer_tells_when_it_was_taken(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        heard = hear(alice)
        alice.execute("set timezone = 'UTC'")  # where all days have 24 hours
        owner.execute("select dp.set_answer_lifetime('client', '30 days')")
        alice.execute(COUNT)
        assert not heard
        alice.execute("set client_min_messages = warning")
        alice.execute(COUNT)
        assert not heard
        alice.execute("reset client_min_messages")
        alice.execute(COUNT)
        alice.execute(COUNT + " as c where true")
        taken, expires, at = alice.execute(
            "select to_char(taken_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),"
            " expires_at - taken_at, at <= taken_at from dp.ledger"
        ).fetchone()
        assert heard == [f"NOTICE: stored answer, taken at {taken} UTC"] * 2
        assert (expires.days, at) == (30, True)
        shop.sql("insert into client values (5000, 1, null, null)")
        pass_time(shop, "1 day")
        alice.execute(COUNT)
        assert heard[2] != heard[1]


def test_a_change_of_policy_ends_an_answer(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        for statement in (
            "select dp.set_domain('client', 'c_kind', array['a', 'b'])",
            "select dp.drop_domain('client', 'c_kind')",
            "select dp.unprotect('client'), dp.protect('client')",
        ):
            before = spent(shop)
            alice.execute(COUNT)
            assert spent(shop) == before + 1
            owner.execute(statement)
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
    assert spent(shop) == 4


def test_purge_deletes_what_expired_and_gives_nothing_back(shop: Any) -> None:
    stored = "select count(*), count(payload) from dp.answer"
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        alice.execute(JOIN)
        assert owner.execute("select dp.purge_answers()").fetchone() == (0,)
        owner.execute("select dp.set_answer_lifetime('purchase', '1 hour')")
        pass_time(shop, "2 hours")
        status = owner.execute("select stored_answers, expired_answers from dp.ledger_status")
        assert status.fetchone() == (2, 1)
        budgets = shop.sql("select * from dp.budgets order by 1, 2, 3")
        assert owner.execute("select dp.purge_answers()").fetchone() == (1,)
        assert shop.sql(stored) == [(1, 1)]
        assert shop.sql("select count(*) from dp.answer_text") == [(1,)]
        assert shop.sql("select * from dp.budgets order by 1, 2, 3") == budgets
        assert shop.sql("select count(*) from dp.spend") == [(2,)]
        rows = alice.execute("select taken_at is null from dp.ledger order by id").fetchall()
        assert rows == [(False,), (True,)]
        alice.execute(COUNT)
        assert spent(shop) == 2
        alice.execute(JOIN)
        assert spent(shop) == 3


def test_purge_deletes_what_a_change_of_policy_ended(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        owner.execute("select dp.set_domain('client', 'c_kind', array['a'])")
        alice.execute(COUNT)
        assert shop.sql("select count(*) from dp.answer") == [(2,)]
        assert owner.execute("select dp.purge_answers()").fetchone() == (1,)
        alice.execute(COUNT)
    assert spent(shop) == 2


def test_purge_goes_through_more_answers_than_one_call_looks_at(shop: Any) -> None:
    """Analysts decide how many answers there are; one call of the ledger must end in time."""
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        alice.execute(JOIN)
        shop.sql(
            "insert into dp.answer select (jsonb_populate_record(a, jsonb_build_object("
            "'key', '\\x' || lpad(to_hex(i), 4, '0')))).* from dp.answer as a, generate_series(1, 130) as i"
            " where a.key = (select key from dp.answer order by taken_at limit 1)"
        )
        assert shop.sql("select count(*) from dp.answer") == [(132,)]
        assert owner.execute("select dp.purge_answers()").fetchone() == (0,)
        owner.execute("select dp.set_domain('client', 'c_kind', array['a'])")
        assert owner.execute("select expired_answers from dp.ledger_status").fetchone() == (132,)
        assert owner.execute("select dp.purge_answers()").fetchone() == (132,)
        assert shop.sql("select count(*) from dp.answer") == [(0,)]


def test_purge_in_an_open_transaction_holds_nothing(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.set_answer_lifetime('client', '1 hour')")
        pass_time(shop, "2 hours")
        owner.execute("begin")
        assert owner.execute("select dp.purge_answers()").fetchone() == (1,)
        with shop.connect(user="alice") as alice:
            # what had to wait for the owner would be refused after the ledger's lock_timeout
            assert alice.execute(COUNT).fetchone() is not None
        owner.execute("rollback")
    assert shop.sql("select count(*) from dp.answer where payload is not null") == [(1,)]


@pytest.mark.parametrize(
    "call",
    ["dp.purge_answers()", "dp.set_answer_lifetime('client', '1 day')"],
)
def test_analysts_neither_purge_nor_set_lifetimes(shop: Any, call: str) -> None:
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(f"select {call}")
    assert caught.value.sqlstate == "42501"


@pytest.mark.parametrize("lifetime", ["'0'", "'-1 day'"])
def test_a_lifetime_must_be_positive(shop: Any, lifetime: str) -> None:
    with shop.connect(user="owner1") as owner, pytest.raises(psycopg.Error) as caught:
        owner.execute(f"select dp.set_answer_lifetime('client', {lifetime})")
    assert caught.value.sqlstate == "PD040"
    assert "greater than 0" in str(caught.value.diag.message_primary)


def test_a_stored_answer_that_cannot_be_read_is_not_called_charged(shop: Any) -> None:
    """A failure after a hit: nothing was charged to the role that had paid before."""
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 10)")
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        shop.sql("update dp.answer set payload = '{'")
        for _ in range(2):
            with pytest.raises(psycopg.Error) as caught:
                alice.execute(COUNT)
            assert caught.value.sqlstate == "PD901"
            assert "Nothing was charged" in str(caught.value.diag.message_hint)
    assert spent(shop) == 1
    with shop.connect(user="bob") as bob:
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(COUNT)
        assert caught.value.sqlstate == "PD900"
        assert "charged" in str(caught.value.diag.message_hint)
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(COUNT)
        assert caught.value.sqlstate == "PD901"
    assert spent(shop, "bob") == 1
    assert lost(shop) == 1


def test_waiting_askers_get_the_one_answer(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', 10)")
    heard: dict[str, Any] = {}
    barrier = threading.Barrier(2)

    def ask(user: str) -> None:
        with shop.connect(user=user) as connection:
            barrier.wait()
            heard[user] = connection.execute(JOIN).fetchone()[0]

    threads = [threading.Thread(target=ask, args=(user,)) for user in ("alice", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert heard["alice"] == heard["bob"]
    assert lost(shop) == 1
    assert (spent(shop), spent(shop, "bob")) == (1, 1)


def test_declarations_that_change_nothing_keep_stored_answers(shop: Any) -> None:
    """A script that declares everything every night must not make analysts pay again."""
    text = "select c_kind, dp_count(*) from client group by c_kind"
    with shop.connect(user="alice") as alice, shop.connect(user="owner1") as owner:
        first = alice.execute(text).fetchall()
        owner.execute("select dp.protect('client'), dp.protect('purchase')")
        owner.execute("select dp.declare_public('region')")
        owner.execute("select dp.set_domain('client', 'c_kind', array['a', 'b', 'c'])")
        assert alice.execute(text).fetchall() == first
        assert owner.execute("select spends from dp.budgets where role = 'alice'").fetchone() == (
            1,
        )
        owner.execute("select dp.set_domain('client', 'c_kind', array['a', 'b'])")
        alice.execute(text)
        assert owner.execute("select spends from dp.budgets where role = 'alice'").fetchone() == (
            2,
        )


def test_an_account_without_a_limit_has_no_remainder(shop: Any) -> None:
    with shop.connect(user="owner1") as owner:
        rows = owner.execute(
            "select relation, epsilon_limit, epsilon_remaining, rho_remaining from dp.budgets"
            " where account = 'relation' order by relation"
        ).fetchall()
    assert [row[1:] for row in rows] == [(None, None, None)] * 2


def test_what_another_role_asks_in_the_same_words_is_no_question_of_mine(shop: Any) -> None:
    """Groups of public relations come and go: each role's text finds what that role paid for."""
    sql = (
        "select kind, dp_count(*) from client join kinds on c_kind = kind group by kind order by 1"
    )
    shop.sql("create table kinds (kind text primary key); insert into kinds values ('a')")
    shop.sql("select dp.declare_public('kinds'); grant select on kinds to alice, bob")
    shop.sql("select dp.grant_budget('bob', 100)")
    with shop.connect(user="alice") as alice, shop.connect(user="bob") as bob:
        first = alice.execute(sql).fetchall()
        shop.sql("insert into kinds values ('b')")
        assert alice.execute(sql).fetchall() == first
        assert len(bob.execute(sql).fetchall()) == 2
        assert (spent(shop), spent(shop, "bob")) == (1, 1)
        assert alice.execute(sql).fetchall() == first
        assert (spent(shop), spent(shop, "bob")) == (1, 1)


def test_other_words_for_a_stored_answer_take_little_room(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        for number in range(70):
            alice.execute(f"select dp_count(*) as c{number} from client")
    assert shop.sql("select count(*) from dp.answer_text") == [(64,)]
    assert spent(shop) == 1
