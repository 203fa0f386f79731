"""Alarms of scans of protected relations that no door of dpsql started (``watch/watch.c``).

A second witness is PostgreSQL's own count of sequential scans, which a door turns off: it also
sees what runs without the executor, such as COPY of a relation.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.server.compiling import compiled

SOURCE = Path(__file__).parent / "watch" / "watch.c"


@cache
def library() -> Path:
    """Compile the library."""
    return compiled(SOURCE.read_text(encoding="utf-8"), "watch")


@dataclass(slots=True)
class Watch:
    """Watches relations of one database while some roles use it."""

    database: Any
    relations: list[str]
    file: Path

    @classmethod
    def over(cls, database: Any, relations: list[str], roles: list[str]) -> Watch:
        """Watch relations in all later sessions of the roles."""
        built = library()
        file = Path(tempfile.mkstemp(prefix="alarms-", dir=built.parent)[1])
        file.chmod(0o666)
        ((oids,),) = database.sql(
            "select string_agg(o::regclass::oid::text, ',') from unnest(%s::text[]) as o", relations
        )
        for role in roles:
            where = f"alter role {role} in database {database.name} set"
            database.sql(f"{where} session_preload_libraries = '{built}'")
            database.sql(f"{where} watch.relations = '{oids}'")
            database.sql(f"{where} watch.alarms = '{file}'")
        return cls(database, relations, file)

    def alarms(self) -> list[str]:
        """Return the alarms since the last call."""
        found = self.file.read_text().splitlines()
        if found:
            self.file.write_text("")
        return found

    def counted(self) -> dict[str, int]:
        """Return how many sequential scans PostgreSQL has counted; its sessions must have ended."""
        rows = self.database.sql(
            "select r, coalesce(pg_stat_get_numscans(r::regclass), 0) from unnest(%s::text[]) as r",
            self.relations,
        )
        return dict(rows)
