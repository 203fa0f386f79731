"""Eigen-Design: weighted eigenvectors of a workload, completed (Gaussian noise).

The strategy asks for the eigenvectors ``q_i`` of the workload's Gram matrix ``V`` (*eigen-queries*,
papers/eigen-design.txt, Definition 6), each times a weight that Program 1 chooses with the
eigenvalues as costs (`dpsql.workload.eigen_weights`).  Program 2 adds a multiple of single cells
where a column is shorter than the sensitivity, which never raises the error.

Where the paper is loose: Proposition 6 (error-equivalent workloads get the same error) needs
distinct eigenvalues, since otherwise the eigenvectors are not determined; and step 4 of Program 2
means the norms of all columns, not a diagonal.  Completion may go below the optimum of Program 1,
and weights worse for Program 1 may be better once completed (prefixes of 2048 levels: 1.25 times
the bound after separation, 1.27 after the optimum, root mean squared).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InvalidParameter
from dpsql.workload.eigen_weights import GAP, ITERATIONS, QueryWeights, query_weights
from dpsql.workload.kronecker import Kronecker, dense_product
from dpsql.workload.matrix import MOST_ENTRIES, RANK_TOLERANCE, Dense, Floats, refuse_entries
from dpsql.workload.single_pair import SinglePair
from dpsql.workload.stepwise import Tick, cholesky, eigh, is_symmetric, matmul
from dpsql.workload.svd_bound import joint_basis
from dpsql.workload.workload import Workload

#: Right-hand sides that are solved for between two ticks.
_COLUMNS = 1024
#: Part of the identity in completed strategies, which makes them positive definite.
IDENTITY = 1e-7


@dataclass(frozen=True, eq=False)
class EigenQueries:
    """Orthonormal queries that diagonalise a Gram matrix.

    Parameters
    ----------
    values : array, shape (r,)
        Eigenvalues, positive, in descending order.
    rows : array, shape (r, n)
        Eigenvectors.
    rest : float
        The trace of the Gram matrix on the space orthogonal to them, of which the eigenvectors are
        not known (see `dpsql.workload.eigen_reductions.leading_queries`).
    """

    values: Floats
    rows: Floats
    rest: float = 0.0

    @property
    def cells(self) -> int:
        """``n``."""
        return int(self.rows.shape[1])

    @cached_property
    def squares(self) -> Dense:
        """The squared entries of `rows`."""
        return Dense(self.rows**2)

    def dense(self) -> EigenQueries:
        """Return itself."""
        return self


@dataclass(frozen=True, eq=False)
class KroneckerEigenQueries:
    """Eigen-queries that are Kronecker products, never written down.

    Parameters
    ----------
    values : array, shape (n,)
        Eigenvalues of the products in order; 0 where the workload has none.
    bases : tuple of array, each of shape (n_i, n_i)
        Per attribute the orthonormal queries, as rows.
    """

    values: Floats
    bases: tuple[Floats, ...]

    @property
    def cells(self) -> int:
        """``n``, the product of the attributes' levels."""
        return math.prod(len(basis) for basis in self.bases)

    @cached_property
    def squares(self) -> Kronecker:
        """The squared entries, a Kronecker product."""
        return Kronecker(tuple(Dense(basis**2) for basis in self.bases))

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Places of the eigenvalues above 0, in descending order."""
        return np.argsort(-self.values, kind="stable")[: np.count_nonzero(self.values)]

    def dense(self) -> EigenQueries:
        """Write those with an eigenvalue above 0 down."""
        refuse_entries(self.cells, self.cells)
        return EigenQueries(self.values[self.order], dense_product(self.bases)[self.order])


Design = EigenQueries | KroneckerEigenQueries


@dataclass(frozen=True, slots=True, eq=False)
class EigenStrategy:
    """Weighted eigen-queries, completed or not: a strategy of L2 sensitivity 1.

    Parameters
    ----------
    design : EigenQueries or KroneckerEigenQueries
        Orthonormal queries.
    squares : array, shape (r,)
        The squares of their weights.
    common : float
        The square of the weight of the rest of the space, if its eigenvectors are not known.
    missing : array, shape (n,)
        The squares of the weights of single cells, which complete the columns.
    error : float
        Total squared error of the workload in units.
    bound : float
        Its SVD bound; not a number where eigenvalues are not known.
    weights_bound : float
        Bound of Program 1: weights of these queries without completion do not have less.
    iterations : int
        Steps of Program 1.
    """

    design: Design
    squares: Floats
    common: float
    missing: Floats
    error: float
    bound: float
    weights_bound: float
    iterations: int

    @property
    def ratio(self) -> float:
        """Root mean squared error beside that of the bound, as in the paper's section 5."""
        return math.sqrt(self.error / self.bound) if self.bound else 1.0

    def gram(self) -> Floats:
        """Write ``A^T A`` down, shape (n, n)."""
        weights = _dense_order(self.design, self.squares)
        return _gram(self.design.dense().rows, weights - self.common, self.missing + self.common)

    def matrix(self) -> Floats:
        """Write ``A`` down: weighted eigen-queries first, then single cells (Program 2, step 5).

        The rest of the space is asked for by the projection onto it.
        """
        rows, cells = self.design.dense().rows, self.design.cells
        refuse_entries(3 * cells, cells)
        weights = _dense_order(self.design, self.squares)
        parts = [np.sqrt(weights)[:, None] * rows]
        if self.common:
            parts.append(math.sqrt(self.common) * (np.eye(cells) - rows.T @ rows))
        parts.append(np.diag(np.sqrt(self.missing))[self.missing > 0])
        return np.concatenate(parts)


