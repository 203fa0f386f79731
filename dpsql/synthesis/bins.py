"""Values within bins: a number between two edges, uniformly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from dpsql.synthesis.values import MISSING, Kind, Numbers
from dpsql.workload.matrix import Floats
from dpsql.workload.residual_bases import Integers

_FIRST = datetime(2000, 1, 1)
#: A numeric column without a scale gets values with so many digits more than its edges have.
_DIGITS = 2
_MICROSECOND = timedelta(microseconds=1)
#: A bin ends below what 64 bits hold, so that there is one more.
_LARGEST = 2**63 - 2


@dataclass(frozen=True, slots=True)
class Binned:
    """Bins as ranges of numbers: ``low[i] <= number < high[i]`` for the level of place ``i``.

    Equal ends stand for that one number; floats are rounded to the column's width.
    """

    kind: Kind
    low: Numbers
    high: Numbers
    single: type[np.floating[Any]] = np.float64

    def draw(self, codes: Integers, rng: np.random.Generator) -> Numbers:
        """Draw a number for each level, uniformly."""
        low, high = self.low[codes], self.high[codes]
        if low.dtype.kind == "f":
            drawn = low + (high - low) * rng.random(codes.size)
            most = np.nextafter(high.astype(self.single), low.astype(self.single))
            drawn = np.minimum(drawn.astype(self.single), most).astype(np.float64)
            return np.where(high > low, drawn, low)
        first, end = low.astype(np.int64), high.astype(np.int64)
        wide = end > first + 1  # a difference could be more than 64 bits hold
        return rng.integers(first, np.maximum(end, first + 1)) if wide.any() else low


def binned(
    base: str, scale: int | None, edges: Sequence[str], levels: Sequence[str | None]
) -> Binned:
    """Read bins of a column.

    Parameters
    ----------
    base : str
        Name of its base type, as ``pg_type`` has it.
    scale : int, optional
        Digits after the point of a numeric type that says how many.
    edges : sequence of str
    levels : sequence of (str or None)
        Numbers of bins from 1; what is outside of all bins becomes the nearest edge.
    """
    if base in ("float4", "float8"):
        return _floats(edges, levels, np.float32 if base == "float4" else np.float64)
    kind, exact = _numbers(base, scale, edges)
    low, high = [], []
    last = len(edges) - 1
    for level in levels:
        place = None if level is None else min(max(int(level), 0), last + 1)
        if place is None:
            ends = (MISSING, MISSING)
        elif 0 < place <= last:
            ends = (_held(exact[place - 1]), _held(exact[place]))
        else:
            edge = _held(exact[0 if place == 0 else last])
            ends = (edge, edge)
        low.append(ends[0])
        high.append(ends[1])
    return Binned(kind, np.array(low, dtype=np.int64), np.array(high, dtype=np.int64))


def _held(edge: Fraction) -> int:
    """Round an edge up, to what 64 bits hold; the least number of these stands for NULL."""
    return min(max(ceil(edge), MISSING + 1), _LARGEST)


def _floats(
    edges: Sequence[str], levels: Sequence[str | None], single: type[np.floating[Any]]
) -> Binned:
    values = [float(edge) for edge in edges]
    last = len(values) - 1
    low: Floats = np.full(len(levels), np.nan)
    high: Floats = np.full(len(levels), np.nan)
    for n, level in enumerate(levels):
        if level is not None:
            place = min(max(int(level), 0), last + 1)
            low[n] = values[max(place - 1, 0)]
            high[n] = values[place] if 0 < place <= last else low[n]
    return Binned(Kind("float"), low, high, single)


def _numbers(base: str, scale: int | None, edges: Sequence[str]) -> tuple[Kind, list[Fraction]]:
    if base in ("int2", "int4", "int8"):
        return Kind("integer"), [Fraction(edge) for edge in edges]
    if base == "numeric":
        if scale is None:
            digits = [-int(Decimal(edge).as_tuple().exponent) for edge in edges]
            scale = max(0, *digits) + _DIGITS
        largest = max(abs(Fraction(edge)) for edge in edges)
        while largest * Fraction(10) ** scale > _LARGEST:  # fewer digits of large numbers
            scale -= 1
        return Kind("numeric", scale=scale), [
            Fraction(edge) * Fraction(10) ** scale for edge in edges
        ]
    if base == "date":
        days = [(date.fromisoformat(edge[:10]) - _FIRST.date()).days for edge in edges]
        return Kind("date"), [Fraction(d) for d in days]
    if base in ("timestamp", "timestamptz"):
        return Kind(base), [Fraction(_microseconds(edge)) for edge in edges]
    if base == "time":
        clocks = [datetime.combine(_FIRST, time.fromisoformat(edge)) - _FIRST for edge in edges]
        return Kind("time"), [Fraction(clock // _MICROSECOND) for clock in clocks]
    raise ValueError(f"no bins of type {base}")


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return (moment - _FIRST) // _MICROSECOND
