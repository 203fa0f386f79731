"""A bar while the server works, from dp.progress; none where nobody looks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

INTERVAL = 0.5

_RUNNING = """
select phase, rounds_done, rounds_total, budget_used, budget, time_left::text
  from dp.progress where pid = %(pid)s
"""
# the rows of a copy are committed batch by batch, and dp.progress knows of the measuring only
_WRITING = """
select state, rows_written, rows from dp.syntheses
 where target = %(target)s and state <> 'done' order by id desc limit 1
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What a command is doing; ``done`` of ``total``, where that is known."""

    phase: str
    done: float | None = None
    total: float | None = None
    left: str | None = None


def look(
    connection: psycopg.Connection[tuple[object, ...]], pid: int, target: str | None
) -> Step | None:
    """Return what the command of another session is doing, or None if nothing is known."""
    row = connection.execute(_RUNNING, {"pid": pid}).fetchone()
    if row is not None:
        phase, done, total, used, budget, left = row
        if total is None and budget is not None:
            done, total = used, budget
        return Step(str(phase), _number(done), _number(total), None if left is None else str(left))
    if target is not None:
        row = connection.execute(_WRITING, {"target": target}).fetchone()
        if row is not None:
            return Step(str(row[0]), _number(row[1]), _number(row[2]))
    return None


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))


@contextmanager
def shown_progress(
    dsn: str, connection: psycopg.Connection[dict[str, object]], *, target: str | None = None
) -> Iterator[None]:
    """Show what ``connection`` is doing, on standard error if that is a terminal.

    Parameters
    ----------
    dsn : str
        For a second connection, which looks on; without one there is no bar.
    target : str, optional
        The schema that a synthesis writes.
    """
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(dsn, connection.info.backend_pid, target, ended), daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(dsn: str, pid: int, target: str | None, ended: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    # a bar that fails must not end the command that it is about
    with (
        suppress(psycopg.Error),
        psycopg.connect(dsn, autocommit=True, fallback_application_name="dpsql") as connection,
        Progress(*columns, console=Console(stderr=True), transient=True) as bar,
    ):
        task = bar.add_task("waiting", total=None, left="")
        while not ended.wait(INTERVAL):
            step = look(connection, pid, target)
            if step is not None:
                left = f"{step.left} left" if step.left else ""
                bar.update(
                    task,
                    description=step.phase,
                    total=step.total,
                    completed=step.done or 0,
                    left=left,
                )