def eigen_queries(gram: Floats, tick: Tick = lambda: None) -> EigenQueries:
    """Find the eigen-queries of a Gram matrix (Definition 6), without those of eigenvalue 0.

    Where all are 0 one query remains, which gets the weight 0.

    Parameters
    ----------
    gram : array, shape (n, n)
        ``W^T W``: symmetric, positive semi-definite, of any rank.
    tick : callable
        Called now and then; may raise to cancel.

    Raises
    ------
    InvalidParameter
        When the matrix is no Gram matrix.
    """
    n = len(gram)
    if gram.shape != (n, n) or not is_symmetric(gram, tick):
        raise InvalidParameter("the Gram matrix of a workload must be square and symmetric")
    pair = SinglePair.of(gram, tick)
    values, vectors = eigh(gram, tick) if pair is None else pair.eigh(tick)
    if values[0] < -math.sqrt(RANK_TOLERANCE) * abs(values[-1]):
        raise InvalidParameter("the Gram matrix of a workload must be positive semi-definite")
    kept = np.flatnonzero(values > RANK_TOLERANCE * max(values[-1], 0))[::-1]
    if not kept.size:
        return EigenQueries(np.zeros(1), np.full((1, n), n**-0.5))
    return EigenQueries(values[kept], np.ascontiguousarray(vectors[:, kept].T))


def kronecker_eigen_queries(workload: Workload, seed: int = 0) -> KroneckerEigenQueries | None:
    """Find eigen-queries that are Kronecker products, if there are any.

    There are for a single product of any matrices, and for unions whose Gram matrices share an
    eigenbasis in each attribute (marginals with any one matrix per attribute, say).

    Parameters
    ----------
    workload : Workload
        A union of weighted products.
    seed : int
        Of the random combination whose eigenvectors are tried as the common basis.

    Returns
    -------
    KroneckerEigenQueries or None
        None where no common basis is found, for disjunctions, or above `MOST_ENTRIES` cells.
    """
    terms = workload.gram_terms
    disjunctive = any(product.either for product in workload.products)
    if disjunctive or workload.domain.cells > MOST_ENTRIES:
        return None
    bases, spectra = [], []
    for i in range(len(workload.domain.sizes)):
        found = joint_basis([term.factors[i] for term in terms], seed)
        if found is None:
            return None
        basis, values, _ = found
        bases.append(np.ascontiguousarray(basis.T))
        # by factor: products of small eigenvalues may be far below rounding and not be 0
        kept = {k: np.where(v > RANK_TOLERANCE * v.max(), v, 0) for k, v in values.items()}
        spectra.append([kept[id(term.factors[i])] for term in terms])
    total = np.zeros(workload.domain.cells)
    for k, term in enumerate(terms):
        parts = [spectrum[k][:, None] for spectrum in spectra]
        total += term.coefficient * dense_product(parts)[:, 0]
    return KroneckerEigenQueries(total, tuple(bases))


