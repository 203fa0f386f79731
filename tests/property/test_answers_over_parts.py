"""Without noise, answers over parts on other servers are PostgreSQL's own, and so are one server's."""

from __future__ import annotations

import itertools
import random
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.property.test_answers_match_the_join import BOUNDS, VALUES, Case, Columns, agree
from tests.server.asking import silent
from tests.server.shards import READER, WRITER, Shards, sharded

pytestmark = pytest.mark.server
NUMBERS = itertools.count()


class CutCase(Case):
    """A random schema whose tables are mostly in parts on two shards."""

    def __init__(self, connection: Any, random_: random.Random, shards: Shards) -> None:
        self.shards = shards
        self.far: list[tuple[int, str]] = []
        super().__init__(connection, random_)

    def make_table(self, i: int) -> Columns:
        columns = {"id": "int"}
        for j in range(self.random.randint(1, 3)):
            columns[f"c{j}"] = self.random.choice([*VALUES, "int", "int"])
        columns["fk"] = "int"
        listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        cut_by = self.random.choice(["id", "id", "fk"])
        whole = self.random.random() < 0.25
        end = ", primary key (id))" if whole else f") partition by hash ({cut_by})"
        self.run(f"create table s.t{i} ({listed}{end}")
        local = self.random.random() < 0.2
        for p in range(0 if whole else 2):
            of = f"s.t{i}_{p} partition of s.t{i} for values with (modulus 2, remainder {p})"
            if local and p:
                self.run(f"create table {of}")
                continue
            far = f"far{next(NUMBERS)}"
            self.shards.far[p].sql(
                f"create table {far} ({listed}); grant select on {far} to {READER};"
                f" grant all on {far} to {WRITER}"
            )
            self.far.append((p, far))
            self.run(
                f"create foreign table {of} server shard{p} options (schema_name 'public', table_name '{far}')"
            )
        for row in range(self.random.choice([0, 1, 4, 7, 7, 7]) if i else 7):
            values = [str(row)]
            for name, kind in list(columns.items())[1:]:
                key = self.random.choice(["0", "1", "2", "3", "null"])
                values.append(key if name == "fk" else self.random.choice(VALUES[kind]))
            self.run(f"insert into s.t{i} values ({', '.join(values)})")
        public = self.random.random() < 0.2
        self.run(f"select dp.{'declare_public' if public else 'protect'}('s.t{i}')")
        return columns

    def drop(self) -> None:
        for place, name in self.far:
            self.shards.far[place].sql(f"drop table {name}")


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
