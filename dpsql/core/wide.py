"""Discrete noise of any scale for many cells, as a weighted sum of table draws.

A table (`dpsql.core.tables`) is as long as its noise is wide.  So wide noise is a sum
``X_0 + f_1 X_1 + f_2 X_2 + ...`` of independent narrow draws, each from a table of its own:

- discrete Gaussian: ``X + m Y`` with X of variance ``6 m**2`` and Y of at least 30, again such a
  sum where it is wide.  The law is that of variance ``6 m**2 + m**2 var(Y)`` up to a factor
  within ``1 +- 2**-139`` at every point.  The tables of the X serve all variances and are kept.
- discrete Laplace: the difference of two geometric numbers, digit by digit; digits of a geometric
  number are independent, so nothing is lost.

`Wide.distance` bounds how far one draw is from the exact law; it is known without any table.
Proof and accounting: docs/proofs/wide_noise.md (PRIVACY.md section 3).  Nothing here draws.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core import tables
from dpsql.core.composition import delta_of_distance
from dpsql.errors import InternalError, InvalidParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.core.tables import Table

TABLE_DISTANCE = Fraction(1, 1 << 127)
"""Every table here is at most this far from its exact law, or is not used."""

SUM_DISTANCE = Fraction(1, 1 << 140)
"""``X + m Y`` with exact X and Y is at most this far from the exact Gaussian."""

LOW, REST = 6, 30
"""Variances in ``X + m Y``: ``LOW m**2``, and at least ``REST``; ``1/LOW + 1/REST <= 1/5``."""

MAX_VARIANCE = Fraction(1 << 114)
MAX_SCALE = Fraction(1 << 55)
REACH = (1 << 62) - 1
"""No sum exceeds this: it fits an int64, and so does a count of up to ``2**62`` and it."""

_WIDEST_GAUSSIAN = 64**2
_WIDEST_LAPLACE = 16
_LARGEST_FACTOR = 11
_LARGEST_BASE = 8
_MOST_KEPT = 128


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a sum: ``factor`` times a draw from a table.

    Attributes
    ----------
    factor : int, >= 1
        Multiplies the draw.
    law : str
        ``gaussian``, ``laplace`` or ``laplace_digit`` of `dpsql.core.tables`.
    parameter : Fraction
        ``sigma**2`` or the scale.
    base : int
        Base of a digit, else 0.
    shared : bool
        Whether the table is the same for many sums.
    """

    factor: int
    law: str
    parameter: Fraction
    base: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Wide:
    """A noise law as a sum of table draws.

    Attributes
    ----------
    name : str
        ``discrete_gaussian`` or ``discrete_laplace``.
    parameter : Fraction
        ``sigma**2`` or the scale.
    distance : Fraction
        At most this is the total variation distance of one draw from the exact law.
    terms : tuple of Term
        The sum.
    """

    name: str
    parameter: Fraction
    distance: Fraction
    terms: tuple[Term, ...]

    def total_distance(self, draws: int) -> Fraction:
        """Bound the total variation distance of ``draws`` independent draws from exact ones."""
        return min(draws * self.distance, Fraction(1))

    def delta(self, draws: int, epsilon: Fraction) -> Fraction:
        """Give what to add to delta where exact noise would satisfy (epsilon, delta)-DP.

        As `composition.delta_of_distance`; under zCDP `composition.zcdp_with_distance`.
        """
        return delta_of_distance(epsilon, self.total_distance(draws))

    def tables(self, tick: Callable[[], None] | None = None) -> list[tuple[int, Table]]:
        """Make, or find among those kept, the tables with their factors.

        Parameters
        ----------
        tick : callable, optional
            Called every few milliseconds; may raise to cancel.
        """
        found = [(term.factor, _table(term, tick)) for term in self.terms]
        if sum(factor * table.reach for factor, table in found) > REACH:
            raise InternalError("the noise does not fit 64 bits")
        return found