def eigen_design(
    design: Design,
    *,
    complete: bool = True,
    gap: float = GAP,
    iterations: int = ITERATIONS,
) -> EigenStrategy:
    """Choose the weights of eigen-queries, and complete the columns (Programs 1 and 2).

    Parameters
    ----------
    design : EigenQueries or KroneckerEigenQueries
        What `eigen_queries` or `kronecker_eigen_queries` returns.
    complete : bool
        Whether Program 2 completes columns, for which matrices of shape (cells, cells) are written
        down; the strategy is valid without it, and its error larger.
    gap, iterations : float, int
        Of `query_weights`.
    """
    found = query_weights(design.values, design.squares, gap=gap, iterations=iterations)
    return finish(design, found, complete=complete)


def finish(
    design: Design,
    found: QueryWeights,
    *,
    complete: bool,
    common: float = 0.0,
    tick: Tick = lambda: None,
) -> EigenStrategy:
    """Make a strategy of weights of sensitivity 1 (Program 2, steps 3 to 5).

    Parameters
    ----------
    design : EigenQueries or KroneckerEigenQueries
        The queries that `found` weighs.
    found : QueryWeights
        Squared weights, the error before completion, and Program 1's bound.
    complete : bool
        Whether columns are completed, if one is short by more than `IDENTITY`.
    common : float
        Squared weight of the rest of the space; columns are not completed then.
    tick : callable
        Called now and then; may raise to cancel.
    """
    squares, error, missing = found.squares, found.error, np.zeros(design.cells)
    bound = float(np.sqrt(design.values).sum()) ** 2 / design.cells
    if isinstance(design, EigenQueries) and design.rest:
        bound = math.nan
    elif complete and error and design.squares.rmatvec(squares).min() < 1 - IDENTITY:
        dense = design.dense()
        shrunk = (1 - IDENTITY) * squares
        kept = _dense_order(design, shrunk)
        lacking = np.maximum(1 - dense.squares.rmatvec(kept), 0)
        completed = _completed_error(dense, kept, lacking, tick)
        if completed < error:
            squares, error, missing = shrunk, completed, lacking
    return EigenStrategy(
        design, squares, common, missing, error, bound, found.bound, found.iterations
    )


def _dense_order(design: Design, squares: Floats) -> Floats:
    """Put squared weights in the order of ``design.dense()``."""
    return squares if isinstance(design, EigenQueries) else squares[design.order]


def _gram(rows: Floats, squares: Floats, missing: Floats, tick: Tick = lambda: None) -> Floats:
    """Compute ``Q^T diag(u) Q`` plus a diagonal."""
    gram = matmul(rows.T * squares, rows, tick)
    gram[np.diag_indices_from(gram)] += missing
    return np.asarray(gram)


def _completed_error(design: EigenQueries, squares: Floats, missing: Floats, tick: Tick) -> float:
    """Compute ``tr(X^-1 V)``, which is ``sum c_i |L^-1 q_i|^2`` for ``X = L L^T``."""
    from scipy.linalg import solve_triangular

    try:
        factor = cholesky(_gram(design.rows, squares, missing, tick), tick)
    except np.linalg.LinAlgError:
        return math.inf
    error = 0.0
    for start in range(0, len(design.rows), _COLUMNS):
        tick()
        some = slice(start, start + _COLUMNS)
        solved = solve_triangular(factor, design.rows[some].T, lower=True, check_finite=False)
        error += float(np.einsum("ji,ji->i", solved, solved) @ design.values[some])
    return error
