"""What trusted keys determine, and which occurrences a bound may leave out for that."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.model import Shape


def attributes(shape: Shape, occurrences: Iterable[int]) -> frozenset[int]:
    """Return all attributes of some occurrences."""
    return frozenset().union(*(shape.attributes[i] for i in occurrences))


def determined(shape: Shape, part: frozenset[int], known: frozenset[int]) -> frozenset[int]:
    """Chase: occurrences of ``part`` with at most one row per value of ``known``."""
    found: set[int] = set()
    told = set(known)
    grown = bool(shape.keys)
    while grown:
        grown = False
        for i in part - found:
            if any(key <= told for key in shape.keys[i]):
                found.add(i)
                told |= shape.attributes[i]
                grown = True
    return frozenset(found)


def peel(shape: Shape, rest: frozenset[int], fixed: frozenset[int]) -> frozenset[int]:
    """Leave out occurrences that the remaining ones determine and do not need."""
    changed = True
    while changed:
        changed = False
        for i in sorted(rest):
            others = rest - {i}
            around = attributes(shape, others)
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
