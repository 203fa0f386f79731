"""Kills at random moments under concurrent askers: what was answered was paid, and only that.

The server's storage runs without fsync here: killing processes does not lose what the operating
system holds, so the order of commits is what is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.contract.ledger_backend import books, install
from tests.server.disturbance import QUESTIONS, Askers, disturb
from tests.server.waiting import connected, wait_until


class Probing(Askers):
    """Askers that call the ledger's store from inside a backend."""

    def __init__(self, database: Any, root: int, seed: int) -> None:
        self.root = root
        super().__init__(database, seed)

    def ask(self, connection: psycopg.Connection[Any], question: str, choice: random.Random) -> str:
        row = connection.execute(
            "select probe.ask(%s, %s, %s)", (question, self.root, choice.random() / 50)
        ).fetchone()
        return str(row and row[0])


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
    with Probing(database, root, seed) as askers:
        disturbances = disturb(server, database, choice)

        def enough() -> bool:
            found = sum(len(payloads) for payloads in askers.answers.values())
            return found >= QUESTIONS and "PD001" in askers.refusals

        wait_until(enough)
    # Each forgetting explains one more charge for a question, like each death.
    check(database, askers, len(disturbances))


def test_no_free_connection_is_an_error_that_says_so(make_server: Callable[..., Any]) -> None:
    server = make_server(max_connections="12", superuser_reserved_connections="5")
    database = server.create_database()
    root = install(database)
    database.close()
    alice = connected(database, "alice")
    held = [connected(database, "bob") for _ in range(6)]
    with pytest.raises(psycopg.Error) as caught:
        alice.execute("select probe.ask('q', %s)", (root,))
    assert caught.value.sqlstate == "PD050"
    assert caught.value.diag.message_detail is not None
    assert "/" not in caught.value.diag.message_detail
    assert "max_connections" in (caught.value.diag.message_hint or "")
    held.pop().close()

    def answered() -> bool:
        try:
            return bool(alice.execute("select probe.ask('q', %s)", (root,)).fetchone())
        except psycopg.Error as error:
            if error.sqlstate != "PD050":  # the server has not ended that session yet
                raise
            return False

    wait_until(answered)
    assert books(database)["spends"] == 1
    database.close()
