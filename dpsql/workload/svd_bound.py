"""The SVD bound: no strategy's total squared error is below it (HDMM, Definition 11).

For a Gram matrix ``V`` of ``n`` levels with eigenvalues ``v`` it is ``(sum sqrt(v))^2 / n``, in
units (see `dpsql.workload.workload`).  It holds for Gaussian noise; an L1 norm is never below the
L2 norm, so it holds for Laplace noise too, where it is seldom reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.workload.kronecker import dense_product
from dpsql.workload.matrix import MOST_ENTRIES, Floats
from dpsql.workload.single_pair import SinglePair
from dpsql.workload.workload import Workload

#: Cells up to which the eigenvalues of a Gram matrix are computed explicitly.
MOST_CELLS = 4096
#: Off-diagonal entries up to this part of the largest eigenvalue do not spoil a common eigenbasis.
BASIS_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class SvdBound:
    """A lower bound of the total squared error in units.

    Parameters
    ----------
    value : float
        The bound.
    exact : bool
        Whether it is the SVD bound itself, up to rounding, and not a number below it.
    """

    value: float
    exact: bool


def svd_bound(gram: Floats) -> float:
    """Compute the SVD bound of one Gram matrix, shape (n, n)."""
    pair = SinglePair.of(gram)
    values = np.asarray(np.linalg.eigvalsh(gram)) if pair is None else pair.eigenvalues()
    return float(_roots(values).sum() ** 2 / len(gram))


def workload_bound(workload: Workload, seed: int = 0, *, most_cells: int = MOST_CELLS) -> SvdBound:
    """Compute the SVD bound of a workload.

    A single product's is the product of its factors' (HDMM, Theorem 5).  For unions, in this order:

    - Grams that share an eigenbasis in each attribute (marginals with any one matrix per attribute,
      say) are summed eigenvalue by eigenvalue; equal ones are counted, so that marginals of ``d``
      attributes take ``2^d`` numbers whatever their cells (HDMM, Theorem 12 is this case);
    - where that holds of some attributes and the others have up to ``most_cells`` cells, the
      eigenvalues over these are computed for each combination of eigenvalues of the former;
    - up to ``most_cells`` cells the eigenvalues are computed;
    - else the sum of the products' bounds, which is below the bound of the union: for positive
      semi-definite matrices ``(tr sqrt(A + B))^2 >= (tr sqrt A)^2 + (tr sqrt B)^2``, Minkowski's
      inequality reversed for the exponent 1/2.  With disjunctions it is 0.

    Parameters
    ----------
    workload : Workload
        A union of weighted products.
    seed : int
        Of the random combination of Grams whose eigenvectors are tried as the common basis.
    most_cells : int
        Cells up to which the eigenvalues of a Gram matrix are computed explicitly.
    """
    terms = workload.gram_terms
    if len(terms) == 1:
        factors = terms[0].factors
        return SvdBound(terms[0].coefficient * math.prod(map(svd_bound, factors)), True)
    conjunctive = not any(product.either for product in workload.products)
    if conjunctive:
        shared = _shared_basis(workload, seed, most_cells)
        if shared is not None:
            return SvdBound(shared, True)
    if workload.domain.cells <= most_cells:
        return SvdBound(svd_bound(workload.gram()), True)
    if not conjunctive:
        return SvdBound(0.0, False)
    known = {id(factor): svd_bound(factor) for term in terms for factor in term.factors}
    total = math.fsum(t.coefficient * math.prod(known[id(f)] for f in t.factors) for t in terms)
    return SvdBound(total, False)


def _roots(values: Floats) -> Floats:
    """Take square roots of eigenvalues; what rounding leaves below zero is zero."""
    return np.asarray(np.sqrt(np.maximum(values, 0)))


def _shared_basis(workload: Workload, seed: int, most_cells: int) -> float | None:
    """Sum eigenvalues in common eigenbases, or find that too few attributes have them."""
    terms = workload.gram_terms
    spectra, counts, others = [], [], []
    for i in range(len(workload.domain.sizes)):
        found = joint_spectrum([term.factors[i] for term in terms], seed)
        if found is None:
            others.append(i)
            continue
        spectra.append(found[0])
        counts.append(found[1])
    if math.prod(len(count) for count in counts) > MOST_ENTRIES:
        return None
    if others:
        cells = math.prod(workload.domain.sizes[i] for i in others)
        combinations = math.prod(len(count) for count in counts)
        if not counts or cells > most_cells or combinations * cells**3 > most_cells**3:
            return None
        return _blocks(workload, others, spectra, counts)
    values: Floats = np.zeros(math.prod(len(count) for count in counts))
    for k, term in enumerate(terms):
        product = dense_product([spectrum[:, k : k + 1] for spectrum in spectra])[:, 0]
        values += term.coefficient * product
    times = dense_product([count[:, None] for count in counts])[:, 0]
    return float((_roots(values) @ times) ** 2 / workload.domain.cells)


def _blocks(
    workload: Workload, others: Sequence[int], spectra: Sequence[Floats], counts: Sequence[Floats]
) -> float:
    """Sum eigenvalues of a Gram matrix that is block diagonal in common eigenbases."""
    terms = workload.gram_terms
    known: dict[tuple[int, ...], Floats] = {}
    inner = []
    for term in terms:
        own = [term.factors[i] for i in others]
        key = tuple(map(id, own))
        if key not in known:
            known[key] = dense_product(own)
        inner.append(known[key])
    weights = [dense_product([s[:, k : k + 1] for s in spectra])[:, 0] for k in range(len(terms))]
    times = dense_product([count[:, None] for count in counts])[:, 0]
    total = 0.0
    for place, count in enumerate(times):
        block = np.zeros_like(inner[0])
        for term, weight, gram in zip(terms, weights, inner, strict=True):
            block += term.coefficient * weight[place] * gram
        total += float(count) * float(_roots(np.asarray(np.linalg.eigvalsh(block))).sum())
    return total**2 / workload.domain.cells


def joint_basis(
    grams: Sequence[Floats], seed: int = 0
) -> tuple[Floats, dict[int, Floats], dict[int, float]] | None:
    """Find an orthonormal basis that diagonalises symmetric matrices together.

    Parameters
    ----------
    grams : sequence of array, shape (n, n)
        Symmetric; the same object may occur several times.
    seed : int
        Of a random combination; its eigenvectors are common ones with probability 1, if any are.

    Returns
    -------
    tuple or None
        The basis (columns), the diagonal of each matrix in it, and each matrix's largest entry, the
        last two by the matrix's `id`; None where there is no such basis.
    """
    distinct = {id(gram): gram for gram in grams}
    scales = {key: max(float(np.abs(gram).max()), 1e-300) for key, gram in distinct.items()}
    weights = np.random.default_rng(seed).uniform(1, 2, len(distinct))
    n = len(grams[0])
    mixed: Floats = np.zeros((n, n))
    for weight, (key, gram) in zip(weights, distinct.items(), strict=True):
        mixed += weight / scales[key] * gram
    _, basis = np.linalg.eigh(mixed)
    values = {}
    for key, gram in distinct.items():
        rotated = basis.T @ gram @ basis
        diagonal = np.diagonal(rotated).copy()
        if np.abs(rotated - np.diag(diagonal)).max() > BASIS_TOLERANCE * scales[key] * n:
            return None
        values[key] = diagonal
    return basis, values, scales


def joint_spectrum(grams: Sequence[Floats], seed: int = 0) -> tuple[Floats, Floats] | None:
    """Diagonalise symmetric matrices together and count equal eigenvalues.

    Parameters
    ----------
    grams, seed
        See `joint_basis`.

    Returns
    -------
    tuple of array, or None
        Distinct rows of eigenvalues (one column a matrix) and how often each occurs, which add up
        to ``n``; None where no orthonormal basis diagonalises all of them.
    """
    found = joint_basis(grams, seed)
    if found is None:
        return None
    _, values, scales = found
    n = len(grams[0])
    spectrum = np.stack([own / (scales[key] * n) for key, own in values.items()], axis=1)
    rows, back, counts = np.unique(
        spectrum.round(11), axis=0, return_inverse=True, return_counts=True
    )
    means = np.zeros_like(rows)
    np.add.at(means, back.reshape(-1), spectrum)
    means /= counts[:, None]
    place = {key: j for j, key in enumerate(values)}
    back_scale = np.array([scales[id(gram)] * n for gram in grams])
    return means[:, [place[id(g)] for g in grams]] * back_scale, counts.astype(np.float64)
