"""Boundaries that other servers send few rows for (docs/proofs/residual.md, "Few rows").

Of relations on other servers that are joined there, a *side*, a boundary sends the groups that
the side has of what leads out of it.  It is *light* if that is one row of each part, or if these
groups are no finer than those that the answer needs: by what the rest of the query is joined on.
A boundary by an order's key is not, unless all of it is where the orders are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dpsql.core.chase import attributes, determined
from dpsql.model import Shape


def light(shape: Shape, occurrences: frozenset[int], fixed: frozenset[int]) -> bool:
    """Tell whether a boundary by ``fixed`` sends a row of each part, or the answer's groups."""
    for part in shape.components(occurrences):
        sides = _sides(shape, part & shape.far)
        if sides == [part] and attributes(shape, part) & fixed & shape.places:
            continue  # the largest of each part
        for side in sides:
            out = attributes(shape, side) & (fixed | attributes(shape, part - side))
            if not out - shape.places <= _leads_out(shape, side):
                return False
    return True


def _sides(shape: Shape, far: frozenset[int]) -> list[frozenset[int]]:
    """Split occurrences into those that are joined with each other where they are."""
    alone = [frozenset({i}) for i in far if not shape.attributes[i] & shape.places]
    shared = (frozenset(i for i in far if p in shape.attributes[i]) for p in shape.places)
    return sorted([*alone, *(side for side in shared if side)], key=min)


def _leads_out(shape: Shape, side: frozenset[int]) -> frozenset[int]:
    """Return what the rest of the query is joined on with all that is where a side is."""
    (whole,) = (found for found in _sides(shape, shape.far) if side <= found)
    rest = frozenset(range(len(shape.attributes))) - whole
    return attributes(shape, whole) & attributes(shape, rest)


def kept(shape: Shape, rest: frozenset[int], fixed: frozenset[int]) -> frozenset[int]:
    """Leave out what is here and what the others, with ``fixed``, determine.

    What is left is joined as before: nothing is left out whose neighbours would come apart.
    """
    parts = shape.components(rest)
    near = {i for part in parts if part & shape.far for i in part - shape.far}
    stay, changed = rest, True
    while changed:
        changed = False
        for i in sorted(near & stay):
            others = stay - {i}
            told = determined(shape, rest - others, fixed | attributes(shape, others))
            if told == rest - others and len(shape.components(others)) <= len(parts):
                stay, changed = others, True
                parts = shape.components(stay)
                break
    return stay


@dataclass(slots=True)
class Narrowing:
    """Which sets of occurrences a bound counts by their ``core`` alone, by public facts.

    With a set all its subsets are (the proof needs that), those of ``core`` with them: of these
    the core is the set itself.
    """

    shape: Shape
    rest: frozenset[int]
    fixed: frozenset[int]
    tick: Callable[[], None] = lambda: None
    core: frozenset[int] = field(init=False)
    _known: dict[frozenset[int], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.core = kept(self.shape, self.rest, self.fixed)

    def narrowed(self, occurrences: frozenset[int]) -> bool:
        """Tell whether a subset of ``rest`` is counted by its core."""
        if self.core == self.rest:
            return False
        known = self._known.get(occurrences)
        if known is None:
            self.tick()
            known = self._heavy(occurrences) or any(
                self.narrowed(occurrences | {i}) for i in self.rest - occurrences
            )
            self._known[occurrences] = known
        return known

    def _heavy(self, occurrences: frozenset[int]) -> bool:
        """Tell whether a set is not light, and its core is."""
        fixed = self.fixed | attributes(self.shape, self.rest - occurrences)
        if light(self.shape, occurrences, fixed):
            return False
        return light(self.shape, occurrences & self.core, fixed)
