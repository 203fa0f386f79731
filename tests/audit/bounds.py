"""How large epsilon is at least, by what a mechanism was seen to draw on two neighbours.

Half of the draws choose events, the other half bounds their probabilities (Clopper and Pearson), so
that any way of choosing is allowed.  Events are thresholds of coordinates, single values that come up
often, and thresholds of a classifier that tells the neighbours apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import beta as beta_law

Draws: TypeAlias = NDArray[np.float64]

#: Events that the second half of the draws looks at, for each direction.
FINALISTS = 6
_THRESHOLDS = 64
_ATOMS = 4
_RIDGE = 1e-2
_PAIRS = 6


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of epsilon, and the event that gives it."""

    epsilon: float
    event: str


def lower_bound(
    first: Draws, second: Draws, delta: float, alarm: float, rng: np.random.Generator
) -> Bound:
    """Bound from below the epsilon of a mechanism that drew from two neighbours.

    Parameters
    ----------
    first, second : array, shape (n, d)
        What it drew on each, one row a draw, each independent of the others.
    delta : float
        What it claims besides epsilon.
    alarm : float
        The bound is above the truth with at most this probability.
    rng : Generator
        Divides the draws; any will do.

    Returns
    -------
    Bound
        At least 0.  No mechanism that is ``(epsilon, delta)``-private has a larger one, but for
        `alarm`.
    """
    halves = [np.array_split(draws[rng.permutation(len(draws))], 2) for draws in (first, second)]
    level = alarm / (4 * FINALISTS)
    best = Bound(0.0, "none")
    for direction in (1, -1):
        (train, test), (train_other, test_other) = halves[::direction]
        chosen: list[tuple[float, float, str, Draws, Draws]] = []
        for name, scores in _scores((train, train_other, test, test_other)):
            cuts = _cuts(scores[0], scores[1])
            ranks = _epsilon(_reached(scores[0], cuts), _reached(scores[1], cuts), delta, level)
            k = int(np.argmax(ranks))
            chosen.append((float(ranks[k]), float(cuts[k]), name, scores[2], scores[3]))
        chosen.sort(key=lambda event: -event[0])
        for _, cut, name, one, other in chosen[:FINALISTS]:
            counts = (_reached(found, np.array([cut])) for found in (one, other))
            found = float(_epsilon(*counts, delta, level)[0])
            if found > best.epsilon:
                best = Bound(found, f"{name} >= {cut:.4g}" + (", without" * (direction < 0)))
    return best


#: How often each of some events happened, of how many draws.
_Counts: TypeAlias = tuple[NDArray[np.int64], int]


def _cuts(one: Draws, other: Draws) -> Draws:
    shares = np.linspace(0, 1, _THRESHOLDS)
    return np.unique(np.quantile(np.concatenate([one, other]), shares, method="nearest"))


def _reached(scores: Draws, cuts: Draws) -> _Counts:
    return scores.size - np.searchsorted(np.sort(scores), cuts), scores.size


def _epsilon(one: _Counts, other: _Counts, delta: float, level: float) -> Draws:
    """Return ``log((P(one) - delta) / P(other))``, each at its confidence limit of that level."""
    (hits, runs), (others, other_runs) = one, other
    low = np.where(hits > 0, beta_law.ppf(level, np.maximum(hits, 1), runs - hits + 1), 0.0)
    all_of_them = others >= other_runs
    left = np.maximum(other_runs - others, 1)
    high = np.where(all_of_them, 1.0, beta_law.isf(level, others + 1, left))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0) / high))


def _scores(every: Sequence[Draws]) -> Iterator[tuple[str, list[Draws]]]:
    """Yield functions of draws, high where the first neighbour may be likelier."""
    for k in range(every[0].shape[1]):
        yield f"x{k}", [draws[:, k] for draws in every]
        yield f"-x{k}", [-draws[:, k] for draws in every]
        for half in every[:2]:
            values, counts = np.unique(half[:, k], return_counts=True)
            for atom in values[np.argsort(-counts, kind="stable")[:_ATOMS]]:
                yield f"-|x{k} - {atom:.4g}|", [-np.abs(draws[:, k] - atom) for draws in every]
    weights = _Classifier(every[0], every[1])
    yield "likelihood", [weights(draws) for draws in every]


class _Classifier:
    """Logistic regression over coordinates, their sizes, signs and, if few, products."""

    def __init__(self, one: Draws, other: Draws) -> None:
        pooled = np.concatenate([one, other])
        self.centre = np.median(pooled, axis=0)
        spread = np.median(np.abs(pooled - self.centre), axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        x = self._features(pooled)
        y = np.concatenate([np.ones(len(one)), np.zeros(len(other))])

        def loss(w: Draws) -> tuple[float, Draws]:
            z = x @ w
            value = float(np.mean(np.logaddexp(0, z) - y * z) + _RIDGE * w @ w / 2)
            return value, x.T @ (expit(z) - y) / len(y) + _RIDGE * w

        self.weights = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x

    def _features(self, draws: Draws) -> Draws:
        x = np.clip((draws - self.centre) / self.spread, -30, 30)
        parts = [np.ones((len(x), 1)), np.tanh(x), np.tanh(x / 5), np.tanh(np.abs(x) / 3)]
        if x.shape[1] <= _PAIRS:
            soft = np.tanh(x / 3)
            parts += [soft[:, [i]] * soft[:, [j]] for i in range(x.shape[1]) for j in range(i)]
        return np.hstack(parts)

    def __call__(self, draws: Draws) -> Draws:
        return np.asarray(self._features(draws) @ self.weights)
