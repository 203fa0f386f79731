"""Count what a server sends: a forwarder between a coordinator and one of its shards.

It listens on a unix socket of its own and reads the messages of PostgreSQL's protocol, so that rows
and bytes are those that really travelled, whatever a plan says.  It slows the connection down:
runs that are timed go past it.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

_ROW = ord("D")
_ASKING = (ord("Q"), ord("P"))
_HEAD = 5
_BLOCK = 1 << 18
_PATIENCE = 5
_DECLARE = re.compile(r"DECLARE (c\d+) CURSOR FOR\s(.*)", re.DOTALL)
_FETCH = re.compile(r"FETCH \d+ FROM (c\d+)")
_AGGREGATE = re.compile(r"\b(count|sum|min|max)\(|\bGROUP BY\b")


class Wire:
    """A forwarder to one server.

    Parameters
    ----------
    server : Path
        Socket directory of the server; its port is 5432.
    folder : Path
        Where to listen; a directory that the coordinator can reach.

    Attributes
    ----------
    rows, bytes : int
        What came from there.
    plain : int
        Rows of statements that aggregate nothing.
    statements : list of str
        What was asked there through cursors.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self.folder = folder
        self._server = str(server / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        path = folder / ".s.PGSQL.5432"
        self._listening.bind(str(path))
        path.chmod(0o777)
        self._listening.listen()
        self._threads: list[threading.Thread] = []
        self.reset()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def reset(self) -> None:
        """Begin to count anew."""
        self.rows = self.bytes = self.plain = 0
        self.statements: list[str] = []

    def close(self) -> None:
        """Accept nobody any more; wait a little for connections, which end with their clients."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:
                client.close()
                server.close()
                continue
            conversation = threading.Thread(
                target=_Conversation(self, client, server).pass_on, daemon=True
            )
            self._threads.append(conversation)
            conversation.start()


class _Conversation:
    """One connection: whose rows are whose follows from the cursor that was read last."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self.wire = wire
        self.client = client
        self.server = server
        self.aggregates: dict[str, bool] = {}
        self.aggregating = False

    def pass_on(self) -> None:
        """Forward both ways until one side ends."""
        with self.client, self.server:
            asking = threading.Thread(target=self._ask, daemon=True)
            asking.start()
            self._answer()
            asking.join()

    def _ask(self) -> None:
        messages = Messages(startup=True)
        for block in self._passing(self.client, self.server):
            for kind, body in messages.read(block, _ASKING):
                if kind in _ASKING:
                    self._note(body.replace(b"\0", b" ").decode(errors="replace"))

    def _note(self, text: str) -> None:
        if declared := _DECLARE.search(text):
            self.aggregates[declared[1]] = _AGGREGATE.search(declared[2]) is not None
            self.wire.statements.append(declared[2].strip())
        elif fetched := _FETCH.search(text):
            self.aggregating = self.aggregates.get(fetched[1], False)

    def _answer(self) -> None:
        messages = Messages()
        for block in self._passing(self.server, self.client):
            found = sum(kind == _ROW for kind, _ in messages.read(block))
            self.wire.bytes += len(block)
            self.wire.rows += found
            self.wire.plain += 0 if self.aggregating else found

    def _passing(self, source: socket.socket, sink: socket.socket) -> Iterator[bytes]:
        try:
            while block := source.recv(_BLOCK):
                yield block  # what is asked is known before its answer comes
                sink.sendall(block)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class Messages:
    """Reads a stream block by block: messages of a byte of kind, four of length, and the rest.

    ``startup`` streams begin with a message that has no kind.
    """

    def __init__(self, *, startup: bool = False) -> None:
        self._rest = b""
        self._skip = 0
        self._startup = startup

    def read(self, block: bytes, whole: tuple[int, ...] = ()) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that begin here; those of the kinds ``whole`` when complete."""
        data = self._rest + block
        at, self._skip = self._skip, 0
        if self._startup and len(data) >= _HEAD:
            at = int.from_bytes(data[:4], "big")
            self._startup = False
        while at + _HEAD <= len(data):
            end = at + 1 + int.from_bytes(data[at + 1 : at + _HEAD], "big")
            if data[at] in whole:
                if end > len(data):
                    break
                yield data[at], data[at + _HEAD : end]
            else:
                yield data[at], b""
            at = end
        self._rest = data[at:]
        self._skip = max(0, at - len(data))
