"""Release a workload: pay once, publish a table that costs nothing to read.

`release` reads: admit, look for a stored answer, choose a strategy, debit, measure in one snapshot,
keep what was measured, publish.  The strategy is a function of the workload and of public levels
(PRIVACY.md section 8); the charge is durable before any protected row is read (section 7); what is
published is a function of the noisy measurements (section 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql._version import __version__
from dpsql.engine.bounding import PROVED
from dpsql.engine.prepare import DEFAULT_COLLATION, check_collations, names_of
from dpsql.engine.progress import Command, Phase, Progress
from dpsql.engine.release_domain import Released, build
from dpsql.engine.release_noise import MOST_EXACT
from dpsql.engine.request import Role, Settings, exact
from dpsql.errors import (
    DeclarationsChanged,
    InvalidParameter,
    LedgerUnavailable,
    NotAnswerable,
    ReleaseFailed,
)
from dpsql.ledger.model import Charge, Hit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpsql.engine.services import Services
    from dpsql.query.asked import WorkloadQuestion
    from dpsql.workload.matrix import Floats, Order
    from dpsql.workload.mechanism import Budget, Mechanism

MECHANISMS = (
    *("auto", "identity", "workload", "opt_kron", "opt_m", "residual_planner"),
    *("opt_0", "eigen_design", "aim", "pairs"),
)
POSTPROCESS = ("none", "non_negative", "integral")
NOISES = {1: "laplace", 2: "gaussian"}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call of ``dp.release`` says beside the statement.

    ``epsilon`` and ``delta`` are ``None`` where the session's settings hold.
    """

    epsilon: str | None = None
    delta: str | None = None
    mechanism: str = "auto"
    postprocess: str = "none"
    weights: tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        epsilon: str | None,
        delta: str | None,
        mechanism: str | None,
        postprocess: str | None,
        weights: Sequence[float | None] | None,
    ) -> Terms:
        """Read the parameters of a call; NULL is what is not said."""
        if weights is not None and None in weights:
            raise InvalidParameter('parameter "weights" must not hold NULL')
        return cls(
            epsilon,
            delta,
            "auto" if mechanism is None else mechanism.lower(),
            "none" if postprocess is None else postprocess.lower(),
            None if weights is None else tuple(float(w) for w in weights if w is not None),
        )

    def settings(self, own: Settings) -> Settings:
        """Return the session's settings with what the call says in their place, checked.

        Raises
        ------
        InvalidParameter
            Names the parameter that is out of range.
        """
        changed: dict[str, Any] = {}
        if self.epsilon is not None:
            changed["epsilon"] = exact("epsilon", self.epsilon)
        if self.delta is not None:
            changed["delta"] = exact("delta", self.delta)
        found = replace(own, **changed)
        found.check()
        if self.mechanism not in MECHANISMS:
            raise InvalidParameter(
                f'parameter "mechanism" must be one of {", ".join(MECHANISMS)}',
                detail=f"Got {self.mechanism}.",
            )
        if self.postprocess not in POSTPROCESS:
            raise InvalidParameter(
                f'parameter "postprocess" must be one of {", ".join(POSTPROCESS)}',
                detail=f"Got {self.postprocess}.",
            )
        for weight in self.weights or ():
            if not 0 < weight < float("inf"):
                raise InvalidParameter(
                    'parameter "weights" must hold positive numbers', detail=f"Got {weight:g}."
                )
        return found


@dataclass(frozen=True, slots=True)
class Admitted:
    """A statement that can be released, over public levels."""

    text: str
    released: Released
    relations: tuple[int, ...]
    fingerprint: str
    rows: int

    @property
    def question(self) -> WorkloadQuestion:
        """What is asked."""
        return self.released.question


@dataclass(frozen=True, slots=True)
class Priced:
    """A selected mechanism and what it costs."""

    mechanism: Mechanism
    epsilon: Fraction
    delta: Fraction
    rho: Fraction
    rho_delta: Fraction

    @property
    def noise(self) -> str:
        """``laplace`` or ``gaussian``."""
        return NOISES[self.mechanism.budget.order]


