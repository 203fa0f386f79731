"""Maximum boundaries from random walks: the door, and how walks are run and reported.

Every round is one statement that advances all live walks (``walk_sql``); what comes back are sums
by group.  Numbers of matches are bounded by maximum frequencies, which are counted exactly first:
they are boundaries of single occurrences, which nearly every query needs anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dpsql.core.sampling import ALPHA, Estimate, Sample, check_failure, check_rate
from dpsql.errors import InternalError
from dpsql.model import Boundary, JoinQuery
from dpsql.ports import Database
from dpsql.query.decomposition import Sizes
from dpsql.statistics.chains import Chain, make_chain, plan_chains
from dpsql.statistics.counts import count
from dpsql.statistics.sizes import read_facts
from dpsql.statistics.walk_exact import forward_sql, groups_sql
from dpsql.statistics.walk_sql import Key, walk_parameters, walk_sql

#: Walks of a first look at a chain, from rows of its first relation.
PILOT = 2048
#: Walks that a boundary may use, whatever the rate says; the published method takes the rate at
#: its word from one walk on.
LEAST_WALKS = 1024
MOST_WALKS = 200_000
#: Groups that come back from one stretch of walks.
MOST_GROUPS = 4000

KEY_BYTES = 16

_LARGEST = 1 << 900


def estimate(
    query: JoinQuery,
    boundaries: Iterable[Boundary],
    database: Database,
    *,
    key: bytes,
    rate: float,
    eta: float,
    alpha: float = ALPHA,
    published: bool = False,
    filtered: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> dict[Boundary, Estimate]:
    """Estimate maximum boundaries by random walks.

    Parameters
    ----------
    query : JoinQuery
        The counting query.
    boundaries : iterable of Boundary
        What is wanted.
    database : Database
        Reads one snapshot, whatever is executed.
    key : bytes
        16 fresh secret bytes (``dpsql.core.rng``): all choices are a function of them.
    rate : float
        Walks as a share of the results of a boundary's join, in (0, 1].
    eta : float
        Probability that the estimates may fail with, in (0, 1).
    alpha : float, >= 0
        With probability ``1 - eta``, all together, ``T <= value <= exp(alpha) max(T, 1)`` (not
        with ``published``); boundaries that the allowed walks cannot settle are counted exactly.
    published : bool
        The published method instead: no such claim is made.
    filtered : bool
        With ``published``: only groups that some walks of the whole residual met compete.
    tick : callable
        Called between statements; may raise to cancel.

    Returns
    -------
    dict of Boundary to Estimate

    Raises
    ------
    InvalidParameter
        When ``rate`` or ``eta`` is out of range.
    """
    check_rate(rate)
    check_failure(eta)
    if len(key) != KEY_BYTES:
        raise InternalError("random walks need a key of 16 bytes")
    wanted = frozenset(boundaries)
    sizes = read_facts(query, database).sizes(query)
    runner = Runner(query, database, key, sizes, tick)
    chains = plan_chains(query, wanted, sizes)
    singles = [b for b in wanted if len(b.occurrences) == 1]
    if published:
        from dpsql.statistics.published import estimate_published

        found = estimate_published(runner, chains, singles, rate, eta, filtered=filtered)
    else:
        from dpsql.statistics.certified import estimate_certified

        found = estimate_certified(runner, chains, singles, rate, eta, alpha)
    left = [b for b in wanted if b not in found]
    for boundary, value in runner.exactly(left).items():
        found[boundary] = Estimate(value, runner.used.get(boundary, 0), True, float(value))
    return found


@dataclass(frozen=True, slots=True)
class Report:
    """What walks say about one stretch: samples of the groups of the largest means.

    ``join`` estimates the results of all groups together; ``cut`` bounds the mean weight of a
    group that is not listed; ``scale`` turns a mean weight into a size.
    """

    samples: dict[Key, Sample]
    join: float
    cut: float
    scale: float


@dataclass(slots=True)
class Runner:
    """Runs walks for one query under one key; no number of a walk is used twice."""

    query: JoinQuery
    database: Database
    key: bytes
    sizes: Sizes
    tick: Callable[[], None]
    largest: dict[Boundary, int] = field(default_factory=dict)
    used: dict[Boundary, int] = field(default_factory=dict)
    numbered: int = 0
    written: dict[Chain, str] = field(default_factory=dict)

    def learn(self, frequencies: Iterable[Boundary]) -> None:
        """Count maximum frequencies, all in one statement."""
        self.largest |= self.exactly(frequencies)

    def exactly(self, boundaries: Iterable[Boundary]) -> dict[Boundary, int]:
        """Count boundaries exactly, those known without looking."""
        wanted = set(boundaries)
        found = {b: self.largest[b] for b in wanted if b in self.largest}
        if wanted - set(found):
            counts = count(self.query, wanted - set(found), self.database, answer=False)
            found |= counts.boundaries
        return found

    def possible(self, chain: Chain) -> bool:
        """Whether walks can get through, and sizes stay far within double precision's range."""
        return 0 < math.prod(self.largest[step.degree] for step in chain.steps) < _LARGEST

    def closest(self, chain: Chain) -> list[Boundary]:
        """Return the frequencies of all steps but the first when the whole group is fixed."""
        known = set(chain.stretches[0].boundary.attributes)
        found = []
        for step in chain.steps:
            own = self.query.occurrences[step.occurrence].attributes
            found.append(Boundary(frozenset({step.occurrence}), frozenset(own & known)))
            known |= own
        return found[1:]

    def walk(
        self, chain: Chain, walks: int, groups: Sequence[Key] = (), most: int = MOST_GROUPS
    ) -> list[Report]:
        """Run walks, ``walks`` from each group, and report every stretch of the chain."""
        self.tick()
        parameters = walk_parameters(
            chain,
            key=self.key,
            first=self.numbered,
            walks=walks,
            most=most,
            largest=[self.largest[step.degree] for step in chain.steps],
            groups=groups,
        )
        self.numbered += walks * (len(groups) if chain.start else 1)
        rows: list[list[tuple[Key, Sample, float]]] = [[] for _ in chain.stretches]
        if chain not in self.written:  # batches of walks run the same statement
            self.written[chain] = walk_sql(self.query, chain)
        for label, keys, n, s, ss, total in self.database.execute(self.written[chain], parameters):
            sample = Sample(int(str(n)), float(str(s)), float(str(ss)))
            names = tuple(str(k) for k in keys)  # type: ignore[attr-defined]
            rows[int(str(label))].append((names, sample, float(str(total))))
        reports = []
        for stretch, found in zip(chain.stretches, rows, strict=True):
            steps = chain.steps[stretch.first : stretch.last + 1]
            scale = float(math.prod(self.largest[step.degree] for step in steps))
            cut = min(r[1].mean for r in found) if len(found) >= most else 0.0
            join = found[0][2] * scale if found else 0.0
            samples = {names: sample for names, sample, _ in found}
            reports.append(Report(samples, join, cut, scale))
            used = sum(s.walks for s in samples.values()) if chain.start else walks
            self.used[stretch.boundary] = self.used.get(stretch.boundary, 0) + used
        return reports

    def forward(self, chain: Chain, groups: Sequence[Key]) -> int:
        """Count the largest group among these starts exactly."""
        if not groups:
            return 0
        self.tick()
        columns = [[group[k] for group in groups] for k in range(len(chain.start))]
        sql = forward_sql(self.query, chain)
        value = self.database.execute(sql, [("text[]", column) for column in columns])[0][0]
        return 0 if value is None else int(str(value))

    def starts(self, chain: Chain, above: int, most: int) -> dict[Key, int]:
        """List the starts with more than ``above`` rows in the first relation, most first."""
        self.tick()
        rows = self.database.execute(
            groups_sql(self.query, chain), [("bigint", above), ("bigint", most)]
        )
        return {tuple(str(k) for k in keys): int(str(n)) for keys, n in rows}  # type: ignore[attr-defined]

    def whole(self, chain: Chain) -> Chain:
        """Return the steps of a chain as walks from rows of its first relation."""
        wanted = [stretch.boundary for stretch in chain.stretches]
        return make_chain(self.query, chain.order, (), wanted)

    def allowance(self, rate: float, join: float, least: int = LEAST_WALKS) -> int:
        """Return how many walks a boundary may use, ``least`` however small the rate is."""
        return int(min(MOST_WALKS, max(least, rate * join)))
