"""Single-pair Gram matrices: found where they are, and nowhere else; quick and the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.workload import opt0_gaussian as gaussian
from dpsql.workload.matrix import (
    AllRange,
    Identity,
    Permuted,
    Prefix,
    QueryMatrix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.opt0_laplace import opt0_laplace, p_identity_objective
from dpsql.workload.single_pair import SinglePair


def permuted(matrix: QueryMatrix, seed: int) -> Permuted:
    order = np.random.default_rng(seed).permutation(matrix.shape[1])
    return Permuted(matrix, tuple(int(i) for i in order))


@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_prefixes_and_ranges_are_found_in_any_order(n: int, seed: int, ranges: bool) -> None:
    gram = permuted(AllRange(n) if ranges else Prefix(n), seed).gram()
    pair = SinglePair.of(gram)
    assert pair is not None
    rows = np.random.default_rng(seed).normal(size=(3, n))
    assert np.allclose(pair.multiply(rows), rows @ gram, rtol=1e-9, atol=1e-9 * gram.max())
    diagonal, beside = pair.inverse()
    inverse = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    ordered = gram[np.ix_(pair.order, pair.order)]
    assert np.allclose(inverse @ ordered, np.eye(n), atol=1e-8)


@given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.booleans())
def test_eigenvalues_and_vectors(n: int, seed: int, ranges: bool) -> None:
    gram = permuted(AllRange(n) if ranges else Prefix(n), seed).gram()
    pair = SinglePair.of(gram)
    assert pair is not None
    values, vectors = pair.eigh()
    assert np.allclose(values, np.linalg.eigvalsh(gram), rtol=1e-9)
    assert np.allclose(pair.eigenvalues(), values, rtol=1e-9)
    assert np.allclose((vectors * values) @ vectors.T, gram, atol=1e-9 * gram.max())


@given(st.integers(2, 20), st.integers(0, 2**32 - 1))
def test_any_two_vectors(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    first, last = np.cumsum(random.uniform(0.1, 1, n)), np.cumsum(random.uniform(0.1, 1, n))[::-1]
    gram = np.minimum(np.outer(first, last), np.outer(last, first))
    pair = SinglePair.of(gram)
    assert pair is not None
    rows = random.normal(size=(2, n))
    assert np.allclose(pair.multiply(rows), rows @ gram)


@pytest.mark.parametrize(
    "matrix",
    [
        Identity(6),
        Total(6),
        Width(9, 4),
        Stacked.of(Identity(8), Prefix(8)),
        Stacked.of(Prefix(8), permuted(Prefix(8), 1)),
    ],
)
def test_others_are_not_taken_for_one(matrix: QueryMatrix) -> None:
    assert SinglePair.of(matrix.gram()) is None


def test_an_entry_that_is_off_is_seen() -> None:
    gram = Prefix(50).gram()
    for i, j in [(0, 49), (20, 30), (7, 8)]:
        other = gram.copy()
        other[i, j] = other[j, i] = gram[i, j] * (1 + 1e-9)
        assert SinglePair.of(other) is None


def test_a_nearly_singular_one_is_refused() -> None:
    assert SinglePair.of(np.array([[2.0, 1.0], [1.0, 2.0]])) is not None
    assert SinglePair.of(np.array([[1.0, 1 - 1e-12], [1 - 1e-12, 1.0]])) is None


@pytest.mark.parametrize("matrix", [Prefix(600), permuted(AllRange(600), 2)])
def test_opt0_for_gaussian_noise_is_the_same(
    matrix: QueryMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    gram = matrix.gram()
    quick = opt0_gaussian(gram, gap=1e-6)
    monkeypatch.setattr(gaussian.SinglePair, "of", lambda *_: None)
    slow = opt0_gaussian(gram, gap=1e-6)
    assert quick.error == pytest.approx(slow.error, rel=2e-6)
    assert quick.bound == pytest.approx(slow.bound, rel=2e-6)
    assert quick.error == pytest.approx(np.vdot(np.linalg.inv(quick.gram), gram), rel=1e-6)


@pytest.mark.parametrize("n", [600, 512, 301, 3])
def test_mirrored_workloads_are_decomposed_by_halves(n: int) -> None:
    matrix = np.random.default_rng(n).normal(size=(n, n))
    matrix = matrix @ matrix.T
    matrix = matrix + matrix[::-1, ::-1]
    values, vectors = gaussian._mirrored_eigh(matrix, lambda: None)
    assert np.allclose((vectors * values) @ vectors.T, matrix, atol=1e-8 * n)
    assert np.allclose(vectors.T @ vectors, np.eye(n), atol=1e-9)


def test_a_mirrored_workload_has_the_same_optimum() -> None:
    gram = Width(520, 32).gram()
    found = opt0_gaussian(gram)
    assert gaussian._Problem.of(gram).mirrored
    shuffled = opt0_gaussian(permuted(Width(520, 32), 3).gram())
    assert found.gap < 2e-4
    assert found.error == pytest.approx(shuffled.error, rel=3e-4)


def test_the_objective_for_laplace_noise_is_the_same() -> None:
    gram = permuted(AllRange(64), 4).gram()
    theta = np.random.default_rng(5).random(4 * 64)
    value, slope = p_identity_objective(gram)(theta)
    quick, quick_slope = p_identity_objective(gram, SinglePair.of(gram))(theta)
    assert quick == pytest.approx(value, rel=1e-12)
    assert np.allclose(quick_slope, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())


def test_the_tree_follows_the_order() -> None:
    straight, shuffled = (
        opt0_laplace(matrix.gram(), seed=1, restarts=1, iterations=60).error
        for matrix in (AllRange(512), permuted(AllRange(512), 6))
    )
    assert shuffled == pytest.approx(straight, rel=0.01)
