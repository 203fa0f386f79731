"""Servers that stop where they stand, as a machine does that nobody hears of any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def processes(cluster: Any) -> list[int]:
    """Return the numbers of a cluster's processes, its postmaster first."""
    postmaster = int((Path(cluster.data) / "postmaster.pid").read_text().split()[0])
    found = [postmaster]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == postmaster:
                found.append(int(entry.name))
    return found


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Stop processes meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
