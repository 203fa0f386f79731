"""A bitmap that workers share grows in dynamic shared memory with the rows that match."""

from __future__ import annotations

from typing import Any

#: Of the database, so that service sessions have them; these turn enable_seqscan on themselves.
FORCED = {
    "work_mem": "64MB",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "min_parallel_index_scan_size": "0",
    "min_parallel_table_scan_size": "0",
    "enable_seqscan": "off",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
}
EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
}
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
    for name, value in FORCED.items():
        database.sql(f"alter database {database.name} set {name} = '{value}'")
    with database.connect() as owner:
        plan = owner.execute(f"explain select g, count(*) {MATCHING}").fetchall()
        assert any(SHARED in line for (line,) in plan), plan
    for name, value in EXPLAINED.items():
        database.sql(f"alter role dp_executor set {name} = {value}")
    try:
        before = cluster.log.stat().st_size
        with database.connect(user="alice") as alice:
            assert len(alice.execute(f"select g, dp_count(*) {MATCHING}").fetchall()) == 11
        text = cluster.log.read_bytes()[before:].decode(errors="replace")
        assert "Scan on big" in text
        assert "Parallel" not in text
    finally:
        database.sql("alter role dp_executor reset all")
