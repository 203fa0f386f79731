"""Tokens are those of the snapshot at each instant of a commit, and are kept again afterwards."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.server.test_catalogue_version import both_tokens, version

pytestmark = pytest.mark.server

SECONDS = 4
SET_UP = """
create table raced (a int primary key, b text not null);
create table beside (a int primary key, b int);
insert into beside values (1, 1), (2, 2);
select dp.protect('raced'), dp.grant_budget('alice', epsilon => 1000000);
select dp.set_failure_limit('raced', 1000);
grant select on raced to bob;
"""
#: Changes of a token whose parts are read through the snapshot alone.
STORAGE = "alter table raced set (fillfactor = {0})"
DOMAIN = "select dp.set_domain('raced', 'b', array['x{0}'])"
#: Nothing follows it in its transaction that would handle its message.
POLICY = "update dp.policy set declared_at = timestamptz 'epoch' + {0} * interval '1 day'"


@pytest.fixture(scope="module")
def raced(make_server: Any) -> Any:
    database = make_server(max_prepared_transactions="10").create_database()
    database.sql(SET_UP)
    return database


@pytest.fixture(scope="module")
def make_server(installation: None) -> Iterator[Any]:
    from tests.conftest import start_server

    servers: list[Any] = []

    def make(**settings: str) -> Any:
        servers.append(start_server(False, **settings))
        return servers[-1]

    yield make
    for server in servers:
        server.remove()


def commit(session: Any, change: str) -> None:
    """Run a change and commit it."""
    session.execute(change)


def commit_prepared(session: Any, change: str) -> None:
    """Commit a change in two phases."""
    session.execute("begin")
    session.execute(change)
    session.execute("prepare transaction 'raced'")
    session.execute("commit prepared 'raced'")


def roll_back(session: Any, change: str) -> None:
    """Run a change, and another that is rolled back."""
    session.execute(f"begin; {change}; savepoint s; drop table raced; rollback to s; commit")


@pytest.mark.parametrize("way", [commit, commit_prepared, roll_back])
@pytest.mark.parametrize("change", [STORAGE, DOMAIN, POLICY], ids=["storage", "domain", "policy"])
def test_a_token_is_that_of_its_snapshot(
    raced: Any, way: Callable[[Any, str], None], change: str
) -> None:
    """One session changes what another reads, as fast as both can."""
    numbers = raced.sql("select array['raced'::regclass::oid]")[0][0]
    end = time.monotonic() + SECONDS
    seen: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []

    def read() -> None:
        with raced.connect(autocommit=True) as session:
            while time.monotonic() < end:
                token, exact = both_tokens(session, numbers)
                seen[token] += 1
                if token != exact:
                    wrong.append((token, exact))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    with raced.connect(autocommit=True) as writer:
        number = 10
        while time.monotonic() < end:
            number = 10 + (number - 9) % 90
            way(writer, change.format(number))
            time.sleep(random.uniform(0, 0.002))
    for reader in readers:
        reader.join()
    assert not wrong, wrong[0]
    assert len(seen) > 20


#: Rows and their domain change in one transaction.
STATE = """
begin; delete from raced; insert into raced select i, '{0}' from generate_series(1, 100) as i;
select dp.set_domain('raced', 'b', array['{0}']); commit
"""


def test_rows_are_read_as_they_are_declared(raced: Any) -> None:
    """A question whose declarations change is refused, or answered wholly before or after."""
    question = "select b, dp_count(*) from raced group by b"
    stopped = threading.Event()
    answers: Counter[tuple[str, int]] = Counter()
    refused: set[str] = set()

    def ask() -> None:
        with raced.connect("alice", autocommit=True) as alice:
            alice.execute("set dp.epsilon = 100; set dp.fresh = on")
            while not stopped.is_set():
                try:
                    rows = alice.execute(question).fetchall()
                except psycopg.Error as error:
                    refused.add(str(error.sqlstate))
                else:
                    answers.update((value, round(count)) for value, count in rows)

    with raced.connect(autocommit=True) as owner:
        owner.execute(STATE.format("x"))
        askers = [threading.Thread(target=ask) for _ in range(2)]
        for asker in askers:
            asker.start()
        start, states = time.monotonic(), itertools.cycle("yx")
        # at least so long, and until both were seen; the limit is for a busy machine
        while (passed := time.monotonic() - start) < SECONDS or (len(answers) < 2 and passed < 120):
            owner.execute(STATE.format(next(states)))
            time.sleep(random.uniform(0, 0.02))
        stopped.set()
        for asker in askers:
            asker.join()
    # of a domain without its rows the count is about 0; noise of scale 1/100 rounds to 0
    assert set(answers) == {("x", 100), ("y", 100)}, answers
    # what changed before the charge, and after it
    assert refused <= {"PD015", "PD900"}, refused


def test_a_commit_that_fails_late_leaves_a_version(raced: Any) -> None:
    """SERIALIZABLE fails after the change was counted."""
    with raced.connect(autocommit=True) as first, raced.connect(autocommit=True) as second:
        before = version(second)
        for session, (read, written) in ((first, (1, 2)), (second, (2, 1))):
            session.execute("begin isolation level serializable")
            session.execute("select b from beside where a = %s", (read,))
            session.execute("update beside set b = b + 1 where a = %s", (written,))
        second.execute("alter table raced set (fillfactor = 50)")
        first.execute("commit")
        with pytest.raises(psycopg.errors.SerializationFailure):
            second.execute("commit")
        assert version(first) >= before


def test_a_backend_that_ends_in_a_transaction_leaves_a_version(raced: Any) -> None:
    with raced.connect(autocommit=True) as session, closing(raced.connect()) as ended:
        before = version(session)
        ended.execute("alter table raced set (fillfactor = 51)")
        session.execute("select pg_terminate_backend(%s, 10000)", (ended.info.backend_pid,))
        assert version(session) >= before
        raced.sql("alter table raced set (fillfactor = 52)")
        assert version(session) > before
