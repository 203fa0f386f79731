"""A ledger in memory with the same contract, for tests of what is above it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from dpsql.ledger.model import Charge, Charged, Hit
from dpsql.ledger.refusals import Account, refusal


@dataclass(slots=True)
class _Answer:
    """The stored answer of one question, and who computes a new one."""

    hit: Hit | None = None
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    expires: datetime | None = None
    payers: set[int] = field(default_factory=set)
    pending: int | None = None
    holder: object = None


@dataclass(slots=True)
class _Spend:
    charge: Charge
    state: str = "charged"


@dataclass(slots=True)
class Books:
    """What several `MemoryLedger` of one database share."""

    budgets: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    caps: dict[int, tuple[Fraction | None, Fraction | None]] = field(default_factory=dict)
    spent: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    lost: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    in_place: bool = True
    spends: dict[int, _Spend] = field(default_factory=dict)
    answers: dict[bytes, _Answer] = field(default_factory=dict)
    texts: dict[bytes, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class MemoryLedger:
    """One session's view of `Books`; see `dpsql.ledger.model.Ledger`."""

    def __init__(
        self,
        books: Books,
        *,
        lifetime: timedelta | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._books = books
        self._lifetime = lifetime
        self._tick = tick

    def peek(self, role: int, text_key: bytes) -> Hit | None:
        """See `dpsql.ledger.model.Ledger.peek`."""
        books = self._books
        with books.lock:
            answer = books.answers.get(books.texts.get(text_key, b""))
            if not books.in_place or role not in books.budgets or answer is None:
                return None
            return _valid(answer) if role in answer.payers else None

    def open(self, charge: Charge) -> Hit | Charged:
        """See `dpsql.ledger.model.Ledger.open`."""
        while (opened := self._try(charge)) is None:
            time.sleep(0.002)
            self._tick()
        return opened

    def finish(self, charged: Charged, payload: str) -> datetime | None:
        """See `dpsql.ledger.model.Ledger.finish`."""
        books = self._books
        with books.lock:
            spend = books.spends.get(charged.spend)
            if spend is None or spend.state != "charged":
                return None
            spend.state = "answered"
            now = datetime.now(timezone.utc)
            answer = books.answers[spend.charge.key]
            if answer.pending == charged.spend:
                books.answers[spend.charge.key] = _Answer(
                    hit=Hit(charged.spend, payload, now),
                    epsilon=spend.charge.epsilon,
                    delta=spend.charge.delta,
                    expires=None if self._lifetime is None else now + self._lifetime,
                    payers={spend.charge.role},
                )
            return now

    def fail(self, charged: Charged) -> None:
        """See `dpsql.ledger.model.Ledger.fail`."""
        with self._books.lock:
            self._give_up(charged.spend)

    def close(self) -> None:
        """End the session: what it was computing is given up."""
        with self._books.lock:
            for answer in self._books.answers.values():
                if answer.holder is self and answer.pending is not None:
                    self._give_up(answer.pending)

    def _give_up(self, number: int) -> None:
        spend = self._books.spends.get(number)
        if spend is None or spend.state != "charged":
            return
        spend.state = "failed"
        answer = self._books.answers[spend.charge.key]
        if answer.pending == number:
            answer.pending = answer.holder = None

    def _try(self, charge: Charge) -> Hit | Charged | None:
        """Look up or charge; ``None`` while another session computes the answer."""
        books = self._books
        with books.lock:
            if not books.in_place:
                raise refusal("restored", charge)
            if charge.role not in books.budgets:
                raise refusal("no_budget", charge)
            if any(root not in books.caps for root in charge.roots):
                raise refusal("unknown_root", charge)
            answer = books.answers.get(charge.key, _Answer())
            hit = None if charge.fresh else _valid(answer)
            if hit is not None and charge.role in answer.payers:
                self._remember(charge)
                return hit
            if hit is not None:
                self._debit(charge, answer.epsilon, answer.delta, frozenset())
                answer.payers.add(charge.role)
                self._remember(charge)
                return hit
            if not charge.fresh and answer.pending is not None and answer.holder is not self:
                return None
            self._debit(charge, charge.epsilon, charge.delta, frozenset(charge.roots))
            if answer.pending is not None and answer.holder is self:
                self._give_up(answer.pending)
            number = next(books.numbers)
            books.spends[number] = _Spend(charge)
            answer.pending, answer.holder = number, self
            books.answers[charge.key] = answer
            self._remember(charge)
            return Charged(number)

    def _remember(self, charge: Charge) -> None:
        if charge.text_key is not None:
            self._books.texts[charge.text_key] = charge.key

    def _debit(
        self, charge: Charge, epsilon: Fraction, delta: Fraction, roots: frozenset[int]
    ) -> None:
        books = self._books
        nothing = (Fraction(0), Fraction(0))
        budget, spent = books.budgets[charge.role], books.spent.get(charge.role, nothing)
        if spent[0] + epsilon > budget[0] or spent[1] + delta > budget[1]:
            raise refusal("exceeded_role", charge, Account(*budget, *spent))
        for root in roots:
            lost, cap = books.lost.get(root, nothing), books.caps[root]
            if (cap[0] is not None and lost[0] + epsilon > cap[0]) or (
                cap[1] is not None and lost[1] + delta > cap[1]
            ):
                raise refusal("exceeded_root", charge)
        books.spent[charge.role] = (spent[0] + epsilon, spent[1] + delta)
        for root in roots:
            lost = books.lost.get(root, nothing)
            books.lost[root] = (lost[0] + epsilon, lost[1] + delta)


def _valid(answer: _Answer) -> Hit | None:
    if answer.expires is not None and answer.expires <= datetime.now(timezone.utc):
        return None
    return answer.hit