def gaussian(variance: Fraction) -> Wide:
    """Split ``P(x) proportional to exp(-x**2 / (2 variance))`` into table draws.

    Parameters
    ----------
    variance : Fraction, > 0
        ``sigma**2``, at most ``2**114``; any denominator.

    Raises
    ------
    InvalidParameter
        A draw might not fit 64 bits.

    Notes
    -----
    A convolution theorem for discrete Gaussians (Micciancio and Walter 2017, Gentry, Peikert and
    Vaikuntanathan 2008) with explicit constants.
    """
    if variance <= 0:
        raise InternalError("noise scale must be greater than 0")
    if variance > MAX_VARIANCE:
        raise _too_wide()
    terms = []
    factor, rest = 1, Fraction(variance)
    while rest > _WIDEST_GAUSSIAN:
        # the largest power of two with rest/step**2 >= LOW + REST
        step = 1 << min((int(rest / (LOW + REST)).bit_length() - 1) // 2, _LARGEST_FACTOR)
        terms.append(Term(factor, "gaussian", Fraction(LOW * step**2), shared=True))
        factor *= step
        rest = rest / step**2 - LOW
    terms.append(Term(factor, "gaussian", rest))
    distance = len(terms) * TABLE_DISTANCE + (len(terms) - 1) * SUM_DISTANCE
    return Wide("discrete_gaussian", variance, distance, tuple(terms))


def laplace(scale: Fraction) -> Wide:
    """Split ``P(x) proportional to exp(-|x| / scale)`` into table draws.

    As `gaussian`, for scales up to ``2**55``.
    """
    if scale <= 0:
        raise InternalError("noise scale must be greater than 0")
    if scale > MAX_SCALE:
        raise _too_wide()
    terms = []
    factor, rest = 1, Fraction(scale)
    while rest > _WIDEST_LAPLACE:
        wanted = (-(-rest // _WIDEST_LAPLACE) - 1).bit_length()
        base = 1 << min(wanted, _LARGEST_BASE)
        terms.append(Term(factor, "laplace_digit", rest, base))
        factor *= base
        rest /= base
    terms.append(Term(factor, "laplace", rest))
    return Wide("discrete_laplace", scale, len(terms) * TABLE_DISTANCE, tuple(terms))


def gathered(blocks: Iterable[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Put the blocks of ``count`` draws into one array of shape ``(count,)``."""
    import numpy as np

    draws = np.empty(count, dtype=np.int64)
    start = 0
    for block in blocks:
        draws[start : start + len(block)] = block
        start += len(block)
    if start != count:
        raise InternalError("the noise has another length than asked for")
    return draws


_shared: dict[Term, Table] = {}  # one for each power of two at most: 12 megabytes in all
_kept: OrderedDict[Term, Table] = OrderedDict()  # the last used: at most 13 megabytes


def _table(term: Term, tick: Callable[[], None] | None) -> Table:
    """Make a table, or find it; what a table holds follows from public parameters."""
    key = replace(term, factor=1)
    found = (_shared if term.shared else _kept).get(key)
    if found is None:
        found = _made(key, tick)
    if term.shared:
        _shared[key] = found
    else:
        _kept[key] = found
        _kept.move_to_end(key)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return found


def _made(term: Term, tick: Callable[[], None] | None) -> Table:
    if term.law == "gaussian":
        table = tables.gaussian(term.parameter, tick)
    elif term.law == "laplace":
        table = tables.laplace(term.parameter, tick)
    else:
        table = tables.laplace_digit(term.parameter, term.base, tick)
    if table.distance > TABLE_DISTANCE:
        raise InternalError("a table is further from its law than was promised")
    return table


def _too_wide() -> InvalidParameter:
    return InvalidParameter(
        "the noise is too large for 64 bits",
        detail="A variance may be at most 2^114, a Laplace scale at most 2^55.",
        hint="Use a larger epsilon.",
    )
