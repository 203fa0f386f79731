"""Discrete noise for many cells at once, by look-up in a table (PRIVACY.md section 3).

A `Table` inverts the tabulated distribution function of the magnitude ``|X|``
on an integer ``u`` of ``bits`` random bits, and takes one more bit as sign:

1. the high bits of the first 64-bit word choose a bucket; where no threshold
   lies in the bucket the magnitude is known at once;
2. else the first ``head_bits`` bits are searched among the thresholds' heads;
3. else (a head is equal, which is rare) 128 fresh bits decide.

So the drawn law *is* the tabulated one, and `Table.distance` bounds how far
that is from the exact law.  Integers only, no floating point.  Nothing here
draws: random words are given by ``core.rng``.  Proof and accounting:
docs/proofs/table_sampler.md.

The time of a block depends a little on the draws, as for every sampler here;
timing is outside the guarantee (PRIVACY.md section 1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core import tabulate
from dpsql.core.composition import delta_of_distance
from dpsql.core.tabulate import Cumulative
from dpsql.errors import InternalError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORD = 64
TAIL_BYTES = 16
_LEAST_GUIDE, _MOST_GUIDE = 10, 20
_CHUNK = 1 << 13


@dataclass(frozen=True, eq=False)
class Table:
    """A tabulated symmetric law on the integers.

    Attributes
    ----------
    name : str
        ``discrete_gaussian``, ``discrete_laplace`` or ``laplace_digit``.
    parameter : Fraction
        ``sigma**2`` or the scale.
    distance : Fraction
        At most this is the total variation distance of one draw from the exact law.
    reach : int
        Largest magnitude that is drawn.
    head_bits, tail_bits : int
        Bits of ``u`` in the first word, at most 63, and in the second look, at most 128.
    heads : array of int64, shape (reach,), not decreasing
        High bits of the thresholds.
    tails : bytes, ``TAIL_BYTES * reach``
        Low bits of the thresholds, little endian.
    guide : array of int32, shape (2**guide_bits,)
        The magnitude of a bucket of words, or -1 where more bits decide.
    guide_bits : int
        High bits of a word that choose its bucket.
    """

    name: str
    parameter: Fraction
    distance: Fraction
    reach: int
    head_bits: int
    tail_bits: int
    heads: NDArray[np.int64]
    tails: bytes
    guide: NDArray[np.int32]
    guide_bits: int

    def look_up(self, words: NDArray[np.uint64], more: Callable[[int], bytes]) -> NDArray[np.int64]:
        """Turn one random word per draw into a draw.

        Parameters
        ----------
        words : array of uint64, shape (n,)
            Uniform and independent.
        more : callable
            ``more(size)`` gives ``size`` fresh random bytes; called only for ties.

        Returns
        -------
        array of int64, shape (n,)
            Draws, ``abs`` at most ``reach``.
        """
        import numpy as np

        bucket = (words >> np.uint64(WORD - self.guide_bits)).view(np.int64)
        draws = self.guide.take(bucket).astype(np.int64)
        unknown = np.flatnonzero(draws < 0)
        if unknown.size:
            heads = (words[unknown] >> np.uint64(WORD - self.head_bits)).view(np.int64)
            found = np.searchsorted(self.heads, heads, side="right")
            tied = (found > 0) & (self.heads[np.maximum(found - 1, 0)] == heads)
            for i in np.flatnonzero(tied):
                found[i] = self._second_look(int(heads[i]), int(found[i]), more)
            draws[unknown] = found
        negative = (words & np.uint64(1)).view(np.int64)  # the last bit: in no head
        draws ^= -negative
        draws += negative
        return draws

    def _second_look(self, head: int, end: int, more: Callable[[int], bytes]) -> int:
        """Count the thresholds at or below ``u``, given its head and those with heads up to it."""
        import numpy as np

        start = int(np.searchsorted(self.heads, head, side="left"))
        tail = int.from_bytes(more(TAIL_BYTES), "little") >> (8 * TAIL_BYTES - self.tail_bits)
        return bisect_right(range(end), tail, start, end, key=self._tail)

    def _tail(self, k: int) -> int:
        return int.from_bytes(self.tails[TAIL_BYTES * k : TAIL_BYTES * (k + 1)], "little")

    def total_distance(self, draws: int) -> Fraction:
        """Bound the total variation distance of ``draws`` independent draws from exact ones."""
        return min(draws * self.distance, Fraction(1))

    def delta(self, draws: int, epsilon: Fraction) -> Fraction:
        """Give what to add to delta where exact noise would satisfy (epsilon, delta)-DP.

        As `composition.delta_of_distance`.

        Parameters
        ----------
        draws : int, >= 0
            Cells that are noised with this table, all of them in the composition.
        epsilon : Fraction, >= 0
            The epsilon at which the guarantee is stated.
        """
        return delta_of_distance(epsilon, self.total_distance(draws))


def gaussian(sigma_squared: Fraction, tick: Callable[[], None] | None = None) -> Table:
    """Tabulate ``P(x) proportional to exp(-x**2 / (2 sigma_squared))``.

    Parameters
    ----------
    sigma_squared : Fraction, > 0
        Square of the scale; any denominator, up to about ``(78,000)**2``.
    tick : callable, optional
        Called every few milliseconds; may raise to cancel.

    Returns
    -------
    Table
        Magnitudes up to 13.3 sigma; ``distance`` a little above ``2**-128`` at most.

    Raises
    ------
    InvalidParameter
        The table would be too long.

    Notes
    -----
    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
    Definition 1, with mean 0.  About 3 microseconds for each magnitude.
    """
    law = tabulate.gaussian(sigma_squared, 63 + 8 * TAIL_BYTES, tick)
    return build("discrete_gaussian", sigma_squared, law, 63, tick)


def laplace(scale: Fraction, tick: Callable[[], None] | None = None) -> Table:
    """Tabulate ``P(x) proportional to exp(-|x| / scale)``, for scales up to about 11,800.

    As `gaussian`; magnitudes up to 89 times the scale.
    """
    law = tabulate.laplace(scale, 63 + 8 * TAIL_BYTES, tick)
    return build("discrete_laplace", scale, law, 63, tick)


def laplace_digit(scale: Fraction, base: int, tick: Callable[[], None] | None = None) -> Table:
    """Tabulate the low digit of discrete Laplace noise (`tabulate.laplace_digit`)."""
    law = tabulate.laplace_digit(scale, base, 63 + 8 * TAIL_BYTES, tick)
    return build("laplace_digit", scale, law, 63, tick)


def build(
    name: str,
    parameter: Fraction,
    law: Cumulative,
    head_bits: int,
    tick: Callable[[], None] | None = None,
) -> Table:
    """Arrange a tabulated law for look-up: heads, tails and the guide.

    Parameters
    ----------
    name, parameter : str, Fraction
        Kept in the table.
    law : Cumulative
        The magnitude's distribution function.
    head_bits : int, 1..63
        Bits that the first word decides; the rest of ``law.bits``, at most 128, is the tail.
    tick : callable, optional
        Called every few milliseconds; may raise to cancel.
    """
    import numpy as np

    tail_bits = law.bits - head_bits
    if not (1 <= head_bits < WORD and 0 <= tail_bits <= 8 * TAIL_BYTES):
        raise InternalError("a table needs 1 to 63 bits in the first word and at most 128 beyond")
    reach = len(law.values)
    heads = np.empty(reach, dtype=np.int64)
    tails = bytearray()
    mask = (1 << tail_bits) - 1
    for start in range(0, reach, _CHUNK):
        part = law.values[start : start + _CHUNK]
        heads[start : start + _CHUNK] = [value >> tail_bits for value in part]
        tails += b"".join((value & mask).to_bytes(TAIL_BYTES, "little") for value in part)
        if tick is not None:
            tick()
    wanted = min(max(reach.bit_length() + 3, _LEAST_GUIDE), _MOST_GUIDE)
    guide_bits = min(wanted, head_bits)
    inside = np.bincount(heads >> (head_bits - guide_bits), minlength=1 << guide_bits)
    guide = np.where(inside == 0, np.cumsum(inside), -1).astype(np.int32)
    for array in (heads, guide):
        array.setflags(write=False)
    return Table(
        name,
        parameter,
        law.distance,
        reach,
        head_bits,
        tail_bits,
        heads,
        bytes(tails),
        guide,
        guide_bits,
    )
