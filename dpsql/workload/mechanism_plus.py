"""OPT_plus: groups of products, each measured by its own Kronecker product, reconstructed together.

papers/hdmm.txt, Definition 19, reconstructs each group from its own measurement.  Here all answers
come from the least squares estimate of all measurements together (`dpsql.workload.joint`): they
agree, and their errors are at most the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from operator import or_

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.joint import best_shares, normal_inverse, terms_about
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import attributes_of, shape
from dpsql.workload.matrix import Floats, Identity, Total
from dpsql.workload.mechanism import (
    Answers,
    Budget,
    Mechanism,
    detailed,
    mask_of_product,
    over_all,
    variance,
)
from dpsql.workload.mechanism_kronecker import (
    KroneckerMechanism,
    asked_of,
    require_optimised,
    spread_evenly,
)
from dpsql.workload.mechanism_shared import shared
from dpsql.workload.opt_kron import Known, KroneckerStrategy
from dpsql.workload.opt_plus import by_attributes, opt_plus
from dpsql.workload.residual_bases import Integers
from dpsql.workload.workload import Product, Workload

#: Groups that are optimised one by one at most.
MOST_GROUPS = 16
#: Cells of a joint estimate, of which several arrays are held, and levels of an attribute.
MOST_CELLS = 1 << 23
MOST_LEVELS = 1100
#: Of workloads that ``auto`` tries by itself: attributes, levels of one that is asked by ranges,
#: and of all of these together.
QUICK_ATTRIBUTES, QUICK_LEVELS, QUICK_TOGETHER = 14, 256, 3072


class UnionMechanism(Mechanism):
    """Measure several Kronecker products, and estimate from all of them together.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost.
    strategies : sequence of Kronecker
        At least one; together they support the workload.
    shares : sequence of float
        Positive, of the budget's loss: 1 together.

    Raises
    ------
    InvalidParameter
        When the workload is not supported, or the joint estimate is not computed in this form.
    """

    name = "opt_plus"

    def __init__(
        self,
        workload: Workload,
        budget: Budget,
        strategies: Sequence[Kronecker],
        shares: Sequence[float],
    ) -> None:
        self.workload, self.budget = workload, budget
        # each with a workload of its own, which is not asked
        self.parts = [
            KroneckerMechanism(
                self.name,
                Workload(workload.domain, (Product(strategy),)),
                # a hair less, since shares were made in floating point
                replace(budget, loss=budget.loss * Fraction(share * (1 - 1e-12))),
                strategy,
            )
            for strategy, share in zip(strategies, shares, strict=True)
        ]
        self.measurements = tuple(part.measurements[0] for part in self.parts)
        # of a total alone: as of the shortest attribute, whatever that is
        shortest = min(range(len(workload.domain.sizes)), key=workload.domain.sizes.__getitem__)
        self.mask = reduce(or_, (part.mask for part in self.parts)) or 1 << shortest
        if any(mask_of_product(product) & ~self.mask for product in workload.products):
            raise InvalidParameter("the strategy does not support the workload")
        _require_joint(workload, self.mask)
        self._axes = attributes_of(self.mask)
        self._weights = [1 / variance(budget.order, m.parameter) for m in self.measurements]
        self._joint = normal_inverse([self._grams(part) for part in self.parts], self._weights)
        for product in workload.products:  # each by itself, however little it counts
            if not product.nothing:
                alone = Workload(workload.domain, (replace(product, weight=1.0),))
                self._joint.require_support(terms_about(alone, self._axes))
        self.error = self._joint.error(terms_about(workload, self._axes))

    def _grams(self, part: KroneckerMechanism) -> list[Floats]:
        sizes = self.workload.domain.sizes
        grams = []
        for i in self._axes:
            if i in part.matrices:
                exact = part.matrices[i].astype(np.float64)
                grams.append(exact.T @ exact)
            else:
                grams.append(np.eye(sizes[i]) if part.mask >> i & 1 else np.ones((sizes[i],) * 2))
        return grams

    @property
    def identity(self) -> str:
        """See `Mechanism.identity`."""
        return "; ".join(part.identity for part in self.parts)

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        return self.parts[k].measure(0, table, noise)

    def estimate(self, measured: Sequence[Floats]) -> Floats:
        """RECONSTRUCT: least squares of all measurements, on the marginal that all are about."""
        total = np.zeros(shape(self.workload.domain.sizes, self.mask))
        for part, weight, given in zip(self.parts, self._weights, measured, strict=True):
            values = given
            for axis, i in enumerate(attributes_of(part.mask)):
                if i in part.matrices:
                    moved = np.tensordot(part.matrices[i].T, values, axes=(1, axis))
                    values = np.moveaxis(moved, 0, axis)
            missing = [axis for axis, i in enumerate(self._axes) if not part.mask >> i & 1]
            total += weight * np.expand_dims(values, missing)
        return self._joint.solve(total)

    def vector(self, measured: Sequence[Floats]) -> Floats:
        """See `Mechanism.vector`."""
        return spread_evenly(self.estimate(measured), self.mask, self.workload.domain.sizes)

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`."""
        estimate = over_all(self.estimate(measured), self.mask, len(self.workload.domain.sizes))
        for product in self.workload.products:
            plus, minus = product.parts()
            values = asked_of(plus, estimate, self.mask)
            spread = self._variances(plus, plus)
            if minus is not None:
                values = values - asked_of(minus, estimate, self.mask)
                spread = spread - 2 * self._variances(plus, minus) + self._variances(minus, minus)
            yield Answers(values, np.sqrt(np.maximum(spread, 0.0)))

    def _variances(self, left: Kronecker, right: Kronecker) -> Floats:
        """Return the diagonal of the covariance, of what is summed by its coefficients."""
        chosen = [tuple(q.factors[i] for i in self._axes) for q in (left, right)]
        found = over_all(self._joint.variances(*chosen), self.mask, len(left.factors))
        for i, (a, b) in enumerate(zip(left.factors, right.factors, strict=True)):
            if not self.mask >> i & 1:
                both = a.dense()[:, 0] * b.dense()[:, 0]
                found = found * np.expand_dims(both, tuple(range(1, len(left.factors) - i)))
        return found


