"""A shop whose relations are exposed, and what its ledger says while a client asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.exposing import EXPOSE, SET_UP

#: What a client's session costs a question, unlike other sessions here.
EPSILON = "0.5"


@dataclass
class Shop:
    """One database for the tests of one client."""

    database: Any

    def questions(self) -> int:
        """How many questions were charged so far."""
        ((number,),) = self.database.sql("select count(*) from dp.ledger")
        return int(number)

    @contextmanager
    def costs(self, questions: int) -> Iterator[None]:
        """Assert how many questions are charged inside."""
        before = self.questions()
        yield
        assert self.questions() - before == questions

    def stored(self, question: str) -> list[tuple[Any, ...]]:
        """The answer to a question in other words, which the ledger has."""
        with self.costs(0), self.database.connect("alice") as session:
            session.execute(f"set dp.epsilon = {EPSILON}")
            return session.execute(question).fetchall()

    def conninfo(self, **more: str) -> str:
        """As docs/clients.md says: the budget's role, its epsilon in the connection string."""
        return self.database.conninfo("alice", options=f"-c dp.epsilon={EPSILON}", **more)

    def connect(self, **arguments: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo(), **arguments)


@pytest.fixture(scope="module", params=["open", "locked"])
def shop(server: Any, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """Each client meets the database as it is, and after dp.lockdown."""
    for database in asking.made(server, SET_UP + EXPOSE):
        if request.param == "locked":
            database.sql("select * from dp.lockdown()")
        yield Shop(database)


def numbers(rows: list[Any]) -> list[list[Any]]:
    """Rows without the types that a client has for numbers."""
    return [[float(v) if isinstance(v, (int, Decimal)) else v for v in row] for row in rows]
