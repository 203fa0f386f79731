"""Marginals as bit masks: attribute sets, sizes, and sums over subsets and supersets.

An attribute set ``A`` of a domain with ``d`` attributes is an integer whose bit ``i``
says whether attribute ``i`` is kept (papers/hdmm.txt section 7.2, Definition 20: "the
binary representation of ``a``"; there attribute 1 is the leading bit of the examples,
here attribute 0 is bit 0).  A *workload of marginals* is a mapping from such masks to
positive weights; a weight multiplies the squared error of every cell of that marginal,
which is the square of the weight that HDMM writes before a Kronecker product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpsql.errors import InvalidParameter

Floats = npt.NDArray[np.float64]

MAX_ATTRIBUTES = 62
MAX_DENSE_ATTRIBUTES = 20


def check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Check the numbers of levels of the attributes.

    Parameters
    ----------
    sizes : sequence of int
        Levels of each attribute, every one at least 1; at most 62 attributes.

    Raises
    ------
    InvalidParameter
        If an attribute has no level or there are too many attributes.
    """
    if len(sizes) > MAX_ATTRIBUTES:
        raise InvalidParameter(
            f"a domain of {len(sizes)} attributes is too wide",
            detail=f"At most {MAX_ATTRIBUTES} attributes can be named in one workload.",
        )
    for i, n in enumerate(sizes):
        if n < 1:
            raise InvalidParameter(f"attribute {i} of the domain has {n} levels")
    return tuple(int(n) for n in sizes)


def mask_of(attributes: Iterable[int]) -> int:
    """Return the mask of a set of attribute numbers."""
    mask = 0
    for i in attributes:
        mask |= 1 << i
    return mask


def attributes_of(mask: int) -> tuple[int, ...]:
    """List the attribute numbers of a mask, ascending: the axes of its marginal's table."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def kept_masks(masks: Sequence[int]) -> Floats:
    """Write masks as what is measured is kept: two halves, which floats hold exactly."""
    halves = [(mask >> 31, mask & (1 << 31) - 1) for mask in masks]
    return np.array(halves, dtype=np.float64).reshape(-1, 2)


def read_masks(kept: Floats) -> list[int]:
    """Read what `kept_masks` wrote; one number each is what earlier versions kept."""
    if kept.ndim == 1:
        return [int(mask) for mask in kept]
    return [int(high) << 31 | int(low) for high, low in kept]


def shape(sizes: Sequence[int], mask: int) -> tuple[int, ...]:
    """Return the shape of a marginal's table, axes in ascending order of attributes."""
    return tuple(sizes[i] for i in attributes_of(mask))


def cells(sizes: Sequence[int], mask: int) -> int:
    """Return the number of cells of a marginal; 1 for the empty set, which is the total."""
    return math.prod(shape(sizes, mask))


def total_cells(sizes: Sequence[int], masks: Iterable[int]) -> int:
    """Return the number of queries of a workload of marginals."""
    return sum(cells(sizes, mask) for mask in masks)


def subsets(mask: int) -> Iterator[int]:
    """Yield all subsets of a mask, ascending, from the empty set to the mask itself."""
    part = 0
    while True:
        yield part
        if part == mask:
            return
        part = (part - mask) & mask


def sweep(masks: Iterable[int]) -> list[int]:
    """Order masks by number of attributes, then by value: subsets before supersets."""
    return sorted(set(masks), key=lambda mask: (mask.bit_count(), mask))


def downward_closure(masks: Iterable[int]) -> list[int]:
    """List every subset of some given mask once, subsets before supersets.

    The work is proportional to the number of pairs (subset, attribute), not to the sum
    of ``2**|A|`` over the given masks.
    """
    found: set[int] = set()
    pending = list(masks)
    while pending:
        mask = pending.pop()
        if mask not in found:
            found.add(mask)
            pending += [mask & ~(1 << i) for i in attributes_of(mask)]
    return sweep(found)


def maximal(masks: Iterable[int]) -> list[int]:
    """List the masks that are no proper subset of another one."""
    chosen = sweep(masks)
    covered = {mask & ~(1 << i) for mask in downward_closure(chosen) for i in attributes_of(mask)}
    return [mask for mask in chosen if mask not in covered]


def k_way(count: int, k: int) -> list[int]:
    """List the marginals of exactly ``k`` of ``count`` attributes."""
    return [mask_of(c) for c in combinations(range(count), k)]


