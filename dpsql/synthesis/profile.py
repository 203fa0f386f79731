"""Which parents have many children: degrees that agree with noisy counts of parents.

For each attribute of the parents there is a table of how many of each level have degrees in which
of a few groups; a privacy unit that is a parent moves it by one, however many children it has,
where a marginal across the reference is moved by ``d_max`` (PRIVACY.md section 8).  The law of
degrees given a row is the one of largest entropy that has these tables, by proportional fitting.
Everything here is post-processing of public values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.degree_law import settled
from dpsql.synthesis.degrees import to_total
from dpsql.workload.marginals import Floats
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers

#: Groups of degrees, and attributes that the law is fitted to.
MOST_GROUPS, MOST_ATTRIBUTES = 4, 8
_ROUNDS, _CLOSE = 60, 1e-4
#: Parents of a group for a standard deviation of noise in one cell.
_FILLED = 8.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Noisy tables of parents.

    Attributes
    ----------
    tables : sequence of array, shape (levels, groups)
        For each attribute; parents without children are left out.
    starts : tuple of int
        The least degree of each group, the first one 1.
    sigma : float
        The standard deviation of the noise.
    """

    tables: Sequence[Floats]
    starts: tuple[int, ...]
    sigma: float


def groups_of(
    histogram: Floats, starts: tuple[int, ...], noise: float, sigma: float
) -> tuple[int, ...]:
    """Choose groups of degrees from a noisy histogram: of as many children, and enough parents.

    Parameters
    ----------
    histogram, starts
        As of `dpsql.synthesis.degree_law.draw_degrees`.
    noise, sigma : float
        The standard deviations of the histogram's noise, and of what is to be measured.

    Returns
    -------
    tuple of int
        The least degree of each, the first one 1.
    """
    parents = settled(histogram, noise, starts)
    children = parents * np.array(starts)
    found: list[int] = []
    some = all_ = 0.0
    for i in range(len(starts) - 1, 0, -1):
        some, all_ = some + float(parents[i]), all_ + float(children[i])
        if all_ >= children.sum() / MOST_GROUPS and some >= _FILLED * sigma:
            found.append(starts[i])
            some = all_ = 0.0
    if found and float(parents[: starts.index(found[-1])].sum()) < _FILLED * sigma:
        found.pop()
    return (1, *sorted(found))


def deal(
    degrees: Integers,
    codes: Integers,
    profile: Profile,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> Integers:
    """Give degrees to rows as a profile says.

    Parameters
    ----------
    degrees : array of int64, shape (n,)
        All are given out.
    codes : array of int, shape (n, attributes)
        Levels of the rows.
    profile : Profile
    rng : Generator
    tick : callable
        Called now and then; may raise.

    Returns
    -------
    array of int64, shape (n,)
        A permutation of the degrees; within a group all are alike.
    """
    own = np.searchsorted(np.array(profile.starts), degrees, side="right")
    sums = np.bincount(own, minlength=len(profile.starts) + 1).astype(np.float64)
    targets = [_target(t, codes[:, i], sums, profile.sigma) for i, t in enumerate(profile.tables)]
    useful = sorted((i for i, t in enumerate(targets) if t[1] > 0), key=lambda i: -targets[i][1])
    useful = useful[:MOST_ATTRIBUTES]
    if not useful:
        return rng.permutation(degrees)
    kinds, of, counts = np.unique(codes[:, useful], axis=0, return_inverse=True, return_counts=True)
    of = np.asarray(of).ravel()
    shares = _fitted(kinds, counts.astype(np.float64), [targets[i][0] for i in useful], sums, tick)
    found = np.zeros_like(degrees)
    left = np.arange(degrees.size)
    for group in range(len(sums) - 1, 0, -1):
        tick()
        whole = shares[:, : group + 1].sum(axis=1)
        chance = (shares[:, group] / np.maximum(whole, 1e-300))[of[left]]
        mixed = rng.permutation(left.size)
        taken = np.empty(left.size, dtype=np.int64)
        taken[mixed] = to_total(chance[mixed], int(sums[group]), 1, rng)
        found[left[taken > 0]] = rng.permutation(degrees[own == group])
        left = left[taken == 0]
    return found


def _target(table: Floats, levels: Integers, sums: Floats, sigma: float) -> tuple[Floats, float]:
    """Return how many rows of each level are to be in each group, and how far that is from chance.

    What the table says is drawn towards independence by as much as noise explains (James and
    Stein's estimator), so that nothing is left of a table that is mostly noise.
    """
    rows = np.bincount(levels, minlength=table.shape[0]).astype(np.float64)
    plain = np.multiply.outer(rows, sums / max(float(sums.sum()), 1.0))
    wanted = np.asarray(table, dtype=np.float64)
    wanted = wanted * (sums[1:] / np.maximum(wanted.sum(axis=0), 1.0))[None, :]
    apart = wanted - plain[:, 1:]
    square = float((apart**2).sum())
    kept = max(0.0, 1.0 - sigma**2 * apart.size / square) if square > 0 else 0.0
    found = plain[:, 1:] + kept * apart
    for group in range(found.shape[1]):
        found[:, group] = project_simplex(found[:, group], float(sums[group + 1]))
    found *= np.minimum(1.0, rows / np.maximum(found.sum(axis=1), 1e-300))[:, None]
    target = np.concatenate([(rows - found.sum(axis=1))[:, None], found], axis=1)
    return np.maximum(target, 0.0), kept * math.sqrt(square)


def _fitted(
    kinds: Integers,
    counts: Floats,
    targets: Sequence[Floats],
    sums: Floats,
    tick: Callable[[], None],
) -> Floats:
    """Fit how many rows of each kind are in each group, by proportional fitting."""
    found = np.multiply.outer(counts, sums / max(float(sums.sum()), 1.0))
    for _ in range(_ROUNDS):
        tick()
        worst = 0.0
        for i, target in enumerate(targets):
            now = np.stack(
                [np.bincount(kinds[:, i], column, len(target)) for column in found.T], axis=1
            )
            worst = max(worst, float(np.abs(now - target).sum()))
            found *= (target / np.maximum(now, 1e-9))[kinds[:, i]]
        found *= (counts / np.maximum(found.sum(axis=1), 1e-300))[:, None]
        if worst <= _CLOSE * counts.sum():
            break
    return found
