"""Finish: post-process released values in plain SQL over the noisy relation.

The statement reads nothing but its parameters, which are released values already;
an error in it is a function of released values (PRIVACY.md section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.engine.payload import Payload
from dpsql.errors import AnswerOutOfRange, NotAnswerable
from dpsql.model import JoinQuery, Question
from dpsql.query.ir import decimal
from dpsql.sqltree import (
    aliased,
    cast,
    column,
    cte,
    parameter,
    raw,
    render,
    sql,
    unnest,
    with_,
)
from dpsql.sqltree.nodes import exact

if TYPE_CHECKING:
    from dpsql.ports import Database
    from dpsql.statement import Statement

_DIVISION_BY_ZERO = "22012"
_BIGINT = (-(2**63), 2**63 - 1)
#: Columns that a relation of the server can have are 1,664.
MAX_COLUMNS = 1600
#: Of these, columns that are read: a few more are the statement's own.
MAX_READ = 1650


def require_few_columns(question: Question) -> None:
    """Refuse what would need more columns than the server has, before it is paid.

    Raises
    ------
    NotAnswerable
        When the answer shows or uses more than ``MAX_COLUMNS``.
    """
    used = len(question.group_keys) + len(question.statement.used)
    found = max(used, len(question.aggregates), len(question.columns))
    if found > MAX_COLUMNS:
        raise NotAnswerable(
            "the query has too many aggregates",
            detail=f"Its keys, different counts and sums, and ends of intervals are {found};"
            f" at most {MAX_COLUMNS} are computed at once.",
            hint="Ask for them in several statements, or GROUP BY what tells them apart.",
        )
    _require_few_read(question)


def _require_few_read(question: Question) -> None:
    """Refuse sums beside so many conditions that they cannot be read together."""
    most = max((len(query.attributes) for query in question.aggregates), default=0)
    if most + len(question.aggregates) <= MAX_READ:
        return
    weights: dict[object, set[object]] = {}
    for query in question.aggregates:
        shared = query.attributes, query.occurrences, query.predicates
        weights.setdefault(shared, set()).update(query.weights)
    if most + max(map(len, weights.values())) > MAX_READ:
        raise NotAnswerable(
            "the query has too many aggregates",
            detail=f"Its sums, and what joins, groups and conditions compare, are more than"
            f" {MAX_READ}.",
            hint="Ask for them in several statements, or GROUP BY what tells them apart.",
        )


def shape(question: Question) -> tuple[object, ...]:
    """Return everything that the text and the types of a question's last statement follow from."""
    queries = [question.aggregates[n] for n in question.vectors]
    return (
        question.post_sql,
        tuple(key.type_name for key in question.group_keys),
        tuple((bool(q.weights), bool(q.cells and q.rank is None)) for q in queries),
    )


def rehearse(question: Question, database: Database, confidence: Fraction) -> None:
    """Refuse a statement whose text alone is beyond limits of the server, before it is paid.

    All values are NULL: an error of another class may be theirs.

    Raises
    ------
    NotAnswerable
        When the server refuses the statement for what it is.
    """
    values: list[list[int | None]] = [
        [None] * (query.cells if query.cells and query.rank is None else 1)
        for query in question.aggregates
    ]
    keys = tuple(None for _ in question.group_keys)
    payload = Payload([keys], values, [None] * len(values), "", "", "")
    try:
        finish(question, payload, database, confidence)
    except AnswerOutOfRange:
        return
    except Exception as error:
        if not str(getattr(error, "sqlstate", "")).startswith(("42", "54")):
            raise
        raise NotAnswerable(
            "the server cannot compute this select list",
            detail=f"{error}.",
            hint="Write it with fewer columns and levels.",
        ) from None


