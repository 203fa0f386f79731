"""Type names as ``format_type`` writes them, and the facts that totality proofs need."""

from __future__ import annotations

from dpsql.query.ir import Expr
from dpsql.relation import MODIFIER

INTEGERS = ("smallint", "integer", "bigint")
FLOATS = ("real", "double precision")
EXACT = (*INTEGERS, "numeric")
TEXTS = ("text", "character varying", "bpchar", '"char"')
TIMESTAMP = "timestamp without time zone"
TIMESTAMPTZ = "timestamp with time zone"
TIME = "time without time zone"
SIMPLE = frozenset(
    (
        "boolean",
        *EXACT,
        *FLOATS,
        *TEXTS,
        "date",
        TIME,
        TIMESTAMP,
        TIMESTAMPTZ,
        "interval",
        "uuid",
        "bytea",
    )
)

#: Types whose equal values have one text: 1.0 = 1.00, 0 = -0 and 1 mon = 30 days have two.
ONE_TEXT = SIMPLE - {"numeric", *FLOATS, "interval"}


def modifier(full: str) -> tuple[int, ...]:
    """Return the numbers of the type modifier; empty if there is none."""
    if full == "character":
        return (1,)
    match = MODIFIER.search(full)
    return tuple(int(n) for n in match[1].split(",")) if match else ()


def full_type(e: Expr) -> str:
    """Type with its modifier where that is known."""
    if e.kind == "col":
        return str(e.data[3])  # type: ignore[index]
    if e.kind == "cast":
        return str(e.data)
    return e.type


def digits(e: Expr) -> int | None:
    """Bound the number of integer digits of a numeric expression; ``None``: no bound known.

    A numeric overflows (an error) beyond 131072 integer digits.  Integers have at most 19,
    ``numeric(p, s)`` at most ``p`` for ``0 <= s``, a double precision at most 309.
    """
    if e.type in INTEGERS:
        return 19
    if e.kind == "const":
        text = str(e.data)
        return len(text) if "e" not in text.lower() else None
    if e.kind in ("col", "cast"):
        size = modifier(full_type(e))
        if size:
            return size[0] - min(size[1], 0) if len(size) > 1 else size[0]
        if e.kind == "col":
            return None
        inner = e.args[0]
        return digits(inner) if inner.type in EXACT else 310
    if e.kind == "guard":
        return int(e.data) if isinstance(e.data, int) else digits(e.args[1])
    if e.kind == "op":
        parts = [digits(a) for a in e.args]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            return None
        if e.data == "*":
            return sum(known)
        return known[0] + 16400 if e.data == "/" else max(known) + 1
    if e.kind == "fn":
        inner_digits = digits(e.args[0])
        return None if inner_digits is None else inner_digits + 1
    if e.kind == "extract":
        return 30
    if e.kind in ("case", "coalesce", "greatest", "least", "nullif"):
        values = e.args
        if e.kind == "case":
            values = (*e.args[1:-1:2], e.args[-1])
        parts = [digits(a) if a.data is not None or a.kind != "const" else 0 for a in values]
        return None if None in parts else max(p for p in parts if p is not None)
    return None


def octets(e: Expr) -> int | None:
    """Bound the length of a text in bytes; ``None``: no bound known (up to 1 GB)."""
    if e.kind == "const":
        return len(str(e.data).encode())
    if e.type == '"char"':
        return 4
    if e.kind in ("col", "cast"):
        size = modifier(full_type(e))
        if size:
            return 4 * size[0]
        if e.kind == "col":
            return None
        return octets(e.args[0]) if e.args[0].type in TEXTS else 200_000
    if e.kind == "guard" and isinstance(e.data, int):
        return e.data
    if e.kind == "op":
        parts = [octets(a) for a in e.args]
        return None if None in parts else sum(p for p in parts if p is not None)
    if e.kind == "fn":
        first = octets(e.args[0])
        if first is None:
            return None
        if e.data == "replace":  # every byte may be replaced
            by = e.args[2]
            return first * max(1, len(str(by.data or "").encode()))
        return 4 * first  # case mappings; all others shorten
    return None


def weight(e: Expr) -> int:
    """Count rendered nodes; ``narrow`` writes its argument three times."""
    inner = sum(weight(a) for a in e.args)
    return 1 + (3 * inner if e.kind == "narrow" else inner)
