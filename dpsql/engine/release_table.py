"""Publish what was measured as a table of the schema dpv: groups, values, standard errors.

Everything here is post-processing of noisy measurements and public levels (PRIVACY.md section 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dpsql.engine import ddl
from dpsql.engine.progress import Phase
from dpsql.errors import InvalidParameter
from dpsql.relation import quote_identifier, show_name
from dpsql.sqltree import cast, parameter, render, sql

if TYPE_CHECKING:
    from dpsql.engine.release import Outcome
    from dpsql.engine.release_domain import Released
    from dpsql.engine.release_matrices import Axis
    from dpsql.engine.services import Services
    from dpsql.query.asked import AskedSet, WorkloadQuestion
    from dpsql.workload.matrix import Floats

_OWN = ("grouping", "query", "value", "standard_error")
#: Columns that every table has.
_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_MAX_NAME = 63


def check_name(name: str) -> None:
    """Refuse a name that no table of the schema dpv can have."""
    if not name or len(name.encode()) > _MAX_NAME:
        raise InvalidParameter(
            'parameter "name" must be the name of a table',
            detail=f"It has {len(name.encode())} bytes; a name has 1 to {_MAX_NAME}.",
        )
    if name.startswith("dpv."):
        raise InvalidParameter(
            'parameter "name" must be the name of a table, or that behind "dpv."',
            detail="The table is made in the schema dpv.",
        )


def columns(question: WorkloadQuestion) -> list[tuple[str, str]]:
    """Name the group columns of the table and their types; ranges have two.

    Raises
    ------
    InvalidParameter
        When two columns would have one name, or one has a name that no column can have.
    """
    found = []
    kinds: dict[str, str] = {}
    for n, names in enumerate(columns_of(question)):
        found += [(name, question.columns[n].type_name) for name in names]
        kinds |= dict.fromkeys(names, "key" if is_key(question, n) else "label")
    seen: set[str] = set()
    for name, _ in found:
        if name in seen or name in _OWN:
            raise InvalidParameter(
                f'the released table would have two columns named "{name}"',
                detail=f"Its own columns are {', '.join(_OWN)}."
                if name in _OWN
                else "The statement has two columns of that name.",
                hint=f"Give the {kinds[name]} another name, such as"
                f" {show_name(f'{name}_{kinds[name]}')}, by AS.",
            )
        if name in _SYSTEM or len(name.encode()) > _MAX_NAME:
            raise InvalidParameter(
                f'the released table cannot have a column named "{name}"',
                detail="Every table has a column of that name already."
                if name in _SYSTEM
                else f"It has {len(name.encode())} bytes; a name has at most {_MAX_NAME}.",
                hint="Give the key another, short name: SELECT ... AS name.",
            )
        seen.add(name)
    return found


def columns_of(question: WorkloadQuestion) -> list[list[str]]:
    """Name for each group column of the statement those of the table: one, or two for ranges."""
    return [
        [f"{column.name}_low", f"{column.name}_high"] if ranged else [column.name]
        for column, ranged in zip(question.columns, question.ranged, strict=True)
    ]


def is_key(question: WorkloadQuestion, column: int) -> bool:
    """Tell a column of keys from one that shows a constant in every set."""
    return any(isinstance(s.shown[column], int) for s in question.sets)


def table_name(name: str) -> str:
    """Return the qualified, quoted name."""
    return f"dpv.{quote_identifier(name)}"


def create(name: str, released: Released, services: Services) -> None:
    """Create the table, which is not there: `dpsql.engine.publish` has seen to that."""
    question = released.question
    union = [ddl.not_null(ddl.column("query", "integer"))] if several(question) else []
    listed = [
        *union,
        ddl.not_null(ddl.column("grouping", "integer")),
        *(ddl.column(own, type_) for own, type_ in columns(question)),
        ddl.not_null(ddl.column("value", "double precision")),
        ddl.column("standard_error", "double precision"),
    ]
    services.database.execute(ddl.create_table(table_name(name), listed))


def several(question: WorkloadQuestion) -> bool:
    """Tell whether a workload unites several queries."""
    return any(s.query for s in question.sets)


def fill(name: str, outcome: Outcome, services: Services) -> tuple[int, float]:
    """Write all rows; returns how many, and the root mean square of their standard errors."""
    import numpy as np

    released = outcome.admitted.released
    question = released.question
    wanted = {
        _identity(s): [a.rows for a in axes]
        for s, axes in zip(question.sets, released.axes, strict=True)
    }
    total = sum(math.prod(rows) for rows in wanted.values())
    fitted = outcome.postprocess != "none"
    outcome.progress.phase(Phase.POSTPROCESSING if fitted else Phase.PUBLISHING, total)
    written, squared = 0, 0.0
    answers = _answers(outcome, services.database.tick)
    for asked, axes, (value, error) in zip(question.sets, released.axes, answers, strict=True):
        rows = wanted.pop(_identity(asked), None)
        if rows is None:
            continue  # asked twice, which only weighs more
        if fitted and not written:
            outcome.progress.phase(Phase.PUBLISHING, total)
        values = np.broadcast_to(value, rows)
        errors = np.broadcast_to(error, rows)
        squared += float((errors**2).sum())
        _insert(name, question, asked, axes, np.array(values), np.array(errors), services)
        written += values.size
        services.database.tick()
    return written, math.sqrt(squared / written)


def _identity(asked: AskedSet) -> tuple[object, ...]:
    return asked.query, asked.parts, asked.shown


def _answers(outcome: Outcome, tick: Callable[[], None]) -> Iterator[tuple[Floats, Floats]]:
    """Yield values and standard errors of each set; errors are those before post-processing."""
    mechanism = outcome.priced.mechanism
    if outcome.postprocess == "none":
        raw = mechanism.answers(outcome.measured)
        yield from ((answer.values, answer.errors) for answer in raw)
        return
    from dpsql.workload.postprocessed import postprocessed

    found = postprocessed(mechanism, outcome.measured, outcome.postprocess, tick=tick)
    yield from zip(found, mechanism.errors(outcome.measured), strict=True)


_WRITE = "select dp.write_cells(to_regclass($1), $2, $3, $4, $5, $6, $7, $8, $9, $10) as written"


def _insert(
    name: str,
    question: WorkloadQuestion,
    asked: AskedSet,
    axes: Sequence[Axis],
    values: Floats,
    errors: Floats,
    services: Services,
) -> None:
    """Insert the rows of one grouping set: values in C order, labels by their places."""
    place = {part: n for n, axis in enumerate(axes) for part in axis.labels}
    follows: list[int] = []
    counts: list[int] = []
    labels: list[str | None] = []
    for shown, column, ranged in zip(asked.shown, question.columns, question.ranged, strict=True):
        width = 1 + ranged
        if isinstance(shown, int):
            own = axes[place[shown]].labels[shown]
            for texts in own if len(own) == width else own * width:
                follows.append(place[shown])
                counts.append(len(texts))
                labels += texts
            continue
        constant = None if shown is None else _as_type(shown, column.type_name, services)
        follows += [-1] * width
        counts += [constant is not None] * width
        labels += [constant] * width if constant is not None else []
    first = float(errors.flat[0])
    alike = math.isnan(first) or bool((errors == first).all())  # unknown, or one for all
    services.database.execute(
        _WRITE,
        [
            ("text", table_name(name)),
            ("int4", asked.query + 1 if several(question) else None),
            ("int4", grouping(question, asked)),
            ("bytea", values.astype("=f8").tobytes()),
            ("bytea", None if alike else errors.astype("=f8").tobytes()),
            ("float8", None if math.isnan(first) or not alike else first),
            ("int4[]", [axis.rows for axis in axes]),
            ("int4[]", follows),
            ("int4[]", [int(count) for count in counts]),
            ("text[]", labels),
        ],
    )


def _as_type(text: str, type_name: str, services: Services) -> str | None:
    """Write a label as a value of its column's type, which may cut it."""
    statement = sql("SELECT CAST(:value AS text) AS label", value=cast(parameter(1), type_name))
    found = services.database.execute(render(statement), [("text", text)])
    return None if found[0][0] is None else str(found[0][0])


def grouping(question: WorkloadQuestion, asked: AskedSet) -> int:
    """Return what SQL's GROUPING() of all key columns says: a bit for each that is summed over."""
    result = 0
    for n, shown in enumerate(asked.shown):
        if is_key(question, n):
            result = 2 * result + (not isinstance(shown, int))
    return result
