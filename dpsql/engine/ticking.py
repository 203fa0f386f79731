"""Noise that stays cancellable: a vector may need a million draws."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dpsql.ports import NoiseSource

#: Draws between two looks at whether the statement was cancelled: some milliseconds.
_DRAWS = 256


class Ticking:
    """A source of noise that calls ``tick`` now and then."""

    def __init__(self, noise: NoiseSource, tick: Callable[[], None]) -> None:
        self._noise = noise
        self._tick = tick
        self._left = _DRAWS

    def key(self) -> bytes:
        """Draw a key."""
        return self._noise.key()

    def discrete_laplace(self, scale: Fraction) -> int:
        """Draw from the discrete Laplace law."""
        self._count()
        return self._noise.discrete_laplace(scale)

    def discrete_cauchy(self, scale: Fraction) -> int:
        """Draw from the discrete Cauchy law."""
        self._count()
        return self._noise.discrete_cauchy(scale)

    def _count(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = _DRAWS
            self._tick()
