"""Which pages are in memory tells what the service session read for a row (docs/attacks.md, E10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asking import refused, say

pytestmark = pytest.mark.server

STATEMENT = "select count(*) from pg_class"
COUNTING = ["buffers", "analyze, buffers", "analyze, buffers on, format json", "analyze, wal"]
SILENT = [
    "costs off",
    "analyze",
    "analyze, buffers off",
    "analyze, buffers, wal off, buffers false",
]


@pytest.mark.parametrize("options", COUNTING)
def test_an_analyst_is_told_no_pages(database: Any, options: str) -> None:
    explain = f"explain ({options}) {STATEMENT}"
    with database.connect("alice") as alice:
        error = refused(alice, explain)
        assert error.sqlstate == "PD070"
        assert "dp.explain_buffers" in str(error.diag.message_hint)
        indirect = f"do $$ begin execute $e${explain}$e$; end $$"
        assert refused(alice, indirect).sqlstate == "PD070"
        assert refused(alice, "set dp.explain_buffers = on").sqlstate == "42501"


@pytest.mark.parametrize("options", SILENT)
def test_what_tells_of_no_page_is_allowed(database: Any, options: str) -> None:
    with database.connect("alice") as alice:
        assert "Buffers" not in say(alice, f"explain ({options}) {STATEMENT}")
        alice.execute(f"prepare asked as {STATEMENT}")
        plan = alice.execute(f"explain ({options}, format json) execute asked").fetchone()[0]
        assert "Blocks" not in json.dumps(plan)


VACUUMS = ["vacuum verbose mine", "vacuum (analyze, verbose on, freeze) mine"]
QUIET = ["vacuum mine", "vacuum (verbose on, verbose off) mine", "analyze mine", "vacuum full mine"]


def test_an_owner_is_told_no_pages(database: Any) -> None:
    """VACUUM counts pages of one's own table, which can be a public relation."""
    database.sql("create table mine (a int); alter table mine owner to alice")
    with database.connect("alice") as alice:
        analyze = alice.info.server_version >= 180000
        for statement in [*VACUUMS, *(["analyze verbose mine"] if analyze else [])]:
            error = refused(alice, statement)
            assert error.sqlstate == "PD070"
            assert "dp.explain_buffers" in str(error.diag.message_hint)
        told: list[str] = []
        alice.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        alice.execute("set client_min_messages = debug5")
        for statement in QUIET:
            alice.execute(statement)
        assert told
        assert not [text for text in told if "buffer usage" in text or "WAL usage" in text]
    with database.connect() as admin:
        admin.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        admin.execute(VACUUMS[0])
        assert [text for text in told if "buffer usage" in text]


def test_who_may_know_is_told(database: Any) -> None:
    explain = f"explain (analyze, buffers, wal, format json) {STATEMENT}"
    with database.connect() as admin:
        assert "Shared Hit Blocks" in json.dumps(admin.execute(explain).fetchone()[0])
        admin.execute("set dp.explain_buffers = on; set session authorization alice")
        assert "Shared Hit Blocks" in json.dumps(admin.execute(explain).fetchone()[0])
        admin.execute("reset session authorization; reset dp.explain_buffers")
        admin.execute("grant pg_read_all_stats to bob")
        try:
            admin.execute("set session authorization bob")
            assert "Shared Hit Blocks" in json.dumps(admin.execute(explain).fetchone()[0])
        finally:
            admin.execute("reset session authorization; revoke pg_read_all_stats from bob")
