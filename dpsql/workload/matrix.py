"""Query matrices of one attribute, written down only where that is asked for.

A query matrix has one row per query and one column per level (HDMM, Definition 5).  Everything that
selects a strategy looks at it through its Gram matrix alone, so the matrices that have many rows
(all ranges of 4096 levels: 8 million) give it in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InvalidParameter

Floats = NDArray[np.float64]
Order = Literal[1, 2]

#: Entries that a matrix may have when it is written down (1 GiB).
MOST_ENTRIES = 1 << 27
#: Eigenvalues of a Gram matrix below this part of the largest one count as zero.
RANK_TOLERANCE = 1e-11


def refuse_entries(rows: int, columns: int) -> None:
    """Refuse to write a matrix down that does not fit the limit."""
    if rows * columns > MOST_ENTRIES:
        raise InvalidParameter(
            "the matrix of queries is too large to be written down",
            detail=f"It has {rows} rows and {columns} columns; at most {MOST_ENTRIES} entries fit.",
        )


class QueryMatrix(ABC):
    """A matrix of shape ``(m, n)``: ``m`` queries about an attribute with ``n`` levels.

    Subclasses say their shape and how they are written down, and override what they know better.
    In ``_apply`` the levels, in ``_transposed`` the queries are the table's first axis.
    """

    @abstractmethod
    def _shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def _dense(self) -> Floats: ...

    def _gram(self) -> Floats:
        matrix = self.dense()
        return matrix.T @ matrix

    def _column_norms(self, order: Order) -> Floats:
        if order == 2:
            return np.diagonal(self.gram()).copy()
        norms: Floats = np.abs(self.dense()).sum(axis=0)
        return norms

    def _pinv(self) -> QueryMatrix:
        return PseudoInverse(self)

    def _apply(self, table: Floats) -> Floats:
        return np.tensordot(self.dense(), table, axes=1)

    def _transposed(self, table: Floats) -> Floats:
        return np.tensordot(self.dense().T, table, axes=1)

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and levels."""
        return self._shape()

    def bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
        """List the ranges ``start <= level < stop`` that the queries are, if they all are."""
        return None

    def dense(self) -> Floats:
        """Write the matrix down.

        Raises
        ------
        InvalidParameter
            When it has more than `MOST_ENTRIES` entries.
        """
        refuse_entries(*self.shape)
        return self._dense()

    def gram(self) -> Floats:
        """Multiply the transpose by the matrix: shape ``(n, n)``."""
        return self._gram()

    def matvec(self, table: Floats, axis: int = 0) -> Floats:
        """Multiply every fibre along ``axis`` by the matrix.

        Parameters
        ----------
        table : array
            ``n`` entries along ``axis``.
        axis : int
            Which one.

        Returns
        -------
        array
            The same shape, with ``m`` entries along ``axis``.
        """
        return self._along(table, axis, 1)

    def rmatvec(self, table: Floats, axis: int = 0) -> Floats:
        """Multiply every fibre along ``axis`` (``m`` entries) by the transpose."""
        return self._along(table, axis, 0)

    def _along(self, table: Floats, axis: int, side: int) -> Floats:
        moved = np.moveaxis(np.asarray(table, dtype=np.float64), axis, 0)
        if moved.shape[0] != self.shape[side]:
            raise InvalidParameter(
                "the table does not fit the matrix of queries",
                detail=f"Axis {axis} has {moved.shape[0]} entries, not {self.shape[side]}.",
            )
        result = self._apply(moved) if side else self._transposed(moved)
        return np.moveaxis(result, 0, axis)

    def column_norms(self, order: Order) -> Floats:
        """Sum the columns' absolute entries to the power ``order``: shape ``(n,)``.

        For order 2 these are squared norms, which are the Gram matrix's diagonal.
        """
        return self._column_norms(order)

    def sensitivity(self, order: Order) -> float:
        """Find the largest L1 or L2 norm of a column (HDMM, Proposition 2).

        One row more or less moves the answers by at most this in that norm.
        """
        return float(self.column_norms(order).max() ** (1 / order))

    def pinv(self) -> QueryMatrix:
        """Invert (Moore-Penrose), implicitly: ``G^+ W^T`` for the Gram matrix ``G``."""
        return self._pinv()


class _NonNegative(QueryMatrix):
    """Entries are 0 or 1, so the column sums are their squared norms too."""

    def _column_norms(self, order: Order) -> Floats:
        del order
        return self.rmatvec(np.ones(self.shape[0]))


