"""A TCP port in front of the test server's socket, for clients that know no sockets of files."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_port(path: str) -> Iterator[int]:
    """Listen on a free port of this machine alone, and pass on what comes to the socket."""
    open_: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    server = socket.socket(socket.AF_UNIX)
                    open_.extend((client, server))
                    server.connect(path)
                    for ends in ((client, server), (server, client)):
                        threading.Thread(target=_copy, args=ends, daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for end in open_:
                end.close()
