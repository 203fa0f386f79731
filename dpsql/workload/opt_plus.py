"""OPT_plus: groups of products, each measured by a Kronecker strategy of its own.

A Kronecker product serves badly a union of products that ask for details of different attributes:
it has to know all of them together (papers/hdmm.txt, Example 13).  OPT_plus (Definition 19 there)
measures each group by its own strategy, with the shares of the budget that are best for the
groups' errors.  Reconstruction from the measurements of all groups together, which can only lower
the error, is not counted here (`dpsql.workload.mechanism_plus` does).  The paper has one product in
each group by default; here those that ask for the same attributes are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Order
from dpsql.workload.opt_kron import RESTARTS, Known, KroneckerStrategy, opt_kron
from dpsql.workload.workload import Product, Workload


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The products of a group (places in the workload), their strategy and its sensitivity.

    The squared error of the group is ``strategy.error / share^2`` in units.
    """

    products: tuple[int, ...]
    strategy: KroneckerStrategy
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class UnionStrategy:
    """Strategies below each other, of sensitivity 1 together, and the total squared error."""

    parts: tuple[Part, ...]
    error: float


def opt_plus(
    workload: Workload,
    order: Order,
    *,
    seed: int,
    groups: Sequence[Sequence[int]] | None = None,
    restarts: int = RESTARTS,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> UnionStrategy:
    """Optimise a Kronecker strategy for each group of products.

    Parameters
    ----------
    workload : Workload
        A union of products.
    order : int
        1 for Laplace, 2 for Gaussian noise: shares add up to 1, or their squares do.
    seed : int
        Of random beginnings.
    groups : sequence of sequence of int, optional
        Every product once, by its place; by default those together that ask for more than one
        query of the same attributes.
    restarts : int
        See `opt_kron`.
    tick : callable
        Called now and then; may raise to cancel.
    known : Known, optional
        What was found for single attributes of the same workload.

    Raises
    ------
    InvalidParameter
        When the groups are no partition of the products.
    """
    chosen = [tuple(g) for g in (by_attributes(workload) if groups is None else groups)]
    if sorted(k for group in chosen for k in group) != list(range(len(workload.products))):
        raise InvalidParameter("groups must hold every product of a workload once")
    found = []
    for group in chosen:
        part = Workload(workload.domain, tuple(workload.products[k] for k in group))
        found.append(opt_kron(part, order, seed=seed, restarts=restarts, tick=tick, known=known))
    # min sum e/share^2 with sum share^order = 1
    power = 1 / (2 + order)
    shares = [strategy.error**power for strategy in found]
    total = sum(share**order for share in shares) ** (1 / order)
    parts = tuple(
        Part(group, strategy, share / total)
        for group, strategy, share in zip(chosen, found, shares, strict=True)
    )
    return UnionStrategy(parts, sum(part.strategy.error / part.share**2 for part in parts))


def by_attributes(workload: Workload) -> list[tuple[int, ...]]:
    """Group products that ask for more than one query of the same attributes."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for k, product in enumerate(workload.products):
        groups.setdefault(_detailed(product), []).append(k)
    return [tuple(group) for group in groups.values()]


def _detailed(product: Product) -> tuple[bool, ...]:
    return tuple(factor.shape[0] > 1 for factor in product.queries.factors)
