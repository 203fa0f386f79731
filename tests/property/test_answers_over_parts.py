"""Without noise, answers over parts on other servers are PostgreSQL's own, and so are one server's."""

from __future__ import annotations

import itertools
import random
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.property.test_answers_match_the_join import BOUNDS, VALUES, Case, Columns, agree
from tests.property.test_units_match_the_join import BOUND, UnitCase, answer
from tests.server.asking import silent
from tests.server.shards import READER, WRITER, Shards, sharded

pytestmark = pytest.mark.server
NUMBERS = itertools.count()
INTEGERS = {"int", "bigint", "smallint"}


class Cut(Case):
    """Makes tables in parts."""

    shards: Shards
    far: list[tuple[int, str]]
    #: Tables in parts, each with where its rows are: on a shard by number, or here.
    cut: dict[int, list[tuple[int | None, str]]]

    def days(self, used: list[tuple[str, int]]) -> list[str]:
        """List fields of dates, which other servers are not sent to compute."""
        return [
            f"extract({field} from {alias}.{name})"
            for alias, table in used
            for name, kind in self.tables[table].items()
            for field in ("month", "day")
            if kind == "date"
        ]

    def condition(self, used: list[tuple[str, int]]) -> str:
        found = self.days(used)
        if found and self.random.random() < 0.4:
            return f"{self.random.choice(found)} {self.random.choice(['=', '<>', '>'])} 1"
        return super().condition(used)

    def join_condition(self, left: tuple[str, int], right: tuple[str, int]) -> str | None:
        one, other = self.days([left]), self.days([right])
        if one and other and self.random.random() < 0.3:
            operator = self.random.choice(["=", "<", "<>"])
            return f"{self.random.choice(one)} {operator} {self.random.choice(other)}"
        if one and self.random.random() < 0.3:
            # with the same number of the other: a row is joined by both, one of them late
            x, y = (
                self.random.choice([n for n, k in self.tables[t].items() if k in INTEGERS])
                for _, t in (left, right)
            )
            equal = f"{left[0]}.{x} = {right[0]}.{y} and {self.random.choice(one)} = {right[0]}.{y}"
            key = f"{left[0]}.id = {right[0]}.id and "
            return self.random.choice(["", key]) + equal
        return super().join_condition(left, right)

    def aggregate(self, used: list[tuple[str, int]]) -> str:
        found = self.days(used)
        if found and self.random.random() < 0.4:
            x, y = self.random.choice(found), self.random.choice([*found, "1", "2"])
            kind = self.random.choice(["sum({}{})", "count(distinct {0})"])
            return kind.format(f"{x} + {y}", "{1}") if "sum" in kind else kind.format(x)
        return super().aggregate(used)

    def in_parts(self, i: int, listed: str, cut_by: str) -> None:
        """Make a table with two parts on shards, or one of them here."""
        self.cut[i] = []
        self.run(f"create table s.t{i} ({listed}) partition by hash ({cut_by})")
        local = self.random.random() < 0.2
        for p in range(2):
            of = f"s.t{i}_{p} partition of s.t{i} for values with (modulus 2, remainder {p})"
            if local and p:
                self.run(f"create table {of}")
                self.cut[i].append((None, f"s.t{i}_{p}"))
                continue
            far = f"far{next(NUMBERS)}"
            self.shards.far[p].sql(
                f"create table {far} ({listed}); grant select on {far} to {READER};"
                f" grant all on {far} to {WRITER}"
            )
            self.far.append((p, far))
            self.cut[i].append((p, far))
            self.run(
                f"create foreign table {of} server shard{p}"
                f" options (schema_name 'public', table_name '{far}')"
            )
        self.run(f"select dp.declare_shards('s.t{i}', written => 'coordinator')")

    def drop(self) -> None:
        for place, name in self.far:
            self.shards.far[place].sql(f"drop table {name}")


class CutCase(Cut):
    """A random schema whose tables are mostly in parts on two shards."""

    def __init__(self, connection: Any, random_: random.Random, shards: Shards) -> None:
        self.shards = shards
        self.far = []
        self.cut = {}
        super().__init__(connection, random_)

    def make_table(self, i: int) -> Columns:
        columns = {"id": "int"}
        for j in range(self.random.randint(1, 3)):
            columns[f"c{j}"] = self.random.choice([*VALUES, "int", "date"])
        columns["fk"] = "int"
        listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        cut_by = self.random.choice(["id", "id", "fk"])
        if self.random.random() < 0.25:
            self.run(f"create table s.t{i} ({listed}, primary key (id))")
        else:
            self.in_parts(i, listed, cut_by)
        for row in range(self.random.choice([0, 1, 4, 7, 7, 7]) if i else 7):
            values = [str(row)]
            for name, kind in list(columns.items())[1:]:
                key = self.random.choice(["0", "1", "2", "3", "null"])
                values.append(key if name == "fk" else self.random.choice(VALUES[kind]))
            self.run(f"insert into s.t{i} values ({', '.join(values)})")
        public = self.random.random() < 0.2
        self.run(f"select dp.{'declare_public' if public else 'protect'}('s.t{i}')")
        if i in self.cut:
            self.run(f"select dp.declare_shards('s.t{i}', written => 'coordinator')")
        return columns


