"""Kills at random moments under concurrent askers: what was answered was paid, and only that.

The server's storage runs without fsync here: killing processes does not lose what the operating
system holds, so the order of commits is what is tried.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client.layout import SetupError
from tests.contract.ledger_backend import books, install

CLIENTS = 16
QUESTIONS = 12


class Askers:
    """Clients that ask few questions again and again and write down what they are told."""

    def __init__(self, database: Any, root: int, seed: int) -> None:
        self.database = database
        self.root = root
        self.answers: dict[str, set[str]] = defaultdict(set)
        self.paid: dict[str, set[str]] = defaultdict(set)
        self.refusals: set[str] = set()
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + i), i), daemon=True)
            for i in range(CLIENTS)
        ]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads)

    def _run(self, choice: random.Random, number: int) -> None:
        role = ("alice", "bob")[number % 2]
        connection: psycopg.Connection[Any] | None = None
        while not self.stop.is_set():
            try:
                if connection is None:
                    connection = psycopg.connect(
                        self.database.conninfo(role), autocommit=True, connect_timeout=5
                    )
                question = f"q{choice.randrange(QUESTIONS)}"
                row = connection.execute(
                    "select probe.ask(%s, %s, %s)", (question, self.root, choice.random() / 50)
                ).fetchone()
                with self._lock:
                    self.answers[question].add(str(row and row[0]))
                    self.paid[role].add(question)
            except psycopg.Error as error:
                if error.sqlstate is not None and error.sqlstate.startswith("PD"):
                    self.refusals.add(error.sqlstate)
                if connection is not None and connection.closed:
                    connection.close()
                    connection = None
                    time.sleep(0.05)
        if connection is not None:
            connection.close()


def insist(database: Any, sql: str, *parameters: object, seconds: float = 20) -> list[Any]:
    """Run a statement as soon as the server lives again."""
    end = time.monotonic() + seconds
    while True:
        try:
            return list(database.sql(sql, *parameters))
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def backends(database: Any) -> list[int]:
    rows = insist(
        database,
        "select pid from pg_stat_activity where backend_type = 'client backend'"
        " and pid <> pg_backend_pid() and datname = current_database()",
    )
    return [row[0] for row in rows]


def restart(cluster: Any) -> None:
    """Start after the postmaster was killed: its children need a moment to notice.

    The lock file is removed because a killed process that nobody waits for still has its number.
    The server itself refuses to start while a child is attached to its shared memory.
    """
    (Path(cluster.data) / "postmaster.pid").unlink(missing_ok=True)
    for _ in range(50):
        try:
            cluster.start()
            return
        except SetupError:
            time.sleep(0.2)
    cluster.start()


def check(database: Any, askers: Askers, disturbances: int) -> None:
    found = books(database)
    assert found["spends"] == found["roles"]
    assert found["rooted"] == found["roots"]
    assert found["least"] >= 0
    computed = dict(
        database.sql(
            "select question, count(*) from dp.spend where cardinality(roots) > 0 group by 1"
        )
    )
    payers = set(database.sql("select distinct role_name::text, question from dp.spend"))
    for question, payloads in askers.answers.items():
        # Every answer that somebody saw has a charge of its own ...
        assert len(payloads) <= computed[question]
        # ... and only deaths make a question be charged again.
        assert computed[question] <= 1 + disturbances
    for role, questions in askers.paid.items():
        assert {(role, question) for question in questions} <= payers


def test_deaths_under_load_lose_no_charge(make_server: Callable[..., Any]) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    choice = random.Random(seed)
    server = make_server()
    database = server.create_database()
    root = install(database)
    database.sql("select dp.grant_budget('alice', 1000)")
    database.sql("select dp.grant_budget('bob', 8)")
    database.close()
    deaths = ["terminate"] * 25 + ["kill backend"] * 2
    choice.shuffle(deaths)
    with Askers(database, root, seed) as askers:
        time.sleep(1)
        for death in [*deaths, "kill postmaster"]:
            # Forget stored answers now and then, so that there is always something to compute.
            insist(database, "update dp.answer set expires_at = now() where random() < 0.3")
            time.sleep(choice.random() / 10)
            if death == "kill postmaster":
                pid = int((Path(server.cluster.data) / "postmaster.pid").read_text().split()[0])
                os.kill(pid, signal.SIGKILL)
                restart(server.cluster)
            elif pids := backends(database):
                if death == "terminate":
                    insist(database, "select pg_terminate_backend(%s)", choice.choice(pids))
                else:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(choice.choice(pids), signal.SIGKILL)
        insist(database, "select 1")
        time.sleep(0.5)
    assert sum(len(payloads) for payloads in askers.answers.values()) >= QUESTIONS
    # Each forgetting explains one more charge for a question, like each death.
    check(database, askers, 2 * (len(deaths) + 1))
    assert "PD001" in askers.refusals


def test_no_free_connection_is_an_error_that_says_so(make_server: Callable[..., Any]) -> None:
    server = make_server(max_connections="12", superuser_reserved_connections="5")
    database = server.create_database()
    root = install(database)
    database.close()
    alice = database.connect("alice")
    held = [database.connect("bob") for _ in range(6)]
    with pytest.raises(psycopg.Error) as caught:
        alice.execute("select probe.ask('q', %s)", (root,))
    assert caught.value.sqlstate == "PD050"
    assert caught.value.diag.message_detail is not None
    assert "/" not in caught.value.diag.message_detail
    assert "max_connections" in (caught.value.diag.message_hint or "")
    held.pop().close()
    time.sleep(0.3)
    assert alice.execute("select probe.ask('q', %s)", (root,)).fetchone()
    assert books(database)["spends"] == 1
    database.close()
