"""Intervals of random walks: exact coverage by enumeration, and what bad input says."""

from __future__ import annotations

import math
from math import comb

import pytest

from dpsql.core import sampling
from dpsql.core.sampling import Sample, interval, published_ends, published_width, refutes, share
from dpsql.errors import InvalidParameter


@pytest.mark.parametrize("rate", [0, -1e-9, 1.0000001, math.nan, math.inf, "much"])
def test_a_rate_outside_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(InvalidParameter) as caught:
        sampling.check_rate(rate)
    assert caught.value.sqlstate == "PD040"
    assert caught.value.hint


@pytest.mark.parametrize("rate", [1, 1.0, 1e-9])
def test_rates_that_are_allowed(rate: float) -> None:
    sampling.check_rate(rate)


@pytest.mark.parametrize("eta", [0, 1, -1, math.nan])
def test_a_failure_probability_outside_zero_to_one_is_refused(eta: float) -> None:
    with pytest.raises(InvalidParameter):
        sampling.check_failure(eta)


def test_no_walks_say_nothing() -> None:
    assert interval(Sample(0, 0.0, 0.0), 0.1) == (0.0, 1.0)
    assert published_width(0, 10, 0.1) == math.inf
    assert not refutes(Sample(0, 0.0, 0.0), 0.5, 0.1)


def test_theorem_3_at_one_and_at_many_walks() -> None:
    """``log log 1`` does not exist; at 1000 walks the formula is checked by hand."""
    assert published_width(1, 10, 0.1) == pytest.approx(
        math.sqrt(math.log(11 * math.pi**2 / 0.6) / 2)
    )
    by_hand = (2 * math.log(math.log(1000)) + math.log(11 * math.pi**2 / 0.6)) / 2000
    assert published_width(1000, 10, 0.1) == pytest.approx(math.sqrt(by_hand))
    low, high = published_ends(5.0, 1000, 100.0, 4000, 10, 0.1)
    assert low + high == pytest.approx(10.0)
    assert high > 5.0 + published_width(1000, 10, 0.1) * 100.0


def test_shares_add_up_to_at_most_eta() -> None:
    total = sum(
        share(0.05, 7, groups, number) * groups * 7
        for number, groups in zip(range(1, 10_000), [100, 60, 1] + [1] * 10_000, strict=False)
    )
    assert total <= 0.05


def coin(walks: int, expectation: float, heads: int) -> float:
    return comb(walks, heads) * expectation**heads * (1 - expectation) ** (walks - heads)


@pytest.mark.parametrize("walks", [1, 7, 60, 400])
@pytest.mark.parametrize("expectation", [1e-4, 0.01, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("eta", [0.3, 0.01])
@pytest.mark.parametrize("weight", [1.0, 0.2])
def test_intervals_cover(walks: int, expectation: float, eta: float, weight: float) -> None:
    """Exactly: weights are ``weight`` with a probability, else 0."""
    outside = 0.0
    for heads in range(walks + 1):
        low, high = interval(Sample(walks, heads * weight, heads * weight**2), eta)
        if not low <= expectation * weight <= high:
            outside += coin(walks, expectation, heads)
    assert outside <= eta


@pytest.mark.parametrize("walks", [7, 60, 400])
@pytest.mark.parametrize("eta", [0.3, 0.01])
def test_a_true_leader_is_rarely_refuted(walks: int, eta: float) -> None:
    for bar in (0.02, 0.1, 0.5):
        wrong = sum(
            coin(walks, bar, heads)
            for heads in range(walks + 1)
            if refutes(Sample(walks, heads, heads), bar, eta)
        )
        assert wrong <= eta


def test_without_entropy_the_leader_is_refuted_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant that trusts means fails the test above."""
    monkeypatch.setattr(sampling, "_entropy", lambda p, q: math.inf if p < q else 0.0)
    with pytest.raises(AssertionError):
        test_a_true_leader_is_rarely_refuted(60, 0.01)


def test_unmet_groups_are_refuted_once_there_were_enough_walks() -> None:
    """Ten groups of a tenth each: missing one needs the union over all of them."""
    eta, bar = 0.05, 0.1
    least = next(n for n in range(1, 10_000) if refutes(Sample(n, 0.0, 0.0), bar, eta, found=True))
    assert 10 * (1 - bar) ** least <= eta
    alone = next(n for n in range(1, 10_000) if refutes(Sample(n, 0.0, 0.0), bar, eta))
    assert alone < least
    assert refutes(Sample(1, 1.0, 1.0), 1.5, eta), "no weight is above 1"
    assert not refutes(Sample(1000, 200.0, 200.0), bar, eta), "a mean above the bar"


def test_the_planned_walks_refute_half() -> None:
    for bar in (1e-4, 0.01, 0.2):
        walks = sampling.walks_to_refute(bar, 1e-6)
        assert refutes(Sample(walks, walks * bar / 2, walks), bar, 1e-6)
