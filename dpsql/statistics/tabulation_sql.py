"""The statement that counts the rows of a workload by codes of levels, and packs them.

Of each privacy unit at most so many results count (PRIVACY.md section 5).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.model import JoinQuery, Key
from dpsql.ports import Database
from dpsql.query.contribution_sql import per_unit
from dpsql.query.elimination import make_plan
from dpsql.query.flat_sql import answering
from dpsql.query.totality import MAX_OCTETS
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    constant,
    join_all,
    number,
    render,
    select,
    sql,
    with_,
)
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
    answer: exp.Select = sql("SELECT * FROM :answer AS w", answer=writer.answer(attributes))
    if strata:
        answer, query = _stratified(answer, query, strata)
    if over_units:
        answer = bounded(answer, query, rows)
    codes = [aliased(level_code(level, query), f"c{i}") for i, level in enumerate(levels)]
    numbers: list[Tree] = []
    for word in words:
        code = sql("0::bigint")
        for i in word:
            size = number(len(levels[i].values))
            code = sql(":code * :size + :own", code=code, size=size, own=column("c", f"c{i}"))
        numbers.append(code)
    inside = [sql(":code IS NOT NULL", code=column("c", f"c{i}")) for i in range(len(levels))]
    found: exp.Select = sql(
        "SELECT 1 FROM (SELECT :codes, f.n::bigint AS n FROM :answer AS f OFFSET 0) AS c"
        " WHERE :inside",
        codes=codes,
        answer=answer,
        inside=all_of([*inside, sql("c.n > 0")]),
    )
    if grouped:
        found = _word_by_word(numbers, found)
        numbers = [column("c", "word"), column("c", "code")]
    packed = sql(
        "dp.pack(:room, :numbers, c.n)", room=cast(number(memory_limit), "bigint"), numbers=numbers
    )
    return render(with_(writer.ctes(), select([packed], found)))


def _word_by_word(numbers: Sequence[Tree], source: exp.Select) -> exp.Select:
    """Write a source of the number of a word, its codes and their counts."""
    names = [f"w{i}" for i in range(len(numbers))]
    columns = [column("", name) for name in names]
    found: exp.Select = sql(
        "SELECT 1 FROM (SELECT :which AS word, COALESCE(:columns) AS code, sum(c.n)::bigint AS n"
        " FROM :source AS c GROUP BY GROUPING SETS (:sets)) AS c",
        which=which_of(columns),
        columns=columns,
        source=select([*map(aliased, numbers, names), column("c", "n")], source),
        sets=[exp.Tuple(expressions=[one]) for one in columns],
    )
    return found


def which_of(columns: Sequence[Tree]) -> Tree:
    """Write the number of the column that a row of grouping sets is of."""
    tests = [sql("GROUPING(:one) = 0", one=one) for one in columns]
    return exp.Case(ifs=[exp.If(this=t, true=number(i)) for i, t in enumerate(tests)])


def stratum_levels(query: JoinQuery, strata: Sequence[int]) -> Levels:
    """Return the levels of what `tabulation_sql` puts beside those of a query's keys."""
    values = tuple((str(n),) for n in range(len(strata) + 1))
    return Levels((len(query.groups),), values)


def _stratified(
    answer: exp.Select, query: JoinQuery, strata: Sequence[int]
) -> tuple[exp.Select, JoinQuery]:
    """Give every result one more key: how many of some numbers its unit's results exceed.

    It is a function of the unit's own results, so that what is kept of the unit still is, and a
    unit more or less changes the counts by its own (PRIVACY.md section 5).
    """
    if query.unit is None:
        raise InternalError("rows without a unit have no strata")
    key = max((*query.groups, query.unit)) + 1
    whole = sql("sum(w.n) OVER (PARTITION BY :unit)", unit=column("w", f"a{query.unit}"))
    over = [
        sql("(:whole > :start)::integer", whole=whole, start=number(int(start))) for start in strata
    ]
    stratified: exp.Select = sql(
        "SELECT * FROM (SELECT w.*, :code FROM :answer AS w) AS w",
        code=aliased(join_all(exp.Add, over) or number(0), f"a{key}"),
        answer=answer,
    )
    return stratified, replace(query, groups=(*query.groups, key))


def level_code(level: Levels, query: JoinQuery) -> Tree:
    """Write the number of a level over ``f``, a row of groups; NULL for a value that is none."""
    first, *others = level.lookups
    code = _looked_up(first, query)
    for part in others:
        own = _looked_up(part, query)
        code = sql(":code * :classes + :own", code=code, classes=number(part.classes), own=own)
    return code


def _looked_up(part: Lookup, query: JoinQuery) -> Tree:
    known = dict(zip(map(_name, part.values), part.codes, strict=True))
    lookup = json.dumps(known, ensure_ascii=False, separators=(",", ":"))
    found: Tree = sql(
        "(:lookup -> :text)::bigint",
        lookup=cast(constant(lookup), "pg_catalog.jsonb"),
        text=texts_of(column("f", f"a{query.groups[k]}") for k in part.keys),
    )
    return found


def texts_of(columns: Iterable[Tree]) -> Tree:
    """Write values so that NULL is a text of its own, and no two lists of texts meet.

    What is too long for a level is cut short, or several together could be longer than PostgreSQL
    can hold.  Columns may have different collations; which one orders them does not matter.
    """
    return join_all(exp.DPipe, map(_text, columns)) or constant("")


def _text(value: Tree) -> Tree:
    text: Tree = sql(
        "CASE WHEN :value_ IS NULL THEN 'n' WHEN pg_catalog.octet_length(:text) > :most"
        " THEN 'l' ELSE 'v' || pg_catalog.length(:text) || ':' || :text END",
        value_=value,
        text=sql('CAST(:value_ AS text) COLLATE pg_catalog."C"', value_=value),
        most=number(MAX_OCTETS),
    )
    return text


def _name(value: Key) -> str:
    return "".join("n" if part is None else f"v{len(part)}:{part}" for part in value)


def bounded(answer: exp.Select, query: JoinQuery, rows: int) -> exp.Select:
    """Keep at most ``rows`` results of each unit: the first in an order by a hash of their keys.

    The unit's own key takes part: else all units would keep the same keys, and others be empty.
    What is kept of a unit is a function of its own results alone, so that a unit more or less
    changes the counts by its own, at most ``rows`` in all (PRIVACY.md section 5).
    """
    most = number(rows)
    unit = column("w", f"a{query.unit}")
    names = [f"a{a}" for a in dict.fromkeys(query.groups)]
    if not names:  # one number for each unit
        each = sql("sum(LEAST(w.n, :most))::bigint", most=most)
        return select([aliased(each, "n")], answer)
    keys = [column("w", name) for name in names]
    before = sql(
        "sum(w.n) OVER (PARTITION BY :unit"
        " ORDER BY pg_catalog.hashtextextended(:whole, 0), :texts"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - w.n",
        unit=unit,
        whole=texts_of([unit, *keys]),
        texts=texts_of(keys),
    )
    kept = sql("LEAST(w.n, GREATEST(0, :most - :before))::bigint", most=most, before=before)
    first: exp.Select = sql(
        "SELECT :keys, sum(k.n)::bigint AS n FROM :rows AS k WHERE k.n > 0 GROUP BY :keys",
        keys=[column("k", name) for name in names],
        rows=select([*map(aliased, keys, names), aliased(kept, "n")], answer),
    )
    return first
