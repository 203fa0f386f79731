"""How many children parents have: bins of degrees, and draws from a noisy histogram of them.

Degrees are told apart one by one up to a bound, then by bins whose ends grow by a factor: few
numbers to perturb, up to any degree, because what one unit changes does not depend on how large
degrees are (PRIVACY.md section 8).  What is drawn is post-processing of public values: bins beyond
the last one that stands out of the noise hold nobody, or a huge degree would be made of noise.
"""

from __future__ import annotations

import math

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers

#: The largest degree that is told: a parent with more counts as one of that.
LARGEST = 1 << 20
#: Degrees that are told apart, and by what the ends of bins beyond grow: from fine to coarse.
LAYOUTS = ((16, 5, 4), (8, 3, 2), (4, 2, 1), (1, 4, 1))
#: The share of parents that noise may move between bins, for bins to be as fine as that.
_MOVED = 0.1
#: Neighbouring bins that are looked at together, and how many standard deviations stand out:
#: anywhere, which noise alone does in one of five million histograms of 60 bins; in a doubling
#: that has far fewer than expected; what is far fewer.
_TOGETHER, _FAR, _NEAR, _SURE = 3, 6.0, 2.0, 3.0
#: What share of a doubling the next one is expected to hold at most, and how many parents at least.
_FALLS, _LEAST = 0.45, 2.0


