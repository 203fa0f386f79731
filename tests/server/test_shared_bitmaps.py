"""A bitmap that workers share grows in dynamic shared memory with the rows that match."""

from __future__ import annotations

from typing import Any

FORCED = """
set work_mem = '64MB'; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
set min_parallel_index_scan_size = 0; set min_parallel_table_scan_size = 0;
set enable_seqscan = off; set enable_indexscan = off; set enable_indexonlyscan = off;
"""
MATCHING = "from big where k between 0 and 2999 group by g"
SHARED = "Parallel Bitmap Heap Scan on big"


def test_no_plan_over_protected_rows_shares_a_bitmap(database: Any, cluster: Any) -> None:
    """The same plan of the owner's own query shows that the settings ask for one."""
    database.sql(
        "create table big (k int primary key, g int, pad text);"
        "alter table big alter column pad set storage plain;"
        "insert into big select k, k % 10, repeat('x', 7000) from generate_series(0, 3999) k;"
        "select dp.protect('big'), dp.grant_budget('alice', 10);"
        "select dp.set_domain('big', 'g', 0, 10)"
    )
    database.sql("vacuum analyze big")
    with database.connect() as owner:
        owner.execute(FORCED)
        plan = owner.execute(f"explain select g, count(*) {MATCHING}").fetchall()
        assert any(SHARED in line for (line,) in plan), plan
    database.sql(
        "alter role alice set session_preload_libraries = auto_explain;"
        "alter role alice set auto_explain.log_min_duration = 0;"
        "alter role alice set auto_explain.log_nested_statements = on"
    )
    try:
        before = cluster.log.stat().st_size
        with database.connect(user="alice") as alice:
            alice.execute(FORCED)
            assert len(alice.execute(f"select g, dp_count(*) {MATCHING}").fetchall()) == 11
        text = cluster.log.read_bytes()[before:].decode(errors="replace")
        assert "Scan on big" in text
        assert SHARED not in text
    finally:
        database.sql("alter role alice reset all")
