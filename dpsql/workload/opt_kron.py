"""OPT_kron: one strategy per attribute, whose Kronecker product serves a union of products.

The squared error of a Kronecker product of strategies is a sum over the workload's terms of
products over the attributes (papers/hdmm.txt, Theorem 6).  So with all factors but one fixed, that
one faces a weighted sum of its attribute's Gram matrices, a problem of OPT_0; the factors take
turns until nothing improves (section 6.1, Definition 18 and Equation 6).  For a single product one
turn each is enough.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    Dense,
    Floats,
    Identity,
    Order,
    QueryMatrix,
    Total,
)
from dpsql.workload.opt0_gaussian import GAP, mirrored, opt0_gaussian
from dpsql.workload.opt0_laplace import blocks, opt0_laplace
from dpsql.workload.single_pair import SinglePair
from dpsql.workload.stepwise import invert, matmul
from dpsql.workload.workload import Workload

#: Turns of all factors, at most, and the improvement below which they end.
ROUNDS = 20
IMPROVEMENT = 1e-4
#: Beginnings: the first weighs the products as they are, the others at random.
RESTARTS = 3
#: Beginnings of OPT_0 for Laplace noise in each turn, of at most so many levels; else its own.
TURNS = 4
MOST_TURNS = 256
#: Levels up to which OPT_0 is asked: beyond it takes minutes, ...
MOST_OPTIMISED = 1100
#: ... but for prefixes and all ranges; others begin with a tree, for Laplace noise, and take so
#: many steps: as good within 0.1 % as thrice as long (ranges of 32 of 4096 levels).
MOST_PAIRED = 4096
TREE_ITERATIONS = 40
#: Relative gap for Gaussian noise of so many levels.
MANY_GAP = 1e-3
#: Levels from which on later turns begin where the last one ended, with Laplace noise.
WARM = 256
#: Strategies of single attributes that are kept while mechanisms are selected one by one, and the
#: levels that they have at most (they take 20 MB each then).
MOST_KNOWN, MOST_KNOWN_LEVELS = 16, 1100
#: Digits of a Gram matrix, as a part of its trace, that tell two problems apart.
DIGITS = 12
#: Children of a node of the tree that stands in for it.
BRANCHES = 16


@dataclass(frozen=True, slots=True, eq=False)
class KroneckerStrategy:
    """A Kronecker product of sensitivity 1, and its total squared error in units.

    No strategy has a smaller error than ``bound``, if that is known; else it is 0.
    """

    queries: Kronecker
    error: float
    bound: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A strategy of sensitivity 1 for one attribute: its queries and ``(A^T A)^+``.

    No strategy has a smaller error than ``bound``, if that is known; ``theta`` is what a later
    search begins with.
    """

    queries: QueryMatrix
    inverse: Floats
    error: float
    bound: float = 0.0
    theta: Floats | None = None


class Known:
    """Strategies of single attributes by their problem, each of which is solved once.

    For as long as mechanisms of one workload are selected: groups, beginnings and mechanisms face
    the same factors again and again.

    Parameters
    ----------
    others : Known, optional
        What other mechanisms found.  Of these only exactly the same problems are taken, so that a
        mechanism's strategy does not depend on which others were selected before.
    """

    def __init__(self, others: Known | None = None) -> None:
        self._found: dict[tuple[bytes, Order, int], Factor] = {}
        self._exact: dict[tuple[bytes, Order, int], Factor] = others._exact if others else {}

    def factor(self, gram: Floats, order: Order, seed: int, find: Callable[[], Factor]) -> Factor:
        """Find the strategy of a problem, or of one that is the same up to a multiple."""
        trace = float(np.trace(gram))
        if len(gram) > MOST_KNOWN_LEVELS or not trace > 0:
            return find()
        content = np.round(gram * (len(gram) / trace), DIGITS) + 0.0
        key = (hashlib.sha256(content.tobytes()).digest(), order, seed)
        found = self._found.get(key)
        if found is None:
            exact = (hashlib.sha256(gram.tobytes()).digest(), order, seed)
            found = self._exact.get(exact) or find()
            for kept in (self._found, self._exact):
                while len(kept) >= MOST_KNOWN:
                    kept.pop(next(iter(kept)))
            self._exact[exact] = found
            self._found[key] = replace(found, error=found.error / trace, bound=found.bound / trace)
            return found
        return replace(found, error=found.error * trace, bound=found.bound * trace)


