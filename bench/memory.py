"""The peak of what a backend and its parallel workers hold, sampled from /proc."""

from __future__ import annotations

import threading
from pathlib import Path

_EVERY_S = 0.005


class Peak:
    """Largest proportional anonymous memory (``Pss_Anon``) in MB; 0 where /proc is closed.

    Pages that processes share after ``fork()`` count once, shared buffers do not count.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            total = sum(_anonymous_kb(pid) for pid in (self.pid, *_workers(self.pid)))
            self.mb = max(self.mb, total / 1024)


def _anonymous_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def _workers(pid: int) -> list[int]:
    """Find the parallel workers of a backend by the titles of the server's processes."""
    try:
        server = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        wanted = f"parallel worker for PID {pid}".encode()
        return [
            int(child)
            for child in children
            if wanted in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
    except OSError:
        return []
