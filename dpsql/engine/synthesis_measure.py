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

from dpsql.engine.synthesis_parts import DegreePart, LinkPart, Part, TablePart
from dpsql.engine.synthesis_payload import (
    Measured,
    MeasuredAxis,
    MeasuredLink,
    add_link,
    add_table,
    assembly_of,
)

if TYPE_CHECKING:
    from dpsql.engine.progress import Progress
    from dpsql.engine.services import Services
    from dpsql.statistics.tabulation import Marginals, Tabulation
    from dpsql.synthesis.assembly import Assembly
    from dpsql.synthesis.backends import ByTypes
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Cross
    from dpsql.synthesis.schema import Plan
    from dpsql.synthesis.selection import Schedule
    from dpsql.workload.residual_bases import Integers

#: Cells of all marginals across one reference that are looked at.
MOST_CELLS = 20_000_000
#: How many of them.
MOST_WORKLOADS = 2_000
#: Marginals that are measured across one reference.
MOST_PICKS = 16
#: The share of links that noise may move in one of them.
MOST_NOISE = 0.3


@dataclass(frozen=True, slots=True)
class Task:
    """All that is measured: parts of a budget, rho, and what is already known."""

    plan: Plan
    parts: Sequence[Part]
    rho: Fraction
    measured: Measured
    seed: int


class Measuring:
    """Goes through the parts of a task, in one snapshot."""

    def __init__(self, task: Task, services: Services, progress: Progress) -> None:
        self.task, self.services, self.progress = task, services, progress
        self.used = Fraction(0)
        self.done = 0

    def run(self) -> Measured:
        """Measure everything; returns what may be stored."""
        task, measured = self.task, self.task.measured
        found = assembly_of(task.plan, measured, task.seed, self.services.database.tick)
        tables = {p.place: p for p in task.parts if isinstance(p, TablePart)}
        links = {(link.place, link.reference): link for link in measured.links}
        self._tell()
        for place, planned in enumerate(task.plan.tables):
            if planned.table.public:
                continue
            self._table(tables[place])
            add_table(found, place, measured.tables[place])
            for k in range(len(planned.references)):
                self._link(found, links[place, k])
        return measured

    def _tell(self) -> None:
        self.progress.budget(
            self.used, self.task.rho, 2, done=self.done, total=len(self.task.parts)
        )

    def _paid(self, part: Part) -> None:
        self.used += self.task.rho * part.share
        self.done += 1
        self._tell()

    def _table(self, part: TablePart) -> None:
        import numpy as np

        from dpsql.engine.release_measure import measure_table, supply
        from dpsql.statistics.tabulation import tabulate
        from dpsql.synthesis.table_rows import several, table_mechanism

        table = self.task.measured.tables[part.place]
        counted = part.counted
        database = self.services.database
        counts = tabulate(counted.query, counted.levels, counted.cut, database)
        rho = self.task.rho * part.share
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

    def _link(self, found: Assembly, link: MeasuredLink) -> None:
        learn = None
        for part in self.task.parts:
            if isinstance(part, TablePart):
                continue
            if (part.place, part.reference) != (link.place, link.reference):
                continue
            if isinstance(part, DegreePart):
                self._degrees(part, link)
            else:
                learn = self._learning(part, link, found.rows(link.place))
        add_link(found, self.task.plan, self.task.measured, link, learn)

    def _degrees(self, part: DegreePart, link: MeasuredLink) -> None:
        import numpy as np

        from dpsql.engine.release_measure import supply
        from dpsql.statistics.degrees import degree_histogram, sensitivity

        exact = degree_histogram(
            part.query, link.starts, part.bound, self.services.database, whole=part.whole
        )
        changed = part.others.beside(sensitivity(part.query, part.bound, whole=part.whole))
        gaussian, _ = supply(self.services)
        noise = gaussian(_variance(changed, self.task.rho * part.share), exact.size)
        link.histogram = np.asarray(exact + noise, dtype=np.float64)
        self._paid(part)

    def _learning(self, part: LinkPart, link: MeasuredLink, links: int) -> Any:
        """Return what learns the links on generated rows; it is called once at most.

        ``None`` where noise would drown every marginal, which the noisy number of rows tells.
        """
        from dpsql.synthesis.links import Learner

        left = [len(axis.values) for axis in link.left]
        right = [len(axis.values) for axis in link.right]
        rho = self.task.rho * part.share
        useful = useful_across(left, right, rho, part.counted.rows, links)
        if useful is None:
            reference = self.task.plan.tables[link.place].references[link.reference]
            self.task.measured.notes.append(
                f"links by {reference.key.name} are random, but for their degrees: noise would"
                " drown every marginal; more epsilon, a smaller d_max or fewer bins help"
            )
            self._paid(part)
            return None
        workloads, schedule = useful

        def learn(backend: ByTypes) -> None:
            from dpsql.engine.release_measure import supply
            from dpsql.statistics.tabulation import tabulate

            counted = part.counted
            counts = tabulate(counted.query, counted.levels, counted.cut, self.services.database)
            gaussian, choose = supply(self.services)

            def keep(state: LinkState) -> None:
                link.state = state

            learner = Learner(
                (left, right),
                workloads,
                rho,
                _Joined(counts, part),
                gaussian,
                choose,
                backend,
                schedule=schedule,
                contribution=counted.rows,
                store=keep,
            )
            link.state = learner.run()

        self._paid(part)
        return learn


