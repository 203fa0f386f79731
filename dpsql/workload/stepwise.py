"""Dense linear algebra of some thousand cells in steps, between which it can be cancelled.

One call of LAPACK for 4,096 cells runs up to a quarter of a minute and hears nothing.  Here the
same is done by panels, in about the same time, with a call of ``tick`` every few tenths of a
second.  Small matrices go to numpy as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.workload.matrix import RANK_TOLERANCE, Floats, gram_pinv

#: Multiplications between two ticks: one or two tenths of a second.
_WORK = 1.5e9
#: Rows of the largest matrix whose eigenvectors numpy finds, in half a second.
MOST_AT_ONCE = 1100
#: Rows of the blocks of a Cholesky factor and of an inverse.
BLOCK = 512
#: Columns of a panel: those whose reflections are applied to the rest together.
PANEL = 64

#: Entries that are looked at between two ticks: some hundredths of a second.
ENTRIES = 1 << 21

Tick = Callable[[], None]


def matmul(left: Floats, right: Floats, tick: Tick) -> Floats:
    """Multiply matrices, some rows at a time."""
    rows = max(1, int(_WORK // max(1, left.shape[1] * right.shape[1])))
    if rows >= len(left):
        return np.asarray(left @ right)
    result: Floats = np.empty((len(left), right.shape[1]))
    for start in range(0, len(left), rows):
        tick()
        np.matmul(left[start : start + rows], right, out=result[start : start + rows])
    return result


def by_rows(matrix: NDArray[Any]) -> Iterator[slice]:
    """Yield blocks of rows, between which a look at all entries can be cancelled."""
    rows = max(1, ENTRIES // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), rows):
        yield slice(start, start + rows)


def is_symmetric(matrix: Floats, tick: Tick) -> bool:
    """Tell whether a square matrix is finite and symmetric, up to rounding (`numpy.allclose`)."""
    for some in by_rows(matrix):
        tick()
        rows = matrix[some]
        if not (np.isfinite(rows).all() and np.allclose(rows, matrix[:, some].T)):
            return False
    return True


def eigh(matrix: Floats, tick: Tick) -> tuple[Floats, Floats]:
    """Find eigenvalues, ascending, and eigenvectors, the columns, of a symmetric matrix.

    By Householder's reduction to a tridiagonal matrix (panels as in LAPACK's ``dsytrd``), whose
    eigenvectors LAPACK finds by divide and conquer, in one call, and the reflections of those.
    """
    if len(matrix) <= MOST_AT_ONCE:
        tick()
        found = np.linalg.eigh(matrix)
        return found[0], found[1]
    from scipy.linalg.lapack import dstevd

    diagonal, beside, panels = _tridiagonal(matrix, tick)
    tick()
    values, vectors, failed = dstevd(diagonal, beside)
    if failed:
        raise np.linalg.LinAlgError("eigenvalues did not converge")
    for start, reflectors, factor in reversed(panels):
        # of the product of a panel's reflections, I - V T V^T
        tick()
        rest = vectors[start:]
        rest -= (((rest.T @ reflectors) @ factor.T) @ reflectors.T).T
    return values, vectors


def cholesky(matrix: Floats, tick: Tick) -> Floats:
    """Find the lower triangular ``L`` with ``L L^T = matrix``, by blocks of columns.

    Raises
    ------
    numpy.linalg.LinAlgError
        Unless the matrix is positive definite, numerically.
    """
    n = len(matrix)
    tick()
    if n <= MOST_AT_ONCE:
        return np.asarray(np.linalg.cholesky(matrix))
    from scipy.linalg import solve_triangular

    factor = np.tril(matrix)  # above the diagonal all stays 0
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        tick()
        own = np.linalg.cholesky(factor[start:end, start:end])
        factor[start:end, start:end] = own
        if end == n:
            break
        tick()
        below = solve_triangular(own, factor[end:, start:end].T, lower=True, check_finite=False).T
        factor[end:, start:end] = below
        for left in range(end, n, BLOCK):
            tick()
            right = min(left + BLOCK, n)
            factor[left:, left:right] -= below[left - end :] @ below[left - end : right - end].T
    tick()
    return factor


def cholesky_inverse(factor: Floats, tick: Tick) -> Floats:
    """Invert ``L L^T``, given the lower triangular ``L``: first ``L``, row by row of blocks."""
    from scipy.linalg import solve_triangular

    n = len(factor)
    half: Floats = np.zeros((n, n))
    starts = range(0, n, BLOCK)
    for start in starts:
        tick()
        end = min(start + BLOCK, n)
        own = solve_triangular(
            factor[start:end, start:end], np.eye(end - start), lower=True, check_finite=False
        )
        half[start:end, start:end] = own
        if start:
            inner = matmul(factor[start:end, :start], half[:start, :start], tick)
            half[start:end, :start] = -matmul(own, inner, tick)
    result: Floats = np.empty((n, n))
    for start in starts:
        tick()
        end = min(start + BLOCK, n)
        rows = matmul(half[start:, start:end].T, half[start:, :end], tick)
        result[start:end, :end] = rows
        result[:end, start:end] = rows.T
    return result


def invert(gram: Floats, tick: Tick = lambda: None) -> Floats:
    """Invert a Gram matrix: by Cholesky, or as `gram_pinv` where it is singular or nearly so.

    ``tick`` is called in between and may raise to cancel.
    """
    from scipy.linalg.lapack import dpocon

    try:
        factor = cholesky(gram, tick)
    except np.linalg.LinAlgError:
        return pinv(gram, tick)
    norm = max((float(np.abs(gram[some]).sum(axis=1).max()) for some in by_rows(gram)), default=0)
    tick()
    condition, failed = dpocon(factor, norm, uplo="L")
    tick()
    if failed == 0 and condition > RANK_TOLERANCE:
        return cholesky_inverse(factor, tick)
    return pinv(gram, tick)


def pinv(gram: Floats, tick: Tick) -> Floats:
    """Invert a Gram matrix (Moore-Penrose), as `gram_pinv`."""
    if len(gram) <= MOST_AT_ONCE:
        return gram_pinv(gram)
    values, vectors = eigh(gram, tick)
    kept = values > RANK_TOLERANCE * max(values[-1], 0)
    return matmul(vectors[:, kept] / values[kept], vectors[:, kept].T, tick)


def _tridiagonal(
    matrix: Floats, tick: Tick
) -> tuple[Floats, Floats, list[tuple[int, Floats, Floats]]]:
    """Reduce to a tridiagonal matrix; return its entries and the reflections, by panels.

    A panel is its first row, the vectors ``v`` of its reflections as columns, and the triangular
    ``T`` of their product.
    """
    from scipy.linalg.blas import dsymv, dsyr2k

    n = len(matrix)
    rest = np.array(matrix, dtype=np.float64, order="F")  # its lower half counts
    diagonal: Floats = np.empty(n)
    beside: Floats = np.empty(n - 1)
    panels = []
    at = 0
    while (size := n - at) > 2:
        tick()
        width = min(PANEL, size - 2)
        left: Floats = np.zeros((size, width), order="F")  # v
        right: Floats = np.zeros((size, width), order="F")  # w: A - v w^T - w v^T
        scales = np.zeros(width)
        for j in range(width):
            column = rest[j:, j] - left[j:, :j] @ right[j, :j] - right[j:, :j] @ left[j, :j]
            diagonal[at + j] = column[0]
            v, scales[j], beside[at + j] = _reflection(column[1:])
            left[j + 1 :, j] = v
            whole = left[:, j]
            image = dsymv(1.0, rest, whole, lower=1)
            image -= left[:, :j] @ (right[:, :j].T @ whole) + right[:, :j] @ (left[:, :j].T @ whole)
            image *= scales[j]
            image -= 0.5 * scales[j] * float(image @ whole) * whole
            right[j + 1 :, j] = image[j + 1 :]
            if size * size * (j + 1) % _TICKS < size * size:
                tick()
        panels.append((at, left, _triangular(left, scales)))
        kept = np.asfortranarray(rest[width:, width:])
        v, w = np.asfortranarray(left[width:]), np.asfortranarray(right[width:])
        rest = dsyr2k(-1.0, v, w, beta=1.0, c=kept, lower=1, overwrite_c=1)
        at += width
    diagonal[at:] = np.diagonal(rest)
    if size == 2:
        beside[at] = rest[1, 0]
    return diagonal, beside, panels


#: Entries that are read between two ticks.
_TICKS = 1 << 27


def _reflection(column: Floats) -> tuple[Floats, float, float]:
    """Return ``v`` and ``s`` with ``(I - s v v^T) column = (b, 0, ...)``, and ``b``."""
    tail = float(column[1:] @ column[1:])
    v = column.copy()
    if tail == 0:
        v[:] = 0
        return v, 0.0, float(column[0])
    length = float(np.sqrt(column[0] ** 2 + tail))
    b = -length if column[0] > 0 else length
    v[0] = column[0] - b
    return v, 2 / (float(v[0]) ** 2 + tail), b


def _triangular(reflectors: Floats, scales: Floats) -> Floats:
    """Return ``T`` with ``H_1 H_2 ... = I - V T V^T`` for ``H_j = I - s_j v_j v_j^T``."""
    inner = reflectors.T @ reflectors
    factor: Floats = np.zeros_like(inner)
    for j, scale in enumerate(scales):
        factor[:j, j] = -scale * (factor[:j, :j] @ inner[:j, j])
        factor[j, j] = scale
    return factor
