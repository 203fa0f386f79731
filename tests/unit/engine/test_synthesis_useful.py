"""Which marginals across a reference are measured: none that noise drowns."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.engine.synthesis_measure import MOST_NOISE, useful_across
from dpsql.synthesis.records import cross_shape


def test_noise_of_what_is_measured_is_bounded_and_more_budget_measures_more() -> None:
    left, right = (2, 8, 32), (3, 32)
    assert useful_across(left, right, Fraction(1, 1000), 50, 1000) is None
    picks = []
    for rho in (Fraction(1, 100), Fraction(1, 10), Fraction(10)):
        found = useful_across(left, right, rho, 1, 10_000)
        assert found is not None
        workloads, schedule = found
        number = schedule.rounds * schedule.per_round
        sigma = math.sqrt(number / (2 * float(rho)))
        largest = max(math.prod(cross_shape(left, right, w)) for w in workloads)
        assert math.sqrt(2 / math.pi) * sigma * largest <= MOST_NOISE * 10_000 * (1 + 1e-9)
        picks.append(number)
    assert picks == sorted(picks)
    assert picks[0] < picks[-1]
