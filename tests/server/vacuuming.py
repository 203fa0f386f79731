"""A server on which autovacuum does not run: what it does is told to all sessions at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.server.waiting import wait_until

RUNNING = "select from pg_stat_activity where backend_type like 'autovacuum%'"


@contextmanager
def without_autovacuum(server: Any) -> Iterator[None]:
    """Stop it, and wait until nothing of it is left; let it go on in the end."""
    with psycopg.connect(server.cluster.conninfo(), autocommit=True) as admin:
        try:
            admin.execute("alter system set autovacuum = off")
            admin.execute("select pg_reload_conf()")
            wait_until(lambda: admin.execute(RUNNING).rowcount == 0)
            yield
        finally:
            admin.execute("alter system reset autovacuum")
            admin.execute("select pg_reload_conf()")
