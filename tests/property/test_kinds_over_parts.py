"""Units of two kinds, and units that composite keys hand on, with rows in parts on other servers.

As `tests.property.test_several_units_match_the_join`, over the tables of
`tests.property.test_answers_over_parts`: without a cut answers are PostgreSQL's own, and a unit of
either kind that is deleted moves what is published by at most the bound: its rows on the shards are
nobody's then.  And as `tests.property.test_units_of_composite_keys`, with tables in parts and links
in the place of foreign keys, which these cannot have.
"""

from __future__ import annotations

import random
import re
from itertools import count
from typing import Any

import pytest

from tests.property.test_answers_match_the_join import Columns, agree
from tests.property.test_answers_over_parts import Cut, CutUnits
from tests.property.test_several_units_match_the_join import TAKE, WATCH, asked_whole, cuts, moves
from tests.property.test_units_match_the_join import BOUND, UnitCase, answer
from tests.property.test_units_of_composite_keys import CompositeCase
from tests.server.asking import silent
from tests.server.shards import Shards, sharded

pytestmark = pytest.mark.server


class CutKinds(CutUnits):
    """Rows of ``t0``, which are here, are units of one kind, those of another table here of a second one."""

    def __init__(self, connection: Any, random_: random.Random, shards: Shards) -> None:
        self.other: int | None = None
        super().__init__(connection, random_, shards)

    def make_table(self, i: int) -> Columns:
        if i == 0 or self.other is not None or self.random.random() < 0.5:
            return super().make_table(i)
        self.other = i
        columns = UnitCase.make_table(self, i)
        self.run(f"select dp.undeclare_public('s.t{i}')")
        self.run(f"select dp.protect('s.t{i}', privacy_unit => 'id', delta => 0.001)")
        return columns

    def is_member(self, i: int) -> bool:
        return i != self.other and super().is_member(i)

    def units(self) -> list[tuple[str, int]]:
        """List the units of both kinds: table and key."""
        tables = ["t0"] + ([] if self.other is None else [f"t{self.other}"])
        return [
            (table, key)
            for table in tables
            for (key,) in self.run(f"select id from s.{table}").fetchall()
        ]


def test_units_of_two_kinds_over_parts(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    asked = moved = parts = kinds = 0
    with sharded(server, 2) as shards, shards.near.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        for number in count():
            if number >= 4 and min(asked, moved) > 10 and min(parts, kinds) > 3:
                break
            # each is met in more than one case of ten: of 300 often enough but for 1e-9
            assert number < 300, (asked, moved, parts, kinds)
            case = CutKinds(owner, source, shards)
            with silent(shards.near, "s.t0", WATCH, TAKE) as session:
                for _ in range(25):
                    statement, _ = case.question()
                    second = case.other is not None and f"s.t{case.other} " in statement
                    # others are asked in `test_several_units_match_the_join`
                    if not any(f"s.t{i} " in statement for i in case.cut):
                        continue
                    if case.other is not None and not second and source.random() < 0.7:
                        continue
                    outcome = asked_whole(session, statement)
                    if outcome is None:
                        continue
                    full, uncut = outcome
                    asked += uncut
                    kinds += uncut and second
                    if not full:
                        continue  # nothing that a unit could take away
                    tau = source.choice([1, 2, 4, 9, 10**8])
                    session.execute(BOUND.format(tau))
                    answer(session, statement)
                    whole = cuts(session)
                    assert whole
                    units = case.units()
                    for table, _, distance in moves(session, statement, tau, whole, units):
                        moved += distance != 0
                        parts += distance != 0 and table != "t0"
            case.drop()


class CutComposite(Cut, CompositeCase):
    """Some tables are in parts on two shards: without keys, found by links."""

    def __init__(self, connection: Any, random_: random.Random, shards: Shards) -> None:
        self.shards = shards
        self.far = []
        self.cut = {}
        self.linked: set[str] = set()
        super().__init__(connection, random_)

    def run(self, sql: str) -> Any:
        made = re.fullmatch(
            r"create table s\.t(\d+) \((.*?)((?:, unique \(.*)?, primary key \(.*)\)", sql
        )
        if made and made[1] != "0" and self.random.random() < 0.6:
            return self.in_parts(int(made[1]), made[2], "id")
        key = re.fullmatch(
            r"alter table s\.t(\d+) add foreign key \((.*)\) references s\.t(\d+) \((.*)\) on delete cascade",
            sql,
        )
        if key and not self.cut.keys().isdisjoint({int(key[1]), int(key[3])}):
            sql = (
                f"select dp.link('s.t{key[1]}', 's.t{key[3]}', '{{{key[2]}}}', '{{{key[4]}}}',"
                " nulls => 'excluded')"
            )
        if "dp.link(" in sql:
            if sql in self.linked:
                return None
            self.linked.add(sql)
        found = super().run(sql)
        reads = re.fullmatch(
            r"(?:grant select on s\.t|select dp\.declare_public\('s\.t)(\d+).*", sql
        )
        if reads and int(reads[1]) in self.cut:
            super().run(f"select dp.let_executor_read('s.t{reads[1]}')")
            super().run(f"select dp.declare_shards('s.t{reads[1]}', written => 'coordinator')")
        return found


def test_units_of_composite_keys_over_parts(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    asked = results = left_out = 0
    with sharded(server, 2) as shards, shards.near.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        for number in count():
            if number >= 4 and asked > 30 and min(results, left_out) > 5:
                break
            # each is met in more than one case of ten: of 300 often enough but for 1e-9
            assert number < 300, (asked, results, left_out)
            case = CutComposite(owner, source, shards)
            with silent(shards.near, "s.t0", BOUND.format(2**80)) as session:
                for _ in range(25):
                    statement, _ = case.question()
                    if not any(f"s.t{i} " in statement for i in case.cut):
                        continue
                    found = answer(session, statement)
                    if found is None:
                        continue
                    plain = session.execute(
                        statement.replace("s.t", "p.t").format("", "")
                    ).fetchall()
                    rows = [(*group, value) for group, value in found.items()]
                    assert agree(rows, plain), (statement, rows, plain)
                    every = session.execute(statement.format("", "")).fetchall()
                    asked += 1
                    results += bool(found)
                    left_out += sorted(every, key=repr) != sorted(plain, key=repr)
            case.drop()
