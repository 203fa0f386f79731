"""Other values than declared ones count as one, as SQL counts them by a CASE.

Random domains with a value for all others over random rows: questions by the column, under random
conditions, and releases, in unions too.  Without noise both are what the same statement says with
CASE in place of the column, and questions that a release answers are what plain SQL says.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.in_service import everywhere, in_service
from tests.server.releasing import release

pytestmark = pytest.mark.server

SET_UP = """
create table big (id int primary key, t text, c char(3), n numeric, i int, d date not null,
  b boolean not null);
select dp.protect('big');
select dp.grant_budget('postgres', 1e7, 1), dp.set_root_cap('big', 1e7, 1);
"""
#: Values of the rows, of which some are declared, and values for all others.
VALUES = {
    "t": (["a", "b", "B", "o'k", "", "other"], ["other", "rest of it", "zz"]),
    "c": (["x", "y", "zz", "abc"], ["oth", "q"]),
    "n": (["1.0", "1.00", "2.5", "7", "-3"], ["-1", "100"]),
    "i": (["0", "1", "2", "3", "9"], ["-1", "77"]),
    "d": (["2024-01-01", "2024-01-02", "2024-03-01"], ["0001-01-01", "2025-01-01"]),
}
TYPES = {"t": "text", "c": "char(3)", "n": "numeric", "i": "int", "d": "date", "b": "boolean"}
ROUNDS, STATEMENTS = 10, 6


@pytest.fixture(scope="module")
def big(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


class Declared:
    """A random domain of a column, and SQL for what it makes of the column's values."""

    def __init__(self, column: str, random_: random.Random) -> None:
        found, others = VALUES[column]
        different = {float(v) if column == "n" else v: v for v in found}
        self.column = column
        self.other = random_.choice(others)
        few = [v for v in different.values() if v != self.other]
        self.members = random_.sample(few, random_.randint(1, min(3, len(few))))
        self.null = random_.random() < 0.5
        self.type = TYPES[column]

    def statement(self) -> str:
        members = ", ".join(map(_quoted, self.members))
        return (
            f"select dp.set_domain('big', '{self.column}', array[{members}]::text[],"
            f" includes_null => {self.null}, other => {_quoted(self.other)}::text)"
        )

    def mapped(self) -> str:
        members = ", ".join(f"{_quoted(v)}::{self.type}" for v in self.members)
        case = f"case when {self.column} in ({members}) then {self.column} when {self.column} is"
        case += f" null then null else {_quoted(self.other)}::{self.type} end"
        return f"trim_scale({case})" if self.column == "n" else case

    def kept(self) -> str:
        """Write which rows are counted where the column is read."""
        return "true" if self.null else f"{self.column} is not null"

    def told(self, random_: random.Random) -> str:
        """Write a condition that is the same for all other values."""
        own = _quoted(random_.choice(self.members))
        some = ", ".join(_quoted(v) for v in self.members)
        return random_.choice(
            [
                f"{self.column} = {own}",
                f"{self.column} <> {own}",
                f"{self.column} in ({some})",
                f"{self.column} not in ({some})",
                f"{self.column} is null",
                f"{self.column} is not null",
                f"not ({self.column} = {own} or b)",
                f"({self.column} = {own} or {self.column} is null)",
                f"{self.column} is distinct from {own}",
            ]
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def fill(session: Any, random_: random.Random) -> None:
    rows = []
    for i in range(random_.randint(0, 120)):
        row = [str(i)]
        for column, (found, others) in VALUES.items():
            value = random_.choice([*found, *others[:1], None])
            row.append("null" if value is None and column != "d" else _quoted(value or found[0]))
        rows.append(f"({', '.join(row)}, {random_.random() < 0.5})")
    session.execute("truncate big")
    if rows:
        session.execute(f"insert into big values {', '.join(rows)}")


def question(keys: list[Declared], where: str, session: Any) -> str | None:
    """Ask by columns; return what is wrong."""
    listed = ", ".join(k.column for k in keys)
    text = f"select {listed}, dp_count(*) as v from big where {where} group by {listed}"
    found = session.execute(f"select to_jsonb(x) from ({text}) as x").fetchall()
    return _wrong(session, [row[0] for row in found], keys, where, text)


def _wrong(
    session: Any, found: list[dict[str, Any]], keys: list[Declared], where: str, text: str
) -> str | None:
    mapped = ", ".join(f"({k.mapped()}) as {k.column}" for k in keys)
    kept = " and ".join(k.kept() for k in keys)
    by = ", ".join(str(n + 1) for n in range(len(keys)))
    exact = session.execute(
        f"select to_jsonb(x) from (select {mapped}, count(*) as v from big"
        f" where ({where}) and {kept} group by {by}) as x"
    ).fetchall()
    names = [k.column for k in keys]

    def counted(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], float]:
        return {tuple(_shown(row[n]) for n in names): float(row["v"]) for row in rows if row["v"]}

    there, here = counted([row[0] for row in exact]), counted(found)
    return None if there == here else f"{here} are {there} of {text}"


