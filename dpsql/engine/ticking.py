"""Noise that stays cancellable: a vector may need a million draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.ports import NoiseSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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

    def geometric(self, scale: Fraction) -> int:
        """Draw from the geometric law."""
        self._count()
        return self._noise.geometric(scale)

    def discrete_cauchy(self, scale: Fraction) -> int:
        """Draw from the discrete Cauchy law."""
        self._count()
        return self._noise.discrete_cauchy(scale)

    def gaussians(
        self, variance: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw many times from the discrete Gaussian law."""
        return self._noise.gaussians(variance, count, tick or self._tick)

    def laplaces(
        self, scale: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw many times from the discrete Laplace law."""
        return self._noise.laplaces(scale, count, tick or self._tick)

    def _count(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = _DRAWS
            self._tick()
