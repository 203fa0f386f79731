"""The one random source (PRIVACY.md section 3): exact integer samplers over OS entropy.

Both samplers use integers only, so they are exact for every rational scale, also
beyond 2**63, and no floating-point artefact can leak the input (Mironov 2012).

The project prefers OpenDP's samplers for answers.  They are not used here because
importing ``opendp`` in a fresh backend costs 0.17 to 0.22 s (measured; 0.002 s for
this module), because its discrete Laplace takes a floating-point scale (an exact
rational one would have to be rounded) and because it saturates at 64-bit integers.
Many cells at once are drawn from tables (``core.tables``), which `SystemNoise.blocks`
feeds, and sums of them (``core.wide``) where the noise is wide; the distance from the
exact law is part of delta.
The discrete Laplace sampler below is Algorithm 2 of Canonne, Kamath and Steinke,
"The Discrete Gaussian for Differential Privacy" (2020), which OpenDP implements too;
the tests compare the two.  There is no seed, and no other source can be selected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import InternalError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.core.tables import Table
    from dpsql.core.wide import Wide

_CHUNK = 512
BLOCK = 1 << 18
"""Draws of one block from a table: about 10 megabytes and 10 milliseconds."""


class SystemNoise:
    """Noise from the operating system's cryptographic generator.

    Implements ``ports.NoiseSource``.  Unused entropy is kept between draws of one
    process and thrown away in a forked child.
    """

    __slots__ = ("_left", "_pid", "_pool")

    def __init__(self) -> None:
        self._pool = 0
        self._left = 0
        self._pid = os.getpid()

    def key(self) -> bytes:
        """Draw 16 bytes that nobody can guess, for a keyed pseudo-random function."""
        return secret(16)

    def discrete_laplace(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to exp(-|x|/scale)``, exactly.

        Parameters
        ----------
        scale : Fraction, > 0
            Scale of the law; any size, any denominator.

        Returns
        -------
        int
            The draw; unbounded.
        """
        while True:
            magnitude = self.geometric(scale)
            negative = self._bits(1)
            if negative and magnitude == 0:
                continue
            return -magnitude if negative else magnitude

    def geometric(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to exp(-x/scale)`` on 0, 1, ..., exactly.

        Parameters
        ----------
        scale : Fraction, > 0
            Scale of the law; any size, any denominator.

        Returns
        -------
        int
            The draw, 0 or greater; unbounded.
        """
        top, bottom = _ratio(scale)
        while True:
            remainder = self._below(top)
            if self._bernoulli_exp(remainder, top):
                break
        quotient = 0
        while self._bernoulli_exp(1, 1):
            quotient += 1
        return (remainder + top * quotient) // bottom

    def discrete_cauchy(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to 1/(1 + (x/scale)**4)``, exactly.

        Rejection from ``|x|`` in block ``j`` of width ``B = ceil(scale)`` with
        probability ``1/((j+1)(j+2))``; see docs/proofs/samplers.md.

        Parameters
        ----------
        scale : Fraction, > 0
            Scale of the law.

        Returns
        -------
        int
            The draw; unbounded, heavy-tailed.
        """
        top, bottom = _ratio(scale)
        width = -(-top // bottom)
        fourth = top**4
        while True:
            block = self._block()
            magnitude = block * width + self._below(width)
            # accept with t(x) (j+1)(j+2)/3, t = fourth/(fourth + (x*bottom)**4)
            numerator = fourth * (block + 1) * (block + 2)
            if not self._bernoulli(numerator, 3 * (fourth + (magnitude * bottom) ** 4)):
                continue
            negative = self._bits(1)
            if negative and magnitude == 0:
                continue
            return -magnitude if negative else magnitude

    def blocks(
        self, table: Table, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw ``count`` independent values from a table, a block at a time.

        Entropy comes straight from the operating system and none is kept.

        Parameters
        ----------
        table : Table
            What to draw from; ``table.delta(count, epsilon)`` belongs to the price.
        count : int, >= 0
            How many draws in all.
        tick : callable, optional
            Called before each block; may raise to cancel.

        Yields
        ------
        array of int64, shape (at most ``BLOCK``,)
            A fresh array.
        """
        import numpy as np

        for start in range(0, count, BLOCK):
            if tick is not None:
                tick()
            size = min(BLOCK, count - start)
            words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
            yield table.look_up(words, os.urandom)

    def gaussians(
        self, variance: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw ``count`` independent discrete Gaussians, a block at a time.

        Parameters
        ----------
        variance : Fraction, > 0
            ``sigma**2`` of ``P(x) proportional to exp(-x**2/(2 sigma**2))``.
        count : int, >= 0
            How many; ``wide.gaussian(variance).distance`` of each belongs to the price.
        tick : callable, optional
            Called before each block and while tables are made; may raise to cancel.

        Yields
        ------
        array of int64, shape (at most ``BLOCK``,)
            A fresh array; magnitudes at most ``2**62 - 1``.

        Raises
        ------
        InvalidParameter
            A draw might not fit 64 bits: at once, not with the first block.
        """
        from dpsql.core import wide

        return self._sums(wide.gaussian(variance), count, tick)

    def laplaces(
        self, scale: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw ``count`` independent values from ``P(x) proportional to exp(-|x|/scale)``.

        As `gaussians`; the distance is that of ``wide.laplace(scale)``.
        """
        from dpsql.core import wide

        return self._sums(wide.laplace(scale), count, tick)

    def _sums(
        self, law: Wide, count: int, tick: Callable[[], None] | None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw sums of table draws; every term has words of its own."""
        found = law.tables(tick) if count else []
        parts = [self.blocks(table, count, tick) for _, table in found]
        for blocks in zip(*parts, strict=True):
            total = blocks[0]
            for (factor, _), block in zip(found[1:], blocks[1:], strict=True):
                block *= factor
                total += block
            yield total

    def _block(self) -> int:
        """Draw ``j >= 0`` with probability ``1/((j+1)(j+2))``."""
        level = 0
        while self._bits(1):
            level += 1
        size = 1 << level
        while True:
            block = size - 1 + self._bits(level)
            if self._bernoulli(size * (size + 1), (block + 1) * (block + 2)):
                return block

    def _bernoulli_exp(self, numerator: int, denominator: int) -> bool:
        """Be true with probability ``exp(-numerator/denominator)``, for a ratio in [0, 1]."""
        k = 1
        while self._bernoulli(numerator, denominator * k):
            k += 1
        return k % 2 == 1

    def _bernoulli(self, numerator: int, denominator: int) -> bool:
        """Be true with probability ``numerator/denominator``, for a ratio in [0, 1]."""
        return self._below(denominator) < numerator

    def _below(self, limit: int) -> int:
        """Draw uniformly from ``0 .. limit - 1`` (``limit > 0``)."""
        count = (limit - 1).bit_length()
        while True:
            value = self._bits(count)
            if value < limit:
                return value

    def _bits(self, count: int) -> int:
        """Take ``count`` fresh random bits."""
        pid = os.getpid()
        if pid != self._pid:
            self._pool, self._left, self._pid = 0, 0, pid
        if self._left < count:
            size = max(_CHUNK, (count + 7) // 8)
            self._pool |= int.from_bytes(os.urandom(size), "big") << self._left
            self._left += 8 * size
        value = self._pool & ((1 << count) - 1)
        self._pool >>= count
        self._left -= count
        return value


def secret(size: int) -> bytes:
    """Draw a secret key or seed from the operating system's cryptographic generator."""
    return os.urandom(size)


def _ratio(scale: Fraction) -> tuple[int, int]:
    if scale <= 0:
        raise InternalError("noise scale must be greater than 0")
    return scale.numerator, scale.denominator
