"""Joint least squares from several Kronecker strategies with independent noise.

Strategies ``A_g`` with noise of variance ``1 / w_g`` have the normal matrix ``N = sum_g w_g (x)_i
G_{g,i}``, ``G_{g,i} = A_{g,i}^T A_{g,i}``.  Two positive semi-definite matrices are always diagonal
together by congruence: with ``S = G_1 + G_2 = U diag(s) U^T`` of rank ``r`` and ``B = U s^{-1/2}``
the matrices ``B^T G_1 B`` and ``B^T G_2 B`` add up to the identity, so that the eigenvectors ``Q``
of one are those of the other, and ``X = B Q`` has ``X^T G_g X = diag(d_g)``.  With one such ``X_i``
for each attribute ``N`` is ``Y^T diag(l) Y``, ``l = sum_g w_g (x)_i d_{g,i}``, ``Y X = 1``, and
``X l^+ X^T`` is a generalised inverse of it, whatever the ranks: whatever can be estimated is
estimated best and its variance is exact (Gauss, Markov; papers/hdmm.txt section 7.2 leaves the
inverse of a union to iterative solvers).  More than two are diagonal together in each attribute if
these have at most two forms there, or commute; else ``N`` is written down, where it fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.kronecker import Kronecker, dense_product
from dpsql.workload.matrix import (
    RANK_TOLERANCE,
    Dense,
    Floats,
    Identity,
    QueryMatrix,
    refuse_entries,
)
from dpsql.workload.svd_bound import joint_basis
from dpsql.workload.workload import GramTerm, Workload

#: Cells up to which a normal matrix is written down and decomposed (seconds).
MOST_DENSE = 1100
#: Diagonal entries below this part of the largest count as zero.
ZERO = 1e-10
#: Part of a workload that rounding may leave outside of what is measured.
UNSUPPORTED = 1e-8
#: Entries of intermediate tables of queries.
MOST_AT_ONCE = 1 << 22
#: Steps that optimise the shares of the strategies, and the improvement below which they end.
STEPS = 60
IMPROVEMENT = 1e-7
#: A strategy's share is at least this part of the largest: what it alone measures is measured.
LEAST = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """A generalised inverse of a normal matrix, ``X diag(values) X^T``.

    Attributes
    ----------
    blocks : tuple of tuple of int
        Axes of the data vector that share a matrix: each its own, or all of them together.
    vectors : tuple of array, shape (cells of the block, r)
        ``X``, one for each block.
    values : array
        ``l^+``: one axis for each block, of length r.
    """

    blocks: tuple[tuple[int, ...], ...]
    vectors: tuple[Floats, ...]
    values: Floats

    def solve(self, table: Floats) -> Floats:
        """Multiply a table, one axis for each attribute, by the generalised inverse."""
        moved = table.reshape([len(x) for x in self.vectors])
        for axis, x in enumerate(self.vectors):
            moved = _along(x.T, moved, axis)
        moved = moved * self.values
        for axis, x in enumerate(self.vectors):
            moved = _along(x, moved, axis)
        return moved.reshape(table.shape)

    def variances(self, left: Sequence[QueryMatrix], right: Sequence[QueryMatrix]) -> Floats:
        """Return ``diag(L N^- R^T)``: an axis for each attribute, as long as its queries.

        Parameters
        ----------
        left, right : sequence of QueryMatrix
            One for each axis, of as many queries.
        """
        found = self.values
        for axis, (block, x) in enumerate(zip(self.blocks, self.vectors, strict=True)):
            seen = _Seen(_merged(left, block), x)
            other = seen if left == right else _Seen(_merged(right, block), x)
            table = np.moveaxis(found, axis, 0)
            flat = table.reshape(len(table), -1)
            count = math.prod(left[i].shape[0] for i in block)
            result = np.empty((count, flat.shape[1]))
            step = max(MOST_AT_ONCE // len(table), 1)
            for start in range(0, count, step):
                rows = slice(start, min(start + step, count))
                result[rows] = (seen(rows) * other(rows)) @ flat
            found = np.moveaxis(result.reshape(count, *table.shape[1:]), 0, axis)
        return found.reshape([factor.shape[0] for factor in left])

    def error(self, terms: Sequence[GramTerm]) -> float:
        """Return ``tr(N^- V)`` for a Gram matrix ``V`` over the axes."""
        return math.fsum(t.coefficient * _contract(self.values, self.costs(t)) for t in terms)

    def costs(self, term: GramTerm) -> Iterator[Floats]:
        """Yield the diagonal of ``X^T V X`` of a term, block by block."""
        for block, x in zip(self.blocks, self.vectors, strict=True):
            gram = dense_product([term.factors[i] for i in block])
            yield np.einsum("ij,ij->j", x, gram @ x)

    def require_support(self, terms: Sequence[GramTerm]) -> None:
        """Refuse a workload that is not estimable.

        What it asks must lie in what the attributes' matrices span, and nothing of it in the
        directions that no strategy measures.

        Raises
        ------
        InvalidParameter
            When a part of it is lost.
        """
        known = (self.values > 0).astype(np.float64)
        planes = [x @ np.linalg.pinv(x) for x in self.vectors]
        whole = inside = asked = measured = 0.0
        for term in terms:
            coefficient = term.coefficient
            grams = [dense_product([term.factors[i] for i in block]) for block in self.blocks]
            whole += coefficient * math.prod(float(np.trace(gram)) for gram in grams)
            inside += coefficient * math.prod(map(float, map(np.vdot, planes, grams)))
            asked += coefficient * math.prod(float(part.sum()) for part in self.costs(term))
            measured += coefficient * _contract(known, self.costs(term))
        if inside < whole * (1 - UNSUPPORTED) or measured < asked * (1 - UNSUPPORTED):
            raise InvalidParameter("the strategy does not support the workload")


def terms_about(workload: Workload, axes: Sequence[int]) -> list[GramTerm]:
    """Restrict the terms of a Gram matrix to some attributes; of all others a total is asked."""
    found = []
    for term in workload.gram_terms:
        weight = term.coefficient
        for i, factor in enumerate(term.factors):
            if i not in axes:
                weight *= float(factor[0, 0])
        found.append(GramTerm(weight, tuple(term.factors[i] for i in axes)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Spectra:
    """Matrices that are diagonal together: ``X`` for each axis, and the strategies' diagonals."""

    vectors: tuple[Floats, ...]
    diagonals: tuple[tuple[Floats, ...], ...]  # by strategy and axis

    def product(self, g: int) -> Floats:
        """Return the diagonal of a strategy, an axis for each attribute."""
        return reduce(np.multiply.outer, self.diagonals[g])

    def joint(self, weights: Sequence[float]) -> Joint:
        """Invert the normal matrix."""
        total = sum((w * self.product(g) for g, w in enumerate(weights)), np.zeros(()))
        values = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        return Joint(tuple((i,) for i in range(len(self.vectors))), self.vectors, values)


