"""What one neighbour changes of everything that a synthesis perturbs.

On random schemas and rows, through the product's own statements, every privacy unit is deleted with
all its rows (by ON DELETE CASCADE, which is what belonging to a unit means), or every row where
single rows are protected.  Each exact vector may change in L1 by no more than the noise that is
drawn for it is made for: rows of tables, rows joined across references, histograms of degrees where
the unit is the parent, takes parents with it, adds links to protected parents that stay or to
public ones (PRIVACY.md sections 1, 5 and 8).  Rows that belong to nobody change nothing.  Some keys
are deferrable: no bound uses that they hold, so that a transaction that broke them itself, which
lacks units that others refer to or has rows of nobody, hides in the same noise.

Nothing but the cases is random: the inequalities hold for every seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.core.rng import SystemNoise
from dpsql.engine import release_measure, synthesis_call, synthesis_readings, synthesize
from dpsql.engine.request import Settings
from dpsql.engine.synthesis_measure import Measuring
from dpsql.engine.synthesis_parts import CountPart, DegreePart, LinkPart, ProfilePart, TablePart
from dpsql.engine.synthesis_schema import read_schema
from dpsql.engine.synthesis_shares import Task
from dpsql.engine.synthesis_units import units_of
from dpsql.sqltree import aliased, sql
from dpsql.statistics import degrees, tabulation, tabulation_sql
from dpsql.synthesis import coarsening, links, profile
from dpsql.synthesis.planning import planned
from tests.server.copying import oids, reader, services_of

pytestmark = pytest.mark.server

CASES = 8
BEST = coarsening.best_across
#: Parents that bins of degrees are made for: any number, the same for neighbours.
PARENTS = 10**6
UNITS = range(1, 6)
#: Rows are told apart by whether their unit has more than so many.
STRATA = (1, 2)
#: Orders of this unit are referred to by others, who do not belong to it.
REFERRED = 5
TABLES = ("u", "o", "l", "n", "d", "e")
#: ``{null}``: whether orders can belong to nobody.
SCHEMA = """
create table public.place (p_id int primary key, p_big boolean not null);
create table public.u (u_id int primary key, u_kind text not null, u_place int references public.place);
create table public.o (o_id int primary key, o_u int {null} references public.u on delete cascade,
  o_kind boolean not null, o_place int references public.place);
create table public.l (l_o int not null references public.o on delete cascade, l_flag boolean,
  l_to int references public.o deferrable initially deferred, l_at int not null references public.place);
create table public.n (n_u int not null references public.u on delete cascade
  deferrable initially deferred);
create table public.d (d_u int not null references public.u on delete cascade, d_no int,
  d_flag boolean not null, primary key (d_u, d_no));
create table public.e (e_u int not null, e_no int not null, e_flag boolean not null,
  foreign key (e_u, e_no) references public.d on delete cascade);
create table public.r (r_id int primary key, r_kind boolean, r_place int references public.place,
  r_boss int references public.r on delete cascade);
