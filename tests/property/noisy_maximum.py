"""The law of a noisy maximum with exponential noise, by integration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_POINTS = 40_000


def of_noisy_maximum(scores: Sequence[float], scale: float) -> list[float]:
    """Return how likely each is the greatest after exponential noise."""
    # nothing below the greatest score wins; there each law is smooth, and midpoints are exact to 1e-6
    step = 60 * scale / _POINTS
    at = max(scores) + (np.arange(_POINTS) + 0.5) * step
    below = [np.log(-np.expm1(-(at - s) / scale)) for s in scores]
    together = np.sum(below, axis=0)
    return [
        float(np.exp(together - mine - (at - s) / scale).sum() * step / scale)
        for mine, s in zip(below, scores, strict=True)
    ]


def chances(
    exceeding: Sequence[int],
    bounds: Sequence[int],
    epsilon: float,
    noise: float = 1.0,
    usual: int = 1,
) -> list[float]:
    """Return how likely each bound is drawn; ``noise`` times what is claimed is added."""
    weights = [2 * np.log(tau) - np.log(min(tau, usual)) for tau in bounds]
    scores = [-n - weight / epsilon for n, weight in zip(exceeding, weights, strict=True)]
    return of_noisy_maximum(scores, noise / epsilon)
