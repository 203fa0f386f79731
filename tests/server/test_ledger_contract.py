"""The ledger in the database keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from dpsql.errors import LedgerUnavailable
from dpsql.ledger.model import Charged, Ledger
from dpsql.ledger.store import LedgerStore
from tests.contract.failures import FailureContract
from tests.contract.ledger import MANY, LedgerContract, LedgerHarness
from tests.contract.ledger_transactions import Connection
from tests.contract.memory_ledger import Limits
from tests.contract.windows import WindowContract


class ServerHarness(LedgerHarness):
    def __init__(self, database: Any) -> None:
        self.database = database
        self.admin = database.connect()
        self.sessions: list[LedgerStore] = []
        self.admin.execute("create table a (x int); create table b (x int)")
        self.admin.execute("select dp.protect('a', delta => 0.5), dp.protect('b', delta => 0.5)")
        self.roots = tuple(
            row[0] for row in self.admin.execute("select id from dp.root order by id").fetchall()
        )
        self.roles = tuple(
            self.admin.execute(f"select '{role}'::regrole::oid::int8").fetchone()[0]
            for role in ("alice", "bob")
        )
        for role in self.roles:
            self.grant(role, "100")
        for root in self.roots:
            self.allow(root, MANY)

    def grant(
        self,
        role: int,
        epsilon: str,
        delta: str = "0.5",
        composition: str = "basic",
        window: timedelta | None = None,
    ) -> Limits:
        self.admin.execute(
            "select dp.grant_budget(%s::oid::regrole, %s, %s, %s, %s)",
            (role, epsilon, delta, composition, window),
        )
        row = self.admin.execute(
            "select coalesce(b.rho_limit, b.epsilon), b.delta - b.delta_reserved, b.composition"
            " from dp.role_budget b join dp.principal p on p.id = b.principal and p.role_oid = %s",
            (role,),
        ).fetchone()
        return _limits(row)

    def revoke(self, role: int) -> None:
        self.admin.execute("select dp.revoke_budget(%s::oid::regrole)", (role,))

    def advance(self, time: timedelta) -> None:
        """Move everything that the ledger compares with the clock back."""
        self.admin.execute(
            "update dp.role_budget set window_anchor = window_anchor - %s::interval", (time,)
        )
        self.admin.execute(
            "update dp.role_total set window_start = window_start - %(time)s::interval,"
            " window_end = window_end - %(time)s::interval",
            {"time": time},
        )
        self.admin.execute("update dp.loss set recorded_at = recorded_at - %s::interval", (time,))

    def cap(
        self, root: int, epsilon: str | None, delta: str = "0.5", composition: str = "basic"
    ) -> Limits:
        self.admin.execute(
            "select dp.set_root_cap(relation, %s, %s, %s) from dp.policy where root = %s",
            (epsilon, delta, composition, root),
        )
        row = self.admin.execute(
            "select coalesce(rho_limit, epsilon_cap), delta_cap - delta_reserved, composition"
            " from dp.root where id = %s",
            (root,),
        ).fetchone()
        return _limits(row)

    def keep(self, root: int, lifetime: timedelta | None) -> None:
        self.admin.execute(
            "select dp.set_answer_lifetime(relation, %s) from dp.policy where root = %s",
            (lifetime, root),
        )

    def allow(self, root: int, failures: int, in_all: int | None = None) -> None:
        self.admin.execute(
            "select dp.set_failure_limit(relation, %s, %s) from dp.policy where root = %s",
            (failures, in_all, root),
        )

    def resume(self, role: int | None, root: int) -> None:
        self.admin.execute(
            "select dp.resume(%s::oid::regrole, relation) from dp.policy where root = %s",
            (role, root),
        )

    def session(self, **settings: str) -> LedgerStore:
        store = LedgerStore(Connection(self.database, **settings), wait=120)
        self.sessions.append(store)
        return store

    def end(self, session: Ledger) -> None:
        assert isinstance(session, LedgerStore)
        session.transactions.close()

    def _total(self, sql: str, number: int) -> Fraction:
        row = self.admin.execute(sql, (number,)).fetchone()
        return Fraction(row[0]) if row else Fraction(0)

    def spent(self, role: int) -> Fraction:
        return self._total(
            "select t.epsilon from dp.role_total t join dp.principal p on p.id = t.principal"
            " where p.role_oid = %s",
            role,
        )

    def lost(self, root: int) -> Fraction:
        return self._total("select epsilon from dp.root_total where root = %s", root)

    def misplace(self) -> None:
        self.admin.execute("update dp.ledger_incarnation set token = gen_random_uuid()")


def _limits(row: Any) -> Limits:
    return Limits(None if row[0] is None else Fraction(row[0]), Fraction(row[1]), row[2])


@pytest.fixture
def harness(database: Any) -> Iterator[ServerHarness]:
    harness = ServerHarness(database)
    yield harness
    for session in harness.sessions:
        session.transactions.close()


class TestLedgerStore(LedgerContract):
    pass


class TestFailuresOfTheStore(FailureContract):
    pass


class TestWindowsOfTheStore(WindowContract):
    pass


def test_a_blocked_ledger_gives_up_and_nothing_is_spent(harness: ServerHarness) -> None:
    blocker = harness.database.connect(autocommit=False)
    blocker.execute("lock table dp.role_total in exclusive mode")
    with pytest.raises(LedgerUnavailable) as caught:
        harness.session(lock_timeout="50ms").open(harness.charge())
    assert "55P03" in (caught.value.detail or "")
    blocker.rollback()
    assert harness.spent(harness.roles[0]) == 0


def test_answers_of_a_role_have_limited_room(harness: ServerHarness) -> None:
    harness.admin.execute(
        "create or replace function dp.ledger_room() returns bigint language sql return 250000"
    )
    ledger = harness.session()
    for role, number in ((1, 0), (0, 1), (0, 2), (0, 3), (0, 4)):
        opened = ledger.open(harness.charge(b"%d" % number, role))
        assert isinstance(opened, Charged)
        ledger.finish(opened, "x" * (10 if number == 1 else 100_001))
    kept = "select s.question is not null, length(a.payload) from dp.answer as a join dp.spend as s on s.id = a.spend order by s.id"
    assert harness.admin.execute(kept).fetchall() == [
        (True, n) for n in (100_001, 100_001, 100_001)
    ]
    ledger.finish(ledger.open(harness.charge(b"5")), "x" * 200_000)
    assert harness.admin.execute(kept).fetchall() == [(True, n) for n in (100_001, 200_000)]
    assert isinstance(ledger.open(harness.charge(b"2")), Charged)
    assert harness.spent(harness.roles[0]) == 6
    # what another role has paid for stays as long as it is in the room of that one
    assert ledger.open(harness.charge(b"5", 1)).charged
    for number in (6, 7):
        ledger.finish(ledger.open(harness.charge(b"%d" % number)), "x" * 200_000)
    sizes = [size for _, size in harness.admin.execute(kept).fetchall()]
    assert sizes == [100_001, 200_000, 200_000]
    assert not ledger.open(harness.charge(b"5", 1)).charged
    assert ledger.open(harness.charge(b"7", 1)).charged
    ledger.finish(ledger.open(harness.charge(b"8")), "x" * 200_000)
    sizes = [size for _, size in harness.admin.execute(kept).fetchall()]
    assert sizes == [100_001, 200_000, 200_000]  # 5 is in no room any more, 7 in one


def test_small_answers_take_room_as_well(harness: ServerHarness) -> None:
    harness.admin.execute(
        "create or replace function dp.ledger_room() returns bigint language sql return 250"
    )
    ledger = harness.session()
    for number in range(4):
        ledger.finish(ledger.open(harness.charge(b"%d" % number)), "x" * 100)
    # as one in a hundred answers does it
    harness.admin.execute("select dp.ledger_make_room(principal) from dp.spend limit 1")
    assert harness.admin.execute("select count(payload) from dp.answer").fetchone() == (2,)
