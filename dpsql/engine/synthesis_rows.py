"""Writes a batch of rows of a synthetic table by one statement, from arrays of numbers.

Rows that a CHECK constraint would refuse are found before, by one statement too, and get the
attributes of other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engine.synthesis_catalogue import STILL
from dpsql.engine.synthesis_tables import TableDetails
from dpsql.errors import NotAnswerable
from dpsql.query.ir import literal
from dpsql.relation import quote_identifier
from dpsql.synthesis.assembled import Assembled
from dpsql.synthesis.hashing import Flags
from dpsql.synthesis.mending import mend
from dpsql.synthesis.satisfying import Check, Checks, Values
from dpsql.synthesis.schema import Planned, Use
from dpsql.synthesis.values import MISSING, Kind, Numbers

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Values of one statement, and rows.
_VALUES = 1_000_000
_ROWS = 50_000
_NUMBER = "dpsql row"


def batch_rows(columns: int) -> int:
    """Return how many rows a batch has."""
    return max(1000, min(_ROWS, _VALUES // max(columns, 1)))


def write(
    place: int,
    planned: Planned,
    table: Assembled,
    details: TableDetails,
    start: int,
    seed: int,
    services: Services,
    job: int = 0,
) -> int:
    """Write the batch that begins at a row.

    Returns
    -------
    int
        How many rows it has.

    Raises
    ------
    NotAnswerable
        When no row of the batch has attributes that satisfy a CHECK constraint.
    """
    stop = min(table.rows, start + batch_rows(len(table.columns)))
    rows = np.arange(start, stop, dtype=np.int64)
    numbers = {name: source.at(rows) for name, source in table.columns.items()}
    kinds = {name: source.kind for name, source in table.columns.items()}
    batch = _Batch(planned, _still(details, services), kinds, services)
    if batch.details.checks:
        batch.satisfy(numbers, table.free, (seed, place, start), job)
    batch.insert(numbers, rows.size)
    return int(rows.size)


def failing(
    planned: Planned,
    details: TableDetails,
    kinds: Mapping[str, Kind],
    numbers: Mapping[str, Numbers],
    services: Services,
) -> dict[int, int]:
    """Return the rows that break a CHECK constraint, and the first that each breaks."""
    return _Batch(planned, details, kinds, services).failing(numbers)


def checks_of(planned: Planned, details: TableDetails, services: Services) -> Checks | None:
    """Return the CHECK constraints of a table, tried with the caller's rights, if it has any."""
    if not details.checked:
        return None
    found = [Check(name, frozenset(details.checked.get(name, ()))) for name, _ in details.checks]

    def broken(values: Values, which: Sequence[int]) -> Flags:
        numbers = {name: array for name, (_, array) in values.items()}
        kinds = {name: kind for name, (kind, _) in values.items()}
        some = replace(details, checks=[details.checks[n] for n in which], generated=[])
        needed = {name for n in which for name in found[n].columns}
        some.types = {name: text for name, text in details.types.items() if name in needed}
        rows = next(iter(numbers.values())).size
        result: Flags = np.zeros(rows, dtype=bool)
        result[list(failing(planned, some, kinds, numbers, services))] = True
        return result

    return Checks(found, broken)


def _still(details: TableDetails, services: Services) -> TableDetails:
    """Leave constraints out that somebody dropped on the copy, so that it can be written."""
    if not details.checks:
        return details
    ((checks, domains),) = services.database.execute(STILL, [("text", details.name)])
    kept = [
        (name, text)
        for name, text in details.checks
        if (
            details.of_domains[name] in domains  # type: ignore[operator]
            if name in details.of_domains
            else name in checks  # type: ignore[operator]
        )
    ]
    return replace(details, checks=kept)


