"""Marginals and residuals in axis form: Decomp and Recon, one pass along each axis.

A marginal over the attribute set ``A`` is an array with one axis per attribute of
``A``, ascending.  Its residual over ``B <= A`` sums over the axes outside ``B`` and
applies the attribute's residual matrix ``S`` (here: subtraction of the first level) along
those inside (papers/aim-grem.txt section 3 and appendix C; ResidualPlanner, Xiao et al.
2023).  Both maps are Kronecker products over the attributes, so that all ``2**|A|``
residuals together are *one* invertible ``n x n`` matrix along each axis:

    ``T = [1^T; S]``,  ``T^-1 = [u | K]``

(`dpsql.workload.residual_bases`).  The array ``(T x ... x T) mu`` is called *packed*: along
each axis, position 0 belongs to the residuals without that attribute, positions 1 to n - 1 to
those with it.  Recon of a single residual is ``K`` along the axes of ``B`` ("center") and ``u``
along the others ("smear").  Nothing is multiplied by a matrix unless the basis itself is dense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import (
    Floats,
    attributes_of,
    cells,
    downward_closure,
    shape,
    subsets,
)
from dpsql.workload.residual_bases import Basis, along

Table = npt.NDArray[np.generic]


def decompose(table: Floats, bases: Sequence[Basis]) -> Floats:
    """Compute all residuals of a marginal at once, packed (Algorithm 1 for all subsets).

    Parameters
    ----------
    table : array
        The marginal; axis ``k`` belongs to ``bases[k]``.
    bases : sequence of Basis
        One per axis.
    """
    _check(table, bases)
    for axis, basis in enumerate(bases):
        table = basis.decompose(table, axis)
    return table


def reconstruct(packed: Floats, bases: Sequence[Basis]) -> Floats:
    """Invert `decompose`: the marginal that has all these residuals."""
    _check(packed, bases)
    for axis, basis in enumerate(bases):
        packed = basis.reconstruct(packed, axis)
    return packed


def part(packed: Floats, within: int, mask: int) -> Floats:
    """Return a view of one residual of a packed array.

    Parameters
    ----------
    packed : array
        Residuals of the marginal ``within``.
    within, mask : int
        Masks, ``mask`` a subset of ``within``.

    Returns
    -------
    array
        One axis of length n - 1 for each attribute of ``mask``.
    """
    where = (slice(1, None) if mask >> i & 1 else 0 for i in attributes_of(within))
    return packed[(..., *where)]


def decomp(table: Floats, within: int, mask: int, bases: Sequence[Basis]) -> Floats:
    """Decomp: compute one residual of a marginal (Algorithm 1).

    Parameters
    ----------
    table : array
        Marginal over ``within``.
    within, mask : int
        Masks, ``mask`` a subset of ``within``.
    bases : sequence of Basis
        One per attribute of the *domain*.
    """
    attributes = attributes_of(within)
    outside = tuple(k for k, i in enumerate(attributes) if not mask >> i & 1)
    result = table.sum(axis=outside)
    for axis, i in enumerate(attributes_of(mask)):
        result = bases[i].sub(result, axis)
    return np.asarray(result, dtype=np.float64)


def recon(residual: Floats, mask: int, within: int, bases: Sequence[Basis]) -> Floats:
    """Recon: map one residual to its component of a marginal (Algorithm 2).

    ``center`` runs while the array has the residual's size, ``smear`` last.
    """
    for axis, i in enumerate(attributes_of(mask)):
        residual = bases[i].center(residual, axis)
    for axis, i in enumerate(attributes_of(within)):
        if not mask >> i & 1:
            residual = bases[i].smear(np.expand_dims(residual, axis), axis)
    return residual


def sub_marginals(tables: Mapping[int, Table], sizes: Sequence[int]) -> dict[int, Table]:
    """Compute every marginal below the given ones, each by one sum along one axis.

    Parameters
    ----------
    tables : mapping of mask to array
        Marginals of the same data; those that others contain are kept as they are.
    sizes : sequence of int
        Levels of the attributes of the domain.

    Returns
    -------
    dict
        One table per mask of the downward closure, summed from the smallest table that
        has one attribute more.  Integers stay integers.
    """
    order = downward_closure(tables)
    result: dict[int, Table] = {}
    for mask in reversed(order):
        given = tables.get(mask)
        if given is None:
            above = (mask | 1 << i for i in range(len(sizes)) if not mask >> i & 1)
            parent = min((m for m in above if m in result), key=lambda m: cells(sizes, m))
            axis = attributes_of(parent).index((parent ^ mask).bit_length() - 1)
            given = np.asarray(result[parent].sum(axis=axis))
        elif given.shape != shape(sizes, mask):
            raise InvalidParameter(
                f"the marginal over attributes {attributes_of(mask)} has shape {given.shape}",
                detail=f"The domain says {shape(sizes, mask)}.",
            )
        result[mask] = given
    return {mask: result[mask] for mask in order}


def reconstruct_all(
    residuals: Mapping[int, Floats], masks: Iterable[int], bases: Sequence[Basis]
) -> Iterator[tuple[int, Floats]]:
    """Yield the marginals that a set of residuals describes (GReM-MLE, Algorithm 3).

    They agree with each other on all common sub-marginals.  A residual that is missing
    counts as zero.  Every marginal costs one pass per axis, whatever its ``2**|A|``
    residuals; it is yielded and forgotten, so that memory holds one at a time.

    Parameters
    ----------
    residuals : mapping of mask to array
        Estimates, each with n - 1 positions per axis.
    masks : iterable of int
        The marginals wanted.
    bases : sequence of Basis
        One per attribute of the domain.
    """
    for mask in masks:
        inside = [bases[i] for i in attributes_of(mask)]
        packed = np.zeros([basis.size for basis in inside])
        for below in subsets(mask):
            residual = residuals.get(below)
            if residual is not None:
                part(packed, mask, below)[...] = residual
        yield mask, reconstruct(packed, inside)


def cell_variances(
    mask: int,
    variances: Mapping[int, float],
    bases: Sequence[Basis],
    queries: Mapping[int, Floats] | None = None,
) -> Floats:
    """Variance of every cell, or query, of a reconstructed marginal, exactly.

    ``sum over B <= A of sigma_B^2 * prod_{i in B} diag(W K G K^T W^T) * prod_{i in A-B} (W u)^2``

    Parameters
    ----------
    mask : int
        The marginal ``A``.
    variances : mapping of mask to float
        ``sigma_B^2``; a missing one counts as zero (a residual known exactly).
    bases : sequence of Basis
        One per attribute of the domain.
    queries : mapping of attribute to array of shape (queries, n), optional
        Query matrix of an attribute; the identity where absent.

    Returns
    -------
    array
        One axis per attribute of ``mask``, as long as its query matrix.
    """
    attributes = attributes_of(mask)
    result = np.empty((2,) * len(attributes))
    for below in subsets(mask):
        result[tuple(below >> i & 1 for i in attributes)] = variances.get(below, 0.0)
    for axis, i in enumerate(attributes):
        own, spread = bases[i].variances((queries or {}).get(i))
        result = along(np.stack([spread, own], axis=1), result, axis)
    return result


def _check(table: Floats, bases: Sequence[Basis]) -> None:
    expected = tuple(basis.size for basis in bases)
    if table.shape != expected:
        raise InvalidParameter(
            f"a table of shape {table.shape} does not fit attributes of {expected} levels"
        )
