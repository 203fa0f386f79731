"""Non-negative, consistent marginals: a mixture of products fitted to noisy residuals.

The rows are modelled as ``sum_k w_k prod_i P_i[., k]``: a distribution, so that all its marginals
are non-negative and agree with each other, and one whose marginals cost one matrix product each,
however many attributes there are.  It is fitted to a set of residual estimates by descent on
their exact Gaussian misfit

    ``chi^2 = sum_B precision_B |K (N residual_B(model) - z_B)|^2``,

which is the objective of GReM-MLE (papers/aim-grem.txt, Theorem 4.1) with the model in place of
all tables.  (Relaxed projection, Aydore et al. 2021, and GEM, Liu, Vietri and Wu 2021, fit like
models to query answers.)  ``chi^2`` of the truth is about the number of degrees of freedom; a
model that fits better fits noise, so descent stops there (the discrepancy principle).  Several
fits from different starts are averaged: what they do not agree on was noise as well.

Everything here is post-processing of public values: it costs no budget.  The seed chooses where
descent starts; it is no privacy noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import recon
from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import Floats, attributes_of, cells
from dpsql.workload.postprocess import project_simplex

Singles = npt.NDArray[np.float32]

#: Levels of all attributes together: differences of pairs take 2 bytes times their square.
MAX_LEVELS = 20_000
#: Noise below a standard deviation of 0.1 counts as that: its precision can leave single floats.
MOST_PRECISION = 100.0

_CHUNK = 1 << 23


@dataclass(frozen=True)
class Settings:
    """How a mixture is fitted.

    Attributes
    ----------
    components : int
        Products in each fit: so few as reach the noise.  When a fit does not within `steps`, the
        next ones have twice as many.
    most : int
        Limit of that doubling.
    members : int
        Fits of equal size that are averaged.
    steps : int
        Most descent steps of a fit.
    stop : float
        A fit ends when ``chi^2`` is at most this many times the degrees of freedom.
    rate : float
        Step of descent (Adam) on the logarithms of the probabilities.
    spread : float
        Standard deviation of the random part of the start, likewise.
    work : int
        Cells of residuals over three and more attributes that a step may compare; those with
        the most information a cell come first.
    effort : float
        Limit of multiplications in all: fits do not grow, and fewer are averaged, when it is near.
    """

    components: int = 32
    most: int = 128
    members: int = 24
    steps: int = 400
    stop: float = 1.0
    rate: float = 0.2
    spread: float = 1.0
    work: int = 1_000_000
    effort: float = 3e11


@dataclass(frozen=True)
class Mixture:
    """A distribution over the domain, times a number of rows.

    Attributes
    ----------
    levels : tuple of array of shape (n_i, components)
        Columns sum to 1.
    weights : array of shape (components,)
        Sums to 1.
    total : float
        Rows.
    """

    levels: tuple[Singles, ...]
    weights: Singles
    total: float

    def marginal(self, mask: int) -> Floats:
        """Return a marginal, one axis per attribute, ascending."""
        attributes = attributes_of(mask)
        shape = tuple(self.levels[i].shape[0] for i in attributes)
        order = sorted(range(len(shape)), key=shape.__getitem__)  # the longest axis last
        ordered = [self.levels[attributes[k]] for k in order] or [np.ones_like(self.weights[None])]
        rows = math.prod(part.shape[0] for part in ordered[:-1])
        result = np.zeros((rows, ordered[-1].shape[0]), "f4")
        chunk = max(1, _CHUNK // rows)
        for start in range(0, self.weights.size, chunk):
            some = slice(start, start + chunk)
            left = (self.weights[some] * np.float32(self.total))[None, :]
            for part in ordered[:-1]:
                left = (left[:, None, :] * part[None, :, some]).reshape(-1, left.shape[1])
            result += left @ ordered[-1][:, some].T
        table = result.reshape([shape[k] for k in order]).transpose(np.argsort(order))
        return np.array(table, dtype=np.float64, order="C")


def fit_mixture(
    residuals: Residuals,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    tick: Callable[[], None] | None = None,
) -> Mixture:
    """Fit a mixture of products to residual estimates.

    Parameters
    ----------
    residuals : Residuals
        With subtraction bases; the total must be among them.
    settings : Settings, optional
    seed : int
        Of the starts.
    tick : callable, optional
        Called at every step; may raise.

    Raises
    ------
    InvalidParameter
        If the total was not measured, or the domain has too many levels.
    """
    chosen = settings or Settings()
    targets = Targets(residuals, chosen.work)
    members: list[Mixture] = []
    left = chosen.effort
    while len(members) < chosen.members:
        rng = np.random.default_rng([seed, chosen.components, len(members)])
        descent = Descent(targets, chosen, rng)
        steps, reached = _descend(descent, tick)
        cost = 6.0 * targets.cells * chosen.components * steps
        left -= cost
        larger = 2 * chosen.components <= chosen.most and 4 * cost <= left  # for two of them
        if not (reached or members) and larger:
            chosen = replace(chosen, components=2 * chosen.components)
            continue
        members.append(descent.mixture())
        if cost > left:
            break
    return average(members)


def _descend(descent: Descent, tick: Callable[[], None] | None) -> tuple[int, bool]:
    """Descend to the noise; return the steps taken, and whether it was reached."""
    settings, targets = descent.settings, descent.targets
    for step in range(settings.steps):
        if tick is not None:
            tick()
        if descent.step() <= settings.stop * targets.freedom:
            return step + 1, True
    return settings.steps, False


def average(members: Sequence[Mixture]) -> Mixture:
    """Mix mixtures with equal weights."""
    levels = zip(*(m.levels for m in members), strict=True)
    joined = np.concatenate([m.weights for m in members])
    weights: Singles = (joined / len(members)).astype(np.float32)
    total = sum(m.total for m in members) / len(members)
    return Mixture(tuple(np.concatenate(parts, axis=1) for parts in levels), weights, total)


class Targets:
    """What a model is compared with: centred residuals, in the layout that descent needs.

    Attributes
    ----------
    total : float
        Rows, at least 1.
    freedom : int
        Degrees of freedom of all residuals used.
    cells : int
        Cells of their marginals: what a step compares.
    """

    def __init__(self, residuals: Residuals, work: int) -> None:
        if 0 not in residuals.values:
            raise InvalidParameter("a mixture needs a measurement of the total")
        self.sizes = [basis.size for basis in residuals.bases]
        if sum(self.sizes) > MAX_LEVELS:
            raise InvalidParameter(
                f"the attributes have {sum(self.sizes)} levels together",
                detail=f"A mixture is fitted to at most {MAX_LEVELS}.",
                hint="Release fewer attributes at once, or without this post-processing.",
            )
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        self.total = max(1.0, float(residuals.values[0]))
        self.freedom = self.cells = 0
        levels = int(self.starts[-1])
        self.one = np.zeros(levels, "f4")
        self.one_precision = np.zeros(levels, "f4")
        #: of each attribute: differences to all later attributes, and their precisions
        self.two = [
            np.zeros((n, levels - end), "f4")
            for n, end in zip(self.sizes, self.starts[1:], strict=True)
        ]
        self.two_precision = [np.zeros(block.shape[1], "f4") for block in self.two]
        self.more: list[tuple[tuple[int, ...], Singles, float]] = []
        self.initial = self._initial(residuals)
        # in shares of the rows, so that a step sees numbers of one size
        for mask in self._used(residuals, work):
            attributes = attributes_of(mask)
            centred = recon(residuals.values[mask], mask, mask, residuals.bases) / self.total
            precision = min(residuals.precisions[mask], MOST_PRECISION) * self.total**2
            self.freedom += math.prod(self.sizes[i] - 1 for i in attributes)
            self.cells += cells(self.sizes, mask)
            if len(attributes) == 1:
                where = slice(*self.starts[attributes[0] : attributes[0] + 2])
                self.one[where], self.one_precision[where] = centred, precision
            elif len(attributes) == 2:
                i, j = attributes
                where = slice(*(self.starts[j : j + 2] - self.starts[i + 1]))
                self.two[i][:, where] = centred
                self.two_precision[i][where] = precision
            else:
                # the longest axis last: all but that one are multiplied out
                order = sorted(range(len(attributes)), key=lambda k: self.sizes[attributes[k]])
                table = np.ascontiguousarray(centred.transpose(order), dtype=np.float32)
                self.more.append((tuple(attributes[k] for k in order), table, precision))

    def _used(self, residuals: Residuals, work: int) -> list[int]:
        """List all residuals of one and two attributes, and the most informative others.

        ``N^2 precision / cells`` bounds what a cell can tell: the signal has at most ``N^2``.
        """
        known = [m for m, z in residuals.values.items() if m and z.size]
        few = [m for m in known if m.bit_count() <= 2]
        told = {
            m: self.total**2 * residuals.precisions[m] / cells(self.sizes, m)
            for m in known
            if m.bit_count() > 2
        }
        for mask in sorted(told, key=lambda m: -told[m]):
            work -= cells(self.sizes, mask)
            if work < 0 or told[mask] < 1:
                break
            few.append(mask)
        return few

    def _initial(self, residuals: Residuals) -> list[Floats]:
        """Return a distribution for each attribute, without zeros."""
        result = []
        for _, table in residuals.marginals([1 << i for i in range(len(self.sizes))]):
            shares = project_simplex(table, self.total)
            shares = np.maximum(shares, 0.5)
            result.append(shares / shares.sum())
        return result


class Descent:
    """One fit: Adam on logits, from a random start around the product of one-way marginals."""

    def __init__(self, targets: Targets, settings: Settings, rng: np.random.Generator) -> None:
        self.targets, self.settings = targets, settings
        count = settings.components
        first = np.log(np.concatenate(targets.initial))[:, None]
        noise = settings.spread * rng.normal(size=(first.size, count))
        #: logits of the levels, and of the components in the last row
        self.logits = np.vstack([first + noise, np.zeros((1, count))]).astype("f4")
        self._mean = np.zeros_like(self.logits)
        self._square = np.zeros_like(self.logits)
        self._steps = 0

    def mixture(self) -> Mixture:
        """Return the model as it is."""
        levels, weights = self._shares()
        starts = self.targets.starts
        parts = tuple(levels[a:b] for a, b in pairwise(starts))
        return Mixture(parts, weights, self.targets.total)

    def step(self) -> float:
        """Descend once; return ``chi^2`` before."""
        levels, weights = self._shares()
        misfit, by_level, by_weight = self.slope(levels, weights)
        slope = np.empty_like(self.logits)
        slope[:-1] = levels * (by_level - self._means(levels * by_level))
        slope[-1] = weights * (by_weight - weights @ by_weight)
        self._steps += 1
        self._mean += np.float32(0.1) * (slope - self._mean)
        self._square += np.float32(0.01) * (slope * slope - self._square)
        first, second = 1 - 0.9**self._steps, 1 - 0.99**self._steps
        root = np.sqrt(self._square / np.float32(second)) + np.float32(1e-12)
        self.logits -= np.float32(self.settings.rate / first) * self._mean / root
        return misfit

    def slope(self, levels: Singles, weights: Singles) -> tuple[float, Singles, Singles]:
        """Return ``chi^2``, and half its derivatives by the levels' shares and the weights."""
        targets = self.targets
        starts = targets.starts
        centred = levels - self._centres(levels)
        weighted = centred * weights
        by_level = np.zeros_like(levels)  # before the factor of the weights
        difference = centred @ weights - targets.one
        pull = targets.one_precision * difference
        misfit = float(pull @ difference)
        by_weight = pull @ centred
        by_level += pull[:, None]
        for i, block in enumerate(targets.two):
            own, rest = slice(starts[i], starts[i + 1]), slice(starts[i + 1], None)
            if not targets.two_precision[i].any():
                continue
            gap = weighted[own] @ centred[rest].T
            gap -= block
            force = gap * targets.two_precision[i]
            misfit += float(np.vdot(force, gap))
            back = force @ centred[rest]
            by_level[own] += back
            by_level[rest] += force.T @ centred[own]
            by_weight += (back * centred[own]).sum(axis=0)
        for attributes, table, precision in targets.more:
            misfit += self._higher(
                attributes, table, precision, centred, weights, by_level, by_weight
            )
        return misfit, by_level * weights, by_weight

    def _higher(
        self,
        attributes: tuple[int, ...],
        table: Singles,
        precision: float,
        centred: Singles,
        weights: Singles,
        by_level: Singles,
        by_weight: Singles,
    ) -> float:
        """Add the slope of a residual over three and more attributes."""
        starts = self.targets.starts
        parts = [centred[starts[i] : starts[i + 1]] for i in attributes]
        products = [np.ones((1, weights.size), "f4")]
        for part in parts[:-1]:
            before = products[-1]
            products.append((before[:, None, :] * part[None]).reshape(-1, weights.size))
        gap = (products[-1] * weights) @ parts[-1].T - table.reshape(products[-1].shape[0], -1)
        force = gap * np.float32(precision)
        by_level[starts[attributes[-1]] : starts[attributes[-1] + 1]] += force.T @ products[-1]
        back = force @ parts[-1]
        for k in range(len(parts) - 2, -1, -1):
            split = back.reshape(products[k].shape[0], parts[k].shape[0], weights.size)
            i = attributes[k]
            by_level[starts[i] : starts[i + 1]] += np.einsum("abk,ak->bk", split, products[k])
            back = np.einsum("abk,bk->ak", split, parts[k])
        by_weight += back[0]
        return float(np.vdot(force, gap))

    def _shares(self) -> tuple[Singles, Singles]:
        starts = self.targets.starts[:-1]
        rows = self.logits[:-1]
        top = np.repeat(np.maximum.reduceat(rows, starts, axis=0), self.targets.sizes, axis=0)
        grown = np.exp(rows - top)
        sums = np.repeat(np.add.reduceat(grown, starts, axis=0), self.targets.sizes, axis=0)
        weights = np.exp(self.logits[-1] - self.logits[-1].max())
        return grown / sums, weights / weights.sum()

    def _means(self, values: Singles) -> Singles:
        """Sum over the levels of each attribute."""
        sums = np.add.reduceat(values, self.targets.starts[:-1], axis=0)
        return np.repeat(sums, self.targets.sizes, axis=0)

    def _centres(self, levels: Singles) -> Singles:
        sizes = np.repeat(self.targets.sizes, self.targets.sizes).astype("f4")
        return np.asarray(self._means(levels) / sizes[:, None], dtype=np.float32)
