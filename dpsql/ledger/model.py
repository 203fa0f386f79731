"""Records that go into and come out of a ledger, and the port itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Protocol

from dpsql.errors import DpsqlError


@dataclass(frozen=True, slots=True)
class Charge:
    """A question with its quote, before anything private is read (PRIVACY.md section 7).

    Attributes
    ----------
    role, role_name : int, str
        OID and name of the role in effect at execution; it pays.
    roots : tuple of int
        Ledger roots of all private relations that the question reads; each pays.
    epsilon, delta : Fraction
        The quote, exact.
    rho, rho_delta : Fraction or None
        The quote under zCDP: ``rho_delta``-approximate ``rho``-zCDP.  ``None`` for a mechanism
        of which nothing better than (epsilon, delta) is known; the ledger then derives both.
    mechanism, method, label : str
        What will answer; ``label`` is ``proved`` or ``heuristic``.
    question : str
        The text that the ledger shows to the role itself and to owners.
    key : bytes
        Identity of the question; everything that determines the law of its answer.
    fresh : bool
        Pay for a new answer even if one is stored.
    text_key : bytes or None
        Identity of the exact text, for `Ledger.peek`.
    what : str
        What is charged: a ``question``, a ``release``, or a ``share`` of one that exists, which
        an owner asks for and another role pays.  Refusals speak of it.
    objects, token : tuple of int, bytes or None
        What the question names, by OID, and a hash of what is declared of it now: when that is
        another one nobody finds the stored answer any more, and `Ledger.purge` deletes it.
    shared : int or None
        The spend that measured what the role is shown: it pays once for it, however often and
        under whatever name it is shown.
    covers : str or None
        Which accounts pay for rows of which relations, as ``dp.coverage`` says, in JSON.
    fingerprint : str or None
        The fingerprint of ``objects`` in the snapshot of the statement, under which facts about
        them may be kept; ``None``: they are looked up.
    """

    role: int
    role_name: str
    roots: tuple[int, ...]
    epsilon: Fraction
    delta: Fraction
    mechanism: str
    method: str
    label: str
    question: str
    key: bytes
    fresh: bool = False
    text_key: bytes | None = None
    rho: Fraction | None = None
    rho_delta: Fraction | None = None
    what: str = "question"
    objects: tuple[int, ...] = ()
    token: bytes | None = None
    shared: int | None = None
    covers: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored answer that the role has paid for: now, if ``charged``, else before."""

    spend: int
    payload: str
    taken_at: datetime
    charged: bool = False


@dataclass(frozen=True, slots=True)
class Charged:
    """A durable charge whose answer must now be computed, then finished or failed.

    Attributes
    ----------
    spend : int
        Its number.
    """

    spend: int


@dataclass(frozen=True, slots=True)
class Account:
    """What the asking role may spend and has spent.

    The loss is epsilon under ``basic`` composition and rho under ``zcdp``.  Where the budget has
    windows (``window``: their length in words) limits and sums are those of the one that ends at
    ``window_end``.
    """

    composition: str
    budget_loss: Fraction
    budget_delta: Fraction
    spent_loss: Fraction
    spent_delta: Fraction
    window: str | None = None
    window_end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cap:
    """A relation whose cap refuses a question, and whether it would refuse any other as well.

    ``failures`` is the limit on failed questions, if the relation refuses because of them.
    """

    relation: str
    exhausted: bool
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What asking a question now would meet; nothing is charged.

    Attributes
    ----------
    account : Account or None
        The role's, before the charge; ``None`` where the ledger does not get so far.
    stored : bool
        Whether the answer is stored and the role has paid for it.
    refused : DpsqlError or None
        The refusal that the question would meet.
    by : str or None
        Whose account refuses, ``role`` or ``relation``; ``ledger`` where it is none of them.
    """

    account: Account | None
    stored: bool = False
    refused: DpsqlError | None = None
    by: str | None = None


class Ledger(Protocol):
    """Budgets, spends and stored answers."""

    def peek(self, role: int, text_key: bytes) -> Hit | None:
        """Return the stored answer for an exact text that the role has paid for."""
        ...

    def open(self, charge: Charge) -> Hit | Charged:
        """Return the stored answer of the question, or charge it durably.

        Waits while another session computes the answer.  After a failure of the role over one of
        the roots, also waits while its failures and open questions together reach the limit.

        Raises
        ------
        NoBudget, BudgetExceeded, TooManyFailures
            Refused; nothing was spent.
        UndeclaredRelation
            A root is not known to the ledger: its declaration is not committed.
        LedgerRestored
            The ledger came from a backup or a promoted standby.
        LedgerUnavailable
            It could not be reached in time.
        """
        ...

    def outlook(self, charge: Charge) -> Outlook:
        """Tell what `open` would say now, without waiting, charging or remembering anything.

        An answer that is stored for other roles only is charged, and its root caps are looked
        at, as if it were not stored.
        """
        ...

    def finish(self, charged: Charged, payload: str) -> datetime | None:
        """Store a perturbed answer; ``None`` if the charge is unknown or was given up."""
        ...

    def fail(self, charged: Charged, *, counts: bool = True) -> None:
        """Record that the computation has no answer; the charge is kept.  Never raises.

        With ``counts`` it is a failure of its role; without, the asker or a timeout ended it.
        """
        ...

    def purge(self) -> int:
        """Delete stored answers that have expired, giving nothing back; return how many."""
        ...
