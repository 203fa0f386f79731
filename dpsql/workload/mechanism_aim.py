"""AIM+GReM as a mechanism of releases: what it measures depends on the data, so it has no error.

papers/aim-grem.txt; `dpsql.workload.aim` is the algorithm.  What was measured is kept as residuals
and their precisions, from which the answers follow as those of ResidualPlanner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.aim import Schedule, aim, check_cells
from dpsql.workload.axis import reconstruct_all
from dpsql.workload.grem import Residuals
from dpsql.workload.lazy import LazyMarginals
from dpsql.workload.marginals import (
    attributes_of,
    cells,
    downward_closure,
    kept_masks,
    read_masks,
)
from dpsql.workload.matrix import Floats, Identity, Total
from dpsql.workload.mechanism import Answers, Budget, Mechanism, mask_of_product, over_all
from dpsql.workload.mechanism_kronecker import require_cells
from dpsql.workload.mechanism_residuals import require_few_residuals
from dpsql.workload.residual_bases import Integers, subtraction
from dpsql.workload.selection import Estimates
from dpsql.workload.supply import Choice, Gaussian, Marginals, Progress
from dpsql.workload.workload import Workload

#: Weights are whole numbers: steps of the least one.
WEIGHT_STEPS = 16
#: Numbers of noise of all rounds together, at most; far more than any run can draw.
MOST_DRAWS = 1 << 40


class AimMechanism(Mechanism):
    """Choose, measure and reconstruct marginals in rounds; Gaussian noise.

    Parameters
    ----------
    workload, budget : Workload, Budget
        Marginals, level by level.

    Raises
    ------
    InvalidParameter
        For Laplace noise, and for queries that are no marginals.
    """

    name = "aim"

    def __init__(self, workload: Workload, budget: Budget) -> None:
        if budget.order != 2:
            raise InvalidParameter(
                f"{self.name} needs Gaussian noise", hint="Give a delta greater than 0."
            )
        for product in workload.products:
            plain = all(isinstance(f, Identity | Total) for f in product.queries.factors)
            if product.either or not plain:
                raise InvalidParameter(
                    f"{self.name} answers grouping sets without conditions, prefixes and ranges",
                    hint="Use mechanism => 'auto'.",
                )
        self.workload, self.budget = workload, budget
        self.masks = [mask_of_product(product) for product in workload.products]
        for mask in self.masks:
            require_cells(cells(workload.domain.sizes, mask))
        require_few_residuals(self.masks)
        if not any(self.masks):
            raise InvalidParameter(f"{self.name} needs a grouping set with a key of several levels")
        check_cells(workload.domain.sizes, downward_closure(self.masks))
        self.bases = subtraction(workload.domain.sizes)
        self.wanted = self._wanted()
        self.measurements = ()
        self.error = math.nan

    @property
    def identity(self) -> str:
        """See `Mechanism.identity`."""
        return repr((self.workload.domain.sizes, sorted(self.masks), sorted(self.wanted.items())))

    def _wanted(self) -> dict[int, int]:
        """Return the weight of each marginal, of which AIM knows whole ones only."""
        found: dict[int, float] = {}
        for mask, product in zip(self.masks, self.workload.products, strict=True):
            if mask:
                found[mask] = found.get(mask, 0.0) + abs(product.weight)
        least = min(found.values())
        return {mask: round(WEIGHT_STEPS * weight / least) for mask, weight in found.items()}

    @property
    def loss(self) -> Fraction:
        """The whole budget: how many rounds it buys depends on the data."""
        return self.budget.loss

    @property
    def draws(self) -> int:
        """A bound."""
        return MOST_DRAWS

    def schedule(self) -> Schedule:
        """Return how the budget is spread."""
        return Schedule()

    def estimates(self, residuals: Residuals) -> Estimates:
        """Return what rounds compare with the data."""
        return LazyMarginals(residuals)

    def run(
        self, data: Marginals, gaussian: Gaussian, choose: Choice, progress: Progress | None = None
    ) -> list[Floats]:
        """Measure; returns which residuals there are, their precisions, and the residuals."""
        found = aim(
            self.bases,
            self.wanted,
            self.budget.loss,
            data,
            gaussian,
            choose,
            schedule=self.schedule(),
            contribution=self.budget.rows,
            estimates=self.estimates,
            progress=progress,
        )
        masks = sorted(found.residuals.values)
        return [
            kept_masks(masks),
            np.array([found.residuals.precisions[m] for m in masks]),
            *(found.residuals.values[m] for m in masks),
        ]

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """Fail: rounds are not known before."""
        raise NotImplementedError

    def _residuals(self, measured: Sequence[Floats]) -> dict[int, Floats]:
        masks = read_masks(measured[0])
        sizes = self.workload.domain.sizes
        found = {}
        for mask, values in zip(masks, measured[2:], strict=True):
            found[mask] = values.reshape([sizes[i] - 1 for i in attributes_of(mask)])
        return found

    @property
    def plain_residuals(self) -> bool:
        """See `Mechanism.plain_residuals`."""
        return True

    def residuals(self, measured: Sequence[Floats]) -> Residuals:
        """See `Mechanism.residuals`."""
        values = self._residuals(measured)
        precisions = dict(zip(values, map(float, measured[1].ravel()), strict=True))
        return Residuals(self.bases, values, precisions)

    def vector(self, measured: Sequence[Floats]) -> Floats:
        """See `Mechanism.vector`."""
        everything = (1 << len(self.bases)) - 1
        return next(reconstruct_all(self._residuals(measured), [everything], self.bases))[1]

    def errors(self, measured: Sequence[Floats]) -> Iterator[Floats]:  # noqa: ARG002
        """See `Mechanism.errors`."""
        sizes = self.workload.domain.sizes
        for mask in self.masks:
            yield np.full([n if mask >> i & 1 else 1 for i, n in enumerate(sizes)], np.nan)

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`; errors are not known: what was not measured is a guess."""
        residuals = self._residuals(measured)
        attributes = len(self.bases)
        for mask in self.masks:
            values = next(reconstruct_all(residuals, [mask], self.bases))[1]
            shown = over_all(values, mask, attributes)
            yield Answers(shown, np.full(shown.shape, np.nan))
