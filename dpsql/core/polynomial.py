"""Polynomials in the distances ``s_1 ... s_m``, with non-negative integer coefficients.

A monomial is a tuple with one *power* per variable: ``a >= 1`` stands for ``s**a``,
``0`` for the factor 1 and ``CAPPED`` for ``min(s, 1)`` (an inserted row that a key
makes unique; docs/proofs/residual.md).  On integers ``s >= 0`` every factor is
non-decreasing and ``min(s, 1) * s**a == s**a``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

CAPPED = -1

Powers = tuple[int, ...]
Polynomial = Mapping[Powers, int]


def add_term(polynomial: dict[Powers, int], powers: Powers, coefficient: int) -> None:
    """Add one term in place; zero coefficients are not stored."""
    if coefficient:
        polynomial[powers] = polynomial.get(powers, 0) + coefficient


def evaluate(polynomial: Polynomial, point: Sequence[int]) -> int:
    """Evaluate exactly at an integer point."""
    total = 0
    for powers, coefficient in polynomial.items():
        value = coefficient
        for a, s in zip(powers, point, strict=True):
            if a:
                value *= min(s, 1) if a == CAPPED else s**a
        total += value
    return total


def variables(polynomial: Polynomial) -> tuple[int, ...]:
    """List the indices of the variables that occur."""
    return tuple(sorted({i for powers in polynomial for i, a in enumerate(powers) if a}))


def is_constant(polynomial: Polynomial) -> bool:
    """Tell whether no variable occurs."""
    return not variables(polynomial)


def dominated(left: Polynomial, right: Polynomial) -> bool:
    """Tell whether ``left <= right`` term by term."""
    return all(coefficient <= right.get(powers, 0) for powers, coefficient in left.items())


def without_caps(
    polynomial: Polynomial, size: int
) -> Iterator[tuple[dict[Powers, int], tuple[int, ...]]]:
    """Split on ``s_i = 0`` or ``s_i >= 1`` for every capped variable.

    Yields pairs (ordinary polynomial, lower bounds): on each region the capped factors
    are constants.  The regions cover all integer points; where a variable occurs only
    capped, its region ``s_i >= 1`` is reduced to ``s_i = 1``, which is optimal.
    """
    capped = sorted({i for powers in polynomial for i, a in enumerate(powers) if a == CAPPED})
    for count in range(len(capped) + 1):
        for ones in combinations(capped, count):
            zeros = set(capped) - set(ones)
            part: dict[Powers, int] = {}
            for powers, coefficient in polynomial.items():
                if not any(powers[i] for i in zeros):
                    add_term(part, tuple(max(a, 0) for a in powers), coefficient)
            if part:
                yield part, tuple(1 if i in ones else 0 for i in range(size))


def cliques(polynomial: Polynomial, low: Sequence[int]) -> Iterator[dict[Powers, int]]:
    """Split an ordinary polynomial until all its variables occur together in pairs.

    Where ``s_i`` and ``s_j`` never share a monomial the polynomial is convex along
    ``s_i + s_j = const``, so that one of them may stay at its lower bound ``low``.
    """
    pending = [dict(polynomial)]
    seen: set[frozenset[tuple[Powers, int]]] = set()
    while pending:
        part = pending.pop()
        together = {
            (i, j) for p in part for i, a in enumerate(p) if a for j, b in enumerate(p) if b
        }
        pair = next((q for q in combinations(variables(part), 2) if q not in together), None)
        if pair is None:
            key = frozenset(part.items())
            if key not in seen:
                seen.add(key)
                yield part
            continue
        pending += [_fixed(part, i, low[i]) for i in pair]


def _fixed(polynomial: Polynomial, i: int, value: int) -> dict[Powers, int]:
    result: dict[Powers, int] = {}
    for p, c in polynomial.items():
        add_term(result, (*p[:i], 0, *p[i + 1 :]), c * value ** p[i])
    return result


def factor(polynomial: Polynomial, used: Sequence[int]) -> tuple[list[dict[Powers, int]], int]:
    """Split an ordinary polynomial into factors over disjoint variables.

    Returns the factors and a divisor: their product is ``divisor`` times the polynomial.
    Only partitions that hold exactly (integer cross products) are used.
    """
    groups = _entangled(polynomial, used)
    if 1 < len(groups) <= 8:
        pivot = min(polynomial)
        first, rest = groups[0], groups[1:]
        for count in range(len(rest)):
            for others in combinations(rest, count):
                inside = first.union(*others)
                pair = _split(polynomial, pivot, inside)
                if pair is not None:
                    factors, divisor = factor(pair[1], [i for i in used if i not in inside])
                    return [pair[0], *factors], divisor * polynomial[pivot]
    return [dict(polynomial)], 1


def _entangled(polynomial: Polynomial, used: Sequence[int]) -> list[frozenset[int]]:
    """Group variables that cannot lie in different factors.

    If they do, the coefficients summed by the powers of the two are a table of rank 1.
    """
    groups = [frozenset((i,)) for i in used]
    for i, j in combinations(used, 2):
        mine, other = (next(g for g in groups if v in g) for v in (i, j))
        if mine != other and not _independent(polynomial, i, j):
            groups = [g for g in groups if g not in (mine, other)] + [mine | other]
    return groups


def _independent(polynomial: Polynomial, i: int, j: int) -> bool:
    table: dict[tuple[int, int], int] = {}
    rows: dict[int, int] = {}
    columns: dict[int, int] = {}
    for p, c in polynomial.items():
        a, b = p[i], p[j]
        table[a, b] = table.get((a, b), 0) + c
        rows[a] = rows.get(a, 0) + c
        columns[b] = columns.get(b, 0) + c
    total = sum(rows.values())
    return all(
        table.get((a, b), 0) * total == r * c for a, r in rows.items() for b, c in columns.items()
    )


def _split(
    polynomial: Polynomial, pivot: Powers, inside: frozenset[int]
) -> tuple[dict[Powers, int], dict[Powers, int]] | None:
    def mix(a: Powers, b: Powers) -> Powers:
        return tuple(a[i] if i in inside else b[i] for i in range(len(a)))

    zero = (0,) * len(pivot)
    heads = {mix(powers, zero) for powers in polynomial}
    tails = {mix(zero, powers) for powers in polynomial}
    if len(heads) * len(tails) != len(polynomial):
        return None
    base = polynomial[pivot]
    left = {head: polynomial.get(mix(head, pivot), 0) for head in heads}
    right = {tail: polynomial.get(mix(pivot, tail), 0) for tail in tails}
    for head, a in left.items():
        for tail, b in right.items():
            if polynomial.get(mix(head, tail), 0) * base != a * b:
                return None
    return left, right
