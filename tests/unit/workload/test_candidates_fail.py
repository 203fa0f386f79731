"""A solver that fails, and weights that are out of range."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import candidates as module
from dpsql.workload.candidates import DATA_INDEPENDENT, SelectionFailed, candidates, make
from dpsql.workload.mechanism import Budget
from tests.unit.workload import asked

CUBE = asked.marginals((3, 2), 0, 1, 2, 3)
BUDGET = Budget(1, Fraction(1))


@pytest.mark.parametrize(
    "error",
    [
        np.linalg.LinAlgError("did not converge"),
        OverflowError("too large"),
        FloatingPointError(),
        ZeroDivisionError("by zero"),
        MemoryError(),
    ],
)
def test_a_solver_that_fails_leaves_the_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_keys: object) -> None:
        raise error

    monkeypatch.setattr(module, "kronecker", fails)
    found, refused = candidates(CUBE, [BUDGET])
    assert {m.name for m in found} >= {"identity", "opt_m"}
    assert [n for n, _, e in refused if isinstance(e, SelectionFailed)] == ["opt_kron"]


def test_an_error_that_is_no_number_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = module.identity

    def broken(*given: object) -> object:
        mechanism = right(*given)  # type: ignore[arg-type]
        mechanism.error = float(np.float64(1e300) * 1e300 - np.float64(1e300) * 1e300)
        return mechanism

    monkeypatch.setattr(module, "identity", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing for the server's log
        _, refused = candidates(CUBE, [BUDGET])
    assert [n for n, _, e in refused if isinstance(e, SelectionFailed)] == ["identity"]


def test_a_refusal_is_no_failure() -> None:
    _, refused = candidates(CUBE, [BUDGET])
    assert refused
    assert not any(isinstance(error, SelectionFailed) for _, _, error in refused)


def test_other_errors_are_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def cancelled() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        candidates(CUBE, [BUDGET], cancelled)


@pytest.mark.parametrize("weights", [(1e-7, 1.0), (1.0, -1e7), (1e-90, 1e-99)])
def test_weights_too_far_apart_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidParameter, match="weights of queries differ too much"):
        asked.marginals((3, 2), 1, 2, weights=weights)


@pytest.mark.parametrize("weight", [1e154, -1e300, 1e-300, 5e-324])
def test_weights_that_cannot_be_squared_are_refused(weight: float) -> None:
    with pytest.raises(InvalidParameter, match="weight of a product of queries is out of range"):
        asked.marginals((3, 2), 1, 2, weights=(weight, weight))


def test_only_the_ratio_of_weights_matters() -> None:
    for name in DATA_INDEPENDENT:
        for order in (1, 2):
            errors = []
            for scale in (2.0**-300, 1.0, 2.0**300):  # exact, so that every step is the same
                workload = asked.marginals((3, 2), 1, 2, weights=(scale, 3 * scale))
                try:
                    found = make(name, workload, Budget(order, Fraction(1)))  # type: ignore[arg-type]
                except InvalidParameter:
                    continue
                assert found.workload is workload
                errors.append(found.error / scale**2)
            assert errors == pytest.approx([errors[0]] * 3 if errors else [], rel=1e-9)


@pytest.mark.parametrize("loss", [700, 2000, 10**6])
def test_noise_that_is_never_seen_is_no_failure(loss: int) -> None:
    found, refused = candidates(CUBE, [Budget(1, Fraction(loss)), Budget(2, Fraction(loss))])
    assert len(found) >= 8
    assert not any(isinstance(error, SelectionFailed) for _, _, error in refused)
