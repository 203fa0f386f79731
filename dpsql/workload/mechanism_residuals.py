"""Mechanisms whose estimate is a set of residuals: ResidualPlanner and OPT_M.

Both know, in the end, an unbiased estimate of each residual and its variance; marginals are
reconstructed from these one at a time (`axis.reconstruct_all`), so that memory holds one marginal
whatever the domain, and agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import or_

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import reconstruct_all
from dpsql.workload.grem import Residuals, residual_variances
from dpsql.workload.marginals import (
    attributes_of,
    cells,
    downward_closure,
    shape,
    spread_down,
    subsets,
)
from dpsql.workload.matrix import Floats, Identity, QueryMatrix
from dpsql.workload.mechanism import (
    Answers,
    Budget,
    Measurement,
    Mechanism,
    digest,
    mask_of_product,
    noise_for,
    noisy,
    over_all,
    row_products,
    variance,
)
from dpsql.workload.mechanism_kronecker import MOST_CELLS, require_cells, require_levels
from dpsql.workload.opt_marginals import marginal_approximation, opt_m
from dpsql.workload.optimal_bases import optimal_bases
from dpsql.workload.residual_bases import Basis, Integers, Subtraction, along, subtraction
from dpsql.workload.residual_planner import measure, noise_shape, privacy
from dpsql.workload.spread import Form, Spread
from dpsql.workload.workload import Product, Workload

#: Levels of an attribute up to which a basis is optimised for prefixes and ranges.
MOST_OPTIMISED = 512
#: Residuals that a plan has at most: more than those of all three-way marginals of 62 attributes.
MOST_RESIDUALS = 1 << 16
#: Attributes of a domain that OPT_M looks at all sets of.
MOST_ATTRIBUTES = 14
#: Part of the budget that a marginal gets at least, or it is not measured.
LEAST_SHARE = 1e-7
#: Beginnings of OPT_M; those of so many attributes, which have more local minima (0.5 % on the
#: three-way marginals of 14).
RESTARTS = 40
MANY, MANY_RESTARTS = 12, 64


def has_few_residuals(masks: Iterable[int]) -> bool:
    """Tell whether the sets of attributes below some are few enough to look at each."""
    found: set[int] = set()
    for mask in masks:
        if mask in found:
            continue
        if 1 << mask.bit_count() > MOST_RESIDUALS:
            return False
        found.update(subsets(mask))
        if len(found) > MOST_RESIDUALS:
            return False
    return True


def require_few_residuals(masks: Iterable[int]) -> None:
    """Refuse workloads whose residuals nobody could wait for.

    Raises
    ------
    InvalidParameter
        Names the mechanism that does without.
    """
    if not has_few_residuals(masks):
        raise InvalidParameter(
            "the grouping sets have too many subsets",
            detail=f"At most {MOST_RESIDUALS} residuals are planned.",
            hint="Use mechanism => 'identity', or grouping sets of fewer keys.",
        )


def covering(shares: Mapping[int, float], masks: Iterable[int]) -> dict[int, float]:
    """Add a least share for marginals that are asked for and that no other one holds."""
    kept = dict(shares)
    for mask in sorted(masks, key=int.bit_count, reverse=True):
        if not any(mask & ~a == 0 for a in kept):
            kept[mask] = LEAST_SHARE
    return kept


def _named(basis: Basis) -> str:
    """Name what is measured of an attribute; of many levels without writing its matrix down."""
    if isinstance(basis, Subtraction):
        return f"subtraction {basis.size}{' whole' if basis.whole else ''}"
    return digest(basis.lattice(np.eye(basis.size, dtype=np.int64), 0))


class Residual(Mechanism):
    """Answers from estimated residuals and their variances."""

    _variances: dict[int, float]

    @property
    def identity(self) -> str:
        """See `Mechanism.identity`."""
        return " ".join(map(_named, self.bases))

    def _prepare(self, workload: Workload, budget: Budget, bases: Sequence[Basis]) -> None:
        self.workload, self.budget, self.bases = workload, budget, tuple(bases)
        self._known: dict[tuple[int, QueryMatrix], Floats] = {}
        if any(product.either for product in workload.products):
            raise InvalidParameter(
                "marginals do not answer conditions on one of several attributes",
                hint="Use mechanism => 'opt_kron' or 'auto'.",
            )
        self.masks = [mask_of_product(product) for product in workload.products]
        require_few_residuals(self.masks)
        for mask, product in zip(self.masks, workload.products, strict=True):
            require_cells(cells(workload.domain.sizes, mask))
            for i, factor in enumerate(product.queries.factors):
                if mask >> i & 1 and not isinstance(factor, Identity):
                    require_levels(workload.domain.sizes[i])

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`."""
        residuals, variances = self._estimates(measured)
        known: dict[int, Floats] = {}
        last = {mask: k for k, mask in enumerate(self.masks)}
        for k, (mask, product) in enumerate(zip(self.masks, self.workload.products, strict=True)):
            if mask not in known:
                known[mask] = next(reconstruct_all(residuals, [mask], self.bases))[1]
            queries = product.queries.factors
            values = over_all(known[mask], mask, len(queries))
            scale: Floats = np.ones((1,) * len(queries))
            for i, factor in enumerate(queries):
                if mask >> i & 1:
                    values = factor.matvec(values, i)
                else:
                    column = factor.dense()[:, :1]
                    values = np.moveaxis(np.tensordot(column, values, axes=(1, i)), 0, i)
                    scale = np.moveaxis(np.tensordot(column**2, scale, axes=(1, i)), 0, i)
            asked = {i: queries[i] for i in attributes_of(mask)}
            spread = self._spread(mask, asked, variances)
            yield Answers(values, np.sqrt(over_all(spread, mask, len(queries)) * scale))
            if last[mask] == k:
                del known[mask]

    def spread(self) -> Spread:
        """See `Mechanism.spread`."""
        forms = tuple(
            Form("subtraction")
            if isinstance(basis, Subtraction)
            else Form("matrix", *basis.covariance())
            for basis in self.bases
        )
        return Spread(forms, dict(self._variances))

    @property
    def plain_residuals(self) -> bool:
        """See `Mechanism.plain_residuals`."""
        return all(isinstance(basis, Subtraction) for basis in self.bases)

    def residuals(self, measured: Sequence[Floats]) -> Residuals:
        """See `Mechanism.residuals`."""
        values, variances = self._estimates(measured)
        return Residuals(self.bases, values, {b: 1 / variances[b] for b in values})

    def vector(self, measured: Sequence[Floats]) -> Floats:
        """See `Mechanism.vector`."""
        residuals, _ = self._estimates(measured)
        everything = (1 << len(self.bases)) - 1
        return next(reconstruct_all(residuals, [everything], self.bases))[1]

    def _coefficients(self, mask: int, product: Product) -> dict[int, float]:
        """Return what a unit of variance of each residual adds to a product's squared error."""
        own, spread = [], []
        scale = product.weight**2
        for i, (basis, factor) in enumerate(zip(self.bases, product.queries.factors, strict=True)):
            asked = bool(mask >> i & 1)
            plain = isinstance(factor, Identity) or not asked
            t, s = basis.errors(None if plain else factor.gram())
            own.append(t)
            spread.append(s)
            if not asked:
                scale *= float((factor.dense()[:, 0] ** 2).sum())
        return spread_down({mask: scale}, own, spread)

    def _spread(
        self, mask: int, asked: Mapping[int, QueryMatrix], variances: Mapping[int, float]
    ) -> Floats:
        """Return the variance of every query about a marginal (as `axis.cell_variances`)."""
        attributes = attributes_of(mask)
        result = np.empty((2,) * len(attributes))
        for below in subsets(mask):
            place = tuple(below >> i & 1 for i in attributes)
            result[place] = variances.get(below, 0.0)
        for axis, i in enumerate(attributes):
            key = (i, asked[i])
            if key not in self._known:
                self._known[key] = self._pair(i, asked[i])
            result = along(self._known[key], result, axis)
        return np.maximum(result, 0.0)

    def _pair(self, i: int, factor: QueryMatrix) -> Floats:
        """Return what a total and the attribute's own residual add to the variance of queries."""
        basis = self.bases[i]
        if isinstance(factor, Identity) and isinstance(basis, Subtraction):
            own, spread = basis.variances(None)
        else:
            inner, null = basis.covariance()
            own, spread = row_products(factor, factor, inner), factor.matvec(null) ** 2
        return np.stack([spread, own], 1)

    def _estimates(
        self, measured: Sequence[Floats]
    ) -> tuple[dict[int, Floats], Mapping[int, float]]:
        raise NotImplementedError


