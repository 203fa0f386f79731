"""What one unit moves in histograms, values by rank and numbers of different values.

On random schemas, through the product's own statements, every unit is deleted with all its rows (by
ON DELETE CASCADE, which is what belonging to a unit means).  For every bound that could be drawn,
and every block of cells that could be found first, what the mechanism sees may differ only by what
its noise is made for (docs/proofs/truncation.md, claims 1 to 4; percentile.md, claims 1 and 2):

- the numbers of units above each bound by one, all the same way;
- the cut vector over all groups and cells by the bound, all the same way;
- the scores of all groups together by the bound times the denominator of the share.

The same check must find a violation where a mutant of the package answers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.property.committed import changed
from tests.property.test_answers_match_the_join import NUMBERS
from tests.property.test_units_match_the_join import UnitCase
from tests.server.asking import silent
from tests.server.in_service import function_in_service, in_service
from tests.server.test_audit_percentiles import DENOMINATOR_FORGOTTEN
from tests.server.test_audit_sums import EACH_GROUP_ALONE, NOT_CUT

pytestmark = pytest.mark.server

#: A run that has not met what it is about by then says so; as in `test_units_match_the_join`.
MOST_CASES = 300
UNITS = range(5)
#: Few bounds (1, 2, 3, 4 and 6), each of which is tried.
SETTINGS = """
set dp.max_contribution = 6; set dp.max_rows_contributed = {0}; set dp.max_groups_contributed = {1}
"""
#: Keeps what a mechanism sees: for each bound the cut vector, the scores, and what noise allows for.
WATCH = """
from fractions import Fraction
from math import isqrt
from dpsql.core.mechanisms import percentile, threshold, truncation
from dpsql.core.mechanisms.percentile import OfUnits
from dpsql.core.mechanisms.truncation import Quantile
from dpsql.counted import Contributions

truncation.seen = []
threshold.cutoff = lambda *given, each: 1
original = Quantile.draw, Quantile.release, OfUnits.release, Contributions.truncated, percentile._cell
now = {}


class Listening:
    @staticmethod
    def discrete_laplace(scale):
        now["scales"].add(scale)
        return 0

    geometric = discrete_laplace


def truncated(self, j, groups):
    groups = list(groups)
    found = original[3](self, j, groups)
    now["cells"] += [(key, value) for key, value in zip(groups, found) if value]
    return found