@dataclass(frozen=True)
class Identity(_NonNegative):
    """One query per level."""

    n: int

    def _shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _dense(self) -> Floats:
        return np.eye(self.n)

    def _gram(self) -> Floats:
        return np.eye(self.n)

    def _apply(self, table: Floats) -> Floats:
        return table

    _transposed = _apply

    def _pinv(self) -> QueryMatrix:
        return self


@dataclass(frozen=True)
class Total(_NonNegative):
    """One query that counts all levels."""

    n: int

    def _shape(self) -> tuple[int, int]:
        return 1, self.n

    def _dense(self) -> Floats:
        return np.ones((1, self.n))

    def _gram(self) -> Floats:
        return np.ones((self.n, self.n))

    def _apply(self, table: Floats) -> Floats:
        return np.asarray(table.sum(axis=0, keepdims=True))

    def _transposed(self, table: Floats) -> Floats:
        return np.repeat(table, self.n, axis=0)


@dataclass(frozen=True)
class Prefix(_NonNegative):
    """The levels up to the first, the second, ... : an empirical distribution function."""

    n: int

    def _shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _dense(self) -> Floats:
        return np.tri(self.n)

    def _gram(self) -> Floats:
        i = np.arange(self.n, dtype=np.float64)
        return self.n - np.maximum.outer(i, i)

    def _apply(self, table: Floats) -> Floats:
        return np.asarray(np.cumsum(table, axis=0))

    def _transposed(self, table: Floats) -> Floats:
        return np.asarray(np.cumsum(table[::-1], axis=0)[::-1])

    def bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """See `QueryMatrix.bounds`."""
        return np.zeros(self.n, dtype=np.intp), np.arange(1, self.n + 1)


class _Ranges(_NonNegative):
    """Ranges ``start <= level < stop``."""

    n: int

    @abstractmethod
    def _bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """List the starts and the stops."""

    def bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """See `QueryMatrix.bounds`."""
        return self._bounds()

    def _dense(self) -> Floats:
        start, stop = self._bounds()
        level = np.arange(self.n)
        return ((start[:, None] <= level) & (level < stop[:, None])).astype(np.float64)

    def _apply(self, table: Floats) -> Floats:
        start, stop = self._bounds()
        sums = np.zeros((self.n + 1, *table.shape[1:]))
        np.cumsum(table, axis=0, out=sums[1:])
        return np.asarray(sums[stop] - sums[start])

    def _transposed(self, table: Floats) -> Floats:
        start, stop = self._bounds()
        steps = np.zeros((self.n + 1, *table.shape[1:]))
        np.add.at(steps, start, table)
        np.subtract.at(steps, stop, table)
        return np.asarray(np.cumsum(steps, axis=0)[:-1])


@dataclass(frozen=True)
class AllRange(_Ranges):
    """All ``n(n+1)/2`` ranges, by start and then by stop."""

    n: int

    def _shape(self) -> tuple[int, int]:
        return self.n * (self.n + 1) // 2, self.n

    def _bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        start, last = np.triu_indices(self.n)
        return start, last + 1

    def _gram(self) -> Floats:
        # Levels i <= j lie in the ranges that start at one of 0..i and end at one of j..n-1.
        i = np.arange(self.n, dtype=np.float64)
        return np.minimum.outer(i + 1, i + 1) * np.minimum.outer(self.n - i, self.n - i)

    def _column_norms(self, order: Order) -> Floats:
        del order
        i = np.arange(self.n, dtype=np.float64)
        return (i + 1) * (self.n - i)


@dataclass(frozen=True)
class Width(_Ranges):
    """The ``n - width + 1`` ranges of one width."""

    n: int
    width: int

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.n:
            raise InvalidParameter(
                "the width of ranges must be between 1 and the number of levels",
                detail=f"It is {self.width}, and there are {self.n} levels.",
            )

    def _shape(self) -> tuple[int, int]:
        return self.n - self.width + 1, self.n

    def _bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        start = np.arange(self.shape[0])
        return start, start + self.width

    def _gram(self) -> Floats:
        # Levels i <= j lie in the ranges that start at one of max(0, j-w+1)..min(i, n-w).
        i = np.arange(self.n, dtype=np.float64)
        low = np.maximum(0, np.maximum.outer(i, i) - self.width + 1)
        high = np.minimum(np.minimum.outer(i, i), self.n - self.width)
        return np.asarray(np.maximum(0, high - low + 1))


