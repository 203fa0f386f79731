"""Keys that are made up: which kind a type has, and how many values it has room for."""

from __future__ import annotations

from dpsql.synthesis.values import Kind

_SIZES = {"int2": 2**15 - 1, "int4": 2**31 - 1, "int8": 2**63 - 1, "float4": 2**24, "float8": 2**53}
_MAX_DATES = 2_000_000
_TEXTS = ("text", "varchar", "bpchar", "name", "citext")
#: Of other types that values are made of: how many different ones there are.
_ROOM = {
    "inet": 2**62,
    "cidr": 2**62,
    "macaddr": 2**48 - 1,
    "macaddr8": 2**62,
    "time": 0,
    "timetz": 0,
    "interval": 2**40,
    "money": 2**53,
    "oid": 2**32 - 1,
    "pg_lsn": 2**62,
    "jsonb": 2**62,
    "bit": 2**62,
    "varbit": 2**62,
}
_NAME_BYTES = 63
_MOST = 2**62
_CONSTANTS = {
    **dict.fromkeys(("json", "jsonb"), "{}"),
    **dict.fromkeys(("interval", "money", "varbit"), "0"),
    **dict.fromkeys(("time", "timetz"), "00:00"),
    **dict.fromkeys(("inet", "cidr"), "::"),
    **dict.fromkeys(("xml", "tsvector"), ""),
    **{f"{name}{of}": text for name in ("int4", "int8", "num", "date", "ts", "tstz")
       for of, text in (("range", "empty"), ("multirange", "{}"))},
    "char": "?",
    "macaddr": "00:00:00:00:00:00",
    "point": "(0,0)",
}  # fmt: skip


#: Types of which different values are made from 1, 2, ...
MADE_UP = frozenset(
    (*_SIZES, *_TEXTS, *_ROOM, "numeric", "uuid", "bytea", "date", "timestamp", "timestamptz")
)


class NoKey(Exception):
    """No key can be made up; the text says why."""


def made_up(base: str, modifier: int, label: str, rows: int, seed: int) -> Kind:
    """Choose how keys of a column are made from 1, 2, ...

    Parameters
    ----------
    base : str
        Name of the column's base type, as ``pg_type`` has it.
    modifier : int
        Its ``atttypmod``, of the base type; -1: none.
    label : str
        What text keys begin with.
    rows : int
    seed : int

    Raises
    ------
    NoKey
        When the type has no kind, or fewer values than there are rows.
    """
    if base in _SIZES:
        if rows > _SIZES[base]:
            raise NoKey(f"the type has {_SIZES[base]} positive values, and there are {rows} rows")
        return Kind("integer")
    if base == "numeric":
        scale = scale_of(modifier) if modifier >= 0 else 0
        digits = 1000 if modifier < 0 else ((modifier - 4) >> 16) - max(scale, 0)
        if len(str(rows)) > digits:
            raise NoKey(f"the type has {digits} digits, and there are {rows} rows")
        return Kind("numeric", scale=scale) if scale < 0 else Kind("integer")
    if base in _TEXTS:
        width = _NAME_BYTES if base == "name" else modifier - 4 if modifier >= 4 else 10**6
        digits = len(str(rows))
        if digits > width:
            raise NoKey(f"the type has room for {width} characters, and there are {rows} rows")
        fits = len(label.encode()) + 1 + digits <= width
        return Kind("text", text=f"{label} " if fits else "")
    if base == "uuid":
        return Kind("uuid", text=f"{seed} {label} ")
    if base == "bytea":
        return Kind("bytes")
    if base == "date":
        if rows > _MAX_DATES:
            raise NoKey(f"the type has {_MAX_DATES} days to choose from, and there are {rows} rows")
        return Kind("date")
    if base in ("timestamp", "timestamptz"):
        return Kind(base, scale=6)
    if base in _ROOM:
        most = room(base, modifier)
        if rows > most:
            raise NoKey(f"the type has {most} values to choose from, and there are {rows} rows")
        if base in ("time", "timetz"):
            return Kind(base, scale=6 - modifier if 0 <= modifier < 6 else 0)
        if base == "bit":
            return Kind(base, scale=max(modifier, 1))
        return Kind(base, scale=min(modifier, 62) if modifier > 0 else 62)
    raise NoKey(
        "its type is none of numbers, texts, bit strings, uuid, bytea, jsonb, addresses, dates and"
        " times, of which different values are made"
    )


def room(base: str, modifier: int) -> int:
    """Return how many values `made_up` has for a column, at least as far as bigint numbers them."""
    known = _SIZES.get(base)
    if base == "numeric" and modifier >= 0:
        known = 10 ** max(((modifier - 4) >> 16) - max(scale_of(modifier), 0), 0) - 1
    elif base in ("varchar", "bpchar") and modifier >= 4:
        known = 10 ** (modifier - 4) - 1
    elif base == "date":
        known = _MAX_DATES
    elif base in ("bit", "varbit"):
        known = 2 ** min(modifier if modifier > 0 else 1 if base == "bit" else 62, 62) - 1
    elif base in ("time", "timetz"):
        known = 86_400 * 10 ** (modifier if 0 <= modifier < 6 else 6) - 1
    elif base == "interval" and modifier >= 0 and modifier >> 16 & 0x7FFF != 0x7FFF:
        known = 0  # of some fields only
    elif base in _ROOM:
        known = _ROOM[base]
    return min(known if known is not None else _MOST, _MOST)


def constant(base: str) -> str | None:
    """Return a value of a type, as text, for rows of which nothing is known; None: there is none.

    Arrays, whose types' names begin with an underscore, are empty.
    """
    return "{}" if base.startswith("_") else _CONSTANTS.get(base)


def scale_of(modifier: int) -> int:
    """Read the scale in the modifier of a numeric type; it may be negative."""
    scale = (modifier - 4) & 0x7FF
    return scale - 0x800 if scale >= 0x400 else scale