def cell(counts, *given):
    counts = list(counts)
    block = isqrt(len(counts) - 1) + 1
    blocks = -(-len(counts) // block)
    here = {}
    # of many blocks those of 0, 1 and 3, and the ends
    chosen = {0, blocks // 3, blocks // 2, 5 * blocks // 6, blocks - 1}
    for first in range(blocks) if blocks < 20 else sorted(chosen):
        stages = []
        def best(counts, rank, scale, noise):
            heard = set()
            class Ear:
                geometric = staticmethod(lambda scale: heard.add(scale) or 0)
            reported(counts, rank, scale, Ear)
            (heard,) = heard
            stages.append((heard, list(percentile._distances(counts, rank))))
            return first if len(stages) == 1 else 0
        reported, percentile._best = percentile._best, best
        try:
            original[4](counts, *given)
        finally:
            percentile._best = reported
        for scale, _ in stages:
            now["scales"].add(scale / (2 * len(stages)))
        here["blocks"] = stages[0][1]
        if len(stages) == 2:
            here[str(first)] = stages[1][1]
    now["scores"].append(here)
    return 1


def watched(mechanism, release):
    def watching(self, contributions, groups, noise):
        vector = mechanism(self)
        each = []
        truncation.seen.append({
            "above": contributions.above(),
            "groups": groups,
            "ranks": isinstance(self, OfUnits),
            "paid": str(self.guarantee.epsilon - vector.epsilon_choice - vector.epsilon_value),
            "denominator": self.sought.share.denominator if isinstance(self, OfUnits) else 1,
            "grid": contributions.grid,
            "each": each,
        })
        Contributions.truncated, percentile._cell = truncated, cell
        try:
            for j, bound in enumerate(self.bounds):
                now.update(scales=set(), cells=[], scores=[])
                Quantile.draw = lambda *given: j
                release(self, contributions, groups, Listening)
                room = {str(scale * vector.epsilon_value) for scale in now["scales"]}
                each.append({"bound": bound, "room": sorted(room), "cells": now["cells"], "scores": now["scores"]})
        finally:
            Quantile.draw, Contributions.truncated, percentile._cell = original[0], original[3], original[4]
        return release(self, contributions, groups, noise)
    return watching


Quantile.release = watched(lambda plan: plan, original[1])
OfUnits.release = watched(lambda plan: plan.truncation, original[2])
"""
TAKE = function_in_service(
    "pg_temp.seen",
    "text",
    """
import json
from dpsql.core.mechanisms import truncation
found, truncation.seen[:] = json.dumps(truncation.seen), []
return found
""",
)

#: A value that several units have counts for the first of them alone.
OF_THE_FIRST_UNIT = """
from dpsql.query.contribution_sql import _Statement
from dpsql.sqltree import column, sql
right = _Statement._distinct
def distinct(self):
    values = dict.fromkeys((*self.query.groups, *self.query.distinct))
    self.answer = sql(
        "SELECT * FROM (SELECT x.*, min(:unit) OVER (PARTITION BY :many) AS first FROM :answer AS x) AS x"
        " WHERE first = :unit",
        unit=column("", f"a{self.query.unit}"), many=[column("", f"a{a}") for a in values],
        answer=self.answer)
    return right(self)
_Statement._distinct = distinct
"""
#: Each of the two stages spends all that is there, with half of the noise.
BOTH_STAGES_IN_FULL = """
from dpsql.core.mechanisms import percentile
right = percentile._best
percentile._best = lambda counts, rank, scale, noise: right(counts, rank, scale / 2, noise)
"""


class CellCase(UnitCase):
    """Asks for what is counted in cells, and for numbers of different values."""

    loose = True
    asked = ""

    def aggregate(self, used: list[tuple[str, int]]) -> str:
        alias, table = self.random.choice(used)
        # keys are mostly of one unit each
        shared = [name for name in self.tables[table] if name.startswith("c")]
        every = list(self.tables[table])
        name = self.random.choice(shared if self.random.random() < 0.8 else every)
        columns = [(f"{a}.{n}", kind) for a, t in used for n, kind in self.tables[t].items()]
        # ranges of numbers that are not whole have so many cells that one question in twenty is enough
        kinds = NUMBERS if self.random.random() < 0.05 else NUMBERS - {"numeric"}
        numbers = [x for x, kind in columns if kind in kinds]
        x, y = self.random.choice(numbers), self.random.choice(numbers)
        x = self.random.choice([x, x, x, f"{x} * {y}", f"{x} - 1"])
        dates = [d for d, kind in columns if kind == "date"]
        if dates and self.random.random() < 0.3:
            x, ends = self.random.choice(dates), "'2020-01-01', '2021-07-01'"
        else:
            ends = "-2, 4"
        share = self.random.choice(["0.9", "0.25", "0.3"])
        makers = [
            f"count(distinct {alias}.{name})",
            f"count(distinct {alias}.{name})",
            f"histogram({x}, {ends}, {self.random.choice([1, 3, 6])})",
            f"histogram({x}, {ends}, 6)",
            f"percentile({x}, {share}, {ends})",
            f"percentile({x}, {share}, {ends})",
            f"{self.random.choice(['median', 'min', 'max'])}({x}, {ends})",
        ]
        return self.random.choice([m for m in makers if m.startswith(self.asked)])


Seen = list[dict[str, Any]]


def seen(session: Any, statement: str) -> Seen | None:
    """Return what the mechanisms of a statement see; ``None`` if the question is refused."""
    session.execute("select pg_temp.seen()")
    try:
        session.execute(statement)
    except psycopg.Error as error:
        assert error.sqlstate in ("PD011", "PD013"), (statement, error)  # noqa: PT017
        return None
    found: Seen = json.loads(session.execute("select pg_temp.seen()").fetchone()[0])
    return found


def scores_moved(one: dict[str, Any], other: dict[str, Any], j: int) -> int:
    """Sum over the groups how far a score moves at most, in the worse stage and the worst blocks."""
    theirs = {tuple(k): s for k, s in zip(other["groups"], other["each"][j]["scores"], strict=True)}
    first = then = 0
    for key, here in zip(one["groups"], one["each"][j]["scores"], strict=True):
        there = theirs.get(tuple(key))
        if there is None:  # a group that is not shown there
            continue
        assert here.keys() == there.keys()
        moved = {
            block: max(abs(x - y) for x, y in zip(here[block], there[block], strict=True))
            for block in here
        }
        first += moved.pop("blocks")
        then += max(moved.values(), default=0)
    return max(first, then)


class Check:
    """Looks for what a unit moves further than the noise allows for; counts what it has met."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def compare(self, whole: dict[str, Any], less: dict[str, Any]) -> Iterator[str]:
        """Compare what one vector's mechanism sees with what it sees without a unit."""
        if Fraction(whole["paid"]) < 0:
            yield "pays too little"
        fewer = {x - y for x, y in zip(whole["above"], less["above"], strict=True)}
        if not fewer <= {0, 1}:
            yield f"the numbers above move by {fewer}"
        kind = "ranks" if whole["ranks"] else "values"
        for j, (one, other) in enumerate(zip(whole["each"], less["each"], strict=True)):
            if not (one["room"] and other["room"]):
                continue  # no group
            if one["room"] != other["room"]:
                yield "the noise is another"
            ((room,), mine, theirs) = one["room"], cells(one), cells(other)
            steps = [mine[k] - theirs[k] for k in {*mine, *theirs}]
            moved, most = sum(map(abs, steps)), Fraction(room) / whole["denominator"]
            if moved > most:
                yield f"cells move by {moved}, not {most}"
            if min(steps, default=0) < 0:
                yield "cells move both ways"
            if whole["ranks"] and (far := scores_moved(whole, less, j)) > Fraction(room):
                yield f"scores move by {far}, not {room}"
            self.met[kind] += moved > 0
            self.met["tight"] += moved == most
            self.met["tight scores"] += whole["ranks"] and far * 2 > Fraction(room)
            self.met["cut"] += whole["above"][j] > 0 < moved
            self.met["grouped"] += len(whole["groups"]) > 1 and moved > 0

    def enough(self) -> bool:
        wanted = {"ranks": 60, "values": 60, "histogram": 5, "distinct": 5}
        wanted |= {"tight": 30, "tight scores": 10, "cut": 30, "grouped": 30}
        return all(self.met[name] >= least for name, least in wanted.items())

    def question(
        self, session: Any, statement: str, without: Callable[[Any], Any] | None = None
    ) -> Iterator[str]:
        """Ask with all units and without each, which ``without`` takes away for a while."""
        whole = seen(session, statement)
        if not whole:
            return
        self.met["histogram"] += "histogram" in statement
        self.met["distinct"] += "distinct" in statement
        for unit in UNITS:
            with without(unit) if without else deleted(session, unit):
                less = seen(session, statement)
            assert less is not None
            for one, other in zip(whole, less, strict=True):
                for wrong in self.compare(one, other):
                    yield f"{statement} without {unit}: {wrong}"


def deleted(session: Any, unit: object) -> AbstractContextManager[None]:
    """Delete a unit and what refers to it for a while."""
    return changed(session, f"delete from s.t0 where id = {unit}")


def cells(entry: dict[str, Any]) -> Counter[Any]:
    """Return the cut vector by group and cell."""
    return Counter({tuple(key): value for key, value in entry["cells"]})


def body(patch: str) -> str:
    return in_service(patch or "pass")


def violations(server: Any, check: Check, mutant: str = "", asked: str = "") -> Iterator[str]:
    """Ask random questions until the check has met what it is about; of a mutant about one thing."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    database = server.create_database()
    try:
        with database.connect() as owner:
            owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
            for number in count():
                if number >= 4 and check.enough() and not mutant:
                    break
                assert number < MOST_CASES, check.met
                case = CellCase(owner, source)
                case.asked = asked
                with silent(database, "s.t0", body(mutant), body(WATCH), TAKE) as session:
                    for _ in range(12):
                        rows, groups = source.choice([0, 0, 1, 2]), source.choice([0, 0, 1, 2])
                        session.execute(SETTINGS.format(rows, groups))
                        statement, _ = case.question()
                        yield from check.question(session, statement.format("dp_", ""))
    finally:
        server.drop_database(database)


def test_a_unit_moves_what_mechanisms_see_by_at_most_the_bound(server: Any) -> None:
    check = Check()
    assert list(violations(server, check)) == []
    print(check.met)  # noqa: T201


@pytest.mark.parametrize(
    ("mutant", "asked", "what"),
    [
        (NOT_CUT, "histogram", "cells move by"),
        (EACH_GROUP_ALONE, "histogram", "cells move by"),
        (BOTH_STAGES_IN_FULL, "percentile", "scores move by"),
        (DENOMINATOR_FORGOTTEN, "percentile", "scores move by"),
    ],
    ids=[
        "not cut",
        "each cell alone",
        "both stages in full",
        "denominator forgotten",
    ],
)
def test_the_check_finds_mutants(server: Any, mutant: str, asked: str, what: str) -> None:
    assert any(what in wrong for wrong in violations(server, Check(), mutant, asked))


#: Random data seldom have a unit of several values that others have, too, and by which it is cut off.
SHARED = """
create schema s;
create table s.t0 (id int primary key);
insert into s.t0 select generate_series(0, 4);
create table s.t1 (id int primary key, fk int not null references s.t0 on delete cascade, v int);
insert into s.t1 values (1, 0, 1), (2, 0, 2), (3, 0, 3), (4, 0, 4), (5, 0, 5), (6, 1, 1), (7, 2, 2);
select dp.protect('s.t0', privacy_unit => 'id', delta => 0.001);
select dp.grant_budget('postgres', 1e6, 0.001);
"""


@pytest.mark.parametrize(
    ("mutant", "what"),
    [("", ""), (NOT_CUT, "cells move by"), (OF_THE_FIRST_UNIT, "cells move both ways")],
    ids=["as it is", "not cut", "values of the first unit"],
)
def test_the_check_finds_mutants_of_different_values(database: Any, mutant: str, what: str) -> None:
    database.sql(SHARED)
    with silent(database, "s.t0", body(mutant), body(WATCH), TAKE) as session:
        session.execute(SETTINGS.format(0, 0))
        wrong = list(Check().question(session, "select dp_count(distinct v) from s.t1"))
    assert bool(wrong) == bool(mutant)
    assert not mutant or any(what in one for one in wrong)
