"""Exact audit: the laws that the server draws from, recorded, and their exact divergence.

A sampling audit does not see a missing factor 2 (half a million answers would be needed).  Here the
noise source of one backend is replaced by one that adds nothing and remembers which law was asked
for, so that an answer and its law are known exactly, for a chain of neighbours.  The hockey-stick
divergence of two such laws is a sum of numbers: nothing is estimated and no claim that holds can
be refuted (rounding: 1e-9).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server

LINKS = """
create table link (n int);
alter table link owner to owner1;
grant dp_owner to owner1;
"""
RECORDED = function_in_service(
    "pg_temp.recorded",
    "text",
    'import dpsql.core.rng as rng\nreturn "%s %d %d" % rng.recorded',
)
RECORDER = """
import dpsql.core.rng as rng

class Recorder(rng.SystemNoise):
    __slots__ = ()

    def discrete_laplace(self, scale):
        rng.recorded = ("laplace", scale.numerator, scale.denominator)
        return 0

    def geometric(self, scale):
        rng.recorded = ("geometric", scale.numerator, scale.denominator)
        return 0

    def discrete_cauchy(self, scale):
        rng.recorded = ("cauchy", scale.numerator, scale.denominator)
        return 0

rng.SystemNoise = Recorder
"""
FACTOR_TWO = """
from dataclasses import replace
import dpsql.core.mechanisms.laplace as laplace
right = laplace.plan_smooth
def wrong(*a):
    plan = right(*a)
    return replace(plan, factor=plan.factor / 2)
laplace.plan_smooth = wrong
"""
WRONG_BETA = """
from dataclasses import replace
import dpsql.core.mechanisms.laplace as laplace
right = laplace.plan_smooth
laplace.plan_smooth = lambda epsilon, *a: replace(right(epsilon, *a), beta=float(epsilon) / 2)
"""
FORGOTTEN_SELF_JOIN = """
from dataclasses import replace
import dpsql.core.sensitivity as sensitivity
right = sensitivity.bound
def wrong(shape, *a, **k):
    return right(replace(shape, physical=tuple(range(len(shape.physical)))), *a, **k)
sensitivity.bound = wrong
"""
STEEP_CAUCHY = """
from dataclasses import replace
import dpsql.core.mechanisms.cauchy as cauchy
right = cauchy.plan
def wrong(epsilon):
    plan = right(epsilon)
    return replace(plan, slope=plan.slope * 4)
cauchy.plan = wrong
"""
EPSILON = 1.0
DELTA = 1e-3

Law = tuple[int, str, Fraction]


def question(copies: int) -> str:
    names = [f"l{i}" for i in range(copies)]
    equal = " and ".join(f"{a}.n = {b}.n" for a, b in pairwise(names))
    return f"select dp_count(*) from {', '.join(f'link {n}' for n in names)} where {equal}"


def chain(database: Any, text: str, sizes: range, mechanism: str, mutant: str) -> list[Law]:
    """Return the laws of the answers while one row after the other is inserted."""
    database.sql("truncate link")
    database.sql(f"insert into link select 1 from generate_series(1, {sizes.start})")
    connection = database.connect()
    connection.execute("select * from dp.explain(%s)", (text,))  # imports the package
    for patch in (RECORDER, mutant):
        if patch:
            connection.execute(in_service(patch))
    connection.execute(RECORDED)
    connection.execute(f"set dp.epsilon = {EPSILON}")
    connection.execute(f"set dp.delta = {0 if mechanism == 'cauchy' else DELTA}")
    connection.execute(f"set dp.mechanism = {mechanism}")
    connection.execute("set dp.fresh = on")
    laws = []
    for size in sizes:
        (count,) = connection.execute(text).fetchone()
        kind, numerator, denominator = (
            connection.execute("select pg_temp.recorded()").fetchone()[0].split()
        )
        assert count == size ** text.count("link ")
        laws.append((count, kind, Fraction(int(numerator), int(denominator))))
        connection.execute("insert into link values (1)")
    connection.close()
    return laws


def density(law: Law, x: Any) -> Any:
    count, kind, scale = law
    z = np.abs(x - count) / float(scale)
    if kind == "laplace":
        q = math.exp(-1 / float(scale))
        return (1 - q) / (1 + q) * np.exp(-z)
    n = np.arange(-(10**6), 10**6 + 1) / float(scale)
    return 1 / (1 + z**4) / np.sum(1 / (1 + n**4))


def divergence(one: Law, other: Law, epsilon: float) -> float:
    """Return the larger of the two hockey-stick divergences of neighbouring laws."""
    width = int(40 * max(one[2], other[2])) + abs(one[0] - other[0])
    x = np.arange(min(one[0], other[0]) - width, max(one[0], other[0]) + width + 1)
    p, q = density(one, x), density(other, x)
    factor = math.exp(epsilon)
    return max(
        float(np.sum(np.maximum(p - factor * q, 0))), float(np.sum(np.maximum(q - factor * p, 0)))
    )


def loss(one: Law, other: Law) -> float:
    """Return the largest privacy loss near the counts; for laws without a delta."""
    x = np.arange(min(one[0], other[0]) - 2000, max(one[0], other[0]) + 2001)
    return float(np.max(np.abs(np.log(density(one, x) / density(other, x)))))


@pytest.fixture
def links(database: Any) -> Any:
    database.sql(LINKS)
    with database.connect(user="owner1") as owner:
        owner.execute("select dp.protect('link', delta => 1)")
        owner.execute("select dp.grant_budget('postgres', epsilon => 1e6, delta => 1)")
    return database


@pytest.mark.parametrize(
    ("copies", "sizes", "mutant"),
    [
        (2, range(15, 35), FACTOR_TWO),
        (3, range(8), WRONG_BETA),
        (3, range(35, 45), FORGOTTEN_SELF_JOIN),
    ],
)
def test_laplace_keeps_its_claim_exactly_and_its_mutants_do_not(
    links: Any, copies: int, sizes: range, mutant: str
) -> None:
    for patch in ("", mutant):
        laws = chain(links, question(copies), sizes, "laplace", patch)
        assert {kind for _, kind, _ in laws} == {"laplace"}
        worst = max(divergence(a, b, EPSILON) for a, b in pairwise(laws))
        print(f"divergence {worst:.3g}, claimed {DELTA}")  # noqa: T201
        assert (worst > DELTA + 1e-9) == bool(patch)


def test_cauchy_keeps_its_claim_exactly_and_its_mutant_does_not(links: Any) -> None:
    for patch in ("", STEEP_CAUCHY):
        laws = chain(links, question(2), range(15, 35), "cauchy", patch)
        assert {kind for _, kind, _ in laws} == {"cauchy"}
        worst = max(loss(a, b) for a, b in pairwise(laws))
        print(f"loss {worst:.3g}, claimed {EPSILON}")  # noqa: T201
        assert (worst > EPSILON + 1e-9) == bool(patch)
