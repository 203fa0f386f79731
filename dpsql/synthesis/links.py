"""Learn the links between two synthetic tables: Algorithms 1 and 2, over either back end.

papers/relational-synthetic-data.txt, section 3 and Appendix B: in rounds choose the workloads whose
marginals are furthest off, measure them, and fit the links to everything measured so far.  The
counts are read once; what is kept between rounds (`LinkState`) is noisy, so a stopped run goes on,
or is finished with what it has, without reading or paying again (PRIVACY.md section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.backends import Backend
from dpsql.synthesis.blocks import Sampled
from dpsql.synthesis.records import Answer, Cross, CrossMarginals, cross_shape
from dpsql.synthesis.selection import Pick, Schedule, Selector, price
from dpsql.workload.marginals import Floats
from dpsql.workload.supply import Choice, Gaussian, Progress

#: Exact counts of all candidates are kept: 8 bytes a cell.
MAX_CELLS = 100_000_000


@dataclass(frozen=True)
class LinkState:
    """What a run may keep: public values only.

    Attributes
    ----------
    answers : tuple of Answer
        In the order in which they were bought.
    used : Fraction
        The rho of all rounds so far.
    rounds : int
        How many are complete.
    """

    answers: tuple[Answer, ...] = ()
    used: Fraction = Fraction(0)
    rounds: int = 0


@dataclass
class Learner:
    """One run of the adaptive loop.

    Parameters
    ----------
    sizes : pair of sequence of int
        Levels of the left table's attributes, and of the right one's.
    workloads : sequence of Cross
        Candidates, none of them twice.
    rho : Fraction, > 0
        The budget, zero-concentrated.
    data : CrossMarginals
        One batch is read, of all candidates.
    gaussian, choose : Gaussian, Choice
        `dpsql.workload.supply`.
    backend : Backend
    schedule : Schedule
    contribution : int
        By how many links neighbours differ at most; see `selection.Selector`.
    weights : mapping of Cross to int, optional
    scale : float
        Synthetic links for a real one, public.
    progress : Progress, optional
        Told after every round; may raise.
    store : callable, optional
        Given the state after every round.

    Notes
    -----
    Where the schedule has as many picks as there are candidates, all are measured and none is
    chosen (the setting of the paper's Theorem 2).
    """

    sizes: tuple[Sequence[int], Sequence[int]]
    workloads: Sequence[Cross]
    rho: Fraction
    data: CrossMarginals
    gaussian: Gaussian
    choose: Choice
    backend: Backend
    schedule: Schedule = field(default_factory=Schedule)
    contribution: int = 1
    weights: Mapping[Cross, int] | None = None
    scale: float = 1.0
    progress: Progress | None = None
    store: Callable[[LinkState], None] | None = None

    def run(self, state: LinkState | None = None) -> LinkState:
        """Go through all rounds, or those that a stored state has not done.

        The counts are read if any round is left: under the debit that was made for all of them.
        `refit` alone finishes with a stored state and reads nothing.

        Raises
        ------
        InvalidParameter
            If the budget, a workload or a stored state does not fit.
        """
        self._check()
        state = state or LinkState()
        if state.used > self.rho:
            raise InvalidParameter("the stored rounds used more than the budget")
        done = {a.workload for a in state.answers}
        open_ones = [w for w in self.workloads if w not in done and self.backend.fits([w])]
        rounds, picks, pick = self._plan()
        if state.rounds >= rounds or not open_ones:
            self.refit(state)
            return state
        selector = Selector(self.data.batch(list(open_ones)), self.contribution, self.weights)
        self.refit(state)
        while state.rounds < rounds:
            state, open_ones = self._round(state, open_ones, picks, pick, selector)
            if self.store:
                self.store(state)
            self.refit(state)
            if self.progress:
                self.progress(state.rounds, state.used, self.rho)
            if not open_ones:
                break
        return state

    def refit(self, state: LinkState) -> None:
        """Fit the links to stored answers; reads and pays nothing."""
        if state.answers:
            self.backend.fit(scaled(state.answers, self.scale))

    def _plan(self) -> tuple[int, int, Pick]:
        """Return rounds, picks a round and their price: the same when resumed."""
        found = self.schedule
        enough = len(self.workloads) <= found.rounds * found.per_round
        if enough and self.backend.fits(self.workloads):
            rho = self.rho / len(self.workloads)
            return 1, len(self.workloads), price(rho, 0.0, self.contribution)
        rho = self.rho / (found.rounds * found.per_round)
        return found.rounds, found.per_round, price(rho, found.select_share, self.contribution)

    def _round(
        self,
        state: LinkState,
        candidates: list[Cross],
        picks: int,
        pick: Pick,
        selector: Selector,
    ) -> tuple[LinkState, list[Cross]]:
        chosen: list[Answer] = []
        left = list(candidates)
        estimates: Mapping[Cross, Floats] = {}
        if pick.epsilon:
            found = self.backend.estimates(left)
            estimates = {w: table / self.scale for w, table in found.items()}
        for _ in range(picks):
            now = [a.workload for a in chosen]
            left = [w for w in left if self.backend.fits([*now, w])]
            if not left:
                break
            workload = (
                selector.select(left, estimates, pick, self.choose) if pick.epsilon else left[0]
            )
            left.remove(workload)
            shape = cross_shape(*self.sizes, workload)
            chosen.append(selector.answer(workload, pick, self.gaussian, shape))
        used = state.used + len(chosen) * pick.rho
        return LinkState((*state.answers, *chosen), used, state.rounds + 1), left

    def _check(self) -> None:
        if self.rho <= 0:
            raise InvalidParameter(f"the budget {self.rho} is not positive")
        if not self.scale > 0:
            raise InvalidParameter(f"a scale of {self.scale} is not positive")
        if not self.workloads or len(set(self.workloads)) != len(self.workloads):
            raise InvalidParameter("workloads across tables are missing, or occur twice")
        left, right = self.sizes
        found = 0
        for w in self.workloads:
            if min(w) < 1 or w.left >> len(left) or w.right >> len(right):
                raise InvalidParameter(
                    f"the workload {tuple(w)} does not cross the tables",
                    detail=f"They have {len(left)} and {len(right)} attributes.",
                )
            a, b = cross_shape(left, right, w)
            found += a * b
        if found > MAX_CELLS:
            raise InvalidParameter(
                f"the workloads across two tables have {found} cells",
                detail=f"At most {MAX_CELLS} are kept in memory.",
                hint="Ask for marginals of fewer attributes, or declare coarser domains.",
            )


def scaled(answers: Sequence[Answer], scale: float) -> list[Answer]:
    """Multiply answers, for so many synthetic links for a real one."""
    square = Fraction(scale) ** 2
    return [replace(a, table=a.table * scale, variance=a.variance * square) for a in answers]


def finish(backend: Backend, seed: int) -> Sampled:
    """Draw the links: post-processing, the same for the same seed."""
    return backend.sample(np.random.default_rng(seed))
