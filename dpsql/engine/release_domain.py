"""From a validated workload to matrices: levels of attributes, and what each set asks of them.

Public facts only: declared domains, public relations, the text (PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.engine.groups import domain_values
from dpsql.engine.release_classes import evaluated, told_apart
from dpsql.engine.release_matrices import Axis, written
from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.model import Key
from dpsql.ports import Database
from dpsql.query.asked import WorkloadQuestion
from dpsql.sqltree import cast, column, parameter, render, sql, unnest

if TYPE_CHECKING:
    from dpsql.statistics.tabulation_sql import Levels
    from dpsql.workload.workload import Workload

#: Levels of one attribute.
MAX_LEVELS = 1_000_000
#: Bytes of the texts of an attribute's levels.
MAX_TEXTS = 64 << 20
#: Cells that a release publishes at most.
MAX_CELLS = 30_000_000


@dataclass(frozen=True, slots=True)
class Released:
    """A workload over a domain of public levels.

    ``axes[n]`` are those of the n-th product, one per attribute.
    """

    question: WorkloadQuestion
    attributes: tuple[Levels, ...]
    workload: Workload
    axes: tuple[tuple[Axis, ...], ...]

    @property
    def cells(self) -> int:
        """How many numbers are published."""
        return self.workload.queries


def build(
    question: WorkloadQuestion, weights: Sequence[float] | None, database: Database
) -> Released:
    """Read the levels and write the workload.

    Parameters
    ----------
    question : WorkloadQuestion
        The statement.
    weights : sequence of float, optional
        One per query of the union.
    database : Database
        Reads public relations and declared domains.

    Raises
    ------
    InvalidParameter
        When weights or widths do not fit.
    NotAnswerable
        When there would be too many levels or cells.
    """
    from dpsql.workload.domain import Domain
    from dpsql.workload.kronecker import Kronecker
    from dpsql.workload.workload import Product, Workload

    number = 1 + max(s.query for s in question.sets)
    if weights is not None and len(weights) != number:
        raise InvalidParameter(
            'parameter "weights" needs one number for each query of the union',
            detail=f"There are {number} queries and {len(weights)} weights.",
        )
    _require_labels(question, database)
    attributes, known = told_apart(question, _attributes(question, database), database)
    place = {key: i for i, level in enumerate(attributes) for key in level.keys}
    truth = evaluated(question, attributes, known, database)
    products, axes = [], []
    for asked in question.sets:
        factors, own, either = written(asked, attributes, place, truth)
        weight = 1.0 if weights is None else float(weights[asked.query])
        products.append(Product(Kronecker(tuple(factors)), weight, either))
        axes.append(tuple(own))
    if all(p.nothing for p in products):
        raise NotAnswerable(
            "no level of the domain meets the conditions of any query",
            hint="Every answer would be 0; look the levels up: SELECT * FROM dp.domains;",
        )
    cells = sum(p.queries.shape[0] for p in products)
    if cells > MAX_CELLS:
        raise NotAnswerable(
            "the workload has too many cells",
            detail=f"It asks for {cells} numbers; at most {MAX_CELLS} are published.",
            hint="Release fewer grouping sets, or coarser keys.",
        )
    domain = Domain(
        tuple(
            "+".join(question.keys[k].name for k in level.keys) + f" #{i + 1}"
            for i, level in enumerate(attributes)
        ),
        tuple(len(level.values) for level in attributes),
    )
    return Released(question, attributes, Workload(domain, tuple(products)), tuple(axes))


def _require_labels(question: WorkloadQuestion, database: Database) -> None:
    """Refuse a constant whose text its column cannot hold, before anything is charged."""
    labels = dict.fromkeys(
        (text, column.type_name)
        for asked in question.sets
        for text, column in zip(asked.shown, question.columns, strict=True)
        if isinstance(text, str)
    )
    for text, type_ in labels:
        try:
            value = cast(parameter(1), type_)
            statement = sql("SELECT :value IS NULL AS unknown", value=value)
            database.execute(render(statement), [("text", text)])
        except Exception as error:
            if not str(getattr(error, "sqlstate", None) or "").startswith("22"):
                raise
            raise InvalidParameter(
                f'the constant "{text}" is not of type {type_}',
                hint=f"Write it without a further cast, as a {type_}.",
            ) from None


# -- levels ---------------------------------------------------------------------------


def _attributes(question: WorkloadQuestion, database: Database) -> tuple[Levels, ...]:
    """List the levels of each domain, in the order of the keys' types."""
    from dpsql.statistics.tabulation_sql import Levels

    found = []
    for domain in question.domains:
        rows = [
            tuple(None if v is None else str(v) for v in row)
            for row in domain_values(domain, database)
        ]
        names = [question.keys[k].name for k in domain.positions]
        if not rows:
            raise NotAnswerable(
                f"the domain of {', '.join(names)} is empty",
                hint="Declare at least one value, fill the public relation, or leave out conditions"
                " that no value of it meets.",
            )
        _require_levels(len(rows), names)
        types = [question.keys[k].type_name for k in domain.positions]
        values = _sorted(rows, types, database)
        level = Levels(domain.positions, values)
        _require_short(level, question)
        if len(types) > 1:
            level = replace(level, sorted=_each_sorted(question, level, database))
        found.append(level)
    return tuple(found)


def _each_sorted(
    question: WorkloadQuestion, level: Levels, database: Database
) -> dict[int, tuple[str | None, ...]]:
    """Order the values of keys that are asked by prefixes or ranges, each by its own type."""
    ranged = {p.key for s in question.sets for p in s.parts if p.form.kind != "levels"}
    found = {}
    for n, key in enumerate(level.keys):
        if key in ranged:
            own = [(text,) for text in dict.fromkeys(value[n] for value in level.values)]
            ordered = _sorted(own, [question.keys[key].type_name], database)
            found[key] = tuple(text for (text,) in ordered)
    return found


def _require_short(level: Levels, question: WorkloadQuestion) -> None:
    """Refuse texts that the statement which looks levels up could not hold."""
    octets = sum(len(text.encode()) for value in level.values for text in value if text)
    if octets > MAX_TEXTS:
        raise NotAnswerable(
            f"the levels of {', '.join(question.keys[k].name for k in level.keys)} are too long",
            detail=f"Together they have {octets} bytes; at most {MAX_TEXTS} are looked up.",
            hint="Group by a shorter expression.",
        )


def _require_levels(number: int, names: Sequence[str]) -> None:
    if number > MAX_LEVELS:
        raise NotAnswerable(
            f"the domain of {', '.join(names)} has too many levels",
            detail=f"It has {number}; at most {MAX_LEVELS} are released.",
            hint="Group by a coarser expression.",
        )


def _sorted(rows: Sequence[Key], types: Sequence[str], database: Database) -> tuple[Key, ...]:
    """Order levels as values of their types, NULL last."""
    names = [f"k{i}" for i in range(len(types))]
    arrays = [("text[]", [row[i] for row in rows]) for i in range(len(types))]
    texts = [column("u", name) for name in names]
    statement = sql(
        "SELECT :texts FROM :levels ORDER BY :order",
        texts=texts,
        levels=unnest([parameter(i) for i in range(1, len(types) + 1)], "u", names),
        order=[key for t, type_ in zip(texts, types, strict=True) for key in (cast(t, type_), t)],
    )
    found = database.execute(render(statement), arrays)
    return tuple(tuple(None if v is None else str(v) for v in row) for row in found)