def plus(
    workload: Workload,
    budget: Budget,
    *,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> Mechanism:
    """Select by OPT_plus: groups with factors of their own, or sets of attributes that share them.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost.
    seed : int
        Of random beginnings.
    tick : callable
        Called now and then; may raise to cancel.
    known : Known, optional
        What was found for single attributes of the same workload.

    Raises
    ------
    InvalidParameter
        When neither form is possible; says why the first is not.
    """
    found: list[Mechanism] = []
    refused: list[InvalidParameter] = []
    for select in (partial(united, known=known), shared):
        try:
            found.append(select(workload, budget, seed=seed, tick=tick))
        except InvalidParameter as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=lambda mechanism: mechanism.error)


def worth_uniting(workload: Workload) -> bool:
    """Tell whether opt_plus can be better than others, and is quick."""
    kept = tuple(product for product in workload.products if not product.nothing)
    special = {
        i
        for product in kept
        for i, factor in enumerate(product.queries.factors)
        if not isinstance(factor, Identity | Total)
    }
    if len(kept) < 2 or not special:
        return False
    groups = len(by_attributes(Workload(workload.domain, kept)))
    sizes = workload.domain.sizes
    levels = [sizes[i] for i in special]
    small = max(levels) <= QUICK_LEVELS and sum(levels) <= QUICK_TOGETHER
    return groups > 1 and small and len(sizes) <= QUICK_ATTRIBUTES


def united(
    workload: Workload,
    budget: Budget,
    *,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> UnionMechanism:
    """Select a Kronecker product for each group of products that ask for the same attributes."""
    require_optimised(workload)
    kept = tuple(product for product in workload.products if not product.nothing)
    asked = Workload(workload.domain, kept)
    _require_joint(asked, reduce(or_, map(mask_of_product, kept)))
    if len(by_attributes(asked)) > MOST_GROUPS:
        raise InvalidParameter(
            "opt_plus optimises each group of attributes, and there are too many",
            detail=f"There are {len(by_attributes(asked))} groups; at most {MOST_GROUPS} can be.",
            hint="Use mechanism => 'auto'.",
        )
    parts = opt_plus(asked, budget.order, seed=seed, tick=tick, known=known).parts
    strategies = [part.strategy for part in parts]
    shares = _joint_shares(asked, strategies, [part.share for part in parts], budget)
    powers = [share**budget.order for share in shares]
    return UnionMechanism(workload, budget, [s.queries for s in strategies], powers)


def _require_joint(workload: Workload, mask: int) -> None:
    """Refuse a joint estimate that takes too long or too much memory."""
    sizes = shape(workload.domain.sizes, mask)
    if math.prod(sizes) > MOST_CELLS or max(sizes, default=1) > MOST_LEVELS:
        raise InvalidParameter(
            "the domain is too large for groups that are reconstructed together",
            detail=f"They are about {math.prod(sizes)} cells, and up to {max(sizes)} levels of an "
            f"attribute; at most {MOST_CELLS} cells and {MOST_LEVELS} levels can be.",
            hint="Use mechanism => 'auto'.",
        )


def _joint_shares(
    workload: Workload, found: Sequence[KroneckerStrategy], shares: list[float], budget: Budget
) -> list[float]:
    """Share the budget for the joint estimate's error."""
    factors = [strategy.queries.factors for strategy in found]
    axes = [i for i in range(len(factors[0])) if any(detailed(own[i]) for own in factors)]
    if not axes:
        return shares
    sizes = workload.domain.sizes
    known = {id(f): f.gram() for own in factors for f in own if not isinstance(f, Total)}
    grams = [
        [known[id(own[i])] if detailed(own[i]) else np.ones((sizes[i],) * 2) for i in axes]
        for own in factors
    ]
    return best_shares(grams, shares, budget.order, terms_about(workload, axes))
