"""Bound: from the shape of a query and its boundaries to a smooth sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from dpsql.model import Boundary, Shape

if TYPE_CHECKING:
    from dpsql.core.polynomial import Polynomial

MAX_RESIDUAL_OCCURRENCES = 8


def _module(method: str) -> ModuleType:
    from dpsql.core import elastic, residual

    return {"residual": residual, "elastic": elastic}[method]


def elastic_is_cheaper(shape: Shape) -> bool:
    """Whether the number of boundaries rules out residual sensitivity: a public fact.

    Residual sensitivity needs up to ``2**n`` boundaries, elastic about ``n**2`` frequencies.
    """
    return len(shape.attributes) > MAX_RESIDUAL_OCCURRENCES


def required(shape: Shape, method: str, use_keys: bool) -> frozenset[Boundary]:
    """Which boundaries the method needs."""
    if method == "elastic":
        found: frozenset[Boundary] = _module(method).required(shape)
    else:
        found = _module(method).required(shape, use_keys=use_keys)
    return found


def _candidates(
    shape: Shape, method: str, use_keys: bool, values: Mapping[Boundary, int]
) -> list[list[Polynomial]]:
    if method == "elastic":
        return list(_module(method).polynomials(shape, values))
    return list(_module(method).polynomials(shape, values, use_keys=use_keys))


def constant(shape: Shape, method: str, use_keys: bool) -> bool:
    """Whether the bound is a public constant: it reads public relations only and does not grow.

    Then the sensitivity is global and a pure epsilon suffices.
    """
    needed = required(shape, method, use_keys)
    if any(shape.physical[i] is not None for b in needed for i in b.occurrences):
        return False
    from dpsql.core.polynomial import is_constant

    candidates = _candidates(shape, method, use_keys, dict.fromkeys(needed, 1))
    return any(all(is_constant(p) for p in candidate) for candidate in candidates)


def smooth_sensitivity(
    shape: Shape,
    method: str,
    values: Mapping[Boundary, int],
    beta: float,
    *,
    use_keys: bool = True,
) -> tuple[float, int]:
    """Return ``(S, k)``: the smooth bound, at least 1, and the distance where it is attained.

    Each candidate alone is a smooth upper bound of local sensitivity, so the least of them
    is one (PRIVACY.md section 4).  ``beta = 0`` is for constant bounds.
    """
    from dpsql.core.polynomial import is_constant
    from dpsql.core.smooth import smooth_maximum

    best: tuple[float, int] | None = None
    for candidate in _candidates(shape, method, use_keys, values):
        if beta == 0.0 and not all(is_constant(p) for p in candidate):
            continue
        bound = smooth_maximum(candidate, beta, shape.private_count)
        if best is None or bound.value < best[0]:
            best = (bound.value, bound.k)
    if best is None:
        raise ValueError("a bound that grows with the distance needs beta > 0")
    return max(best[0], 1.0), best[1]
