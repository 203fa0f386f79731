"""A standby charges nothing: it shows what was paid for, and refuses the rest with a reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.server.asking import state
from tests.server.replicating import PAID, Primary, begin, spent
from tests.server.waiting import wait_until

OTHER_WORDS = "select dp_count(*) as n from public.client as c"
RELEASED = "select c_kind, dp_count(*) from client group by c_kind"
NEW = "select dp_count(*) from client where c_id > 150"
BUSY = (
    "select 1 from pg_stat_activity where usename = 'dp_executor' and state <> 'idle'"
    " and backend_type = 'client backend'"
)


@pytest.fixture(scope="module")
def primary(installation: None) -> Iterator[Primary]:
    primary = begin(wal_level="logical")
    primary.shop.sql("select dp.grant_budget('bob', 10)", user="owner1")
    primary.shop.sql("create role reader_of_standby login; create schema copy authorization alice")
    primary.shop.sql(
        f"select dp.release('kinds', $$ {RELEASED} $$, epsilon => 1, delta => 1e-9)", user="alice"
    )
    yield primary
    primary.remove()


@pytest.fixture(scope="module")
def standby(primary: Primary) -> Iterator[Database]:
    cluster = primary.back_up("reading", "-R")
    cluster.start()
    standby = Database(cluster, primary.shop.name)
    primary.wait_for(standby)
    yield standby
    standby.close()
    cluster.stop("immediate")


def refused(database: Database, statement: str, user: str = "alice") -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        database.sql(statement, user=user)
    return caught.value


@pytest.mark.parametrize("question", [PAID, OTHER_WORDS, f"select * from dp.query($$ {PAID} $$)"])
def test_what_was_paid_for_is_shown(primary: Primary, standby: Database, question: str) -> None:
    before = spent(primary.shop)
    stored = primary.shop.sql(PAID, user="alice")
    shown = standby.sql(question, user="alice")
    assert [str(value) for row in shown for value in row][-1].find(str(stored[0][0])) >= 0
    assert spent(primary.shop) == before


def test_releases_are_read_and_answer_questions(primary: Primary, standby: Database) -> None:
    table = "select * from dpv.kinds order by 1 nulls last"
    assert standby.sql(table, user="alice") == primary.shop.sql(table, user="alice")
    assert standby.sql(RELEASED + " order by 1", user="alice") == primary.shop.sql(
        RELEASED + " order by 1", user="alice"
    )


@pytest.mark.parametrize(
    ("user", "statement"),
    [
        ("alice", NEW),
        ("alice", "set dp.fresh = on; " + PAID),
        ("alice", "set dp.epsilon = 0.5; " + PAID),
        # an answer is charged to each role that sees it
        ("bob", PAID),
        ("alice", "select dp.release('more', $$ select c_region, dp_count(*) from client group by 1 $$, epsilon => 1)"),
        ("alice", "select dp.refresh_release('kinds')"),
    ],
)  # fmt: skip
def test_what_must_be_charged_is_refused_with_a_reason(
    primary: Primary, standby: Database, user: str, statement: str
) -> None:
    before = primary.shop.sql("select count(*) from dp.spend")
    error = refused(standby, statement, user)
    assert error.sqlstate == "PD050", error
    assert "standby" in error.diag.message_detail
    assert "primary" in error.diag.message_hint
    assert primary.shop.sql("select count(*) from dp.spend") == before


@pytest.mark.parametrize(
    "statement",
    [
        "select dp.protect('region')",
        "select dp.grant_budget('bob', 100)",
        "select dp.record_loss('bob', 'client', 1, 0, 'x')",
        "select dp.acknowledge_restore('I want more')",
        "select dp.collect_statistics('client')",
        "select dp.lockdown(array['client']::regclass[])",
    ],
)
def test_nothing_is_declared_on_a_standby(standby: Database, statement: str) -> None:
    assert refused(standby, statement, "owner1").sqlstate == "25006"


def test_a_synthesis_is_refused_before_it_measures(standby: Database) -> None:
    call = "call dp.synthesize('copy', array['client']::regclass[], epsilon => 1, placeholders => true)"
    assert refused(standby, call).sqlstate == "PD050"


def test_what_only_looks_works(primary: Primary, standby: Database) -> None:
    budgets = "select role, epsilon_spent, epsilon_remaining from dp.budgets order by 1"
    assert standby.sql(budgets, user="alice") == primary.shop.sql(budgets, user="alice")
    explain = f"select item, value from dp.explain($$ {NEW} $$)"
    assert standby.sql(explain, user="alice")
    assert standby.sql("select status from dp.ledger_status", user="owner1") == [("standby",)]
    for statement in ("select * from client", "select count(*) from purchase"):
        assert refused(standby, statement).sqlstate == "42501"


@pytest.fixture
def subscriber(primary: Primary) -> Iterator[Database]:
    """A database with dpsql that is sent the clients, and what is added to the ledger's identity."""
    shop = primary.shop
    subscriber = primary.server.create_database()
    subscriber.sql(
        "create table client (c_id int primary key, c_region int not null, c_born date, c_kind text);"
        "alter table client owner to owner1; select dp.grant_budget('alice', 5)"
    )
    for name, table in (("rows", "client"), ("books", "dp.ledger_identity")):
        shop.sql(f"create publication {name} for table {table}")
        shop.sql(f"select pg_create_logical_replication_slot('{name}', 'pgoutput')")
    subscriber.sql(
        f"create subscription rows connection '{shop.conninfo()}' publication rows"
        " with (create_slot = false)"
    )
    wait_until(lambda: subscriber.sql("select count(*) from client") == [(200,)])
    yield subscriber
    for (name,) in subscriber.sql("select subname from pg_subscription where subdbid = (select oid from pg_database where datname = current_database())"):  # fmt: skip
        subscriber.sql(f"alter subscription {name} disable")
        subscriber.sql(f"alter subscription {name} set (slot_name = none)")
        subscriber.sql(f"drop subscription {name}")
    primary.server.drop_database(subscriber)
    idle = "select 1 from pg_replication_slots where slot_type = 'logical' and active"
    wait_until(lambda: shop.sql(idle) == [])
    shop.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_type = 'logical'")  # fmt: skip
    for name in ("rows", "books"):
        shop.sql(f"drop publication {name}")


