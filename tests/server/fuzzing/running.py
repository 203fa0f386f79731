"""Sends scripts to a server and keeps all that it says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from psycopg import pq

from tests.server.fuzzing.world import OWN

#: A constant that the extended protocol sends as a parameter.
PLACE = re.compile(r"< (7|30)\b")
#: Types from this OID on are somebody's own.
FIRST_NORMAL = 16384
#: What outlives a transaction in the session.
LEAVES = re.compile(r"\b(set|prepare|declare|temp|listen|set_config|reset|load)\b", re.IGNORECASE)
FIELDS = {
    "message": pq.DiagnosticField.MESSAGE_PRIMARY,
    "detail": pq.DiagnosticField.MESSAGE_DETAIL,
    "hint": pq.DiagnosticField.MESSAGE_HINT,
    "context": pq.DiagnosticField.CONTEXT,
    "position": pq.DiagnosticField.STATEMENT_POSITION,
}


@dataclass(slots=True)
class Outcome:
    """What was said to one script."""

    state: str = ""
    words: dict[str, str] = field(default_factory=dict)
    columns: list[list[tuple[str, int]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    lost: bool = False

    def everything(self) -> str:
        return "\n".join([self.state, *self.words.values(), *self.said, *self.notices])


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


class Session:
    """A role's session; `renew` makes it as new, with the role's own schema."""

    def __init__(self, database: Any, role: str) -> None:
        self.database, self.role = database, role
        self.connection = database.connect(user=role)
        self.notices: list[str] = []
        self.connection.pgconn.notice_handler = self._notice

    def _notice(self, result: Any) -> None:
        self.notices.append(" ".join(_text(result.error_field(f)) for f in FIELDS.values()))

    def renew(self) -> None:
        for statement in ("rollback", "reset session authorization", "discard all"):
            self.send(statement)
        self.database.sql(
            f"drop schema if exists lab cascade; create schema lab authorization {self.role}"
        )
        made = self.send(OWN)
        assert not made.state, made

    def send(self, script: str, extended: bool = False, settle: bool = True) -> Outcome:
        """Send a script by one message and read all answers; unless told otherwise, leave nothing."""
        found = Outcome()
        self.notices = found.notices
        wire = self.connection.pgconn
        if extended:
            bound = PLACE.sub("< $1", script, count=1)
            wire.send_query_params(bound.encode(), [b"7"] if bound != script else [])
        else:
            wire.send_query(script.encode())
        while result := wire.get_result():
            self._read(wire, result, found)
        if wire.status == pq.ConnStatus.BAD:
            found.lost = True
        elif settle:
            if wire.transaction_status != pq.TransactionStatus.IDLE:
                wire.exec_(b"rollback")
            if LEAVES.search(script):
                wire.exec_(b"reset session authorization")
                wire.exec_(b"discard all")
        return found

    def _read(self, wire: Any, result: Any, found: Outcome) -> None:
        status = pq.ExecStatus
        if result.status == status.COPY_OUT:
            while (part := wire.get_copy_data(0))[0] > 0:
                found.said.append(_text(bytes(part[1])))
        elif result.status == status.COPY_IN:
            wire.put_copy_end(b"nothing comes")
        elif result.status == status.TUPLES_OK:
            found.columns.append(
                [
                    (_text(result.fname(i)), min(result.ftype(i), FIRST_NORMAL))
                    for i in range(result.nfields)
                ]
            )
            for row in range(min(result.ntuples, 2000)):
                found.said.append(
                    " ".join(_text(result.get_value(row, i)) for i in range(result.nfields))
                )
        elif result.status == status.FATAL_ERROR:
            found.state = _text(result.error_field(pq.DiagnosticField.SQLSTATE)) or "lost"
            found.words = {name: _text(result.error_field(f)) for name, f in FIELDS.items()}