def opt_kron(
    workload: Workload,
    order: Order,
    *,
    seed: int,
    restarts: int = RESTARTS,
    rounds: int = ROUNDS,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> KroneckerStrategy:
    """Optimise a strategy for each attribute in turn.

    Parameters
    ----------
    workload : Workload
        Any union of products; of disjunctions the expanded terms.
    order : int
        1 for Laplace, 2 for Gaussian noise: the norm of the sensitivity.
    seed : int
        Of random beginnings; the result is a function of the arguments.
    restarts, rounds : int
        Beginnings of unions, and turns of all factors from each; at least 1.
    tick : callable
        Called now and then; may raise to cancel.
    known : Known, optional
        What was found for single attributes, for this workload or parts of it.
    """
    known = known or Known()
    terms = workload.gram_terms
    coefficients = np.array([term.coefficient for term in terms])
    sizes = workload.domain.sizes
    random = np.random.default_rng(seed)
    # the terms of a disjunction are positive semi-definite only together: they are weighed together
    together = np.repeat(
        np.arange(len(workload.products)), [4 if p.either else 1 for p in workload.products]
    )
    # decided by the queries: what a Gram matrix adds up may be far below the rest of it, and asked
    spans = [span for product in workload.products for span in product.spans()]
    single = [single_query(span.factors[i] for span in spans) for i in range(len(sizes))]
    tick()
    # of a single product, or about a single attribute, one turn of each factor finds the best
    once = len(terms) == 1 or sum(n > 1 for n in sizes) <= 1
    best: KroneckerStrategy | None = None
    for turn in range(1 if once else restarts):
        # the traces of (A_i^T A_i)^+ and the terms' Gram matrices; those of Identity at first
        traces = np.array([[float(np.trace(f)) for f in term.factors] for term in terms])
        if turn:
            weights = random.normal(0, 2, (len(workload.products), len(sizes)))
            traces *= np.exp(weights)[together]
        factors = [_identity(np.eye(n)) for n in sizes]
        error = np.inf
        for again in range(rounds):
            for i in range(len(sizes)):
                tick()
                others = coefficients * np.delete(traces, i, axis=1).prod(axis=1)
                gram = _weighted(others, [term.factors[i] for term in terms])
                tick()
                near = factors[i].theta if again else None
                find = partial(
                    best_factor, gram, order, single[i], seed=seed, near=near, tick=tick, once=once
                )
                if near is None and single[i] is None:
                    factors[i] = known.factor(gram, order, seed, find)
                else:
                    factors[i] = find()
                inverse = factors[i].inverse
                traces[:, i] = [float(np.einsum("ij,ji->", inverse, t.factors[i])) for t in terms]
            found = float(coefficients @ traces.prod(axis=1))
            if best is None or found < best.error:
                queries = Kronecker(tuple(factor.queries for factor in factors))
                # of a single product the best strategy is a product, and so is the bound
                least = found * math.prod(f.bound / f.error for f in factors)
                best = KroneckerStrategy(queries, found, least if once else 0.0)
            if once or found > error * (1 - IMPROVEMENT):
                break
            error = found
    if best is None:
        raise InvalidParameter("OPT_kron needs at least one beginning and one turn")
    return best


def best_factor(
    gram: Floats,
    order: Order,
    single: Floats | None = None,
    *,
    seed: int,
    near: Floats | None = None,
    tick: Callable[[], None] = lambda: None,
    once: bool = True,
) -> Factor:
    """Choose among a single query, Identity and OPT_0, or a tree where OPT_0 would take minutes.

    Where all ask for multiples of one query no strategy is better than that query itself, which a
    p-Identity strategy is not.

    Parameters
    ----------
    gram : array, shape (n, n)
        Symmetric, positive semi-definite, not 0.
    order : int
        1 for Laplace, 2 for Gaussian noise.
    single : array, shape (n,), optional
        What `single_query` says of the queries that the Gram matrix comes from.
    seed : int
        Of OPT_0.
    near : array, optional
        What OPT_0 begins with for Laplace noise, instead of beginnings of its own.
    tick : callable
        Called now and then; may raise to cancel.
    once : bool
        Whether this is asked once, and may take half a minute.
    """
    if single is not None:
        return _asked_itself(single, gram)
    tick()
    identity = _identity(gram)
    n = len(gram)
    many = n > MOST_OPTIMISED
    tick()
    alone = many and (n > MOST_PAIRED or SinglePair.of(gram, tick) is None)
    slow = n > MOST_PAIRED or not once or (order == 2 and not mirrored(gram))
    if alone and slow:
        found = _tree(gram, order, tick)
    elif order == 2:
        gaussian = opt0_gaussian(gram, gap=MANY_GAP if many else GAP, tick=tick)
        inverse = invert(gaussian.gram, tick)
        found = Factor(Dense(gaussian.matrix(tick)), inverse, gaussian.error, gaussian.bound)
    else:
        laplace = opt0_laplace(
            gram,
            seed=seed,
            restarts=TURNS if n <= MOST_TURNS else None,
            iterations=TREE_ITERATIONS if alone else None,
            near=blocks(n, seed) if alone and near is None else near,
            tick=tick,
        )
        inverse = invert(laplace.gram(tick), tick)
        theta = laplace.theta if n > WARM else None
        found = Factor(Dense(laplace.matrix()), inverse, laplace.error, theta=theta)
    return found if found.error < identity.error else replace(identity, bound=found.bound)


#: Trees by levels and noise, and how many are kept.
_TREES: dict[tuple[int, Order], tuple[Floats, Floats]] = {}
MOST_TREES = 2


def _tree(gram: Floats, order: Order, tick: Callable[[], None]) -> Factor:
    """Count the levels, and blocks of neighbours, of blocks of those, and so on.

    With uniform weights; sixteen to a block is near the best for ranges and prefixes (Qardaji, Yang
    and Li 2013).
    """
    matrix, inverse = _tree_of(len(gram), order, tick)
    return Factor(Dense(matrix), inverse, float(np.einsum("ij,ji->", inverse, gram)))


def _tree_of(n: int, order: Order, tick: Callable[[], None]) -> tuple[Floats, Floats]:
    if (n, order) not in _TREES:
        layers = [np.eye(n)]
        width = BRANCHES
        while width < n:
            blocks = np.arange(n) // width
            layers.append((blocks == np.arange(blocks[-1] + 1)[:, None]).astype(np.float64))
            width *= BRANCHES
        tick()
        matrix = np.concatenate(layers)
        tick()
        matrix /= len(layers) ** (1 / order)
        tick()
        inverse = invert(matmul(matrix.T, matrix, tick), tick)
        while len(_TREES) >= MOST_TREES:
            _TREES.pop(next(iter(_TREES)))
        _TREES[n, order] = matrix, inverse
    return _TREES[n, order]


def single_query(matrices: Iterable[QueryMatrix]) -> Floats | None:
    """Find the one query, of largest entry 1, that all queries are multiples of, if there is one.

    Exactly: a query that counts for little beside the others is still asked for, and no Gram matrix
    in floating point tells one that is small from rounding.

    Returns
    -------
    array, shape (n,), or None
        None where there are several, or all are 0.
    """
    found: Floats | None = None
    place = 0
    for matrix in matrices:
        rows, levels = matrix.shape
        if levels == 1:
            return np.ones(1)
        if rows > 1 and (isinstance(matrix, Identity) or matrix.bounds() is not None):
            return None
        # a Gram matrix of one form has the same rows, up to sums; its queries can be millions
        dense = matrix.dense() if isinstance(matrix, Dense) or rows <= levels else matrix.gram()
        if found is None:
            first = dense[int(np.argmax(np.abs(dense).max(axis=1)))]
            place = int(np.argmax(np.abs(first)))
            if first[place] == 0:
                continue
            found = np.asarray(first / first[place])
        if (dense != dense[:, place : place + 1] * found).any():
            return None
    return found


def _asked_itself(query: Floats, gram: Floats) -> Factor:
    """Return the strategy that is one query."""
    inverse = np.outer(query, query) / float(query @ query) ** 2
    matrix = Total(len(query)) if (query == 1).all() else Dense(query[None, :])
    error = float(np.vdot(inverse, gram))
    return Factor(matrix, inverse, error, error)


def _identity(gram: Floats) -> Factor:
    n = len(gram)
    return Factor(Identity(n), np.eye(n), float(np.trace(gram)))


def _weighted(weights: Floats, grams: list[Floats]) -> Floats:
    """Sum Gram matrices; the terms of disjunctions are symmetric only together."""
    total: Floats = np.zeros_like(grams[0])
    for weight, gram in zip(weights, grams, strict=True):
        total += weight * gram
    return (total + total.T) / 2
