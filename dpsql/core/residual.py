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

from dpsql.core.polynomial import CAPPED, Polynomial, Powers, add_term, dominated
from dpsql.model import Boundary, Shape

Look = Callable[[Boundary], int]

Tick = Callable[[], None]

PLAIN, KEYED, PEELED = "plain", "keyed", "peeled"

_MAX_KNOWN = 256
_BETWEEN_TICKS = 64


def required(
    shape: Shape, use_keys: bool = True, tick: Callable[[], None] = lambda: None
) -> frozenset[Boundary]:
    """List the boundaries that ``polynomials`` reads: connected, never determined by keys.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph; public facts only.
    use_keys : bool
        Whether trusted keys may be used.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    wanted: set[Boundary] = set()
    for mode in _modes(shape, use_keys, tick):
        wanted |= _needs(shape, mode, tick)
    return frozenset(wanted)


def polynomials(
    shape: Shape,
    values: Mapping[Boundary, int],
    use_keys: bool = True,
    tick: Callable[[], None] = lambda: None,
    changing: int | None = None,
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
    tick : callable
        Called every few milliseconds; may raise to cancel.
    changing : int, optional
        A row of the first so many physical relations only is what neighbours differ in.
    """
    modes = _modes(shape, use_keys, tick)
    if (
        PLAIN not in modes
        and not is_public(shape, use_keys, tick)
        and _needs(shape, PLAIN, tick) <= set(values)
    ):
        modes = (PLAIN, *modes)
    look = values.__getitem__
    return [_candidate(shape, mode, look, tick, changing) for mode in modes]


def is_public(shape: Shape, use_keys: bool = True, tick: Callable[[], None] = lambda: None) -> bool:
    """Tell whether the bound is a public constant: no distance and no private boundary."""
    return any(_mode_is_public(shape, mode, tick) for mode in _all_modes(shape, use_keys))


def _all_modes(shape: Shape, use_keys: bool) -> tuple[str, ...]:
    return (KEYED, PEELED) if use_keys and any(shape.keys) else (PLAIN,)


def _modes(shape: Shape, use_keys: bool, tick: Tick) -> tuple[str, ...]:
    """Choose candidates from public facts.

    The keyed candidate is term by term at most the keyless one (where no determined
    component is empty), so the keyless boundaries are not asked for.  The peeled one is
    not comparable, and often far smaller.
    """
    modes = _all_modes(shape, use_keys)
    for mode in modes:
        if _mode_is_public(shape, mode, tick):
            return (mode,)
    return modes


def _mode_is_public(shape: Shape, mode: str, tick: Tick) -> bool:
    """Tell whether no private row is summed over and no private boundary is read.

    Where every count is 1 the other alternatives of a term equal the first, so that only
    rows that are summed over make a polynomial vary.
    """
    if _sums_private_rows(shape, mode):
        return False
    needs = _needs(shape, mode, tick)
    return all(shape.physical[i] is None for need in needs for i in need.occurrences)


@lru_cache(maxsize=256)
def _sums_private_rows(shape: Shape, mode: str) -> bool:
    everything = frozenset(range(len(shape.attributes)))
    for relation in range(shape.private_count):
        own = [i for i in everything if shape.physical[i] == relation]
        for changed in subsets(own)[1:]:
            rest, _, sure = _residual(shape, everything - changed, mode)
            if any(shape.physical[i] is not None for i in rest - sure):
                return True
    return False


_known_needs: dict[tuple[Shape, str], frozenset[Boundary]] = {}


def _needs(shape: Shape, mode: str, tick: Tick) -> frozenset[Boundary]:
    known = _known_needs.get((shape, mode))
    if known is not None:
        return known
    wanted: set[Boundary] = set()

    def look(boundary: Boundary) -> int:
        wanted.add(boundary)
        return 1

    _candidate(shape, mode, look, tick)
    while len(_known_needs) >= _MAX_KNOWN:
        _known_needs.pop(next(iter(_known_needs)))
    return _known_needs.setdefault((shape, mode), frozenset(wanted))


def subsets(items: Iterable[int]) -> list[frozenset[int]]:
    """All subsets, the empty one first."""
    pool = sorted(items)
    return [frozenset(c) for size in range(len(pool) + 1) for c in combinations(pool, size)]


def _candidate(
    shape: Shape, mode: str, look: Look, tick: Tick, changing: int | None = None
) -> list[Polynomial]:
    everything = frozenset(range(len(shape.attributes)))
    result: list[Polynomial] = []
    parts = _Parts(shape)
    for relation in range(shape.private_count if changing is None else changing):
        own = [i for i in everything if shape.physical[i] == relation]
        terms: list[_Term] = []
        for changed in subsets(own)[1:]:
            terms += _count_terms(shape, everything - changed, mode, look, parts, tick)
        result += _families(terms, tick)
    return result


# One summand: powers of the rows that are summed over, and alternatives of which the
# largest counts; an alternative is allowed where its relations have distance >= 1.
_Term = tuple[Powers, dict[frozenset[int], int]]


class _Parts(dict[frozenset[int], tuple[frozenset[int], ...]]):
    """Components of sets, each computed once: 3^n terms share 2^n sets."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape

    def __missing__(self, occurrences: frozenset[int]) -> tuple[frozenset[int], ...]:
        found = self[occurrences] = self._shape.components(occurrences)
        return found


def _residual(
    shape: Shape, rest: frozenset[int], mode: str
) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return what remains of ``rest``, its fixed attributes, and what these determine."""
    fixed = shape.boundary(rest)
    if mode == PEELED:
        rest = _peel(shape, rest, fixed)
    sure = frozenset[int]() if mode == PLAIN else determined(shape, rest, fixed)
    return rest, fixed, sure


def _count_terms(
    shape: Shape, rest: frozenset[int], mode: str, look: Look, parts: _Parts, tick: Tick
) -> list[_Term]:
    """Bound the results of ``rest`` that match one row, at distance ``s``."""
    rest, fixed, sure = _residual(shape, rest, mode)
    summed = [i for i in rest - sure if shape.physical[i] is not None]
    choice = subsets(i for i in sure if shape.physical[i] is not None)
    terms: list[_Term] = []
    for number, inserted in enumerate(subsets(summed)):
        if number % _BETWEEN_TICKS == 0:
            tick()
        powers = [0] * shape.private_count
        for i in inserted:
            powers[_physical(shape, i)] += 1
        options: dict[frozenset[int], int] = {}
        for index, new in enumerate(choice):
            if index % _BETWEEN_TICKS == _BETWEEN_TICKS - 1:
                tick()
            left = rest - inserted - new
            outside = fixed | _attributes(shape, rest - left)
            value = _bound(shape, parts[left], outside, mode, look)
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
    shape: Shape,
    parts: tuple[frozenset[int], ...],
    outside: frozenset[int],
    mode: str,
    look: Look,
) -> int:
    """Bound ``T`` of the components for the boundary with ``outside``: their product."""
    value = 1
    for part in parts:
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


def _families(terms: list[_Term], tick: Tick) -> list[Polynomial]:
    """Turn "the larger of" into several polynomials, one per set of changed relations."""
    names = {name for _, options in terms for where in options for name in where}
    kept: list[tuple[frozenset[int], dict[Powers, int]]] = []
    for allowed in subsets(names):
        polynomial: dict[Powers, int] = {}
        for number, (powers, options) in enumerate(terms):
            if number % _BETWEEN_TICKS == 0:
                tick()
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
