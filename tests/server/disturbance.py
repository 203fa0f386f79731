"""Clients that ask under kills, and the kills: shared by the crash tests."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from dpsql.client.layout import SetupError

CLIENTS = 16
QUESTIONS = 12


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one client was told, and when it was told (seconds of the machine's clock)."""

    role: str
    question: str
    answer: str
    told: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What was done to the server, between two moments of the machine's clock."""

    kind: str
    before: float
    after: float


class Askers:
    """Clients that ask few questions again and again and write down what they are told."""

    def __init__(self, database: Any, seed: int) -> None:
        self.database = database
        self.seen: list[Sighting] = []
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
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)

    @property
    def answers(self) -> dict[str, set[str]]:
        """The different answers to each question."""
        found: dict[str, set[str]] = defaultdict(set)
        for sighting in self.seen:
            found[sighting.question].add(sighting.answer)
        return found

    @property
    def paid(self) -> dict[str, set[str]]:
        """The questions that each role was answered."""
        found: dict[str, set[str]] = defaultdict(set)
        for sighting in self.seen:
            found[sighting.role].add(sighting.question)
        return found

    def ask(self, connection: psycopg.Connection[Any], question: str, choice: random.Random) -> str:
        """Ask one question (``q0``, ``q1``, ...) and return the answer."""
        raise NotImplementedError

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
                answer = self.ask(connection, question, choice)
                with self._lock:
                    self.seen.append(Sighting(role, question, answer, time.time()))
            except psycopg.Error as error:
                if error.sqlstate is not None and error.sqlstate.startswith("PD"):
                    self.refusals.add(error.sqlstate)
                if connection is not None and connection.closed:
                    connection.close()
                    connection = None
                    time.sleep(0.05)
        if connection is not None:
            connection.close()


def insist(database: Any, sql: str, *parameters: object, seconds: float = 120) -> list[Any]:
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
    end = time.monotonic() + 120
    while True:
        try:
            cluster.start()
            return
        except SetupError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def disturb(
    server: Any, database: Any, choice: random.Random, pace: float = 0.1
) -> list[Disturbance]:
    """Cancel, terminate and kill backends at random moments, last the postmaster.

    ``pace`` is the longest pause between two deaths, in seconds.  Stored answers are forgotten
    now and then, so that there is always something to compute; that is in the list, too.
    """
    done: list[Disturbance] = []
    deaths = ["terminate"] * 19 + ["cancel"] * 6 + ["kill backend"] * 2
    choice.shuffle(deaths)
    time.sleep(1)
    for death in [*deaths, "kill postmaster"]:
        start = time.time()
        insist(database, "update dp.answer set spend = null, payload = null where random() < 0.3")
        done.append(Disturbance("forget", start, time.time()))
        time.sleep(choice.random() * pace)
        pids = [0] if death == "kill postmaster" else backends(database)
        start = time.time()
        if death == "kill postmaster":
            pid = int((Path(server.cluster.data) / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGKILL)
            restart(server.cluster)
        elif not pids:
            continue
        elif death == "terminate":
            insist(database, "select pg_terminate_backend(%s)", choice.choice(pids))
        elif death == "cancel":
            insist(database, "select pg_cancel_backend(%s)", choice.choice(pids))
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(choice.choice(pids), signal.SIGKILL)
        done.append(Disturbance(death, start, time.time()))
    insist(database, "select 1")
    time.sleep(10 * pace)
    return done
