"""The axis form against dense Kronecker matrices and pseudo-inverses."""

from functools import reduce
from itertools import product

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import (
    cell_variances,
    decomp,
    decompose,
    part,
    recon,
    reconstruct,
    reconstruct_all,
    sub_marginals,
)
from dpsql.workload.marginals import attributes_of, downward_closure, mask_of, shape, subsets
from dpsql.workload.residual_bases import Dense, Subtraction, subtraction

SIZES = (3, 2, 4, 1)
WHOLE = 0b1111


def kron(matrices):
    return reduce(np.kron, matrices, np.eye(1))


def dense_sub(n):
    return np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])


def hilly(n):
    """An integer basis that is not centred."""
    return Dense(np.eye(n - 1, n, dtype=int) * 5 - 2 * np.eye(n - 1, n, 1, dtype=int), 4)


def table(rng, sizes=SIZES):
    return rng.integers(0, 50, sizes).astype(np.int64)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_the_papers_example():
    # papers/aim-grem.txt, appendix A: residuals 100; 5, 9, 30; 1, 12; and a 3 x 2 table
    packed = np.array([[100, 1, 12], [5, 4, 13], [9, -6, 6], [30, 11, 13]], dtype=float)
    marginal = reconstruct(packed, [Subtraction(4), Subtraction(3)])
    assert marginal.sum() == pytest.approx(100)
    assert marginal.sum(axis=1)[1:] - marginal.sum(axis=1)[0] == pytest.approx([5, 9, 30])
    assert decompose(marginal, [Subtraction(4), Subtraction(3)]) == pytest.approx(packed)


def test_decomp_and_recon_are_the_papers_matrices(rng):
    mu = table(rng).astype(float)
    bases = subtraction(SIZES)
    for mask in subsets(WHOLE):
        matrix = kron(
            dense_sub(n) if mask >> i & 1 else np.ones((1, n)) for i, n in enumerate(SIZES)
        )
        residual = decomp(mu, WHOLE, mask, bases)
        assert residual.ravel() == pytest.approx(matrix @ mu.ravel())
        assert residual.shape == tuple(n - 1 for n in shape(SIZES, mask))
        assert part(decompose(mu, bases), WHOLE, mask) == pytest.approx(residual)
        component = recon(residual, mask, WHOLE, bases)
        assert component.ravel() == pytest.approx(np.linalg.pinv(matrix) @ residual.ravel())


@pytest.mark.parametrize("bases", [subtraction(SIZES[:3]), tuple(hilly(n) for n in SIZES[:3])])
def test_a_marginal_is_the_sum_of_its_components(rng, bases):
    mu = table(rng, SIZES[:3]).astype(float)
    whole = 0b111
    total = sum(recon(decomp(mu, whole, b, bases), b, whole, bases) for b in subsets(whole))
    assert total == pytest.approx(mu)
    assert reconstruct(decompose(mu, bases), bases) == pytest.approx(mu)


def test_components_do_not_disturb_other_residuals(rng):
    bases = (Subtraction(3), hilly(2), hilly(4))
    for mask in subsets(0b111):
        residual = rng.normal(size=[n - 1 for n in shape(SIZES[:3], mask)])
        packed = decompose(recon(residual, mask, 0b111, bases), bases)
        for other in subsets(0b111):
            wanted = residual if other == mask else 0.0 * part(packed, 0b111, other)
            assert part(packed, 0b111, other) == pytest.approx(wanted, abs=1e-9)


def test_all_marginals_of_a_closure_in_one_sweep(rng):
    cube = table(rng)
    tops = [0b0011, 0b1110]
    tables = sub_marginals(
        {m: cube.sum(axis=tuple(i for i in range(4) if not m >> i & 1)) for m in tops}, SIZES
    )
    assert list(tables) == downward_closure(tops)
    bases = subtraction(SIZES)
    residuals = {m: decomp(t.astype(float), m, m, bases) for m, t in tables.items()}
    seen = []
    for mask, estimate in reconstruct_all(residuals, tables, bases):
        outside = tuple(i for i in range(4) if not mask >> i & 1)
        assert tables[mask].dtype == np.int64
        assert np.array_equal(tables[mask], cube.sum(axis=outside))
        assert estimate == pytest.approx(tables[mask])
        seen.append(mask)
    assert seen == list(tables)


def test_a_missing_residual_counts_as_zero():
    bases = subtraction((2, 3))
    ((_, estimate),) = reconstruct_all({0: np.array(12.0)}, [0b11], bases)
    assert estimate == pytest.approx(np.full((2, 3), 2.0))


@pytest.mark.parametrize("make", [Subtraction, hilly])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_what_a_basis_promises(make, n):
    basis = make(n)
    eye = np.eye(n)
    sub, lattice = basis.sub(eye, 0), basis.lattice(np.eye(n, dtype=np.int64), 0)
    centre = basis.center(np.eye(n - 1), 0)
    null = basis.smear(np.ones((1, 1)), 0)[:, 0]
    back = basis.from_lattice(np.eye(basis.rows), 0)
    assert sub @ null == pytest.approx(np.zeros(n - 1))
    assert null.sum() == pytest.approx(1)
    assert centre.sum(axis=0) == pytest.approx(np.zeros(n - 1))
    assert sub @ centre == pytest.approx(np.eye(n - 1))
    assert back @ lattice == pytest.approx(sub)
    assert lattice.dtype == np.int64
    assert np.abs(lattice).sum(axis=1).max() <= basis.lattice_bound()
    assert float(basis.privacy) == pytest.approx((lattice**2).sum(axis=0).max() / basis.scale**2)
    # the measurement is the one with information matrix S^T G^-1 S
    noise = basis.scale**2 * back @ back.T
    information = sub.T @ np.linalg.solve(noise, sub)
    assert information == pytest.approx(lattice.T @ lattice / basis.scale**2)
    for queries in (None, np.tri(n), np.vstack([np.tri(n), np.eye(n)])):
        rows = eye if queries is None else queries
        covariance = rows @ centre @ noise @ centre.T @ rows.T
        own, spread = basis.variances(queries)
        assert own == pytest.approx(np.diag(covariance))
        assert spread == pytest.approx((rows @ null) ** 2)
        gram = None if queries is None else rows.T @ rows
        assert basis.errors(gram) == pytest.approx((own.sum(), spread.sum()))


