"""The law of a noisy maximum with exponential noise, by integration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def of_noisy_maximum(scores: Sequence[float], scale: float) -> list[float]:
    """Return how likely each is the greatest after exponential noise."""
    # nothing below the greatest score wins; there each law is smooth
    at = np.linspace(max(scores), max(scores) + 60 * scale, 400_001)
    below = [1 - np.exp(-(at - s) / scale) for s in scores]
    law = []
    for j, score in enumerate(scores):
        density = np.exp(-(at - score) / scale) / scale
        others = np.prod([b for i, b in enumerate(below) if i != j], axis=0)
        law.append(float(np.trapezoid(density * others, at)))
    return law


def chances(
    exceeding: Sequence[int], bounds: Sequence[int], epsilon: float, noise: float = 1.0
) -> list[float]:
    """Return how likely each bound is drawn; ``noise`` times what is claimed is added."""
    scores = [-n - 2 * np.log(tau) / epsilon for n, tau in zip(exceeding, bounds, strict=True)]
    return of_noisy_maximum(scores, noise / epsilon)