def joint_spectra(grams: Sequence[Sequence[Floats]]) -> Spectra | None:
    """Diagonalise strategies together, attribute by attribute, if they can be.

    Parameters
    ----------
    grams : sequence of sequence of array, shape (n_i, n_i)
        By strategy and axis.
    """
    vectors, by_axis = [], []
    for i in range(len(grams[0])):
        own = [np.asarray(strategy[i]) for strategy in grams]
        scales = [float(np.abs(gram).max()) for gram in own]
        scaled = [gram / scale for gram, scale in zip(own, scales, strict=True)]
        values, basis = np.linalg.eigh(sum(scaled, np.zeros(())))
        kept = values > RANK_TOLERANCE * values[-1]
        white = basis[:, kept] / np.sqrt(values[kept])
        inside = [white.T @ gram @ white for gram in scaled]
        found = joint_basis(inside)
        if found is None:
            return None
        turned, diagonals, _ = found
        vectors.append(white @ turned)
        own_values = [diagonals[id(gram)] for gram in inside]
        by_axis.append(
            [np.where(d > ZERO, d, 0.0) * s for d, s in zip(own_values, scales, strict=True)]
        )
    diagonals_ = tuple(tuple(axis[g] for axis in by_axis) for g in range(len(grams)))
    return Spectra(tuple(vectors), diagonals_)


