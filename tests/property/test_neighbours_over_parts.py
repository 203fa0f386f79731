"""What one row or unit moves over parts on other servers, against what noise is made for.

The questions, checks and bounds of `tests.property.test_rows_move_sums_by_the_bound`,
`tests.property.test_units_match_the_join` and `tests.property.test_units_move_cells`; tables are mostly in parts on two shards, and some rows
lie in a part that their values do not belong to, of which nobody keeps foreign tables.  Rows are
taken away where they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.property import test_rows_move_sums_by_the_bound as rows
from tests.property import test_units_match_the_join as units
from tests.property import test_units_move_cells as cells
from tests.property.test_answers_over_parts import Cut, CutCase, CutUnits
from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.shards import Shards, sharded
from tests.server.test_audit_sums import NOT_CUT

pytestmark = pytest.mark.server

#: Of the largest counts of parts only the first one's is looked at.
ONE_PART_ALONE = in_service("""
from sqlglot import exp
from dpsql.query import counting_sql
right = counting_sql.largest_sql
def first(*given):
    found = right(*given)
    while isinstance(found, exp.Union):
        found = found.this
    return found
counting_sql.largest_sql = first
""")
#: What a unit has in two parts is cut off in each by itself.
TWICE_THE_BOUND = in_service("""
from dpsql.core.mechanisms import truncation
right = truncation.Contributions.truncated
def truncated(self, j, groups):
    return [2 * value for value in right(self, j, groups)]
truncation.Contributions.truncated = truncated
""")
#: Rows that are taken away for a question.
SAMPLED = 6


class Places:
    """Sessions on the servers of a case's parts."""

    def __init__(self, shards: Shards, owner: Any) -> None:
        self.sessions = {None: owner, **dict(enumerate(far.connect() for far in shards.far))}

    def close(self) -> None:
        for place, session in self.sessions.items():
            if place is not None:
                session.close()

    def scatter(self, case: Cut, source: random.Random) -> int:
        """Move some rows between parts on shards; return how many."""
        moved = 0
        for parts in case.cut.values():
            if any(place is None for place, _ in parts):
                continue
            (one, here), (other, there) = parts
            for (row,) in self.sessions[one].execute(f"select id from {here}").fetchall():
                if source.random() < 0.2:
                    (found,) = self._take(self.sessions[one], here, f"id = {row}")
                    self._put(self.sessions[other], there, [found])
                    moved += 1
        return moved

    @contextmanager
    def without(self, taken: list[tuple[Any, str, str]]) -> Iterator[None]:
        """Take rows away: (session, table, condition)."""
        kept = [(session, name, self._take(session, name, where)) for session, name, where in taken]
        try:
            yield
        finally:
            for session, name, found in kept:
                self._put(session, name, found)

    @contextmanager
    def without_unit(self, case: CutUnits, session: Any, unit: object) -> Iterator[None]:
        """Take a unit's rows away: those in parts where they are, others with the unit."""
        with self.without(self.of_unit(case, unit)), cells.deleted(session, unit):
            yield

    def of_unit(self, case: CutUnits, unit: object) -> list[tuple[Any, str, str]]:
        """Return where a unit's rows in parts are: its own, and those that belong to such a row."""
        found = []
        keys = {0: [str(unit)]}
        for i, parts in case.cut.items():
            belongs = (
                f"fk in ({', '.join(keys[case.parents[i]])})" if keys[case.parents[i]] else "false"
            )
            keys[i] = []
            for place, name in parts:
                there = self.sessions[place]
                rows = there.execute(f"select id from {name} where {belongs}").fetchall()
                keys[i] += [str(row) for (row,) in rows]
                found.append((there, name, belongs))
        return found

    @staticmethod
    def _take(session: Any, name: str, where: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = session.execute(
            f"delete from {name} where {where} returning *"
        ).fetchall()
        return found

    @staticmethod
    def _put(session: Any, name: str, found: list[tuple[Any, ...]]) -> None:
        for row in found:
            session.execute(f"insert into {name} values ({', '.join(['%s'] * len(row))})", row)


@contextmanager
def placed(server: Any) -> Iterator[tuple[Shards, Any, Places]]:
    with sharded(server, 2) as shards, shards.near.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e7, 0.001)")
        places = Places(shards, owner)
        try:
            yield shards, owner, places
        finally:
            places.close()


