"""Alarms of scans of protected relations that no door of dpsql started (``watch/watch.c``).

A second witness is PostgreSQL's own count of sequential scans, which a door turns off: it also
sees what runs without the executor, such as COPY of a relation.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpsql.client.layout import Layout

SOURCE = Path(__file__).parent / "watch" / "watch.c"


@cache
def library() -> Path:
    """Compile the library with warnings as errors; the server reads it where it is."""
    folder = Path(tempfile.mkdtemp(prefix="dpsql-watch-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pg_config = Layout.discover().bin / "pg_config"

    def told(option: str) -> list[str]:
        done = subprocess.run([pg_config, option], check=True, capture_output=True, text=True)
        return done.stdout.split()

    built = folder / "watch.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC"]
    where = [f"-I{told('--includedir-server')[0]}", *told("--cppflags")]
    subprocess.run([*told("--cc"), *flags, *where, "-o", built, SOURCE], check=True)
    built.chmod(0o755)
    return built


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
