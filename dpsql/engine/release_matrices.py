"""One grouping set of a release as a product of matrices, and what their rows stand for.

Public levels in, matrices of 0 and 1 out (PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.query.asked import AskedSet, Condition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.statistics.tabulation_sql import Levels
    from dpsql.workload.matrix import QueryMatrix

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Axis:
    """What the rows of one set's matrix on one attribute stand for.

    ``labels`` are the texts of each part of the set that asks this attribute: one list of texts, or
    two (from and to) for ranges.
    """

    attribute: int
    rows: int
    labels: dict[int, tuple[list[str | None], ...]]


def written(
    asked: AskedSet,
    attributes: Sequence[Levels],
    place: dict[int, int],
    truth: dict[Condition, Mask],
) -> tuple[list[QueryMatrix], list[Axis], tuple[int, ...]]:
    """Write one grouping set as a product: a matrix per attribute, and what its rows mean."""
    import numpy as np

    from dpsql.workload.matrix import Dense

    kept: dict[int, Any] = {}
    either: tuple[int, ...] = ()
    for predicate in asked.where:
        spans = [{place[k] for k in c.keys} for c in predicate.either]
        if len(set().union(*spans)) > 1:
            arms: dict[int, Any] = {}
            for (i,), condition in zip(spans, predicate.either, strict=True):
                arms[i] = arms[i] | truth[condition] if i in arms else truth[condition]
            either = tuple(arms)
            kept |= arms
            continue
        (i,) = set().union(*spans)
        holds = np.logical_or.reduce([truth[c] for c in predicate.either])
        kept[i] = holds if i not in kept else kept[i] & holds
    factors: list[QueryMatrix] = []
    axes = []
    for i, level in enumerate(attributes):
        parts = [n for n, p in enumerate(asked.parts) if place[p.key] == i]
        matrix, labels = _factor(asked, level, parts)
        if i in kept and not kept[i].all():
            matrix = Dense(matrix.dense() * kept[i])
        factors.append(matrix)
        axes.append(Axis(i, matrix.shape[0], labels))
    return factors, axes, either


def _factor(
    asked: AskedSet, level: Levels, parts: Sequence[int]
) -> tuple[QueryMatrix, dict[int, tuple[list[str | None], ...]]]:
    """Write what a set asks of one attribute."""
    import numpy as np

    from dpsql.workload.matrix import Dense, Identity, Total, refuse_entries

    n = len(level.values)
    if not parts:
        return Total(n), {}
    whole = len(parts) == len(level.keys)
    if whole and all(asked.parts[p].form.kind == "levels" for p in parts):
        columns = {p: level.keys.index(asked.parts[p].key) for p in parts}
        return Identity(n), {p: ([v[c] for v in level.values],) for p, c in columns.items()}
    if len(parts) == 1 and (closed := _closed_form(asked, level, parts[0])) is not None:
        return closed
    rows: list[Any] = []
    meanings: list[list[tuple[str | None, ...]]] = []
    for p in parts:
        found, meaning = _rows(asked, level, p)
        rows.append(found)
        meanings.append(meaning)
    refuse_entries(math.prod(len(m) for m in meanings), n)
    chosen = list(product(*(range(len(m)) for m in meanings)))
    matrix = np.array(
        [np.prod([rows[k][r] for k, r in enumerate(c)], axis=0) for c in chosen], dtype=np.float64
    )
    occurring = [bool(row.any()) for row in matrix]
    matrix = matrix[occurring]
    chosen = [c for c, seen in zip(chosen, occurring, strict=True) if seen]
    labels = {p: _transposed([meanings[k][c[k]] for c in chosen]) for k, p in enumerate(parts)}
    if matrix.shape == (n, n) and (matrix == np.eye(n)).all():
        return Identity(n), labels
    return Dense(matrix), labels


def _transposed(rows: list[tuple[str | None, ...]]) -> tuple[list[str | None], ...]:
    return tuple(list(column) for column in zip(*rows, strict=True))


def _rows(asked: AskedSet, level: Levels, p: int) -> tuple[Any, list[tuple[str | None, ...]]]:
    """Write the rows of one part over the levels of its attribute: 0 or 1, and what each means.

    Levels are in the order of their type, so that ranges are of neighbours; NULL is in none.
    """
    import numpy as np

    from dpsql.workload.matrix import refuse_entries

    part = asked.parts[p]
    column = level.keys.index(part.key)
    own = [value[column] for value in level.values]
    values = list(level.sorted.get(part.key) or dict.fromkeys(own))
    code = {value: i for i, value in enumerate(values)}
    place = np.array([code[v] for v in own])
    if part.form.kind == "levels":
        refuse_entries(len(values), len(own))
        return (place == np.arange(len(values))[:, None]).astype(np.float64), [(v,) for v in values]
    known = [v for v in values if v is not None]
    if not known:
        raise NotAnswerable(
            f"dp.{part.form.kind} needs a key with a level other than NULL",
        )
    order = np.array([len(values) if v is None else code[v] for v in own])
    if part.form.kind == "prefix":
        refuse_entries(len(known), len(own))
        return (order <= np.arange(len(known))[:, None]).astype(np.float64), [(v,) for v in known]
    starts, stops = _ranges(part.form.kind, part.form.width, len(known))
    refuse_entries(len(starts), len(own))
    matrix = (order >= starts[:, None]) & (order < stops[:, None])
    meaning: list[tuple[str | None, ...]] = [
        (known[a], known[b - 1]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return matrix.astype(np.float64), meaning


def _ranges(kind: str, width: int, n: int) -> tuple[Any, Any]:
    import numpy as np

    if kind == "all_ranges":
        if n > 4096:
            raise NotAnswerable(
                "dp.all_ranges needs a key of at most 4096 levels",
                detail=f"It has {n}, and as many ranges as pairs of levels.",
                hint="Use dp.prefix, whose differences are ranges, or a coarser key.",
            )
        start, last = np.triu_indices(n)
        return start, last + 1
    if width > n:
        raise InvalidParameter(
            f"dp.ranges asks for {width} levels at a time, of {n}",
            detail="Levels are those that conditions of all queries leave, without NULL.",
            hint="Use a smaller width.",
        )
    start = np.arange(n - width + 1)
    return start, start + width


def _closed_form(
    asked: AskedSet, level: Levels, p: int
) -> tuple[QueryMatrix, dict[int, tuple[list[str | None], ...]]] | None:
    """Name a matrix whose Gram matrix is known in closed form; NULL is in none."""
    from dpsql.workload.matrix import AllRange, Prefix, Width

    form = asked.parts[p].form
    if len(level.keys) > 1 or form.kind == "levels" or level.values[-1][0] is None:
        return None
    values = [value[0] for value in level.values]
    n = len(values)
    if form.kind == "prefix":
        return Prefix(n), {p: (values,)}
    starts, stops = _ranges(form.kind, form.width, n)
    labels = [values[i] for i in starts.tolist()], [values[i - 1] for i in stops.tolist()]
    return (AllRange(n) if form.kind == "all_ranges" else Width(n, form.width)), {p: labels}