def edges(most: int, layout: tuple[int, int, int] = LAYOUTS[0]) -> tuple[int, ...]:
    """Return the least degree of each bin, from 1 to ``most``, which the last bin holds.

    Parameters
    ----------
    most : int
        The largest degree.
    layout : tuple of int
        One of `LAYOUTS`.

    Raises
    ------
    InvalidParameter
        If the largest degree is below 1.
    """
    if most < 1:
        raise InvalidParameter(f"a largest degree of {most} allows no link")
    single, up, down = layout
    found = list(range(1, min(single, most) + 1))
    while found[-1] < most:
        after = max(found[-1] + 1, found[-1] * up // down)
        if after > most:
            break
        found.append(after)
    return tuple(found)


def fitting_edges(most: int, parents: int, sigma: float) -> tuple[int, ...]:
    """Return bins as fine as so many parents fill, where noise has a standard deviation."""
    for layout in LAYOUTS:
        found = edges(most, layout)
        if _noise_in(len(found), sigma) <= _MOVED * parents:
            return found
    return found


def stands_out(parents: int, sigma: float) -> bool:
    """Tell whether anything in a histogram of so many parents can stand out of the noise."""
    return _FAR * sigma * math.sqrt(_TOGETHER) <= parents


def _noise_in(bins: int, sigma: float) -> float:
    """How many parents noise moves: half of the bins hold nobody, and are cut off."""
    return sigma * math.sqrt(2 / math.pi) * bins / 4


def settled(histogram: Floats, sigma: float, starts: tuple[int, ...] | None = None) -> Floats:
    """Return what a noisy histogram says, with few parents in bins that noise alone may fill.

    Parameters
    ----------
    histogram : array of shape (bins,)
        Noisy.
    sigma : float
        The standard deviation of its noise; 0 if there is none.
    starts : tuple of int, optional
        Of `edges`: where bins end that together are one doubling; else each bin is one.

    Returns
    -------
    array of float64, shape (bins,)
        Not negative.  Beyond the last bins that stand out of the noise, every doubling holds what
        was measured and what the doublings before let expect, each as far as it is certain: half
        of the one before at most, and nobody once that falls below `_LEAST` parents.
    """
    kept = np.asarray(histogram, dtype=np.float64).copy()
    found: Floats = np.zeros_like(kept)
    last = _last(kept, sigma)
    if last < 0:
        return found
    total = max(float(kept[: last + 1].sum()), 0.0)
    found[: last + 1] = project_simplex(kept[: last + 1], total)
    if sigma > 0:
        _extend(found, kept, last, sigma, starts or tuple(1 << i for i in range(kept.size)))
    return found


def _last(histogram: Floats, sigma: float) -> int:
    """Return the last bin that stands out of the noise, -1 if none does."""
    if sigma <= 0:
        return histogram.size - 1
    last = -1
    for start in range(histogram.size):
        for some in (histogram[start : start + n] for n in range(1, _TOGETHER + 1)):
            # what stands out together is somewhere from the first of them on
            if some.sum() > _FAR * sigma * math.sqrt(some.size):
                last = start
    return last


def reaches(histogram: Floats, starts: tuple[int, ...], sigma: float, rows: int) -> bool:
    """Tell whether parents with more children than ``rows`` stand out of the noise."""
    last = _last(np.asarray(histogram, dtype=np.float64), sigma)
    return last >= 0 and starts[last] > rows


def _extend(
    found: Floats, measured: Floats, last: int, sigma: float, starts: tuple[int, ...]
) -> None:
    """Fill the bins beyond the last that stands out, doubling by doubling."""
    at = last + 1
    if at == found.size:
        return
    low, lower = (int(np.searchsorted(starts, starts[at] / n)) for n in (2, 4))
    mass, earlier = float(found[low:at].sum()), float(found[lower:low].sum())
    ratio = min(mass / earlier, _FALLS) if earlier > 0 else _FALLS
    while at < found.size:
        end = max(int(np.searchsorted(starts, 2 * starts[at])), at + 1)
        expected, noise = ratio * mass, sigma**2 * (end - at)
        here = float(measured[at:end].sum())
        if expected - here > _SURE * math.sqrt(noise) and here < _NEAR * math.sqrt(noise):
            return
        here = (expected * noise + here * expected**2) / (noise + expected**2)
        here = min(here, _FALLS * mass)
        if here < _LEAST:
            return
        found[at:end] = here / (end - at)
        mass, ratio, at = here, here / mass, end


def draw_degrees(
    histogram: Floats,
    starts: tuple[int, ...],
    most: int,
    parents: int,
    rng: np.random.Generator,
    sigma: float = 0.0,
) -> Integers:
    """Draw the degree of every parent from a noisy histogram.

    Parameters
    ----------
    histogram : array of shape (bins,)
        Parents by their number of children, those without any left out; noisy.
    starts : tuple of int
        Of `edges`.
    most : int
        The largest degree.
    parents : int
        Rows; those that the histogram does not hold have no children.
    rng : Generator
    sigma : float
        The standard deviation of the histogram's noise.

    Returns
    -------
    array of int64, shape (parents,)
        In random order; within a bin as often as the reciprocal of the degree.
    """
    shares = settled(histogram, sigma, starts)
    with_children = float(np.clip(shares.sum(), 0.0, parents))
    shares *= with_children / max(float(shares.sum()), 1e-300)
    shares = np.concatenate([[max(parents - with_children, 0.0)], shares])
    total = float(shares.sum())
    if parents == 0 or total <= 0:
        return np.zeros(parents, dtype=np.int64)
    points = (rng.random() + np.arange(parents)) * (total / parents)
    bins = np.searchsorted(np.cumsum(shares), points, side="right")
    return within(rng.permutation(np.minimum(bins, len(starts))), starts, most, rng)


def within(
    bins: Integers, starts: tuple[int, ...], most: int, rng: np.random.Generator
) -> Integers:
    """Draw degrees within bins, 0 of which is that of no children, by a decreasing law."""
    low = np.array([1, *starts], dtype=np.float64)[bins]
    ends = np.array([1, *starts[1:], most + 1], dtype=np.float64)[bins]
    drawn = np.floor(low * (ends / low) ** rng.random(bins.size))
    return np.where(bins == 0, 0, np.clip(drawn, low, np.maximum(ends - 1, low))).astype(np.int64)


def number_of_children(
    counted: float, degrees: Integers, rows: int, *, alone: bool, more: bool
) -> int:
    """Tell how many children parents of such degrees have.

    Parameters
    ----------
    counted : float
        Children of which at most ``rows`` of each privacy unit count; noisy.
    degrees : array of int64
        Drawn from the whole histogram.
    rows : int
        ``d_max`` of the children.
    alone : bool
        Whether every unit is one parent: then what was not counted is what parents have beyond
        ``rows``.  Else all degrees are summed.
    more : bool
        Whether there are clearly more than were counted: `reaches` of units that are one parent
        each, else `exceed`.
    """
    if not more:
        return max(0, round(counted))
    if alone:
        return max(0, round(counted)) + int(np.maximum(degrees - rows, 0).sum())
    return int(degrees.sum())


def exceed(
    histogram: Floats, starts: tuple[int, ...], sigma: float, counted: float, noise: float
) -> bool:
    """Tell whether parents clearly have more children than were counted, by more than a tenth.

    Parents up to some bin have at least as many children as if all degrees were their bins' least;
    one such sum that stands out of its own noise is enough, whatever bins beyond hold.

    Parameters
    ----------
    histogram, starts, sigma
        As in `draw_degrees`.
    counted, noise : float
        Noisy, and its standard deviation.
    """
    low = np.array(starts, dtype=np.float64)
    least = np.cumsum(low * histogram)
    off = np.sqrt(np.cumsum((low * sigma) ** 2) + noise**2)
    return bool(np.any((least > 1.1 * counted) & (least - counted > _FAR * off)))
