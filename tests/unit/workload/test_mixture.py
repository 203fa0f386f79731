"""Mixtures fitted to residuals: slopes, objective, consistency, and when descent stops."""

from dataclasses import replace

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import mixture
from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import at_most_k_way, attributes_of
from dpsql.workload.mixture import Descent, Mixture, Settings, Targets, average, fit_mixture
from dpsql.workload.mixture_rows import count_rows, sample_rows
from dpsql.workload.residual_bases import subtraction

SIZES = (3, 2, 4, 3)


def truth(rng, components=2, total=5000.0):
    levels = tuple(rng.dirichlet(np.full(n, 0.5), components).T.astype(np.float32) for n in SIZES)
    return Mixture(levels, np.full(components, 1 / components, "f4"), total)


def measured(rng, model, order, variance):
    found = Residuals(subtraction(SIZES))
    for mask in at_most_k_way(4, order):
        table = model.marginal(mask)
        noise = rng.normal(size=table.shape) * np.sqrt(variance)
        if mask:
            changes = Residuals(found.bases).add_marginal(mask, table + noise, variance)
            found.add(mask, changes[mask], variance)
        else:
            found.add(0, table + noise, variance)
    return found


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def test_the_misfit_is_the_likelihood_of_the_residuals(rng):
    found = measured(rng, truth(rng), 3, 25.0)
    targets = Targets(found, work=1000)
    descent = Descent(targets, Settings(components=5), rng)
    model = descent.mixture()
    expected = 0.0
    for mask in found.values:
        if not mask:
            continue
        off = Residuals(found.bases).add_marginal(mask, model.marginal(mask), 1.0)[mask]
        off = off - found.values[mask]
        v = np.eye(1)
        for i in attributes_of(mask):
            d = np.hstack([-np.ones((SIZES[i] - 1, 1)), np.eye(SIZES[i] - 1)])
            v = np.kron(v, d @ d.T)
        expected += found.precisions[mask] * off.reshape(-1) @ np.linalg.solve(v, off.reshape(-1))
    assert descent.step() == pytest.approx(expected, rel=1e-3)
    dof = sum(np.prod([SIZES[i] - 1 for i in attributes_of(m)]) for m in found.values if m)
    assert targets.freedom == dof


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_slopes_against_differences(rng, order):
    found = measured(rng, truth(rng), order, 25.0)
    targets = Targets(found, work=1000)
    assert bool(targets.more) == (order > 2)
    descent = Descent(targets, Settings(components=3), rng)
    levels, weights = (x.astype(np.float64) for x in descent._shares())
    for name in ("one", "one_precision"):
        setattr(targets, name, getattr(targets, name).astype(np.float64))
    misfit, by_level, by_weight = descent.slope(levels, weights)
    assert misfit > 0
    for _ in range(15):
        row, k = rng.integers(levels.shape[0]), rng.integers(3)
        for values, slope, where in (
            (levels, by_level[row, k], (row, k)),
            (weights, by_weight[k], k),
        ):
            step = 1e-5
            around = []
            for sign in (1, -1):
                values[where] += sign * step
                around.append(descent.slope(levels, weights)[0])
                values[where] -= sign * step
            expected = (around[0] - around[1]) / (4 * step)
            assert slope == pytest.approx(expected, rel=1e-3, abs=1e-4 * np.abs(by_level).max())


def test_a_fit_recovers_the_marginals_it_was_not_told(rng):
    model = truth(rng)
    found = measured(rng, model, 2, 4.0)
    fitted = fit_mixture(found, Settings(components=16, members=8))
    for mask in at_most_k_way(4, 3):
        off = np.abs(fitted.marginal(mask) - model.marginal(mask)).sum() / model.total
        assert off < 0.05


def test_tables_are_non_negative_and_agree(rng):
    fitted = fit_mixture(measured(rng, truth(rng), 2, 400.0), Settings(components=4, members=3))
    assert fitted.weights.shape == (12,)
    whole = fitted.marginal(0b1111)
    assert whole.min() >= 0
    for mask in at_most_k_way(4, 3):
        outside = tuple(i for i in range(4) if not mask >> i & 1)
        np.testing.assert_allclose(
            fitted.marginal(mask), whole.sum(axis=outside), rtol=1e-3, atol=0.1
        )


