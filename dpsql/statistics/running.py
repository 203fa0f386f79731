"""Run a counting statement: in bigint and, when a number does not fit, in numeric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dpsql.model import JoinQuery
from dpsql.ports import Database

OUT_OF_RANGE = "22003"

# postgres_fdw takes it that another server compares each row with each other one to join them, so a
# join is sent away by its costs only where comparisons cost nothing.  A join that cannot be sent is
# then hashed or merged, as without nested loops there is nothing else.
_SENDING = {"cpu_operator_cost": "0", "cpu_tuple_cost": "0", "enable_nestloop": "off"}


def run(
    query: JoinQuery, database: Database, write: Callable[[bool], str]
) -> list[tuple[object, ...]]:
    """Run what ``write`` returns; it is told whether to count in numeric."""
    with sending(query, database):
        try:
            return database.execute(write(False))
        except Exception as error:
            if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
                raise
            return database.execute(write(True))


@contextmanager
def sending(query: JoinQuery, database: Database) -> Iterator[None]:
    """Let the planner send joins of parts away, if there are any; times change, never a number.

    After an error the settings end with the (sub)transaction.
    """
    before = _set(database, _SENDING) if any(a.place for a in query.attributes) else {}
    yield
    if before:
        _set(database, before)


def _set(database: Database, settings: dict[str, str]) -> dict[str, str]:
    """Set parameters for this transaction, and return what they were."""
    names: Sequence[str] = [*settings]
    shown = ", ".join(
        f"pg_catalog.current_setting('{name}') AS v{i}" for i, name in enumerate(names)
    )
    (found,) = database.execute(f"SELECT {shown}")
    changed = ", ".join(
        f"pg_catalog.set_config('{name}', '{value}', true) AS v{i}"
        for i, (name, value) in enumerate(settings.items())
    )
    database.execute(f"SELECT {changed}")
    return dict(zip(names, map(str, found), strict=True))