def normal_inverse(grams: Sequence[Sequence[Floats]], weights: Sequence[float]) -> Joint:
    """Invert the normal matrix, written down if it must be.

    Raises
    ------
    InvalidParameter
        When it has no common diagonal form and is too large to be written down.
    """
    spectra = joint_spectra(grams)
    if spectra is not None:
        return spectra.joint(weights)
    cells = math.prod(len(gram) for gram in grams[0])
    if cells > MOST_DENSE:
        raise InvalidParameter(
            "the groups' strategies have no common form in which they can be reconstructed",
            detail=f"There are {len(grams)} groups over {cells} cells; three and more that differ "
            f"in their matrices of one attribute are reconstructed up to {MOST_DENSE} cells.",
            hint="Use mechanism => 'auto'.",
        )
    normal: Floats = np.zeros((cells, cells))
    for weight, strategy in zip(weights, grams, strict=True):
        normal += weight * dense_product(strategy)
    values, vectors = np.linalg.eigh(normal)
    kept = values > RANK_TOLERANCE * values[-1]
    everything = (tuple(range(len(grams[0]))),)
    return Joint(everything, (vectors[:, kept],), 1 / values[kept])


def best_shares(
    grams: Sequence[Sequence[Floats]], shares: Sequence[float], order: int, terms: list[GramTerm]
) -> list[float]:
    """Choose what part of the budget each strategy gets, for the error of the joint estimate.

    Every step minimises a bound that touches the error (`opt_marginals`): it never rises.  With
    Gaussian noise it is convex in the squared shares and has no other minimum.  A share that should
    be 0 falls slowly, and after `STEPS` the error of random pairs is up to a part of 1e-3 above it.

    Parameters
    ----------
    grams : sequence of sequence of array
        Of strategies of sensitivity 1.
    shares : sequence of float
        To begin with, positive; their powers to ``order`` add up to 1.
    order : int
        1 for Laplace, 2 for Gaussian noise.
    terms : list of GramTerm
        What is asked, over the same axes.
    """
    spectra = joint_spectra(grams)
    cells = math.prod(len(gram) for gram in grams[0])
    if spectra is None or cells * len(grams) > MOST_AT_ONCE:
        return list(shares)
    parts = np.stack([spectra.product(g).ravel() for g in range(len(grams))])
    joint = spectra.joint([1.0] * len(grams))
    costs = sum(
        (t.coefficient * reduce(np.multiply.outer, joint.costs(t)).ravel() for t in terms),
        np.zeros(()),
    )
    theta = np.array(shares)
    error = math.inf
    for _ in range(STEPS):
        total = theta**2 @ parts
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        found = float(costs @ inverse)
        if found > error * (1 - IMPROVEMENT):
            break
        error = found
        pull = np.maximum(parts @ (costs * inverse**2), 0.0)
        theta = np.cbrt(theta**4 * pull) if order == 1 else theta * pull**0.25
        theta = np.maximum(theta, LEAST * theta.max())
        theta /= float((theta**order).sum()) ** (1 / order)
    return [float(x) for x in theta]


def _contract(table: Floats, vectors: Iterator[Floats]) -> float:
    for vector in vectors:
        table = np.tensordot(vector, table, axes=(0, 0))
    return float(table)


def _along(matrix: Floats, table: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)


def _merged(factors: Sequence[QueryMatrix], block: Sequence[int]) -> QueryMatrix:
    if len(block) == 1:
        return factors[block[0]]
    return Dense(Kronecker(tuple(factors[i] for i in block)).dense())


class _Seen:
    """Rows of ``W X``; those of ranges are made of cumulative sums."""

    def __init__(self, factor: QueryMatrix, x: Floats) -> None:
        self.bounds = factor.bounds()
        if self.bounds is not None:
            self.x = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
        elif isinstance(factor, Identity):
            self.x = x
        else:
            refuse_entries(factor.shape[0], x.shape[1])
            self.x = factor.matvec(x)

    def __call__(self, rows: slice) -> Floats:
        if self.bounds is None:
            return self.x[rows]
        start, stop = self.bounds
        return np.asarray(self.x[stop[rows]] - self.x[start[rows]])
