"""Shards that fail, or are slow: no answer, a price that is told, nothing of what the shard said."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.refusals import books
from tests.server.shards import PATIENT, PLAIN, READER, SLOW, Shards, sharded, visits
from tests.server.test_shards_moment import CHARGED, waits
from tests.server.waiting import wait_until

SECRET = "s3cr3t-value"
QUESTION = "select dp_count(*) from visit where v_amount > {}"


@pytest.fixture(scope="module")
def clinic(server: Any) -> Iterator[Shards]:
    with sharded(server) as shards:
        visits(shards, 300)
        yield shards


@pytest.fixture
def alice(clinic: Shards) -> Iterator[Any]:
    with clinic.near.connect("alice") as session:
        session.execute("set dp.epsilon = 50; set dp.delta = 1e-6; set dp.fresh = on")
        yield session


def failed(clinic: Shards, alice: Any, sql: str) -> tuple[tuple[str | None, ...], bool]:
    """Ask in vain: what is said, and whether it was charged."""
    heard: list[str] = []
    alice.add_notice_handler(lambda told: heard.append(str(told.message_primary)))
    with clinic.near.connect() as admin:
        before = books(admin)
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(sql)
        said = caught.value.diag
        charged = books(admin) != before
    everything = (*heard, str(caught.value), said.context, said.internal_query)
    assert not any(SECRET in (text or "") or "remote" in (text or "") for text in everything)
    return (said.sqlstate, said.message_primary, said.message_detail, said.message_hint), charged


def answered(alice: Any) -> bool:
    """Whether she is answered, within 12 of the truth: Laplace noise of scale 1/25."""
    return abs(alice.execute("select dp_count(*) from visit").fetchone()[0] - 300) <= 12


UNREADABLE = (
    "PD052",
    'server "shard1", which holds parts of the relation, cannot be read',
    "It does not answer, or lacks a table or column of part visit_1.",
    "Nothing was charged. Ask again when it answers; this server's log names the cause for the"
    " administrator.",
)


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("alter table visit rename to moved", "alter table moved rename to visit"),
        ("alter table visit rename v_who to v_whom", "alter table visit rename v_whom to v_who"),
        (f"revoke select on visit from {READER}", f"grant select on visit to {READER}"),
    ],
)
def test_a_shard_without_the_table_a_column_or_the_right_is_named_and_free(
    clinic: Shards, alice: Any, broken: str, mended: str
) -> None:
    clinic.far[1].sql(broken)
    assert failed(clinic, alice, QUESTION.format(1)) == (UNREADABLE, False)
    clinic.far[1].sql(mended)
    assert answered(alice)


def test_a_shard_that_refuses_connections_is_named_and_free(clinic: Shards, alice: Any) -> None:
    here = clinic.near
    here.sql(f"alter database {clinic.far[1].name} allow_connections false")
    assert failed(clinic, alice, QUESTION.format(1)) == (UNREADABLE, False)
    here.sql(f"alter database {clinic.far[1].name} allow_connections true")
    assert answered(alice)


def sessions_on(clinic: Shards, number: int) -> list[int]:
    """Return who reads on a shard now."""
    rows = clinic.near.sql(
        "select pid from pg_stat_activity where datname = %s and usename = %s"
        " and state = 'active' and query like 'FETCH%%'",
        clinic.far[number].name,
        READER,
    )
    return [pid for (pid,) in rows]


def test_a_shard_that_dies_in_the_middle_is_named_and_charged(clinic: Shards, alice: Any) -> None:
    clinic.far[1].sql(SLOW)
    found: list[Any] = []
    asking = threading.Thread(
        target=lambda: found.append(failed(clinic, alice, QUESTION.format(2)))
    )
    asking.start()
    wait_until(lambda: sessions_on(clinic, 1) != [])
    for pid in sessions_on(clinic, 1):
        clinic.near.sql("select pg_terminate_backend(%s)", pid)
    asking.join(120)
    clinic.far[1].sql(PLAIN)
    assert found == [
        (
            (
                "PD902",
                'server "shard1", which holds parts of a relation, failed while it was read',
                None,
                "The cost was charged. Ask again when it answers: the same question costs the"
                " same again.",
            ),
            True,
        )
    ]
    assert answered(alice)


GONE = (
    "PD902",
    'server "shard1", which holds parts of the relation, cannot be read',
    "It does not answer, or lacks a table or column of part visit_1.",
    "The cost was charged. Ask again when it answers; this server's log names the cause for the"
    " administrator.",
)
BUSY = (
    "PD902",
    "relation visit, which has parts on other servers, is written to by transactions that take long",
    "The setting dp.shards_timeout allows 1s: others who write wait meanwhile.",
    "The cost was charged. Ask again when they have ended.",
)


@pytest.mark.parametrize(("way", "expected"), [("gone", GONE), ("busy", BUSY)])
def test_a_shard_that_cannot_be_read_after_the_charge_any_more_is_named_and_charged(
    clinic: Shards, way: str, expected: tuple[str, ...]
) -> None:
    """The commit of the charge ended the transactions on other servers."""
    near, lost = clinic.near, clinic.far[1].name
    near.sql(f"alter database {near.name} set dp.shards_timeout = '{60 if way == 'gone' else 1}s'")
    found: list[Any] = []
    with near.connect() as alice, near.connect() as keeper, near.connect("owner1") as writer:
        alice.execute("select * from dp.explain('select dp_count(*) from visit')")  # imports
        alice.execute(CHARGED)
        alice.execute("set session authorization alice; set dp.fresh = on; set dp.epsilon = 50")
        keeper.execute("select pg_advisory_lock(9)")
        asking = threading.Thread(
            target=lambda: found.append(failed(clinic, alice, QUESTION.format(5)))
        )
        asking.start()
        wait_until(lambda: waits(near, alice.info.backend_pid))
        if way == "gone":
            near.sql(f"alter database {lost} allow_connections false")
            ended = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s and usename = %s"
            assert (True,) in near.sql(ended, lost, READER)
        else:
            writer.execute("begin; update visit set v_who = 1 where v_id = 1")
        keeper.execute("select pg_advisory_unlock(9)")
        asking.join(120)
        if way == "gone":
            near.sql(f"alter database {lost} allow_connections true")
        else:
            writer.execute("rollback")
        assert found == [(expected, True)]
        assert answered(alice)
    near.sql(PATIENT.format(name=near.name))


@pytest.mark.parametrize("way", ["timeout", "cancel"])
def test_a_slow_shard_obeys_the_timeout_and_a_cancel(clinic: Shards, alice: Any, way: str) -> None:
    """The statement on the shard ends as well, which would take a thousand seconds or so."""
    assert answered(alice)  # all that is done once in a session is done
    clinic.far[2].sql(SLOW.replace("pg_sleep(0.5)", "pg_sleep(10)"))
    if way == "timeout":
        # it strikes while the shard is read: later than a busy machine comes to that
        alice.execute("set statement_timeout = '15s'")
    found: list[Any] = []
    begun = time.monotonic()
    asking = threading.Thread(
        target=lambda: found.append(failed(clinic, alice, QUESTION.format(3)))
    )
    asking.start()
    wait_until(lambda: sessions_on(clinic, 2) != [])
    if way == "cancel":
        clinic.near.sql("select pg_cancel_backend(%s)", alice.info.backend_pid)
    asking.join(200)
    wait_until(lambda: sessions_on(clinic, 2) == [])
    assert time.monotonic() - begun < 400
    clinic.far[2].sql(PLAIN)
    reason = "statement timeout" if way == "timeout" else "user request"
    assert found == [(("57014", f"canceling statement due to {reason}", None, None), True)]
    alice.execute("set statement_timeout = 0")
    assert answered(alice)


@pytest.mark.parametrize("state", ["22012", "57014", "40001", "PD001", "42P01", "08006"])
def test_an_error_on_a_row_of_a_shard_tells_nothing_of_it(
    clinic: Shards, alice: Any, state: str
) -> None:
    """Whatever code the shard chooses: not its text, not where, and not whether it was that shard."""
    clinic.far[0].sql(
        "create function slowly(bigint) returns bigint language plpgsql volatile as"
        f" $$ begin raise exception '{SECRET}' using errcode = '{state}',"
        f" detail = '{SECRET}', hint = '{SECRET}'; end $$;"
        "alter table visit rename to kept;"
        "create view visit as select v_id, v_who, slowly(v_amount) as v_amount from kept;"
        f"grant select on visit to {READER}"
    )
    said, charged = failed(clinic, alice, QUESTION.format(4))
    clinic.far[0].sql(PLAIN)
    assert charged
    if state in ("57014", "40001"):
        passed = {
            "57014": "canceling statement due to user request",
            "40001": "could not serialize access",
        }
        assert said == (state, passed[state], None, None)
    else:
        assert said == (
            "PD900",
            "the answer could not be computed",
            None,
            "The cost was charged. The server log names the cause for the administrator.",
        )
    assert answered(alice)


def test_nothing_of_the_ledger_is_on_the_shards(clinic: Shards) -> None:
    for shard in clinic.far:
        # the template of tests has the extension; a shard needs none
        shard.sql("drop extension dpsql cascade")
    with clinic.near.connect("alice") as session:
        session.execute("set dp.epsilon = 50; set dp.fresh = on")
        assert answered(session)
