"""The statement that counts the rows of a workload by codes of levels, and packs them.

Of each privacy unit at most so many results count (PRIVACY.md section 5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.errors import InternalError
from dpsql.model import JoinQuery, Key
from dpsql.ports import Database
from dpsql.query.contribution_sql import per_unit
from dpsql.query.elimination import make_plan
from dpsql.query.flat_sql import answering
from dpsql.query.ir import literal
from dpsql.query.totality import MAX_OCTETS
from dpsql.statistics.sizes import read_facts


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
    strata: Sequence[int] = (),
) -> str:
    """Write the statement that packs codes and counts.

    With ``grouped`` each word is counted by itself: packed are its number, codes and counts.

    The text of a value is looked up in a constant object of JSON, which is total: it gives NULL
    for a value outside the levels.  A unit can have more results than ``bigint`` holds, of which at
    most ``rows`` count: with ``numeric`` they are counted in that, else it is error 22003.

    With ``strata`` there is one more attribute, the last one of ``levels``: how many of these
    numbers the unit has more results than.
    """
    over_units = query.unit is not None
    counted = per_unit(query) if over_units else query
    sizes = read_facts(counted, database).sizes(counted)
    plan = make_plan(counted, (), answer=True, sizes=sizes, tick=database.tick)
    writer = answering(plan, numeric=numeric)
    attributes = tuple(dict.fromkeys(counted.groups))
    answer = f"SELECT * FROM ({writer.answer(attributes)}) AS w"
    if strata:
        answer, query = _stratified(answer, query, strata)
    if over_units:
        answer = bounded(answer, query, rows)
    codes = []
    for i, level in enumerate(levels):
        codes.append(f"{level_code(level, query)} AS c{i}")
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
        sets = ", ".join(f"(w{i})" for i in range(len(columns)))
        which = " ".join(f"WHEN GROUPING(w{i}) = 0 THEN {i}" for i in range(len(columns)))
        code = ", ".join(f"w{i}" for i in range(len(columns)))
        found = f"(SELECT {named}, c.n FROM {found}) AS c"
        found = (
            f"(SELECT CASE {which} END AS word, COALESCE({code}) AS code, sum(c.n)::bigint AS n"
            f" FROM {found} GROUP BY GROUPING SETS ({sets})) AS c"
        )
        columns = ["c.word", "c.code"]
    return (
        f"{writer.head()}SELECT dp.pack({memory_limit}::bigint, {', '.join([*columns, 'c.n'])})"
        f" FROM {found}"
    )


def stratum_levels(query: JoinQuery, strata: Sequence[int]) -> Levels:
    """Return the levels of what `tabulation_sql` puts beside those of a query's keys."""
    values = tuple((str(n),) for n in range(len(strata) + 1))
    return Levels((len(query.groups),), values)


def _stratified(answer: str, query: JoinQuery, strata: Sequence[int]) -> tuple[str, JoinQuery]:
    """Give every result one more key: how many of some numbers its unit's results exceed.

    It is a function of the unit's own results, so that what is kept of the unit still is, and a
    unit more or less changes the counts by its own (PRIVACY.md section 5).
    """
    if query.unit is None:
        raise InternalError("rows without a unit have no strata")
    key = max((*query.groups, query.unit)) + 1
    whole = f"sum(w.n) OVER (PARTITION BY w.a{query.unit})"
    code = " + ".join(f"(({whole}) > {int(start)})::integer" for start in strata)
    answer = f"SELECT * FROM (SELECT w.*, {code} AS a{key} FROM ({answer}) AS w) AS w"
    return answer, replace(query, groups=(*query.groups, key))


def level_code(level: Levels, query: JoinQuery) -> str:
    """Write the number of a level over ``f``, a row of groups; NULL for a value that is none."""
    code = ""
    for part in level.lookups:
        found = _looked_up(part, query)
        code = f"({code} * {part.classes} + {found})" if code else found
    return code


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
