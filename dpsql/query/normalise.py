"""One form for equivalent conditions, so that equal questions have equal canonical texts."""

from __future__ import annotations

from dpsql.query.described import described
from dpsql.query.ir import Expr, constant
from dpsql.query.types import INTEGERS

_BITS = dict(zip(INTEGERS, (16, 32, 64), strict=True))
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def normalise(e: Expr) -> Expr:
    """Order commutative operands; constants go to the right, ``>`` becomes ``<`` elsewhere.

    Drivers send a number in the smallest type: it takes that of what it is compared with.
    """
    if not e.args:
        return e
    args = tuple(normalise(a) for a in e.args)
    if e.kind in ("and", "or"):
        flat: list[Expr] = []
        for a in args:
            flat.extend(a.args if a.kind == e.kind else (a,))
        args = tuple(sorted(dict.fromkeys(flat), key=described))
        return args[0] if len(args) == 1 else Expr(e.kind, e.type, args)
    if e.kind == "op" and e.data in _FLIPPED and len(args) == 2:
        args = of_one_type(args)
    if e.kind == "op" and e.data in _FLIPPED and len(args) == 2 and _swap(str(e.data), args):
        return Expr("op", e.type, (args[1], args[0]), _FLIPPED[str(e.data)])
    if e.kind == "distinct" and _swap("=", args):
        args = (args[1], args[0])
    return Expr(e.kind, e.type, args, e.data)


def of_one_type(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Give integer constants the type of what they are compared with, if it holds all of them."""
    (compared, *others) = sorted(args, key=lambda a: a.kind == "const")
    if compared.type not in INTEGERS:
        return args
    half = 2 ** (_BITS[compared.type] - 1)
    for a in others:
        if a.kind != "const" or a.type not in INTEGERS or a.data is None:
            return args
        if not -half <= int(str(a.data)) < half:
            return args
    return tuple(a if a is compared else constant(compared.type, str(a.data)) for a in args)


def _swap(operator: str, args: tuple[Expr, ...]) -> bool:
    left, right = args
    if (left.kind == "const") != (right.kind == "const"):
        return left.kind == "const"
    if operator in ("=", "<>"):
        return described(left) > described(right)
    return operator in (">", ">=")