def _shown(value: Any) -> Any:
    return value.rstrip() if isinstance(value, str) else value


def released(
    keys: list[Declared], wheres: list[str], rest: list[Declared], session: Any
) -> str | None:
    """Release a union; return what is wrong.  Conditions look at ``rest``, too."""
    listed = ", ".join(k.column for k in keys)
    text = " union all ".join(
        f"select {listed}, dp_count(*) from big where {w} group by {listed}" for w in wheres
    )
    found = release(session, "r", text, mechanism="identity", epsilon=1, delta=1e-9)
    read = [k for k in (*keys, *rest) if len(wheres) > 1 or k in keys]
    kept = " and ".join(k.kept() for k in read if k in keys or _reads(k, wheres))
    for number, where in enumerate(wheres, 1):
        own = [{**r, "v": round(r["value"], 6)} for r in found if r.get("query", 1) == number]
        wrong = _wrong(session, own, keys, f"({where}) and {kept}", text)
        if wrong:
            return wrong
    return None


def _reads(column: Declared, wheres: list[str]) -> bool:
    """Whether the union reads a column in a condition that not all queries have."""
    return len(set(wheres)) > 1 and any(
        re.search(rf"\b{column.column}\b", where) for where in wheres
    )


REFUSED = (
    "never true",
    "is empty",
    "no level of the domain",
    "too many combinations",
    "no mechanism can answer",
)


def test_other_values_are_counted_as_sql_does(big: Any) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    used: Counter[str] = Counter()
    with asking.silent(big, "big") as session:
        for _ in range(ROUNDS):
            fill(session, random_)
            declared = [Declared(column, random_) for column in VALUES]
            for one in declared:
                session.execute(one.statement())
            for _ in range(STATEMENTS):
                keys = random_.sample(declared, random_.choice([1, 1, 2]))
                rest = [d for d in declared if d not in keys]
                where = random_.choice(["true", *(d.told(random_) for d in declared)])
                wrong = question(keys, where, session)
                assert wrong is None, f"seed {seed}: {wrong}"
                used["questions"] += 1
                looked = [*keys, random_.choice(rest)]
                wheres = [
                    random_.choice(["true", *(d.told(random_) for d in looked)])
                    for _ in range(random_.choice([1, 2, 2]))
                ]
                try:
                    wrong = released(keys, wheres, looked[len(keys) :], session)
                    assert wrong is None, f"seed {seed}: {wrong}"
                    used["releases"] += 1
                    session.execute("set dp.fresh = off")
                    # answered from the release, or asked: the same
                    wrong = question(keys, wheres[0], session)
                    assert wrong is None, f"seed {seed}: {wrong}"
                except psycopg.Error as error:
                    told = str(error.diag.message_primary)
                    assert any(reason in told for reason in REFUSED), f"seed {seed}: {told}"
                    used["refused"] += 1
                finally:
                    session.execute("set dp.fresh = on")
                    session.execute("select dp.drop_release(name) from dp.releases")
    print(used)  # noqa: T201
    assert used["questions"] == ROUNDS * STATEMENTS


#: A declared value counts as one of the others.
LOST = in_service("""
import dpsql.query.domains as domains
import dpsql.query.others as others
import dpsql.query.pipeline as pipeline
from dpsql.query.ir import Expr
whole = others.mapped
def lost(key, relations):
    found = whole(key, relations)
    if found == key:
        return found
    inside, *arms = found.args
    inside = Expr(inside.kind, inside.type, inside.args[:-1], inside.data)
    return Expr(found.kind, found.type, (inside, *arms))
domains.mapped = pipeline.mapped = lost
""")
#: A condition is evaluated on the value for all others, whatever it says of these.
UNTOLD = everywhere("""
import dpsql.query.over_keys
dpsql.query.over_keys.is_told = lambda e, others: e.kind == "op"
""")
ROWS = """truncate big; insert into big select i, (array['a', 'b', 'Z'])[1 + i % 3], null, null, null,
  '2024-01-01', true from generate_series(1, 9) i;
  select dp.set_domain('big', 't', array['a', 'b'], includes_null => true, other => 'rest')"""


def fixed() -> Declared:
    """Return the domain that `ROWS` declares."""
    found = Declared("t", random.Random(1))
    found.members, found.null, found.other = ["a", "b"], True, "rest"
    return found


def test_the_check_finds_a_declared_value_counted_as_other(big: Any) -> None:
    for patches in ((), (LOST,)):
        with asking.silent(big, "big", *patches) as session:
            session.execute(ROWS)
            assert (question([fixed()], "true", session) is None) == (not patches)


def test_the_check_finds_conditions_evaluated_on_the_value_for_others(big: Any) -> None:
    wheres = ["true", "t = 'Z'"]
    with asking.silent(big, "big", UNTOLD) as session:
        session.execute(ROWS)
        session.execute("begin")
        assert released([fixed()], wheres, [], session) is not None
        session.execute("rollback")
    refused = pytest.raises(psycopg.Error, match="tells values apart that count as one")
    with asking.silent(big, "big") as session, refused:
        released([fixed()], wheres, [], session)
