"""What is learnt of a column: its values, or bins of its declared range.

Each expression is one whose levels the analyser finds public (PRIVACY.md section 6): the column
itself where its values are declared or its type lists them, else a CASE that numbers bins from 1.
What lies beyond the range counts in the first or last bin, as sums clamp it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.relation import MODIFIER, Column, Domain, Relation, base, quote_identifier
from dpsql.sqltree import (
    Tree,
    aliased,
    cast,
    column,
    constant,
    literal,
    number,
    render,
    sql,
    subquery,
    table,
    union_all,
)
from dpsql.synthesis.schema import Attribute, Table

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.engine.services import Services

DEFAULT_BINS = 32
_INTEGERS = ("smallint", "integer", "bigint")
_FLOATS = ("real", "double precision")
_TIMESTAMPS = ("timestamp without time zone", "timestamp with time zone")
#: Digits after the point that edges have beyond those of the ends, where the type does not say.
_MORE_DIGITS = 3
_MICROSECOND = timedelta(microseconds=1)


def attribute(
    relation: Relation, column: Column, services: Services, bins: int
) -> Attribute | None:
    """Say what is learnt of a column of a protected relation; ``None``: nothing public is known.

    Raises
    ------
    InvalidParameter
        When a declared range of dates goes beyond the years that can be cut into bins.
    """
    name = quote_identifier(column.name)
    domain = next((d for d in relation.domains if d.column == column.name), None)
    if domain is None:
        if column.type_name == "boolean" or services.catalog.enum(column.type_name) is not None:
            return Attribute(column.name, name, nullable=not column.not_null)
        return None
    if domain.listed:
        nullable = domain.includes_null
        if domain.lower is None or len(domain.values) <= bins:
            return Attribute(column.name, name, nullable=nullable)
    else:
        nullable = not column.not_null
    edges = _edges(relation, column, domain, bins)
    return Attribute(
        column.name, _numbered(name, column.type_name, edges, nullable), edges, nullable
    )


def _edges(relation: Relation, column: Column, domain: Domain, bins: int) -> tuple[str, ...]:
    low, high = str(domain.lower), str(domain.upper)
    try:
        return edges(column.type_name, low, high, bins, domain.values if domain.listed else ())
    except (ValueError, OverflowError):
        raise InvalidParameter(
            f"the range of column {column.name} of relation {relation.shown} cannot be cut into"
            " bins",
            detail=f"It goes from {low} to {high}; dates and times are cut in the years 1 to 9999.",
            hint="Let its owner declare a smaller range: SELECT dp.set_domain("
            f"{literal(relation.shown)}, {literal(column.name)}, ...);",
        ) from None


def edges(
    type_name: str, low: str, high: str, bins: int, members: Sequence[str] = ()
) -> tuple[str, ...]:
    """Cut a range into bins of equal width.

    Parameters
    ----------
    type_name : str
        As ``format_type`` writes it.
    low, high : str
        The ends, both within the range, as the type prints them.
    bins : int
        How many there are at most.
    members : sequence of str
        All values of a range with steps, in order: bins begin with some of them.

    Returns
    -------
    tuple of str
        Increasing, one more than there are bins; the last is beyond every value, but for types
        whose values are dense, where it is the upper end; then it may equal the one before it, and
        their bin is that one value.
    """
    kind = base(type_name)
    if kind in _INTEGERS or kind == "numeric":
        scale = _scale(type_name, low, high, bins)
        dense = type_name == "numeric"
        return _decimals(Fraction(low), Fraction(high), scale, dense, bins, members)
    if kind in _FLOATS:
        return _floats(kind, Fraction(low), Fraction(high), bins)
    if kind == "date":
        days = [date.fromisoformat(m) for m in (low, high)]
        first, last = (d.toordinal() for d in days)
        starts = (
            [date.fromisoformat(m).toordinal() for m in _chosen(members, bins)]
            if members
            else _starts(first, last - first + 1, bins)
        )
        return tuple(date.fromordinal(n).isoformat() for n in [*starts, last + 1])
    if kind in _TIMESTAMPS:
        one, other = datetime.fromisoformat(low), datetime.fromisoformat(high)
        width = (other - one) // _MICROSECOND
        steps = [*sorted({width * i // bins for i in range(bins)}), width]
        return tuple((one + s * _MICROSECOND).isoformat(" ") for s in steps)
    raise ValueError(type_name)


def _scale(type_name: str, low: str, high: str, bins: int) -> int:
    """Return the digits after the point that values have, or that edges get."""
    if base(type_name) in _INTEGERS:
        return 0
    found = MODIFIER.search(type_name)
    if found is not None:
        parts = found[1].split(",")
        return max(int(parts[1]), 0) if len(parts) > 1 else 0
    ends = [Decimal(low), Decimal(high)]
    shown = max(max(-int(e.as_tuple().exponent), 0) for e in ends)
    width = (ends[1] - ends[0]) / bins
    return shown + _MORE_DIGITS + (max(-width.adjusted(), 0) if width else 0)


def _chosen(members: Sequence[str], bins: int) -> list[str]:
    count = min(bins, len(members))
    return [members[len(members) * i // count] for i in range(count)]


def _starts(first: int, count: int, bins: int) -> list[int]:
    """Where bins begin among consecutive whole numbers."""
    number = min(bins, count)
    return [first + count * i // number for i in range(number)]


def _decimals(
    low: Fraction, high: Fraction, scale: int, dense: bool, bins: int, members: Sequence[str]
) -> tuple[str, ...]:
    unit = Fraction(1, 10**scale)
    if members:
        starts = [Fraction(m) for m in _chosen(members, bins)]
    else:
        count = math.floor((high - low) / unit) + (not dense or high == low)
        starts = [low + unit * n for n in _starts(0, count, bins)]
    return tuple(_decimal(e, scale) for e in [*starts, high if dense else high + unit])


def _decimal(value: Fraction, scale: int) -> str:
    whole = round(value * 10**scale)
    if not scale:
        return str(whole)
    sign, digits = "-" if whole < 0 else "", str(abs(whole)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _floats(kind: str, low: Fraction, high: Fraction, bins: int) -> tuple[str, ...]:
    cut: Callable[[Fraction], float] = float if kind != "real" else _single
    found = sorted({cut(low + (high - low) * i / bins) for i in range(bins + 1)})
    return tuple(repr(e) for e in (found if len(found) > 1 else found * 2))


def _single(value: Fraction) -> float:
    return float(np.float32(float(value)))


def _numbered(name: str, type_name: str, found: Sequence[str], nullable: bool) -> str:
    """Write a CASE that numbers bins, with few comparisons for each value."""
    plain, value = base(type_name), column("", name)
    inner = [cast(constant(e), plain) for e in found[1:-1]]
    bin_ = _branch(value, inner, 1)
    if nullable or not inner:
        bin_ = sql("CASE WHEN :value IS NULL THEN NULL ELSE :number END", value=value, number=bin_)
    return render(bin_)


def _branch(value: Tree, inner: Sequence[Tree], first: int) -> Tree:
    if not inner:
        return number(first)
    middle = len(inner) // 2
    found: Tree = sql(
        "CASE WHEN :value < :edge THEN :below ELSE :above END",
        value=value,
        edge=inner[middle],
        below=_branch(value, inner[:middle], first),
        above=_branch(value, inner[middle + 1 :], first + middle + 1),
    )
    return found


def of_public(
    public: Table, relation: Relation, services: Services, bins: int
) -> tuple[Attribute, ...]:
    """Say which columns of a public table attributes are made of: those of few values.

    Reads its rows, which are public.  Keys and columns that lead on are left out.
    """
    keys = {c for unique in public.uniques if len(unique.columns) == 1 for c in unique.columns}
    keys |= {c for key in public.foreign_keys for c in key.columns}
    able = [
        c
        for c in relation.columns
        if c.name not in keys and not c.withheld and _countable(c, services)
    ]
    if not able:
        return ()
    counts = [
        aliased(subquery(_counted(relation, c, bins + 2)), f"n{n}") for n, c in enumerate(able)
    ]
    found = services.database.execute(render(sql("SELECT :counts", counts=counts)))[0]
    result = []
    for own, text in zip(able, found, strict=True):
        values, nulls = json.loads(str(text))
        if 0 < values - nulls <= bins:
            result.append(Attribute(own.name, quote_identifier(own.name), nullable=nulls))
    return tuple(result)


def _counted(relation: Relation, own: Column, most: int) -> exp.Select:
    """Count different values of a column, so many at most; other servers send no more either."""
    # postgres_fdw sends a grouping away, and no DISTINCT
    values = [
        sql(
            "SELECT :value AS v FROM :part GROUP BY :value LIMIT :most",
            value=column("", quote_identifier(own.name)),
            part=table(part),
            most=number(most),
        )
        for part in [part.sql for part in relation.parts] or [relation.sql]
    ]
    found: exp.Select = sql(
        "SELECT json_build_array(count(*), coalesce(bool_or(d.v IS NULL), false))"
        " FROM (SELECT DISTINCT v FROM :found AS p LIMIT :most) AS d",
        found=union_all(values),
        most=number(most),
    )
    return found


def _countable(own: Column, services: Services) -> bool:
    known = (*_INTEGERS, "numeric", "text", "character varying", "bpchar", "boolean", "date")
    if base(own.type_name) in known:
        return True
    return services.catalog.enum(own.type_name) is not None
