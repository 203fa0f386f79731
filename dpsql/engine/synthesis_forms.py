"""Values of synthetic rows as SQL: how they are made of the numbers that are sent."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.sqltree import Tree, cast, constant, sql
from dpsql.synthesis.values import Kind


def value_of(kind: Kind, n: Tree, levels: Tree) -> Tree:
    """Return the value of a number; of listed ones ``levels`` is the array."""
    if kind.form == "listed":
        found: Tree = sql("(:levels)[:n]", levels=levels, n=n)
        return found
    if kind.form == "constant":
        return cast(constant(kind.text), kind.type_name)
    if kind.form in _WRITTEN:
        return _WRITTEN[kind.form](n, kind)
    return n


def _microseconds(scale: int) -> Tree:
    """Return 10 to a power, as many microseconds."""
    return constant(f"{10**scale} microsecond")


def _since(n: Tree, kind: Kind, first: Tree) -> Tree:
    """Return a time: so many seconds or microseconds after the first one."""
    unit = constant("1 second" if kind.scale == 6 else "1 microsecond")
    found: Tree = sql(":first + :n * CAST(:unit AS interval)", first=first, n=n, unit=unit)
    return found


#: How values of types are made of numbers from 1.
_WRITTEN: dict[str, Callable[[Tree, Kind], Tree]] = {
    "numeric": lambda n, kind: sql(
        ":n * CAST(:unit AS numeric)", n=n, unit=constant(f"1e{-kind.scale}")
    ),
    "text": lambda n, kind: sql(":text || :n", text=constant(kind.text), n=n),
    "uuid": lambda n, kind: sql("CAST(md5(:text || :n) AS uuid)", text=constant(kind.text), n=n),
    "bytes": lambda n, _: sql("decode(lpad(to_hex(:n), 16, '0'), 'hex')", n=n),
    "date": lambda n, _: sql("date '2000-01-01' + CAST(:n AS integer)", n=n),
    "time": lambda n, kind: sql(
        "time '00:00' + :n * CAST(:unit AS interval)", n=n, unit=_microseconds(kind.scale)
    ),
    "timetz": lambda n, kind: sql(
        "timetz '00:00+00' + :n * CAST(:unit AS interval)", n=n, unit=_microseconds(kind.scale)
    ),
    "timestamp": lambda n, kind: _since(n, kind, sql("timestamp '2000-01-01'")),
    "timestamptz": lambda n, kind: _since(n, kind, sql("timestamptz '2000-01-01 00:00:00+00'")),
    "interval": lambda n, _: sql(":n * CAST('1 second' AS interval)", n=n),
    "inet": lambda n, _: sql("inet '::' + :n", n=n),
    "cidr": lambda n, _: sql("CAST(host(inet '::' + :n) AS cidr)", n=n),
    "macaddr": lambda n, _: sql("CAST(lpad(to_hex(:n), 12, '0') AS macaddr)", n=n),
    "macaddr8": lambda n, _: sql("CAST(lpad(to_hex(:n), 16, '0') AS macaddr8)", n=n),
    "money": lambda n, _: sql("CAST(:n AS money)", n=n),
    "oid": lambda n, _: sql("CAST(:n AS oid)", n=n),
    "pg_lsn": lambda n, _: sql("CAST('0/0' AS pg_lsn) + CAST(:n AS numeric)", n=n),
    "jsonb": lambda n, _: sql("to_jsonb(:n)", n=n),
    "bit": lambda n, kind: cast(n, f"bit({kind.scale})"),
    "varbit": lambda n, kind: cast(cast(n, f"bit({kind.scale})"), "varbit"),
}