def at_most_k_way(count: int, k: int) -> list[int]:
    """List the marginals of at most ``k`` of ``count`` attributes, the total first."""
    return [mask for i in range(k + 1) for mask in k_way(count, i)]


def small(sizes: Sequence[int], limit: int) -> list[int]:
    """List the marginals with at most ``limit`` cells, the total first.

    Notes
    -----
    Sub-marginals are never larger, so the list is down-closed and grows from below.
    """
    found = {0}
    layer = [0]
    while layer:
        grown = {
            mask | 1 << i
            for mask in layer
            for i in range(mask.bit_length(), len(sizes))
            if cells(sizes, mask) * sizes[i] <= limit
        }
        found |= grown
        layer = sorted(grown)
    return sweep(found)


def spread_down(
    values: Mapping[int, float], inside: Sequence[float], outside: Sequence[float]
) -> dict[int, float]:
    """Sum over supersets with a factor per attribute, for every subset of the given masks.

    ``out(B) = sum over A >= B of values(A) * prod_{i in B} inside_i * prod_{i in A-B} outside_i``

    Parameters
    ----------
    values : mapping of mask to float
        Absent masks count as zero.
    inside, outside : sequence of float
        One factor per attribute.

    Returns
    -------
    dict
        One entry per mask of the downward closure of ``values``, subsets first.
    """
    result = {mask: float(values.get(mask, 0.0)) for mask in downward_closure(values)}
    for i in range(len(inside)):
        bit = 1 << i
        for mask in [m for m in result if m & bit]:
            result[mask ^ bit] += outside[i] * result[mask]
            result[mask] *= inside[i]
    return result


def gather_up(
    values: Mapping[int, float], inside: Sequence[float], outside: Sequence[float]
) -> dict[int, float]:
    """Sum over subsets with a factor per attribute: the transpose of `spread_down`.

    ``out(A) = sum over B <= A of values(B) * prod_{i in B} inside_i * prod_{i in A-B} outside_i``
    """
    result = {mask: float(values.get(mask, 0.0)) for mask in downward_closure(values)}
    for i in range(len(inside)):
        bit = 1 << i
        for mask in [m for m in result if m & bit]:
            result[mask] = inside[i] * result[mask] + outside[i] * result[mask ^ bit]
    return result


def dense_weights(count: int, weights: Mapping[int, float]) -> Floats:
    """Return the vector of ``2**count`` weights, indexed by mask (Definition 20)."""
    if count > MAX_DENSE_ATTRIBUTES:
        raise InvalidParameter(
            f"a vector over all marginals of {count} attributes is too long",
            detail=f"OPT_M works on at most {MAX_DENSE_ATTRIBUTES} attributes.",
            hint="Use the residual planner, whose work grows with the marginals asked for.",
        )
    vector = np.zeros(1 << count)
    for mask, weight in weights.items():
        vector[mask] += weight
    return vector


def superset_sum(vector: Floats) -> Floats:
    """Sum over supersets: ``out(a) = sum over b with a & b = a of vector(b)``, O(d 2^d)."""
    return _each_attribute(vector, +1.0, upper_into_lower=True)


def superset_difference(vector: Floats) -> Floats:
    """Invert `superset_sum` (Möbius)."""
    return _each_attribute(vector, -1.0, upper_into_lower=True)


def subset_sum(vector: Floats) -> Floats:
    """Sum over subsets: ``out(a) = sum over b with a & b = b of vector(b)``, O(d 2^d)."""
    return _each_attribute(vector, +1.0, upper_into_lower=False)


def _each_attribute(vector: Floats, sign: float, *, upper_into_lower: bool) -> Floats:
    result = np.array(vector, dtype=np.float64)
    step = 1
    while step < result.size:
        pairs = result.reshape(-1, 2, step)
        if upper_into_lower:
            pairs[:, 0] += sign * pairs[:, 1]
        else:
            pairs[:, 1] += sign * pairs[:, 0]
        step *= 2
    return result


def product_over_attributes(outside: Sequence[float], inside: Sequence[float]) -> Floats:
    """Return ``prod_{i in a} inside_i * prod_{i not in a} outside_i`` for all ``2**d`` masks."""
    result = np.ones(1)
    for low, high in zip(outside, inside, strict=True):
        result = np.concatenate([result * low, result * high])
    return result
