"""What reaches ``dp.run``: a connection on which it echoes instead of answering."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ECHO = Path(__file__).with_name("echo.sql")

TABLES = """
create table t (a integer, b text, d date);
insert into t values (1, 'x', '2020-01-01');
create table u (a integer primary key, "Ünï ""q" varchar(7) collate "C");
create schema mine authorization alice;
"""


@dataclass(slots=True)
class Asking:
    """A connection of an analyst without privileges on any table."""

    connection: Any
    asked: list[dict[str, Any]] = field(default_factory=list)

    def run(self, text: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Execute one statement; ``asked`` holds what ``dp.run`` got meanwhile."""
        self.asked.clear()
        cursor = self.connection.execute(text, parameters)
        return cursor.fetchall() if cursor.description else []

    def plan(self, text: str) -> str:
        return "\n".join(row[0] for row in self.run(f"explain (verbose, costs off) {text}"))

    def names(self, text: str) -> list[str]:
        return [column.name for column in self.connection.execute(text).description]


def echoing(database: Any) -> None:
    """Let ``dp.run`` of a database echo; make the tables of these tests."""
    owner = database.connect()
    owner.execute(ECHO.read_text(encoding="utf-8"))
    owner.execute(TABLES)


def ask(database: Any, user: str = "alice") -> Asking:
    """Connect as an analyst."""
    asking = Asking(database.connect(user=user))
    asking.connection.add_notice_handler(
        lambda notice: (
            asking.asked.append(json.loads(notice.message_primary))
            if notice.message_primary.startswith("{")
            else None
        )
    )
    return asking
