"""GReM-MLE: consistent marginals from noisy measurements of residuals and marginals.

Measurements of one residual are averaged with their precisions as weights, residuals that were
never measured are zero, and every marginal is the sum of its components (papers/aim-grem.txt,
Algorithm 3; Mullins et al. 2024).  With Gaussian noise that is the estimate of maximum likelihood
of all measurements together (Theorem 4.1), so that nothing is lost by averaging at once: a
residual's estimate and its precision are all that need be kept.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import decompose, part, reconstruct_all
from dpsql.workload.marginals import Floats, attributes_of, shape, subsets
from dpsql.workload.residual_bases import Basis


@dataclass
class Residuals:
    """Estimates of residuals and their precisions.

    Attributes
    ----------
    bases : tuple of Basis
        One per attribute of the domain.
    values : dict of mask to array
        The estimate of each measured residual, n - 1 positions per axis.
    precisions : dict of mask to float
        ``1 / sigma^2`` of each: its covariance is ``sigma^2`` times that of the residual of
        independent unit noise on the cells of the residual's own marginal.
    """

    bases: tuple[Basis, ...]
    values: dict[int, Floats] = field(default_factory=dict)
    precisions: dict[int, float] = field(default_factory=dict)

    def add(self, mask: int, residual: Floats, variance: float) -> Floats:
        """Average a new measurement in (Algorithm 3, line 3).

        Parameters
        ----------
        mask : int
            The attribute set of the residual.
        residual : array
            The noisy residual, n - 1 positions per axis.
        variance : float
            Its ``sigma^2``, positive and finite.

        Returns
        -------
        array
            By how much the estimate changed.

        Raises
        ------
        InvalidParameter
            If the shape does not fit or the variance is not positive.
        """
        expected = tuple(self.bases[i].size - 1 for i in attributes_of(mask))
        if residual.shape != expected:
            raise InvalidParameter(
                f"a residual of shape {residual.shape} is not one over attributes "
                f"{attributes_of(mask)}, whose shape is {expected}"
            )
        if not (variance > 0 and math.isfinite(variance)):
            raise InvalidParameter(f"the variance {variance} of a residual is not positive")
        precision = 1.0 / variance
        known = self.precisions.get(mask, 0.0)
        change = residual
        if known:
            change = (residual - self.values[mask]) * (precision / (known + precision))
        self.values[mask] = self.values[mask] + change if known else residual
        self.precisions[mask] = known + precision
        return change

    def add_marginal(
        self, mask: int, table: Floats, variance: float, wanted: Container[int] | None = None
    ) -> dict[int, Floats]:
        """Average in all residuals of a marginal with independent noise on its cells.

        The residual over ``B <= A`` of such a marginal is a sum over the axes outside ``B``,
        whose noise has ``prod_{i in A-B} n_i`` times the variance (Mullins et al. 2024,
        section 4); for any positive ``variance`` the estimates minimise the sum of
        ``||M x - y||^2 / variance`` over all tables added (GReM-LS), whatever the noise's law.
        Where cells are estimated from other queries about each attribute, `Basis.total` stands for
        ``n_i``.

        Parameters
        ----------
        mask : int
            The attributes.
        table : array
            The noisy marginal, an axis for each of them.
        variance : float
            Of the noise on the cells.
        wanted : container of int, optional
            The residuals that are kept; all by default.

        Returns
        -------
        dict
            The change of each residual.

        Raises
        ------
        InvalidParameter
            If a basis has no `Basis.total`: its residuals are correlated with the total then.
        """
        attributes = attributes_of(mask)
        inside = [self.bases[i] for i in attributes]
        if any(basis.total is None for basis in inside):
            raise InvalidParameter(
                "a noisy marginal splits into uncorrelated residuals for subtraction only"
            )
        if table.shape != shape([basis.size for basis in self.bases], mask):
            raise InvalidParameter(
                f"a table of shape {table.shape} is no marginal over attributes {attributes}"
            )
        packed = decompose(table, inside)
        changes = {}
        for below, own in residual_variances(self.bases, mask, variance).items():
            if wanted is None or below in wanted:
                changes[below] = self.add(below, part(packed, mask, below), own)
        return changes

    def marginals(self, masks: Iterable[int]) -> Iterator[tuple[int, Floats]]:
        """Yield reconstructed marginals, one in memory at a time (Algorithm 3, line 4)."""
        return reconstruct_all(self.values, masks, self.bases)


def residual_variances(bases: Sequence[Basis], mask: int, variance: float) -> dict[int, float]:
    """Return the variance of each residual of a marginal with independent noise on its cells."""
    totals = [1.0 if basis.total is None else basis.total for basis in bases]
    return {
        below: variance * math.prod(totals[i] for i in attributes_of(mask & ~below))
        for below in subsets(mask)
        if all(bases[i].size > 1 for i in attributes_of(below))
    }


def grem_ls(
    tables: Mapping[int, Floats], variances: Mapping[int, float], bases: Sequence[Basis]
) -> Residuals:
    """Fit consistent residuals to noisy marginals by weighted least squares.

    Parameters
    ----------
    tables : mapping of mask to array
        Noisy marginals with independent noise on the cells.
    variances : mapping of mask to float
        Variance of the noise of each; with Gaussian noise the fit is of maximum likelihood.
    bases : sequence of Basis
        One per attribute of the domain, subtraction.
    """
    result = Residuals(tuple(bases))
    for mask, table in tables.items():
        result.add_marginal(mask, table, variances[mask])
    return result