def test_descent_stops_at_the_noise(rng):
    """With noise alone the start is as good as the truth, so no step is taken."""
    found = measured(rng, truth(rng, components=1), 2, 1e6)
    steps = []
    fit_mixture(found, Settings(members=1, stop=1.5), tick=lambda: steps.append(1))
    assert len(steps) < 5
    steps.clear()
    fit_mixture(
        found, Settings(members=1, stop=0.0, steps=30, most=32), tick=lambda: steps.append(1)
    )
    assert len(steps) == 30


def test_the_same_seed_gives_the_same_fit(rng):
    found = measured(rng, truth(rng), 2, 25.0)
    settings = Settings(components=4, members=2, steps=20)
    one, two, other = (fit_mixture(found, settings, seed=s).marginal(3) for s in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()


def test_marginals_are_sums_of_products_also_in_chunks(rng, monkeypatch):
    model = truth(rng, components=5)
    expected = np.einsum("k,ak,bk,ck,dk->abcd", model.weights, *model.levels) * model.total
    for chunk in (1, 40, 1 << 20):
        monkeypatch.setattr(mixture, "_CHUNK", chunk)
        np.testing.assert_allclose(model.marginal(15), expected, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(model.marginal(9), expected.sum(axis=(1, 2)), rtol=1e-4)
    assert model.marginal(0) == pytest.approx(model.total)


def test_averages_are_averages_of_marginals(rng):
    one, two = truth(rng), truth(rng, components=3)
    both = average([one, two])
    expected = (one.marginal(0b1011) + two.marginal(0b1011)) / 2
    np.testing.assert_allclose(both.marginal(0b1011), expected, rtol=1e-4, atol=1e-2)


def test_higher_residuals_are_limited_to_the_work_and_to_what_they_tell(rng):
    found = measured(rng, truth(rng), 3, 25.0)
    cells = [24, 18, 36, 24]  # of the four triples
    assert len(Targets(found, work=sum(cells)).more) == 4
    assert len(Targets(found, work=sum(cells) - 1).more) < 4
    found = measured(rng, truth(rng), 3, 1e7)
    assert not Targets(found, work=1000).more


def test_domains_of_too_many_levels_are_refused(monkeypatch, rng):
    monkeypatch.setattr(mixture, "MAX_LEVELS", 11)
    with pytest.raises(InvalidParameter):
        fit_mixture(measured(rng, truth(rng), 1, 1.0))


def test_the_total_is_needed():
    with pytest.raises(InvalidParameter):
        fit_mixture(Residuals(subtraction(SIZES)))


def test_attributes_of_one_level_and_negative_totals(rng):
    found = Residuals(subtraction((3, 1)))
    found.add(0, np.array(-5.0), 1.0)
    found.add(1, np.array([1.0, 2.0]), 1.0)
    fitted = fit_mixture(found, Settings(members=1, steps=3))
    assert fitted.total == 1.0
    assert fitted.marginal(3).shape == (3, 1)
    assert fitted.marginal(0) == pytest.approx(1.0)


def test_rows_are_spread_over_the_levels_as_the_model_says(rng):
    model = truth(rng, components=3, total=999.6)
    rows = sample_rows(model)
    assert rows.shape == (1000, 4)
    counted = count_rows(rows, SIZES, at_most_k_way(4, 4))
    for mask, table in counted.items():
        assert table.sum() == 1000
        if mask.bit_count() == 1:  # up or down by one in each component
            assert np.abs(table - model.marginal(mask)).max() < 3 + 3 + 1
    assert np.abs(counted[3] - model.marginal(3)).sum() < 150
    assert (counted[3] == counted[7].sum(axis=2)).all()
    assert (sample_rows(model) == rows).all()
    assert not sample_rows(Mixture(model.levels, model.weights, 0.2)).size


def test_a_fit_grows_until_it_reaches_the_noise(rng):
    found = measured(rng, truth(rng, components=6, total=1e6), 2, 1e-2)
    settings = Settings(components=1, most=4, members=2, steps=20)
    assert fit_mixture(found, settings).weights.size == 2 * 4
    # 12 cells of single attributes and 53 of pairs, 20 steps: what one component takes
    one = 6.0 * (12 + 53) * 20
    assert fit_mixture(found, replace(settings, effort=one)).weights.size == 1
    assert fit_mixture(found, replace(settings, effort=5 * one)).weights.size == 2 * 2
    assert fit_mixture(found, replace(settings, effort=4 * one)).weights.size == 2 * 1
    found = measured(rng, truth(rng), 2, 1e6)
    assert fit_mixture(found, settings).weights.size == 2 * 1
