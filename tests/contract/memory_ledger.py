"""A ledger in memory with the same contract, for tests of what is above it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from dpsql.ledger.amounts import generic_rho
from dpsql.ledger.model import Account, Charge, Charged, Hit, Outlook
from dpsql.ledger.refusals import outlook, refusal


@dataclass(slots=True)
class _Answer:
    """The stored answer of one question, and who computes a new one."""

    hit: Hit | None = None
    charge: Charge | None = None
    payers: set[int] = field(default_factory=set)
    pending: int | None = None
    holder: object = None


@dataclass(slots=True)
class _Spend:
    charge: Charge
    state: str = "charged"


@dataclass(frozen=True, slots=True)
class Limits:
    """What an account may hold: epsilon and delta, or rho and its delta (``None``: no limit).

    With a ``window`` it may hold so much in each of that length, the first from ``anchor`` on.
    """

    loss: Fraction | None
    delta: Fraction
    composition: str = "basic"
    window: timedelta | None = None
    anchor: datetime | None = None


@dataclass(slots=True)
class Window:
    """A window in which a role was charged, and what it spent there."""

    start: datetime | None
    end: datetime
    spent: Spent


@dataclass(slots=True)
class Spent:
    """Sums of both prices of an account's spends."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    rho_delta: Fraction = Fraction(0)

    def under(self, composition: str) -> tuple[Fraction, Fraction]:
        """Return the sums that a composition limits."""
        return (self.rho, self.rho_delta) if composition == "zcdp" else (self.epsilon, self.delta)

    def plus(self, cost: Spent) -> Spent:
        """Return the sums with one more spend."""
        return Spent(
            self.epsilon + cost.epsilon,
            self.delta + cost.delta,
            self.rho + cost.rho,
            self.rho_delta + cost.rho_delta,
        )

    def add(self, cost: Spent) -> None:
        """Add one spend."""
        self.epsilon += cost.epsilon
        self.delta += cost.delta
        self.rho += cost.rho
        self.rho_delta += cost.rho_delta


