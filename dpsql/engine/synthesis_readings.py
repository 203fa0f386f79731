"""Measure single parts of a synthesis: exact numbers of protected rows exist here alone.

Each reading adds noise for what one privacy unit changes and closes its share of the budget
(PRIVACY.md section 8); `dpsql.engine.synthesis_measure` says in which order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_generate import link_of
from dpsql.engine.synthesis_measured import MeasuredLink
from dpsql.engine.synthesis_parts import (
    CountPart,
    DegreePart,
    LinkPart,
    Part,
    ProfilePart,
    TablePart,
)
from dpsql.engine.synthesis_shares import Shares, Task, variance_for, variance_for_square
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from dpsql.engine.progress import Progress
    from dpsql.engine.services import Services
    from dpsql.statistics.tabulation import Marginals, Tabulation
    from dpsql.synthesis.assembly import Assembly
    from dpsql.synthesis.backends import Backend
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Answer, Cross
    from dpsql.synthesis.schema import Reference
    from dpsql.workload.residual_bases import Integers


class Readings:
    """Measures parts of a task one by one, each at its share of the budget."""

    def __init__(self, task: Task, services: Services, progress: Progress) -> None:
        self.task, self.services, self.progress = task, services, progress
        self.budget = Shares([part.share for part in task.parts])
        self.used = Fraction(0)
        self.done = 0
        #: For tables whose rows belong to units that are one parent each: degrees, public.
        self.degrees: dict[int, Any] = {}
        #: Noisy numbers of the rows that count, of tables that are measured.
        self.counted: dict[int, float] = {}

    def _tell(self) -> None:
        self.progress.budget(
            self.used, self.task.rho, 2, done=self.done, total=len(self.task.parts)
        )

    def _rho(self, part: Part) -> Fraction:
        """Return what a part costs, as far as is known by now."""
        return self.task.rho * self.budget.shares[self._number(part)]

    def _number(self, part: Part) -> int:
        return next(i for i, other in enumerate(self.task.parts) if other is part)

    def _paid(self, part: Part) -> None:
        self.used += self._rho(part)
        self.budget.spend(self._number(part))
        self.done += 1
        self._tell()

    def _give_up(self, part: Part) -> None:
        """Leave out what noise would drown: others that are not measured yet get its share."""
        self.budget.give_up(self._number(part))
        self.done += 1
        self._tell()

    def _reference(self, link: MeasuredLink) -> Reference:
        return self.task.plan.tables[link.place].references[link.reference]

    def _noise_of_degrees(self, part: DegreePart) -> Fraction:
        """Return the variance that hides what one unit changes of a histogram of degrees."""
        return variance_for(part.changed, self._rho(part))

    def _table(self, part: TablePart) -> Tabulation | Marginals:
        """Measure the columns of a table; returns what they were counted in, which is secret."""
        import numpy as np

        from dpsql.engine.release_measure import measure_table, supply
        from dpsql.statistics.tabulation import tabulate
        from dpsql.synthesis.table_rows import several, table_mechanism

        table = self.task.measured.tables[part.place]
        counted = part.counted
        database = self.services.database
        cut = table.rows if part.alone else counted.cut
        counts = tabulate(counted.query, counted.levels, cut, database, strata=table.strata)
        rho = table.rho = self._rho(part)
        if not several(table.sizes):
            gaussian, _ = supply(self.services)
            variance = variance_for(counted.rows, rho)
            noisy = int(counts.marginal(())) + int(gaussian(variance, 1)[0])
            table.measured = [np.array([float(noisy)])]
        else:
            asked = table.asked
            mechanism = table_mechanism(asked, table.method, table.rho, table.rows, database.tick)
            mechanism.tick = database.tick
            table.measured = measure_table(mechanism, counts, self.services, _Quiet())  # type: ignore[arg-type]
        self._paid(part)
        return counts

    def _count(self, part: CountPart, counts: Tabulation | Marginals) -> tuple[float, float]:
        """Count the rows that the columns of a table were learnt of; also the noise's variance.

        What a unit changes is what it changes of the columns' marginals: all their rows are one.
        """
        from dpsql.engine.release_measure import supply

        variance = variance_for(self.task.measured.tables[part.place].rows, self._rho(part))
        gaussian, _ = supply(self.services)
        noisy = int(counts.marginal(())) + int(gaussian(variance, 1)[0])
        self._paid(part)
        return float(noisy), float(variance)

    def _degrees(self, part: DegreePart, link: MeasuredLink, parents: int) -> None:
        """Measure how many children parents have, in bins that so many parents can fill.

        The bins follow from noisy or public numbers of parents, and from the noise.
        """
        import numpy as np

        from dpsql.engine.release_measure import supply
        from dpsql.statistics.degrees import degree_histogram
        from dpsql.synthesis.degree_law import fitting_edges

        variance = self._noise_of_degrees(part)
        link.sigma = float(variance) ** 0.5
        link.starts = fitting_edges(part.most, parents, link.sigma)
        exact = degree_histogram(
            part.query, link.starts, part.bound, self.services.database, whole=part.whole
        )
        gaussian, _ = supply(self.services)
        noise = gaussian(variance, exact.size)
        link.histogram = np.asarray(exact + noise, dtype=np.float64)
        self._paid(part)

    def _profile(self, part: ProfilePart, link: MeasuredLink) -> None:
        """Measure which parents have many children, in groups that the histogram fills.

        A unit moves each attribute's table by at most its parents, so all together by their number
        times the root of how many attributes there are, in L2.
        """
        from dpsql.engine.release_measure import supply
        from dpsql.statistics.degrees import degree_profile
        from dpsql.synthesis.profile import groups_of

        square = Fraction(part.bound**2 * len(part.levels))
        variance = variance_for_square(square, self._rho(part))
        link.profile_sigma = float(variance) ** 0.5
        if link.histogram is None:
            raise InternalError("degrees are told by attributes before they are counted")
        link.groups = groups_of(link.histogram, link.starts, link.sigma, link.profile_sigma)
        exact = degree_profile(
            part.query,
            part.levels,
            link.groups,
            part.bound,
            self.services.database,
            keys=part.keys,
        )
        gaussian, _ = supply(self.services)
        link.profile = [
            (table + gaussian(variance, table.size).reshape(table.shape)).astype("float64")
            for table in exact
        ]
        self._paid(part)

    def _learning(self, part: LinkPart, link: MeasuredLink, found: Assembly, counted: float) -> Any:
        """Return what learns the links on generated rows; it is called once at most.

        ``None`` where noise would drown every marginal, which the noisy number of rows tells.
        Fewer rows of each unit count than ``d_max`` where that lets more marginals be useful: noise
        falls with their number, and links of a unit less, as its degrees say, which are public.
        """
        from dpsql.synthesis.coarsening import best_across, kept_by_fewer
        from dpsql.synthesis.links import Learner

        rho = self._rho(part)
        kept = {part.counted.rows: counted}
        if part.alone and link.place in self.degrees:
            kept |= kept_by_fewer(self.degrees[link.place], part.counted.rows)
        counts = found.counts(link_of(self.task.plan, self.task.measured, link))
        chosen = best_across(*counts, rho, kept)
        if chosen is None:
            self.task.measured.notes.append(
                f"links by {self._reference(link).key.name} are random, but for their degrees:"
                " noise would drown every marginal; more epsilon, a smaller d_max or fewer bins"
                " help"
            )
            self._give_up(part)
            return None
        links = found.rows(link.place)
        link.scale = links / max(kept[chosen.rows], 1.0) if links else 1.0
        for axes, groups in ((link.left, chosen.left), (link.right, chosen.right)):
            for axis, group in zip(axes, groups, strict=True):
                axis.groups = group

        def learn(backend: Backend) -> list[Answer]:
            from dpsql.engine.release_measure import supply
            from dpsql.statistics.tabulation import tabulate
            from dpsql.synthesis.links import scaled

            asked = part.counted
            cut = chosen.rows if part.alone else asked.cut
            table = tabulate(asked.query, asked.levels, cut, self.services.database)
            gaussian, choose = supply(self.services)

            def keep(state: LinkState) -> None:
                link.state = state

            learner = Learner(
                ([axis.size for axis in link.left], [axis.size for axis in link.right]),
                chosen.workloads,
                rho,
                _Joined(table, part, [*chosen.left, *chosen.right]),
                gaussian,
                choose,
                backend,
                schedule=chosen.schedule,
                contribution=chosen.rows,
                scale=link.scale,
                store=keep,
            )
            link.state = learner.run()
            return scaled(link.state.answers, link.scale)

        self._paid(part)
        return learn


class _Joined:
    """Marginals across one reference, as `dpsql.synthesis.records.CrossMarginals`."""

    def __init__(
        self,
        counts: Tabulation | Marginals,
        part: LinkPart,
        groups: Sequence[tuple[int, ...]],
    ) -> None:
        self._counts, self._part = counts, part
        self._groups = dict(zip([*part.left, *part.right], groups, strict=True))

    def batch(self, workloads: Sequence[Cross]) -> Mapping[Cross, Integers]:
        from dpsql.synthesis.coarsening import merged
        from dpsql.workload.marginals import attributes_of

        asked = [
            [self._part.left[i] for i in attributes_of(w.left)]
            + [self._part.right[i] for i in attributes_of(w.right)]
            for w in workloads
        ]
        found = zip(workloads, asked, self._counts.marginals(asked), strict=True)
        return {w: merged(table, [self._groups[i] for i in which]) for w, which, table in found}


class _Quiet:
    """Takes the progress within a part, whose budget is not the whole."""

    def budget(self, *args: object, **named: object) -> None:
        """Take what is told."""

    rounds = budget
