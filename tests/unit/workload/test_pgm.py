"""Graphical models: the nearest distribution to noisy residuals, of largest entropy, and its size."""

import math
import random
import sys

import numpy as np
import pytest

from dpsql.errors import InvalidParameter, ReleaseFailed
from dpsql.workload import junction_tree as trees
from dpsql.workload import mbi_loaded, pgm
from dpsql.workload.axis import decomp, recon
from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import junction_tree, model_cells
from dpsql.workload.marginals import attributes_of, cells, k_way, mask_of
from dpsql.workload.pgm import Settings, fit_model
from dpsql.workload.residual_bases import Dense, subtraction

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11")

SIZES = (3, 2, 4, 3)
BASES = subtraction(SIZES)
_misfit = pgm.misfit
EXACT = Settings(steps=5000, gain=1e-9, stop=0.0)


def count(data, mask):
    return data.sum(axis=tuple(i for i in range(data.ndim) if not mask >> i & 1))


def noisy(masks, variance, seed=0, rows=500, concentration=0.3):
    rng = np.random.default_rng(seed)
    cells_ = math.prod(SIZES)
    data = rng.multinomial(rows, rng.dirichlet(np.full(cells_, concentration))).reshape(SIZES)
    found = Residuals(BASES)
    for mask in masks:
        table = count(data, mask)
        found.add_marginal(mask, table + rng.normal(0, math.sqrt(variance), table.shape), variance)
    return found


def dense(residuals):
    """Write the misfit as |A x - y|^2 over the data vector x, independently of pgm's centring."""
    number = math.prod(SIZES)
    rows, values = [], []
    for mask, value in residuals.values.items():
        if not mask:
            continue
        parts = []
        for cell in range(number):
            one = np.zeros(number)
            one[cell] = 1
            table = one.reshape(SIZES)
            parts.append(decomp(table, 15, mask, BASES).reshape(-1))
        matrix = np.array(parts).T
        unit = np.eye(math.prod(SIZES[i] for i in attributes_of(mask)))
        shape = [SIZES[i] for i in attributes_of(mask)]
        below = np.array([decomp(u.reshape(shape), mask, mask, BASES).reshape(-1) for u in unit]).T
        half = np.linalg.inv(np.linalg.cholesky(below @ below.T))  # whitens S S^T
        scale = math.sqrt(residuals.precisions[mask])
        rows.append(scale * half @ matrix)
        values.append(scale * half @ value.reshape(-1))
    return np.concatenate(rows), np.concatenate(values)


def simplex_fit(residuals):
    """Minimise the dense misfit over non-negative vectors with the measured total."""
    from scipy.optimize import nnls

    matrix, values = dense(residuals)
    heavy = 1e4
    total = float(residuals.values[0])
    ones = np.full((1, matrix.shape[1]), heavy)
    found, _ = nnls(np.vstack([matrix, ones]), np.append(values, heavy * total), maxiter=100_000)
    return found.reshape(SIZES)


@pytest.mark.parametrize(
    ("masks", "variance"),
    [((0b0011, 0b0110, 0b1100), 9.0), ((0b0111, 0b1100), 25.0), ((0b0011, 0b1100), 400.0)],
)
def test_the_fit_is_the_nearest_distribution(masks, variance):
    """All variances differ here: of a total, of single attributes, of pairs, of averages."""
    residuals = noisy(masks, variance)
    model = fit_model(residuals, EXACT)
    nearest = simplex_fit(residuals)
    matrix, values = dense(residuals)
    chi2 = [
        float(((matrix @ x.reshape(-1) - values) ** 2).sum()) for x in (model.marginal(15), nearest)
    ]
    assert chi2[0] == pytest.approx(chi2[1], rel=1e-3, abs=1e-2)
    for mask in masks:
        assert np.abs(model.marginal(mask) - count(nearest, mask)).max() < 1
        assert model.marginal(mask).min() >= 0