def admit(text: str, terms: Terms, settings: Settings, services: Services) -> Admitted:
    """Validate a statement and read its public levels; touches no protected row."""
    from dpsql.query.workloads import analyse_workload

    analysis = services.catalog.analyze(text)
    try:
        question = analyse_workload(analysis, services.catalog)
    except NotAnswerable as error:
        error.query = str(analysis["sql"])
        raise
    if set(analysis["collations"]) - {0, DEFAULT_COLLATION}:
        check_collations([question.counted], services)
    _, relations = names_of(analysis, services)
    fingerprint = services.catalog.fingerprint(relations)
    rows = _rows_of_a_unit(question, settings)
    released = build(question, terms.weights, services.database)
    services.catalog.confirm(relations, fingerprint)
    return Admitted(str(analysis["sql"]), released, relations, fingerprint, rows)


def _rows_of_a_unit(question: WorkloadQuestion, settings: Settings) -> int:
    """Bound what one neighbour more or less changes: rows, or results of a privacy unit."""
    query = question.counted
    if query.unit is None or query.determined_by(frozenset({query.unit})):
        return 1
    chosen = int(settings.max_rows_contributed)
    if not chosen:
        raise InvalidParameter(
            "a privacy unit can have any number of rows in this release",
            detail="Noise must hide all of them, so that their number has to be bounded.",
            hint="SET dp.max_rows_contributed = 10, for example: of each unit as many rows count.",
        )
    return chosen


# -- price ------------------------------------------------------------------------------


def budgets(settings: Settings, rows: int, database: Any) -> list[Budget]:
    """Return what noise may cost: Gaussian where delta allows it, and Laplace."""
    from dpsql.engine.release_noise import reserve
    from dpsql.workload.mechanism import Budget

    found = []
    if settings.delta > 0:
        kept = settings.delta - reserve(settings.epsilon)
        if kept > 0:
            text = database.execute(
                "select dp.zcdp_rho($1, $2)::text as rho",
                [("numeric", _decimal(settings.epsilon)), ("numeric", _decimal(kept))],
            )[0][0]
            if Fraction(text) > 0:
                found.append(Budget(2, Fraction(text), rows))
    found.append(Budget(1, settings.epsilon, rows))
    return found


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

    ``every`` looks at those too that cannot be the best; each is a round of the progress.

    Returns
    -------
    found : list of Priced
        By expected error.
    refused : list of (mechanism, noise, reason)
        Those that cannot answer.
    """
    from dpsql.workload.candidates import candidates, quick, worth_trying

    released = admitted.released
    work = released.workload

    def names(order: Order) -> Sequence[str]:
        if terms.mechanism != "auto":
            return (terms.mechanism,)
        return quick(work) if every else worth_trying(work, order)

    allowed = budgets(settings, admitted.rows, services.database)
    progress.phase(Phase.SELECTING, sum(len(names(b.order)) for b in allowed))
    done = 0

    def rounds(order: Order) -> Iterator[str]:
        nonlocal done
        for name in names(order):
            yield name
            done += 1
            progress.rounds(done)

    found, refused = candidates(work, allowed, services.database.tick, rounds)
    reasons = [(name, NOISES[b.order], _reason(error)) for name, b, error in refused]
    if settings.delta > 0 and all(b.order == 1 for b in allowed):
        why = "delta is too small for it at such an epsilon"
        reasons += [(name, NOISES[2], why) for name in names(2)]
    priced = []
    for mechanism in found:
        if settings.delta == 0 and mechanism.draws > MOST_EXACT:
            why = f"it draws {mechanism.draws} numbers, and more than {MOST_EXACT} need delta > 0"
            reasons.append((mechanism.name, NOISES[mechanism.budget.order], why))
            continue
        try:
            priced.append(_priced(mechanism, settings))
        except InvalidParameter as error:  # noise that does not fit 64 bits
            reasons.append((mechanism.name, NOISES[mechanism.budget.order], _reason(error)))
    return priced, reasons


def _reason(error: InvalidParameter) -> str:
    told = f"{error.message}: {error.detail}" if error.detail else error.message
    if not error.hint:
        return told
    return f"{told.removesuffix('.')}. {error.hint}"


def _told(refused: Sequence[tuple[str, str, str]]) -> str:
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
    if settings.delta == 0:
        delta = Fraction(0)
    elif delta > settings.delta:
        raise InvalidParameter(
            "noise from tables costs more delta than is given",
            detail=f"It adds {float(delta):.3g}.",
            hint="Use a larger delta, or delta => 0, where every number is drawn exactly.",
        )
    return Priced(mechanism, epsilon, delta, rho_of(epsilon), delta)


# -- release ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured, with all that the published table is made of."""

    admitted: Admitted
    priced: Priced
    measured: list[Floats]
    spend: int
    postprocess: str
    progress: Progress


