"""Changes of rows that are committed, because a service session reads what is, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TABLES = """
select c.oid::regclass::text from pg_class as c
 where c.relkind in ('r', 'f') and c.relnamespace = 's'::regnamespace order by c.oid
"""


@contextmanager
def changed(session: Any, statement: str) -> Iterator[None]:
    """Change rows of tables of the schema ``s`` for a while; a superuser's session, outside of a transaction."""
    with session.transaction():
        kept = [
            (
                name,
                session.execute(f"select jsonb_agg(t)::text from only {name} as t").fetchone()[0],
            )
            for (name,) in session.execute(_TABLES).fetchall()
        ]
        session.execute(statement)
    try:
        yield
    finally:
        with session.transaction():
            # neither keys nor cascades: all rows come back
            session.execute("set local session_replication_role = replica")
            for name, rows in kept:
                session.execute(f"delete from only {name}")
                session.execute(
                    f"insert into {name} select * from jsonb_populate_recordset(null::{name}, %s)",
                    (rows or "[]",),
                )
