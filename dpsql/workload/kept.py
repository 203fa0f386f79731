"""The last few selected strategies: of a plan for the release, of a release for the next one.

A strategy is a function of workload and budget (PRIVACY.md section 8), and holds nothing else: no
data, no name of who asked.  So it may outlive the command and the role that it was selected for.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsql._version import __version__
from dpsql.workload.matrix import Dense, Permuted, QueryMatrix, Stacked
from dpsql.workload.mechanism import Budget, Mechanism
from dpsql.workload.names import DATA_INDEPENDENT
from dpsql.workload.workload import Workload

#: How many are kept, and the bytes that their arrays may have together.
MOST_STRATEGIES = 24
MOST_BYTES = 1 << 26


class Kept:
    """Selected strategies by all that they are functions of.

    Parameters
    ----------
    found : dict
        What is kept, for as long as the caller keeps it.
    """

    def __init__(self, found: dict[bytes, tuple[Mechanism, int]] | None = None) -> None:
        self._found = {} if found is None else found

    def mechanism(
        self,
        name: str,
        workload: Workload,
        budget: Budget,
        tick: Callable[[], None],
        select: Callable[[], Mechanism],
    ) -> Mechanism:
        """Return what is kept, or select it."""
        if name not in DATA_INDEPENDENT:  # others hold what their rounds found
            return select()
        key = _key(name, workload, budget)
        held = self._found.pop(key, None)
        if held is None:
            fresh = select()
            held = _unheard(fresh), size_of(fresh)
        if held[1] <= MOST_BYTES:
            self._found[key] = held  # the last one used is the last one dropped
        while len(self._found) > MOST_STRATEGIES or self._bytes > MOST_BYTES:
            self._found.pop(next(iter(self._found)))
        result = copy.copy(held[0])
        result.tick = tick
        return result

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._found.values())


def _unheard(mechanism: Mechanism) -> Mechanism:
    """Return a copy that calls nothing of the command that selected it."""
    result = copy.copy(mechanism)
    result.tick = lambda: None
    return result


def _key(name: str, workload: Workload, budget: Budget) -> bytes:
    found = hashlib.sha256()
    found.update(repr((__version__, name, budget, workload.domain)).encode())
    for product in workload.products:
        found.update(repr((product.weight, product.either)).encode())
        for factor in product.queries.factors:
            _add(found, factor)
    return found.digest()


def _add(found: Any, matrix: QueryMatrix) -> None:
    """Hash a matrix: what it is and, where it is written down, its entries."""
    if isinstance(matrix, Dense):
        found.update(f"dense {matrix.matrix.shape}".encode())
        found.update(np.ascontiguousarray(matrix.matrix, dtype=np.float64).tobytes())
    elif isinstance(matrix, Permuted):
        found.update(f"permuted {matrix.permutation}".encode())
        _add(found, matrix.matrix)
    elif isinstance(matrix, Stacked):
        found.update(f"stacked {matrix.weights}".encode())
        for part in matrix.matrices:
            _add(found, part)
    else:
        found.update(repr(matrix).encode())


def size_of(thing: object) -> int:
    """Count the bytes of all arrays that something of this package holds."""
    seen: set[int] = set()
    total = 0
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            total += one.nbytes
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
        elif type(one).__module__.startswith("dpsql."):
            left += vars(one).values() if hasattr(one, "__dict__") else ()
            slots = [s for kind in type(one).__mro__ for s in getattr(kind, "__slots__", ())]
            left += [getattr(one, s) for s in slots if hasattr(one, s)]
    return total
