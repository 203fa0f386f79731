"""AIM's selection: which marginal promises most, scored in exact integers.

The score of a candidate is ``w (|x - e|_1 - sqrt(2/pi) s n)``: how far the estimate is off, less
what measuring it would add in noise (AIM, McKenna et al. 2022; papers/aim-grem.txt, appendix F.1).
Estimates are public, so they are rounded to a grid first; then a score is an integer that one row
of the data changes by at most ``w STEPS``, without any rounding of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats, cells, downward_closure
from dpsql.workload.residual_bases import Integers
from dpsql.workload.supply import Choice

#: Estimates are rounded to multiples of a count over this.
STEPS = 1024
#: A candidate is left out when it would be drawn with at most about this probability.
NEGLIGIBLE = 1e-9

_CHUNK = 1 << 18
_LARGEST = float(1 << 38)


class Estimates(Protocol):
    """Public estimates of marginals."""

    def __getitem__(self, mask: int) -> Floats:
        """Return the estimate of a marginal."""
        ...

    def changed(self, changes: Mapping[int, Floats]) -> Iterable[int]:
        """Take note of changes of residuals; only tables above one of these masks have moved."""
        ...

    def allowed(self, masks: Sequence[int], share: float) -> list[int]:
        """List what may be measured next, when that share of the budget will have been used."""
        ...

    def bounds(self, masks: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Bound the sum of absolute values of estimates, from below and above, cheaply."""
        ...


def l1_distance(table: Integers, estimate: Floats) -> int:
    """Return ``STEPS`` times the L1 distance of counts to an estimate rounded to the grid.

    Exact; one row of the data more or less changes it by at most ``STEPS``.  Estimates beyond
    ``2^28`` counts are cut off there, which is as public as they are.
    """
    counts, guess = table.reshape(-1), estimate.reshape(-1)
    if counts.shape != guess.shape:
        raise InvalidParameter(
            f"an estimate of shape {estimate.shape} is none of a table of shape {table.shape}"
        )
    total = 0
    for start in range(0, counts.size, _CHUNK):
        part = guess[start : start + _CHUNK] * STEPS
        rounded = np.rint(np.clip(part, -_LARGEST, _LARGEST)).astype(np.int64)
        total += int(np.abs(counts[start : start + _CHUNK] * STEPS - rounded).sum())
    return total


def candidate_weights(workload: Mapping[int, int]) -> dict[int, int]:
    """Return ``w`` of every candidate: ``sum over A in the workload of weight(A) |A and C|``."""
    return {
        mask: sum(weight * (mask & of).bit_count() for of, weight in workload.items())
        for mask in downward_closure(workload)
        if mask
    }


class Selector:
    """Draws the marginal to measure next.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    workload : mapping of mask to int
        Marginals wanted, with positive integer weights.
    data : mapping of mask to array of int64
        Exact counts of every candidate, that is of the workload's downward closure.
    contribution : int
        How many rows neighbours differ by, at most.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        workload: Mapping[int, int],
        data: Mapping[int, Integers],
        contribution: int = 1,
    ) -> None:
        self.weights = candidate_weights(workload)
        self._cells = {mask: cells(sizes, mask) for mask in self.weights}
        self._data = data
        self._contribution = contribution
        self._distances: dict[int, int] = {}

    @property
    def sensitivity(self) -> int:
        """The largest change of any score between neighbours."""
        return max(self.weights.values()) * STEPS * self._contribution

    def changed(self, masks: Iterable[int]) -> None:
        """Forget the distances of all candidates that contain one of these residuals."""
        moved = list(masks)
        for mask in list(self._distances):
            if any(below & ~mask == 0 for below in moved):
                del self._distances[mask]

    def select(
        self,
        estimates: Estimates,
        epsilon: Fraction,
        variance: float,
        total: float,
        choose: Choice,
        share: float = 1.0,
    ) -> int:
        """Draw a candidate by the exponential mechanism.

        Parameters
        ----------
        estimates : Estimates
            What is public so far.
        epsilon : Fraction
            Budget; the draw is ``epsilon^2 / 8`` zero-concentrated differentially private.
        variance : float
            ``s^2`` of the measurement that will follow.
        total : float
            An estimate of the number of rows, public.
        choose : Choice
            The exponential mechanism.
        share : float
            Of the budget, what is used after this round.

        Returns
        -------
        int
            The candidate's mask.
        """
        rate = epsilon / (2 * self.sensitivity)
        allowed = estimates.allowed(list(self.weights), share)
        candidates = self.promising(estimates, float(rate) * STEPS, variance, total, allowed)
        scores = [self._score(mask, estimates, variance) for mask in candidates]
        return candidates[choose(scores, rate)]

    def promising(
        self,
        estimates: Estimates,
        rate: float,
        variance: float,
        total: float,
        allowed: Sequence[int] | None = None,
    ) -> list[int]:
        """Leave out candidates whose score cannot come near the best one's.

        From public facts alone: by the triangle inequality ``|x - e|_1`` is within the number
        of rows of ``|e|_1``.  So tables of millions of cells, which noise would swamp, are not
        even looked at.
        """
        weights = {m: self.weights[m] for m in (self.weights if allowed is None else allowed)}
        norms = estimates.bounds(list(weights))
        rows = 1.1 * max(total, 1.0)
        noise = {mask: self._noise(mask, variance) for mask in weights}
        best = max(w * (max(0.0, norms[m][0] - rows) - noise[m]) for m, w in weights.items())
        slack = math.log(len(weights) / NEGLIGIBLE) / rate
        return [m for m, w in weights.items() if w * (norms[m][1] + rows - noise[m]) > best - slack]

    def _noise(self, mask: int, variance: float) -> float:
        return math.sqrt(2.0 / math.pi * variance) * self._cells[mask]

    def _score(self, mask: int, estimates: Estimates, variance: float) -> int:
        distance = self._distances.get(mask)
        if distance is None:
            distance = self._distances[mask] = l1_distance(self._data[mask], estimates[mask])
        return self.weights[mask] * (distance - round(STEPS * self._noise(mask, variance)))
