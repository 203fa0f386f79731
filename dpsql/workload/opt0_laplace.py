"""OPT_0 for Laplace noise: p-Identity strategies (HDMM, section 4.3).

A p-Identity strategy (Definition 13) is ``A = [I; Theta] D`` with a non-negative ``p x n`` matrix
``Theta`` and the diagonal matrix ``D = diag(1 + 1^T Theta)^-1``: every column has L1 norm 1, and
the rank is full.  Definition 14 minimises ``||W A^+||^2`` over ``Theta``; that is not convex, so
local minima are sought from random beginnings.  A p-Identity strategy always pays for the identity;
for a workload of a single query (Total) that query alone is the better strategy
(`dpsql.workload.opt_kron.best_factor`).

With ``s = 1 + 1^T Theta``, ``K_ij = s_i V_ij s_j`` and ``M = I + Theta Theta^T`` (p x p),
Woodbury's identity gives

    f = sum_i s_i^2 V_ii - tr(M^-1 Q),                     Q = Theta K Theta^T
    df/dTheta = -2 M^-1 Theta K + 2 M^-1 Q M^-1 Theta + 1 g^T
    g_i = 2 (s_i V_ii - (Theta^T M^-1 Theta K)_ii / s_i)

where only ``Theta K`` takes ``p n^2`` operations: one matrix product a step, and none for prefixes
and all ranges, where it takes ``p n`` (`dpsql.workload.single_pair`) and the rest ``p^2 n``.
HDMM's Theorem 17 says ``O(p n^2)`` too, but multiplies three times, since it forms
``(A^T A)^-1 V (A^T A)^-1``.

One beginning is a tree over the levels.  Of a single-pair workload it is in the workload's order
and made from the strategy found for blocks of sixteen levels; that ends below random beginnings, by
0.6 % at 1024 levels, where many of those would be too slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats
from dpsql.workload.single_pair import SinglePair
from dpsql.workload.stepwise import MOST_AT_ONCE, Tick, cholesky, cholesky_inverse, matmul

#: ``p`` is the number of levels over this, at least 1 (HDMM, section 4.3).
LEVELS_PER_QUERY = 16
#: Largest entries of random beginnings, by turns.
SPREADS = (0.3, 1.0)
#: Steps after which the best beginnings go on, where there are more than there is time for: of
#: more levels than `RACED` at most `KEPT` (0.03 % worse than all of eight, root mean squared).
RACE = 80
RACED, KEPT = 256, 2
#: Largest sum of a column of the random part of a beginning that is a tree.
JITTER = 0.3
#: How much more than single levels the blocks of such a beginning may weigh.
BLOCK_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Largest entry of ``Theta``: workloads that do not need the identity (Total) would have it grow
#: without end, until the objective is all rounding; it costs them a part ``2/LARGEST``.
LARGEST = 1e3
#: Steps of L-BFGS, and those where there are more than `MANY` levels.
ITERATIONS = 400
FEW_ITERATIONS = 160
MANY = 1500
#: Restarts by default: as many as cost together about this many ``n^2 p`` (one product each) ...
WORK = 1e10
#: ... and at most so many.
MOST_RESTARTS = 24


@dataclass(frozen=True, slots=True, eq=False)
class PIdentity:
    """A p-Identity strategy, of L1 sensitivity 1.

    Parameters
    ----------
    theta : array, shape (p, n)
        Non-negative.
    error : float
        ``||W A^+||^2``, the total squared error in units.
    """

    theta: Floats
    error: float

    @property
    def scale(self) -> Floats:
        """The diagonal of ``D``, shape (n,)."""
        return np.asarray(1 / (1 + self.theta.sum(axis=0)))

    def matrix(self) -> Floats:
        """Write ``A`` down, of shape (n + p, n); queries that are zero are left out."""
        used = self.theta[self.theta.any(axis=1)]
        return np.concatenate([np.eye(self.theta.shape[1]), used]) * self.scale

    def gram(self, tick: Tick = lambda: None) -> Floats:
        """Compute ``A^T A = D (I + Theta^T Theta) D``, shape (n, n); ``tick`` may cancel."""
        inner = matmul(self.theta.T, self.theta, tick)
        tick()
        np.fill_diagonal(inner, np.diagonal(inner) + 1)
        inner *= self.scale
        inner *= self.scale[:, None]
        return inner


def opt0_laplace(
    gram: Floats,
    *,
    seed: int,
    p: int | None = None,
    restarts: int | None = None,
    iterations: int | None = None,
    near: Floats | None = None,
    tick: Callable[[], None] = lambda: None,
) -> PIdentity:
    """Find a p-Identity strategy with a small squared error under Laplace noise.

    Parameters
    ----------
    gram : array, shape (n, n)
        ``W^T W`` of the workload: symmetric, positive semi-definite, of any rank.
    seed : int
        Of the random beginnings; the result is a function of the arguments.
    p : int, optional
        Queries beside the identity's, at least 1; by default one for every 16 levels.
    restarts : int, optional
        Beginnings, at least 1; by default as many as a few seconds allow.
    iterations : int, optional
        Steps of L-BFGS from each beginning, at least 1; by default `ITERATIONS` or fewer.
    near : array, shape (p, n), optional
        The only beginning, if it is given: what was found for a workload that is much alike.
    tick : callable
        Called at every evaluation; may raise to cancel.

    Returns
    -------
    PIdentity
        The best one found.  Identity is among those compared.

    Raises
    ------
    InvalidParameter
        When the matrix is not square, or a number is out of range.
    """
    n = len(gram)
    if gram.shape != (n, n) or not np.isfinite(gram).all():
        raise InvalidParameter("the Gram matrix of a workload must be square")
    rows = max(1, n // LEVELS_PER_QUERY) if p is None else p
    if iterations is None:
        iterations = ITERATIONS if n <= MANY else FEW_ITERATIONS
    work = max(iterations * rows * n**2, 1)
    turns = int(min(max(WORK // work, 1), MOST_RESTARTS)) if restarts is None else restarts
    if min(n, rows, turns, iterations) < 1:
        raise InvalidParameter("OPT_0 needs at least one query, one beginning and one step")
    scale = float(np.trace(gram))
    best = PIdentity(np.zeros((rows, n)), scale)
    if scale == 0:
        return best
    random = np.random.default_rng(seed)
    scaled = gram / scale
    pair = SinglePair.of(scaled, tick)
    if near is not None:
        turns = 0
    beginnings = [random.random((rows, n)) * SPREADS[turn % len(SPREADS)] for turn in range(turns)]
    if near is not None:
        beginnings = [near]
    elif p is None and n >= LEVELS_PER_QUERY**2:
        tree = _tree(n) if pair is None else _refined(scaled, pair, seed, tick)
        tree += random.random(tree.shape) * (JITTER / len(tree))
        others = max(turns - 1, pair is None)  # of single-pair workloads the tree is better
        beginnings = [tree, *beginnings[:others]]
    objective = p_identity_objective(scaled, pair, tick)
    kept = min(turns, KEPT) if n > RACED else turns
    if 0 < kept < len(beginnings):
        raced = [_descend(objective, theta, min(RACE, iterations), tick) for theta in beginnings]
        beginnings = sorted(raced, key=lambda theta: objective(theta.ravel())[0])[:kept]
    for theta in beginnings:
        found = PIdentity(_descend(objective, theta, iterations, tick), np.inf)
        error = _error(found.gram(tick), gram, tick)
        if error < best.error:
            best = replace(found, error=error)
    return best


def blocks(n: int, seed: int) -> Floats:
    """Return a beginning: blocks of levels, of such blocks, and so on, and some noise."""
    tree = _tree(n)
    return np.asarray(tree + np.random.default_rng(seed).random(tree.shape) * (JITTER / len(tree)))


def _tree(n: int) -> Floats:
    """Count blocks of neighbours, blocks of such blocks, and so on, with uniform weights.

    Sixteen to a block is near the best for ranges and prefixes (Qardaji, Yang and Li 2013).
    """
    layers = []
    width = LEVELS_PER_QUERY
    while width < n:
        blocks = np.arange(n) // width
        layers.append((blocks == np.arange(blocks[-1] + 1)[:, None]).astype(np.float64))
        width *= LEVELS_PER_QUERY
    return np.concatenate(layers)


def _refined(gram: Floats, pair: SinglePair, seed: int, tick: Callable[[], None]) -> Floats:
    """Take the strategy for blocks of neighbours, as queries beside single levels."""
    n = len(gram)
    blocks = np.empty(n, dtype=np.intp)
    blocks[pair.order] = np.arange(n) // LEVELS_PER_QUERY
    sizes = np.bincount(blocks)
    member = (blocks == np.arange(len(sizes))[:, None]) / sizes[:, None]
    coarse = opt0_laplace(member @ gram @ member.T, seed=seed, restarts=1, tick=tick)
    queries = np.concatenate([np.diag(coarse.scale), coarse.theta * coarse.scale])[:, blocks]
    objective = p_identity_objective(gram, pair)

    def error(weight: float) -> float:
        tick()
        return objective((queries * weight).ravel())[0]

    weight = min(BLOCK_WEIGHTS, key=error)
    return np.asarray(queries * weight)


def _error(strategy: Floats, workload: Floats, tick: Tick) -> float:
    """Compute ``tr(G^-1 V)``; the objective cancels for large ``Theta``."""
    from scipy.linalg import cho_factor, cho_solve

    if len(strategy) > MOST_AT_ONCE:
        return float(np.vdot(cholesky_inverse(cholesky(strategy, tick), tick), workload))
    return float(np.trace(cho_solve(cho_factor(strategy), workload)))


def p_identity_objective(
    gram: Floats, pair: SinglePair | None = None, tick: Tick = lambda: None
) -> Callable[[Floats], tuple[float, Floats]]:
    """Make the function of a flat ``Theta`` that returns the squared error and its gradient.

    Parameters
    ----------
    gram : array, shape (n, n)
        ``W^T W``.
    pair : SinglePair, optional
        What it is, if it is one.
    tick : callable
        Called now and then while a large one is multiplied; may raise to cancel.
    """
    n = len(gram)
    diagonal = np.diagonal(gram).copy()

    def multiply(theta: Floats) -> Floats:
        return matmul(theta, gram, tick) if pair is None else pair.multiply(theta)

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(-1, n)
        s = 1 + theta.sum(axis=0)
        product = multiply(theta * s) * s
        inner = theta @ theta.T
        inner[np.diag_indices(len(inner))] += 1
        inverse = np.linalg.inv(inner)
        solved = inverse @ product
        square = product @ theta.T
        error = float(diagonal @ s**2 - np.sum(inverse * square))
        by_scale = 2 * (diagonal * s - np.einsum("ij,ij->j", theta, solved) / s)
        gradient = 2 * ((solved @ theta.T) @ (inverse @ theta) - solved) + by_scale
        return error, gradient.ravel()

    return objective


def _descend(
    objective: Callable[[Floats], tuple[float, Floats]],
    theta: Floats,
    iterations: int,
    tick: Callable[[], None],
) -> Floats:
    """Go down from one beginning."""
    from scipy.optimize import Bounds, minimize

    def ticking(flat: Floats) -> tuple[float, Floats]:
        tick()
        found = objective(flat)
        tick()
        return found

    result = minimize(
        ticking,
        theta.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0, LARGEST),
        options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-9, "maxcor": 5},
    )
    return np.asarray(result.x).reshape(theta.shape)