class PlannedResiduals(Residual):
    """Residuals that are each measured once, with a share of the budget."""

    def _buy(self, shares: Mapping[int, float]) -> None:
        """Set what is measured, and the variances of the residuals.

        Parameters
        ----------
        shares : mapping of mask to float
            Of the budget's loss, 1 together.
        """
        measurements = []
        self._variances = {}
        for b, share in shares.items():
            scale = math.prod(self.bases[i].scale for i in attributes_of(b))
            norm = privacy(self.bases, b) * scale**2
            # a hair less, since shares were made in floating point
            parameter, loss = noise_for(self.budget, norm, Fraction(share * (1 - 1e-12)))
            count = math.prod(noise_shape(self.bases, b))
            measurements.append(Measurement(b, count, parameter, loss))
            self._variances[b] = float(parameter / scale**2)
        self.measurements = tuple(measurements)

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        mask = self.measurements[k].mask
        return measure(table, mask, self.bases, noise.reshape(noise_shape(self.bases, mask)))

    def _estimates(
        self, measured: Sequence[Floats]
    ) -> tuple[dict[int, Floats], Mapping[int, float]]:
        masks = [m.mask for m in self.measurements]
        return dict(zip(masks, measured, strict=True)), self._variances


class ResidualMechanism(PlannedResiduals):
    """ResidualPlanner with the bases that fit the queries (Xiao et al. 2023; Gaussian noise).

    Variances are optimal in closed form for the sum of squared errors of all queries:
    ``sigma_B^2 = sqrt(p_B / v_B) r / cost`` (`residual_planner`), ``v_B`` summed over products.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost; Gaussian noise.
    tick : callable
        Called now and then; may raise to cancel.
    """

    name = "residual_planner"

    def __init__(
        self, workload: Workload, budget: Budget, tick: Callable[[], None] = lambda: None
    ) -> None:
        if budget.order != 2:
            raise InvalidParameter(
                "residual_planner needs Gaussian noise", hint="Give a delta greater than 0."
            )
        self._prepare(workload, budget, _bases(workload, tick))
        coefficients: dict[int, float] = {}
        for mask, product in zip(self.masks, workload.products, strict=True):
            tick()
            for below, value in self._coefficients(mask, product).items():
                coefficients[below] = coefficients.get(below, 0.0) + value
        prices = {b: float(privacy(self.bases, b)) for b in coefficients}
        # weights are within `MOST_RATIO`: what is 0 is asked by nobody, as the total of differences
        needed = {b: v for b, v in coefficients.items() if v > 0 and prices[b] > 0}
        root = math.fsum(math.sqrt(v * prices[b]) for b, v in needed.items())
        self._buy({b: math.sqrt(v * prices[b]) / root for b, v in needed.items()})
        self.error = math.fsum(v * self._variances[b] for b, v in needed.items())