class _Joined:
    """Marginals across one reference, as `dpsql.synthesis.records.CrossMarginals`."""

    def __init__(self, counts: Tabulation | Marginals, part: LinkPart) -> None:
        self._counts, self._part = counts, part

    def batch(self, workloads: Sequence[Cross]) -> Mapping[Cross, Integers]:
        from dpsql.workload.marginals import attributes_of

        found = self._counts.marginals(
            [
                [self._part.left[i] for i in attributes_of(w.left)]
                + [self._part.right[i] for i in attributes_of(w.right)]
                for w in workloads
            ]
        )
        return dict(zip(workloads, found, strict=True))


class _Quiet:
    """Takes the progress within a part, whose budget is not the whole."""

    def budget(self, *args: object, **named: object) -> None:
        """Take what is told."""

    rounds = budget


def workloads_across(left: Sequence[int], right: Sequence[int]) -> list[Cross]:
    """List the marginals across a reference that may be measured: of two and three attributes.

    Those of three only if all of them fit; of two the smallest, if they do not.
    """
    from dpsql.synthesis.records import cross_shape, cross_workloads

    def size(workload: Cross) -> int:
        return math.prod(cross_shape(left, right, workload))

    found: list[Cross] = []
    cells = 0
    for k in (2, 3):
        wider = sorted(cross_workloads(left, right, k), key=size)
        if k == 3 and (
            cells + sum(map(size, wider)) > MOST_CELLS or len(found) + len(wider) > MOST_WORKLOADS
        ):
            break
        for workload in wider:
            if cells + size(workload) > MOST_CELLS or len(found) == MOST_WORKLOADS:
                break
            found.append(workload)
            cells += size(workload)
    return found


def useful_across(
    left: Sequence[int], right: Sequence[int], rho: Fraction, contribution: int, links: int
) -> tuple[list[Cross], Schedule] | None:
    """Choose which marginals across a reference may be measured, and how many: public facts.

    Of one that is measured, noise is expected to move `MOST_NOISE` of the links at most; as many
    are measured as there are that stand it, up to `MOST_PICKS`.  ``None``: not even one is.
    """
    from dpsql.synthesis.records import cross_shape
    from dpsql.synthesis.selection import Schedule

    candidates = workloads_across(left, right)
    sizes = [math.prod(cross_shape(left, right, w)) for w in candidates]
    for picks in range(MOST_PICKS, 0, -1):
        sigma = contribution * math.sqrt(picks / (2 * float(rho)))
        room = MOST_NOISE * links / (math.sqrt(2 / math.pi) * sigma)
        found = [w for w, size in zip(candidates, sizes, strict=True) if size <= room]
        if len(found) >= min(picks, len(candidates)):
            per_round = 2 if picks >= 4 else 1
            return found, Schedule(rounds=max(1, picks // per_round), per_round=per_round)
    return None


def axes_of(part: LinkPart, which: Sequence[int]) -> tuple[MeasuredAxis, ...]:
    """Write the attributes of one end as they are stored."""
    axes = [part.counted.axes[i] for i in which]
    return tuple(MeasuredAxis(axis.columns, axis.values) for axis in axes)


def _variance(changed: int, rho: Fraction) -> Fraction:
    """Return the variance of a discrete Gaussian that costs at most ``rho``, in few bits."""
    exact = Fraction(changed * changed) / (2 * rho)
    return Fraction(math.ceil(exact * (1 << 20)), 1 << 20)
