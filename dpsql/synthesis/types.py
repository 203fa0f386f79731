"""Types: rows that agree on every attribute in use, counted once.

The objective of Algorithm 5 (papers/relational-synthetic-data.txt) sees a pair ``(i, j)`` only
through the values that row ``i`` and row ``j`` have for the attributes of the workloads measured.
Call rows that agree on those a *type*, and let type ``s`` of the left table have ``c_s`` rows, type
``t`` of the right one ``c_t``.  Then optimising the relaxed links ``b`` of all pairs is the same as
optimising ``X_st``, the links between types:

- every feasible ``b`` gives ``X_st = sum over pairs of types s, t of b_ij``, with the same
  marginals, hence the same objective, ``0 <= X_st <= c_s c_t``, and the same total, row and column
  sums, added up over types;
- every such ``X`` comes from the feasible ``b_ij = X_st / (c_s c_t)``.

Put the other way round: the objective is convex and does not change when rows of one type trade
places, so averaging an optimal ``b`` over all these permutations gives an optimal ``b`` that is
constant on blocks.  Nothing is lost, and ``n_1 n_2`` unknowns become ``k_1 k_2``.

Rows of one type with *given* degrees that differ cannot trade places: then ``X`` is bounded by what
single blocks can hold (`polytope.polytope_of`), a necessary condition, and the error reached is at
most that of pairs; links that a row cannot have together are reported by `blocks.Sampled`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.synthesis.records import Records
from dpsql.workload.marginals import Floats, attributes_of
from dpsql.workload.residual_bases import Integers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: A matrix one in so many of whose entries are not 0 is kept as an array.
_DENSE = 16
#: Pairs of types that are optimised at most: 8 bytes each, some seven times over.
MOST_TYPES = 4_000_000


@dataclass(frozen=True)
class Types:
    """The types of one table.

    Attributes
    ----------
    mask : int
        The attributes in use.
    of : array of int64, shape (n,)
        Each row's type.
    counts : array of int64, shape (k,)
        Rows of each type, at least 1.
    first : array of int64, shape (k,)
        A row of each.
    """

    mask: int
    of: Integers
    counts: Integers
    first: Integers

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.counts.size)

    def codes(self, records: Records, mask: int) -> Integers:
        """Return each type's cell of a marginal over attributes in use."""
        return records.codes(mask)[self.first]

    def spread(
        self, records: Records, mask: int, cells: int, weights: Integers | None
    ) -> Floats | csr_matrix:
        """Return how the rows of each type are spread over the cells of any marginal.

        Parameters
        ----------
        weights : array of shape (n,), optional
            Of the rows: their degrees, where known.

        Returns
        -------
        array or sparse matrix of shape (cells, k)
            Columns sum to 1, or to 0 where all weights of a type are 0.
        """
        from scipy.sparse import csr_matrix

        shape = (cells, self.number)
        if mask & ~self.mask == 0:
            cell = np.zeros(self.number, dtype=np.int64)
            for a in attributes_of(mask):
                cell = cell * records.sizes[a] + records.rows[self.first, a]
            shares = np.ones(self.number)
            if weights is not None:
                shares[np.bincount(self.of, weights=weights, minlength=self.number) <= 0] = 0.0
            return csr_matrix((shares, (cell, np.arange(self.number))), shape=shape)
        keys = records.codes(mask) * self.number + self.of
        if cells * self.number <= max(1 << 20, 4 * records.count):  # numbering beats sorting
            found = np.bincount(keys, weights=weights, minlength=cells * self.number)
            places = np.flatnonzero(found)
            if places.size * _DENSE > found.size:
                table = found.reshape(shape).astype(np.float64)
                return np.asarray(table / np.maximum(table.sum(axis=0), 1e-300))
            shares = found[places].astype(np.float64)
        else:
            places, where = np.unique(keys, return_inverse=True)
            shares = np.bincount(where, weights=weights).astype(np.float64)
        of, cell = places % self.number, places // self.number
        sums = np.bincount(of, weights=shares, minlength=self.number)
        shares /= np.maximum(sums[of], 1e-300)
        return csr_matrix((shares, (cell, of)), shape=shape)


def types_of(records: Records, mask: int) -> Types:
    """Find the types of a table: its distinct rows over some attributes.

    Notes
    -----
    Attribute by attribute, renumbering where codes would pass 2^62, so any width fits.
    """
    keys = np.zeros(records.count, dtype=np.int64)
    span = 1
    for a in attributes_of(mask):
        size = records.sizes[a]
        if span * size >= 1 << 62:
            found, keys = np.unique(keys, return_inverse=True)
            span = int(found.size)
        keys = keys * size + records.rows[:, a]
        span *= size
    if span <= max(1024, 4 * records.count):  # numbering cells beats sorting rows
        counts = np.bincount(keys, minlength=span)
        present = np.flatnonzero(counts)
        number = np.zeros(span, dtype=np.int64)
        number[present] = np.arange(present.size)
        of = number[keys]
        first = np.zeros(present.size, dtype=np.int64)
        first[of[::-1]] = np.arange(records.count)[::-1]
        return Types(mask, of, counts[present].astype(np.int64), first)
    _, first, of, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return Types(mask, of.astype(np.int64), counts.astype(np.int64), first.astype(np.int64))


def refined(old: Types, new: Types) -> Integers:
    """Return the old type of every new one, where the new attributes hold the old ones."""
    return old.of[new.first]
