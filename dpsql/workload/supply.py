"""What an adaptive mechanism is given: exact marginals, noise, and choices.

The mathematics decides what is asked, how much noise it gets and what it costs; counting,
drawing and debiting are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from dpsql.workload.residual_bases import Integers


class Marginals(Protocol):
    """Exact marginals of protected data."""

    def batch(self, masks: Sequence[int]) -> Mapping[int, Integers]:
        """Count the marginals of several attribute sets at once.

        Parameters
        ----------
        masks : sequence of int
            Attribute sets, none of them twice.

        Returns
        -------
        mapping of mask to array of int64
            One axis per attribute, ascending, as long as its domain.  A row of the data
            adds 1 to exactly one cell of each.
        """
        ...


class Gaussian(Protocol):
    """Independent discrete Gaussians."""

    def __call__(self, variance: Fraction, count: int) -> Integers:
        """Draw ``count`` integers with ``P(x) proportional to exp(-x^2 / (2 variance))``."""
        ...


class Choice(Protocol):
    """The exponential mechanism."""

    def __call__(self, scores: Sequence[int], rate: Fraction) -> int:
        """Draw an index with ``P(i) proportional to exp(rate * scores[i])``, exactly.

        Notes
        -----
        The price of a round holds for this law (its privacy loss has the range epsilon, hence
        ``epsilon^2 / 8``); the noisy maximum with Laplace or exponential noise has another one.
        """
        ...


class Progress(Protocol):
    """Told after every round; may raise to stop the mechanism."""

    def __call__(self, rounds: int, used: Fraction, budget: Fraction) -> None:
        """Take the number of rounds so far, the rho used and the rho given."""
        ...