def test_without_a_bound_in_the_way_the_fit_is_generalised_least_squares():
    """Much more data than noise: raw tables are positive, and the fit is they."""
    residuals = noisy((0b0011, 0b0110, 0b1100), 4.0, rows=100_000, concentration=50.0)
    model = fit_model(residuals, EXACT)
    for mask in (0b0011, 0b0110, 0b1100, 0b0001):
        ((_, raw),) = residuals.marginals([mask])
        assert raw.min() > 0
        assert np.abs(model.marginal(mask) - raw).max() < 1


def test_a_wrong_weight_would_be_seen():
    """A mutant: all precisions alike."""
    residuals = noisy((0b0111, 0b1100), 400.0, rows=100)
    for mask in (0b0001, 0b0010, 0b0100):
        residuals.add_marginal(mask, np.full([SIZES[i] for i in attributes_of(mask)], 40.0), 0.1)
    right = fit_model(residuals, EXACT)
    alike = Residuals(BASES, residuals.values, dict.fromkeys(residuals.values, 0.01))
    wrong = fit_model(alike, EXACT)
    matrix, values = dense(residuals)
    chi2 = [
        float(((matrix @ m.marginal(15).reshape(-1) - values) ** 2).sum()) for m in (right, wrong)
    ]
    least = float(((matrix @ simplex_fit(residuals).reshape(-1) - values) ** 2).sum())
    assert chi2[0] < 1.02 * least
    assert chi2[1] > 100 * least


def test_what_was_not_measured_has_the_largest_entropy():
    """A chain of pairs: iterated proportional fitting from the uniform is the dense answer."""
    masks = (0b0011, 0b0110, 0b1100)
    model = fit_model(noisy(masks, 1.0, rows=5000, concentration=5.0), EXACT)
    table = np.full(SIZES, model.total / math.prod(SIZES))
    for _ in range(2000):
        for mask in masks:
            outside = [i for i in range(4) if not mask >> i & 1]
            wanted, found = (
                np.expand_dims(t, outside) for t in (model.marginal(mask), count(table, mask))
            )
            table = table * wanted / found
    assert np.abs(model.marginal(15) - table).max() < 1e-6 * model.total


def test_marginals_agree_and_are_not_negative():
    residuals = noisy((0b0011, 0b0101, 0b0110, 0b1000), 100.0, rows=60)
    model = fit_model(residuals)
    whole = model.marginal(15)
    assert whole.min() >= 0
    assert whole.sum() == pytest.approx(max(1.0, float(residuals.values[0])))
    for mask in range(16):
        assert np.abs(model.marginal(mask) - count(whole, mask)).max() < 1e-6


def test_a_fit_ends_at_the_noise():
    """Who fits better than the degrees of freedom fits noise."""
    residuals = noisy((0b0011, 0b0110, 0b1100), 100.0)
    matrix, values = dense(residuals)
    steps = []
    model = fit_model(residuals, tick=lambda: steps.append(1))
    chi2 = float(((matrix @ model.marginal(15).reshape(-1) - values) ** 2).sum())
    assert chi2 <= 1.05 * len(values)
    assert len(steps) < 20


def test_nothing_but_the_total_or_attributes_of_one_level():
    bases = subtraction((2, 1, 3))
    residuals = Residuals(bases)
    residuals.add(0, np.array(60.0), 1.0)
    assert fit_model(residuals).marginal(0b111) == pytest.approx(np.full((2, 1, 3), 10.0))
    residuals.add_marginal(0b011, np.array([[45.0], [15.0]]), 1.0)
    model = fit_model(residuals, EXACT)
    assert model.marginal(0b001) == pytest.approx([45, 15], abs=0.1)
    assert model.marginal(0b110) == pytest.approx(np.full((1, 3), 20.0), abs=0.1)


