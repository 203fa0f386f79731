"""Read the caller's settings and role; both are user input and are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine.request import Role, Settings

if TYPE_CHECKING:
    from dpsql.server.spi import SpiDatabase

_NAMES = (
    "epsilon",
    "delta",
    "method",
    "mechanism",
    "max_epsilon_per_query",
    "fresh",
    "confidence",
    "sampling_rate",
    "sampling_filter",
    "statistics",
)
# current_user is the definer here, and names can have changed hands: dp.caller is by OID
_SQL = (
    "select r.oid::int8 as oid, r.rolname::text as name,"
    + ", ".join(f"pg_catalog.current_setting('dp.{n}', true) as {n}" for n in _NAMES)
    + " from pg_catalog.pg_roles as r where r.oid = dp.caller() and $1 = 1"
)


def read(database: SpiDatabase) -> tuple[Role, Settings]:
    """Return who asks and with which settings, as of now."""
    row = database.execute(_SQL, (("int4", 1),))[0]
    oid, name, *texts = row
    texts_by_name = {n: None if t is None else str(t) for n, t in zip(_NAMES, texts, strict=True)}
    return Role(int(str(oid)), str(name)), Settings.from_texts(texts_by_name)