class _Batch:
    """The statements of one table."""

    def __init__(
        self, planned: Planned, details: TableDetails, kinds: Mapping[str, Kind], services: Services
    ) -> None:
        self.planned = planned
        self.details = details
        self.kinds = kinds
        self.services = services
        self.uses = dict(planned.uses)

    def insert(self, numbers: Mapping[str, Numbers], rows: int) -> None:
        """Insert the rows."""
        written = [name for name, use in self.planned.uses if name in numbers or use is Use.MISSING]
        source, parameters = self._source(numbers, rows)
        shown = ", ".join(
            _value(self.kinds[name], f"r.{_column(n)}", f"l.{_column(n)}")
            if name in numbers
            else "NULL"
            for name in written
            for n in [_place(name, numbers)]
        )
        listed = ", ".join(quote_identifier(name) for name in written)
        if not written:
            insert = f"INSERT INTO {self.details.name} SELECT FROM generate_series(1, $1)"
            self.services.database.execute(insert, [("int4", rows)])
            return
        self.services.database.execute(
            f"WITH l AS MATERIALIZED ({self._levels(numbers)})"
            f" INSERT INTO {self.details.name} ({listed}) OVERRIDING SYSTEM VALUE"
            f" SELECT {shown} FROM l, {source}",
            parameters,
        )

    def _source(
        self, numbers: Mapping[str, Numbers], rows: int
    ) -> tuple[str, list[tuple[str, object]]]:
        """Return the FROM item of the numbers, and the parameters: numbers, then levels."""
        calls, parameters = [], []
        levels: list[tuple[str, object]] = []
        for n, (name, array) in enumerate(numbers.items(), 1):
            function, sent = _sent(self.kinds[name], array)
            calls.append(f"dp.{function}(${n})")
            parameters.append(("bytea", sent))
            if self.kinds[name].form == "listed":
                # of the type itself: a cast from text could be code of the type's owner
                kind = self.kinds[name]
                levels.append((f"{kind.type_name}[]", [_given(kind, v) for v in kind.levels]))
        names = ", ".join(_column(n) for n in range(len(numbers)))
        if not numbers:
            every = list(range(1, rows + 1))
            return f"unnest(${1}) AS r({_quoted_number()})", [("int4[]", every)]
        source = f"unnest({', '.join(calls)}) WITH ORDINALITY AS r({names}, {_quoted_number()})"
        return source, [*parameters, *levels]

    def _levels(self, numbers: Mapping[str, Numbers]) -> str:
        """Return the query that has the levels of every column as arrays, once."""
        shown: list[str] = []
        for n, name in enumerate(numbers):
            kind = self.kinds[name]
            if kind.form == "listed":
                parameter = len(numbers) + len(shown) + 1
                shown.append(f"${parameter} AS {_column(n)}")
        return f"SELECT {', '.join(shown) or 'NULL'}"

    def satisfy(
        self, numbers: dict[str, Numbers], free: tuple[str, ...], seed: tuple[int, ...], job: int
    ) -> None:
        """Change rows in place until none breaks a CHECK constraint."""
        broken = mend(numbers, free, self.failing, seed)
        if broken is None:
            return
        name = self.details.checks[broken][0]
        copy, column = self.details.name, self.details.of_domains.get(name)
        if column is None:
            way = f"ALTER TABLE {copy} DROP CONSTRAINT {quote_identifier(name)}"
        else:
            way = (
                f"ALTER TABLE {copy} ALTER {quote_identifier(column)}"
                f" TYPE {self.details.plain[column]}"
            )
        raise NotAnswerable(
            f'no synthetic row of {self.planned.table.name} satisfies the constraint "{name}"',
            detail="Rows are generated without knowledge of it, and none of the levels that were"
            " drawn in this batch can stand in for others. What was measured is kept and paid for.",
            hint=f"{way}; CALL dp.write_synthesis({job}); goes on without it and pays nothing. Or"
            " declare domains whose levels satisfy it, and measure again.",
        )

    def failing(self, numbers: Mapping[str, Numbers]) -> dict[int, int]:
        """Return the rows that break a CHECK constraint, and the first that each breaks."""
        rows = next(iter(numbers.values())).size if numbers else 0
        if not rows:
            return {}
        source, parameters = self._source(numbers, rows)
        inner = [f"r.{_quoted_number()}"]
        inner += [
            f"{self._typed(name, numbers)} AS {quote_identifier(name)}"
            for name in self.details.types
            if name not in self.details.generated
        ]
        label = quote_identifier(self.planned.table.name)
        query = f"SELECT {', '.join(inner)} FROM l, {source}"
        if self.details.generated:
            made = ", ".join(
                f"CAST(({self.details.expressions[name]}) AS {self._type(name)})"
                f" AS {quote_identifier(name)}"
                for name in self.details.generated
            )
            query = f"SELECT {label}.*, {made} FROM ({query}) AS {label}"
        cases = " ".join(
            f"WHEN NOT coalesce(({expression}), true) THEN {n}"
            for n, (_, expression) in enumerate(self.details.checks)
        )
        found = self.services.database.execute(
            f"WITH l AS MATERIALIZED ({self._levels(numbers)})"
            f" SELECT * FROM (SELECT {label}.{_quoted_number()} AS row, CASE {cases} END AS broken"
            f" FROM ({query}) AS {label}) AS f WHERE f.broken IS NOT NULL",
            parameters,
        )
        return {int(str(row)) - 1: int(str(which)) for row, which in found}

    def _typed(self, name: str, numbers: Mapping[str, Numbers]) -> str:
        if name in numbers:
            n = _column(_place(name, numbers))
            value = _value(self.kinds[name], f"r.{n}", f"l.{n}")
        elif self.uses.get(name) is Use.DEFAULT:
            value = self.details.expressions.get(name, "NULL")
        else:
            value = "NULL"
        return f"CAST({value} AS {self._type(name)})"

    def _type(self, name: str) -> str:
        """Return a column's type, of a domain what that is over: a cast to it could fail."""
        return self.details.plain.get(name, self.details.types[name])


