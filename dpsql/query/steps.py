"""Numerics in steps of the last decimal, as integers of eight bytes.

Sums of ``price * (1 - discount)`` take several times as long in the server's decimal arithmetic as
in integers.  What is written here gives the integers that :mod:`dpsql.query.values` defines; error
22003 is possible only where ``fits`` is false, and then decimals are asked for (PRIVACY.md section
3: sums are exact either way; section 2: no value makes a question fail).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from dpsql import steps
from dpsql.query.constants import number
from dpsql.query.ir import Expr, constant, template
from dpsql.query.measures import Value
from dpsql.query.types import INTEGERS, full_type, modifier
from dpsql.steps import Steps

_TOP = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_MOST = 2**63 - 1
#: More decimals than this fill eight bytes by themselves.
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in steps of ``10**-digits``; ``null``: it may be NULL."""

    steps: Steps
    digits: int
    null: bool

    def scaled(self, digits: int) -> _Number:
        """Express in finer steps."""
        if digits == self.digits:
            return self
        factor = steps.constant(10 ** (digits - self.digits))
        return _Number(steps.times(self.steps, factor), digits, self.null)


def steps_of(value: Value, written: Expr) -> Steps | None:
    """Write a value as an integer in its steps; ``None`` where eight bytes may not hold it.

    Parameters
    ----------
    value : Value
        What is summed.
    written : Expr
        Its expression, of columns of one occurrence.
    """
    found = _read(written)
    if found is None or found.digits > value.digits:
        low, high = value.steps
        if max(-low, high) > _MOST:
            return None
        if written.type in INTEGERS:
            return _integer(written, max(-low, high))
        return _clamped_leaf(written, low, high, value.digits)
    found = found.scaled(value.digits)
    if found.null:  # which it never is
        return _filled(found.steps.expression, _literal(0), found.steps.peak)
    return found.steps


def _clamped_leaf(e: Expr, low: int, high: int, digits: int) -> Steps:
    ends = constant("bigint", str(low)), constant("bigint", str(high))
    read = template("bigint", "dp.steps(:a, :b, :c, :d)", e, *ends, _literal(digits))
    return steps.leaf(read, max(abs(low), abs(high)))


def _integer(e: Expr, bound: int) -> Steps:
    return steps.leaf(template("bigint", "(:a)::bigint", e), bound)


def _filled(e: Expr, nothing: Expr, bound: int) -> Steps:
    return steps.leaf(template("bigint", "COALESCE(:a, :b)", e, nothing), bound)


def _literal(number: int) -> Expr:
    return Expr("literal", "integer", data=number)


def _read(e: Expr) -> _Number | None:
    if e.kind == "const":
        return _constant(e)
    if e.type in INTEGERS:
        return _Number(_integer(e, _TOP[e.type]), 0, _nullable(e))
    if e.type != "numeric":
        return None
    if e.kind == "cast":
        return _read(e.args[0]) if e.data == "numeric" else None
    reader = _READERS.get(e.kind)
    return None if reader is None else reader(e)


def _nullable(e: Expr) -> bool:
    return e.kind != "col" or not e.data[2]  # type: ignore[index]


def _constant(e: Expr) -> _Number | None:
    found = number(e) if e.data is not None else None
    if found is None or e.type not in (*INTEGERS, "numeric"):
        return None
    digits = 0
    while (found * 10**digits).denominator != 1:
        digits += 1
        if digits > _DIGITS:
            return None
    return _Number(steps.constant(int(found * 10**digits)), digits, False)


def _scale(e: Expr) -> int | None:
    """Return the decimals of a column of numerics."""
    size = modifier(full_type(e))
    scale = size[1] if len(size) > 1 else 0
    return max(scale, 0) if size and scale <= _DIGITS else None


def _column(e: Expr) -> _Number | None:
    """Read a column that nothing clamps: NaN is an error."""
    scale = _scale(e)
    if scale is None:
        return None
    whole = modifier(full_type(e))[0] - scale
    bound = 10 ** (max(whole, 0) + scale)
    read = steps.leaf(template("bigint", "dp.steps(:a, :b)", e, _literal(scale)), bound)
    return _Number(replace(read, peak=steps.WIDE), scale, _nullable(e))


