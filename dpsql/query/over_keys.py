"""Conditions on columns as conditions on levels of keys, where these say the same.

A level is what a key is shown as.  Of keys whose equal values can differ (1.0 and 1.00) it is one
of them, so that only what is the same for equal values is written; of columns whose other values
count as one, only what is the same for all of these (`dpsql.query.others`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dpsql.query.emit import has_identity_equality
from dpsql.query.ir import Expr, column, map_columns
from dpsql.query.others import Others, is_told, others_of
from dpsql.query.types import FLOATS, INTEGERS, modifier

#: Finds the number of a key; for a column that is none it may make one.
Place = Callable[[Expr], int | None]
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_NUMBERS = (*INTEGERS, *FLOATS, "numeric")
#: What makes equal numbers of equal numbers, if not equally written ones.
_EXACT_OPERATORS = frozenset(("+", "-", "*", "%"))
_EXACT_FUNCTIONS = frozenset(("abs", "ceil", "ceiling", "floor", "mod", "round", "sign", "trunc"))
_CHOICES = frozenset(("case", "coalesce", "greatest", "guard", "least", "nullif"))


class OverKeys:
    """Writes conditions over the columns ``r0."k<key>"``.

    Parameters
    ----------
    place : callable
        Finds the number of a key.
    keys : iterable of Expr
        The keys that are there beforehand.

    Attributes
    ----------
    used : set of int
        Numbers of the keys that were written.
    reason : str
        Why the last expression could not be written: ``"column"``, ``"alike"``, ``"other"``.
    """

    def __init__(self, place: Place, keys: Iterable[Expr]) -> None:
        self._place = place
        self._others: dict[Expr, tuple[Expr, Others]] = {}
        for key in keys:
            found = others_of(key)
            if found is not None:
                self._others.setdefault(found.column, (key, found))
        self.used: set[int] = set()
        self.reason = ""

    def write(self, e: Expr) -> Expr | None:
        """Write an expression over levels; ``None`` where it reads anything but keys."""
        n = self._place(e)
        if n is not None:
            return self._level(e, n)
        told = self._told(e)
        if told is not None:
            return told
        if e.kind == "col":
            self.reason = "other" if e in self._others else "column"
            return None
        if not _is_alike(e) and any(_is_loose(a, self._place) for a in e.args):
            self.reason = "alike"
            return None
        args = []
        for argument in e.args:
            over = self.write(argument)
            if over is None:
                return None
            args.append(over)
        return Expr(e.kind, e.type, tuple(args), e.data)

    def _level(self, key: Expr, n: int) -> Expr:
        self.used.add(n)
        level = column(0, f"k{n}", key.type, key.type, not_null=False)
        if _is_padded(key):  # levels have lost the blanks that all values of the column have
            return Expr("cast", key.type, (level,), key.data[3])  # type: ignore[index]
        return level

    def _told(self, e: Expr) -> Expr | None:
        """Write what is one and the same for all values that count as one."""
        columns = {c for c in e.walk() if c.kind == "col"} if e.kind != "col" else set()
        if len(columns) != 1:
            return None
        key, others = self._others.get(columns.pop(), (None, None))
        if key is None or others is None or not is_told(e, others):
            return None
        n = self._place(key)
        return None if n is None else map_columns(e, lambda _: self._level(key, n))


def _is_padded(e: Expr) -> bool:
    return e.kind == "col" and e.type == "bpchar" and bool(modifier(str(e.data[3])))  # type: ignore[index]


def _is_loose(e: Expr, place: Place) -> bool:
    """Whether an expression is a key whose equal values can differ, or a number made of one."""
    if place(e) is not None:
        return not has_identity_equality(e) and not _is_padded(e)
    if e.kind in ("cast", "narrow"):
        return e.type not in INTEGERS and e.type in _NUMBERS and _is_loose(e.args[0], place)
    return _is_exact(e) and any(_is_loose(a, place) for a in e.args)


def _is_exact(e: Expr) -> bool:
    """Whether equal numbers are made of equal numbers."""
    if e.kind in _CHOICES:
        return True
    if e.type != "numeric":
        return False
    return (e.kind == "op" and e.data in _EXACT_OPERATORS) or (
        e.kind == "fn" and e.data in _EXACT_FUNCTIONS
    )


def _is_alike(e: Expr) -> bool:
    """Whether what is made of equal values is equal: comparisons, and exact computations."""
    if e.kind in ("cast", "narrow"):
        # a cast of padded texts to text drops the blanks
        return e.type in _NUMBERS or (e.args[0].type == "bpchar" and e.type == "text")
    if e.kind in ("in", "is", "distinct", "and", "or", "not") or _is_exact(e):
        return True
    return (e.kind == "op" and e.data in _COMPARISONS) or (
        e.kind == "fn" and e.data == "width_bucket"
    )
