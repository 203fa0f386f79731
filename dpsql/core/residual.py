"""Residual sensitivity (paper Definition 6; PRIVACY.md section 4), with keys.

For a physical private relation ``p`` that gains or loses one row, and distances ``s``:

    L_p(s) = sum over non-empty sets D of occurrences of p of  T^_{[n]-D, s}
    T^_{E,s} = sum over E' of E, private:  T_{E-E'} * product of s_i, i in E'

``T_empty = 1``; a disconnected residual is the product of its components; public
relations take no distance.  Keys sharpen this in three ways, each again a smooth
upper bound on instances that satisfy them (docs/proofs/residual.md):

1. a component that the keys determine from its boundary has ``T <= 1`` for ever;
2. an occurrence that the boundary of ``E`` determines contributes the larger, not the
   sum, of "its row is old" and "its row is new", the latter at most once;
3. an occurrence that the others determine may be left out of ``E`` ("peeled").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import combinations

from dpsql.core.polynomial import CAPPED, Polynomial, Powers, add_term, dominated, is_constant
from dpsql.model import Boundary, Shape

Look = Callable[[Boundary], int]

PLAIN, KEYED, PEELED = "plain", "keyed", "peeled"


def required(shape: Shape, use_keys: bool = True) -> frozenset[Boundary]:
    """List the boundaries that ``polynomials`` reads: connected, never determined by keys.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph; public facts only.
    use_keys : bool
        Whether trusted keys may be used.
    """
    wanted: set[Boundary] = set()
    for mode in _modes(shape, use_keys):
        wanted |= _needs(shape, mode)
    return frozenset(wanted)


def polynomials(
    shape: Shape, values: Mapping[Boundary, int], use_keys: bool = True
) -> list[list[Polynomial]]:
    """Give candidates, each a list of polynomials over the physical private relations.

    The maximum over one list is a smooth upper bound of the local sensitivity, and so
    is the least such maximum over the candidates.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    values : mapping of Boundary to int
        At least ``required(shape, use_keys)``; the keyless candidate is added where all
        its boundaries happen to be present.
    use_keys : bool
        Whether trusted keys may be used.
    """
    modes = _modes(shape, use_keys)
    if (
        PLAIN not in modes
        and not is_public(shape, use_keys)
        and _needs(shape, PLAIN) <= set(values)
    ):
        modes = (PLAIN, *modes)
    return [_candidate(shape, mode, values.__getitem__) for mode in modes]


def is_public(shape: Shape, use_keys: bool = True) -> bool:
    """Tell whether the bound is a public constant: no distance and no private boundary."""
    return any(_mode_is_public(shape, mode) for mode in _all_modes(shape, use_keys))


def _all_modes(shape: Shape, use_keys: bool) -> tuple[str, ...]:
    return (KEYED, PEELED) if use_keys and any(shape.keys) else (PLAIN,)


def _modes(shape: Shape, use_keys: bool) -> tuple[str, ...]:
    """Choose candidates from public facts.

    The keyed candidate is term by term at most the keyless one (where no determined
    component is empty), so the keyless boundaries are not asked for.  The peeled one is
    not comparable, and often far smaller.
    """
    modes = _all_modes(shape, use_keys)
    for mode in modes:
        if _mode_is_public(shape, mode):
            return (mode,)
    return modes


@lru_cache(maxsize=256)
def _mode_is_public(shape: Shape, mode: str) -> bool:
    if any(not is_constant(p) for p in _candidate(shape, mode, lambda _: 1)):
        return False
    return all(shape.physical[i] is None for need in _needs(shape, mode) for i in need.occurrences)


@lru_cache(maxsize=256)
def _needs(shape: Shape, mode: str) -> frozenset[Boundary]:
    wanted: set[Boundary] = set()

    def look(boundary: Boundary) -> int:
        wanted.add(boundary)
        return 1

    _candidate(shape, mode, look)
    return frozenset(wanted)


def subsets(items: Iterable[int]) -> list[frozenset[int]]:
    """All subsets, the empty one first."""
    pool = sorted(items)
    return [frozenset(c) for size in range(len(pool) + 1) for c in combinations(pool, size)]


def _candidate(shape: Shape, mode: str, look: Look) -> list[Polynomial]:
    everything = frozenset(range(len(shape.attributes)))
    result: list[Polynomial] = []
    for relation in range(shape.private_count):
        own = [i for i in everything if shape.physical[i] == relation]
        terms: list[_Term] = []
        for changed in subsets(own)[1:]:
            terms += _count_terms(shape, everything - changed, mode, look)
        result += _families(terms)
    return result


# One summand: powers of the rows that are summed over, and alternatives of which the
# largest counts; an alternative is allowed where its relations have distance >= 1.
_Term = tuple[Powers, dict[frozenset[int], int]]


def _count_terms(shape: Shape, rest: frozenset[int], mode: str, look: Look) -> list[_Term]:
    """Bound the results of ``rest`` that match one row, at distance ``s``."""
    fixed = shape.boundary(rest)
    if mode == PEELED:
        rest = _peel(shape, rest, fixed)
    sure = frozenset[int]() if mode == PLAIN else determined(shape, rest, fixed)
    summed = [i for i in rest - sure if shape.physical[i] is not None]
    choice = subsets(i for i in sure if shape.physical[i] is not None)
    terms: list[_Term] = []
    for inserted in subsets(summed):
        powers = [0] * shape.private_count
        for i in inserted:
            powers[_physical(shape, i)] += 1
        options: dict[frozenset[int], int] = {}
        for new in choice:
            left = rest - inserted - new
            outside = fixed | _attributes(shape, rest - left)
            value = _bound(shape, left, outside, mode, look)
            where = frozenset(_physical(shape, i) for i in new)
            options[where] = max(options.get(where, 0), value)
        terms.append((tuple(powers), options))
    return terms


def _physical(shape: Shape, occurrence: int) -> int:
    number = shape.physical[occurrence]
    return -1 if number is None else number


def _attributes(shape: Shape, occurrences: Iterable[int]) -> frozenset[int]:
    return frozenset().union(*(shape.attributes[i] for i in occurrences))


def _bound(
    shape: Shape, left: frozenset[int], outside: frozenset[int], mode: str, look: Look
) -> int:
    """Bound ``T_left`` for the boundary with ``outside``, component by component."""
    value = 1
    for part in shape.components(left):
        edge = _attributes(shape, part) & outside
        if mode == PLAIN or determined(shape, part, edge) != part:
            value *= look(Boundary(part, edge))
    return value


def determined(shape: Shape, part: frozenset[int], known: frozenset[int]) -> frozenset[int]:
    """Chase: occurrences of ``part`` with at most one row per value of ``known``."""
    found: set[int] = set()
    attributes = set(known)
    grown = bool(shape.keys)
    while grown:
        grown = False
        for i in part - found:
            if any(key <= attributes for key in shape.keys[i]):
                found.add(i)
                attributes |= shape.attributes[i]
                grown = True
    return frozenset(found)


def _peel(shape: Shape, rest: frozenset[int], fixed: frozenset[int]) -> frozenset[int]:
    """Leave out occurrences that the remaining ones determine and do not need."""
    changed = True
    while changed:
        changed = False
        for i in sorted(rest):
            others = rest - {i}
            around = _attributes(shape, others)
            lost = (shape.attributes[i] & fixed) - around
            parts = sum(1 for c in shape.components(rest) if i not in c)
            if (
                not lost
                and any(key <= around | fixed for key in shape.keys[i])
                and len(shape.components(others)) == parts + 1
            ):
                rest, changed = others, True
                break
    return rest


def _families(terms: list[_Term]) -> list[Polynomial]:
    """Turn "the larger of" into several polynomials, one per set of changed relations."""
    names = {name for _, options in terms for where in options for name in where}
    kept: list[tuple[frozenset[int], dict[Powers, int]]] = []
    for allowed in subsets(names):
        polynomial: dict[Powers, int] = {}
        for powers, options in terms:
            best = max(value for where, value in options.items() if where <= allowed)
            add_term(polynomial, powers, best)
        if not any(old <= allowed and dominated(polynomial, other) for old, other in kept):
            kept.append((allowed, polynomial))
    return [
        {
            tuple(a or (CAPPED if i in allowed else 0) for i, a in enumerate(powers)): c
            for powers, c in polynomial.items()
        }
        for allowed, polynomial in kept
    ]
