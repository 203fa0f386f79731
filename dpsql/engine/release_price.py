"""Which mechanism a release uses and what it costs: public facts only (PRIVACY.md section 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engine.progress import Phase, Progress
from dpsql.engine.release_noise import MOST_EXACT, most_epsilon
from dpsql.engine.request import MAX_DELTA, Settings
from dpsql.errors import InvalidParameter
from dpsql.workload.names import AUTO, GAUSSIAN_ONLY

if TYPE_CHECKING:
    from dpsql.engine.release import Admitted
    from dpsql.engine.release_terms import Terms
    from dpsql.engine.services import Services
    from dpsql.workload.matrix import Order
    from dpsql.workload.mechanism import Budget, Mechanism

NOISES = {1: "laplace", 2: "gaussian"}
#: Noise from tables may cost such a part of delta where exact noise would take seconds at most.
_WORTH = 1000


@dataclass(frozen=True, slots=True)
class Priced:
    """A selected mechanism and what it costs; whether it is what a release takes."""

    mechanism: Mechanism
    epsilon: Fraction
    delta: Fraction
    rho: Fraction
    rho_delta: Fraction
    taken: bool = False

    @property
    def noise(self) -> str:
        """``laplace`` or ``gaussian``."""
        return NOISES[self.mechanism.budget.order]


def budgets(settings: Settings, rows: int, database: Any) -> list[Budget]:
    """Return what noise may cost: Gaussian where delta allows it, and Laplace."""
    from dpsql.workload.mechanism import Budget

    found = []
    rho = rho_of_settings(settings, database)
    if rho > 0:
        found.append(Budget(2, rho, rows))
    found.append(Budget(1, settings.epsilon, rows))
    return found


def rho_of_settings(settings: Settings, database: Any, parts: int = 1) -> Fraction:
    """Return the rho that epsilon and delta allow, 0 if none, after what noise from tables takes.

    ``parts`` mechanisms share it.
    """
    from dpsql.engine.release_noise import reserve

    if not settings.delta > 0:
        return Fraction(0)
    kept = settings.delta - reserve(settings.epsilon, parts)
    if kept <= 0:
        return Fraction(0)
    text = database.execute(
        "select dp.zcdp_rho($1, $2)::text as rho",
        [("numeric", _decimal(settings.epsilon)), ("numeric", _decimal(kept))],
    )[0][0]
    return Fraction(text)


def _decimal(value: Fraction) -> str:
    """Write an amount as a decimal, rounded down at 60 places."""
    scaled = value * 10**60 // 1
    digits = f"{int(scaled):061d}"
    return f"{digits[:-60]}.{digits[-60:]}"


def choose(
    admitted: Admitted,
    terms: Terms,
    settings: Settings,
    services: Services,
    progress: Progress,
    *,
    every: bool = False,
) -> tuple[list[Priced], list[tuple[str, str, str]]]:
    """Select the strategies of the mechanisms that are asked for, the best first.

    ``every`` looks at those too that cannot be the best, and at the one that is asked for.  One
    whose optimisation fails leaves the choice to the others.  Each is a round of the progress.

    Returns
    -------
    found : list of Priced
        By expected error; one of them is taken, which with ``every`` need not be the first.
    refused : list of (mechanism, noise, reason)
        Those that cannot answer.
    """
    from dpsql.workload.candidates import candidates, quick, taken, worth_trying
    from dpsql.workload.kept import Kept

    work = admitted.released.workload

    def needed(asked: Sequence[str], order: Order) -> Sequence[str]:
        needless = GAUSSIAN_ONLY if order == 1 and settings.delta > 0 else ()
        return tuple(name for name in asked if name not in needless)

    def released(order: Order) -> Sequence[str]:
        return needed(_named(terms) or worth_trying(work, order), order)

    def names(order: Order) -> Sequence[str]:
        if every:
            return needed(tuple(dict.fromkeys((*quick(work), *_named(terms)))), order)
        return released(order)

    allowed = budgets(settings, admitted.rows, services.database)
    progress.phase(Phase.SELECTING, sum(len(names(b.order)) for b in allowed))
    done = 0

    def rounds(order: Order) -> Iterator[str]:
        nonlocal done
        for name in names(order):
            yield name
            done += 1
            progress.rounds(done)

    found, refused = candidates(
        work,
        allowed,
        services.database.tick,
        rounds,
        best=not (every or _named(terms)),
        kept=Kept(services.strategies),
    )
    reasons = [(name, NOISES[b.order], reason(error)) for name, b, error in refused]
    if settings.delta > 0 and all(b.order == 1 for b in allowed):
        reasons += [(name, NOISES[2], _too_small(settings)) for name in names(2)]
    priced = []
    for mechanism in found:
        try:
            priced.append(_priced(mechanism, settings))
        except InvalidParameter as error:
            reasons.append((mechanism.name, NOISES[mechanism.budget.order], reason(error)))
    # a release ends its search near a bound, and may miss a little
    if every:
        found = taken(work, allowed, found, refused, released, best=not _named(terms))
    one = next((p for m in found for p in priced if p.mechanism is m), None)
    if one and not every:
        _tell_failures([error for _, _, error in refused], one, services)
    return [replace(p, taken=p is one) for p in priced], reasons


def _named(terms: Terms) -> tuple[str, ...]:
    return () if terms.mechanism == AUTO else (terms.mechanism,)


def _tell_failures(refused: Sequence[InvalidParameter], best: Priced, services: Services) -> None:
    """Say that a better strategy may have been missed: workload and levels are public."""
    from dpsql.workload.candidates import SelectionFailed

    for error in refused:
        if isinstance(error, SelectionFailed):
            services.note(f"{error.message}; {best.mechanism.name} is used")


def _too_small(settings: Settings) -> str:
    """Say why there is no Gaussian noise: tables need a part of delta for themselves."""
    from dpsql.engine.release_noise import reserve

    most = most_epsilon(settings.delta)
    needed = reserve(settings.epsilon)
    ways = [f"epsilon of at most {most}"] if most else []
    if needed < MAX_DELTA:
        ways.append(f"delta above {float(needed):.2g}")
    return (
        f"at epsilon {float(settings.epsilon):g} it needs more than delta"
        f" {float(settings.delta):g}. Give {' or '.join(ways)}"
    )


def reason(error: InvalidParameter) -> str:
    """Return a refusal as one text: what, why, and what to do."""
    told = f"{error.message}: {error.detail}" if error.detail else error.message
    if not error.hint:
        return told
    return f"{told.removesuffix('.')}. {error.hint}"


def told(refused: Sequence[tuple[str, str, str]]) -> str:
    """List why mechanisms cannot answer, each reason once."""
    noises: dict[tuple[str, str], list[str]] = {}
    for name, noise, why in refused:
        noises.setdefault((name, why), []).append(noise)
    return "\n".join(
        f"{name} with {' or '.join(found)} noise: {why}" for (name, why), found in noises.items()
    )


def _priced(mechanism: Mechanism, settings: Settings) -> Priced:
    """Price a mechanism with the noise that it will have (docs/proofs/wide_noise.md)."""
    from dpsql.core.composition import rho_of
    from dpsql.engine.release_noise import added, zcdp

    if mechanism.budget.order == 2:
        price = zcdp(mechanism)
        return Priced(mechanism, settings.epsilon, settings.delta, price.rho, price.delta)
    epsilon = mechanism.loss
    delta = added(mechanism, epsilon)  # refuses what does not fit 64 bits, however it is drawn
    if delta > settings.delta / _WORTH and mechanism.draws <= MOST_EXACT:
        delta = Fraction(0)  # each is drawn from the exact law
    elif delta > settings.delta:
        raise InvalidParameter(
            f"it draws {mechanism.draws} numbers, and more than {MOST_EXACT} "
            + (
                f"need a delta of at least {float(delta):.2g}"
                if delta <= MAX_DELTA
                else "are not drawn at such an epsilon"
            )
        )
    return Priced(mechanism, epsilon, delta, rho_of(epsilon), delta)