class WeightedMarginals(Residual):
    """Marginals with independent noise on their cells, or on queries about each attribute.

    The residuals of a marginal ``a`` measured with variance ``s`` have noise of variance
    ``s prod_{i in a - B} n_i`` in the metric of the residual over ``B`` (`Basis.total` is what
    stands for ``n_i``); those of different ``B`` are uncorrelated, so inverse variances are the
    best linear weights (RECONSTRUCT of papers/hdmm.txt section 7.2, by the eigenspaces of marginal
    Gram matrices), which is what `grem.Residuals` does.
    """

    def _weigh(self) -> None:
        """Set the variances of residuals that `measurements` bring, and the expected error."""
        self._wanted = set(downward_closure(self.masks))
        precisions: dict[int, float] = {}
        for m in self.measurements:
            own = variance(self.budget.order, m.parameter)
            for b, spread in residual_variances(self.bases, m.mask, own).items():
                precisions[b] = precisions.get(b, 0.0) + 1 / spread
        if not self._wanted <= set(precisions):
            raise InvalidParameter("the strategy does not support the workload")
        self._variances = {b: 1 / precision for b, precision in precisions.items()}
        self.error = math.fsum(
            v * self._variances[b]
            for mask, product in zip(self.masks, self.workload.products, strict=True)
            for b, v in self._coefficients(mask, product).items()
        )

    def _cells(self, k: int, values: Floats) -> Floats:
        """Estimate the cells of a marginal from its measurement."""
        return values.reshape(shape(self.workload.domain.sizes, self.measurements[k].mask))

    def _estimates(
        self, measured: Sequence[Floats]
    ) -> tuple[dict[int, Floats], Mapping[int, float]]:
        found = Residuals(self.bases)
        for k, (m, values) in enumerate(zip(self.measurements, measured, strict=True)):
            own = variance(self.budget.order, m.parameter)
            found.add_marginal(m.mask, self._cells(k, values), own, self._wanted)
        return found.values, self._variances


