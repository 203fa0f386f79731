"""Measure a charged synthesis: every read in one snapshot, exact numbers end here.

Tables are measured first and generated from that; links are then learnt on the generated rows, by
rounds that look at the joined counts with noise that is paid for (PRIVACY.md section 8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_parts import DegreePart, LinkPart, Part, ProfilePart, TablePart
from dpsql.engine.synthesis_payload import (
    Measured,
    MeasuredAxis,
    MeasuredLink,
    add_link,
    add_table,
    assembly_of,
    counted_rows,
    is_followed,
    link_of,
)
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from dpsql.engine.progress import Progress
    from dpsql.engine.services import Services
    from dpsql.statistics.tabulation import Marginals, Tabulation
    from dpsql.synthesis.assembly import Assembly
    from dpsql.synthesis.backends import ByTypes
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Answer, Cross
    from dpsql.synthesis.schema import Plan, Reference
    from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True, slots=True)
class Task:
    """All that is measured: parts of a budget, rho, and what is already known."""

    plan: Plan
    parts: Sequence[Part]
    rho: Fraction
    measured: Measured
    seed: int


class Shares:
    """Parts of a budget; those of what is given up go to what is not measured yet.

    What is given up is decided by public facts and by what was measured before, so that the whole
    is adaptive composition: costs add up to what was charged, or less (PRIVACY.md section 7).

    Parameters
    ----------
    shares : sequence of Fraction
        Of each part, 1 in all.
    """

    def __init__(self, shares: Sequence[Fraction]) -> None:
        self.shares = list(shares)
        self._open = set(range(len(self.shares)))

    def open(self, part: int) -> bool:
        """Whether a part is neither spent nor given up."""
        return part in self._open

    def spend(self, part: int) -> None:
        """Close a part: its share is fixed."""
        self._open.remove(part)

    def give_up(self, part: int) -> None:
        """Spread a part's share over the open ones as theirs are, rounded down to few bits."""
        self._open.remove(part)
        freed, self.shares[part] = self.shares[part], Fraction(0)
        whole = sum((self.shares[i] for i in self._open), Fraction(0))
        for i in self._open:
            more = freed * self.shares[i] / whole
            self.shares[i] += Fraction(math.floor(more * _GRAIN), _GRAIN)


#: Shares that are handed on are multiples of the reciprocal.
_GRAIN = 1 << 40


