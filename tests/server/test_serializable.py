"""SERIALIZABLE transactions fail by the rows that they read: no protected row is read in one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import refused

QUESTION = "select dp_count(*) from client where c_id = 777"
ASKED = [
    QUESTION,
    f"select dp.query($${QUESTION}$$)",
    f"select * from dp.explain($${QUESTION}$$)",
    f"select * from dp.estimate($${QUESTION}$$)",
]
BEGIN = ["begin isolation level serializable", "set default_transaction_isolation = serializable"]
RELEASE = "select dp.release('r', 'select c_kind, dp_count(*) from client group by c_kind')"
#: What makes a transaction fail: the rows that a SERIALIZABLE one has read.
NOTED = "select count(*) from pg_locks where mode = 'SIReadLock' and relation = 'client'::regclass"


def outcome(session: Any, statement: str) -> str:
    """Return the state of a statement, '' where it succeeds."""
    try:
        session.execute(statement)
    except psycopg.Error as error:
        return str(error.sqlstate)
    return ""


def conflict(shop: Any, written: int) -> list[str]:
    """Ask in one session while another can turn a conflict into a failure; return what both see.

    The owner writes row ``written`` while the question of row 777 runs.
    """
    shop.sql(
        "create table if not exists mine (i int); truncate mine; insert into mine values (1);"
        "grant all on mine to alice"
    )
    with (
        shop.connect(user="alice", autocommit=True) as asking,
        shop.connect(user="alice", autocommit=True) as other,
        shop.connect(autocommit=True) as owner,
    ):
        asking.execute("set enable_seqscan = off; set dp.epsilon = 0.000001; set dp.fresh = on")
        asking.execute("begin isolation level serializable")
        asking.execute("update mine set i = 2")
        other.execute("begin isolation level serializable")
        other.execute("select from mine limit 0")
        other.execute("declare kept cursor for select * from mine")
        owner.execute("begin isolation level serializable")
        owner.execute(f"insert into client values ({written}, 1)")
        owner.execute("commit")
        seen = [
            outcome(asking, QUESTION),
            outcome(other, "fetch all from kept"),
            outcome(asking, "commit"),
            outcome(other, "commit"),
        ]
        owner.execute(f"delete from client where c_id = {written}")
    return seen


def test_a_conflict_does_not_tell_which_row_was_written(shop: Any) -> None:
    assert conflict(shop, 777) == conflict(shop, 888) == ["", "", "", ""]


@pytest.mark.parametrize("statement", ASKED)
@pytest.mark.parametrize("begin", BEGIN)
def test_a_question_in_a_serializable_transaction_reads_nothing_in_it(
    shop: Any, statement: str, begin: str
) -> None:
    with shop.connect(user="alice", autocommit=True) as session:
        session.execute(begin)
        session.execute(statement)
        assert shop.sql(NOTED) == [(0,)]
        session.execute("rollback")


@pytest.mark.parametrize("begin", BEGIN)
def test_nothing_is_measured_in_a_serializable_transaction(shop: Any, begin: str) -> None:
    with shop.connect(user="alice", autocommit=True) as session:
        session.execute(begin)
        error = refused(session, RELEASE)
        assert (error.sqlstate, shop.sql("select count(*) from dp.ledger")) == ("PD011", [(0,)])
