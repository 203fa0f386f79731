"""Sets of units on disk, in small blocks and buckets, give the same results as in memory."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.core import deletion, merging, programs, space, streamed
from dpsql.core.deletion import Excess
from dpsql.core.mechanisms.linear_quantile import CLOSE
from dpsql.core.packing import Memberships
from dpsql.core.space import Space
from dpsql.model import GRID
from tests.property.test_deletion import never
from tests.property.test_packing import kinds

many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "IN_MEMORY", 0)
    monkeypatch.setattr(space, "BLOCK", 4)


def on_disk(tick: Callable[[], None] = lambda: None) -> Space:
    return Space(tick, lambda: tempfile.TemporaryFile())


def drawn(seed: int, rows: int, names: int, high: int = 9) -> tuple[list[Any], Any]:
    """Draw columns with hubs, and counts of both signs."""
    source = np.random.default_rng(seed)
    columns = [(names * source.random(rows) ** 3).astype(np.int64) * 7 - 5 for _ in range(3)]
    return columns, source.integers(-high, high + 1, rows)


def same(found: Memberships, expected: Memberships) -> None:
    assert np.array_equal(found.members, expected.members)
    assert np.array_equal(found.counts, expected.counts)
    assert found.units == expected.units


@many
@given(
    st.integers(0, 2**32),
    st.integers(0, 120),
    st.sampled_from([1, 2, 9, 40]),
    kinds,
    st.sampled_from([9, 2**40, 2**61]),
    st.sampled_from([1, 4, 20, 2**33]),
)
def test_it_is_as_in_memory(
    small: None, seed: int, rows: int, names: int, roots: list[int], high: int, tau: int
) -> None:
    columns, counts = drawn(seed, rows, names, high)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "BLOCK", 1 << 17)
        whole = Memberships.of([c.copy() for c in columns], roots, counts)
        others = [whole.part(1), whole.part(-1), whole.sizes, whole.sizes.in_steps(tau)]
        program = whole.part(1).program(tau)
        excess = Excess.of(whole.sizes, tau)
        expected = whole.part(1).ceiling(tau), whole.sizes.least, whole.sizes.most
        sums = whole.sizes.total, whole.sizes.in_steps(tau).contributions
        heaviest = whole.sizes.heaviest
    found = Memberships.of(columns, roots, counts, on_disk())
    same(found, whole)
    mine = [found.part(1), found.part(-1), found.sizes, found.sizes.in_steps(tau)]
    for some, other in zip(mine, others, strict=True):
        same(some, other)
    own = found.part(1).program(tau)
    assert np.array_equal(own.members, program.members)
    assert np.array_equal(own.caps, program.caps)
    assert (own.units, own.tau, own.free, own.step) == (
        program.units,
        program.tau,
        program.free,
        program.step,
    )
    assert (found.part(1).ceiling(tau), found.sizes.least, found.sizes.most) == expected
    assert found.sizes.total == sums[0]
    assert np.array_equal(found.sizes.in_steps(tau).contributions, sums[1])
    assert found.sizes.heaviest == pytest.approx(heaviest, rel=1e-9)
    prices = np.random.default_rng(seed).random(own.units)
    values = np.random.default_rng(seed).random(len(own.caps)) * own.caps
    assert own.above(prices) == program.above(prices)
    assert abs(own.below(values) - program.below(values)) <= own.step * len(own.caps)
    mine_excess = Excess.of(found.sizes, tau)
    for name in ("members", "weights", "heavy", "loads", "needs"):
        assert np.array_equal(getattr(mine_excess, name), getattr(excess, name)), name
    # the numbers of units were on disk as well
    assert set(found.members.ravel().tolist()) <= set(range(found.units + 1))


@many
@given(st.integers(0, 2**32), st.integers(0, 60), st.sampled_from([2, 5, 12]), kinds)
def test_passes_end_with_the_bounds_that_are_wanted(
    small: None, seed: int, rows: int, names: int, roots: list[int]
) -> None:
    columns, counts = drawn(seed, rows, names)
    given_tau = int(np.random.default_rng(seed).integers(1, 40))
    # sums that cancel leave sets that count nothing
    found = Memberships.of(columns, roots, np.abs(counts), on_disk()).sizes
    program, gap = found.program(given_tau), given_tau * GRID // (2 * programs.SLACK)
    exact = programs.solve(program, 0, lambda: None, lambda _: False)
    deleted = deletion.solve(found, given_tau, 0, lambda: None, never)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "SIMPLEX", -1)
        patch.setattr(programs, "SIMPLEX_PAIRS", -1)
        patch.setattr(deletion, "IN_MEMORY", -1)
        patch.setattr(programs, "_Model", None)
        patch.setattr(deletion, "_Master", None)
        passed = programs.solve(program, gap, lambda: None, lambda _: False)
        gone = deletion.solve(found, given_tau, GRID // CLOSE, lambda: None, never)
    assert exact is not None
    assert passed is not None
    assert passed.lower <= exact.upper
    assert exact.lower <= passed.upper <= passed.lower + gap
    assert deleted is not None
    assert gone is not None
    assert gone.lower <= deleted.upper
    assert deleted.lower <= gone.upper <= gone.lower + GRID // CLOSE


def test_values_on_disk_are_put_in_order(small: None) -> None:
    source = np.random.default_rng(3)
    for rows in (0, 1, 5, 90, 1000):
        values = [source.integers(-rows, rows + 1, rows) for _ in range(3)]
        found = merging.distinct(values, on_disk())
        assert np.array_equal(found, np.unique(np.concatenate(values)))


def test_a_set_that_fills_buckets_is_one(small: None) -> None:
    members = np.array([[2, 5]] * 50 + [[0, 5]] * 3 + [[2, 3]] * 40, np.int32)
    found, counts = merging.merged(members, np.full(93, 2**60), 5, on_disk())
    assert found.tolist() == [[0, 5], [2, 3], [2, 5]]
    assert counts.tolist() == [2**61] * 3


def test_a_full_disk_is_an_error_before_anything_is_written(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing to a mapped file on a full disk would kill the server process."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(np, "memmap", None)
    with pytest.raises(OSError, match="full"):
        on_disk().empty(10, np.int64)


class Stop(Exception):
    """Stands for the error that the server raises at a cancel."""


@pytest.mark.parametrize("work", ["merge", "program", "packing", "deleting", "cuts"])
def test_it_can_be_cancelled_between_blocks(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """No step between two ticks works on more than a fixed number of rows."""
    left = [10**9]

    def tick() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stop

    monkeypatch.setattr(space, "BLOCK", 64)
    columns, counts = drawn(5, 3000, 200)
    where = Space(tick)
    found = Memberships.of(columns, [1, 1, 1], counts, where).sizes
    program, excess = found.program(4), Excess.of(found, 4)

    def packing() -> None:
        monkeypatch.setattr(programs, "SIMPLEX", -1)
        programs.solve(program, 1, tick, lambda _: False)

    def deleting() -> None:
        monkeypatch.setattr(deletion, "IN_MEMORY", -1)
        deletion.solve(found, 4, 1, tick, never)

    works: dict[str, Callable[[], object]] = {
        "merge": lambda: Memberships.of(columns, [1, 1, 1], counts, where),
        "program": lambda: found.program(4),
        "packing": packing,
        "deleting": deleting,
        "cuts": lambda: excess.cuts(np.arange(len(excess.heavy)), np.zeros(excess.units)),
    }
    for after in (0, 3, 9):
        left[0] = after
        with pytest.raises(Stop):
            works[work]()
        assert left[0] == -1  # it did not go on


def test_steps_draw_near_whatever_the_program(small: None) -> None:
    """The gap falls below any bound."""
    columns, counts = drawn(11, 200, 30)
    found = Memberships.of(columns, [1, 1, 1], np.abs(counts), on_disk()).part(1)
    program = found.program(10)
    best = programs._Best(program)
    for done, _ in enumerate(streamed.looks(streamed.Packing(program, best.improve))):
        if best.upper - best.lower <= GRID // 1000:
            break
        assert done < 10**4


def test_sets_that_count_nothing_do_not_keep_passes_from_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums that cancel leave such sets, also of units above the bound."""
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1
        assert ticks[0] < 10**5

    columns = [np.array([0, 0, 0, 0, 1]), np.array([1, 2, 3, 0, 2])]
    found = Memberships.of(columns, [1, 1], np.array([9, 9, 0, 3, 0]), Space(tick)).sizes
    exact = deletion.solve(found, 5, 0, tick, never)
    monkeypatch.setattr(deletion, "IN_MEMORY", -1)
    passed = deletion.solve(found, 5, GRID // CLOSE, tick, never)
    assert exact is not None
    assert passed is not None
    assert exact.lower <= passed.upper <= exact.upper + GRID // CLOSE
