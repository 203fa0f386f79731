"""MST: one-way marginals, a tree of pairs that is chosen privately, and their marginals.

McKenna, Miklau and Sheldon 2021 ("Winning the NIST contest").  A third of the budget measures
every attribute.  Levels that are rare as far as that tells are one level from then on, so that
pairs are not mostly noise.  A third chooses a spanning tree of the attributes: edge by edge, by the
exponential mechanism, among the pairs that join two parts of it, scored by how far the exact counts
are from those of independent attributes (in L1).  The last third measures these pairs.

Each choice of an edge is ``epsilon^2 / 8`` zero-concentrated, and each table measured
``contribution^2 / (2 sigma^2)`` (PRIVACY.md section 8); rare levels are a function of what was
measured.  The number of rows is never used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats, attributes_of
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers
from dpsql.workload.residual_planner import round_up
from dpsql.workload.selection import STEPS, l1_distance
from dpsql.workload.supply import Choice, Gaussian, Marginals, Progress

#: A level is rare if its noisy count is below so many standard deviations of the noise.
RARE = 3.0
_EPSILON_BITS = 48

Table = TypeVar("Table", Integers, Floats)


@dataclass(frozen=True)
class MstRelease:
    """What the mechanism publishes.

    Attributes
    ----------
    singles : dict of mask to array
        Noisy counts of each attribute.
    pairs : dict of mask to array
        Noisy counts of the chosen pairs, rare levels together.
    rho : Fraction
        What was used, at most what was given.
    """

    singles: dict[int, Floats]
    pairs: dict[int, Floats]
    rho: Fraction


@dataclass(frozen=True)
class Prices:
    """How a budget is spread: a function of public facts.

    Attributes
    ----------
    single, pair : Fraction
        Variances of the noise on the counts of attributes and of pairs.
    epsilon : Fraction
        Of each choice; 0 where there is nothing to choose.
    """

    single: Fraction
    pair: Fraction
    epsilon: Fraction

    @classmethod
    def of(cls, attributes: int, rho: Fraction, contribution: int = 1) -> Prices:
        """Spread a budget over so many attributes with several levels."""
        edges = attributes - 1
        parts = min(attributes, 3)  # of one attribute all is measured, of two nothing is chosen
        each, square = rho / parts, contribution * contribution
        choice = 8 * each / edges if parts == 3 else Fraction(0)
        return cls(
            round_up(attributes * square / (2 * each)),
            round_up(edges * square / (2 * each)) if edges else Fraction(1),
            Fraction(math.floor(math.sqrt(choice) * 2**_EPSILON_BITS * (1 - 1e-12)))
            / 2**_EPSILON_BITS,
        )


def mst(
    sizes: Sequence[int],
    rho: Fraction,
    data: Marginals,
    gaussian: Gaussian,
    choose: Choice,
    *,
    contribution: int = 1,
    progress: Progress | None = None,
) -> MstRelease:
    """Measure every attribute and a tree of pairs.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes; one has several.
    rho : Fraction
        The budget, zero-concentrated.
    data, gaussian, choose
        See `dpsql.workload.supply`; one batch is read, of all pairs.
    contribution : int
        By how many rows neighbours differ at most.
    progress : Progress, optional
        Told after every measurement and choice; may raise.
    """
    several = [i for i, n in enumerate(sizes) if n > 1]
    if rho <= 0 or contribution < 1 or not several:
        raise InvalidParameter("MST needs a budget, and an attribute of several levels")
    prices = Prices.of(len(several), rho, contribution)
    pairs = {(i, j): 1 << i | 1 << j for i, j in combinations(several, 2)}
    tables = dict(data.batch(list(pairs.values()) or [1 << several[0]]))
    used, steps, square = Fraction(0), 0, contribution * contribution

    def paid(cost: Fraction) -> None:
        nonlocal used, steps
        used += cost
        if progress is not None:
            progress(steps, used, rho)
        steps += 1

    def measured(table: Integers, variance: Fraction) -> Floats:
        noise = gaussian(variance, table.size).reshape(table.shape)
        paid(square / (2 * variance))
        return np.asarray(table + noise, dtype=np.float64)

    singles = {}
    for i in several:
        mask, table = next((m, t) for m, t in tables.items() if m >> i & 1)
        axes = tuple(k for k, j in enumerate(attributes_of(mask)) if j != i)
        singles[1 << i] = measured(np.asarray(table.sum(axis=axes), dtype=np.int64), prices.single)
    kept = levels_kept(sizes, singles, float(prices.single))
    merged = {mask: merge(tables[mask], mask, kept) for mask in pairs.values()}
    scores = {}
    if prices.epsilon:
        shares, total = _independent(singles, kept)
        for (i, j), mask in pairs.items():
            guess = total * np.outer(shares[i], shares[j])
            scores[i, j] = l1_distance(merged[mask], guess)
    rate = prices.epsilon / (2 * STEPS * contribution)
    found = {}
    for edge in _tree(several, scores, rate, choose, lambda: paid(prices.epsilon**2 / 8)):
        mask = pairs[edge]
        found[mask] = measured(merged[mask], prices.pair)
    return MstRelease(singles, found, used)


def levels_kept(
    sizes: Sequence[int], singles: Mapping[int, Floats], variance: float
) -> list[Integers]:
    """Return, of each attribute, the level that stands for each of its own; public.

    Levels that are not rare come first, in order; one for all rare ones, if there are any, last.
    """
    result = []
    for i, n in enumerate(sizes):
        level = np.zeros(n, dtype=np.int64)
        if n > 1:
            common = singles[1 << i] >= RARE * math.sqrt(variance)
            level[common] = np.arange(common.sum())
            level[~common] = common.sum()
        result.append(level)
    return result


def merge(table: Table, mask: int, kept: Sequence[Integers]) -> Table:
    """Add the counts of levels that are one."""
    result: Any = table
    for axis, i in enumerate(attributes_of(mask)):
        moved: Any = np.moveaxis(result, axis, 0)
        merged = np.zeros((int(kept[i].max()) + 1, *moved.shape[1:]), dtype=result.dtype)
        np.add.at(merged, kept[i], moved)
        result = np.moveaxis(merged, 0, axis)
    found: Table = np.ascontiguousarray(result)
    return found


def _independent(
    singles: Mapping[int, Floats], kept: Sequence[Integers]
) -> tuple[dict[int, Floats], float]:
    """Return the shares of merged levels, and the rows: each sum by its number of cells."""
    precision = math.fsum(1 / noisy.size for noisy in singles.values())
    total = math.fsum(float(noisy.sum()) / noisy.size for noisy in singles.values()) / precision
    total = max(1.0, total)
    shares = {}
    for mask, noisy in singles.items():
        (i,) = attributes_of(mask)
        shares[i] = project_simplex(merge(noisy, mask, kept), total) / total
    return shares, total


def _tree(
    several: Sequence[int],
    scores: Mapping[tuple[int, int], int],
    rate: Fraction,
    choose: Choice,
    paid: Callable[[], None],
) -> list[tuple[int, int]]:
    """Choose a spanning tree, edge by edge."""
    if not scores:
        return list(combinations(several, 2))[:1]
    part = {i: i for i in several}
    edges: list[tuple[int, int]] = []
    while len(edges) < len(several) - 1:
        open_ = [(i, j) for i, j in scores if part[i] != part[j]]
        i, j = open_[choose([scores[edge] for edge in open_], rate)]
        paid()
        edges.append((i, j))
        old, new = part[j], part[i]
        part = {k: new if p == old else p for k, p in part.items()}
    return edges