def finish(
    question: Question,
    payload: Payload,
    database: Database,
    confidence: Fraction,
    note: Callable[[str, str, str], None] | None = None,
) -> list[tuple[object, ...]]:
    """Return the result rows ``(c1, ..., cn)``.

    Division by a noised 0 gives NULL and a notice instead of PostgreSQL's error: noise alone can
    make a divisor 0, above all in an empty group of a declared domain.
    """
    arrays: list[tuple[str, object]] = []
    shown: list[tuple[str, str]] = []
    used = question.statement.used
    means = any(name[0] in "pq" for name in used)
    for i, key in enumerate(question.group_keys):
        arrays.append(("text[]", [group[i] for group in payload.groups]))
        shown.append((f"g{i}", key.type_name))
    for j, n in enumerate(question.vectors):
        query, values = question.aggregates[n], payload.values[n]
        type_ = "numeric" if query.weights else "bigint"
        halves = _halves(payload, n, query, confidence)
        columns = _columns(j, query, values, halves, question.most[j])
        if means:
            # ends around a sum and a count that hold both as often as is asked
            surer = 1 - (1 - confidence) / 2
            halves = _halves(payload, n, query, surer)
            more = _columns(j, query, values, halves, question.most[j])
            columns |= {f"p{j}": more[f"l{j}"], f"q{j}": more[f"h{j}"]}
        columns = {name: array for name, array in columns.items() if name in used}
        if query.cells and query.rank is None:
            type_ = "bigint[]"
            columns = {name: _arrays(array, query.cells) for name, array in columns.items()}
        for name, array in columns.items():
            arrays.append(("text[]" if type_.endswith("]") else f"{type_}[]", array))
            shown.append((name, type_))
    noisy = tuple(shown)
    over_zero = question.over_zero
    try:
        try:
            return database.execute(_over(noisy, question.statement.sql), arrays)
        except Exception as error:
            if getattr(error, "sqlstate", "") != _DIVISION_BY_ZERO or over_zero is None:
                raise
        rows = database.execute(_over(noisy, over_zero.sql), arrays)
    except Exception as error:
        if not str(getattr(error, "sqlstate", "")).startswith("22"):
            raise
        # A function of released values and of the caller's own text: it may be told.
        raise AnswerOutOfRange(
            str(error),
            detail="Arithmetic on the perturbed counts failed; the counts themselves are stored.",
            hint="Change the select list; asking for the same counts again is free.",
        ) from None
    if note is not None:
        note(*_divided_by_zero(question, over_zero))
    return rows


@lru_cache(maxsize=64)
def _over(columns: tuple[tuple[str, str], ...], text: str) -> str:
    """Write a statement with the values that it reads before it: columns with their types."""
    arrays = [parameter(n) for n in range(1, len(columns) + 1)]
    values = sql(
        "SELECT :typed FROM :arrays",
        typed=[aliased(cast(column("u", name), type_), name) for name, type_ in columns],
        arrays=unnest(arrays, "u", [name for name, _ in columns]),
    )
    return render(with_([cte("noisy", values, materialized=True)], raw(text)))


def _divided_by_zero(question: Question, over_zero: Statement) -> tuple[str, str, str]:
    """Return the notice that names the columns in which a division by 0 may have given NULL."""
    shown = (question.statement.query.expressions, over_zero.query.expressions)
    trees = zip(*shown, strict=True)
    names = [
        f'"{column.name}"'
        for column, (written, over) in zip(question.columns, trees, strict=True)
        if exact(written) != exact(over)
    ]
    where = f" for column {', '.join(names)}" if names else " for HAVING or ORDER BY"
    return (
        f"a division by 0{where} gave NULL",
        "Divisors contain noise, and a group of a declared domain may be empty.",
        "Divide by NULLIF(divisor, 0) to get the same without this notice;"
        " the same counts are free.",
    )


def _columns(
    j: int,
    query: JoinQuery,
    values: list[int | None],
    halves: Sequence[int | None],
    most: int | None,
) -> dict[str, list[int | str | None]]:
    ends = list(zip(values, halves, strict=True))
    low = [None if v is None or half is None else v - half for v, half in ends]
    high = [None if v is None or half is None else v + half for v, half in ends]
    if query.weights:
        return {
            name: [None if v is None else decimal(v, query.digits) for v in column]
            for name, column in ((f"a{j}", values), (f"l{j}", low), (f"h{j}", high))
        }
    # beyond the type an answer is its nearest value: an error would come after the charge
    least, most = _BIGINT[0], _BIGINT[1] if most is None else most
    return {
        name: [None if v is None else max(least, min(v, most)) for v in column]
        for name, column in ((f"a{j}", values), (f"l{j}", low), (f"h{j}", high))
    }


def _halves(
    payload: Payload, n: int, query: JoinQuery, confidence: Fraction
) -> Sequence[int | None]:
    """Return half the width of the interval around each number; groups may have many cells."""
    scale = payload.scales[n]
    if scale is not None:
        return [_half(query, Fraction(scale), confidence)] * len(payload.values[n])
    if payload.errors is None:
        return [None] * len(payload.values[n])
    from dpsql.core.mechanisms.interval import gaussian

    return [gaussian(error, float(confidence)) for error in payload.errors]


def _half(query: JoinQuery, scale: Fraction, confidence: Fraction) -> int:
    """Return half the width of the interval around a number with noise of a public scale."""
    if scale == 0:
        return 0
    from dpsql.core.mechanisms.interval import interval

    # noise was added in the steps of the grid and rounded to whole numbers after it
    grid = query.grid if query.unit is not None else 1
    width = interval(0, scale * grid, float(confidence))[1]
    return width if grid == 1 else (2 * width + grid) // (2 * grid)


def _arrays(values: Sequence[object], cells: int) -> list[int | str | None]:
    """Write the values of each group's cells as an array."""
    return [
        "{" + ",".join("NULL" if v is None else str(v) for v in values[i : i + cells]) + "}"
        for i in range(0, len(values), cells)
    ]
