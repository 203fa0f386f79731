"""MST as what measures a synthetic table (`dpsql.workload.mst`), and the rows that follow.

What was measured is kept as noisy tables: those of all attributes, and those of the chosen pairs
over the levels that are not rare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import Floats, attributes_of, kept_masks, read_masks
from dpsql.workload.mbi_loaded import require_mbi
from dpsql.workload.mechanism import Budget
from dpsql.workload.mechanism_aim import AimMechanism
from dpsql.workload.mst import Prices, levels_kept, merge, mst
from dpsql.workload.pgm import fit_model
from dpsql.workload.pgm_rows import sample_model
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers, subtraction
from dpsql.workload.supply import Choice, Gaussian, Marginals, Progress
from dpsql.workload.workload import Workload


class MstMechanism(AimMechanism):
    """Measure every attribute and a tree of pairs; Gaussian noise.

    Parameters
    ----------
    workload, budget : Workload, Budget
        All pairs of attributes, or the single one.

    Raises
    ------
    InvalidParameter
        As `AimMechanism`, and where mbi is not installed.
    """

    name = "mst"

    def __init__(self, workload: Workload, budget: Budget) -> None:
        super().__init__(workload, budget)
        require_mbi()

    def run(
        self, data: Marginals, gaussian: Gaussian, choose: Choice, progress: Progress | None = None
    ) -> list[Floats]:
        """Measure; returns which pairs were chosen, counts of all attributes, and of these."""
        found = mst(
            self.workload.domain.sizes,
            self.budget.loss,
            data,
            gaussian,
            choose,
            contribution=self.budget.rows,
            progress=progress,
        )
        masks = kept_masks(list(found.pairs))
        return [masks, *found.singles.values(), *found.pairs.values()]

    def _tables(
        self, measured: Sequence[Floats]
    ) -> tuple[dict[int, Floats], dict[int, Floats], Prices]:
        several = [i for i, n in enumerate(self.workload.domain.sizes) if n > 1]
        singles = {1 << i: table for i, table in zip(several, measured[1:], strict=False)}
        pairs = read_masks(measured[0])
        rest = measured[1 + len(several) :]
        prices = Prices.of(len(several), self.budget.loss, self.budget.rows)
        return singles, dict(zip(pairs, rest, strict=True)), prices

    def residuals(self, measured: Sequence[Floats]) -> Residuals:
        """Return those of single attributes: pairs have other levels."""
        singles, _, prices = self._tables(measured)
        found = Residuals(self.bases)
        for mask, table in singles.items():
            found.add_marginal(mask, table, float(prices.single))
        return found

    def rows(
        self,
        measured: Sequence[Floats],
        number: int | None,
        seed: int,
        tick: Callable[[], None] = lambda: None,
    ) -> Integers:
        """Sample rows; rare levels by what is known of each."""
        sizes = self.workload.domain.sizes
        singles, pairs, prices = self._tables(measured)
        kept = levels_kept(sizes, singles, float(prices.single))
        fewer = [int(level.max()) + 1 for level in kept]
        known = Residuals(subtraction(fewer))
        for mask, table in singles.items():
            (i,) = attributes_of(mask)
            # merged cells have more noise than others; as a whole it is that of all
            spread = float(prices.single) * sizes[i] / fewer[i]
            known.add_marginal(mask, merge(table, mask, kept), spread)
        for mask, table in pairs.items():
            known.add_marginal(mask, table, float(prices.pair))
        model = fit_model(known, tick=tick)
        wanted = max(0, round(model.total) if number is None else number)
        rows = sample_model(model, wanted, seed, tick)
        rng = np.random.default_rng([seed, 2])
        for mask, table in singles.items():
            (i,) = attributes_of(mask)
            rows[:, i] = _expanded(rows[:, i], kept[i], table, rng)
        return rows


def _expanded(
    column: Integers, level: Integers, noisy: Floats, rng: np.random.Generator
) -> Integers:
    """Return levels of the domain: those that are one, by their shares in the noisy counts."""
    result = np.empty_like(column)
    for merged in range(int(level.max()) + 1):
        own = np.flatnonzero(level == merged)
        here = np.flatnonzero(column == merged)
        if len(own) == 1:
            result[here] = own[0]
            continue
        shares = project_simplex(noisy[own], float(noisy[own].sum()))
        if not shares.sum() > 0:
            shares = np.ones(len(own))
        ends = np.cumsum(shares) / shares.sum()
        points = (rng.uniform() + np.arange(len(here))) / max(1, len(here))
        found = np.minimum(np.searchsorted(ends, points, side="right"), len(own) - 1)
        result[rng.permutation(here)] = own[found]
    return result
