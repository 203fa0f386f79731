"""Solve a packing program up to the gap that is asked for.

Small programs go to HiGHS's dual simplex method, which is exact up to its tolerance and may be
interrupted between two iterations.  Larger programs, and those whose gap it does not close, are
solved by passes over the sets (`dpsql.core.streamed`), which may be interrupted between two blocks.

The result does not depend on the clock: one thread works, and every program starts anew.  So it is
a function of the program alone, and its certificate holds whatever the solver did
(docs/proofs/linear.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.core import streamed
from dpsql.core.packing import Floats, Program
from dpsql.model import GRID

if TYPE_CHECKING:
    import highspy

#: Certified bounds of ``Q(I, tau)`` are at most ``tau/SLACK`` apart, all parts of a sum together.
SLACK = 16
#: Variables that the simplex method is given: of programs whose results have two units ...
SIMPLEX_PAIRS = 300_000
#: ... and of others.
SIMPLEX = 20_000
_BETWEEN_TICKS = 0.02

Point = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The value lies between ``lower`` and ``upper``, certainly; times ``GRID``."""

    upper: int
    lower: int


def certified(
    program: Program,
    tick: Callable[[], None],
    hopeless: Callable[[int], bool],
    parts: int = 1,
) -> int | None:
    """Find an upper bound of the program's value, and at most ``tau/(SLACK parts)`` above it.

    Other parameters are those of `solve`, and ``None`` is returned as there.
    """
    gap = program.tau * GRID // (SLACK * parts) * program.step
    found = solve(program, gap, tick, hopeless)
    return None if found is None else found.upper


def solve(
    program: Program, gap: int, tick: Callable[[], None], hopeless: Callable[[int], bool]
) -> Bounds | None:
    """Find bounds of the program's value that are at most ``gap`` apart.

    Parameters
    ----------
    program : Program
        The program.
    gap : int
        How far the bounds may be apart, times ``GRID``.
    tick : callable
        Called every few milliseconds; raises to stop.
    hopeless : callable
        Told an upper bound, whether the value is not wanted any more.

    Returns
    -------
    Bounds or None
        What was found: further apart than ``gap`` only if that is 0.  ``None`` when it was
        hopeless.
    """
    best = _Best(program)
    tick()
    if hopeless(best.upper):
        return None
    if len(program.caps) <= (SIMPLEX_PAIRS if best.width <= 2 else SIMPLEX):
        if best.upper > best.lower:
            best.improve(*_Model(program, tick).run())
        if not gap or best.upper - best.lower <= gap:
            return best.bounds
    for _ in streamed.looks(streamed.Packing(program, best.improve)):
        if best.upper - best.lower <= gap:
            break
        if hopeless(best.upper):
            return None
    return best.bounds


class _Best:
    """The best certified bounds so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        # bounds that need no solver: nobody pays for a result, one of its units, all of its units
        self.width, least = 0, program.members.shape[1]
        for part in program.space.blocks(len(program.caps)):
            number = (program.members[part] < program.units).sum(axis=1)
            self.width, least = max(self.width, int(number.max())), min(least, int(number.min()))
        simple = (0.0, 1.0, 1 / max(least, 1))
        self.upper = min(program.above(np.full(program.units, price)) for price in simple)
        self.lower = program.below(np.broadcast_to(0.0, len(program.caps)))

    @property
    def bounds(self) -> Bounds:
        """What is certain."""
        return Bounds(self.upper, self.lower)

    def improve(self, values: Floats, prices: Floats) -> float:
        """Improve the bounds by a solver's solution; return the gap of that solution alone."""
        upper, lower = self.program.above(prices), self.program.below(values)
        self.upper, self.lower = min(self.upper, upper), max(self.lower, lower)
        return float(upper - lower)


class Solver:
    """Set up, run and interrupt HiGHS's simplex method on one thread."""

    def __init__(self, tick: Callable[[], None]) -> None:
        import highspy

        self.tick = tick
        self.last = time.monotonic()
        self.error: BaseException | None = None
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self.infinity = highspy.kHighsInf
        self.set(output_flag=False, threads=1, parallel="off", random_seed=0)
        self.set(solver="simplex", presolve="off")
        self.highs.cbSimplexInterrupt += self._between

    def go(self) -> None:
        """Run it to its end."""
        self.highs.run()
        if self.error is not None:
            raise self.error
        self.tick()

    def set(self, **options: object) -> None:
        """Set options of the solver."""
        for name, value in options.items():
            self.highs.setOptionValue(name, value)  # type: ignore[arg-type]

    def _between(self, event: highspy.HighsCallbackEvent | Any) -> None:
        """Let the server cancel; an exception must not pass through the solver's own frames."""
        if self.error is None and time.monotonic() - self.last > _BETWEEN_TICKS:
            try:
                self.tick()
            except BaseException as error:  # noqa: BLE001 - raised again by go
                self.error = error
            self.last = time.monotonic()
        if self.error is not None:
            event.interrupt()


class _Model(Solver):
    """One program in HiGHS."""

    def __init__(self, program: Program, tick: Callable[[], None]) -> None:
        import highspy

        super().__init__(tick)
        real = program.members < program.units
        starts = np.concatenate(([0], np.cumsum(real.sum(axis=1))[:-1]))
        size = len(program.caps)
        self.highs.passModel(
            size,
            program.units,
            int(real.sum()),
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMaximize),
            0.0,
            np.ones(size),
            np.zeros(size),
            program.caps.astype(np.float64),
            np.full(program.units, -highspy.kHighsInf),
            np.full(program.units, float(program.tau)),
            starts.astype(np.int32),
            program.members[real].astype(np.int32),
            np.ones(int(real.sum())),
            np.zeros(size, np.int32),
        )

    def run(self) -> Point:
        """Go to the end; return variables and prices."""
        self.go()
        found = self.highs.getSolution()
        return np.array(found.col_value), np.array(found.row_dual)
