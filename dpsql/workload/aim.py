"""AIM: choose a marginal, measure its residuals, reconstruct, until the budget is used.

papers/aim-grem.txt, Algorithms 4, 6 and 7; `selection.Estimates` is the reconstruction, by
generalised residuals (AIM+GReM) or by a graphical model (AIM+PGM, `model_estimates`).  Each round
pays ``epsilon^2 / 8`` for the choice and ``sum p_B / (2 sigma_B^2)`` for the residuals in
zero-concentrated differential privacy (PRIVACY.md section 8); everything else sees public values
only.  Sums of budget are exact fractions of what was really drawn: variances are rounded up,
epsilon down, and what a round did not use stays for the next ones.

The number of rows is never used: the total is measured like everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import sub_marginals
from dpsql.workload.conditional_planner import conditional_plan
from dpsql.workload.grem import Residuals
from dpsql.workload.lazy import LazyMarginals
from dpsql.workload.marginals import (
    Floats,
    attributes_of,
    downward_closure,
    mask_of,
    maximal,
    total_cells,
)
from dpsql.workload.residual_bases import Basis, Integers, Subtraction
from dpsql.workload.residual_planner import (
    ResidualPlan,
    exact_cost,
    measure,
    noise_shape,
    noise_variances,
)
from dpsql.workload.selection import Estimates, Selector
from dpsql.workload.supply import Choice, Gaussian, Marginals, Progress

#: Exact counts are kept for all candidates: 8 bytes a cell, and 8 for those estimated.
MAX_CELLS = 100_000_000

_EPSILON_BITS = 48


@dataclass(frozen=True)
class Round:
    """One round: what was chosen, what it measured, and what it used.

    Attributes
    ----------
    mask : int
        The marginal chosen.
    variances : dict
        ``sigma_B^2`` of the residuals measured.
    epsilon : Fraction
        The choice's budget.
    used : Fraction
        The rho of all rounds so far.
    """

    mask: int
    variances: dict[int, float]
    epsilon: Fraction
    used: Fraction


@dataclass(frozen=True)
class AimRelease:
    """What the mechanism publishes.

    Attributes
    ----------
    residuals : Residuals
        Estimates and precisions; `Residuals.marginals` has the tables.
    rounds : tuple of Round
        In order.
    rho : Fraction
        What was used, at most what was given.
    """

    residuals: Residuals
    rounds: tuple[Round, ...]
    rho: Fraction


@dataclass(frozen=True)
class Schedule:
    """How the budget is spread.

    Attributes
    ----------
    measure_share : float
        Of a round's budget, how much measures; the rest chooses (the paper: 0.9).
    rounds : int, optional
        The budget of the first rounds is the whole over twice this; the paper's is the
        number of candidates.
    start_share : float, optional
        Share of the whole budget for the one-way marginals; the paper's follows from `rounds`.
    anneal : bool
        Give rounds that no longer help a larger budget (Algorithm 7).
    """

    measure_share: float = 0.9
    rounds: int | None = None
    start_share: float | None = None
    anneal: bool = True


def aim(
    bases: Sequence[Basis],
    workload: Mapping[int, int],
    rho: Fraction,
    data: Marginals,
    gaussian: Gaussian,
    choose: Choice,
    *,
    schedule: Schedule | None = None,
    contribution: int = 1,
    estimates: Callable[[Residuals], Estimates] = LazyMarginals,
    progress: Progress | None = None,
    max_cells: int = MAX_CELLS,
) -> AimRelease:
    """Measure what a workload of marginals needs, adaptively.

    Parameters
    ----------
    bases : sequence of Basis
        One per attribute: `residual_bases.subtraction`.
    workload : mapping of mask to int
        Marginals wanted, with positive integer weights.
    rho : Fraction
        The budget, zero-concentrated.
    data, gaussian, choose
        See `dpsql.workload.supply`.  One batch is read, of the workload's maximal marginals.
    schedule : Schedule, optional
        The paper's by default.
    contribution : int
        By how many rows neighbours differ at most: 1 for row neighbours.
    estimates : callable
        What rounds compare with the data, and which marginals they may measure: reconstruction
        by GReM-MLE by default, by a graphical model for AIM+PGM.
    progress : Progress, optional
        Told after the start and after every round; may raise.
    max_cells : int
        Limit of the number of cells of all candidates.

    Raises
    ------
    InvalidParameter
        If the workload, the budget or a basis does not fit, or memory would not.
    """
    run = _Run(bases, workload, rho, gaussian, schedule or Schedule(), contribution)
    check_cells(run.sizes, run.candidates, max_cells)
    whole = data.batch(maximal(workload))
    tables: dict[int, Integers] = {
        mask: np.asarray(table, dtype=np.int64)
        for mask, table in sub_marginals(whole, run.sizes).items()
    }
    selector = Selector(run.sizes, workload, tables, contribution)
    run.start(tables)
    current = estimates(run.residuals)
    tell = progress or _silent
    tell(0, run.used, rho)
    while (budget := run.next_budget()) is not None:
        epsilon, cost = budget
        total = float(run.residuals.values[0])
        share = float((run.used + epsilon * epsilon / 8 + cost / 2) / rho)
        mask = selector.select(current, epsilon, 1.0 / float(cost), total, choose, share)
        run.used += epsilon * epsilon / 8
        before = current[mask].copy()
        variances, changes = run.measure(mask, cost, tables)
        selector.changed(current.changed(changes))
        run.rounds.append(Round(mask, variances, epsilon, run.used))
        if not run.last:
            run.anneal(float(np.abs(current[mask] - before).sum()), before.size, float(cost))
        tell(len(run.rounds), run.used, rho)
    return AimRelease(run.residuals, tuple(run.rounds), run.used)


class _Run:
    """The state of one run: estimates, rounds, and what is left."""

    def __init__(
        self,
        bases: Sequence[Basis],
        workload: Mapping[int, int],
        rho: Fraction,
        gaussian: Gaussian,
        schedule: Schedule,
        contribution: int,
    ) -> None:
        _check(bases, workload, rho, contribution)
        self.bases = tuple(bases)
        self.sizes = [basis.size for basis in bases]
        self.candidates = downward_closure(workload)
        self.rho, self.gaussian, self.schedule = rho, gaussian, schedule
        self.residuals = Residuals(self.bases)
        self.rounds: list[Round] = []
        self.used = Fraction(0)
        self._square = contribution * contribution
        self.last = False
        # Algorithm 4, lines 4 and 6: measuring pays 1 / (2 sigma^2), choosing epsilon^2 / 8
        self._round = float(rho) / (2 * (schedule.rounds or len(self.candidates)))

    def start(self, tables: Mapping[int, Integers]) -> None:
        """Measure the one-way marginals (Algorithm 6).

        The paper measures the total once per attribute, with ``n_i`` times the variance, and
        averages; one measurement with the sum of the precisions is the same.
        """
        single = [i for i, n in enumerate(self.sizes) if n > 1 and mask_of([i]) in self.candidates]
        share = self.schedule.start_share
        each = self._round * self.schedule.measure_share
        if share is not None:
            each = share * float(self.rho) / max(1, len(single))
        precision = 2 * each / self._square
        spread = sum(1 / self.sizes[i] for i in single) or 1.0
        variances = {0: 1 / (precision * spread)}
        variances |= {mask_of([i]): 1 / precision for i in single}
        self._buy(variances, tables)

    def next_budget(self) -> tuple[Fraction, Fraction] | None:
        """Return epsilon and the cost ``1 / sigma^2`` of the next round (Algorithm 7)."""
        left = self.rho - self.used
        if self.last or left <= 0 or len(self.candidates) == 1:
            return None
        share = self.schedule.measure_share
        spent = self._round
        if float(left) <= 2 * spent:
            self.last, spent = True, float(left)
        epsilon = _floor(math.sqrt(8 * (1 - share) * spent))
        cost = min(Fraction(2 * share * spent), 2 * (left - epsilon * epsilon / 8))
        return None if cost <= 0 or epsilon <= 0 else (epsilon, cost)

    def measure(
        self, mask: int, cost: Fraction, tables: Mapping[int, Integers]
    ) -> tuple[dict[int, float], dict[int, Floats]]:
        """Measure the residuals that CRP chooses (Algorithm 4, lines 12 to 15)."""
        affordable = float(cost) * (1 - 1e-12) / self._square
        variances = conditional_plan(mask, self.residuals.precisions, self.bases, affordable)
        return variances, self._buy(variances, tables)

    def anneal(self, moved: float, cells: int, cost: float) -> None:
        """Spend four times as much on the next rounds if this one moved less than its noise.

        Algorithm 7, lines 2 to 4; the comparison is of public estimates, before and after.
        """
        if self.schedule.anneal and moved <= math.sqrt(2 / (math.pi * cost)) * cells:
            self._round *= 4

    def _buy(
        self, variances: Mapping[int, float], tables: Mapping[int, Integers]
    ) -> dict[int, Floats]:
        exact = noise_variances(ResidualPlan(self.bases, dict(variances)))
        self.used += exact_cost(self.bases, exact) * self._square / 2
        if self.used > self.rho:
            raise InvalidParameter("the start costs more than the whole budget")
        changes = {}
        for mask, variance in exact.items():
            noise = self._noise(mask, variance)
            residual = measure(tables[mask], mask, self.bases, noise)
            changes[mask] = self.residuals.add(mask, residual, variances[mask])
        return changes

    def _noise(self, mask: int, variance: Fraction) -> Integers:
        wanted = noise_shape(self.bases, mask)
        return self.gaussian(variance, math.prod(wanted)).reshape(wanted)


def _check(
    bases: Sequence[Basis], workload: Mapping[int, int], rho: Fraction, contribution: int
) -> None:
    if not all(isinstance(basis, Subtraction) for basis in bases):
        raise InvalidParameter("AIM measures marginals: every basis must be subtraction")
    if not workload:
        raise InvalidParameter("the workload holds no marginal")
    for mask, weight in workload.items():
        if mask < 0 or mask >> len(bases):
            raise InvalidParameter(
                f"a marginal over attributes {attributes_of(mask)} is outside the domain",
                detail=f"The domain has {len(bases)} attributes.",
            )
        if weight != int(weight) or weight < 1:
            raise InvalidParameter(f"the weight {weight} of a marginal is no positive integer")
    if rho <= 0:
        raise InvalidParameter(f"the budget {rho} is not positive")
    if contribution < 1:
        raise InvalidParameter(f"a contribution of {contribution} rows is not positive")


def check_cells(sizes: Sequence[int], candidates: Sequence[int], limit: int = MAX_CELLS) -> None:
    """Refuse candidates whose exact counts would not fit memory."""
    found = total_cells(sizes, candidates)
    if found > limit:
        raise InvalidParameter(
            f"the candidates have {found} cells",
            detail=f"AIM keeps the counts of at most {limit} in memory.",
            hint="Ask for fewer attributes at once, or use the residual planner.",
        )


def _floor(value: float) -> Fraction:
    return Fraction(math.floor(value * 2**_EPSILON_BITS), 2**_EPSILON_BITS)


def _silent(rounds: int, used: Fraction, budget: Fraction) -> None:
    """Tell nobody."""
