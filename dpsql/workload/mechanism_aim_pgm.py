"""AIM+PGM as a mechanism of releases: rounds as of AIM+GReM, tables of a graphical model.

McKenna, Mullins, Sheldon and Miklau 2022, with residuals measured as in papers/aim-grem.txt (CRP),
of which a graphical model is fitted (`dpsql.workload.pgm`).  It takes minutes where AIM+GReM takes
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dpsql.workload.aim import Schedule
from dpsql.workload.grem import Residuals
from dpsql.workload.matrix import Floats
from dpsql.workload.mbi_loaded import require_mbi
from dpsql.workload.mechanism import Answers, Budget, over_all
from dpsql.workload.mechanism_aim import AimMechanism
from dpsql.workload.model_estimates import ModelEstimates
from dpsql.workload.pgm import fit_model
from dpsql.workload.selection import Estimates
from dpsql.workload.workload import Workload

#: Rounds for each attribute that a budget is spread over at first.
ROUNDS = 2


class AimPgmMechanism(AimMechanism):
    """Choose, measure and reconstruct marginals in rounds by a graphical model; Gaussian noise.

    Parameters
    ----------
    workload, budget : Workload, Budget
        Marginals, level by level.
    tick : callable
        Called now and then while models are fitted; may raise to cancel.

    Raises
    ------
    InvalidParameter
        As `AimMechanism`, and where mbi is not installed.
    """

    name = "aim_pgm"

    def __init__(
        self, workload: Workload, budget: Budget, tick: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(workload, budget)
        require_mbi()
        self._tick = tick

    def schedule(self) -> Schedule:
        """See `AimMechanism.schedule`: few rounds, as each fits a model."""
        return Schedule(rounds=ROUNDS * sum(n > 1 for n in self.workload.domain.sizes))

    def estimates(self, residuals: Residuals) -> Estimates:
        """See `AimMechanism.estimates`."""
        return ModelEstimates(residuals, tick=self._tick)

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`: non-negative, without errors."""
        model = fit_model(self.residuals(measured), tick=self._tick)
        for mask in self.masks:
            self._tick()
            shown = over_all(model.marginal(mask), mask, len(self.bases))
            yield Answers(shown, np.full(shown.shape, np.nan))
