"""Measure a charged synthesis: every read in one snapshot, exact numbers end here.

Tables are measured first and generated from that; links are then learnt on the generated rows, by
rounds that look at the joined counts with noise that is paid for (PRIVACY.md section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_generate import (
    add_link,
    add_table,
    assembly_of,
    is_followed,
    link_of,
    row_count,
)
from dpsql.engine.synthesis_measured import Measured, MeasuredLink
from dpsql.engine.synthesis_parts import CountPart, DegreePart, LinkPart, ProfilePart, TablePart
from dpsql.engine.synthesis_readings import Readings

if TYPE_CHECKING:
    from dpsql.statistics.tabulation import Marginals, Tabulation
    from dpsql.synthesis.assembly import Assembly


class Measuring(Readings):
    """Goes through the parts of a task, in one snapshot."""

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
            own = [links[place, k] for k in range(len(planned.references))]
            self._degrees_of(found, own, before=True)
            self._stratify(found, tables[place], own)
            counts = self._table(tables[place])
            drawn = self._drawn(found, tables[place], own, counts)
            measured.tables[place].drawn = self._within(place, planned.most, drawn)
            add_table(found, place, measured.tables[place])
            self._degrees_of(found, own, before=False)
            for link in own:
                self._link(found, link)
        for part, shown, share in zip(task.parts, measured.parts, self.budget.shares, strict=True):
            shown |= {"share": float(share), "rho": float(task.rho * share)}
            if isinstance(part, TablePart | CountPart):
                shown["bound"] = measured.tables[part.place].rows
        return measured

    def _part(self, link: MeasuredLink, kind: type[DegreePart | LinkPart | ProfilePart]) -> Any:
        """Return what is measured of a reference, if it is."""
        for part in self.task.parts:
            if isinstance(part, kind) and (part.place, part.reference) == (
                link.place,
                link.reference,
            ):
                return part
        return None

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

    def _stratify(self, found: Assembly, part: TablePart, links: Sequence[MeasuredLink]) -> None:
        """Choose how many rows of a unit count, and tell apart those of units that have more.

        Where units are parents, whose degrees are known, and rows belong to one unit each: else a
        unit could move rows of others to another stratum.
        """
        from dpsql.synthesis.strata import METHODS, best_strata
        from dpsql.synthesis.table_rows import several

        table = self.task.measured.tables[part.place]
        link = next((link for link in links if self._of_one_parent(link)), None)
        if link is None or not part.alone or not several(table.sizes):
            return
        drawn = found.degrees(link_of(self.task.plan, self.task.measured, link))
        parted = table.method in METHODS
        cut, rho = part.counted.cut, self._rho(part)
        chosen = best_strata(drawn, cut, rho, table.asked, parted=parted)
        table.rows = chosen.rows
        if chosen.starts:
            table.strata, table.weights = chosen.starts, chosen.weights

    def _whole(self, link: MeasuredLink) -> bool:
        """Tell whether degrees of parents with all their children were measured."""
        degrees = self._part(link, DegreePart)
        measured = link.histogram is not None and not self._reference(link).unique
        return measured and degrees is not None and degrees.whole

    def _of_one_parent(self, link: MeasuredLink) -> bool:
        """Tell whether units are one parent each, whose degrees were measured."""
        return self._whole(link) and self._part(link, DegreePart).bound == 1

    def _drawn(
        self,
        found: Assembly,
        part: TablePart,
        links: Sequence[MeasuredLink],
        counts: Tabulation | Marginals,
    ) -> int | None:
        """Return how many rows a table has, where that is not what its columns' marginals say.

        They are counted apart; and attributes are learnt of at most ``d_max`` rows of each unit:
        how many rows there are beyond follows from the whole histogram of degrees, of parents that
        units have with all their children.
        """
        from dpsql.synthesis.degree_law import exceed, number_of_children, reaches
        from dpsql.synthesis.table_rows import nearest

        table = self.task.measured.tables[part.place]
        counted, variance = row_count(table, self.services.database.tick)
        apart = next(
            (p for p in self.task.parts if isinstance(p, CountPart) and p.place == part.place), None
        )
        if apart is not None:
            counted, variance = nearest((counted, variance), self._count(apart, counts))
        self.counted[part.place] = counted
        most: int | None = None if apart is None else max(0, round(counted))
        for link in links:
            histogram = link.histogram
            if table.number is not None or histogram is None or not self._whole(link):
                continue
            drawn = found.degrees(link_of(self.task.plan, self.task.measured, link))
            alone = self._of_one_parent(link)
            if alone:
                self.degrees[part.place] = drawn
            rows = table.rows if part.alone else part.counted.cut
            law = histogram, link.starts, link.sigma
            more = reaches(*law, rows) if alone else exceed(*law, counted, variance**0.5)
            number = number_of_children(counted, drawn, rows, alone=alone, more=more)
            most = max(most or 0, number)
        told = apart is not None or (most is not None and most > round(counted))
        return most if told else None

    def _within(self, place: int, most: int | None, drawn: int | None) -> int | None:
        """Limit the rows of a table to the number of its key's declared values, if it has any."""
        number = round(self.counted[place]) if drawn is None else drawn
        return most if most is not None and number > most else drawn

    def _link(self, found: Assembly, link: MeasuredLink) -> None:
        part, learn = self._part(link, LinkPart), None
        if part is not None:
            learn = self._learning(part, link, found, self.counted[link.place])
        plan, measured = self.task.plan, self.task.measured
        add_link(found, plan, measured, link, learn, drawn=is_followed(plan, measured, link))
