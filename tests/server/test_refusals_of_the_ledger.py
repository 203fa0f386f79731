"""What a ledger that cannot charge says: all words, and that nothing was charged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare
from tests.server.refusals import Refusal, check
from tests.server.waiting import connected, wait_until

ASK = "select dp_count(*) from client"
CLIENTS_OF_ANOTHER_KIND = "select dp_count(*) from client where c_id > 100"
RELEASE = "select dp.release('r', 'select c_kind, dp_count(*) from client group by c_kind')"


def owner_does(shop: Any, *statements: str) -> None:
    with shop.connect(user="owner1") as owner:
        for statement in statements:
            owner.execute(statement)


@pytest.mark.parametrize(
    ("budget", "setting", "cost", "left"),
    [
        ("1.5, 1e-6", "dp.epsilon = 1", "1 and delta = 0", "0.5 and delta = 0.000001"),
        ("1.5, 1e-6", "dp.epsilon = 0.501", "0.501 and delta = 0", "0.5 and delta = 0.000001"),
        ("1, 1e-6", "dp.epsilon = 0.25", "0.25 and delta = 0", "0 and delta = 0.000001"),
    ],
)
def test_a_role_whose_epsilon_is_spent(
    shop: Any, budget: str, setting: str, cost: str, left: str
) -> None:
    owner_does(shop, f"select dp.grant_budget('bob', {budget})")
    admin, bob = shop.connect(), shop.connect(user="bob")
    bob.execute(ASK)
    bob.execute("set " + setting)
    refusal = Refusal(
        "PD001",
        'privacy budget of role "bob" exceeded',
        f"The question costs epsilon = {cost}; left are epsilon = {left}.",
        "Ask the owner of the data for more budget; answers that are stored stay free."
        if left.startswith("0 ")
        else "Ask with at most dp.epsilon = 0.5, or ask the owner for more budget; answers that are stored stay free.",
        CLIENTS_OF_ANOTHER_KIND,
    )
    check(bob, admin, refusal)
    bob.execute("reset dp.epsilon")
    assert bob.execute(ASK.upper()).fetchone(), "what was paid for is still answered"


def test_a_role_whose_delta_is_spent(shop: Any) -> None:
    owner_does(shop, "select dp.grant_budget('bob', 100, 1.5e-8)")
    admin, bob = shop.connect(), shop.connect(user="bob")
    wide = "select dp_count(*) from client a join client b on a.c_region = b.c_region"
    bob.execute(wide)
    refusal = Refusal(
        "PD001",
        'privacy budget of role "bob" exceeded',
        "The question costs epsilon = 1 and delta = 1e-8; left are epsilon = 99 and delta = 5e-9.",
        "Ask with a smaller dp.epsilon or dp.delta, or ask the owner for more budget; answers that are stored stay free.",
        wide + " and a.c_id > 3",
    )
    check(bob, admin, refusal)


def test_a_relation_whose_cap_is_reached_tells_nothing_of_other_roles(shop: Any) -> None:
    owner_does(shop, "select dp.grant_budget('bob', 100)", "select dp.set_root_cap('client', 1.5)")
    shop.connect(user="alice").execute(ASK)
    refusal = Refusal(
        "PD001",
        "privacy budget of relation public.client exceeded",
        "The question costs epsilon = 1 and delta = 0, more than its owner's cap leaves for all roles.",
        "Ask with a smaller dp.epsilon or dp.delta (0 where the question allows it), or ask"
        " the owner for SELECT dp.set_root_cap('public.client', epsilon, delta).",
        CLIENTS_OF_ANOTHER_KIND,
    )
    check(shop.connect(user="bob"), shop.connect(), refusal)
    check(shop.connect(user="alice"), shop.connect(), refusal)


def test_a_relation_that_is_declared_in_an_open_transaction(shop: Any) -> None:
    shop.sql("grant create on schema public to owner1; create table old (a int)")
    shop.sql("alter table old owner to owner1")
    owner_does(shop, "select dp.grant_budget('owner1', 100)")
    first = "If this transaction made or declared it, COMMIT first. "
    made = Refusal(
        "PD014",
        'relation "public.young" does not exist',
        None,
        first + "Correct the statement; nothing was spent.",
        "select dp_count(*) from young",
        before=("create table young (a int)", "select dp.protect('young')"),
    )
    declared = Refusal(
        "PD012",
        'relation "public.old" is neither protected nor public',
        None,
        first + "Its owner can declare it: SELECT dp.protect('public.old'),"
        " dp.declare_public('public.old'), dp.link('public.old', parent, columns) if its rows"
        " belong to privacy units of another relation, or, if it is a view,"
        " dp.declare_view('public.old'). A synthetic copy needs none: query it without dp_count.",
        "select dp_count(*) from old",
        position="old",
        before=("select dp.protect('old')",),
    )
    for refusal in (made, declared):
        check(shop.connect(user="owner1"), shop.connect(), refusal)
    # without a change of the transaction, the same text is refused without that hint
    plain = replace(declared, hint=str(declared.hint).removeprefix(first), before=())
    check(shop.connect(user="owner1"), shop.connect(), plain)


RESTORED = Refusal(
    "PD051",
    "the privacy ledger was restored or promoted and nobody acknowledged it",
    "Spends that were made since the backup may be missing from it.",
    "The owner of the data must run SELECT dp.acknowledge_restore('<what happened>').",
    CLIENTS_OF_ANOTHER_KIND,
)


def test_a_database_that_was_copied_from_another(server: Any, shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        told = alice.execute(ASK).fetchone()
    spent = shop.sql("select role, epsilon_spent from dp.budgets where role = 'alice'")
    shop.close()
    copy = server.create_database(template=shop.name, acknowledge=False)
    try:
        admin, alice, owner = copy.connect(), copy.connect(user="alice"), copy.connect("owner1")
        check(alice, admin, RESTORED)
        assert owner.execute("select status, advice from dp.ledger_status").fetchone() == (
            "restored",
            "Spends since the backup are missing. SELECT dp.acknowledge_restore('<what happened>');"
            " then dp.record_loss(...) for those that are known.",
        )
        grant = Refusal(
            "PD051",
            "the privacy ledger was restored or promoted and nobody acknowledged it",
            "Spends that were made since the backup are missing from it.",
            "SELECT dp.acknowledge_restore('<what happened>'); then dp.record_loss for what is"
            " known to be missing.",
            "select dp.grant_budget('alice', 2000)",
        )
        check(owner, admin, grant)
        owner.execute("select dp.acknowledge_restore('a copy for tests')")
        assert owner.execute("select status, advice from dp.ledger_status").fetchone() == (
            "ok",
            None,
        )
        assert copy.sql("select role, epsilon_spent from dp.budgets where role = 'alice'") == spent
        alice.execute(ASK)
        assert copy.sql("select sum(epsilon) from dp.ledger")[0][0] >= 1
        assert told is not None
    finally:
        server.drop_database(copy)


#: Both are charged by the service session.
BOTH = pytest.mark.parametrize("sql", [CLIENTS_OF_ANOTHER_KIND, RELEASE])


def unavailable(detail: str, hint: str, sql: str, *, service: bool) -> Refusal:
    of = "service session of this session" if service else "privacy ledger"
    return Refusal("PD050", f"the {of} is not available", detail, hint, sql)


@BOTH
def test_a_ledger_whose_statement_fails(shop: Any, sql: str) -> None:
    shop.sql("revoke insert on dp.spend from dp_ledger")
    refusal = unavailable(
        "The ledger's statement failed with SQLSTATE 42501.",
        "Ask again later.",
        sql,
        service=False,
    )
    check(shop.connect(user="alice"), shop.connect(), refusal)


@BOTH
def test_a_ledger_that_is_cut_off_while_it_charges(shop: Any, sql: str) -> None:
    admin, blocker = shop.connect(), shop.connect(autocommit=False)
    alice = shop.connect(user="alice")
    alice.execute(ASK)
    blocker.execute("lock table dp.role_total in exclusive mode")

    def cut() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            cut_off = admin.execute(
                "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
                " where application_name = 'dpsql_service' and datname = current_database()"
                " and wait_event_type = 'Lock'"
            ).fetchall()
            if cut_off:
                return
            time.sleep(0.01)

    refusal = unavailable(
        "It ended while the question was computed; the charge may have been recorded.",
        "Ask again. SELECT * FROM dp.ledger shows what was charged.",
        sql,
        service=True,
    )
    thread = threading.Thread(target=cut)
    thread.start()
    try:
        check(alice, shop.connect(), refusal)
    finally:
        thread.join()
        blocker.rollback()
    assert alice.execute(refusal.sql).fetchone(), "and it goes on afterwards"


@pytest.fixture(scope="module")
def small(installation: None) -> Iterator[Any]:
    """A cluster with few connections, to use them up and to break its configuration."""
    from tests.conftest import start_server

    server = start_server(max_connections="12", superuser_reserved_connections="5")
    database = declare(server.create_database())
    yield database
    database.close()
    server.remove()


def cannot_connect(said: str, sql: str) -> Refusal:
    return unavailable(
        f"Connecting failed: {said}.",
        "Ask again later; if it stays so, the administrator must look at max_connections and at"
        " the authentication of the role dp_executor.",
        sql,
        service=True,
    )


@BOTH
def test_no_connection_is_left_for_the_ledger(small: Any, sql: str) -> None:
    """Who was refused for a connection that has not quite ended tries again, and holds his own."""
    small.close()
    admin, alice = small.connect(), connected(small, "alice")
    held = [connected(small, "bob") for _ in range(5)]
    with pytest.raises(psycopg.OperationalError):
        small.connect(user="bob")
    said = "remaining connection slots are reserved for non-replication superuser connections"
    check(alice, admin, cannot_connect(said, sql))
    for connection in held:
        connection.close()
    wait_until(lambda: len(admin.execute("select from pg_stat_activity where usename = 'bob'").fetchall()) == 0)  # fmt: skip
    assert alice.execute(sql).fetchone()
    if sql == RELEASE:
        alice.execute("select dp.drop_release('r')")


@BOTH
def test_the_role_of_the_ledger_may_not_connect(small: Any, sql: str) -> None:
    hba = small.cluster.data / "pg_hba.conf"
    before = hba.read_text()
    small.close()
    try:
        hba.write_text("local all dp_executor reject\n" + before)
        small.sql("select pg_reload_conf()")
        wait_until(lambda: small.sql("select database from pg_hba_file_rules order by line_number limit 1") == [(["all"],)])  # fmt: skip
        said = (
            'pg_hba.conf rejects connection for host "[local]", user "dp_executor",'
            f' database "{small.name}", no encryption'
        )
        check(small.connect(user="alice"), small.connect(), cannot_connect(said, sql))
    finally:
        hba.write_text(before)
        small.sql("select pg_reload_conf()")


def test_a_server_without_the_library(small: Any) -> None:
    """The settings are placeholders then, and the aggregate is not intercepted."""
    small.close()
    small.cluster.stop()
    small.cluster.settings["shared_preload_libraries"] = "''"
    try:
        small.cluster.start()
        admin = small.connect()
        for sql in (ASK, "select dp_count(c_kind) from region, client", "select dp_count(1)"):
            refusal = Refusal(
                "PD060",
                "a private aggregate was not intercepted",
                "The query reached the executor without passing dpsql.",
                "Add dpsql to shared_preload_libraries and restart the server, or use"
                " SELECT * FROM dp.query($$ ... $$).",
                sql,
            )
            with small.connect() as reader:
                check(reader, admin, refusal)
        # What nobody checked when it was set is checked when dp.query loads the library: the
        # default counts, and the analyst is warned.
        for setting, value in (("epsilon", "1000"), ("epsilon", "NaN"), ("method", "guess")):
            warnings: list[str] = []
            with small.connect(user="alice") as alice:
                alice.add_notice_handler(lambda d, w=warnings: w.append(str(d.message_primary)))
                alice.execute(f"set dp.{setting} = '{value}'")
                alice.execute("set dp.fresh = on")
                assert alice.execute(f"select dp.query('{ASK}')").fetchone()
                assert alice.execute(f"select current_setting('dp.{setting}')").fetchone() in (
                    ("1",),
                    ("auto",),
                )
            assert f'invalid value for parameter "dp.{setting}": "{value}"' in warnings[0] or (
                f'invalid value for parameter "dp.{setting}": {value}' in warnings[0]
            )
            (charged,) = admin.execute("select epsilon from dp.spend order by id desc").fetchone()
            assert charged == 1
    finally:
        small.close()
        small.cluster.stop()
        del small.cluster.settings["shared_preload_libraries"]
        small.cluster.start()


@pytest.mark.parametrize("name", ["stranger", 'Frau "Ü"'])
def test_a_role_that_nobody_knows(shop: Any, name: str) -> None:
    """Not "permission denied for function run": what to do."""
    quoted = '"' + name.replace('"', '""') + '"'
    shop.sql(f"create role {quoted} login")
    try:
        with shop.connect(user=name) as stranger:
            with pytest.raises(psycopg.Error) as caught:
                stranger.execute(ASK)
            stranger.rollback()
            written = name if name.isalpha() else quoted
            assert caught.value.sqlstate == "PD002"
            diag = caught.value.diag
            assert diag.message_primary == f'role "{name}" has no privacy budget in this database'
            assert diag.message_hint == (
                f"Ask the owner of the data for SELECT dp.grant_budget('{written}', epsilon => ...)."
            )
            assert diag.statement_position == str(ASK.index("dp_count") + 1)
    finally:
        shop.sql(f"drop role {quoted}")
