"""Linear algebra in steps does what numpy does at once, and can be cancelled in between."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.workload import stepwise
from dpsql.workload.matrix import Floats
from dpsql.workload.stepwise import cholesky, cholesky_inverse, eigh, invert, matmul


class Cancelled(Exception):
    pass


def silent() -> None:
    """Tell nobody."""


def gram(kind: str, n: int, seed: int) -> Floats:
    """Make a Gram matrix of n cells."""
    random = np.random.default_rng(seed)
    if kind == "full":
        rows = random.normal(size=(n, n))
        return rows.T @ rows
    if kind == "low":
        rows = random.normal(size=(max(1, n // 3), n))
        return rows.T @ rows
    if kind == "identity":
        return np.eye(n)
    if kind == "nothing":
        return np.zeros((n, n))
    if kind == "prefixes":
        return np.minimum.outer(np.arange(n) + 1.0, np.arange(n) + 1.0)
    half = np.kron(np.ones((2, 2)), np.eye((n + 1) // 2))  # two marginals: few different values
    return np.asarray((half + np.ones(half.shape))[:n, :n])


@pytest.mark.parametrize("kind", ["full", "low", "identity", "nothing", "prefixes", "marginals"])
@pytest.mark.parametrize("n", [2, 3, 4, 63, 64, 65, 66, 67, 130, 201])
def test_eigenvectors(kind: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "MOST_AT_ONCE", 1)
    matrix = gram(kind, n, seed=n)
    before = matrix.copy()
    values, vectors = eigh(matrix, silent)
    scale = max(float(np.abs(matrix).max()), 1.0) * n
    assert (matrix == before).all()
    assert (np.diff(values) >= 0).all()
    assert np.abs(values - np.linalg.eigvalsh(matrix)).max() < 1e-13 * scale
    assert np.abs(vectors.T @ vectors - np.eye(n)).max() < 1e-12
    assert np.abs((vectors * values) @ vectors.T - matrix).max() < 1e-13 * scale


def test_small_matrices_are_left_to_numpy() -> None:
    matrix = gram("full", 20, seed=1)
    assert all(
        (a == b).all() for a, b in zip(eigh(matrix, silent), np.linalg.eigh(matrix), strict=True)
    )


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 5), (100, 40, 30), (0, 3, 2)])
def test_products(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "_WORK", 4000)
    random = np.random.default_rng(sum(shape))
    left, right = random.normal(size=shape[:2]), random.normal(size=shape[1:])
    assert np.abs(matmul(left, right, silent) - left @ right).max(initial=0) < 1e-12


def test_both_can_be_cancelled_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(stepwise, "_WORK", 4000)
    monkeypatch.setattr(stepwise, "PANEL", 8)
    matrix = gram("full", 40, seed=3)
    for work in (lambda tick: eigh(matrix, tick), lambda tick: matmul(matrix, matrix, tick)):
        calls = 0

        def count() -> None:
            nonlocal calls
            calls += 1

        work(count)
        assert calls >= 8
        for stop in range(calls):
            left = stop

            def cancel() -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Cancelled

            with pytest.raises(Cancelled):
                work(cancel)


@pytest.mark.parametrize("n", [2, 7, 8, 9, 16, 61])
def test_factors_and_inverses_by_blocks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(stepwise, "BLOCK", 8)
    matrix = gram("full", n, seed=n) + n * np.eye(n)
    before = matrix.copy()
    factor = cholesky(matrix, silent)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-10)
    np.testing.assert_allclose(cholesky_inverse(factor, silent) @ matrix, np.eye(n), atol=1e-9)
    np.testing.assert_allclose(invert(matrix) @ matrix, np.eye(n), atol=1e-9)
    assert (matrix == before).all()
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(-matrix, silent)
    singular = gram("low", n, seed=n)
    np.testing.assert_allclose(
        invert(singular), np.linalg.pinv(singular, rcond=1e-11, hermitian=True), atol=1e-7
    )


def test_factors_and_inverses_are_cancelled_between_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepwise, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(stepwise, "BLOCK", 8)
    matrix = np.eye(40)
    steps = []
    invert(matrix, lambda: steps.append(0))
    assert len(steps) > 15
    for last in (3, len(steps) - 1):
        left = iter(range(last))

        def tick(left=left) -> None:  # type: ignore[no-untyped-def]
            if next(left, None) is None:
                raise Cancelled

        with pytest.raises(Cancelled):
            invert(matrix, tick)


@pytest.mark.parametrize("n", [0, 1, 7, 50])
def test_rows_come_once_each_in_order(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "ENTRIES", 20)
    rows = np.arange(n)
    blocks = [rows[some] for some in stepwise.by_rows(np.zeros((n, 6)))]
    assert all(1 <= len(block) <= 3 for block in blocks)
    assert np.array_equal(np.concatenate([rows[:0], *blocks]), rows)


def test_symmetric_is_what_numpy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "ENTRIES", 20)
    matrix = gram("full", 12, 3)
    assert stepwise.is_symmetric(matrix, silent)
    for place in ((0, 11), (11, 0), (5, 6)):
        for value in (np.nan, np.inf, matrix[place] * 1.1 + 1):
            changed = matrix.copy()
            changed[place] = value
            assert not stepwise.is_symmetric(changed, silent)
    changed = matrix * (1 + 1e-9 * np.tri(12))
    assert stepwise.is_symmetric(changed, silent) == np.allclose(changed, changed.T)
    with pytest.raises(Cancelled):
        stepwise.is_symmetric(matrix, cancel)


def cancel() -> None:
    raise Cancelled