insert into public.place select i, i % 2 = 0 from generate_series(1, 4) i;
"""
DECLARED = """
select dp.declare_public('public.place');
select dp.link('public.l', 'public.o', array['l_to'], follow => false);
select dp.link('public.o', 'public.u', array['o_u'], nulls => 'excluded');
select dp.link('public.n', 'public.u', array['n_u'], nulls => 'excluded');
select dp.protect('public.u', privacy_unit => 'u_id');
select dp.set_domain('public.u', 'u_kind', array['a', 'b']);
select dp.protect('public.r');
"""


def filled(random_: random.Random, nobody: bool) -> str:
    """Write rows: the first unit has more of everything than any bound, others at random."""
    lines = []

    def insert(table: str, *values: object) -> None:
        shown = ", ".join("null" if v is None else repr(v) for v in values)
        lines.append(f"insert into public.{table} values ({shown})")

    def many(unit: int) -> int:
        return 6 if unit == 1 else random_.randrange(4)

    def place() -> int | None:
        return random_.choice([1, 2, 3, 4, None])

    orders: list[tuple[int, int | None]] = []
    for unit in UNITS:
        insert("u", unit, random_.choice("ab"), place())
        for _ in range(max(many(unit), unit == REFERRED)):
            orders.append((len(orders) + 1, unit))
    if nobody:
        orders += [(len(orders) + 1 + i, None) for i in range(3)]
    for order, unit in orders:
        insert("o", order, unit, random_.random() < 0.5, place())
    of_referred = [order for order, unit in orders if unit == REFERRED]
    for order, unit in orders:
        for _ in range(random_.randrange(4) + (unit == 1)):
            to = random_.choice([*of_referred, None])
            insert("l", order, random_.choice([True, False, None]), to, random_.randint(1, 4))
    for unit in UNITS:
        for _ in range(many(unit)):
            insert("n", unit)
        for number in range(many(unit)):
            insert("d", unit, number, random_.random() < 0.5)
            for _ in range(1 + random_.randrange(3)):
                insert("e", unit, number, random_.random() < 0.5)
    for row in range(1, 9):
        boss = random_.choice([None, *range(1, row)])
        insert("r", row, random_.choice([True, False, None]), place(), boss)
    return ";\n".join(lines)


class Silent:
    """Noise that is none, and what it would have been for."""

    def __init__(self) -> None:
        self.variances: list[Fraction] = []

    def gaussians(self, variance: Fraction, count: int, tick: Any = None) -> Iterator[Any]:
        self.variances.append(variance)
        yield np.zeros(count, dtype=np.int64)


class Case:
    """A schema with rows, and the tasks of its copies: one over units, one row by row."""

    def __init__(self, database: Any, random_: random.Random) -> None:
        nobody = random_.random() < 0.5
        database.sql(SCHEMA.format(null="" if nobody else "not null"))
        database.sql(filled(random_, nobody))
        with database.connect() as owner:
            for statement in DECLARED.strip().split("\n"):
                owner.execute(statement)
        self.session = reader(database)
        self.services = services_of(self.session)
        self.silent = self.services.noise = Silent()
        d_max = {table: random_.randint(1, 3) for table in TABLES}
        self.tasks = {"unit": self._task(TABLES, d_max), "row": self._task(("r",), {})}

    def _task(self, names: tuple[str, ...], d_max: dict[str, int]) -> Any:
        listed = tuple(oids(self.session, *(f"public.{name}" for name in names)))
        wish = synthesize.Wish("syn", listed, "1", "1e-6", d_max=json.dumps(d_max))
        plan = planned(read_schema(listed, self.services, bins=wish.bins), placeholders=True)
        units = units_of([p.table for p in plan.tables], self.services)
        return synthesis_call.Call(wish, plan, units, wish.settings(Settings()), self.services)

    def vectors(self, whose: str) -> dict[str, tuple[Any, Fraction]]:
        """Return what is perturbed, and the square of the L1 change that its noise is made for."""
        task = self.tasks[whose]
        given = Task(task.plan, task.parts, task.rho, task.measured, 0)
        measuring = Measuring(given, self.services, Quiet())
        measuring.degrees = {p.place: np.full(PARENTS, 9) for p in task.parts}
        found: dict[str, tuple[Any, Fraction]] = {}
        handed: list[tuple[Any, int]] = []

        def measured(mechanism: Any, counts: Any, *_: Any) -> list[Any]:
            handed.append((counts, mechanism.budget.rows))
            return []

        class Learner:
            def __init__(self, *given: Any, contribution: int, **_: Any) -> None:
                handed.append((given[3]._counts, contribution))

            def run(self) -> Any:
                return links.LinkState()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(release_measure, "measure_table", measured)
            patch.setattr(links, "Learner", Learner)
            patch.setattr(coarsening, "best_across", fewer)
            for part in task.parts:
                name = f"{type(part).__name__} {task.plan.tables[part.place].table.name}"
                if isinstance(part, TablePart):
                    if part.alone:
                        table = given.measured.tables[part.place]
                        table.strata, table.weights = STRATA, (1.0,) * (len(STRATA) + 1)
                    counts = measuring._table(part)
                    exact = given.measured.tables[part.place].measured
                elif isinstance(part, CountPart):
                    exact = [measuring._count(part, counts)[0]]
                else:
                    name += f" {part.reference}"
                    link = next(
                        x
                        for x in given.measured.links
                        if (x.place, x.reference) == (part.place, part.reference)
                    )
                    if isinstance(part, DegreePart):
                        name += " whole" if part.whole else " links"
                        measuring._degrees(part, link, PARENTS)
                        exact = [link.histogram]
                    elif isinstance(part, ProfilePart):
                        exact = self._profile(measuring, part, link)
                    else:
                        measuring._learning(part, link, Many(link), 1e9)(None)
                if handed:
                    counts, rows = handed.pop()
                    found[name] = self._all(part, counts), Fraction(rows * rows)
                else:
                    (variance,) = self.silent.variances
                    noise = 2 * task.rho * part.share * variance
                    found[name] = exact[0], noise
                    found |= {f"{name} {i}": (table, noise) for i, table in enumerate(exact[1:], 1)}
                self.silent.variances.clear()
        assert len(found) >= len(task.parts)
        return found

    def _profile(self, measuring: Measuring, part: ProfilePart, link: Any) -> Any:
        """Measure in fixed groups; noise is made for all attributes together, in L2."""
        link.histogram = np.zeros(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(profile, "groups_of", lambda *_: (1, 2, 4))
            measuring._profile(part, link)
        self.silent.variances = [min(self.silent.variances) / len(link.profile)]
        return link.profile

    def _all(self, part: TablePart | LinkPart, counts: Any) -> Any:
        strata = isinstance(part, TablePart) and part.alone
        return counts.marginal(range(len(part.counted.axes) + strata))

    def without(self, condition: str, whose: str) -> dict[str, tuple[Any, Fraction]]:
        """Return the vectors of a neighbour."""
        return self.after(f"delete from public.{condition}", whose)

    def after(self, statement: str, whose: str) -> dict[str, tuple[Any, Fraction]]:
        """Return the vectors in a transaction that changed rows itself."""
        self.session.execute("begin")
        try:
            self.session.execute("reset role")
            self.session.execute(statement)
            self.session.execute("set role dp_executor")
            return self.vectors(whose)
        finally:
            self.session.execute("rollback")

    def neighbours(self) -> Iterator[tuple[str, str]]:
        """List whose copies, and what neighbours lack."""
        yield from (("unit", f"u where u_id = {u}") for u in UNITS)
        for (row,) in self.session.execute(
            "select r_id from public.r as r"
            " where not exists (select from public.r as x where x.r_boss = r.r_id)"
        ).fetchall():
            yield "row", f"r where r_id = {row}"


def fewer(*given: Any) -> Any:
    """Count fewer rows of each unit across references than may be: that is chosen at run time."""
    found = BEST(*given)
    return replace(found, rows=max((n for n in given[3] if n < found.rows), default=found.rows))


class Many:
    """Generated rows of which there are so many that everything is worth its noise."""

    def __init__(self, link: Any) -> None:
        self.link = link

    def rows(self, place: int) -> int:
        return 10**9

    def counts(self, given: Any) -> Any:
        return [[np.full(x.size, 1e9) for x in end] for end in (self.link.left, self.link.right)]


class Quiet:
    """Takes what a command tells."""

    def budget(self, *args: object, **named: object) -> None:
        pass


def changes(case: Case) -> dict[str, tuple[int, Fraction]]:
    """Return the largest changes in L1, and the squares of what is allowed."""
    known = {whose: case.vectors(whose) for whose in case.tasks}
    worst: dict[str, tuple[int, Fraction]] = {}
    for whose, lacking in case.neighbours():
        for name, (vector, allowed) in case.without(lacking, whose).items():
            before, noise = known[whose][name]
            assert noise == allowed  # what noise is made for is no function of rows
            moved = int(abs(np.asarray(before) - np.asarray(vector)).sum())
            worst[name] = max(worst.get(name, (0, allowed)), (moved, allowed))
    return worst


def test_neighbours_change_no_more_than_noise_hides(server: Any) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(CASES):
        database = server.create_database()
        case = Case(database, random_)
        worst = changes(case)
        for name, (moved, allowed) in worst.items():
            assert moved**2 <= allowed, (name, moved, allowed, worst)
        # the first unit has more than counts of all that a unit can have several of
        for name, (moved, allowed) in worst.items():
            if (
                name.split()[0] in ("TablePart", "CountPart", "ProfilePart")
                or name.split()[-1] == "whole"
            ):
                assert moved**2 == int(allowed), (name, moved, allowed)
        for task in case.tasks.values():
            for part, shown in zip(task.parts, task.measured.parts, strict=True):
                if isinstance(part, DegreePart):
                    name = f"DegreePart {task.plan.tables[part.place].table.name} {part.reference}"
                    ((_, allowed),) = (
                        known for full, known in worst.items() if full.startswith(name)
                    )
                    # the report says what noise is made for, which is rounded up to 20 bits
                    assert 0 <= allowed - shown["bound"] ** 2 < Fraction(1, 1000), name
        empty = case.without("o where o_u is null", "unit")
        orphans = case.after("insert into public.n select 99 from generate_series(1, 50)", "unit")
        for name, (vector, _) in case.vectors("unit").items():
            assert np.array_equal(vector, empty[name][0]), name
            assert np.array_equal(vector, orphans[name][0]), name
        server.drop_database(database)


def _one_change_a_link(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(degrees, "sensitivity", lambda query, bound, whole: bound)


def _rows_not_cut(patch: pytest.MonkeyPatch) -> None:
    right = tabulation_sql.bounded
    for module in (tabulation_sql, degrees):
        patch.setattr(module, "bounded", lambda answer, query, rows: right(answer, query, 99))


def _parents_of_attributes_not_cut(patch: pytest.MonkeyPatch) -> None:
    right = degrees.degree_profile
    patch.setattr(
        degrees,
        "degree_profile",
        lambda query, levels, starts, bound, database, keys: right(
            query, levels, starts, 99, database, keys=keys
        ),
    )


def _attributes_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    right = synthesis_readings.variance_for_square
    patch.setattr(
        synthesis_readings, "variance_for_square", lambda square, rho: right(square / 4, rho)
    )


def _parents_not_cut(patch: pytest.MonkeyPatch) -> None:
    right = degrees._first_parents
    patch.setattr(degrees, "_first_parents", lambda answer, query, bound: right(answer, query, 99))


def _twice_as_many_rows(patch: pytest.MonkeyPatch) -> None:
    right = tabulation.tabulate
    patch.setattr(
        tabulation,
        "tabulate",
        lambda query, levels, rows, *given, **named: right(
            query, levels, 2 * rows, *given, **named
        ),
    )


def _strata_of_all_units(patch: pytest.MonkeyPatch) -> None:
    right = tabulation_sql._stratified

    def mutant(answer: Any, query: Any, strata: Any) -> Any:
        _, stratified = right(answer, query, strata)
        code = sql("(sum(w.n) OVER () % 3)::integer")
        wider = sql(
            "SELECT * FROM (SELECT w.*, :code FROM :answer AS w) AS w",
            code=aliased(code, f"a{stratified.groups[-1]}"),
            answer=answer,
        )
        return wider, stratified

    patch.setattr(tabulation_sql, "_stratified", mutant)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _one_change_a_link: "links",
    _rows_not_cut: "TablePart",
    _twice_as_many_rows: "CountPart",
    _strata_of_all_units: "TablePart",
    _parents_not_cut: "whole",
    _parents_of_attributes_not_cut: "ProfilePart",
    _attributes_cost_nothing: "ProfilePart",
}


class Meter:
    """Real noise, and what it was drawn with."""

    def __init__(self) -> None:
        self.variances: list[Fraction] = []
        self._noise = SystemNoise()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def gaussians(self, variance: Fraction, count: int, tick: Any = None) -> Iterator[Any]:
        self.variances.append(variance)
        return self._noise.gaussians(variance, count, tick)


def losses(case: Case, whose: str, rho: Fraction, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measure a copy; return what everything that was drawn costs, and the shares reported.

    Every variance that is drawn is one that a part asked for, at the change it says.
    """
    call = case.tasks[whose]
    call.rho = rho
    call.measured = call._measured()
    meter = case.services.noise = Meter()
    costs: list[Fraction] = []
    asked: list[Fraction] = []
    right, by_columns = synthesis_readings.variance_for_square, release_measure.measure_table

    def squared(square: Fraction, given: Fraction) -> Fraction:
        found = right(square, given)
        costs.append(square / (2 * found))
        asked.append(found)
        return found

    def plain(changed: int, given: Fraction) -> Fraction:
        found = right(Fraction(changed * changed), given)
        costs.append(changed * changed / (2 * found))
        asked.append(found)
        return found

    def columns(mechanism: Any, counts: Any, services: Any, progress: Any, **named: Any) -> Any:
        costs.append(mechanism.loss)
        asked.extend(m.parameter for m in mechanism.measurements)
        return by_columns(mechanism, counts, services, progress, **named)

    drowned = Measuring._drowned

    def looked(measuring: Measuring, *given: Any) -> bool:
        known = len(costs)
        found = drowned(measuring, *given)
        del costs[known:]  # of noise that was looked at, and not drawn
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Measuring, "_drowned", looked)
        patch.setattr(synthesis_readings, "variance_for", plain)
        patch.setattr(synthesis_readings, "variance_for_square", squared)
        patch.setattr(release_measure, "measure_table", columns)
        case.session.execute("begin")
        try:
            task = Task(call.plan, call.parts, rho, call.measured, 1)
            measured = Measuring(task, case.services, Quiet()).run()
        finally:
            case.session.execute("rollback")
    for link in measured.links:
        if link.state is not None:
            costs.append(link.state.used)
            asked.extend(a.variance for a in link.state.answers)
    assert set(meter.variances) <= set(asked)
    return sum(costs, Fraction(0)), sum(part["share"] for part in measured.parts)


def test_what_is_drawn_costs_no_more_than_is_charged(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is given up and handed on: the parts cost what was charged, or less."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    database = server.create_database()
    case = Case(database, random.Random(seed))
    for whose in case.tasks:
        for rho in (Fraction(1, 10**6), Fraction(1, 50), Fraction(10**4)):
            cost, shares = losses(case, whose, rho, monkeypatch)
            assert 0 < cost <= rho, (whose, rho, float(cost))
            assert shares <= 1 + 1e-9
    server.drop_database(database)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(
    server: Any, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = server.create_database()
    case = Case(database, random.Random(7))
    mutant(monkeypatch)
    found = [name for name, (moved, allowed) in changes(case).items() if moved**2 > allowed]
    server.drop_database(database)
    assert any(MUTANTS[mutant] in name for name in found), found
