"""Expressions in the form that postgres_fdw sends to other servers.

It sends operators, functions, casts, NULL tests and CASE, but neither COALESCE, GREATEST, LEAST and
NULLIF nor tests of booleans: a condition or value with one of these would have every row fetched.
What is written here has the same value on every row.
"""

from __future__ import annotations

from dpsql.query.ir import FALSE, TRUE, Expr, constant

#: An argument is written several times; above so many nodes all stays as it is.
_MOST = 1000


def shippable(e: Expr) -> Expr:
    """Write an expression by CASE where postgres_fdw sends nothing else."""
    found, size = _rewritten(e)
    return found if size <= _MOST else e


def _rewritten(e: Expr) -> tuple[Expr, int]:
    """Return the expression and how many nodes it is written with."""
    pairs = [_rewritten(a) for a in e.args]
    args, size = tuple(a for a, _ in pairs), 1 + sum(n for _, n in pairs)
    e = Expr(e.kind, e.type, args, e.data)
    if e.kind == "coalesce":
        found = args[-1]
        for a in reversed(args[:-1]):
            found = Expr("case", e.type, (Expr("is", "boolean", (a,), "NOT NULL"), a, found))
        return found, 2 * size
    if e.kind in ("greatest", "least"):
        found = args[0]
        for a in args[1:]:
            found = _extreme(e, found, a)
        return found, size * 4 ** (len(args) - 1)
    if e.kind == "nullif" and args[0].type == args[1].type:
        equal = Expr("op", "boolean", args, "=")
        return Expr("case", e.type, (equal, constant(e.type, None), args[0])), 2 * size
    if e.kind == "is" and e.data in _TESTS:
        word = str(e.data)
        test = args[0] if word.endswith("TRUE") else Expr("not", "boolean", args)
        values = (FALSE, TRUE) if word.startswith("NOT") else (TRUE, FALSE)
        return Expr("case", "boolean", (test, *values)), size + 3
    return e, size


_TESTS = ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE")


def _extreme(e: Expr, left: Expr, right: Expr) -> Expr:
    """Take the greater or lesser of two values, the first of equal ones, the other of NULL."""
    no_left, no_right = (Expr("is", "boolean", (a,), "NULL") for a in (left, right))
    first = Expr("op", "boolean", (left, right), ">=" if e.kind == "greatest" else "<=")
    nothing = () if left.kind == "const" and left.data is not None else (no_left, right)
    alone = () if right.kind == "const" and right.data is not None else (no_right, left)
    return Expr("case", e.type, (*nothing, *alone, first, left, right))