class CutRows(CutCase, rows.RowCase):
    """Asks for what is counted in cells as well."""


def row_violations(server: Any) -> Iterator[str]:
    """Ask random questions with and without some rows, until everything was met."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    moved = tight = sums = astray = joined = 0
    with placed(server) as (shards, owner, places):
        for number in count():
            if number >= 3 and min(moved / 20, tight / 2, sums / 4, astray / 3, joined / 5) > 1:
                return
            assert number < rows.MOST_CASES, (moved, tight, sums, astray, joined)
            case = CutRows(owner, source, shards)
            scattered = places.scatter(case, source)
            owner.execute(
                "select dp.set_root_cap(format('%I.%I', schema_name, relation_name)::regclass, null,"
                " 0.001) from dp.relations where kind = 'protected'"
            )
            kinds = dict(owner.execute("select relation_name, kind from dp.relations").fetchall())
            with silent(shards.near, "s.t0", rows.WATCH, rows.TAKE) as session:
                for _ in range(5):
                    statement = case.question()[0].format("dp_", rows.BOUNDS)
                    whole = rows.vectors(session, statement)
                    if not whole:
                        continue
                    found = [*each_row(case, places, statement, kinds)]
                    for taken in source.sample(found, min(SAMPLED, len(found))):
                        with places.without([taken]):
                            less = rows.vectors(session, statement)
                        assert less is not None
                        for (one, most), (other, bound) in zip(whole, less, strict=True):
                            distance = sum(
                                abs(one.get(k, 0) - other.get(k, 0)) for k in {*one, *other}
                            )
                            if distance > min(most, bound):
                                yield f"{statement} without {taken[1:]}: {distance}"
                            moved += distance > 0
                            tight += distance == min(most, bound) > 1
                            sums += distance > 0 and "sum" in statement
                            astray += distance > 0 and scattered > 0
                            joined += distance > 0 and " a1" in statement
            case.drop()


def each_row(
    case: Cut, places: Places, statement: str, kinds: dict[str, str]
) -> Iterator[tuple[Any, str, str]]:
    """Yield the rows of protected relations that a statement reads."""
    for i in range(len(case.tables)):
        if kinds[f"t{i}"] != "protected" or f"s.t{i} " not in statement:
            continue
        for place, name in case.cut.get(i, [(None, f"s.t{i}")]):
            session = places.sessions[place]
            for (row,) in session.execute(f"select id from {name} order by id").fetchall():
                yield session, name, f"id = {row}"


def test_a_row_moves_every_vector_by_at_most_the_bound(server: Any) -> None:
    assert list(row_violations(server)) == []


@pytest.mark.parametrize("mutant", [None, ONE_PART_ALONE], ids=["as it is", "first part alone"])
def test_the_largest_count_of_any_part_bounds_what_a_row_moves(
    server: Any, mutant: str | None
) -> None:
    """The second part has the more rows of a key; random rows have that too seldom."""
    declare = "select dp.protect('{0}'), dp.declare_shards('{0}', written => 'coordinator')"
    with placed(server) as (shards, owner, places):
        for name in ("a", "b"):
            bounds = ["in (1)", "in (2)"]
            text = declare.format(name)
            shards.table(name, "id int, k int", "k", bounds=bounds, method="list", declare=text)
        owner.execute("insert into a values (1, 1), (2, 2)")
        owner.execute("insert into b values (1, 1), (2, 2), (3, 2), (4, 2)")
        statement = "select dp_count(*) from a join b on a.k = b.k"
        with silent(shards.near, "a", *filter(None, [rows.WATCH, rows.TAKE, mutant])) as session:
            ((whole, most),) = rows.vectors(session, statement) or []
            with places.without([(places.sessions[1], "a", "id = 2")]):
                ((less, _),) = rows.vectors(session, statement) or []
    assert whole[()] - less.get((), 0) == 3
    assert most == (1 if mutant else 3)


def unit_violations(server: Any, mutant: str | None) -> Iterator[str]:
    """Ask random questions with and without each unit, until everything was met."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    moved = cut = sums = astray = 0
    with placed(server) as (shards, owner, places):
        for number in count():
            if number >= 3 and moved > 10 and min(cut, sums, astray) > 1 and mutant is None:
                return
            assert number < units.MOST_CASES, (moved, cut, sums, astray)
            case = CutUnits(owner, source, shards)
            scattered = places.scatter(case, source)
            patches = [units.WATCH, units.TAKE, *([mutant] if mutant else [])]
            with silent(shards.near, "s.t0", *patches) as session:
                for _ in range(5):
                    statement, _ = case.question()
                    session.execute(units.BOUND.format(2**80))
                    if units.vectors(session, statement) is None:
                        continue
                    full = units.answer(session, statement)
                    session.execute(units.BOUND.format(source.choice([1, 2, 4, 9])))
                    session.execute("select pg_temp.vectors()")
                    whole = units.vectors(session, statement)
                    assert whole is not None
                    cut += full != units.answer(session, statement)
                    session.execute("select pg_temp.vectors()")
                    for unit in case.names:
                        with places.without_unit(case, session, unit):
                            less = units.vectors(session, statement)
                        assert less is not None
                        for (one, most), (other, _) in zip(whole, less, strict=True):
                            distance = sum(
                                abs(one.get(k, 0) - other.get(k, 0)) for k in {*one, *other}
                            )
                            if distance > most:
                                yield f"{statement} without {unit}: {distance}, not {most}"
                            moved += distance > 0
                            sums += distance > 0 and "sum" in statement
                            astray += distance > 0 and scattered > 0
            case.drop()


