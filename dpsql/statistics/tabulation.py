"""The rows of a workload as codes of levels: from SQL straight into arrays, marginals from those.

The server groups by all keys and numbers their levels; what comes back is one integer (or few) and
a count for each combination that occurs, which are no more than rows or cells.  Every marginal is
one pass over these arrays.  Exact and secret (PRIVACY.md section 2).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import NotAnswerable
from dpsql.model import JoinQuery, Key
from dpsql.ports import Database
from dpsql.query.contribution_sql import per_unit
from dpsql.query.elimination import make_plan
from dpsql.query.flat_sql import answering
from dpsql.query.ir import literal
from dpsql.query.totality import MAX_OCTETS
from dpsql.statistics.arrays import NotInArrays
from dpsql.statistics.counts import OUT_OF_RANGE
from dpsql.statistics.reading import MAX_COLUMNS, fetch, unpack
from dpsql.statistics.sizes import read_facts

Ints = NDArray[np.int64]

#: Bytes of codes and counts that are read at most.
MEMORY_LIMIT = 512 << 20
_WORD = 1 << 62
_EXACT_FLOAT = 1 << 53
#: Bytes of a code and a count of a marginal at most.
_A_CELL = 16


@dataclass(frozen=True, slots=True)
class Lookup:
    """Which class each value of some keys belongs to: other values are not counted.

    ``keys`` are places in the group keys of the query, ``codes[n] < classes`` the class of
    ``values[n]``.
    """

    keys: tuple[int, ...]
    values: tuple[Key, ...]
    codes: tuple[int, ...]
    classes: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one attribute of a domain: texts of the keys that make it, in order.

    Attributes
    ----------
    keys : tuple of int
        Places in the group keys of the query.
    values : tuple of Key
        One for each level; where a level is a class of several values, the first of them.
    parts : tuple of Lookup
        How values become levels: a level is a combination of a class of each part, the last one
        running fastest.  Without parts values are the levels.
    sorted : mapping of int to tuple of str
        The values of a key in the order of its type, where it is not that of ``values``.
    """

    keys: tuple[int, ...]
    values: tuple[Key, ...]
    parts: tuple[Lookup, ...] = ()
    sorted: Mapping[int, tuple[str | None, ...]] = field(default_factory=dict)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The parts, or the one that the values are."""
        number = len(self.values)
        return self.parts or (Lookup(self.keys, self.values, tuple(range(number)), number),)


class Tabulation:
    """Combinations of levels that occur, and how often.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    codes : list of array of int64
        For each attribute the level of each combination.
    counts : array of int64
        How many rows have the combination.
    """

    def __init__(self, sizes: Sequence[int], codes: list[Ints], counts: Ints) -> None:
        self.sizes = tuple(sizes)
        self._codes = codes
        self._counts = counts
        self._floats = counts.astype(np.float64)
        self._exact = int(self._floats.sum()) < _EXACT_FLOAT // 2

    def marginal(self, attributes: Sequence[int]) -> Ints:
        """Count by some attributes: one axis for each, ascending as given."""
        shape = tuple(self.sizes[i] for i in attributes)
        cells = math.prod(shape)
        if not shape:
            return np.array(int(self._counts.sum()), dtype=np.int64)
        code = np.zeros(len(self._counts), dtype=np.int64)
        for i in attributes:
            code *= self.sizes[i]
            code += self._codes[i]
        if self._exact:
            found = np.bincount(code, weights=self._floats, minlength=cells)
            return np.rint(found).astype(np.int64).reshape(shape)
        exact: Ints = np.zeros(cells, dtype=np.int64)
        np.add.at(exact, code, self._counts)
        return exact.reshape(shape)


class Marginals:
    """Marginals that are counted one by one, where their common refinement does not fit.

    Parameters
    ----------
    query, levels, rows, database, memory_limit
        As of `tabulate`.
    numeric : bool
        What is counted in, as of `tabulation_sql`.
    """

    def __init__(
        self,
        query: JoinQuery,
        levels: Sequence[Levels],
        rows: int,
        database: Database,
        memory_limit: int,
        *,
        numeric: bool,
    ) -> None:
        self._given = query, tuple(levels), rows, database, memory_limit
        self._numeric = numeric

    def marginal(self, attributes: Sequence[int]) -> Ints:
        """See `Tabulation.marginal`.

        Raises
        ------
        NotAnswerable
            When the marginal has more cells than fit the limit: a public fact.
        """
        query, levels, rows, database, memory_limit = self._given
        sizes = [len(level.values) for level in levels]
        shape = [sizes[i] for i in attributes]
        if math.prod(shape) * _A_CELL > memory_limit:
            raise NotAnswerable("a marginal of the workload does not fit the memory limit")
        sql = tabulation_sql(
            query,
            levels,
            [list(attributes)],
            rows,
            memory_limit,
            database,
            numeric=self._numeric,
            grouped=True,
        )
        packed = fetch(database, sql)
        found: Ints = np.zeros(math.prod(shape), dtype=np.int64)
        if packed is not None:
            code, counts = unpack(packed)
            found[code] = counts
        return found.reshape(shape)


def tabulate(
    query: JoinQuery,
    levels: Sequence[Levels],
    rows: int,
    database: Database,
    memory_limit: int = MEMORY_LIMIT,
) -> Tabulation | Marginals:
    """Count a block by all its keys.

    Whether all combinations are read at once depends on the data, what is counted does not.

    Parameters
    ----------
    query : JoinQuery
        Counts by the keys; with a privacy unit each unit counts with at most ``rows`` results.
    levels : sequence of Levels
        The attributes; every key is in one of them.  Combinations of other values are left out.
    rows : int
        Bound on the results of a unit.
    database : Database
        Reads, by one statement in one snapshot; if that does not fit, by one for each marginal.
    memory_limit : int
        Bytes that what is read may take.
    """
    sizes = [len(level.values) for level in levels]
    words = _words(sizes)

    # decoded they take eight bytes for each attribute, and twice eight for the count
    packed_limit = memory_limit * (len(words) + 1) // (len(words) + len(sizes) + 3)

    def read(*, numeric: bool) -> Tabulation | Marginals:
        sql = tabulation_sql(query, levels, words, rows, packed_limit, database, numeric=numeric)
        try:
            packed = fetch(database, sql)
        except NotInArrays:
            return Marginals(query, levels, rows, database, memory_limit, numeric=numeric)
        return _decoded(packed, words, sizes, database)

    try:
        return read(numeric=False)
    except Exception as error:
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
        return read(numeric=True)


def _decoded(
    packed: bytes | None, words: Sequence[Sequence[int]], sizes: Sequence[int], database: Database
) -> Tabulation:
    empty: Ints = np.zeros(0, dtype=np.int64)
    codes: list[Ints] = [empty for _ in sizes]
    if packed is None:
        return Tabulation(sizes, codes, empty)
    columns = [column.astype(np.int64) for column in unpack(packed)]
    for word, column in zip(words, columns, strict=False):
        left = column
        for i in reversed(word):
            left, codes[i] = np.divmod(left, sizes[i])
        database.tick()
    return Tabulation(sizes, codes, columns[-1])


def _words(sizes: Sequence[int]) -> list[list[int]]:
    """Put attributes together whose codes fit one integer."""
    words: list[list[int]] = []
    room = 0
    for i, size in enumerate(sizes):
        if not words or room * size >= _WORD:
            words.append([])
            room = 1
        words[-1].append(i)
        room *= size
    if len(words) >= MAX_COLUMNS:
        raise NotAnswerable("the domain of the workload has too many attributes")
    return words


def tabulation_sql(
    query: JoinQuery,
    levels: Sequence[Levels],
    words: Sequence[Sequence[int]],
    rows: int,
    memory_limit: int,
    database: Database,
    *,
    numeric: bool = False,
    grouped: bool = False,
) -> str:
    """Write the statement that packs codes and counts; with ``grouped`` equal codes as one.

    The text of a value is looked up in a constant object of JSON, which is total: it gives NULL
    for a value outside the levels.  A unit can have more results than ``bigint`` holds, of which at
    most ``rows`` count: with ``numeric`` they are counted in that, else it is error 22003.
    """
    over_units = query.unit is not None
    counted = per_unit(query) if over_units else query
    sizes = read_facts(counted, database).sizes(counted)
    plan = make_plan(counted, (), answer=True, sizes=sizes, tick=database.tick)
    writer = answering(plan, numeric=numeric)
    attributes = tuple(dict.fromkeys(counted.groups))
    answer = f"SELECT * FROM ({writer.answer(attributes)}) AS w"
    if over_units:
        answer = bounded(answer, query, rows)
    codes = []
    for i, level in enumerate(levels):
        code = ""
        for part in level.lookups:
            found_code = _looked_up(part, query)
            code = f"({code} * {part.classes} + {found_code})" if code else found_code
        codes.append(f"{code} AS c{i}")
    listed = ", ".join([*codes, "f.n::bigint AS n"])
    columns = []
    for word in words:
        text = "0::bigint"
        for i in word:
            text = f"({text} * {len(levels[i].values)} + c.c{i})"
        columns.append(text)
    inside = "".join(f"c.c{i} IS NOT NULL AND " for i in range(len(levels)))
    found = f"(SELECT {listed} FROM ({answer}) AS f OFFSET 0) AS c WHERE {inside}c.n > 0"
    if grouped:
        named = ", ".join(f"{text} AS w{i}" for i, text in enumerate(columns))
        places = ", ".join(str(i + 1) for i in range(len(columns)))
        found = f"(SELECT {named}, sum(c.n)::bigint AS n FROM {found} GROUP BY {places}) AS c"
        columns = [f"c.w{i}" for i in range(len(columns))]
    return (
        f"{writer.head()}SELECT dp.pack({memory_limit}::bigint, {', '.join([*columns, 'c.n'])})"
        f" FROM {found}"
    )


def _looked_up(part: Lookup, query: JoinQuery) -> str:
    known = dict(zip(map(_name, part.values), part.codes, strict=True))
    lookup = json.dumps(known, ensure_ascii=False, separators=(",", ":"))
    text = " || ".join(text_of(f"f.a{query.groups[k]}") for k in part.keys)
    return f"(CAST({literal(lookup)} AS pg_catalog.jsonb) -> ({text}))::bigint"


def text_of(column: str) -> str:
    """Write a value so that NULL is a text of its own, and no two lists of texts meet.

    What is too long for a level is cut short, or several together could be longer than PostgreSQL
    can hold.  Columns may have different collations; which one orders them does not matter.
    """
    text = f'CAST({column} AS text) COLLATE pg_catalog."C"'
    return (
        f"CASE WHEN {column} IS NULL THEN 'n' WHEN pg_catalog.octet_length({text}) > {MAX_OCTETS}"
        f" THEN 'l' ELSE 'v' || pg_catalog.length({text}) || ':' || {text} END"
    )


def _name(value: Key) -> str:
    return "".join("n" if part is None else f"v{len(part)}:{part}" for part in value)


def bounded(answer: str, query: JoinQuery, rows: int) -> str:
    """Keep at most ``rows`` results of each unit: the first in an order by a hash of their keys.

    The unit's own key takes part: else all units would keep the same keys, and others be empty.
    What is kept of a unit is a function of its own results alone, so that a unit more or less
    changes the counts by its own, at most ``rows`` in all (PRIVACY.md section 5).
    """
    unit = f"w.a{query.unit}"
    keys = [f"w.a{a}" for a in dict.fromkeys(query.groups)]
    source = answer.removeprefix("SELECT * ")
    if not keys:  # one number for each unit
        return f"SELECT sum(LEAST(w.n, {rows}))::bigint AS n {source}"
    texts = " || ".join(text_of(key) for key in keys)
    order = f"ORDER BY pg_catalog.hashtextextended({text_of(unit)} || {texts}, 0), {texts}"
    before = f"sum(w.n) OVER (PARTITION BY {unit} {order} ROWS UNBOUNDED PRECEDING) - w.n"
    kept = f"LEAST(w.n, GREATEST(0, {rows} - ({before})))::bigint"
    columns = ", ".join(f"{key} AS {key[2:]}" for key in keys)
    inner = f"SELECT {columns}, {kept} AS n {source}"
    again = ", ".join(f"k.{key[2:]}" for key in keys)
    return (
        f"SELECT {again}, sum(k.n)::bigint AS n FROM ({inner}) AS k WHERE k.n > 0 GROUP BY {again}"
    )
