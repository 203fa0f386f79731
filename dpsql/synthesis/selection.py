"""Which cross-table workload to measure next, and how: Algorithms 3 and 4 in counts.

papers/relational-synthetic-data.txt, Appendix B.  The paper scores total variation distances of
distributions under neighbours that replace a row and keep the number ``m`` of links; but replacing
a row changes ``m`` as soon as its number of links changes, and asserting ``sum(B) == m_syn``
publishes it.  Here neighbours add or remove, everything is a count of links, and ``m`` does
not occur: a row with its at most ``d_max`` links changes a marginal by at most ``d_max`` in L1 and
in L2 (all of them may be in one cell), and so the score by ``d_max`` (PRIVACY.md section 8).

One pick pays ``epsilon^2 / 8`` for the choice and ``contribution^2 / (2 sigma^2)`` for the answer,
in zero-concentrated differential privacy.  Picking ``K`` times without replacement is ``K``
choices, each paid.  Scores are exact integers: estimates are public and rounded to a grid first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.records import Answer, Cross
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers
from dpsql.workload.selection import STEPS, l1_distance
from dpsql.workload.supply import Choice, Gaussian

_BITS = 48


@dataclass(frozen=True)
class Schedule:
    """How the budget is spread.

    Attributes
    ----------
    rounds : int
        ``T``.
    per_round : int
        ``K``: workloads chosen before the links are fitted again.
    select_share : float
        ``alpha``, in (0, 1): the share of every pick's budget that chooses; the rest measures.
    """

    rounds: int = 8
    per_round: int = 2
    select_share: float = 0.1

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.per_round < 1 or not 0 < self.select_share < 1:
            raise InvalidParameter(
                f"a schedule of {self.rounds} rounds of {self.per_round} with a share of "
                f"{self.select_share} is none",
                hint="Give at least 1 round of 1 workload, and a share between 0 and 1.",
            )


@dataclass(frozen=True)
class Pick:
    """The budget of one choice and one answer.

    Attributes
    ----------
    epsilon : Fraction
        Of the choice; 0 where nothing is chosen.
    variance : Fraction
        Of the answer's noise.
    rho : Fraction
        What both cost, exactly.
    """

    epsilon: Fraction
    variance: Fraction
    rho: Fraction


def price(rho: Fraction, select_share: float, contribution: int) -> Pick:
    """Split the budget of one pick; epsilon is rounded down and the variance up.

    Parameters
    ----------
    rho : Fraction, > 0
    select_share : float
        0 where there is nothing to choose.
    contribution : int
        By how many links neighbours differ at most.
    """
    if rho <= 0 or contribution < 1:
        raise InvalidParameter(f"a budget of {rho} or {contribution} links is not positive")
    root = math.sqrt(8 * select_share * float(rho)) * (1 - 1e-12)
    epsilon = Fraction(math.floor(root * 2**_BITS), 2**_BITS)
    left = rho - epsilon * epsilon / 8
    exact = Fraction(contribution * contribution) / (2 * left)
    # few bits, so that the sampler has small numbers: above by 2^-30 of itself at most
    grain = Fraction(2) ** (math.floor(math.log2(float(exact))) - 30)
    variance = math.ceil(exact / grain) * grain
    return Pick(
        epsilon, variance, epsilon * epsilon / 8 + contribution * contribution / (2 * variance)
    )


class Selector:
    """Draws workloads by how far the synthetic links are off.

    Parameters
    ----------
    counts : mapping of Cross to array of int64
        Exact marginals of all candidates, private.
    contribution : int
        By how many links neighbours differ at most: ``d_max`` for a row or unit with all its
        links; 2 for one link row under a truncation that lets another one in.  Where both ends
        are protected, the larger bound of the two; for a unit at both ends, their sum.  Where
        neighbours replace a row, twice as much.
    weights : mapping of Cross to int, optional
        Positive importance; 1 by default.
    """

    def __init__(
        self,
        counts: Mapping[Cross, Integers],
        contribution: int,
        weights: Mapping[Cross, int] | None = None,
    ) -> None:
        self.counts = counts
        self.contribution = contribution
        self.weights = {w: (weights or {}).get(w, 1) for w in counts}
        for weight in self.weights.values():
            if weight < 1 or weight != int(weight):
                raise InvalidParameter(f"the weight {weight} of a workload is no positive integer")

    @property
    def sensitivity(self) -> int:
        """The largest change of any score between neighbours."""
        return max(self.weights.values()) * STEPS * self.contribution

    def score(self, workload: Cross, estimate: Floats, variance: Fraction) -> int:
        """Return ``w (|counts - estimate|_1 - expected noise)`` in grid steps, exactly.

        The paper's score less the public amount that measuring would add in noise (AIM, McKenna et
        al. 2022): without it the largest marginals win, which are all noise.
        """
        counts = np.asarray(self.counts[workload], dtype=np.int64).reshape(estimate.shape)
        noise = round(STEPS * math.sqrt(2 / math.pi * float(variance)) * estimate.size)
        return self.weights[workload] * (l1_distance(counts, estimate) - noise)

    def select(
        self,
        candidates: Sequence[Cross],
        estimates: Mapping[Cross, Floats],
        pick: Pick,
        choose: Choice,
    ) -> Cross:
        """Draw one workload by the exponential mechanism: ``epsilon^2 / 8``."""
        scores = [self.score(w, estimates[w], pick.variance) for w in candidates]
        return candidates[choose(scores, pick.epsilon / (2 * self.sensitivity))]

    def answer(
        self, workload: Cross, pick: Pick, gaussian: Gaussian, cells: tuple[int, int]
    ) -> Answer:
        """Measure a workload: ``contribution^2 / (2 sigma^2)`` (Algorithm 4).

        The noise is the discrete Gaussian on integer counts, cell by cell.
        """
        counts = np.asarray(self.counts[workload], dtype=np.int64).reshape(cells)
        noise = np.asarray(gaussian(pick.variance, counts.size), dtype=np.int64)
        noisy = counts + noise.reshape(cells)
        return Answer(workload, noisy.astype(np.float64), pick.variance)