class MarginalMechanism(WeightedMarginals):
    """OPT_M: weighted marginals, combined residual by residual.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost; either noise.
    seed : int
        Of random beginnings.
    tick : callable
        Called now and then; may raise to cancel.
    """

    name = "opt_m"

    def __init__(
        self,
        workload: Workload,
        budget: Budget,
        *,
        seed: int,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        sizes = workload.domain.sizes
        self._prepare(workload, budget, subtraction(sizes))
        if len(sizes) > MOST_ATTRIBUTES:
            raise InvalidParameter(
                "opt_m looks at all sets of attributes, and there are too many",
                detail=f"The domain has {len(sizes)} attributes; at most {MOST_ATTRIBUTES} can be.",
                hint="Use mechanism => 'residual_planner'.",
            )
        weights = marginal_approximation(
            sizes,
            [
                (product.weight**2, [_trace_and_sum(f) for f in product.queries.factors])
                for product in workload.products
            ],
        )
        restarts = RESTARTS if len(sizes) < MANY else MANY_RESTARTS
        theta = opt_m(
            sizes,
            weights,
            budget.order,
            seed=seed,
            restarts=restarts,
            most_cells=MOST_CELLS,
            tick=tick,
        ).theta
        # a marginal that gets next to nothing is not worth its noise
        shares = theta if budget.order == 1 else theta**2
        kept = covering({a: float(x) for a, x in enumerate(shares) if x > LEAST_SHARE}, self.masks)
        total = math.fsum(kept.values())
        measurements = []
        for a, share in kept.items():
            require_cells(cells(sizes, a))
            parameter, loss = noise_for(budget, Fraction(1), Fraction(share / total * (1 - 1e-12)))
            measurements.append(Measurement(a, cells(sizes, a), parameter, loss))
        self.measurements = tuple(measurements)
        self._weigh()

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        del k
        return noisy(table, noise)


def _trace_and_sum(factor: QueryMatrix) -> tuple[float, float]:
    """Return trace and sum of all entries of a Gram matrix, which is not written down."""
    ones = factor.matvec(np.ones(factor.shape[1]))
    return math.fsum(factor.column_norms(2)), float(ones @ ones)


def _bases(workload: Workload, tick: Callable[[], None]) -> tuple[Basis, ...]:
    """Choose a basis for each attribute: one that fits prefixes or ranges if these are asked."""
    sizes = workload.domain.sizes
    weights: dict[int, float] = {}
    grams: dict[int, Floats] = {}
    special: dict[int, list[tuple[float, QueryMatrix]]] = {}
    for product in workload.products:
        mask = mask_of_product(product)
        weights[mask] = weights.get(mask, 0.0) + product.weight**2
        for i in attributes_of(mask):
            special.setdefault(i, []).append((product.weight**2, product.queries.factors[i]))
    for i, asked in special.items():
        if all(isinstance(factor, Identity) for _, factor in asked):
            continue
        if sizes[i] <= MOST_OPTIMISED:
            total = sum((weight * factor.gram() for weight, factor in asked), np.zeros(()))
            grams[i] = np.asarray(total / math.fsum(weight for weight, _ in asked))
    if not grams:
        return tuple(Subtraction(n) for n in sizes)
    if reduce(or_, weights, 0) == 0:
        return tuple(Subtraction(n) for n in sizes)
    return optimal_bases(sizes, weights, grams, tick=tick)