@dataclass(frozen=True, eq=False)
class Dense(QueryMatrix):
    """A matrix that is written down."""

    matrix: Floats

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise InvalidParameter("a matrix of queries needs rows and columns")
        if not np.isfinite(self.matrix).all():
            raise InvalidParameter("a matrix of queries needs finite entries")

    def _shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def _dense(self) -> Floats:
        return self.matrix

    def _column_norms(self, order: Order) -> Floats:
        if order == 1:
            return super()._column_norms(order)
        return np.asarray(np.einsum("ij,ij->j", self.matrix, self.matrix))

    def _pinv(self) -> QueryMatrix:
        return Dense(np.asarray(np.linalg.pinv(self.matrix), dtype=np.float64))


@dataclass(frozen=True)
class Permuted(QueryMatrix):
    """A matrix whose level ``permutation[i]`` is asked for where ``matrix`` asks for ``i``."""

    matrix: QueryMatrix
    permutation: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.permutation) != list(range(self.matrix.shape[1])):
            raise InvalidParameter("the levels of an attribute must be permuted one to one")

    @property
    def _inverse(self) -> NDArray[np.intp]:
        return np.argsort(self.permutation)

    def _shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def _dense(self) -> Floats:
        return self.matrix.dense()[:, self._inverse]

    def _gram(self) -> Floats:
        return self.matrix.gram()[np.ix_(self._inverse, self._inverse)]

    def _apply(self, table: Floats) -> Floats:
        return self.matrix.matvec(table[list(self.permutation)])

    def _transposed(self, table: Floats) -> Floats:
        return self.matrix.rmatvec(table)[self._inverse]

    def _column_norms(self, order: Order) -> Floats:
        return self.matrix.column_norms(order)[self._inverse]


@dataclass(frozen=True)
class Stacked(QueryMatrix):
    """Matrices about one attribute, one below the other, each times its weight."""

    matrices: tuple[QueryMatrix, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.matrices or len(self.matrices) != len(self.weights):
            raise InvalidParameter("stacked matrices of queries need one weight each")
        if len({matrix.shape[1] for matrix in self.matrices}) > 1:
            raise InvalidParameter("stacked matrices of queries differ in their levels")

    @classmethod
    def of(cls, *matrices: QueryMatrix) -> Stacked:
        """Stack with weight 1."""
        return cls(matrices, (1.0,) * len(matrices))

    def _shape(self) -> tuple[int, int]:
        return sum(matrix.shape[0] for matrix in self.matrices), self.matrices[0].shape[1]

    def _dense(self) -> Floats:
        return np.concatenate([w * m.dense() for m, w in self._weighted])

    @property
    def _weighted(self) -> list[tuple[QueryMatrix, float]]:
        return list(zip(self.matrices, self.weights, strict=True))

    def _gram(self) -> Floats:
        total = np.zeros((self.shape[1], self.shape[1]))
        for matrix, weight in self._weighted:
            total += weight**2 * matrix.gram()
        return total

    def _apply(self, table: Floats) -> Floats:
        return np.concatenate([w * m.matvec(table) for m, w in self._weighted])

    def _transposed(self, table: Floats) -> Floats:
        ends = np.cumsum([matrix.shape[0] for matrix in self.matrices])[:-1]
        total = np.zeros((self.shape[1], *table.shape[1:]))
        for (matrix, weight), part in zip(self._weighted, np.split(table, ends), strict=True):
            total += weight * matrix.rmatvec(part)
        return total

    def _column_norms(self, order: Order) -> Floats:
        total = np.zeros(self.shape[1])
        for matrix, weight in self._weighted:
            total += abs(weight) ** order * matrix.column_norms(order)
        return total


@dataclass(frozen=True, eq=False)
class PseudoInverse(QueryMatrix):
    """The Moore-Penrose inverse ``G^+ W^T`` of a matrix ``W`` with Gram matrix ``G``.

    It needs the ``n x n`` matrix ``G^+`` only.  The condition number of ``W`` is squared: levels of
    detail below the square root of `RANK_TOLERANCE` are lost.
    """

    matrix: QueryMatrix

    _inverse: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_inverse", gram_pinv(self.matrix.gram()))

    def _shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return columns, rows

    def _dense(self) -> Floats:
        return self._inverse @ self.matrix.dense().T

    def _apply(self, table: Floats) -> Floats:
        return np.tensordot(self._inverse, self.matrix.rmatvec(table), axes=1)

    def _transposed(self, table: Floats) -> Floats:
        return self.matrix.matvec(np.tensordot(self._inverse, table, axes=1))

    def _pinv(self) -> QueryMatrix:
        return self.matrix


def gram_pinv(gram: Floats) -> Floats:
    """Invert a Gram matrix (Moore-Penrose); see `RANK_TOLERANCE`.

    Parameters
    ----------
    gram : array, shape (n, n)
        Symmetric, positive semi-definite.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > RANK_TOLERANCE * max(values[-1], 0)
    return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)