def test_a_subscriber_answers_nothing_by_the_ledger_of_the_publisher(
    primary: Primary, subscriber: Database
) -> None:
    assert refused(subscriber, PAID).sqlstate == "PD012"
    found = primary.shop.sql("select hole, object from dp.check_lockdown() where hole = 'publication'")  # fmt: skip
    assert ("publication", "rows") in found
    subscriber.sql("select dp.protect('client')")
    subscriber.sql(PAID, user="alice")
    subscriber.sql(
        f"create subscription books connection '{primary.shop.conninfo()}' publication books"
        " with (create_slot = false, copy_data = false)"
    )
    # what an administrator of the publisher writes down there arrives here
    row = (
        "insert into dp.ledger_identity (incarnation, system_identifier, timeline, database, note, recorded_by)"
        " select incarnation, system_identifier, timeline, database, 'sent', recorded_by"
        " from dp.ledger_identity order by id desc limit 1"
    )
    for _ in range(5):
        primary.shop.sql(row)
    last = "select note from dp.ledger_identity order by id desc limit 1"
    wait_until(lambda: subscriber.sql(last) == [("sent",)])
    error = refused(subscriber, PAID)
    assert error.sqlstate == "PD051", error
    primary.shop.sql(NEW.replace("150", "149"), user="alice")


def test_a_charge_waits_for_the_synchronous_standby_and_survives_its_promotion(
    primary: Primary,
) -> None:
    cluster = primary.back_up("second", "-R")
    shop = primary.shop
    for role_or_database in ("role dp_executor", "role alice", f"database {shop.name}"):
        # nobody's default weakens the charge
        shop.sql(f"alter {role_or_database} set synchronous_commit = off")
    shop.sql("alter system set synchronous_standby_names = 'second'")
    shop.sql("select pg_reload_conf()")
    standby = Database(cluster, shop.name)
    answers: list[Any] = []
    told: list[str | None] = []

    def ask() -> None:
        answers.append(shop.sql("set dp.fresh = on; " + NEW, user="alice"))

    asking = threading.Thread(target=ask)
    try:
        waits = (
            "select 1 from pg_stat_activity"
            " where usename = 'dp_executor' and wait_event = 'SyncRep'"
        )
        given_up = shop.connect("alice")
        cancelled = threading.Thread(
            target=lambda: told.append(state(given_up, "set dp.fresh = on; " + PAID))
        )
        cancelled.start()
        wait_until(lambda: shop.sql(waits) != [])
        shop.sql("select pg_cancel_backend(%s)", given_up.info.backend_pid)
        cancelled.join(120)
        given_up.close()
        assert told == ["57014"]
        # its charge is on this server alone: nothing is read for it
        last = "select state from dp.spend order by id desc limit 1"
        wait_until(lambda: shop.sql(last) == [("failed",)])
        known = spent(shop)
        asking.start()
        wait_until(lambda: shop.sql(waits) != [])
        # longer than a tick; the answer must not come before the standby has the charge
        asking.join(1)
        assert answers == []
        with pytest.raises(psycopg.Error) as caught:
            shop.sql("set statement_timeout = '1s'; set dp.fresh = on; " + PAID, user="alice")
        assert caught.value.sqlstate == "57014"
        cluster.start()
        asking.join(120)
        assert len(answers) == 1
        # what was given up is charged as well, or is not: never the other way round
        wait_until(lambda: shop.sql(BUSY) == [])
        charged = spent(shop)
        # the answer itself is no part of the promise, and follows a moment later
        wait_until(lambda: standby.sql(last) == [("answered",)])
        assert charged >= known + 1
        primary.server.cluster._as_server(
            *(primary.server.cluster.bin / "pg_ctl", "-D", primary.server.cluster.data),
            *("-m", "immediate", "-w", "stop"),
        )
        assert standby.sql("select pg_promote(true, 60)") == [(True,)]
        assert spent(standby) == charged
        assert refused(standby, NEW).sqlstate == "PD051"
        standby.sql("select dp.acknowledge_restore('the primary burned')", user="owner1")
        assert standby.sql(NEW, user="alice") == answers[0]
        assert spent(standby) == charged
    finally:
        asking.join(1)
        standby.close()
        cluster.stop("immediate")
        primary.server.cluster.start()
        shop.sql("alter system reset synchronous_standby_names")
        shop.sql("select pg_reload_conf()")
        for role_or_database in ("role dp_executor", "role alice", f"database {shop.name}"):
            shop.sql(f"alter {role_or_database} reset synchronous_commit")
