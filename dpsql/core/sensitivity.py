"""One door to the sensitivity bounds: what to measure, and the smooth bound of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpsql.core import elastic, residual
from dpsql.core.smooth import SmoothBound, smooth_maximum
from dpsql.errors import InvalidParameter
from dpsql.model import Boundary, Shape

METHODS = ("residual", "elastic")


def required(
    shape: Shape,
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> frozenset[Boundary]:
    """List the boundaries that ``bound`` needs; depends on public facts only.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    method : {"residual", "elastic"}
        Which bound.
    use_keys : bool
        Whether trusted keys may sharpen the residual bound.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    _check(method)
    if method == "elastic" and not is_public(shape, method, use_keys, tick):
        return elastic.required(shape, tick)
    return residual.required(shape, use_keys, tick)


def is_public(
    shape: Shape,
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> bool:
    """Tell whether the sensitivity is a public constant: ``beta`` may be 0, the scale shown."""
    _check(method)
    return residual.is_public(shape, use_keys, tick)


def left_out(
    shape: Shape,
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> frozenset[int]:
    """List occurrences that the bound leaves out somewhere so that other servers send few rows."""
    _check(method)
    if method == "elastic" or is_public(shape, method, use_keys, tick):
        return frozenset()
    return residual.left_out(shape, use_keys, tick)


def bound(
    shape: Shape,
    values: Mapping[Boundary, int],
    beta: float,
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> SmoothBound:
    """Bound the sensitivity smoothly: at least ``LS``, and it changes by at most ``e**beta``.

    The mechanisms use ``max(bound, 1)`` themselves.  The relative error of the search is
    covered by the mechanisms' plans (``smooth.ERROR``).

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    values : mapping of Boundary to int
        At least ``required(shape, method, use_keys)``.
    beta : float, >= 0
        The plan's; 0 only if ``is_public``.
    method : {"residual", "elastic"}
        Which bound.
    use_keys : bool
        Whether trusted keys may sharpen the residual bound.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    _check(method)
    if method == "elastic" and not is_public(shape, method, use_keys, tick):
        candidates, size = elastic.polynomials(shape, values, tick), 1
    else:
        candidates, size = residual.polynomials(shape, values, use_keys, tick), shape.private_count
    return min((smooth_maximum(c, beta, size, tick) for c in candidates), key=lambda b: b.exact)


def _check(method: str) -> None:
    if method not in METHODS:
        raise InvalidParameter(
            "unknown sensitivity method",
            hint=f"Use one of {', '.join(METHODS)}.",
        )
