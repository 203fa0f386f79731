"""All pairs of attributes at once: what a fit of mixtures wants to know of any marginals.

Its raw answers over three and more attributes leave out what was not measured.  It is for releases
with post-processing, whose tables then are the marginals of one fitted distribution
(`dpsql.workload.mixture`): on three-way marginals closer to the truth than any unbiased estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats
from dpsql.workload.mechanism import Answers, Budget
from dpsql.workload.mechanism_residuals import PlannedResiduals
from dpsql.workload.planned import plan_pairs
from dpsql.workload.residual_bases import subtraction
from dpsql.workload.residual_planner import privacy
from dpsql.workload.workload import Workload


class PairsMechanism(PlannedResiduals):
    """Measure the residuals of all pairs that occur together in a query; Gaussian noise.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost.
    """

    name = "pairs"

    def __init__(self, workload: Workload, budget: Budget) -> None:
        if budget.order != 2:
            raise InvalidParameter(
                "pairs needs Gaussian noise", hint="Give a delta greater than 0."
            )
        self._prepare(workload, budget, subtraction(workload.domain.sizes))
        chosen = plan_pairs(self.masks, self.bases, budget.loss).variances
        costs = {b: float(privacy(self.bases, b)) / v for b, v in chosen.items()}
        total = math.fsum(costs.values())
        self._buy({b: cost / total for b, cost in costs.items()})
        self.error = math.nan

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`; errors are not known where more than pairs are asked for."""
        for mask, answer in zip(self.masks, super().answers(measured), strict=True):
            if mask.bit_count() > 2:
                yield Answers(answer.values, np.full_like(answer.errors, np.nan))
            else:
                yield answer