def test_a_unit_moves_every_vector_by_at_most_the_bound(server: Any) -> None:
    assert list(unit_violations(server, None)) == []


def test_twice_the_bound_is_caught(server: Any) -> None:
    assert any(unit_violations(server, TWICE_THE_BOUND))


class CutCells(CutUnits, cells.CellCase):
    """Units with rows in parts, asked about in cells."""

    aggregate = cells.CellCase.aggregate


class Check(cells.Check):
    """Ends sooner: what is over parts costs more to ask."""

    def enough(self) -> bool:
        wanted = {"ranks": 10, "values": 10, "histogram": 1, "distinct": 2}
        wanted |= {"tight": 5, "cut": 5, "astray": 2}
        return all(self.met[name] >= least for name, least in wanted.items())


def cell_violations(server: Any, check: Check, mutant: str) -> Iterator[str]:
    """Ask random questions about cells with and without each unit, until everything was met."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    with placed(server) as (shards, owner, places):
        for number in count():
            if number >= 3 and check.enough() and not mutant:
                return
            assert number < cells.MOST_CASES, check.met
            case = CutCells(owner, source, shards)
            scattered = places.scatter(case, source)
            patches = (cells.body(mutant), cells.body(cells.WATCH), cells.TAKE)
            with silent(shards.near, "s.t0", *patches) as session:
                for _ in range(4):
                    kept = source.choice([0, 0, 1, 2]), source.choice([0, 0, 1, 2])
                    session.execute(cells.SETTINGS.format(*kept))
                    statement = case.question()[0].format("dp_", "")
                    if not any(f"s.t{i} " in statement for i in case.cut):
                        continue
                    before = check.met["values"] + check.met["ranks"]
                    yield from check.question(
                        session, statement, partial(places.without_unit, case, session)
                    )
                    moved = check.met["values"] + check.met["ranks"] > before
                    check.met["astray"] += moved and scattered > 0
            case.drop()


def test_a_unit_moves_cells_by_at_most_the_bound(server: Any) -> None:
    check = Check()
    assert list(cell_violations(server, check, "")) == []
    print(check.met)  # noqa: T201


def test_cells_that_are_not_cut_off_are_caught(server: Any) -> None:
    assert any("cells move by" in wrong for wrong in cell_violations(server, Check(), NOT_CUT))
