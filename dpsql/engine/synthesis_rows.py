"""Writes a batch of rows of a synthetic table by one statement, from arrays of numbers.

Rows that a CHECK constraint would refuse are found before, by one statement too, and get the
attributes of other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from dpsql.engine.synthesis_catalogue import STILL
from dpsql.engine.synthesis_forms import value_of
from dpsql.engine.synthesis_tables import TableDetails
from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier
from dpsql.sqltree import (
    Tree,
    aliased,
    call,
    cast,
    column,
    cte,
    insert,
    number,
    parameter,
    raw,
    render,
    sql,
    subquery,
    unnest,
    with_,
)
from dpsql.sqltree import name as identifier
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
_NUMBER = quote_identifier("dpsql row")


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
        name = self.details.name
        if not written:
            statement = insert(name, [], sql("SELECT FROM generate_series(1, $1)"))
            self.services.database.execute(render(statement), [("int4", rows)])
            return
        source, parameters = self._source(numbers, rows)
        shown = [self._value(c, numbers) if c in numbers else exp.Null() for c in written]
        query = sql("SELECT :shown FROM l, :source", shown=shown, source=source)
        statement = insert(name, [quote_identifier(c) for c in written], query)
        self.services.database.execute(self._with_levels(numbers, statement), parameters)

    def _source(
        self, numbers: Mapping[str, Numbers], rows: int
    ) -> tuple[exp.Unnest, list[tuple[str, object]]]:
        """Return the FROM item of the numbers, and the parameters: numbers, then levels."""
        calls: list[Tree] = []
        parameters: list[tuple[str, object]] = []
        levels: list[tuple[str, object]] = []
        for n, (name, array) in enumerate(numbers.items(), 1):
            function, sent = _sent(self.kinds[name], array)
            calls.append(call(function, parameter(n)))
            parameters.append(("bytea", sent))
            if self.kinds[name].form == "listed":
                # of the type itself: a cast from text could be code of the type's owner
                kind = self.kinds[name]
                levels.append((f"{kind.type_name}[]", [_given(kind, v) for v in kind.levels]))
        if not numbers:
            every = list(range(1, rows + 1))
            return unnest([parameter(1)], "r", [_NUMBER]), [("int4[]", every)]
        names = [_column(n) for n in range(len(numbers))]
        source = unnest(calls, "r", [*names, _NUMBER], ordinality=True)
        return source, [*parameters, *levels]

    def _with_levels(self, numbers: Mapping[str, Numbers], statement: Tree) -> str:
        """Write a statement over the levels of every column, which are there as arrays, once."""
        shown: list[Tree] = []
        for n, name in enumerate(numbers):
            if self.kinds[name].form == "listed":
                levels = parameter(len(numbers) + len(shown) + 1)
                shown.append(aliased(levels, _column(n)))
        arrays = sql("SELECT :shown", shown=shown or [exp.Null()])
        return render(with_([cte("l", arrays, materialized=True)], statement))

    def satisfy(
        self, numbers: dict[str, Numbers], free: tuple[str, ...], seed: tuple[int, ...], job: int
    ) -> None:
        """Change rows in place until none breaks a CHECK constraint."""
        broken = mend(numbers, free, self.failing, seed)
        if broken is None:
            return
        name = self.details.checks[broken][0]
        copy, own = self.details.name, self.details.of_domains.get(name)
        if own is None:
            way = f"ALTER TABLE {copy} DROP CONSTRAINT {quote_identifier(name)}"
        else:
            way = f"ALTER TABLE {copy} ALTER {quote_identifier(own)} TYPE {self.details.plain[own]}"
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
        inner: list[Tree] = [column("r", _NUMBER)]
        inner += [
            aliased(self._typed(name, numbers), quote_identifier(name))
            for name in self.details.types
            if name not in self.details.generated
        ]
        label = quote_identifier(self.planned.table.name)
        tried = subquery(sql("SELECT :shown FROM l, :source", shown=inner, source=source), label)
        if self.details.generated:
            made = [
                aliased(self._cast(name, self._expression(name)), quote_identifier(name))
                for name in self.details.generated
            ]
            every = exp.Column(this=exp.Star(), table=identifier(label))
            query = sql("SELECT :every, :made FROM :tried", every=every, made=made, tried=tried)
            tried = subquery(query, label)
        cases = [
            exp.If(this=sql("NOT coalesce((:check), true)", check=raw(check)), true=number(n))
            for n, (_, check) in enumerate(self.details.checks)
        ]
        statement = sql(
            "SELECT * FROM (SELECT :number AS row, :broken AS broken FROM :tried) AS f"
            " WHERE f.broken IS NOT NULL",
            number=column(label, _NUMBER),
            broken=exp.Case(ifs=cases),
            tried=tried,
        )
        found = self.services.database.execute(self._with_levels(numbers, statement), parameters)
        return {int(str(row)) - 1: int(str(which)) for row, which in found}

    def _typed(self, name: str, numbers: Mapping[str, Numbers]) -> Tree:
        if name in numbers:
            return self._cast(name, self._value(name, numbers))
        default = self.uses.get(name) is Use.DEFAULT and name in self.details.expressions
        return self._cast(name, self._expression(name) if default else exp.Null())

    def _value(self, name: str, numbers: Mapping[str, Numbers]) -> Tree:
        """Return the value of a column's number in ``r``, by its levels in ``l``."""
        n = _column(list(numbers).index(name))
        return value_of(self.kinds[name], column("r", n), column("l", n))

    def _expression(self, name: str) -> Tree:
        """Return a column's default, or how it is generated, as the catalogue has it."""
        return raw(self.details.expressions[name])

    def _cast(self, name: str, value: Tree) -> Tree:
        return cast(value, self._type(name))

    def _type(self, name: str) -> str:
        """Return a column's type, of a domain what that is over: a cast to it could fail."""
        return self.details.plain.get(name, self.details.types[name])


def _column(n: int) -> str:
    return f"c{n}"


def _sent(kind: Kind, array: Numbers) -> tuple[str, bytes]:
    """Return the function that reads the bytes of an array, and these."""
    if array.dtype.kind == "f":
        return "dp.floats", array.astype(np.float64).tobytes()
    if kind.form == "listed":
        return "dp.integers", np.where(array == MISSING, 0, array + 1).astype(np.int32).tobytes()
    return "dp.bigints", array.astype(np.int64).tobytes()


def _given(kind: Kind, text: str | None) -> object:
    """Return a level as a parameter: PL/Python takes any text for true."""
    if text is not None and kind.type_name == "boolean":
        return text in ("t", "true")
    return text