def test_whole_cells_bring_the_same_noise_at_a_higher_cost():
    fine, whole = Subtraction(5), Subtraction(5, whole=True)
    noises = []
    for basis in (fine, whole):
        back = basis.from_lattice(np.eye(5), 0)
        lattice = basis.lattice(np.eye(5, dtype=np.int64), 0)
        assert back @ lattice == pytest.approx(basis.sub(np.eye(5), 0))
        assert float(basis.privacy) == pytest.approx(
            (lattice**2).sum(axis=0).max() / basis.scale**2
        )
        assert np.abs(lattice).sum(axis=1).max() <= basis.lattice_bound()
        noises.append(basis.scale**2 * back @ back.T)
    assert noises[0] == pytest.approx(noises[1])
    assert (float(fine.privacy), whole.privacy) == (0.8, 1)
    assert Subtraction(1, whole=True).privacy == 0
    assert [b.scale for b in subtraction((2, 16, 17), 16)] == [2, 16, 1]


def test_the_noise_of_subtraction_is_that_of_residual_planner():
    back = Subtraction(5).from_lattice(np.eye(5), 0)
    assert 25 * back @ back.T == pytest.approx(dense_sub(5) @ dense_sub(5).T)


@pytest.mark.parametrize("bases", [subtraction((3, 2, 4)), (hilly(3), Subtraction(2), hilly(4))])
def test_cell_variances_against_the_covariance(bases):
    sigmas = {mask: 0.5 + mask for mask in subsets(0b111)}
    queries = {2: np.tri(4), 0: np.array([[1.0, 1, 0], [0, 2, 1]])}
    factors = []
    for i, basis in enumerate(bases):
        n = basis.size
        back = basis.scale * basis.from_lattice(np.eye(basis.rows), 0)
        rows = queries.get(i, np.eye(n))
        factors.append((rows @ basis.smear(np.ones((1, 1)), 0), rows @ basis.center(back, 0)))
    covariance = 0
    for mask, variance in sigmas.items():
        half = kron(factors[i][mask >> i & 1] for i in range(3))
        covariance = covariance + variance * half @ half.T
    ours = cell_variances(0b111, sigmas, bases, queries)
    assert ours.shape == (2, 2, 4)
    assert ours.ravel() == pytest.approx(np.diag(covariance))


def test_monte_carlo_agrees_with_the_formula(rng):
    # 4000 draws: relative error of a variance about 2 %; 15 % is beyond 6 standard errors
    bases = (Subtraction(3), hilly(2))
    sigmas = {0: 2.0, 1: 0.5, 2: 3.0, 3: 1.0}
    draws = []
    for _ in range(4000):
        residuals = {}
        for mask, variance in sigmas.items():
            scale = np.sqrt(variance) * np.prod([bases[i].scale for i in attributes_of(mask)])
            noise = scale * rng.normal(size=[bases[i].rows for i in attributes_of(mask)])
            for axis, i in enumerate(attributes_of(mask)):
                noise = bases[i].from_lattice(noise, axis)
            residuals[mask] = np.asarray(noise)
        draws.append(next(reconstruct_all(residuals, [3], bases))[1])
    assert np.var(draws, axis=0) == pytest.approx(cell_variances(3, sigmas, bases), rel=0.15)


def test_one_level_has_no_residual():
    bases = subtraction((1, 3))
    packed = decompose(np.array([[4.0, 5, 6]]), bases)
    assert part(packed, 0b11, 0b11).shape == (0, 2)
    assert reconstruct(packed, bases) == pytest.approx(np.array([[4.0, 5, 6]]))


def test_bad_input_is_named():
    with pytest.raises(InvalidParameter, match="0 levels"):
        Subtraction(0)
    with pytest.raises(InvalidParameter, match="unmeasured"):
        Dense([[1, 1]], 1)
    with pytest.raises(InvalidParameter, match=r"not \(n - 1\) x n"):
        Dense([[1, 0], [0, 1]], 1)
    with pytest.raises(InvalidParameter, match="scale 0"):
        Dense([[1, 0]], 0)
    with pytest.raises(InvalidParameter, match="does not fit"):
        decompose(np.zeros((2, 2)), subtraction((2, 3)))
    with pytest.raises(InvalidParameter, match="has shape"):
        sub_marginals({mask_of([0]): np.zeros(3)}, (2, 3))


def test_every_axis_counts():
    """A mutant that skips an axis, or takes the wrong one, is seen."""
    rng = np.random.default_rng(3)
    mu = rng.normal(size=(3, 4))
    good = decompose(mu, subtraction((3, 4)))
    skipped = Subtraction(3).decompose(mu, 0)
    assert not np.allclose(good, skipped)
    for i, j in product(range(3), range(4)):
        moved = mu.copy()
        moved[i, j] += 1
        assert not np.allclose(decompose(moved, subtraction((3, 4))), good)
