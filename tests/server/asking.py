"""What the server says to a statement: its answer, or why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.in_service import in_service

SILENCE = in_service("""
import dpsql.core.rng
class Silent(dpsql.core.rng.SystemNoise):
    __slots__ = ()
    def discrete_laplace(self, scale): return 0
    def geometric(self, scale): return 0
    def discrete_cauchy(self, scale): return 0
    def gaussians(self, variance, count, tick=None): return zeros(count)
    def laplaces(self, scale, count, tick=None): return zeros(count)
def zeros(count):
    import numpy
    yield numpy.zeros(count, dtype=numpy.int64)
dpsql.core.rng.SystemNoise = Silent
""")

#: The server's own error where the reading of protected rows begins, after the charge.
UNREADABLE = """
from dpsql.server.spi import SpiDatabase
def denied(*_):
    raise plpy.spiexceptions.DiskFull("permission denied for table client")
SpiDatabase.before_reading = SpiDatabase.at_one_moment = denied
"""

# Plan for workers whatever that costs; 16 renamed the setting.
PARALLEL = (
    "select set_config(name, 'on', false) from pg_settings"
    " where name in ('force_parallel_mode', 'debug_parallel_query')"
)


def major(database: Any) -> int:
    """Return PostgreSQL's major version."""
    return int(database.sql("show server_version_num")[0][0]) // 10000


@contextmanager
def silent(database: Any, relation: str, *patches: str) -> Iterator[Any]:
    """Open a session of the owner that answers and releases without noise, and every time anew.

    ``patches`` change the package further; ``relation`` is one to ask about first.
    """
    with database.connect() as session:
        session.execute(
            f"select * from dp.explain('select dp_count(*) from {relation}')"
        )  # imports
        for patch in (SILENCE, *patches):
            session.execute(patch)
        session.execute("set dp.fresh = on; set dp.epsilon = 0.1")
        yield session


def made(server: Any, set_up: str) -> Iterator[Any]:
    """Make a database; drop it in the end."""
    database = server.create_database()
    database.sql(set_up)
    yield database
    server.drop_database(database)


def neighbours(server: Any, set_up: str, more: str) -> Iterator[tuple[Any, Any]]:
    """Make two databases of which the second has more; drop them in the end."""
    pair = server.create_database(), server.create_database()
    for database in pair:
        database.sql(set_up)
    pair[1].sql(more)
    yield pair
    for database in pair:
        server.drop_database(database)


def state(connection: psycopg.Connection[Any], statement: str) -> str | None:
    """Return the SQLSTATE of a refusal, ``None`` of an answer."""
    try:
        connection.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def say(connection: psycopg.Connection[Any], statement: str) -> str:
    """Return what a statement gives or why not, in words."""
    try:
        return str(connection.execute(statement).fetchall())
    except psycopg.Error as error:
        return f"{error.sqlstate} {error} {error.diag.message_detail}"


def unreadable(database: Any, user: str) -> Any:
    """Connect as a role in whose session, and the service's, no protected row can be read."""
    session = database.connect(autocommit=True)
    session.execute(in_service(UNREADABLE))
    session.execute(f"do language plpython3u $body${UNREADABLE}$body$")
    session.execute(f"set session authorization {user}")
    return session


def refused(connection: psycopg.Connection[Any], statement: str) -> psycopg.Error:
    """Return the error of a statement that must fail."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)
    return caught.value
