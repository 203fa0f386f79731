"""From a validated workload to matrices: levels of attributes, and what each set asks of them.

Public facts only: declared domains, public relations, the text (PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from dpsql.engine.groups import domain_values
from dpsql.engine.release_matrices import Axis, written
from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.model import Key
from dpsql.ports import Database
from dpsql.query.asked import AskedSet, Condition, Predicate, WorkloadQuestion

if TYPE_CHECKING:
    from dpsql.engine.release_matrices import Mask
    from dpsql.statistics.tabulation import Levels
    from dpsql.workload.workload import Workload

#: Levels of one attribute, and of one that is made of several because a condition spans them.
MAX_LEVELS = 1_000_000
MAX_MERGED = 4096
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
    attributes = _attributes(question, database)
    place = {key: i for i, level in enumerate(attributes) for key in level.keys}
    truth = _evaluated(question, attributes, place, database)
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
            database.execute(f"SELECT CAST($1 AS {type_}) IS NULL AS unknown", [("text", text)])
        except Exception as error:
            if not str(getattr(error, "sqlstate", None) or "").startswith("22"):
                raise
            raise InvalidParameter(
                f'the constant "{text}" is not of type {type_}',
                hint=f"Write it without a further cast, as a {type_}.",
            ) from None


# -- levels ---------------------------------------------------------------------------


def _attributes(question: WorkloadQuestion, database: Database) -> tuple[Levels, ...]:
    """List the levels of each domain, in the order of the keys' types; merge what must be."""
    from dpsql.statistics.tabulation import Levels

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
                hint="Declare at least one value, or fill the public relation.",
            )
        _require_levels(len(rows), names)
        types = [question.keys[k].type_name for k in domain.positions]
        found.append(Levels(domain.positions, _sorted(rows, types, database)))
    spanned = _spanned(question, found)
    apart = [level for i, level in enumerate(found) if not any(i in g for g in spanned)]
    result = (*apart, *(_merged([found[i] for i in together]) for together in spanned))
    for level in result:
        _require_short(level, question)
    return result


def _merged(levels: Sequence[Levels]) -> Levels:
    """Make one attribute of several, whose levels are all combinations."""
    from dpsql.statistics.tabulation import Levels

    size = math.prod(len(level.values) for level in levels)
    if size > MAX_MERGED:
        raise NotAnswerable(
            "a condition spans keys with too many combinations",
            detail=f"They have {size}; at most {MAX_MERGED} are looked at together.",
            hint="Write conditions on single keys, joined by AND, or coarser keys.",
        )
    keys = tuple(k for level in levels for k in level.keys)
    values = tuple(
        tuple(v for part in parts for v in part)
        for parts in product(*(level.values for level in levels))
    )
    return Levels(keys, values)


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


def _sorted(rows: list[Key], types: Sequence[str], database: Database) -> tuple[Key, ...]:
    """Order levels as values of their types, NULL last."""
    names = [f"k{i}" for i in range(len(types))]
    arrays = [("text[]", [row[i] for row in rows]) for i in range(len(types))]
    unnested = ", ".join(f"${i + 1}" for i in range(len(types)))
    order = ", ".join(
        f"CAST(u.{name} AS {type_}), u.{name}" for name, type_ in zip(names, types, strict=True)
    )
    found = database.execute(
        f"SELECT {', '.join(f'u.{n}' for n in names)} FROM unnest({unnested}) AS"
        f" u({', '.join(names)}) ORDER BY {order}",
        arrays,
    )
    return tuple(tuple(None if v is None else str(v) for v in row) for row in found)


def _spanned(question: WorkloadQuestion, levels: Sequence[Levels]) -> list[list[int]]:
    """Find the attributes that some condition looks at together, in groups."""
    place = {key: i for i, level in enumerate(levels) for key in level.keys}
    groups = [{i} for i in range(len(levels))]
    for asked in question.sets:
        for predicate in asked.where:
            spans = [{place[k] for k in c.keys} for c in predicate.either]
            if _stays_apart(asked, predicate, spans, place):
                continue
            together = set().union(*spans)
            touched = [g for g in groups if g & together]
            groups = [g for g in groups if not g & together] + [set().union(*touched)]
    return [sorted(g) for g in groups if len(g) > 1]


def _stays_apart(
    asked: AskedSet, predicate: Predicate, spans: Sequence[set[int]], place: dict[int, int]
) -> bool:
    """Tell whether a disjunction can be a product of its own (HDMM, appendix A)."""
    if any(len(s) != 1 for s in spans):
        return False
    if len(spans) == 1:
        return True
    together = set().union(*spans)
    grouped = {place[p.key] for p in asked.parts}
    others = [p for p in asked.where if p is not predicate]
    touched = {place[k] for p in others for c in p.either for k in c.keys}
    return not together & (grouped | touched) and all(len(p.either) == 1 for p in others)


# -- conditions -------------------------------------------------------------------------


def _evaluated(
    question: WorkloadQuestion,
    attributes: Sequence[Levels],
    place: dict[int, int],
    database: Database,
) -> dict[Condition, Mask]:
    """Say for each condition of which levels it is true."""
    import numpy as np

    found: dict[Condition, Mask] = {}
    for asked in question.sets:
        for predicate in asked.where:
            for condition in predicate.either:
                if condition not in found:
                    (i,) = {place[k] for k in condition.keys}
                    rows = _true_levels(condition, attributes[i], question, database)
                    found[condition] = np.array(rows, dtype=bool)
    return found


def _true_levels(
    condition: Condition, level: Levels, question: WorkloadQuestion, database: Database
) -> list[bool]:
    arrays: list[tuple[str, object]] = []
    names, columns = [], []
    for n, key in enumerate(level.keys):
        arrays.append(("text[]", [value[n] for value in level.values]))
        names.append(f"k{key}")
        type_ = question.keys[key].type_name
        columns.append(f'CAST(u.k{key} AS {type_}) AS "k{key}"')
    unnested = ", ".join(f"${n + 1}" for n in range(len(arrays)))
    rows = database.execute(
        f"SELECT coalesce({condition.sql}, false) AS holds FROM (SELECT {', '.join(columns)}, u.o"
        f" FROM unnest({unnested}) WITH ORDINALITY AS u({', '.join(names)}, o)) AS r0"
        " ORDER BY r0.o",
        arrays,
    )
    return [bool(row[0]) for row in rows]