class Measuring:
    """Goes through the parts of a task, in one snapshot."""

    def __init__(self, task: Task, services: Services, progress: Progress) -> None:
        self.task, self.services, self.progress = task, services, progress
        self.budget = Shares([part.share for part in task.parts])
        self.used = Fraction(0)
        self.done = 0
        #: For tables whose rows belong to units that are one parent each: degrees, public.
        self.degrees: dict[int, Any] = {}

    def run(self) -> Measured:
        """Measure everything; returns what may be stored."""
        task, measured = self.task, self.task.measured
        found = assembly_of(task.plan, measured, task.seed, self.services.database.tick)
        tables = {p.place: p for p in task.parts if isinstance(p, TablePart)}
        links = {(link.place, link.reference): link for link in measured.links}
        self._tell()
        for link in measured.links:
            if task.plan.tables[self._reference(link).parent].table.public:
                self._drowned(found, link)
        for place, planned in enumerate(task.plan.tables):
            if planned.table.public:
                continue
            self._table(tables[place])
            own = [links[place, k] for k in range(len(planned.references))]
            self._degrees_of(found, own, before=True)
            measured.tables[place].drawn = self._drawn(found, tables[place], own)
            add_table(found, place, measured.tables[place])
            self._degrees_of(found, own, before=False)
            for link in own:
                self._link(found, link)
        for shown, share in zip(measured.parts, self.budget.shares, strict=True):
            shown |= {"share": float(share), "rho": float(task.rho * share)}
        return measured

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

    def _drowned(self, found: Assembly, link: MeasuredLink) -> bool:
        """Give the degrees of a reference up if so many parents would be noise: it says so."""
        from dpsql.synthesis.degree_law import stands_out

        part = self._part(link, DegreePart)
        if part is None or not self.budget.open(self._number(part)):
            return part is not None
        sigma = float(self._noise_of_degrees(part)) ** 0.5
        if part.whole or stands_out(found.rows(self._reference(link).parent), sigma):
            return False
        self.task.measured.notes.append(
            f"how many children parents have by {self._reference(link).key.name} is not learnt:"
            " noise would drown it"
        )
        self._give_up(part)
        return True

    def _noise_of_degrees(self, part: DegreePart) -> Fraction:
        """Return the variance that hides what one unit changes of a histogram of degrees."""
        from dpsql.statistics.degrees import sensitivity

        changed = part.others.beside(sensitivity(part.query, part.bound, whole=part.whole))
        return _variance(changed, self._rho(part))

    def _table(self, part: TablePart) -> None:
        import numpy as np

        from dpsql.engine.release_measure import measure_table, supply
        from dpsql.statistics.tabulation import tabulate
        from dpsql.synthesis.table_rows import several, table_mechanism

        table = self.task.measured.tables[part.place]
        counted = part.counted
        database = self.services.database
        counts = tabulate(counted.query, counted.levels, counted.cut, database)
        rho = table.rho = self._rho(part)
        if not several(table.sizes):
            gaussian, _ = supply(self.services)
            variance = _variance(counted.rows, rho)
            noisy = int(counts.marginal(())) + int(gaussian(variance, 1)[0])
            table.measured = [np.array([float(noisy)])]
        else:
            sizes = [table.sizes[k] for k in table.order]
            mechanism = table_mechanism(sizes, table.method, table.rho, table.rows, database.tick)
            mechanism.tick = database.tick
            table.measured = measure_table(mechanism, counts, self.services, _Quiet())  # type: ignore[arg-type]
        self._paid(part)

    def _part(self, link: MeasuredLink, kind: type[DegreePart | LinkPart | ProfilePart]) -> Any:
        """Return what is measured of a reference, if it is."""
        for part in self.task.parts:
            if isinstance(part, kind) and (part.place, part.reference) == (
                link.place,
                link.reference,
            ):
                return part
        return None

    def _degrees_of(self, found: Assembly, links: Sequence[MeasuredLink], *, before: bool) -> None:
        """Measure degrees: those of other tables' rows before there are rows of this one."""
        for link in links:
            parent = self.task.plan.tables[link.place].references[link.reference].parent
            part = self._part(link, DegreePart)
            if part is not None and before == (parent != link.place):
                if before and self._drowned(found, link):
                    continue
                self._degrees(part, link, found.rows(parent))
                profile = self._part(link, ProfilePart)
                if profile is not None:
                    self._profile(profile, link)

    def _drawn(self, found: Assembly, part: TablePart, links: Sequence[MeasuredLink]) -> int | None:
        """Return how many rows a table has by its parents' degrees, if any are beyond ``d_max``.

        Attributes are learnt of at most ``d_max`` rows of each unit; how many rows there are
        follows from the whole histogram, of parents that units have with all their children.
        """
        from dpsql.synthesis.degree_law import noise_of_children, number_of_children, reaches

        table = self.task.measured.tables[part.place]
        counted = counted_rows(table, self.services.database.tick)
        most: int | None = None
        for link in links:
            degrees = self._part(link, DegreePart)
            if table.number is not None or degrees is None or not degrees.whole:
                continue
            if link.histogram is None or self._reference(link).unique:
                continue
            sigma = float(_variance(part.counted.rows, self._rho(part))) ** 0.5
            sigma += noise_of_children(link.histogram, link.starts, link.sigma)
            drawn = found.degrees(link_of(self.task.plan, self.task.measured, link))
            alone = degrees.bound == 1
            if alone:
                self.degrees[part.place] = drawn
            rows = part.counted.cut
            if alone and not reaches(link.histogram, link.starts, link.sigma, rows):
                continue
            number = number_of_children(counted, sigma, drawn, rows, alone=alone)
            most = max(most or 0, number)
        return most if most is not None and most > round(counted) else None

    def _reference(self, link: MeasuredLink) -> Reference:
        return self.task.plan.tables[link.place].references[link.reference]

    def _link(self, found: Assembly, link: MeasuredLink) -> None:
        part, learn = self._part(link, LinkPart), None
        if part is not None:
            table = self.task.measured.tables[link.place]
            counted = counted_rows(table, self.services.database.tick)
            learn = self._learning(part, link, found, counted)
        plan, measured = self.task.plan, self.task.measured
        add_link(found, plan, measured, link, learn, drawn=is_followed(plan, measured, link))

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
        variance = _gaussian(square, self._rho(part))
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

        def learn(backend: ByTypes) -> list[Answer]:
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


def axes_of(part: LinkPart | ProfilePart, which: Sequence[int]) -> tuple[MeasuredAxis, ...]:
    """Write the attributes of one end as they are stored."""
    axes = [part.counted.axes[i] for i in which]
    return tuple(MeasuredAxis(axis.columns, axis.values) for axis in axes)


def _variance(changed: int, rho: Fraction) -> Fraction:
    """Return the variance of a discrete Gaussian that costs at most ``rho``, in few bits."""
    return _gaussian(Fraction(changed * changed), rho)


def _gaussian(square: Fraction, rho: Fraction) -> Fraction:
    """Return that for a squared change in L2."""
    exact = square / (2 * rho)
    return Fraction(math.ceil(exact * (1 << 20)), 1 << 20)
