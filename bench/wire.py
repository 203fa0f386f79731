"""Count what a server sends: a forwarder between a coordinator and one of its shards.

It listens on a unix socket of its own and reads the frames of PostgreSQL's protocol, so that rows
and bytes are those that really travelled, whatever a plan says.  It slows the connection down:
runs that are timed go past it.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

_ROW = ord("D")
_HEAD = 5
_BLOCK = 1 << 18


class Wire:
    """A forwarder to one server; ``rows`` and ``bytes`` are what came from there.

    Parameters
    ----------
    server : Path
        Socket directory of the server; its port is 5432.
    folder : Path
        Where to listen; a directory that the coordinator can reach.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self.folder = folder
        self.rows = 0
        self.bytes = 0
        self._server = str(server / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        path = folder / ".s.PGSQL.5432"
        self._listening.bind(str(path))
        path.chmod(0o777)
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Begin to count anew."""
        self.rows = self.bytes = 0

    def close(self) -> None:
        """Accept nobody any more; connections that are open end with their clients."""
        self._listening.close()

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
                continue
            for source, sink, counted in ((client, server, False), (server, client, True)):
                forward = threading.Thread(
                    target=self._forward, args=(source, sink, counted), daemon=True
                )
                forward.start()

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        frames = Frames()
        try:
            while block := source.recv(_BLOCK):
                if counted:
                    self.bytes += len(block)
                    self.rows += frames.rows(block)
                sink.sendall(block)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class Frames:
    """Reads a stream of messages block by block: a byte of kind, four of length, the rest."""

    def __init__(self) -> None:
        self._head = b""
        self._skip = 0

    def rows(self, block: bytes) -> int:
        """Return how many rows begin in a block."""
        found = 0
        data = self._head + block
        at, self._skip = self._skip, 0
        while at + _HEAD <= len(data):
            found += data[at] == _ROW
            at += 1 + int.from_bytes(data[at + 1 : at + _HEAD], "big")
        self._head = data[at:]
        self._skip = max(0, at - len(data))
        return found
