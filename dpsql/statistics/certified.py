"""Maximum boundaries that hold on both sides, except with probability eta.

For each boundary: a few groups that a first look found large are counted exactly, which gives a
lower end; starts whose degree alone keeps them below it leave without a walk; walks, in rounds,
refute the others; the last few are counted exactly.  What the allowed walks cannot settle is left
to the exact count.  docs/proofs/sampling.md (PRIVACY.md section 4, "sampling, calibrated").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpsql.core.sampling import Estimate, Sample, interval, refutes, share, walks_to_refute
from dpsql.model import Boundary
from dpsql.statistics.chains import Chain, from_one_side
from dpsql.statistics.walk_sql import Key
from dpsql.statistics.walks import MOST_GROUPS, PILOT, Report, Runner

#: Groups of the first look that are counted, for a lower end.
_LEADERS = 4
#: Starts that are counted rather than walked from.
_FEW = 64
#: A round has so many times the walks of the one before.
_GROWTH = 4


def estimate_certified(
    runner: Runner,
    chains: Sequence[Chain],
    singles: Sequence[Boundary],
    rate: float,
    eta: float,
    alpha: float,
) -> dict[Boundary, Estimate]:
    """Estimate what walks can certify; the other boundaries are missing from the result."""
    wholes = [runner.whole(chain) for chain in chains]
    boundaries = {s.boundary for chain in chains for s in chain.stretches}
    targets = {b: from_one_side(runner.query, b, runner.sizes) for b in boundaries}
    steps = [step for chain in (*wholes, *targets.values()) for step in chain.steps]
    closest = [b for chain in targets.values() for b in runner.closest(chain)]
    runner.learn({*singles, *(step.degree for step in steps), *closest})
    found: dict[Boundary, Estimate] = {}
    for whole in wholes:
        for stretch, report in zip(whole.stretches, _look(runner, whole), strict=True):
            boundary = stretch.boundary
            if boundary in found:
                continue
            search = _Search(runner, targets[boundary], eta / len(boundaries), alpha)
            result = search.run(report, runner.allowance(rate, report.join))
            if result is not None:
                found[boundary] = result
    return found


def _look(runner: Runner, chain: Chain) -> list[Report]:
    """Look at a chain with walks from random rows."""
    if not runner.possible(chain):
        return [Report({}, 0.0, 0.0, 0.0) for _ in chain.stretches]
    return runner.walk(chain, PILOT, most=_LEADERS)


class _Search:
    """The search for the largest group of one boundary."""

    def __init__(self, runner: Runner, chain: Chain, eta: float, alpha: float) -> None:
        self.runner = runner
        self.chain = chain
        self.stretch = chain.stretches[0]
        self.eta = eta
        self.alpha = alpha
        #: results that a start has, at most, for each of its rows in the first relation
        self.reach = math.prod(runner.largest[b] for b in runner.closest(chain))
        #: the same without the rest of the group: the range of a walk's weight
        self.range = math.prod(runner.largest[step.degree] for step in chain.steps[1:])

    def run(self, report: Report, allowance: int) -> Estimate | None:
        """Search; ``None`` when the allowed walks do not settle it."""
        counted = self._leaders(report)
        low = self.runner.forward(self.chain, counted)
        if not low:
            return None
        starts = self.runner.starts(self.chain, low // max(1, self.reach), MOST_GROUPS + 1)
        if len(starts) > MOST_GROUPS:
            return None
        live = {key: rows for key, rows in starts.items() if key not in counted}
        number = 0
        while len(live) > _FEW:
            number += 1
            level = share(self.eta, 1, len(live), number)
            bar = low / (max(live.values()) * self.range)
            walks = walks_to_refute(bar, level) * _GROWTH ** (number - 1)
            allowance -= walks * len(live)
            if allowance < 0:
                return None
            live, high, least = self._round(live, low, walks, level)
            low = max(low, least)
            if live and high <= math.exp(self.alpha) * low:
                return Estimate(max(low, math.floor(high)), self._walks(), False, float(low))
        value = max(low, self.runner.forward(self.chain, list(live)))
        return Estimate(value, self._walks(), True, float(value))

    def _walks(self) -> int:
        return self.runner.used.get(self.stretch.boundary, 0)

    def _leaders(self, report: Report) -> list[Key]:
        """Return the starts of the groups that look largest."""
        attributes = sorted(self.stretch.boundary.attributes)
        at = [attributes.index(a) for a in self.chain.start]
        ranked = sorted(report.samples, key=lambda k: report.samples[k].mean, reverse=True)
        return list(dict.fromkeys(tuple(key[i] for i in at) for key in ranked[:_LEADERS]))

    def _round(
        self, live: dict[Key, int], low: int, walks: int, level: float
    ) -> tuple[dict[Key, int], float, int]:
        """Walk from every live start; return those not refuted, and ends of the largest group.

        The upper end is infinite where walks find the rest of a group themselves.
        """
        report = self.runner.walk(self.chain, walks, list(live))[0]
        attributes = sorted(self.stretch.boundary.attributes)
        at = [attributes.index(a) for a in self.chain.start]
        best: dict[Key, Sample] = {}
        for key, sample in report.samples.items():
            start = tuple(key[i] for i in at)
            if start not in best or best[start].total < sample.total:
                best[start] = sample
        first = self.runner.largest[self.chain.steps[0].degree]
        unseen = Sample(walks, report.cut * walks, report.cut * walks)
        left: dict[Key, int] = {}
        high, least = float(low), 0.0
        for start, rows in live.items():
            share_of_first = rows / first
            sample = _rescale(best.get(start, unseen), 1 / share_of_first)
            scale = rows * self.range
            if refutes(sample, low / scale, level / 2, found=bool(self.stretch.rest)):
                continue
            left[start] = rows
            if self.stretch.rest or start not in best:
                high = math.inf
                continue
            ends = interval(sample, level / 2)
            high, least = max(high, ends[1] * scale), max(least, ends[0] * scale)
        return left, high, math.ceil(least)


def _rescale(sample: Sample, factor: float) -> Sample:
    return Sample(sample.walks, sample.total * factor, sample.squares * factor * factor)
