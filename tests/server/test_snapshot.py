"""Everything that one answer reads is read in one snapshot."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.server.in_service import in_service
from tests.server.waiting import wait_until

ROWS = 20_000
GONE = 5_000
# The writer deletes different keys from each table, so that each mixture has a count of its own.
DELETED = {"a": (1, GONE), "b": (ROWS - GONE + 1, ROWS)}
OLD, MIXED, NEW = ROWS, ROWS - GONE, ROWS - 2 * GONE
NOISE = 100  # far above the noise at epsilon = 100

# Locks of tables and indexes are waited for before anything is read, so that the service session is
# made to wait for a lock of the writer's at the statement that reads a table.
PAUSE = in_service("""
import re
import dpsql.server.spi
plain = dpsql.server.spi.SpiDatabase.execute
def execute(self, sql, parameters=()):
    if re.search(r'\\bpublic"?\\."?{0}\\b', sql):
        self._plpy.execute("select pg_catalog.pg_advisory_xact_lock(1)")
    return plain(self, sql, parameters)
dpsql.server.spi.SpiDatabase.execute = execute
""")
SETUP = f"""
create table a as select generate_series(1, {ROWS}) as k;
create table b as select generate_series(1, {ROWS}) as k;
create index a_k on a (k);
create index b_k on b (k);
analyze a; analyze b;
select dp.protect('a'), dp.protect('b');
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""
QUESTION = "select dp_count(*) from a join b on a.k = b.k"

# What answers, with its volatility: STABLE functions read in the caller's snapshot, VOLATILE ones
# take a new one for each statement.
ANSWERING = {
    # the service session reads in snapshots of its own
    "ask_service": "v",
    # each relation by one statement, and changes are counted from its snapshot on
    "create_sketch": "v",
    "create_sketch_of": "v",
    "estimate": "s",
    "explain": "s",
    "explain_query": "s",
    "keep_question": "v",  # reads no data
    "measure_statistics": "s",
    "purge_answers": "v",  # deletes what has expired and reads no data
    "python_measure_statistics": "s",
    "python_purge_answers": "v",
    "python_question_relations": "s",
    "python_create_sketch_of": "v",
    "python_rotate_sketch_seeds": "v",
    "python_sensitivity_of": "s",
    # commits, and reads in REPEATABLE READ transactions
    "python_serve": "v",
    "query": "s",
    "question_relations": "s",
    "declare_view": "v",  # reads no data
    "python_require_flat": "s",
    "require_flat": "s",
    "refresh_statistics": "v",  # counts all by one statement, and so in one snapshot
    "rotate_sketch_seeds": "v",
    "run": "s",
    # what these measure is read through python_measure_release, in one snapshot
    "synthesize": "v",
    "synthesize_query": "v",
    "python_synthesize_query": "v",
    # reads no protected data
    "synthesis_step": "v",
    "python_synthesis_step": "v",
    "write_synthesis": "v",
    # locks what it reads; of protected data its owner alone, who may see rows change meanwhile
    "synthesis_report": "v",
    "python_synthesis_report": "v",
    "suggest_bounds": "v",  # asks by a statement of its own
    "run_json": "s",
    "estimate_query": "s",
    # releases write; what they read they read below python_measure_release
    "release": "v",
    "release_query": "v",
    "refresh_release": "v",
    "refresh_release_query": "v",
    "share_release": "v",
    "share_release_with": "v",
    "python_release_query": "v",
    "python_refresh_release_query": "v",
    "python_share_release_with": "v",
    "python_measure_release": "s",
    # in the snapshots that dp.meet_shards took
    "python_read_together": "s",
    # reads tables that nobody protects
    "python_read_as_owner": "v",
    "plan_release": "s",
    "plan_release_query": "s",
    "python_plan_release_query": "s",
    "sensitivity": "s",
    "sensitivity_of": "s",
}


def test_every_function_that_answers_is_stable(database: Any) -> None:
    rows = database.sql(
        r"""
        select proname::text, string_agg(distinct provolatile::text, ',')
          from pg_proc p
         where pronamespace = 'dp'::regnamespace
           and (proname like 'python\_%' or prosrc ~ '^dpsql_(door|ask)'
                or exists (select from pg_proc d
                            where d.pronamespace = p.pronamespace and d.prosrc ~ '^dpsql_(door|ask)'
                              and p.prosrc ~ ('\mdp\.' || d.proname || '\M')))
         group by 1
        """
    )
    assert dict(rows) == ANSWERING


def answer_during_a_commit(database: Any, table: str, *mutants: str) -> int:
    """Ask; while the answer waits for ``table``, delete from both tables and commit."""
    writer = database.connect(autocommit=False)
    alice = database.connect()
    alice.execute("select * from dp.explain('select dp_count(*) from a')")  # imports
    for patch in (PAUSE.format(table), *mutants):
        alice.execute(patch)
    alice.execute("set session authorization alice; set dp.epsilon = 100")
    writer.execute("select pg_advisory_xact_lock(1)")
    found: list[int] = []
    asking = threading.Thread(
        target=lambda: found.append(alice.execute(QUESTION).fetchone()[0])  # type: ignore[index]
    )
    asking.start()
    try:
        wait_until(
            lambda: (
                database.sql(
                    "select count(*) from pg_locks join pg_stat_activity a using (pid)"
                    " where locktype = 'advisory' and leader_pid = %s and not granted",
                    alice.info.backend_pid,
                )[0][0]
                == 1
            )
        )
        for name, (first, last) in DELETED.items():
            writer.execute(f"delete from {name} where k between {first} and {last}")
        writer.commit()
    finally:
        writer.close()
        asking.join(120)
    return found[0]


@pytest.mark.parametrize("table", DELETED)
def test_a_commit_between_two_readings_is_not_seen(database: Any, table: str) -> None:
    database.sql(SETUP)
    assert abs(answer_during_a_commit(database, table) - OLD) < NOISE
    now = database.connect(user="alice")
    now.execute("set dp.epsilon = 100; set dp.fresh = on")
    assert abs(now.execute(QUESTION).fetchone()[0] - NEW) < NOISE


READ_COMMITTED = in_service("""
from dpsql.server.own_transactions import OwnTransactions
plain = OwnTransactions._next
def _next(self, *, writes=False):
    plain(self, writes=True)
    self.database.execute("select dp.serve_phase($1) is null as done", [("bool", writes)])
OwnTransactions._next = _next
# which wants one snapshot
from dpsql.server.spi import SpiDatabase
SpiDatabase._keep_dead_rows = lambda self, relations, *, charged: None
""")


def test_a_transaction_with_several_snapshots_would_see_it(database: Any) -> None:
    """The mutant of the test above, tried: the pause lies between the readings of a and b."""
    database.sql(SETUP)
    assert abs(answer_during_a_commit(database, "b", READ_COMMITTED) - MIXED) < NOISE
