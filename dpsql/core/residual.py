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
3. an occurrence that the others determine may be left out of ``E`` ("peeled");
4. where rows are on other servers, also one that is here and that the others and the
   boundary determine, so that they send few rows ("narrow"; `dpsql.core.far`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from dpsql.core.chase import attributes, determined, peel
from dpsql.core.far import Narrowing, light
from dpsql.core.polynomial import CAPPED, Polynomial, Powers, add_term, dominated
from dpsql.model import Boundary, Shape

T = TypeVar("T")

Look = Callable[[Boundary], int]

Tick = Callable[[], None]

PLAIN, KEYED, PEELED, NARROW = "plain", "keyed", "peeled", "narrow"

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


def left_out(
    shape: Shape, use_keys: bool = True, tick: Callable[[], None] = lambda: None
) -> frozenset[int]:
    """List the occurrences that some boundary leaves out so that other servers send few rows."""
    if _modes(shape, use_keys, tick) != (NARROW,):
        return frozenset()
    everything = frozenset(range(len(shape.attributes)))
    found: set[int] = set()
    for relation in range(shape.private_count):
        own = [i for i in everything if shape.physical[i] == relation]
        for changed in subsets(own)[1:]:
            tick()
            fixed = shape.boundary(everything - changed)
            rest = peel(shape, everything - changed, fixed)
            narrowing = Narrowing(shape, rest, fixed, tick)
            if any(narrowing.narrowed(part) for part in subsets(rest)):
                found |= rest - narrowing.core
    return frozenset(found)


def _all_modes(shape: Shape, use_keys: bool) -> tuple[str, ...]:
    if not use_keys or not any(shape.keys):
        return (PLAIN,)
    return (NARROW, KEYED, PEELED) if shape.far else (KEYED, PEELED)


def _modes(shape: Shape, use_keys: bool, tick: Tick) -> tuple[str, ...]:
    """Choose candidates from public facts.

    The keyed candidate is term by term at most the keyless one (where no determined
    component is empty), so the keyless boundaries are not asked for.  The peeled one is
    not comparable, and often far smaller.  Of rows on other servers the narrow one alone is
    asked for, unless those of the keyed one are light.
    """
    modes = _all_modes(shape, use_keys)
    for mode in modes:
        if _mode_is_public(shape, mode, tick):
            return (mode,)
    if NARROW in modes:
        needs = _needs(shape, KEYED, tick)
        if not all(light(shape, need.occurrences, need.attributes) for need in needs):
            return (NARROW,)
        modes = (KEYED, NARROW)
    return modes


def _mode_is_public(shape: Shape, mode: str, tick: Tick) -> bool:
    """Tell whether no private row is summed over and no private boundary is read.

    Where every count is 1 the other alternatives of a term equal the first, so that only
    rows that are summed over make a polynomial vary.
    """
    if _kept(_known_sums, shape, mode, lambda: _sums_private_rows(shape, mode, tick)):
        return False
    needs = _needs(shape, mode, tick)
    return all(shape.physical[i] is None for need in needs for i in need.occurrences)


_known_sums: dict[tuple[Shape, str], bool] = {}
_known_needs: dict[tuple[Shape, str], frozenset[Boundary]] = {}


def _kept(known: dict[tuple[Shape, str], T], shape: Shape, mode: str, find: Callable[[], T]) -> T:
    """Find what is a function of shape and mode once; unlike a cache it lets ``find`` cancel."""
    key = (shape, mode)
    if key not in known:
        found = find()
        while len(known) >= _MAX_KNOWN:
            known.pop(next(iter(known)))
        known[key] = found
    return known[key]


def _sums_private_rows(shape: Shape, mode: str, tick: Tick) -> bool:
    everything = frozenset(range(len(shape.attributes)))
    for relation in range(shape.private_count):
        own = [i for i in everything if shape.physical[i] == relation]
        for changed in subsets(own)[1:]:
            tick()
            found = _residual(shape, everything - changed, mode, tick)
            if any(shape.physical[i] is not None for i in found.rest - found.sure):
                return True
    return False


def _needs(shape: Shape, mode: str, tick: Tick) -> frozenset[Boundary]:
    return _kept(_known_needs, shape, mode, lambda: _looked_at(shape, mode, tick))


def _looked_at(shape: Shape, mode: str, tick: Tick) -> frozenset[Boundary]:
    wanted: set[Boundary] = set()

    def look(boundary: Boundary) -> int:
        wanted.add(boundary)
        return 1

    _candidate(shape, mode, look, tick)
    return frozenset(wanted)


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


@dataclass(frozen=True, slots=True)
class _Residual:
    """What remains of a residual, its fixed attributes, and what these determine, of one row.

    ``sure`` is determined in every set that is counted; with ``narrowing`` some are counted by
    their core.
    """

    rest: frozenset[int]
    fixed: frozenset[int]
    sure: frozenset[int]
    narrowing: Narrowing | None = None

    def counted(self, left: frozenset[int]) -> tuple[frozenset[int], int]:
        """Return what is counted of a subset, and the least that its bound may be."""
        if self.narrowing is not None and self.narrowing.narrowed(left):
            return left & self.narrowing.core, 1
        return left, 0


def _residual(shape: Shape, rest: frozenset[int], mode: str, tick: Tick) -> _Residual:
    fixed = shape.boundary(rest)
    if mode in (PEELED, NARROW):
        rest = peel(shape, rest, fixed)
    if mode == NARROW:
        narrowing = Narrowing(shape, rest, fixed, tick)
        core = narrowing.core
        if not narrowing.narrowed(rest):
            sure = determined(shape, rest, fixed) - (core - determined(shape, core, fixed))
            return _Residual(rest, fixed, sure, narrowing)
        rest = core
    sure = frozenset[int]() if mode == PLAIN else determined(shape, rest, fixed)
    return _Residual(rest, fixed, sure)


def _count_terms(
    shape: Shape, rest: frozenset[int], mode: str, look: Look, parts: _Parts, tick: Tick
) -> list[_Term]:
    """Bound the results of ``rest`` that match one row, at distance ``s``."""
    residual = _residual(shape, rest, mode, tick)
    rest, sure = residual.rest, residual.sure
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
            outside = residual.fixed | attributes(shape, rest - left)
            core, least = residual.counted(left)
            value = _bound(shape, parts[core], outside, mode, look, least)
            where = frozenset(_physical(shape, i) for i in new)
            options[where] = max(options.get(where, 0), value)
        terms.append((tuple(powers), options))
    return terms


def _physical(shape: Shape, occurrence: int) -> int:
    number = shape.physical[occurrence]
    return -1 if number is None else number


def _bound(
    shape: Shape,
    parts: tuple[frozenset[int], ...],
    outside: frozenset[int],
    mode: str,
    look: Look,
    least: int,
) -> int:
    """Bound ``T`` of the components, each at least ``least``, by ``outside``: their product."""
    value = 1
    for part in parts:
        edge = attributes(shape, part) & outside
        if mode == PLAIN or determined(shape, part, edge) != part:
            value *= max(look(Boundary(part, edge)), least)
    return value


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
