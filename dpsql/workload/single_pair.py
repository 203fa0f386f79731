"""Gram matrices of prefixes and ranges, which two vectors determine.

Sorted rightly, ``V_ij = a_min(i,j) b_max(i,j)``: prefixes have ``a = 1`` and ``b = n, n-1, ... 1``,
all ranges ``a = 1, 2, ...`` and ``b = n, n-1, ...``, in whatever order the levels are asked for.
Such a matrix (*single-pair*, Gantmacher and Krein 1941) is multiplied by in linear time, and its
inverse is tridiagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.workload.matrix import Floats
from dpsql.workload.stepwise import Tick, by_rows

#: Entries may differ from the product of two numbers by this part of the diagonal.
TOLERANCE = 1e-11
#: Largest trace of the matrix times the largest entry of the inverse, of which rounding spoils so
#: many units (prefixes of 4096 levels: 1e7).
CONDITION = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class SinglePair:
    """``V[order][:, order]_ij = first_i last_j`` for ``i <= j``.

    Parameters
    ----------
    order : array of int, shape (n,)
        A permutation of the levels.
    first, last : array, shape (n,)
        Positive; ``first / last`` rises strictly.
    """

    order: NDArray[np.intp]
    first: Floats
    last: Floats

    @classmethod
    def of(cls, gram: Floats, tick: Tick = lambda: None) -> SinglePair | None:
        """Find the two vectors, in linear time but for checking them; None if there are none.

        ``V_rj^2 / V_jj`` falls to both sides of a level ``r``, so it is least at an end, and sorts
        all levels when ``r`` is one.  ``tick`` may raise to cancel.
        """
        diagonal = np.diagonal(gram)
        if len(gram) < 2 or (diagonal <= 0).any():
            return None
        end = int(np.argmin(gram[0] ** 2 / diagonal))
        order = np.argsort(-(gram[end] ** 2) / diagonal, kind="stable")
        if order[0] != end or gram[end, order[-1]] <= 0:
            return None
        if order[0] > order[-1]:
            order = order[::-1]
        first = gram[order[-1], order]
        last = gram[order[0], order] / first[0]
        if (first <= 0).any() or (last <= 0).any() or (_minors(first, last) <= 0).any():
            return None
        place = np.argsort(order)
        a, b = first[place], last[place]
        roots = np.sqrt(diagonal)
        for some in by_rows(gram):
            tick()
            # a_i b_j or a_j b_i, whichever level comes first
            found = np.minimum(np.outer(a[some], b), np.outer(b[some], a))
            if not (np.abs(found - gram[some]) <= TOLERANCE * np.outer(roots[some], roots)).all():
                return None
        pair = cls(order, first, last)
        condition = float(diagonal.sum() * pair.inverse()[0].max())
        return pair if condition <= CONDITION else None

    def multiply(self, rows: Floats) -> Floats:
        """Multiply rows by the matrix: shape (m, n) to (m, n)."""
        sorted_rows = rows[:, self.order]
        before = np.cumsum(sorted_rows * self.first, axis=1)
        after = sorted_rows * self.last
        total = after.sum(axis=1, keepdims=True)
        result = np.empty_like(rows)
        result[:, self.order] = before * self.last + (total - np.cumsum(after, axis=1)) * self.first
        return result

    def inverse(self) -> tuple[Floats, Floats]:
        """Return the diagonal (n,) and the off-diagonal (n - 1,) of the sorted inverse."""
        a, b, minors = self.first, self.last, _minors(self.first, self.last)
        diagonal = np.empty(len(a))
        diagonal[0] = a[1] / (a[0] * minors[0])
        diagonal[-1] = b[-2] / (b[-1] * minors[-1])
        diagonal[1:-1] = (a[2:] * b[:-2] - a[:-2] * b[2:]) / (minors[:-1] * minors[1:])
        return diagonal, -1 / minors

    def eigenvalues(self) -> Floats:
        """Return the eigenvalues, the least first, in quadratic time."""
        from scipy.linalg import eigvalsh_tridiagonal

        return np.asarray(1 / eigvalsh_tridiagonal(*self.inverse())[::-1])

    def eigh(self, tick: Tick = lambda: None) -> tuple[Floats, Floats]:
        """Return the eigenvalues, the least first, and eigenvectors as columns."""
        from scipy.linalg import eigh_tridiagonal

        tick()
        values, vectors = eigh_tridiagonal(*self.inverse())
        tick()
        result = np.empty_like(vectors)
        result[self.order] = vectors[:, ::-1]
        tick()
        return 1 / values[::-1], result


def _minors(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[1:] * b[:-1] - a[:-1] * b[1:])
