"""Values by rank: the cell up to which a share of the results lies (docs/proofs/percentile.md).

The exponential mechanism by rank (McSherry and Talwar 2007; Smith 2011), as the report of the
noisiest score with geometric noise, in two stages: first blocks of cells, then the cells of the
block.  A score is the distance between the rank that is sought and the ranks inside a cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from dpsql.core.mechanisms import calibrated, truncation
from dpsql.core.mechanisms.base import Release, at_least_one, check_budget
from dpsql.core.mechanisms.calibrated import Calibrated
from dpsql.core.mechanisms.truncation import Limits, Quantile
from dpsql.counted import Contributions
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Guarantee, Key
from dpsql.ports import NoiseSource

#: The least and the greatest value are sought so many noise scales inside, beside the logarithm of
#: the number of candidates: beyond the data all cells have the same rank.
_INSIDE = 3


@dataclass(frozen=True, slots=True)
class Sought:
    """A share of the results, 0 for the least value and 1 for the greatest, in ``cells`` cells."""

    share: Fraction
    cells: int


@dataclass(frozen=True, slots=True)
class OfRows:
    """Seek in counts whose joint L1 change is a public constant, or a drawn bound of it.

    Notes
    -----
    Guarantee: epsilon for all groups together, or (eps1 + eps2, delta) with a drawn bound.
    """

    guarantee: Guarantee
    sought: Sought
    epsilon_value: Fraction
    inner: Calibrated | None
    name: str = "percentile"
    law: None = None
    visibility: None = None

    @property
    def beta(self) -> float:
        """The inner plan's beta; 0 for a public sensitivity."""
        return 0.0 if self.inner is None else self.inner.beta

    def release(
        self,
        counts: Iterable[Sequence[int]],
        sensitivity: Fraction | float,
        noise: NoiseSource,
    ) -> Release:
        """Seek in every group, given the counts of its cells one group after the other."""
        if self.inner is None:
            bound = math.ceil(at_least_one(sensitivity))
        else:
            bound = self.inner.draw_bound(sensitivity, noise)
        return Release(_seek(counts, self.sought, bound, self.epsilon_value, noise))


@dataclass(frozen=True, slots=True)
class OfUnits:
    """Seek in counts that every unit changes by at most ``tau``, which is drawn.

    Notes
    -----
    Guarantee: epsilon, pure, for all groups together.
    """

    guarantee: Guarantee
    sought: Sought
    truncation: Quantile
    name: str = "percentile"
    law: None = None
    visibility: None = None

    @property
    def bounds(self) -> tuple[int, ...]:
        """What ``tau`` is drawn from."""
        return self.truncation.bounds

    def release(
        self, contributions: Contributions, groups: list[Key], noise: NoiseSource
    ) -> Release:
        """Draw ``tau``, cut every unit off at it, and seek in every group."""
        j = self.truncation.draw(contributions, noise)
        cells = range(1, self.sought.cells + 1)
        counts = (
            contributions.truncated(j, [(*key, str(cell)) for cell in cells]) for key in groups
        )
        bound = self.bounds[j] * contributions.grid
        return Release(_seek(counts, self.sought, bound, self.truncation.epsilon_value, noise))


def plan_rows(
    mechanism: str,
    epsilon: Fraction,
    delta: Fraction,
    degree: int,
    sought: Sought,
    *,
    constant: bool,
) -> OfRows:
    """Plan from public facts; ``delta`` is used where the sensitivity is not a public constant."""
    check_budget(epsilon, delta)
    if mechanism not in ("auto", "calibrated"):
        raise InvalidParameter(
            f"the {mechanism} mechanism finds no values by rank",
            hint="Use dp.mechanism = 'auto'.",
        )
    if constant:
        return OfRows(Guarantee(epsilon, Fraction(0)), sought, epsilon, None)
    inner = calibrated.plan(epsilon, delta, degree)
    return OfRows(Guarantee(epsilon, delta), sought, inner.epsilon_value, inner)


def plan_units(mechanism: str, epsilon: Fraction, limits: Limits, sought: Sought) -> OfUnits:
    """Plan from public facts."""
    if mechanism == "r2t" and not limits.fixed:
        raise InvalidParameter(
            "the r2t mechanism finds no values by rank",
            hint="Use dp.mechanism = 'auto' or 'quantile'.",
        )
    plan = truncation.plan(mechanism, epsilon, None, limits, single=False)
    if not isinstance(plan, Quantile):
        raise InternalError("a value by rank is sought in truncated counts")
    return OfUnits(plan.guarantee, sought, plan)


def exact(counts: Iterable[Sequence[int]], sought: Sought) -> list[int]:
    """Find the cells without noise, for public data; of no results the first."""
    found = []
    for group in counts:
        rank = max(sought.share * sum(group), Fraction(1))
        reached = (i for i, below in enumerate(accumulate(group), 1) if below >= rank)
        found.append(next(reached, 1))
    return found


def _seek(
    counts: Iterable[Sequence[int]],
    sought: Sought,
    bound: int,
    epsilon: Fraction,
    noise: NoiseSource,
) -> list[int]:
    """Return for each group the number of the cell that was found, from 1."""
    return [_cell(group, sought.share, bound, epsilon, noise) for group in counts]


def _cell(
    counts: Sequence[int], share: Fraction, bound: int, epsilon: Fraction, noise: NoiseSource
) -> int:
    """Find a cell of one group: a block first, then a cell of the block.

    Each stage has half of epsilon.  ``counts`` change by ``bound`` in all at most, so every score
    changes by at most ``bound`` times the denominator of the share.
    """
    block = math.isqrt(len(counts) - 1) + 1
    stages = 1 if block == len(counts) else 2
    scale = Fraction(2 * bound * share.denominator * stages) / epsilon
    rank = share.numerator * sum(counts)
    inside = math.ceil(scale * Fraction(_INSIDE + math.log(block)))
    if share == 0:
        rank += inside
    elif share == 1:
        rank -= inside
    starts = range(0, len(counts), block)
    sums = [share.denominator * sum(counts[i : i + block]) for i in starts]
    first = _best(sums, rank, scale, noise) * block if stages == 2 else 0
    rank -= sum(share.denominator * n for n in counts[:first])
    chosen = [share.denominator * n for n in counts[first : first + block]]
    return first + _best(chosen, rank, scale, noise) + 1


def _best(counts: Sequence[int], rank: int, scale: Fraction, noise: NoiseSource) -> int:
    """Report the noisiest score: the distance of a rank from those inside a cell, negated."""
    best: tuple[int, int] | None = None
    for i, distance in enumerate(_distances(counts, rank)):
        score = noise.geometric(scale) - distance
        if best is None or score > best[0]:
            best = score, i
    return 0 if best is None else best[1]


def _distances(counts: Iterable[int], rank: int) -> Iterator[int]:
    """Tell how far a rank is from those inside each cell."""
    below = 0
    for n in counts:
        yield max(0, below - rank, rank - below - n)
        below += n
