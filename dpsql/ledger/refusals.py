"""What a refused charge tells the asker: its own numbers, never those of other roles."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpsql.errors import (
    BudgetExceeded,
    DpsqlError,
    LedgerRestored,
    LedgerUnavailable,
    NoBudget,
    UndeclaredRelation,
)
from dpsql.ledger.amounts import amount_text, generic_rho
from dpsql.ledger.model import Account, Cap, Charge, Outlook

_SHORT = Context(prec=3, rounding=ROUND_FLOOR)


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
    status: str, charge: Charge, account: Account | None = None, cap: Cap | None = None
) -> DpsqlError:
    """Return the error for a status of ``dp.ledger_open`` that refuses a charge."""
    name = charge.role_name
    if status == "no_budget":
        return NoBudget(
            f'role "{name}" has no privacy budget in this database',
            detail="A budget counts once the transaction that granted it has committed.",
        )
    if status == "exceeded_role" and account is not None:
        unit = "rho" if account.composition == "zcdp" else "epsilon"
        return BudgetExceeded(
            f'privacy budget of role "{name}" exceeded',
            detail=(
                f"The question costs {_cost(charge, account.composition)}; left are"
                f" {unit} = {_left(account.budget_loss, account.spent_loss)} and"
                f" delta = {_left(account.budget_delta, account.spent_delta)}{_place(account)}."
            ),
            hint=_smaller(account, charge),
        )
    if status == "exceeded_root":
        return _exceeded(charge, cap)
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
    status: str, charge: Charge, account: Account | None = None, cap: Cap | None = None
) -> Outlook:
    """Return what a status means before anything is asked."""
    if status in ("hit", "charged"):
        return Outlook(account, stored=status == "hit")
    by = {"no_budget": "role", "exceeded_role": "role", "exceeded_root": "relation"}
    refused = refusal(status, charge, account, cap)
    return Outlook(account, refused=refused, by=by.get(status, "ledger"))


def unavailable(detail: str, hint: str | None = None) -> LedgerUnavailable:
    """Return the error for a ledger that cannot be used now."""
    return LedgerUnavailable("the privacy ledger is not available", detail=detail, hint=hint)


def _exceeded(charge: Charge, cap: Cap | None) -> BudgetExceeded:
    """Name the relation: ``dp.relations`` shows everybody what a question is charged to."""
    name = "a protected relation" if cap is None else f"relation {cap.relation}"
    argument = "relation" if cap is None else "'" + cap.relation.replace("'", "''") + "'"
    owner = f"the owner for SELECT dp.set_root_cap({argument}, epsilon, delta)"
    cost = f"The question costs {_cost(charge)}"
    if cap is not None and cap.exhausted:
        return BudgetExceeded(
            f"privacy budget of {name} exceeded",
            detail=f"{cost}; its owner's cap leaves nothing for any role.",
            hint=f"Ask {owner}; answers that are stored stay free for those who paid for them.",
        )
    return BudgetExceeded(
        f"privacy budget of {name} exceeded",
        detail=f"{cost}, more than its owner's cap leaves for all roles.",
        hint=(
            "Ask with a smaller dp.epsilon or dp.delta (0 where the question allows it), or ask"
            f" {owner}."
        ),
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
    wait = ""
    if account.window_end is not None:
        wait = f"wait for the next window, which begins at {shown_time(account.window_end)}, "
    if account.budget_loss - account.spent_loss <= 0:
        ask = "Ask" if not wait else f"{wait[0].upper()}{wait[1:]}or ask"
        return f"{ask} the owner of the data for more budget; answers that are stored stay free."
    fitting = _fitting(account, charge)
    ask = f"at most dp.epsilon = {fitting}" if fitting else "a smaller dp.epsilon or dp.delta"
    if fitting and charge.delta > account.budget_delta - account.spent_delta:
        ask += " and a smaller dp.delta"
    return (
        f"Ask with {ask}, {wait}or ask the owner for more budget; answers that are stored stay"
        " free."
    )


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
    return f"{exact:.6g}" if len(exact.as_tuple().digits) > 6 else f"{exact:g}"
