"""What is summed of each row, computed in arrays of what was read: exact, or not in arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpsql.expression import Expr
from dpsql.statistics.arrays import Ints, Memory, NotInArrays
from dpsql.steps import WIDE, Steps


class Amounts:
    """Computes the sums and products of columns of some rows; a part that occurs twice once.

    Parameters
    ----------
    columns : mapping
        What was read.
    memory : Memory
        The bound; nothing is held in it.
    """

    def __init__(self, columns: Mapping[Expr, Ints], memory: Memory) -> None:
        self.columns = columns
        self.memory = memory
        self.known: dict[Steps, tuple[Ints, int]] = {}

    def column(self, steps: Steps) -> Ints:
        """Compute.

        Raises
        ------
        NotInArrays
            Where a part is beyond 62 bits in some row.
        """
        return self._found(steps)[0]

    def _found(self, steps: Steps) -> tuple[Ints, int]:
        """Return a column and its largest magnitude."""
        if steps not in self.known:
            column, bound = self._made(steps)
            if bound >= WIDE:
                raise NotInArrays("products past 62 bits")
            self.known[steps] = column, bound
        return self.known[steps]

    def _made(self, steps: Steps) -> tuple[Ints, int]:
        if steps.read is not None:
            column = self.columns[steps.read]
            return column, max(int(column.max(initial=0)), -int(column.min(initial=0)))
        if not steps.parts:
            if steps.bound >= WIDE:
                raise NotInArrays("a constant past 62 bits")
            return np.asarray(steps.constant, np.int64), abs(steps.constant)
        (first, bound), *others = (self._found(part) for part in steps.parts)
        self.memory.need(8 * first.size * (2 + len(self.known)))
        if steps.operator == "clamp":
            low, high = steps.ends
            return np.clip(first.astype(np.int64), low, high), max(abs(low), abs(high))
        ((second, other),) = others
        made = bound * other if steps.operator == "*" else bound + other
        if made >= WIDE:
            raise NotInArrays("products past 62 bits")
        operation = np.multiply if steps.operator == "*" else np.add
        return operation(first, second, dtype=np.int64), made