@dataclass(slots=True)
class Books:
    """What several `MemoryLedger` of one database share."""

    budgets: dict[int, Limits] = field(default_factory=dict)
    caps: dict[int, Limits] = field(default_factory=dict)
    lifetimes: dict[int, timedelta] = field(default_factory=dict)
    spent: dict[int, Spent] = field(default_factory=dict)
    lost: dict[int, Spent] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)
    late: timedelta = timedelta(0)
    in_place: bool = True
    spends: dict[int, _Spend] = field(default_factory=dict)
    # charges without an answer; who computes them (None: they failed)
    failures: dict[int, object] = field(default_factory=dict)
    resumed: set[tuple[int, int]] = field(default_factory=set)
    failure_limits: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    answers: dict[bytes, _Answer] = field(default_factory=dict)
    texts: dict[bytes, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def now(self) -> datetime:
        """Tell the time by a clock that tests may set."""
        return datetime.now(timezone.utc) + self.late

    def resume(self, role: int | None, root: int) -> None:
        """Let the failures of a role, or of all, count no more."""
        for number, holder in self.failures.items():
            if holder is None and role in (None, self.spends[number].charge.role):
                self.resumed.add((number, root))

    def stopped(self, role: int, roots: tuple[int, ...], session: object) -> str | None:
        """Tell what failures say to one more charge, as dp.ledger_stopped does."""
        found = []
        for root in roots:
            one, every = self.failure_limits.get(root, (3, None))
            for limit, whose, status in ((one, role, "stopped"), (every, None, "stopped_all")):
                open_or_failed = [
                    holder in (None, session)
                    for number, holder in self.failures.items()
                    if whose in (None, self.spends[number].charge.role)
                    and root in self.spends[number].charge.roots
                    and (number, root) not in self.resumed
                ]
                failed = sum(open_or_failed)
                if limit is not None and failed >= limit:
                    found.append(status)
                elif limit is not None and failed and len(open_or_failed) >= limit:
                    found.append("crowded")
        return min(found, key=lambda status: status == "crowded", default=None)

    def running(self, role: int) -> Window | None:
        """Return what counts for a role whose budget has windows, as dp.running_window does."""
        limits, known, now = self.budgets[role], self.windows.get(role), self.now()
        if limits.window is None or limits.anchor is None:
            return None
        start = _begun(limits.anchor, limits.window, now)
        if known is None and start == limits.anchor:
            return Window(None, start + limits.window, replace(self.spent.get(role, Spent())))
        if known is None or known.end <= min(start, now):
            return Window(start, start + limits.window, Spent())
        end = _begun(limits.anchor, limits.window, known.end)
        return replace(known, end=end if end >= known.end else end + limits.window)


def _begun(anchor: datetime, length: timedelta, moment: datetime) -> datetime:
    return anchor + max((moment - anchor) // length, 0) * length


def _own_key(key: bytes, role: int) -> bytes:
    return key + b" of role %d" % role


class MemoryLedger:
    """One session's view of `Books`; see `dpsql.ledger.model.Ledger`."""

    def __init__(
        self,
        books: Books,
        *,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._books = books
        self._tick = tick

    def peek(self, role: int, text_key: bytes) -> Hit | None:
        """See `dpsql.ledger.model.Ledger.peek`."""
        books = self._books
        with books.lock:
            key = books.texts.get(text_key, b"")
            if not books.in_place or role not in books.budgets:
                return None
            return self._paid(key, role)

    def open(self, charge: Charge) -> Hit | Charged:
        """See `dpsql.ledger.model.Ledger.open`."""
        while (opened := self._try(charge)) is None:
            time.sleep(0.002)
            self._tick()
        return opened

    def outlook(self, charge: Charge) -> Outlook:
        """See `dpsql.ledger.model.Ledger.outlook`."""
        books = self._books
        with books.lock:
            if not books.in_place:
                return outlook("restored", charge)
            if charge.role not in books.budgets:
                return outlook("no_budget", charge)
            account = self._account(charge.role)
            if any(root not in books.caps for root in charge.roots):
                return outlook("unknown_root", charge, account)
            if not charge.fresh and self._paid(charge.key, charge.role):
                return outlook("hit", charge, account)
            status = self._status(charge.role, _cost(charge), frozenset(charge.roots))
            stopped = books.stopped(charge.role, charge.roots, self)
            if status is None and stopped != "crowded":
                status = stopped
            return outlook(status or "charged", charge, account)

    def finish(self, charged: Charged, payload: str) -> datetime | None:
        """See `dpsql.ledger.model.Ledger.finish`."""
        books = self._books
        with books.lock:
            books.failures.pop(charged.spend, None)
            spend = books.spends.get(charged.spend)
            if spend is None or spend.state != "charged":
                return None
            spend.state = "answered"
            now = datetime.now(timezone.utc)
            answer, role = books.answers[spend.charge.key], spend.charge.role
            if answer.pending == charged.spend:
                if self._others_paid(answer, role):
                    answer.pending = answer.holder = None
                    spend.charge = replace(spend.charge, key=_own_key(spend.charge.key, role))
                hit = Hit(charged.spend, payload, now)
                books.answers[spend.charge.key] = _Answer(hit, spend.charge, {role})
            return now

    def fail(self, charged: Charged, *, counts: bool = True) -> None:
        """See `dpsql.ledger.model.Ledger.fail`."""
        failures = self._books.failures
        with self._books.lock:
            self._give_up(charged.spend)
            if counts and charged.spend in failures:
                failures[charged.spend] = None
            elif failures.get(charged.spend) is not None:
                del failures[charged.spend]

    def purge(self) -> int:
        """See `dpsql.ledger.model.Ledger.purge`."""
        books = self._books
        with books.lock:
            expired = [a for a in books.answers.values() if a.hit and not self._valid(a)]
            for answer in expired:
                answer.hit = answer.charge = None
            return len(expired)

    def close(self) -> None:
        """End the session: what it was computing is given up."""
        with self._books.lock:
            for number, holder in self._books.failures.items():
                if holder is self:
                    self._books.failures[number] = None
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
            paid = None if charge.fresh else self._paid(charge.key, charge.role)
            if paid is not None:
                self._remember(charge)
                return paid
            key, answer = charge.key, books.answers.get(charge.key, _Answer())
            hit = None if charge.fresh else self._valid(answer)
            if hit is not None and answer.charge is not None:
                self._debit(charge, _cost(answer.charge), frozenset())
                answer.payers.add(charge.role)
                self._remember(charge)
                return replace(hit, charged=True)
            if not charge.fresh and answer.pending is not None and answer.holder is not self:
                return None
            self._require_budget(charge, _cost(charge), frozenset(charge.roots))
            stopped = books.stopped(charge.role, charge.roots, self)
            if stopped == "crowded":
                return None
            if stopped is not None:
                raise refusal(stopped, charge)
            self._debit(charge, _cost(charge), frozenset(charge.roots))
            if answer.pending is not None and answer.holder is self:
                self._give_up(answer.pending)
            awaited = answer.pending is not None and answer.holder is not self
            if charge.fresh and (awaited or self._others_paid(answer, charge.role)):
                key = _own_key(charge.key, charge.role)
                answer = books.answers.get(key, _Answer())
            number = next(books.numbers)
            books.spends[number] = _Spend(replace(charge, key=key))
            books.failures[number] = self
            answer.pending, answer.holder = number, self
            books.answers[key] = answer
            self._remember(charge)
            return Charged(number)

    def _paid(self, key: bytes, role: int) -> Hit | None:
        """Return the answer that the role has paid for: of its own and everybody's the newer."""
        answers = [self._books.answers.get(k, _Answer()) for k in (_own_key(key, role), key)]
        hits = [hit for a in answers if role in a.payers and (hit := self._valid(a)) is not None]
        return max(hits, key=lambda hit: hit.taken_at, default=None)

    def _others_paid(self, answer: _Answer, role: int) -> bool:
        """Tell whether other roles keep a stored answer."""
        return self._valid(answer) is not None and bool(answer.payers - {role})

    def _remember(self, charge: Charge) -> None:
        if charge.text_key is not None:
            self._books.texts[charge.text_key] = charge.key

    def _debit(self, charge: Charge, cost: Spent, roots: frozenset[int]) -> None:
        books = self._books
        self._require_budget(charge, cost, roots)
        window = books.running(charge.role)
        if window is None:
            books.windows.pop(charge.role, None)
        else:
            books.windows[charge.role] = replace(window, spent=window.spent.plus(cost))
        books.spent.setdefault(charge.role, Spent()).add(cost)
        for root in roots:
            books.lost.setdefault(root, Spent()).add(cost)

    def _require_budget(self, charge: Charge, cost: Spent, roots: frozenset[int]) -> None:
        status = self._status(charge.role, cost, roots)
        if status is not None:
            raise refusal(status, charge, self._account(charge.role))

    def _account(self, role: int) -> Account:
        books = self._books
        limits, window = books.budgets[role], books.running(role)
        spent = books.spent.get(role, Spent()) if window is None else window.spent
        return Account(
            limits.composition,
            limits.loss or Fraction(0),
            limits.delta,
            *spent.under(limits.composition),
            window=None if limits.window is None else _words(limits.window),
            window_end=None if window is None else window.end,
        )

    def _status(self, role: int, cost: Spent, roots: frozenset[int]) -> str | None:
        books, account = self._books, self._account(role)
        loss, delta = cost.under(account.composition)
        if (
            account.spent_loss + loss > account.budget_loss
            or account.spent_delta + delta > account.budget_delta
        ):
            return "exceeded_role"
        for root in roots:
            if _exceeds(books.caps[root], books.lost.get(root, Spent()), cost):
                return "exceeded_root"
        return None

    def _valid(self, answer: _Answer) -> Hit | None:
        if answer.hit is None or answer.charge is None:
            return None
        lifetimes = self._books.lifetimes
        age = datetime.now(timezone.utc) - answer.hit.taken_at
        fits = all(age < lifetimes[r] for r in answer.charge.roots if r in lifetimes)
        return answer.hit if fits else None


def _words(length: timedelta) -> str:
    return f"{length.days} day{'s' if length.days > 1 else ''}"


def _cost(charge: Charge) -> Spent:
    if charge.rho is None:
        return Spent(charge.epsilon, charge.delta, generic_rho(charge.epsilon), charge.delta)
    delta = charge.delta if charge.rho_delta is None else charge.rho_delta
    return Spent(charge.epsilon, charge.delta, charge.rho, delta)


def _exceeds(limits: Limits, spent: Spent, cost: Spent) -> bool:
    loss, delta = spent.under(limits.composition)
    more, more_delta = cost.under(limits.composition)
    over = limits.loss is not None and loss + more > limits.loss
    return over or delta + more_delta > limits.delta
