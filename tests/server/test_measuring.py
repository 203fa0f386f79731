"""Refreshes and sketches that are disturbed while they count, and what owners are told of them.

Counting is made to wait: planning a statement on a relation locks its indexes, and another session
holds one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, unreadable
from tests.server.waiting import wait_until

JOIN = "select dp_count(*) from client, purchase where p_client = c_id and c_kind = 'a'"
WIDE = """select dp_count(*) from purchase a join purchase b on a.p_day = b.p_day
  join client on c_id = b.p_client where c_kind <> 'z'"""
REFRESH = "select dp.refresh_statistics('purchase')"
SKETCH = f"select dp.create_sketch($${WIDE}$$, 64)"
ROTATE = "select dp.rotate_sketch_seeds()"
COMMANDS = pytest.mark.parametrize("command", [REFRESH, SKETCH, ROTATE])
LISTED = "select kind, relations, identity, value, taken_at from dp.statistics order by 1, 2, 3"


@pytest.fixture
def shop(shop: Any) -> Any:
    """The shop with statistics, a kept question and a sketch."""
    with shop.connect(user="owner1") as owner:
        for relation in ("client", "purchase", "region"):
            owner.execute(f"select dp.collect_statistics('{relation}')")
        owner.execute("select dp.keep_statistics(%s)", (WIDE,))
        for relation in ("client", "purchase"):
            owner.execute(f"select dp.refresh_statistics('{relation}')")
        owner.execute(SKETCH)
    return shop


class Stalled:
    """A command of the owner that waits in the middle of counting."""

    def __init__(self, shop: Any, command: str) -> None:
        self.error: psycopg.Error | None = None
        self._session = shop.connect(user="owner1")
        self.pid = self._session.info.backend_pid
        self._thread = threading.Thread(target=self._run, args=(command,))
        self._thread.start()

    def _run(self, command: str) -> None:
        try:
            self._session.execute(command)
        except psycopg.Error as error:
            self.error = error

    def end(self) -> psycopg.Error | None:
        self._thread.join()
        self._session.close()
        return self.error


@contextmanager
def stalled(shop: Any, command: str, index: str = "purchase_pkey") -> Iterator[Stalled]:
    """Run a command that counts only after this block."""
    waits = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with shop.connect() as admin, shop.connect() as busy:
        busy.execute(f"begin; reindex index {index}")
        found = Stalled(shop, command)
        wait_until(lambda: admin.execute(waits, (found.pid,)).fetchone() == (1,))
        try:
            yield found
        finally:
            busy.execute("rollback")


def answers(shop: Any) -> None:
    """Ask from what is stored, a new question each time."""
    with shop.connect(user="alice") as alice:
        (asked,) = alice.execute("select count(*) from dp.ledger").fetchone()
        for n, setting in enumerate(("dp.statistics = stored", "dp.method = sketch")):
            alice.execute(f"set {setting}")
            alice.execute(WIDE + f" and a.p_amount > {asked + n}")
            alice.execute("reset all")
        methods = alice.execute("select method, label from dp.ledger order by 1").fetchall()
    assert set(methods) == {("residual", "proved"), ("sketch", "proved")}


@COMMANDS
@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_interrupted_while_it_counts(shop: Any, command: str, how: str) -> None:
    with shop.connect(user="owner1") as owner:
        before = owner.execute(LISTED).fetchall()
    seeds = shop.sql("select family, seed from dp.sketch_family order by 1")
    assert {row[0] for row in before} == {"boundary", "frequency", "sketch"}
    with stalled(shop, command) as victim:
        progress = "select pid, command, relation::text, phase from dp.progress order by 3"
        phases = shop.sql(progress, user="owner1")
        if command == REFRESH:
            assert phases == [(victim.pid, "refresh", "purchase", "counting frequencies")]
        else:
            assert phases == [(victim.pid, "sketch", "client", "building sketches")]
        assert shop.sql(f"select {how}({victim.pid})") == [(True,)]
        error = victim.end()
    assert error is not None
    assert error.sqlstate == ("57014" if how == "pg_cancel_backend" else "57P01")
    # what a session held goes after it said goodbye
    gone = "select from pg_stat_activity where pid = %s"
    with shop.connect() as admin:
        wait_until(lambda: admin.execute(gone, (victim.pid,)).rowcount == 0)
    with shop.connect(user="owner1") as owner:
        assert owner.execute(LISTED).fetchall() == before
        assert owner.execute("select * from dp.progress").fetchall() == []
    assert shop.sql("select family, seed from dp.sketch_family order by 1") == seeds
    answers(shop)
    with shop.connect(user="owner1") as owner:
        owner.execute(command)
        after = owner.execute(LISTED).fetchall()
    assert [row[:3] for row in after] == [row[:3] for row in before]
    assert max(row[4] for row in after) > max(row[4] for row in before)
    answers(shop)


@pytest.mark.parametrize(
    ("command", "index"),
    [
        (REFRESH, "purchase_pkey"),
        (REFRESH, "client_pkey"),  # read by the kept question only
        (SKETCH, "purchase_pkey"),
        (SKETCH, "client_pkey"),
        (ROTATE, "purchase_pkey"),
    ],
)
def test_a_schema_renamed_while_it_counts(shop: Any, command: str, index: str) -> None:
    with shop.connect(user="owner1") as owner:
        before = owner.execute(LISTED).fetchall()
    with stalled(shop, command, index) as victim:
        phases = shop.sql("select distinct phase from dp.progress", user="owner1")
        part = "frequencies" if index.startswith("purchase") else "boundaries"
        assert phases == [(f"counting {part}" if command == REFRESH else "building sketches",)]
        shop.sql("alter schema public rename to elsewhere")
    error = victim.end()
    shop.sql("alter schema elsewhere rename to public")
    assert error is not None
    assert error.sqlstate == "PD015"
    assert "has changed meanwhile" in str(error)
    with shop.connect(user="owner1") as owner:
        assert owner.execute(LISTED).fetchall() == before
        owner.execute(command)
    answers(shop)


@COMMANDS
@pytest.mark.parametrize(
    "change",
    [
        "alter table client rename to person",
        "alter table client rename column c_kind to c_sort",
        "alter table client alter c_kind type varchar(9)",
        "alter table client set schema dpv",
        "drop table client",
    ],
)
def test_relations_keep_their_definition_while_it_counts(
    shop: Any, command: str, change: str
) -> None:
    with stalled(shop, command) as victim, shop.connect() as admin:
        admin.execute("set lock_timeout = 200")
        assert refused(admin, change).sqlstate == "55P03"
    assert victim.end() is None
    answers(shop)


@pytest.mark.parametrize(
    "command", [REFRESH, SKETCH, ROTATE, f"select dp.sensitivity($${JOIN}$$, 'elastic')"]
)
def test_what_costs_nothing_says_so_when_it_fails(shop: Any, command: str) -> None:
    with unreadable(shop, "owner1") as owner:
        error = refused(owner, command)
    assert (error.sqlstate, error.diag.message_primary, error.diag.message_hint) == (
        "PD900",
        "the protected rows could not be counted",
        "Nothing was charged. The server log names the cause for the administrator.",
    )
    assert error.diag.message_detail is None
    assert shop.sql("select count(*) from dp.ledger") == [(0,)]


def test_the_view_lists_sketches_for_their_owner(shop: Any) -> None:
    show = "select relations, value, changes, kept_question, estimators from dp.statistics where kind = 'sketch'"
    both = ["public.client", "public.purchase"]
    ((relations, value, changes, text, estimators),) = shop.sql(show, user="owner1")
    assert (relations, value, changes, estimators) == (both, None, 0, 64)
    assert "FROM" in text
    taken = shop.sql("select min(taken_at) from dp.sketch_counter")
    assert shop.sql("select taken_at from dp.statistics where kind = 'sketch'") == taken
    shop.sql("insert into purchase values (9001, 1, 1, '2024-01-01')")
    shop.sql("update client set c_kind = 'b' where c_id <= 3")
    assert shop.sql(show, user="owner1")[0][2] == 4
    shop.sql("grant dp_owner to mallory; alter table client owner to mallory")
    assert shop.sql(show, user="mallory") == []
    assert shop.sql(show, user="owner1") == []
    shop.sql("revoke dp_owner from mallory; alter table client owner to owner1")
    shop.sql("alter table client alter c_id type bigint")
    assert [row[2] for row in shop.sql(show, user="owner1")] == [None]
    shop.sql("select dp.drop_sketch(sketch) from dp.sketches", user="owner1")
    assert shop.sql(show, user="owner1") == []
