"""Settings and resources of a session (docs/sql.md) do not decide whether a question fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.asking import made, state
from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sql.md").read_text()
LISTED = PAGE.partition("## Session settings and resources")[2].partition("\n## ")[0]
SET_UP = """
create table person (id int primary key, name text not null);
insert into person select i, md5(i::text) from generate_series(1, 200000) as i;
select dp.protect('person'), dp.grant_budget('alice', 1000, 1e-3);
analyze person;
"""
#: Has the service keep the value of a setting before it reads rows.
TELLS = """
from dpsql.server.spi import SpiDatabase
def told(self, relations, work, reads=SpiDatabase.at_one_moment):
    SpiDatabase.kept = self.execute("select current_setting('{name}') as n")[0][0]
    return reads(self, relations, work)
SpiDatabase.at_one_moment = told
"""
FOUND = function_in_service(
    "pg_temp.found", "text", "from dpsql.server.spi import SpiDatabase\nreturn SpiDatabase.kept"
)
#: Each with what the service has: the server's, or one that sql/hook/service.c sets.
BROUGHT = [
    ("work_mem", "64kB", "16MB"),
    ("work_mem", "1TB", "16MB"),
    ("work_mem", "32MB", "16MB"),
    ("hash_mem_multiplier", "1000", "2"),
    ("hash_mem_multiplier", "1", "2"),
    ("temp_tablespaces", "pg_global", '""'),
    ("default_tablespace", "pg_global", ""),
    ("default_table_access_method", "other", "heap"),
    ("jit", "on", "off"),
    ("enable_parallel_hash", "off", "on"),
    ("geqo_pool_size", "2147483647", "0"),
    ("geqo_generations", "2147483647", "0"),
    ("array_nulls", "off", "on"),
    ("temp_file_limit", "0", "-1"),
]


@pytest.fixture(scope="module")
def here(server: Any) -> Iterator[Any]:
    yield from made(server, SET_UP)


def test_every_setting_of_a_session_is_listed(here: Any) -> None:
    names = set(re.findall(r"`([A-Za-z_]+)`", LISTED))
    prefixes = tuple(re.findall(r"`(\w+_)`\.\.\.", LISTED))
    found = here.sql(
        "select name from pg_settings"
        " where context in ('user', 'backend') and name not like '%.%' order by 1"
    )
    missing = [name for (name,) in found if name not in names and not name.startswith(prefixes)]
    assert len(found) > 100
    assert not missing


@pytest.mark.parametrize(("name", "brought", "found"), BROUGHT)
def test_what_rows_could_reach_is_not_the_askers(
    here: Any, name: str, brought: str, found: str
) -> None:
    with here.connect() as session:
        if name == "default_table_access_method":
            here.sql(
                "drop access method if exists other;"
                "create access method other type table handler heap_tableam_handler"
            )
        session.execute("select set_config(%s, %s, false)", [name, brought])
        session.execute(in_service(TELLS.format(name=name)))
        session.execute(FOUND)
        session.execute("set role alice; set dp.fresh = on; set dp.epsilon = 0.001")
        session.execute("select dp_count(*) from person")
        (told,) = session.execute("select pg_temp.found()").fetchone() or ()
        assert told.strip('"') == found.strip('"')
        (after,) = session.execute(f"show {name}").fetchone() or ()
    assert after.strip('"') == brought or name == "work_mem"


def test_a_limit_of_files_does_not_tell_how_many_rows(here: Any) -> None:
    """The asker's own cursors could leave any part of it."""
    here.sql("alter role alice set temp_file_limit = 0")
    with here.connect(user="alice") as spy:
        spy.execute("set dp.epsilon = 0.001; set work_mem = '64kB'")
        spills = "select count(*) from (select distinct i from generate_series(1, 200000) i) x"
        assert state(spy, spills) == "53400"
        assert state(spy, "select dp_count(distinct name) from person") is None
    here.sql("alter role alice reset temp_file_limit")