def _place(name: str, numbers: Mapping[str, Numbers]) -> int:
    return list(numbers).index(name) if name in numbers else -1


def _column(n: int) -> str:
    return f"c{n}"


def _quoted_number() -> str:
    return quote_identifier(_NUMBER)


def _sent(kind: Kind, array: Numbers) -> tuple[str, bytes]:
    """Return the function that reads the bytes of an array, and these."""
    if array.dtype.kind == "f":
        return "floats", array.astype(np.float64).tobytes()
    if kind.form == "listed":
        return "integers", np.where(array == MISSING, 0, array + 1).astype(np.int32).tobytes()
    return "bigints", array.astype(np.int64).tobytes()


def _given(kind: Kind, text: str | None) -> object:
    """Return a level as a parameter: PL/Python takes any text for true."""
    if text is not None and kind.type_name == "boolean":
        return text in ("t", "true")
    return text


def _value(kind: Kind, number: str, levels: str) -> str:
    """Write the value of a number as SQL."""
    if kind.form == "listed":
        return f"{levels}[{number}]"
    if kind.form == "constant":
        return f"{literal(kind.text)}::{kind.type_name}"
    if kind.form == "numeric":
        return f"({number} * {literal(f'1e{-kind.scale}')}::numeric)"
    if kind.form == "text":
        return f"({literal(kind.text)} || {number})"
    if kind.form == "uuid":
        return f"md5({literal(kind.text)} || {number})::uuid"
    if kind.form == "bytes":
        return f"decode(lpad(to_hex({number}), 16, '0'), 'hex')"
    if kind.form == "date":
        return f"(date '2000-01-01' + {number}::integer)"
    if kind.form == "time":
        return f"(time '00:00' + {number} * interval '{10**kind.scale} microsecond')"
    if kind.form in ("timestamp", "timestamptz"):
        unit = "second" if kind.scale == 6 else "microsecond"
        first = (
            "timestamptz '2000-01-01 00:00:00+00'"
            if kind.form == "timestamptz"
            else "timestamp '2000-01-01'"
        )
        return f"({first} + {number} * interval '1 {unit}')"
    if kind.form in _WRITTEN:
        return _WRITTEN[kind.form].format(n=number, scale=kind.scale, unit=10**kind.scale)
    return number


#: How values of other types are made of numbers from 1.
_WRITTEN = {
    "inet": "(inet '::' + {n})",
    "cidr": "host(inet '::' + {n})::cidr",
    "macaddr": "lpad(to_hex({n}), 12, '0')::macaddr",
    "macaddr8": "lpad(to_hex({n}), 16, '0')::macaddr8",
    "timetz": "(timetz '00:00+00' + {n} * interval '{unit} microsecond')",
    "interval": "({n} * interval '1 second')",
    "money": "{n}::money",
    "oid": "{n}::oid",
    "pg_lsn": "(pg_lsn '0/0' + {n}::numeric)",
    "jsonb": "to_jsonb({n})",
    "bit": "{n}::bit({scale})",
    "varbit": "{n}::bit({scale})::varbit",
}
