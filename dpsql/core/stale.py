"""Sensitivity from statistics that are older than the answer (PRIVACY.md section 4).

Every physical relation, public ones included, has a *shift*: at least the number of rows that
it has in the answer's snapshot and did not have in the statistics'.  Rows that left need no
shift, since all boundaries only fall.  The bound on the old data at distance ``k + shift``
covers the local sensitivity on the new data.  One row's whole life moves old data and shift
together by at most ``FACTOR``, so everything is computed at ``beta / FACTOR``
(docs/proofs/stale.md).

``numbers`` tells the physical relation of every occurrence: the private ones first, numbered
as in ``Shape.physical``, then the public ones, which ``Shape`` does not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpsql.core import elastic, residual
from dpsql.core.polynomial import CAPPED, Polynomial, Powers, add_term
from dpsql.core.smooth import SmoothBound, smooth_maximum
from dpsql.errors import InternalError
from dpsql.model import Boundary, JoinQuery, Shape

FACTOR = 2
"""What one row's life moves, in rows: its first version and that it was updated."""


def shift(inserted: int, updated: int) -> int:
    """Bound the rows that a relation gained.

    Parameters
    ----------
    inserted : int
        Rows inserted since, whether they are still there or not.
    updated : int
        Distinct primary keys of rows updated since; without a key the number of updates, each
        of which makes a row of its own.
    """
    return inserted + updated


def share(beta: float) -> float:
    """Give the smoothness at which old data are bounded: ``FACTOR`` times it is at most beta."""
    return math.nextafter(beta / FACTOR, 0)


def numbering(query: JoinQuery) -> tuple[int, ...]:
    """Tell the physical relation of every occurrence of a query, as a number."""
    shape = query.shape()
    public: dict[int, int] = {}
    numbers = []
    for occurrence, private in zip(query.occurrences, shape.physical, strict=True):
        if private is None:
            private = shape.private_count + public.setdefault(occurrence.relation.oid, len(public))
        numbers.append(private)
    return tuple(numbers)


def required(
    shape: Shape,
    numbers: Sequence[int],
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> frozenset[Boundary]:
    """List the boundaries that ``bound`` needs; public facts only.

    Public relations change as well, so residuals without them are among these.
    """
    if method == "elastic":
        return elastic.required(shape, tick)
    return residual.required(_all_change(shape, numbers), use_keys, tick)


def bound(
    shape: Shape,
    numbers: Sequence[int],
    values: Mapping[Boundary, int],
    shifts: Sequence[int],
    beta: float,
    method: str = "residual",
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> SmoothBound:
    """Bound the sensitivity now, smoothly in histories, from old boundaries.

    A sensitivity that is a public constant (``sensitivity.is_public``) needs no statistics and
    is not for this function.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    numbers : sequence of int
        Physical relation of every occurrence, see ``numbering``.
    values : mapping of Boundary to int
        At least ``required(...)``; of one state of each relation.
    shifts : sequence of int
        For each physical relation its ``shift`` since that state.
    beta : float, > 0
        The plan's, undivided.
    method : {"residual", "elastic"}
        Which bound.
    use_keys : bool
        Whether trusted keys, valid then and ever since, may sharpen the residual bound.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    if beta <= 0 or len(shifts) != 1 + max(numbers) or min(shifts) < 0:
        raise InternalError("stale statistics need beta > 0 and a shift for every relation")
    if method == "elastic":
        candidates = elastic.polynomials(shape, _shifted(numbers, values, shifts), tick)
        size = 1
    else:
        size = shape.private_count
        old = residual.polynomials(
            _all_change(shape, numbers), values, use_keys, tick, changing=size
        )
        candidates = [[_substitute(p, shifts, size) for p in candidate] for candidate in old]
    return min(
        (smooth_maximum(c, share(beta), size, tick) for c in candidates), key=lambda b: b.exact
    )


def _all_change(shape: Shape, numbers: Sequence[int]) -> Shape:
    """Let public relations have distances, too."""
    return replace(shape, physical=tuple(numbers))


def _shifted(
    numbers: Sequence[int], values: Mapping[Boundary, int], shifts: Sequence[int]
) -> dict[Boundary, int]:
    """Raise maximum frequencies: a row more raises one by at most one."""
    return {
        b: value + shifts[numbers[next(iter(b.occurrences))]]
        for b, value in values.items()
        if len(b.occurrences) == 1
    }


def _substitute(polynomial: Polynomial, shifts: Sequence[int], size: int) -> dict[Powers, int]:
    """Put ``k + shift`` for the first ``size`` variables and ``shift`` for the others."""
    terms = dict(polynomial)
    for i, moved in enumerate(shifts):
        grown: dict[Powers, int] = {}
        for powers, coefficient in terms.items():
            for power, factor in _expand(powers[i], moved, private=i < size):
                add_term(grown, (*powers[:i], power, *powers[i + 1 :]), coefficient * factor)
        terms = grown
    result: dict[Powers, int] = {}
    for powers, coefficient in terms.items():
        add_term(result, powers[:size], coefficient)
    return result


def _expand(power: int, moved: int, *, private: bool) -> list[tuple[int, int]]:
    """Write a factor at ``k + moved`` as (power of k, factor) pairs, exactly."""
    if power == CAPPED:
        if moved:
            return [(0, 1)]
        return [(CAPPED, 1)] if private else []
    if not private:
        return [(0, moved**power)]
    return [(j, math.comb(power, j) * moved ** (power - j)) for j in range(power + 1)]
