"""What a refused charge tells the asker: its own numbers, never those of other roles."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpsql.errors import (
    BudgetExceeded,
    DpsqlError,
    LedgerRestored,
    LedgerUnavailable,
    NoBudget,
    TooManyFailures,
    UndeclaredRelation,
)
from dpsql.ledger.amounts import amount_text, generic_rho
from dpsql.ledger.model import Account, Cap, Charge, Outlook
from dpsql.relation import show_name

_SHORT = Context(prec=3, rounding=ROUND_FLOOR)
_ENOUGH = Context(prec=3, rounding=ROUND_CEILING)


@dataclass(frozen=True, slots=True)
class _Words:
    """How a refusal speaks of what was to be charged, and of its parameters."""

    what: str
    ask: str
    epsilon: str
    least: str
    delta: str
    free: str


_QUESTION = _Words(
    "question", "Ask", "dp.epsilon", "dp.epsilon =", "dp.delta", "answers that are stored stay free"
)
_RELEASE = _Words(
    "release", "Release", "epsilon", "epsilon =>", "delta", "what was released before stays free"
)
_SYNTHESIS = _Words(
    "synthesis", "Call it", "epsilon", "epsilon =>", "delta", "what was measured before stays free"
)


def _words(charge: Charge) -> _Words:
    return {"question": _QUESTION, "synthesis": _SYNTHESIS}.get(charge.what, _RELEASE)


def shown_time(moment: datetime) -> str:
    """Write a moment for a person, in UTC, in which windows are reckoned."""
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def restored() -> LedgerRestored:
    """Return the error of a ledger that nobody acknowledged after a restore."""
    return LedgerRestored(
        "the privacy ledger was restored or promoted and nobody acknowledged it",
        detail="Spends that were made since the backup may be missing from it.",
        hint="The owner of the data must run SELECT dp.acknowledge_restore('<what happened>').",
    )


def refusal(
    status: str,
    charge: Charge,
    account: Account | None = None,
    cap: Cap | None = None,
    told: str | None = None,
) -> DpsqlError:
    """Return the error for a status of ``dp.ledger_open`` that refuses a charge."""
    name = charge.role_name
    if status == "no_budget":
        return NoBudget(
            f'role "{name}" has no privacy budget in this database',
            detail="A budget counts once the transaction that granted it has committed.",
            hint=f"{_grant(charge, None)} gives it one." if charge.what == "share" else None,
        )
    if status == "exceeded_role" and account is not None:
        unit = "rho" if account.composition == "zcdp" else "epsilon"
        return BudgetExceeded(
            f'privacy budget of role "{name}" exceeded',
            detail=(
                f"The {_words(charge).what} costs {_cost(charge, account.composition)}; left are"
                f" {unit} = {_left(account.budget_loss, account.spent_loss)} and"
                f" delta = {_left(account.budget_delta, account.spent_delta)}{_place(account)}."
            ),
            hint=_smaller(account, charge),
        )
    if status == "other_notion":
        detail, _, hint = (told or "").partition("\n")
        return UndeclaredRelation(
            "what rows lost before is recorded under another declaration", detail=detail, hint=hint
        )
    if status == "exceeded_root":
        return _exceeded(charge, cap)
    if status in ("stopped", "stopped_all"):
        return _stopped(status, charge, cap)
    if status == "unknown_root":
        return UndeclaredRelation(
            "a relation of the question is not declared",
            detail="Its declaration is not committed, so the ledger cannot charge it.",
            hint="Commit the transaction that declares the relation, then ask again.",
        )
    if status == "restored":
        return restored()
    return unavailable(f'The ledger answered "{status}".')


def outlook(
    status: str,
    charge: Charge,
    account: Account | None = None,
    cap: Cap | None = None,
    told: str | None = None,
) -> Outlook:
    """Return what a status means before anything is asked."""
    if status in ("hit", "charged"):
        return Outlook(account, stored=status == "hit")
    by = {"no_budget": "role", "exceeded_role": "role", "exceeded_root": "relation"}
    by |= {"stopped": "role", "stopped_all": "relation", "other_notion": "relation"}
    refused = refusal(status, charge, account, cap, told)
    return Outlook(account, refused=refused, by=by.get(status, "ledger"))


def unavailable(detail: str, hint: str | None = None) -> LedgerUnavailable:
    """Return the error for a ledger that cannot be used now."""
    return LedgerUnavailable("the privacy ledger is not available", detail=detail, hint=hint)


def standby() -> LedgerUnavailable:
    """Return the error for a server that only replays what another one writes."""
    return unavailable(
        "This server is a standby, where nothing can be charged.",
        "Ask the primary server. What you were answered there before, and releases, can be read"
        " here.",
    )


def _exceeded(charge: Charge, cap: Cap | None) -> BudgetExceeded:
    """Name the relation: ``dp.relations`` shows everybody what a question is charged to."""
    name = "a protected relation" if cap is None else f"relation {cap.relation}"
    argument = "relation" if cap is None else "'" + cap.relation.replace("'", "''") + "'"
    owner = f"the owner for SELECT dp.set_root_cap({argument}, epsilon, delta)"
    words = _words(charge)
    cost = f"The {words.what} costs {_cost(charge)}"
    if cap is not None and cap.exhausted:
        return BudgetExceeded(
            f"privacy budget of {name} exceeded",
            detail=f"{cost}; its owner's cap leaves nothing for any role.",
            hint=f"Ask {owner}; {words.free} for those who paid for them.",
        )
    return BudgetExceeded(
        f"privacy budget of {name} exceeded",
        detail=f"{cost}, more than its owner's cap leaves for all roles.",
        hint=(
            f"{words.ask} with a smaller {words.epsilon} or {words.delta} (0 where the"
            f" {words.what} allows it), or ask {owner}."
        ),
    )


def _stopped(status: str, charge: Charge, cap: Cap | None) -> TooManyFailures:
    """Refuse because of failures; name the relation and the statement that its owner runs."""
    name, failed, relation = "a protected relation", "Too many", "relation"
    if cap is not None:
        name, failed = f"relation {cap.relation}", str(cap.failures)
        relation = "'" + cap.relation.replace("'", "''") + "'"
    asker = show_name(charge.role_name)
    if status == "stopped":
        whose, text = f'role "{charge.role_name}"', asker.replace("'", "''")
        resume = f"dp.resume('{text}', {relation})"
    else:
        whose, resume = "all roles", f"dp.resume(relation => {relation})"
    return TooManyFailures(
        f"too many questions of {whose} about {name} failed",
        detail=f"{failed} ended without an answer after they were charged; that is the limit.",
        hint=f"The owner of the data finds the causes in the server log and then runs"
        f" SELECT {resume}; {_words(charge).free}.",
    )


def _cost(charge: Charge, composition: str = "basic") -> str:
    loss, unit, delta = charge.epsilon, "epsilon", charge.delta
    if composition == "zcdp":
        loss, unit = generic_rho(charge.epsilon) if charge.rho is None else charge.rho, "rho"
        delta = charge.delta if charge.rho_delta is None else charge.rho_delta
    return f"{unit} = {_short(loss)} and delta = {_short(delta)}"


def _fitting(account: Account, charge: Charge) -> str:
    """Write the largest ``dp.epsilon`` that surely fits, with three digits; empty: none is known.

    A question of ``epsilon`` costs at most ``epsilon^2/2`` and at most ``epsilon`` of rho
    (docs/proofs/composition.md).
    """
    left = account.budget_loss - account.spent_loss
    if left <= 0:
        return ""
    found = _SHORT.divide(Decimal(left.numerator), Decimal(left.denominator))
    if account.composition == "zcdp":
        found = max(found, _root(2 * left))
    return f"{found:f}" if Decimal("1e-6") <= found < charge.epsilon else ""


def _root(square: Fraction) -> Decimal:
    """Return a root to three digits, rounded down."""
    long = Context(prec=50)
    root = _SHORT.plus(
        long.sqrt(long.divide(Decimal(square.numerator), Decimal(square.denominator)))
    )
    return _SHORT.next_minus(root) if Fraction(root) ** 2 > square else root


def _smaller(account: Account, charge: Charge) -> str:
    if charge.what == "share":
        return f"{_grant(charge, account)} gives the role enough."
    words, wait = _words(charge), ""
    if account.window_end is not None:
        wait = f"wait for the next window, which begins at {shown_time(account.window_end)}, "
    if account.budget_loss - account.spent_loss <= 0:
        ask = "Ask" if not wait else f"{wait[0].upper()}{wait[1:]}or ask"
        return f"{ask} the owner of the data for more budget; {words.free}."
    fitting = _fitting(account, charge)
    ask = f"a smaller {words.epsilon} or {words.delta}"
    if fitting:
        ask = f"at most {words.least} {fitting}"
        if charge.delta > account.budget_delta - account.spent_delta:
            ask += f" and a smaller {words.delta}"
    return f"{words.ask} with {ask}, {wait}or ask the owner for more budget; {words.free}."


def _grant(charge: Charge, account: Account | None) -> str:
    """Write the grant that would let a role pay, for the owner who shares a release with it."""
    role = show_name(charge.role_name).replace("'", "''")
    if account is None:
        loss, delta = charge.epsilon, charge.delta
    elif account.composition == "basic":
        loss = max(account.budget_loss, account.spent_loss + charge.epsilon)
        delta = max(account.budget_delta, account.spent_delta + charge.delta)
    else:  # limits in rho
        return f"SELECT dp.grant_budget('{role}', <epsilon>, <delta>) with more than it has"
    amounts = ", ".join(
        f"{name} => {_written(_ENOUGH.divide(Decimal(x.numerator), Decimal(x.denominator)))}"
        for name, x in (("epsilon", loss), ("delta", delta))
    )
    window = f", budget_window => '{account.window}'" if account and account.window else ""
    return f"SELECT dp.grant_budget('{role}', {amounts}{window})"


def _place(account: Account) -> str:
    if account.window is None or account.window_end is None:
        return ""
    return f" in the window of {account.window} that ends at {shown_time(account.window_end)}"


def _left(budget: Fraction, spent: Fraction) -> str:
    return _short(max(budget - spent, Fraction(0)))


def _short(value: Fraction) -> str:
    exact = Decimal(amount_text(value)).normalize()
    if exact == exact.to_integral_value():
        return f"{exact:f}"
    if len(exact.as_tuple().digits) > 6:
        exact = Decimal(f"{exact:.6g}").normalize()
    return _written(exact)


def _written(value: Decimal) -> str:
    short = value.normalize()
    return f"{short:f}" if short == short.to_integral_value() else f"{short:g}"