class CutUnits(Cut, UnitCase):
    """Units that are here, with rows in parts on two shards; no row is without a unit."""

    linked: int
    #: Of each table in parts the one that its rows belong to.
    parents: dict[int, int]

    def __init__(self, connection: Any, random_: random.Random, shards: Shards) -> None:
        self.shards = shards
        self.far = []
        self.linked = 0
        self.parents = {}
        self.cut = {}
        super().__init__(connection, random_)

    def make_table(self, i: int) -> Columns:
        if i == 0 or self.random.random() < 0.2:
            return super().make_table(i)
        columns = {"id": "int"}
        for j in range(self.random.randint(1, 2)):
            columns[f"c{j}"] = self.random.choice([*VALUES, "int", "date"])
        columns["fk"] = "int"
        listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        self.in_parts(i, listed, self.random.choice(["id", "fk"]))
        # parents on other servers, too; all have rows 0 to 2
        parent = self.random.choice([0, *(n for n in self.cut if n != i)])
        self.parents[i] = parent
        self.linked += parent > 0
        self.run(
            f"select dp.link('s.t{i}', 's.t{parent}', array['fk'], array['id'], nulls => 'excluded')"
        )
        self.run(f"select dp.let_executor_read('s.t{i}')")
        self.run(f"select dp.declare_shards('s.t{i}', written => 'coordinator')")
        for row in range(self.random.choice([3, 5, 7, 9])):
            values = [str(row)]
            for name, kind in list(columns.items())[1:]:
                key = self.random.choice(["0", "1", "2", *(["3", "4"] if parent == 0 else [])])
                values.append(key if name == "fk" else self.random.choice(VALUES[kind]))
            self.run(f"insert into s.t{i} values ({', '.join(values)})")
        return columns


def test_answers_over_parts_are_those_of_the_plain_statement(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    asked = placed = results = sums = 0
    with sharded(server, 2) as shards, shards.near.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        for number in count():
            if number >= 6 and asked > 40 and min(placed, results, sums) > 3:
                break
            # each part is met by more than one case of ten: of 300 often enough but for 1e-9
            assert number < 300, (asked, placed, results, sums)
            case = CutCase(owner, random_, shards)
            owner.execute(
                "select dp.set_root_cap(format('%I.%I', schema_name, relation_name)::regclass, null,"
                " 0.001) from dp.relations where kind = 'protected'"
            )
            with silent(shards.near, "s.t0") as session:
                for _ in range(25):
                    statement, _ = case.question()
                    plain = session.execute(statement.format("", "")).fetchall()
                    private_sql = statement.format("dp_", BOUNDS)
                    try:
                        private = session.execute(private_sql).fetchall()
                    except psycopg.Error as error:
                        assert error.sqlstate in ("PD011", "PD013"), (statement, error)  # noqa: PT017
                        continue
                    asked += 1
                    results += any(row[-1] for row in plain)
                    sums += "count" not in statement
                    assert agree(private, plain), (statement, private, plain)
                    placed += joined_in_place(session, private_sql)
            case.drop()


def joined_in_place(session: Any, statement: str) -> bool:
    """Tell whether parts are joined one by one: both sides stand in one SELECT over one part."""
    rows = session.execute(
        "select value from dp.explain(%s) where item = 'counting SQL'", (statement,)
    )
    return any(
        '_0" AS r' in text and text.count('_0" AS r') > 1 and "AS s1 WHERE" in text
        for (text,) in rows
    )


def test_answers_over_units_in_parts_are_those_of_the_plain_statement(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    asked = results = sums = parts = linked = 0
    with sharded(server, 2) as shards, shards.near.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        for number in count():
            if number >= 4 and asked > 30 and linked and min(results, sums, parts) > 5:
                break
            # each part is met by more than one case of ten: of 300 often enough but for 1e-9
            assert number < 300, (asked, results, sums, parts, linked)
            case = CutUnits(owner, source, shards)
            linked += case.linked
            with silent(shards.near, "s.t0", BOUND.format(2**80)) as session:
                for _ in range(25):
                    statement, _ = case.question()
                    found = answer(session, statement)
                    if found is None:
                        continue
                    plain = session.execute(statement.format("", "")).fetchall()
                    rows = [(*group, value) for group, value in found.items()]
                    assert agree(rows, plain), (statement, found, plain)
                    asked += 1
                    sums += "count" not in statement
                    results += bool(found)
                    parts += any(f"s.t{i} " in statement for i in case.cut)
            case.drop()
