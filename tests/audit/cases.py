"""What is audited: every mechanism as a statement, neighbours that are as unlike as can be, a mutant.

The statements, neighbours and mutants are those of ``tests/server/test_audit*.py``; here all that is
drawn is kept, and no event is fixed in advance.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from dpsql.workload.names import GAUSSIAN_ONLY, MECHANISMS
from tests.audit.bounds import Draws
from tests.server import (
    auditing,
    test_audit,
    test_audit_histograms,
    test_audit_percentiles,
    test_audit_reach,
    test_audit_releases,
    test_audit_several,
    test_audit_sums,
    test_audit_units,
)
from tests.server.in_service import in_service
from tests.server.test_audit import DELTA, patched

#: Coordinates of a draw that are kept besides its size, sum and ends.
_KEPT = 24
#: Of a mutant, that what it shows half of the time tells enough.
FEWEST_DRAWS = 400
#: One statement costs `DELTA` of a total of 1, on each of two databases.
MOST_STATEMENTS = 1500


#: Of adaptive mechanisms and copies the noise is made elsewhere.
TOO_SMALL_ADAPTIVE = (
    test_audit_releases.TOO_SMALL
    + """
import dpsql.engine.release_measure as measure
supplied = measure.supply
def supply(services):
    gaussian, choose = supplied(services)
    return (lambda variance, count: gaussian(variance / 1600, count)), choose
measure.supply = supply
"""
)


@dataclass(frozen=True)
class Audited:
    """One mechanism.

    Attributes
    ----------
    name : str
        What is asked, and the mutant's name.
    neighbours : str
        ``row`` or ``unit``: what one database has and the other has not.
    prepare : callable
        Makes one of the two in an empty database: with that, or without.
    statement : str
        Draws once, or several times independently.
    copies : int
        How many draws that are.
    read : callable
        Draws of a statement's rows: one sequence of values for each.
    mutant : str
        Python that breaks the mechanism.
    epsilon, delta : float
        What one statement may cost; its draws share epsilon.
    settings, imports : str
        Before the first statement: for it, and so that the package is there to be changed.
    mutant_statements : int
    ends : str
        Takes the statement back, so that the next finds what it found.
    share : float
        Of all draws, for what takes long.
    """

    name: str
    neighbours: str
    prepare: Callable[[Any, bool], Any]
    statement: str
    copies: int
    read: Callable[[list[Any]], Iterable[Sequence[Any]]]
    mutant: str
    epsilon: float
    delta: float
    settings: str = ""
    imports: str = "select 1"
    analyst: str = "select dp_count(*) from known"
    mutant_statements: int = 100
    ends: str = ""
    share: float = 1.0

    @property
    def claim(self) -> float:
        """The epsilon of one draw."""
        return self.epsilon / self.copies

    def draw(self, database: Any, patch: str, statements: int) -> list[Sequence[Any]]:
        """Return the draws of so many statements."""
        found: list[Sequence[Any]] = []
        with ExitStack() as stack:
            session = stack.enter_context(patched(database, self.analyst, ""))
            session.execute("reset session authorization")
            session.execute(self.imports)
            if patch:
                session.execute(in_service(patch))
            session.execute("set session authorization alice")
            session.execute(f"set dp.fresh = on; set dp.epsilon = {self.epsilon}")
            session.execute(f"set dp.delta = {self.delta}; {self.settings}")
            for _ in range(statements):
                if self.ends:
                    session.execute("begin")
                for text in self.statement.split(";\n"):
                    cursor = session.execute(text)
                found.extend(self.read(cursor.fetchall()))
                if self.ends:
                    session.execute(self.ends)
        return found


def vectors(*sides: Sequence[Sequence[Any]]) -> list[Draws]:
    """Return draws as arrays of equal width: size, sum, ends, and the first values."""
    flat = [[list(_numbers(values)) for values in side] for side in sides]
    width = min(max((len(v) for side in flat for v in side), default=0), _KEPT)

    def row(values: list[float]) -> list[float]:
        some = values or [0.0]
        padded = (values + [0.0] * width)[:width]
        return [float(len(values)), sum(some), min(some), max(some), *padded]

    return [np.array([row(values) for values in side]) for side in flat]


def _numbers(value: Any) -> Iterator[float]:
    if value is None:
        return
    if isinstance(value, datetime.datetime):
        yield value.timestamp()
    elif isinstance(value, datetime.date):
        yield float(value.toordinal())
    elif isinstance(value, bool | int | float | Decimal):
        yield float(value)
    elif isinstance(value, str):
        yield float(sum(value.encode()))
    else:
        for one in value:
            yield from _numbers(one)


def _plain(set_up: str, more: str) -> Callable[[Any, bool], Any]:
    def prepare(database: Any, with_more: bool) -> Any:
        database.sql(set_up)
        if with_more:
            database.sql(more)
        return database

    return prepare


def _of_columns(
    cases: dict[str, auditing.Case],
    prepare: Callable[[Any, bool], Any],
    neighbours: str,
    first: str,
) -> Iterator[Audited]:
    for name, case in cases.items():
        yield Audited(
            f"{_what(case.columns[0])} {case.source.split(';')[0]}: {name}",
            neighbours,
            prepare,
            case.question,
            len(case.columns),
            lambda rows: zip(*rows, strict=True) if rows else [()],
            case.mutant,
            case.epsilon * len(case.columns),
            DELTA,
            case.settings or "select 1",
            analyst=f"select dp_count(*) from {first}",
            mutant_statements=max(4 * case.statements, FEWEST_DRAWS // len(case.columns)),
        )


def _what(column: str) -> str:
    return column.split(" filter")[0]


def _of_rows(
    cases: dict[str, test_audit.Case],
    prepare: Callable[[Any, bool], Any],
    neighbours: str,
    delta: float,
    first: str,
) -> Iterator[Audited]:
    for name, case in cases.items():
        yield Audited(
            f"{case.question.removeprefix('select ')}: {name}",
            neighbours,
            prepare,
            case.question,
            1,
            lambda rows: [rows],
            case.mutant,
            case.epsilon,
            delta,
            f"set dp.mechanism = {case.mechanism}",
            analyst=f"select dp_count(*) from {first}",
            mutant_statements=min(4 * case.runs, MOST_STATEMENTS),
        )


def _percentiles() -> Iterator[Audited]:
    module = test_audit_percentiles
    for name, case in module.CASES.items():
        yield Audited(
            f"{case.question.removeprefix('select ')}: {name}",
            "unit" if "visit" in case.question else "row",
            _plain(module.SET_UP, module.MORE),
            case.question,
            1,
            lambda rows: [rows],
            case.mutant,
            module.EPSILON,
            DELTA,
            case.settings or "select 1",
            mutant_statements=min(4 * case.runs, MOST_STATEMENTS),
        )


def _methods() -> Iterator[Audited]:
    """Yield the mechanisms of joins that the other modules do not ask for by name."""
    question = test_audit.QUERY
    for mechanism, delta in (("calibrated", DELTA), ("cauchy", 0.0)):
        yield Audited(
            f"{question.removeprefix('select ')}: {mechanism}",
            "row",
            test_audit.prepare,
            question,
            1,
            lambda rows: [rows],
            test_audit.FORGOTTEN_JOIN,
            0.7,
            delta,
            f"set dp.mechanism = {mechanism}",
            analyst="select dp_count(*) from client",
            mutant_statements=1000,
        )


def _releases() -> Iterator[Audited]:
    module = test_audit_releases
    asked = [(f"{c.mechanism}: {name}", c) for name, c in module.CASES.items()]
    known = {(case.mechanism, case.delta > 0) for case in module.CASES.values()}
    for mechanism in MECHANISMS:
        for delta in (0.0, 1e-6):
            if delta == 0 and mechanism in GAUSSIAN_ONLY:
                continue
            if (mechanism, delta > 0) not in known:
                mutant = TOO_SMALL_ADAPTIVE if "aim" in mechanism else module.TOO_SMALL
                case = module.Case(module.LEVELS, module.one, mutant, 1, delta, mechanism)
                asked.append((f"{mechanism}, {'Gaussian' if delta else 'Laplace'}", case))
    for name, case in asked:
        release = (
            f"dp.release('r', $${case.query}$$, {case.epsilon}, {case.delta}, '{case.mechanism}')"
        )
        yield Audited(
            f"release by {name}",
            "unit" if "visit" in case.query else "row",
            _plain(module.SET_UP, module.MORE),
            f"select {release};\nselect * from dpv.r",
            1,
            lambda rows: [[row[-2] for row in rows]],
            case.mutant,
            case.epsilon,
            case.delta,
            case.settings,
            imports=f"select 1 from dp.plan_release($${module.LEVELS}$$, 1, 0)",
            analyst="select dp_count(*) from item",
            mutant_statements=case.draws,
            ends="rollback",
            share=0.1,
        )


def _syntheses() -> Iterator[Audited]:
    """Yield copies: what is drawn is how many rows of each kind they have."""
    module = test_audit_releases
    grant = """
