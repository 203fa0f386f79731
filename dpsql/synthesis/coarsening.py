"""Which marginals across a reference are worth their noise: coarser levels, fewer rows of a unit.

Everything here is a function of public facts and of noisy numbers that were paid for: levels of few
rows are one, as many rows of each unit count as helps, and as many marginals are measured
(PRIVACY.md section 8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.synthesis.records import Cross, cross_shape, cross_workloads
from dpsql.synthesis.selection import Schedule
from dpsql.workload.marginals import Floats
from dpsql.workload.mechanism_kronecker import MOST_CELLS as MOST_COUNTED
from dpsql.workload.residual_bases import Integers

#: Cells of all marginals across one reference that are looked at, and how many of them.
MOST_CELLS, MOST_WORKLOADS = 20_000_000, 2_000
#: Marginals that are measured across one reference, and how many have a choice of their own.
MOST_PICKS = 16
#: The share of links that noise may move in one of them, before what it explains is taken out.
MOST_NOISE = 0.3
#: How far from independent the ends are expected to be, in total variation: the j-th marginal that
#: is chosen by this over the root of j.
_EXPECTED = 0.5
#: Levels of a smaller share of the links are one level: what is tried.
SHARES = (0.0, 0.005, 0.02, 0.05)
#: By how much finer levels or more rows of a unit may be worse.
_BETTER = 1.05

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Across:
    """What is measured across a reference.

    Attributes
    ----------
    left, right : tuple of tuple of int
        For each attribute of the parent's and the child's end the group of every level.
    workloads : list of Cross
        Candidates.
    schedule : Schedule
    rows : int
        How many rows of each unit count.
    """

    left: Groups
    right: Groups
    workloads: list[Cross]
    schedule: Schedule
    rows: int


def best_across(
    left: Sequence[Floats], right: Sequence[Floats], rho: Fraction, kept: Mapping[int, float]
) -> Across | None:
    """Choose what is measured across a reference; ``None``: noise would drown everything.

    Parameters
    ----------
    left, right : sequence of array
        Of each attribute of both ends how many links have each level; noisy.
    rho : Fraction
        The budget.
    kept : mapping of int to float
        How many links count where so many rows of each unit do.

    Notes
    -----
    What a choice is worth is the sum over the marginals that are measured of what each is expected
    to tell, as far as its noise leaves that (the square of that over its sum with the noise's), on
    average over all marginals of two attributes; less what is lost of levels that are one.
    """
    found: Across | None = None
    best = 0.0
    for share in SHARES:
        one, other = ([groups(counts, share) for counts in end] for end in (left, right))
        sizes = [max(g, default=0) + 1 for g in one], [max(g, default=0) + 1 for g in other]
        lost = _lost([*zip(left, one, strict=True), *zip(right, other, strict=True)])
        candidates = [
            w for w in workloads_across(*sizes) if _tells(w, sizes) and _counted(w, left, right)
        ]
        if not candidates:
            continue
        cells = np.array([math.prod(cross_shape(*sizes, w)) for w in candidates])
        two = np.array([w.left.bit_count() + w.right.bit_count() == 2 for w in candidates])
        for rows in sorted(kept, reverse=True):
            for picks in range(min(MOST_PICKS, len(candidates)), 0, -1):
                noise = cells * rows * math.sqrt(picks / (4 * math.pi * float(rho)))
                noise = noise / max(kept[rows], 1.0)
                fits = noise <= MOST_NOISE
                if int(fits.sum()) < picks:
                    continue
                told = _EXPECTED / np.sqrt(np.arange(1, picks + 1))[:, None]
                each_tells = told**3 / (told**2 + noise[two & fits] ** 2)
                worth = float(each_tells.sum()) / (len(left) * len(right)) * (1 - lost)
                if worth > max(best * _BETTER, 0.0):
                    best = worth
                    able = [w for w, fit in zip(candidates, fits, strict=True) if fit]
                    each = 2 if picks >= 4 else 1
                    schedule = Schedule(rounds=max(1, picks // each), per_round=each)
                    found = Across(tuple(one), tuple(other), able, schedule, rows)
    return found


def groups(counts: Floats, share: float) -> tuple[int, ...]:
    """Give every level a group: levels of less than a share of all are one, the last."""
    few = counts < share * float(counts.sum())
    if int(few.sum()) < 2:
        return tuple(range(counts.size))
    own = np.cumsum(~few) - 1
    return tuple(int(n) for n in np.where(few, int((~few).sum()), own))


def _tells(workload: Cross, sizes: tuple[Sequence[int], Sequence[int]]) -> bool:
    """Tell whether each attribute of a marginal has several groups of levels."""
    both = zip((workload.left, workload.right), sizes, strict=True)
    return all(n > 1 for mask, end in both for i, n in enumerate(end) if mask >> i & 1)


def _counted(workload: Cross, left: Sequence[Floats], right: Sequence[Floats]) -> bool:
    """Tell whether the levels themselves, which are counted before they are groups, fit memory."""
    whole = cross_shape([x.size for x in left], [x.size for x in right], workload)
    return math.prod(whole) <= MOST_COUNTED


def _lost(ends: Sequence[tuple[Floats, tuple[int, ...]]]) -> float:
    """Return the mean share of links whose level is no longer told apart."""
    shares = []
    for counts, given in ends:
        group = np.array(given, dtype=np.int64)
        alone = np.bincount(group)[group] == 1
        shares.append(float(counts[~alone].sum()) / max(float(counts.sum()), 1.0))
    return sum(shares) / max(len(shares), 1)


def merged(table: Integers, both: Sequence[tuple[int, ...]]) -> Integers:
    """Add up the levels of each group, along every axis of a table of counts."""
    for axis, group in enumerate(both):
        if len(group) and max(group) + 1 < len(group):
            found = np.zeros((max(group) + 1, *np.delete(table.shape, axis)), dtype=table.dtype)
            np.add.at(found, np.array(group), np.moveaxis(table, axis, 0))
            table = np.moveaxis(found, 0, axis)
    return table


def workloads_across(left: Sequence[int], right: Sequence[int]) -> list[Cross]:
    """List the marginals across a reference that may be measured: of two and three attributes.

    Those of three only if all of them fit; of two the smallest, if they do not.
    """

    def size(workload: Cross) -> int:
        return math.prod(cross_shape(left, right, workload))

    found: list[Cross] = []
    total = 0
    for k in (2, 3):
        wider = sorted(cross_workloads(left, right, k), key=size)
        if k == 3 and (
            total + sum(map(size, wider)) > MOST_CELLS or len(found) + len(wider) > MOST_WORKLOADS
        ):
            break
        for workload in wider:
            if total + size(workload) > MOST_CELLS or len(found) == MOST_WORKLOADS:
                break
            found.append(workload)
            total += size(workload)
    return found


def kept_by_fewer(degrees: Integers, rows: int) -> dict[int, float]:
    """Return how many links count if of each parent at most 1, 2, 4, ... do, up to ``rows``."""
    steps = [1 << i for i in range(rows.bit_length()) if 1 << i < rows]
    return {n: float(np.minimum(degrees, n).sum()) for n in [*steps, rows]}