def release(
    text: str,
    terms: Terms,
    role: Role,
    own: Settings,
    services: Services,
    in_snapshot: Callable[[Callable[[], Any]], Any],
    ready: Callable[[Released], None] = lambda _: None,
) -> Outcome:
    """Measure a workload privately, or find it measured.

    Parameters
    ----------
    text : str
        The statement, as ``dp.deparse`` printed it.
    terms : Terms
        Budget and mechanism.
    role : Role
        Who pays.
    own : Settings
        The session's.
    services : Services
        The ports.
    in_snapshot : callable
        Runs a function whose reads all see one snapshot.
    ready : callable
        May refuse to publish such a workload, before anything is charged.

    Raises
    ------
    DpsqlError
        Nothing is spent unless it is `ReleaseFailed` or says so.
    """
    settings = terms.settings(own)
    admitted = admit(text, terms, settings, services)
    ready(admitted.released)
    progress = Progress.of(services.database, Command.RELEASE, admitted.question.counted)
    found, refused = choose(admitted, terms, settings, services, progress)
    if not found:
        raise NotAnswerable(
            "no mechanism can answer this workload",
            detail=_told(refused),
            hint="SELECT * FROM dp.plan_release('...') says what each mechanism can do.",
        )
    priced = found[0]
    if terms.postprocess != "none":
        from dpsql.workload.postprocessed import require_postprocessing

        require_postprocessing(priced.mechanism)
    from dpsql.engine.release_measure import dump, load, measure

    opened = services.ledger.open(_charge(admitted, priced, role, settings))
    if isinstance(opened, Hit):
        measured = load(opened.payload, priced.mechanism)
        return Outcome(admitted, priced, measured, opened.spend, terms.postprocess, progress)
    try:
        progress.phase(Phase.MEASURING)
        measured = in_snapshot(lambda: measure(admitted, priced, services, progress))
        _confirm(admitted, services)
        progress.phase(Phase.PUBLISHING)
    except BaseException:
        services.ledger.fail(opened)
        raise
    try:
        services.ledger.finish(opened, dump(measured))
    except LedgerUnavailable:
        services.warn(
            "what was measured could not be stored",
            "The release was charged and is published; the ledger went away meanwhile.",
            "Keep the table: releasing the same again is charged again.",
        )
    return Outcome(admitted, priced, measured, opened.spend, terms.postprocess, progress)


def _confirm(admitted: Admitted, services: Services) -> None:
    try:
        services.catalog.confirm(admitted.relations, admitted.fingerprint)
    except DeclarationsChanged:
        raise ReleaseFailed(
            "a relation or a declaration of the workload changed while it was measured",
            hint="Release again when the change is done.",
        ) from None


def _charge(admitted: Admitted, priced: Priced, role: Role, settings: Settings) -> Charge:
    return Charge(
        role=role.oid,
        role_name=role.name,
        roots=admitted.question.roots,
        epsilon=priced.epsilon,
        delta=priced.delta,
        rho=priced.rho,
        rho_delta=priced.rho_delta,
        mechanism=priced.noise,
        method=priced.mechanism.name,
        label=PROVED,
        question=admitted.text,
        key=_key(admitted, priced),
        fresh=settings.fresh,
    )


def _key(admitted: Admitted, priced: Priced) -> bytes:
    """Return what determines the law of the measurements, of what they cost, and of their form."""
    mechanism = priced.mechanism
    parts = (
        "release",
        __version__,
        admitted.fingerprint.rpartition("#")[0],
        admitted.question.block,
        repr([(level.keys, level.values) for level in admitted.released.attributes]),
        mechanism.name,
        repr(mechanism.budget),
        repr(mechanism.measurements),
        mechanism.identity,
        repr(admitted.question.roots),
        str(priced.epsilon),
        str(priced.delta),
    )
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