def test_empty_data_gives_a_model():
    residuals = Residuals(BASES)
    residuals.add(0, np.array(-3.0), 1.0)
    residuals.add(0b0011, np.full((2, 1), -5.0), 2.0)
    table = fit_model(residuals).marginal(0b0011)
    assert table.min() >= 0
    assert table.sum() == pytest.approx(1.0)


def test_it_is_cancelled_between_steps():
    calls = []

    def tick():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_model(noisy((0b0011, 0b0110), 9.0), EXACT, tick=tick)
    assert len(calls) == 3


def test_a_fit_that_breaks_down_publishes_nothing(monkeypatch):
    monkeypatch.setattr(pgm, "misfit", lambda *given: math.nan * _misfit(*given))
    with pytest.raises(ReleaseFailed, match="broke down"):
        fit_model(noisy((0b0011,), 9.0), Settings(steps=100))


def test_what_no_model_is_fitted_to():
    residuals = Residuals(BASES)
    residuals.add(0b0001, np.zeros(2), 1.0)
    with pytest.raises(InvalidParameter, match="total"):
        fit_model(residuals)
    other = Residuals((Dense(np.array([[1, -1]]), 1),))
    other.add(0, np.array(1.0), 1.0)
    with pytest.raises(InvalidParameter, match="subtraction"):
        fit_model(other)


def test_models_too_large_are_refused_with_their_size():
    sizes = (1000, 1000, 1000)
    pgm.require_model(sizes, [0b011, 0b110])
    with pytest.raises(InvalidParameter, match=r"would take 7629\.4 MB"):
        pgm.require_model(sizes, k_way(3, 2))


def test_without_mbi_it_is_said_what_to_install(monkeypatch):
    for name in ("mbi", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InvalidParameter) as refused:
            mbi_loaded.require_mbi()
        assert "make extras" in (refused.value.hint or "")
        monkeypatch.undo()
    mbi_loaded.require_mbi()


def random_tree(random_):
    sizes = [random_.randint(1, 4) for _ in range(random_.randint(1, 6))]
    masks = [random_.randrange(1 << len(sizes)) for _ in range(random_.randint(0, 5))]
    return sizes, masks


def test_marginals_of_a_tree_are_those_of_its_product(monkeypatch):
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(60):
        sizes, masks = random_tree(random_)
        tree = junction_tree(sizes, masks)
        several = mask_of(i for i, n in enumerate(sizes) if n > 1)
        assert all(tree.clique_of(mask & several) is not None for mask in masks)
        assert model_cells(sizes, masks) == sum(cells(sizes, c) for c in tree.cliques)
        whole = np.ones(sizes)
        for clique in tree.cliques:
            shape = [n if clique >> i & 1 else 1 for i, n in enumerate(sizes)]
            whole = whole * (0.1 + rng.random(shape)) * (rng.random(shape) > 0.1)
        tables = {clique: count(whole, clique) for clique in tree.cliques}
        for most in (1 << 25, 2):
            monkeypatch.setattr(trees, "MOST_AT_ONCE", most)
            for mask in range(1 << len(sizes)):
                found = tree.marginal(tables, mask)
                assert found.shape == count(whole, mask).shape
                assert np.allclose(found, count(whole, mask), atol=1e-9)


def test_trees_of_chains_and_stars_have_no_other_tables():
    chain = [0b00011, 0b00110, 0b01100, 0b11000]
    assert model_cells((100, 2, 2, 2, 100), chain) == 200 + 4 + 4 + 200
    star = [0b00011, 0b00101, 0b01001, 0b10001]
    assert model_cells((2, 100, 100, 3, 3), star) == 200 + 200 + 6 + 6
    ring = [*chain, 0b10001]
    assert model_cells((5,) * 5, ring) == 3 * 125


def test_centred_tables_of_residuals_are_what_descent_compares():
    rng = np.random.default_rng(1)
    table = rng.normal(size=SIZES)
    residual = decomp(table, 15, 15, BASES)
    assert np.allclose(pgm.centred(table), recon(residual, 15, 15, BASES))
