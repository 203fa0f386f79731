"""Units that composite keys hand on, on random schemas: what is not read changes nothing.

A key of several columns often holds the name of the unit already, so that the parent need not be read.
Columns of a key are NULL one by one, which MATCH SIMPLE lets refer to nothing, and links without a
foreign key dangle: such rows belong to nobody and are never counted.  Every question is asked with
joins removed and without: what each unit contributes is the same.  Answers are those of PostgreSQL over
the rows that have a unit, and a unit that is deleted moves them by at most the bound.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from tests.property.test_answers_match_the_join import BOUNDS, VALUES, Columns, agree
from tests.property.test_units_match_the_join import (
    BOUND,
    MOST_CASES,
    UnitCase,
    answer,
    delete_units,
)
from tests.server.asking import refused, silent
from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server

INTEGERS = ("smallint", "int", "bigint")
#: Names of units by type; of one value in a child there may be several texts.
NAMES = {
    "int": ("0", "1", "2", "3", "4"),
    "text": ("'a'", "'b'", "'A'", "''", "'z'"),
    "numeric": ("0", "1", "2.5", "3", "4"),
}
#: A key of a table: the other side of a link, and where a row of the child has it.
Link = tuple[int, tuple[str, ...], tuple[str, ...]]


class CompositeCase(UnitCase):
    """As `UnitCase`; tables refer to each other by keys of several columns, some of which are NULL."""

    def __init__(self, owner: Any, source: random.Random) -> None:
        self.type = source.choice(["int", "int", *NAMES])
        self.names = NAMES[self.type]
        self.members: list[int] = []
        self.keys: dict[int, list[tuple[str, ...]]] = {}
        self.rows: dict[int, list[dict[str, str]]] = {}
        self.links: dict[int, list[Link]] = {}
        owner.execute("drop schema if exists p cascade; create schema p")
        super().__init__(owner, source)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def make_table(self, i: int) -> Columns:
        columns = {"id": self.type if i == 0 else "int", "c0": "int"}
        links = self.links[i] = []
        wanted = (1 + self.chance(0.15)) if i and self.chance(0.9) else 0
        for n in range(wanted):
            parent = self.random.choice(self.members)
            theirs = self.random.choice(self.keys[parent])
            mine = tuple(f"f{n}{k}" for k in range(len(theirs)))
            links.append((parent, mine, theirs))
            for name, other in zip(mine, theirs, strict=True):
                kind = self.tables[parent][other]
                columns[name] = self.random.choice(INTEGERS) if kind in INTEGERS else kind
        every = [name for _, mine, _ in links for name in mine]
        style = self.random.choice(["handed", "handed", "own", "loose"])
        handed = [n for n in every if self.chance(0.8)] if style == "handed" else []
        key = (*handed, "id")
        # which columns may be NULL: none of a key
        likely = {"handed": 0.7, "own": 0.0, "loose": 0.5}[style]
        loose = {n for n in every if n not in key and self.chance(likely)}
        self.keys[i] = [key, *([("id", "c0"), ("c0", "id")] if i == 0 else [])]
        listed = [
            f"{name} {kind}{'' if name in loose or (i and name == 'c0') else ' not null'}"
            for name, kind in columns.items()
        ]
        unique = [f"unique ({', '.join(other)})" for other in self.keys[i][1:]]
        self.run(
            f"create table s.t{i} ({', '.join([*listed, *unique])}, primary key ({', '.join(key)}))"
        )
        foreign = [self.chance(0.85) for _ in links]
        self.rows[i] = [
            self.make_row(i, n, columns, loose, foreign) for n in range(5 if i == 0 else 9)
        ]
        for row in self.rows[i]:
            self.run(f"insert into s.t{i} ({', '.join(row)}) values ({', '.join(row.values())})")
        where = ["true"]
        for (parent, mine, theirs), declared in zip(links, foreign, strict=True):
            names = ", ".join(mine), ", ".join(theirs)
            if declared:
                self.run(
                    f"alter table s.t{i} add foreign key ({names[0]}) references s.t{parent}"
                    f" ({names[1]}) on delete cascade"
                )
            if not declared or loose & set(mine):
                self.run(
                    f"select dp.link('s.t{i}', 's.t{parent}', '{{{names[0]}}}', '{{{names[1]}}}',"
                    " nulls => 'excluded')"
                )
            equal = " and ".join(f"x.{m} = y.{t}" for m, t in zip(mine, theirs, strict=True))
            where.append(f"exists (select from p.t{parent} y where {equal})")
        if i == 0:
            self.run("select dp.protect('s.t0', privacy_unit => 'id', delta => 0.001)")
        elif links:
            self.run(f"grant select on s.t{i} to dp_executor")
        else:
            self.run(f"select dp.declare_public('s.t{i}')")
        if i == 0 or links:
            self.members.append(i)
        # the rows that have a unit
        self.run(f"create view p.t{i} as select * from s.t{i} x where {' and '.join(where)}")
        return columns

    def make_row(
        self, i: int, number: int, columns: Columns, loose: set[str], foreign: list[bool]
    ) -> dict[str, str]:
        row = {"id": self.names[number] if i == 0 else str(number)}
        row["c0"] = str(self.random.randrange(3))
        for (parent, mine, theirs), declared in zip(self.links[i], foreign, strict=True):
            there = [r for r in self.rows[parent] if "null" not in (r[t] for t in theirs)]
            found = self.random.choice(there)
            for name, other in zip(mine, theirs, strict=True):
                row[name] = found[other]
                if columns[name] == "numeric" and self.chance(0.3):
                    row[name] += ".0" if "." not in row[name] else "0"
            if not declared and self.chance(0.3):  # dangles, or is another's
                name = self.random.choice(mine)
                row[name] = self.random.choice([v for v in VALUES[columns[name]] if v != "null"])
            empty = [name for name in mine if name in loose]
            if empty and self.chance(0.3):
                row[self.random.choice(empty)] = "null"
                if declared:  # the others then need not exist
                    name = self.random.choice(mine)
                    if row[name] != "null":
                        row[name] = self.random.choice(
                            [v for v in VALUES[columns[name]] if v != "null"]
                        )
        return row

    def join_condition(self, left: tuple[str, int], right: tuple[str, int]) -> str | None:
        """Join by a whole key, by part of it, or by anything."""
        for one, other in ((left, right), (right, left)):
            fit = [link for link in self.links[one[1]] if link[0] == other[1]]
            if fit and self.chance(0.6):
                _, mine, theirs = self.random.choice(fit)
                pairs = [
                    f"{one[0]}.{m} = {other[0]}.{t}" for m, t in zip(mine, theirs, strict=True)
                ]
                return " and ".join(
                    pairs[: 1 + self.random.randrange(len(pairs))] if self.chance(0.2) else pairs
                )
        return super().join_condition(left, right)


#: Keeps what was read: of how many relations, whether of several units, and what each contributes.
WATCH = in_service("""
import dpsql
from dpsql.engine import compute
dpsql.seen = []
original = compute.read
def contributed(exact):
    if hasattr(exact, "members"):
        # units of other types than integers have any numbers
        sizes = (exact.members < exact.units).sum(axis=1).tolist()
        return [exact.units, sorted(zip(exact.counts.tolist(), sizes))]
    if not hasattr(exact, "bounds"):
        return "public relations alone"
    groups = [[key, sorted(cells.items())] for key, cells in exact.groups.items()]
    return [exact.bounds, exact.units, sorted(groups, key=repr)]