create schema syn authorization alice;
"""
    for method in ("pairs", "aim", "residual_planner"):
        yield Audited(
            f"dp.synthesize by {method}",
            "row",
            _plain(module.SET_UP + grant, module.MORE),
            "call dp.synthesize('syn', array['item']::regclass[], 1, 1e-6,"
            f" method => '{method}', replace => true);\n"
            "select count(*) filter (where i_kind), count(*) filter (where not i_kind) from syn.item",
            1,
            lambda rows: rows,
            TOO_SMALL_ADAPTIVE,
            1,
            1e-6,
            "set client_min_messages = error",
            imports=f"select 1 from dp.plan_release($${module.LEVELS}$$, 1, 0)",
            analyst="select dp_count(*) from item",
            mutant_statements=150,
            share=0.05,
        )


def every() -> list[Audited]:
    """List all that is audited."""
    units, sums, histograms = test_audit_units, test_audit_sums, test_audit_histograms
    reach, several = test_audit_reach, test_audit_several
    of_units = _plain(units.SET_UP, units.HUB)
    return [
        *_of_rows(test_audit.CASES, test_audit.prepare, "row", DELTA, "client"),
        *_of_columns(units.CASES, of_units, "unit", "visit"),
        *_of_columns(sums.ROW_CASES, _plain(sums.ROWS, sums.ROW), "row", "pay"),
        *_of_columns(sums.UNIT_CASES, _plain(sums.UNITS, sums.UNIT), "unit", "pay"),
        *_of_columns(histograms.ROW_CASES, _plain(histograms.ROWS, histograms.ROW), "row", "pay"),
        *_of_columns(
            histograms.UNIT_CASES, _plain(histograms.UNITS, histograms.UNIT), "unit", "pay"
        ),
        *_of_columns(reach.CASES, _plain(reach.SET_UP, reach.HUB), "unit", "visit"),
        *_of_rows(several.CASES, _plain(several.SET_UP, several.HUB), "unit", 0.0, "person"),
        *_percentiles(),
        *_methods(),
        *_releases(),
        *_syntheses(),
    ]
