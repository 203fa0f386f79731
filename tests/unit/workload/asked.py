"""Workloads as releases ask them, drawn at random; and what a mechanism does, seen from outside."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

import numpy as np

from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import attributes_of
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Floats,
    Identity,
    Order,
    Prefix,
    QueryMatrix,
    Total,
    Width,
)
from dpsql.workload.mechanism import Mechanism, variance
from dpsql.workload.mechanism_residuals import ResidualMechanism
from dpsql.workload.residual_bases import Integers
from dpsql.workload.workload import Product, Workload


def workload(
    sizes: Sequence[int],
    *products: Sequence[QueryMatrix],
    weights: Sequence[float] | None = None,
    either: Sequence[tuple[int, ...]] | None = None,
) -> Workload:
    """Unite products over attributes of these sizes."""
    domain = Domain(tuple(f"a{i}" for i in range(len(sizes))), tuple(sizes))
    united = [
        Product(
            Kronecker(tuple(factors)),
            1.0 if weights is None else weights[n],
            () if either is None else either[n],
        )
        for n, factors in enumerate(products)
    ]
    return Workload(domain, tuple(united))


def marginals(
    sizes: Sequence[int], *masks: int, weights: Sequence[float] | None = None
) -> Workload:
    """Ask for marginals, as CUBE and ROLLUP do."""
    products = [
        [Identity(n) if mask >> i & 1 else Total(n) for i, n in enumerate(sizes)] for mask in masks
    ]
    return workload(sizes, *products, weights=weights)


def drawn(random_: random.Random) -> Workload:
    """Draw a workload: marginals, prefixes, ranges, conditions, disjunctions and weights."""
    sizes = [random_.choice([1, 2, 3, 4]) for _ in range(random_.randint(1, 3))]
    products, weights, either = [], [], []
    for _ in range(random_.randint(1, 4)):
        factors: list[QueryMatrix] = []
        for n in sizes:
            width = random_.randint(1, n)
            kinds: list[QueryMatrix] = [Identity(n), Identity(n), Total(n), Total(n), Prefix(n)]
            factor = random_.choice([*kinds, AllRange(n), Width(n, width)])
            if random_.random() < 0.3:
                factor = Dense(factor.dense() * [random_.random() < 0.7 for _ in range(n)])
                if not factor.dense().any():
                    factor = Total(n)
            factors.append(factor)
        apart: tuple[int, ...] = ()
        if len(sizes) > 1 and random_.random() < 0.3:
            apart = tuple(random_.sample(range(len(sizes)), 2))
            for i in apart:
                held = [[float(random_.random() < 0.5) for _ in range(sizes[i])]]
                factors[i] = Dense(np.array(held))
        products.append(factors)
        weights.append(random_.choice([1.0, 1.0, 0.5, 3.0]))
        either.append(apart)
    return workload(sizes, *products, weights=weights, either=either)


def marginal(table: Integers, mask: int) -> Integers:
    """Count by the attributes of a mask."""
    others = tuple(i for i in range(table.ndim) if i not in attributes_of(mask))
    return np.asarray(table.sum(axis=others))


def measured(
    mechanism: Mechanism, table: Integers, noise: Sequence[Integers] | None = None
) -> list[Floats]:
    """Measure a table; without noise unless some is given."""
    return [
        mechanism.measure(
            k,
            marginal(table, m.mask),
            np.zeros(m.count, dtype=np.int64) if noise is None else noise[k],
        )
        for k, m in enumerate(mechanism.measurements)
    ]


def answers(
    mechanism: Mechanism, table: Integers, noise: Sequence[Integers] | None = None
) -> Floats:
    """Return all answers, product after product."""
    found = mechanism.answers(measured(mechanism, table, noise))
    rows = [p.queries.rows for p in mechanism.workload.products]
    return np.concatenate(
        [np.broadcast_to(a.values, r).ravel() for a, r in zip(found, rows, strict=True)]
    )


def errors(mechanism: Mechanism) -> Floats:
    """Return all standard errors, product after product."""
    table = np.zeros(mechanism.workload.domain.sizes, dtype=np.int64)
    rows = [p.queries.rows for p in mechanism.workload.products]
    found = mechanism.answers(measured(mechanism, table))
    return np.concatenate(
        [np.broadcast_to(a.errors, r).ravel() for a, r in zip(found, rows, strict=True)]
    )


def truth(asked: Workload, table: Integers) -> Floats:
    """Answer the queries, without weights, one by one from the cells."""
    return dense(asked) @ table.ravel()


def dense(asked: Workload) -> Floats:
    """Write all queries down, as their definition says: products, of disjunctions the union."""
    rows = []
    for product in asked.products:
        apart = set(product.either)
        factors = [f.dense() for f in product.queries.factors]
        both = reduce(
            np.kron, [np.ones_like(f) if i in apart else f for i, f in enumerate(factors)]
        )
        if apart:
            none = reduce(
                np.kron, [1 - f if i in apart else np.ones_like(f) for i, f in enumerate(factors)]
            )
            both = both * (1 - none)
        rows.append(both)
    return np.concatenate(rows)


def weights_of(asked: Workload) -> Floats:
    """Return the weight of every query."""
    return np.concatenate([np.full(p.queries.shape[0], p.weight) for p in asked.products])


def response(mechanism: Mechanism) -> tuple[Floats, Floats]:
    """Return what each number of noise does to each answer, and the variance of each number."""
    table = np.zeros(mechanism.workload.domain.sizes, dtype=np.int64)
    start = answers(mechanism, table)
    columns, spread = [], []
    for k, m in enumerate(mechanism.measurements):
        for place in range(m.count):
            noise = [np.zeros(other.count, dtype=np.int64) for other in mechanism.measurements]
            noise[k][place] = 1
            columns.append(answers(mechanism, table, noise) - start)
            spread.append(variance(mechanism.budget.order, m.parameter))
    return np.array(columns).T, np.array(spread)


def shift(mechanism: Mechanism, k: int, change: Integers) -> Integers:
    """Return by how much a change of the cells moves the k-th integer vector, exactly."""
    own = marginal(change, mechanism.measurements[k].mask)
    if isinstance(mechanism, ResidualMechanism):
        for axis, i in enumerate(attributes_of(mechanism.measurements[k].mask)):
            own = mechanism.bases[i].lattice(own, axis)
        return own.ravel()
    moved = mechanism.measure(k, own, np.zeros(mechanism.measurements[k].count, dtype=np.int64))
    assert (moved == np.rint(moved)).all()
    return moved.astype(np.int64).ravel()


def cost(mechanism: Mechanism, change: Integers, order: Order | None = None) -> Fraction:
    """Return epsilon or rho between two tables that differ by a change, exactly."""
    total = Fraction(0)
    for k, m in enumerate(mechanism.measurements):
        moved = [int(x) for x in shift(mechanism, k, change)]
        if (order or mechanism.budget.order) == 1:
            total += sum(map(abs, moved)) / m.parameter
        else:
            total += sum(x * x for x in moved) / (2 * m.parameter)
    return total