def read(quote, services):
    found = original(quote, services)
    for aggregate, exact in zip(quote.aggregates, found):
        query = aggregate.query
        dpsql.seen.append((len(query.occurrences), bool(query.units), contributed(exact)))
    return found
compute.read = read
""")
TAKE = function_in_service(
    "pg_temp.seen",
    "text",
    """
import json, dpsql
found, dpsql.seen[:] = json.dumps(dpsql.seen), []
return found
""",
)
#: Parents are joined for the name of a unit, and name it.
JOINED = in_service("""
from dpsql.query import pipeline, units
pipeline.remove_unit_joins = lambda graph, stated: None
units._nearest = lambda graph, path, way: (way[-1], path.column)
""")


def seen(session: Any) -> list[tuple[int, bool, Any]]:
    """Return what was read since it was asked last."""
    (found,) = session.execute("select pg_temp.seen()::json").fetchone()
    return [tuple(each) for each in found]


def same(mine: tuple[int, bool, Any], theirs: tuple[int, bool, Any]) -> bool:
    """Compare what units contribute, where the parent is not read and where it is.

    Different values of a child's column that names the unit are units there: each counts once, or
    once in each group, where the parent's name leaves any number; none may need more.
    """
    if mine[1:] == theirs[1:] or len(mine[2]) != 3:
        return mine[1:] == theirs[1:]
    few, units, groups = mine[2]
    many, more, others = theirs[2]
    kept = more[: len(few)]
    tighter = few == many[: len(few)] and mine[1] == theirs[1]
    return tighter and units == [*kept, 0] and not any(more[len(few) :]) and groups == others


def test_what_units_contribute_is_the_same_without_parents_that_hand_them_on(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    database = server.create_database()
    removed = kept = left_out = several = grouped = results = 0
    with database.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        source = random.Random(seed)
        for number in count():
            if (
                number >= 4
                and min(removed, results) > 20
                and min(kept, left_out, several, grouped) > 3
            ):
                break
            assert number < MOST_CASES
            case = CompositeCase(owner, source)
            with (
                silent(database, "s.t0", WATCH, TAKE) as session,
                silent(database, "s.t0", WATCH, TAKE, JOINED) as joined,
                silent(database, "s.t0", BOUND.format(2**80)) as whole,
            ):
                for _ in range(25):
                    statement, key = case.question()
                    if answer(session, statement) is None:
                        assert answer(joined, statement) is None, statement
                        continue
                    mine = seen(session)
                    if answer(joined, statement) is None:
                        why = str(refused(joined, statement.format("dp_", BOUNDS)))
                        assert "mentions of protected relations" in why, (statement, why)
                        continue
                    theirs = seen(joined)
                    assert len(mine) == len(theirs), statement
                    assert all(map(same, mine, theirs)), (statement, mine, theirs)
                    fewer = [a[0] < b[0] for a, b in zip(mine, theirs, strict=True)]
                    found = answer(whole, statement)
                    assert found is not None
                    over = statement.replace("s.t", "p.t")
                    plain = whole.execute(over.format("", "")).fetchall()
                    rows = [(*group, value) for group, value in found.items()]
                    # sums of several units are in steps that are cut at a bound
                    of_several = any(each[1] for each in mine)
                    if "count" in statement or not of_several:
                        assert agree(rows, plain), (statement, found, plain)
                    removed += any(fewer)
                    kept += any(each[0] > statement.count("s.t") for each in mine)
                    several += any(fewer) and of_several
                    grouped += any(fewer) and bool(key)
                    results += any(fewer) and bool(found)
                    every = whole.execute(statement.format("", "")).fetchall()
                    left_out += any(fewer) and sorted(every, key=repr) != sorted(plain, key=repr)
    server.drop_database(database)


def test_a_unit_that_is_handed_on_moves_every_vector_by_at_most_the_bound(server: Any) -> None:
    delete_units(server, CompositeCase)