def _operation(e: Expr) -> _Number | None:
    args = [_read(a) for a in e.args]
    if len(args) == 1 and e.data == "-":
        args = [_Number(steps.constant(-1), 0, False), *args]
    one, other = (*args, None)[:2]
    if one is None or other is None:
        return None
    null = one.null or other.null
    if e.data == "*" or len(e.args) == 1:
        return _Number(steps.times(one.steps, other.steps), one.digits + other.digits, null)
    if e.data not in ("+", "-"):
        return None
    digits = max(one.digits, other.digits)
    one, other = one.scaled(digits), other.scaled(digits)
    second = other.steps
    if e.data == "-":
        second = steps.times(steps.constant(-1), second)
    return _Number(steps.plus(one.steps, second), digits, null)


def _clamped(e: Expr, *, guarded: Expr | None = None) -> _Number | None:
    """Read what two constants clamp: NULL becomes the lower one, unless a guard keeps it."""
    if len(e.args) != 2 or e.args[0].kind != "greatest" or len(e.args[0].args) != 2:
        return None
    (x, least), most = e.args[0].args, e.args[1]
    low, high = (number(c) if c.kind == "const" else None for c in (least, most))
    if low is None or high is None or low > high:
        return None
    scale = _scale(x) if x.kind == "col" and x.type == "numeric" else None
    found = _read(x) if scale is None else None
    digits = scale if scale is not None else found.digits if found is not None else None
    if digits is None:
        return None
    while digits <= _DIGITS and not (_whole(low, digits) and _whole(high, digits)):
        digits += 1
    ends = int(low * 10**digits), int(high * 10**digits)
    if digits > _DIGITS or max(-ends[0], ends[1]) > _MOST:
        return None
    if found is not None:
        inside = steps.clamped(found.scaled(digits).steps, *ends)
        if found.null:
            inside = steps.leaf(inside.expression, inside.peak)
        return _Number(inside, digits, False)
    read = _clamped_leaf(x, *ends, digits)
    if not _nullable(x) or x == guarded:
        return _Number(read, digits, _nullable(x))
    known = _filled(read.expression, constant("bigint", str(ends[0])), read.bound)
    return _Number(known, digits, False)


def _whole(end: Fraction, digits: int) -> bool:
    return bool((end * 10**digits).denominator == 1)


def _guard(e: Expr) -> _Number | None:
    condition, value = e.args
    tested = condition.args[0] if (condition.kind, condition.data) == ("is", "NOT NULL") else None
    if tested is not None and tested.kind == "col" and value.kind == "least":
        found = _clamped(value, guarded=tested)
        if found is not None and found.null:
            return found  # NULL where the column is
    found = _read(value)
    if found is None:
        return None
    if tested is not None and tested.kind != "col":
        known = _read(tested)
        if known is not None and not known.null:
            return found
        if known is not None:
            condition = Expr("is", "boolean", (known.steps.expression,), "NOT NULL")
    made = Expr("guard", "bigint", (condition, found.steps.expression))
    return _Number(steps.leaf(made, found.steps.peak), found.digits, True)


def _case(e: Expr) -> _Number | None:
    *pairs, last = e.args
    found = [None if _is_null(a) else _read(a) for a in (*pairs[1::2], last)]
    known = [one for one in found if one is not None]
    if not known or any(
        one is None and not _is_null(a) for one, a in zip(found, (*pairs[1::2], last), strict=True)
    ):
        return None
    digits = max(one.digits for one in known)
    nothing = constant("bigint", None)
    *values, default = [
        nothing if one is None else one.scaled(digits).steps.expression for one in found
    ]
    args = (*chain.from_iterable(zip(pairs[::2], values, strict=True)), default)
    peak = max(one.scaled(digits).steps.peak for one in known)
    null = len(known) < len(found) or any(one.null for one in known)
    return _Number(steps.leaf(Expr("case", "bigint", args), peak), digits, null)


def _is_null(e: Expr) -> bool:
    return e.kind == "const" and e.data is None


def _coalesce(e: Expr) -> _Number | None:
    args = []
    for a in e.args:
        found = _read(a)
        if found is None:
            return None
        args.append(found)
        if not found.null:
            break
    digits = max(a.digits for a in args)
    args = [a.scaled(digits) for a in args]
    if len(args) == 1:
        return args[0]
    made = Expr("coalesce", "bigint", tuple(a.steps.expression for a in args))
    peak = max(a.steps.peak for a in args)
    return _Number(steps.leaf(made, peak), digits, args[-1].null)


_READERS: dict[str, Callable[[Expr], _Number | None]] = {
    "col": _column,
    "op": _operation,
    "least": _clamped,
    "guard": _guard,
    "case": _case,
    "coalesce": _coalesce,
}
