"""The published estimator (papers/sensitivity-estimation.txt, Algorithms 1 to 4): a heuristic.

Boundaries are taken largest first.  Walks start from the live groups of one, and every shorter
boundary that they pass learns from them.  A group leaves when its interval lies below the leader's;
as Theorem 3's intervals are too wide to part groups within any allowance that is worth having, the
walks of the next round go to the best of those that stay.  ``filtered``: only groups that
walks of the whole residual met compete (section 5.4); so it is always where a group spans several
relations, as such groups are not known in advance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpsql.core.sampling import Estimate, published_ends
from dpsql.model import Boundary
from dpsql.statistics.chains import Chain, Stretch, from_groups, from_one_side
from dpsql.statistics.walk_sql import Key
from dpsql.statistics.walks import MOST_GROUPS, PILOT, Report, Runner

#: Groups among which the last walks of a boundary are spread.
_FINALISTS = 4
#: Where intervals part nobody, one group in so many stays.
_CUT = 16
#: Sides of the groups that span relations from which more of them are looked for, and how many.
_SIDES = 64
_PAIRS = 256
#: A boundary is done when its interval is this narrow, relative to its estimate.
TERMINAL = 0.05


@dataclass(slots=True)
class _Tally:
    """What is known about one boundary: sums of sizes, by group, from walks from groups."""

    chain: Chain
    stretch: Stretch
    candidates: list[Key] = field(default_factory=list)
    spread: Chain | None = None
    join: float = 0.0
    walks: int = 0
    sums: dict[Key, tuple[int, float]] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Learn from walks that came by."""
        for key, sample in report.samples.items():
            n, total = self.sums.get(key, (0, 0.0))
            self.sums[key] = (n + sample.walks, total + sample.total * report.scale)
            self.walks += sample.walks

    def size(self, key: Key) -> float:
        """Return the estimated size of a group."""
        n, total = self.sums.get(key, (0, 0.0))
        return total / n if n else 0.0


def estimate_published(
    runner: Runner,
    chains: Sequence[Chain],
    singles: Sequence[Boundary],
    rate: float,
    eta: float,
    *,
    filtered: bool,
) -> dict[Boundary, Estimate]:
    """Estimate what walks can reach; boundaries whose walks all died are missing."""
    wholes = [runner.whole(chain) for chain in chains]
    all_chains = list(wholes)
    for whole in wholes:
        for stretch in whole.stretches:
            all_chains.append(from_groups(runner.query, whole, stretch, ()))
            all_chains.append(from_one_side(runner.query, stretch.boundary, runner.sizes))
    runner.learn({*singles, *(step.degree for chain in all_chains for step in chain.steps)})
    tallies: dict[Boundary, _Tally] = {}
    for chain in wholes:
        for tally in _prepare(runner, chain, filtered=filtered):
            tallies.setdefault(tally.stretch.boundary, tally)
    found = {}
    order = sorted(tallies.values(), key=lambda t: -len(t.stretch.boundary.occurrences))
    for tally in order:
        if tally.candidates:
            found[tally.stretch.boundary] = _settle(runner, tally, tallies, rate, eta)
    return found


def _prepare(runner: Runner, whole: Chain, *, filtered: bool) -> list[_Tally]:
    """Look at a chain: who competes for each boundary, and how many results there are."""
    if not runner.possible(whole):
        return []
    tallies = []
    for stretch, report in zip(whole.stretches, runner.walk(whole, PILOT), strict=True):
        tally = _Tally(whole, stretch, join=report.join)
        ranked = sorted(report.samples.items(), key=lambda item: -item[1].mean)
        tally.candidates = [key for key, sample in ranked if sample.total > 0]
        own = from_groups(runner.query, whole, stretch, [stretch.boundary])
        if own.steps[0].fixed != own.start:
            tally.spread = from_one_side(runner.query, stretch.boundary, runner.sizes)
        elif not filtered and tally.candidates:
            tally.candidates = list(runner.starts(own, 0, MOST_GROUPS))
        tallies.append(tally)
    return tallies


def _settle(
    runner: Runner, tally: _Tally, tallies: dict[Boundary, _Tally], rate: float, eta: float
) -> Estimate:
    """Walk from the live groups of one boundary until its walks are used up."""
    own = from_groups(runner.query, tally.chain, tally.stretch, tallies)
    left = runner.allowance(rate, tally.join, least=1)
    live = tally.candidates
    if tally.spread is not None:
        live = _pairs(runner, tally, live, max(1, left // 4))
    groups = len(live)
    rounds = 1 + max(0, math.ceil(math.log(max(1, groups) / _FINALISTS, _CUT)))
    for number in range(rounds):
        budget = max(1, left // (rounds - number))
        live = live[:budget]
        walks = max(1, budget // len(live))
        for stretch, report in zip(
            own.stretches, runner.walk(own, walks, live, max(len(live), _PAIRS)), strict=True
        ):
            # a passed boundary learns only where what was fixed is the whole group
            if not stretch.rest:
                tallies[stretch.boundary].add(report)
        left -= walks * len(live)
        ends = _ends(tally, live, groups, eta)
        leader = max(low for low, _ in ends.values())
        live = sorted((key for key in live if ends[key][1] >= leader), key=tally.size, reverse=True)
        if len(live) > _FINALISTS:
            live = live[: max(_FINALISTS, -(-len(live) // _CUT))]
        best = live[0]
        if ends[best][1] - tally.size(best) <= TERMINAL * tally.size(best) or left <= 0:
            break
    ends = _ends(tally, live, groups, eta)
    value = max(high for _, high in ends.values())
    centre = max(tally.size(key) for key in live)
    return Estimate(max(0, math.ceil(value)), tally.walks, False, centre)


def _pairs(runner: Runner, tally: _Tally, met: list[Key], walks: int) -> list[Key]:
    """Find more groups that span relations, by walks from the sides of those that were met."""
    if tally.spread is None:
        return met
    attributes = sorted(tally.stretch.boundary.attributes)
    at = [attributes.index(a) for a in tally.spread.start]
    sides = list(dict.fromkeys(tuple(key[i] for i in at) for key in met))[:_SIDES]
    report = runner.walk(tally.spread, max(1, walks // len(sides)), sides, _PAIRS)[0]
    return list(dict.fromkeys([*report.samples, *met[:_SIDES]]))


def _ends(
    tally: _Tally, live: Sequence[Key], groups: int, eta: float
) -> dict[Key, tuple[float, float]]:
    return {
        key: published_ends(
            tally.size(key),
            tally.sums.get(key, (0, 0.0))[0],
            tally.join,
            tally.walks,
            groups,
            eta,
        )
        for key in live
    }
