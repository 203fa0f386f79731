"""Estimates of AIM+PGM: a graphical model of everything measured so far, fitted anew each round.

McKenna, Mullins, Sheldon and Miklau 2022.  A model grows with the marginals that are measured, so
that a round may only choose what keeps it small: as in the paper, so much of the limit as of the
budget will have been used.  Which marginals these are follows from those measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import model_cells
from dpsql.workload.marginals import Floats
from dpsql.workload.pgm import GraphicalModel, Settings, fit_model

#: Cells of the largest model that rounds may lead to: 5 MB.
MOST_CELLS = 5 << 17


class ModelEstimates:
    """Marginals of the graphical model of a set of residuals (`selection.Estimates`).

    Parameters
    ----------
    residuals : Residuals
        The estimates; whoever changes them calls `changed`.
    most : int
        Cells of the junction tree, at most.
    settings : Settings, optional
        How models are fitted.
    tick : callable, optional
        Called now and then while one is; may raise.
    """

    def __init__(
        self,
        residuals: Residuals,
        *,
        most: int = MOST_CELLS,
        settings: Settings | None = None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self.residuals = residuals
        self._most, self._settings, self._tick = most, settings, tick
        self._model: GraphicalModel | None = None

    @property
    def model(self) -> GraphicalModel:
        """The model, fitted when first asked for."""
        if self._model is None:
            self._model = fit_model(self.residuals, self._settings, tick=self._tick)
        return self._model

    def __getitem__(self, mask: int) -> Floats:
        """Return a marginal."""
        if self._tick is not None:
            self._tick()
        return self.model.marginal(mask)

    def changed(self, changes: Mapping[int, Floats]) -> Iterable[int]:  # noqa: ARG002
        """Take note of changes of residuals; returns the empty set: any table may have moved."""
        self._model = None
        return (0,)

    def allowed(self, masks: Sequence[int], share: float) -> list[int]:
        """List the marginals that leave the model small enough, or as it is."""
        sizes = [basis.size for basis in self.residuals.bases]
        known = [mask for mask in self.residuals.values if mask]
        return [
            mask
            for mask in masks
            if any(mask & ~other == 0 for other in known)
            or model_cells(sizes, [*known, mask]) <= self._most * share
        ]

    def bounds(self, masks: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Return the sums of absolute values: no entry is negative, so that each is the total."""
        total = self.model.total
        return dict.fromkeys(masks, (total, total))
