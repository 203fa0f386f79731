"""Synthetic tables as codes, and the marginals that cross two of them.

A cross-table workload ``(S_1, S_2)`` (papers/relational-synthetic-data.txt, Definition 2) is a pair
of attribute sets as bit masks; its marginal counts *links* by the values that both ends have.
Counts, not shares: under add/remove neighbours the number of links is no public fact
(PRIVACY.md section 8), so nothing here divides by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats, attributes_of, cells, check_sizes, k_way, shape
from dpsql.workload.residual_bases import Integers

#: Bytes of codes that a table keeps.
_KEPT = 256 << 20


class Cross(NamedTuple):
    """A workload across two tables: the attributes of each end, as masks."""

    left: int
    right: int


class Links(NamedTuple):
    """Pairs of row numbers, the same length."""

    left: Integers
    right: Integers


@dataclass(frozen=True)
class Records:
    """A synthetic table.

    Parameters
    ----------
    rows : array of int, shape (n, d)
        ``0 <= rows[i, a] < sizes[a]``.
    sizes : tuple of int
        Levels of each attribute.

    Raises
    ------
    InvalidParameter
        If a code is outside its domain, or the shapes differ.
    """

    rows: Integers
    sizes: tuple[int, ...]
    _codes: dict[int, Integers] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        if self.rows.ndim != 2 or self.rows.shape[1] != len(self.sizes):
            raise InvalidParameter(
                f"a synthetic table of shape {self.rows.shape} has not {len(self.sizes)} attributes"
            )
        for a, n in enumerate(self.sizes):
            column = self.rows[:, a]
            if column.size and (column.min() < 0 or column.max() >= n):
                raise InvalidParameter(
                    f"attribute {a} of a synthetic table has codes outside its domain",
                    detail=f"The domain has {n} levels.",
                )

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.rows.shape[0])

    def codes(self, mask: int) -> Integers:
        """Return each row's cell of a marginal: shape (n,), the last attribute fastest."""
        found = self._codes.get(mask)
        if found is None:
            found = np.zeros(self.count, dtype=np.int64)
            for a in attributes_of(mask):
                found = found * self.sizes[a] + self.rows[:, a]
            if len(self._codes) >= max(1, min(16, _KEPT // max(found.nbytes, 1))):
                self._codes.clear()
            self._codes[mask] = found
        return found


@dataclass(frozen=True)
class Answer:
    """A noisy answer to a workload.

    Attributes
    ----------
    workload : Cross
    table : array of float64, shape (cells of the left end, cells of the right end)
        Noisy numbers of links.
    variance : Fraction
        Of the noise of every cell.
    """

    workload: Cross
    table: Floats
    variance: Fraction


class CrossMarginals(Protocol):
    """Exact cross-table marginals of protected tables."""

    def batch(self, workloads: Sequence[Cross]) -> Mapping[Cross, Integers]:
        """Count the links by the values of their ends, for several workloads at once.

        Returns
        -------
        mapping of Cross to array of int64
            The left attributes' axes, ascending, then the right ones'; or the same flattened to
            two axes.  Links beyond ``d_max`` of a protected row are cut off before they are
            counted, by a rule that is stable (PRIVACY.md section 8).
        """
        ...


def cross_shape(left: Sequence[int], right: Sequence[int], workload: Cross) -> tuple[int, int]:
    """Return the numbers of cells of both ends."""
    return cells(left, workload.left), cells(right, workload.right)


def full_shape(left: Sequence[int], right: Sequence[int], workload: Cross) -> tuple[int, ...]:
    """Return the lengths of all axes of a marginal."""
    return shape(left, workload.left) + shape(right, workload.right)


def cross_workloads(left: Sequence[int], right: Sequence[int], k: int) -> list[Cross]:
    """List all workloads over ``k`` attributes in all, at least one of each end (Definition 2)."""
    return [
        Cross(one, other)
        for i in range(1, k)
        for one in k_way(len(left), i)
        for other in k_way(len(right), k - i)
    ]


def count_links(left: Records, right: Records, links: Links, workload: Cross) -> Integers:
    """Count links by the values of their ends, exactly.

    Returns
    -------
    array of int64, shape `cross_shape`
    """
    a, b = cross_shape(left.sizes, right.sizes, workload)
    cell = left.codes(workload.left)[links.left] * b + right.codes(workload.right)[links.right]
    return np.bincount(cell, minlength=a * b).reshape(a, b).astype(np.int64)
