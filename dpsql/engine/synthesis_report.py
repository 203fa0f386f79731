"""How good a synthetic copy is: sizes, keys, degrees, budget, and errors of marginals.

By default compared with what was measured, which is paid for and has noise in it (PRIVACY.md
section 2 (b)); for an owner of all protected relations with those themselves, by that owner's own
rights and not for publication (section 8).  The synthetic tables are read with the rights of
whoever made them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from dpsql.engine.synthesis_ask import Learned, What, reached
from dpsql.engine.synthesis_copies import Copies
from dpsql.engine.synthesis_generate import row_count
from dpsql.engine.synthesis_marginals import (
    AsOwner,
    Column,
    Counter,
    Counts,
    Marginal,
    Reads,
)
from dpsql.engine.synthesis_measured import MeasuredAxis, MeasuredLink, MeasuredTable
from dpsql.synthesis.degree_law import settled
from dpsql.synthesis.report import (
    across,
    binned_degrees,
    evenly,
    non_negative,
    subsets_of,
    variation,
)
from dpsql.synthesis.schema import Reference
from dpsql.workload.marginals import Floats, attributes_of, cells

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Marginals of each number of attributes that are looked at, of a table or a reference.
MOST_MARGINALS = 40
#: Cells of one of them, at most.
MOST_CELLS = 100_000
#: By how many standard deviations there are more rows than were counted.
_SURE = 4
_NOISY = "against noisy measurements: the noise is in it"
_EXACT = "exact, for owners only: do not publish"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a report."""

    part: str
    relation: str | None
    what: str
    value: float | None
    expected: float | None = None
    note: str | None = None

    def row(self) -> tuple[object, ...]:
        """Return it in the order of the function's columns."""
        return self.part, self.relation, self.what, self.value, self.expected, self.note


def report(
    copies: Copies,
    services: Services,
    *,
    true_data: bool,
    as_owner: Callable[[int, Callable[[], Any]], Any],
) -> Iterator[Line]:
    """Compare a finished synthesis with what was measured, or with the original.

    Parameters
    ----------
    copies : Copies
        Of `dpsql.engine.synthesis_copies.read_copies`, which checks who may do that.
    services : Services
        With a database that has the caller's rights.
    true_data : bool
        With the original relations too, for their owner.
    as_owner : callable
        Runs what it is given with the rights of a relation's owner: the synthetic tables'.
    """
    copy = AsOwner(services.database, copies.owned, as_owner)
    found = _Report(copies, services, copy, true_data)
    yield from found.budget()
    for place, planned in enumerate(copies.plan.tables):
        if not planned.table.public:
            yield from found.size(place)
            yield from found.keys(place)
            yield from found.within(place)
    for link in copies.measured.links:
        yield from found.degrees(link)
        yield from found.across(link)


class _Report:
    """Reads copies, and originals if that is asked for."""

    def __init__(self, copies: Copies, services: Services, copy: Reads, true_data: bool) -> None:
        plan, learnt = copies.plan, copies.measured.learnt
        self.copies, self.plan, self.measured = copies, plan, copies.measured
        self.tick = services.database.tick
        self.copy = Counter(plan, learnt, copies.copy, copy)
        self.original: Counter | None = None
        if true_data:
            self.original = Counter(plan, learnt, copies.original, services.database)

    def budget(self) -> Iterator[Line]:
        """Show the cost of the whole and its split."""
        yield Line("budget", None, "epsilon", self.copies.epsilon)
        yield Line("budget", None, "delta", self.copies.delta)
        for part in self.measured.parts:
            relation = str(part["relation"])
            if "foreign_key" in part:
                relation += f" ({part['foreign_key']})"
            bound = f"at most {part['bound']} rows of a unit count"
            if str(part["what"]).startswith("degrees"):
                bound = f"a unit changes counts of parents by at most {part['bound']}"
            note = f"rho {part['rho']:.3g}; {bound}"
            yield Line("budget", relation, f"share of {part['what']}", part["share"], None, note)

    def size(self, place: int) -> Iterator[Line]:
        """Compare numbers of rows."""
        table, name = self.measured.tables[place], self.copies.shown(place)
        rows = self.copy.rows(place)
        if table.number is not None:
            yield Line("size", name, "rows", rows, table.number, "declared")
        else:
            (counted, variance), note = row_count(table, self.tick), "noisy"
            wanted = counted if table.drawn is None else table.drawn
            # more than noise explains: units have more than were counted of each
            if wanted > counted + _SURE * variance**0.5:
                note += f": by degrees; at most {table.rows} of each unit are {counted:.0f}"
            yield Line("size", name, "rows", rows, wanted, note)
        if self.original is not None:
            yield Line("size", name, "rows", rows, self.original.rows(place), _EXACT)

    def _mechanism(self, table: MeasuredTable) -> Any:
        from dpsql.synthesis.table_rows import several, table_mechanism

        if not several(table.sizes):
            return None
        return table_mechanism(table.asked, table.method, table.rho, table.rows, self.tick)

    def keys(self, place: int) -> Iterator[Line]:
        """Count what violates keys and constraints."""
        planned, name = self.plan.tables[place], self.copies.shown(place)
        counter = self.copy
        both = [(r.key, r.parent) for r in planned.references]
        at = {p.table.oid: n for n, p in enumerate(self.plan.tables)}
        both += [(key, at[key.parent]) for key in planned.implied if key.parent in at]
        for key, parent in both:
            orphans = counter.orphans(place, key.columns, parent, key.parent_columns)
            yield Line("keys", _referring(name, key.columns), "orphans", orphans, 0)
        for unique in planned.table.uniques:
            found = counter.duplicates(place, unique.columns, nulls_distinct=unique.nulls_distinct)
            yield Line("keys", _referring(name, unique.columns), "duplicates", found, 0)
        required = [c.name for c in planned.table.columns if c.not_null]
        yield Line("keys", name, "NULL in NOT NULL", counter.nulls(place, required), 0)
        checks, invalid = self.copies.checks(place)
        note = f"{checks} in the copy; PostgreSQL has validated the others" if invalid else None
        note = note or f"{checks} in the copy, validated by PostgreSQL"
        yield Line("keys", name, "CHECK not validated", invalid, 0, note)

    def degrees(self, link: MeasuredLink) -> Iterator[Line]:
        """Compare how many children parents have."""
        if link.direct is not None or (link.histogram is None and self.original is None):
            return
        name = self._reference_name(link)
        found = self.copy.degrees(link.place, link.reference)
        if link.histogram is not None:
            own = binned_degrees(found, link.starts)
            error = variation(
                _shares(own), _shares(settled(link.histogram, link.sigma, link.starts))
            )
            yield Line("degrees", name, "total variation", error, None, _NOISY)
        if self.original is not None:
            parent = self._reference(link).parent
            theirs = self.original.degrees(link.place, link.reference)
            one, other = dict(found), dict(theirs)
            one[0] = self.copy.rows(parent) - sum(found.values())
            other[0] = self.original.rows(parent) - sum(theirs.values())
            yield Line("degrees", name, "total variation", variation(one, other), None, _EXACT)

    def within(self, place: int) -> Iterator[Line]:
        """Compare marginals of a table."""
        table, name = self.measured.tables[place], self.copies.shown(place)
        asked: dict[Marginal, Callable[[], Counts]] = {}
        mechanism = self._mechanism(table)
        if mechanism is not None:
            from dpsql.synthesis.strata import joined
            from dpsql.workload.axis import reconstruct_all

            residuals = mechanism.residuals(table.measured)
            stratum = 1 << len(table.order) if table.strata else 0
            for mask in sorted(residuals.values):
                if mask & stratum:
                    continue
                where = [table.order[i] for i in attributes_of(mask)]
                if 1 <= len(where) <= 3 and cells(table.asked, mask | stratum) <= MOST_CELLS:

                    def noisy(mask: int = mask | stratum, where: Sequence[int] = where) -> Counts:
                        values = next(reconstruct_all(residuals.values, [mask], residuals.bases))[1]
                        if stratum:
                            values = joined(values, table.weights)
                        return _cells(values, [_singles(table.levels[k]) for k in where])

                    asked[Marginal(place, tuple(((), k) for k in where))] = noisy
        yield from self._noisy("within", name, asked)
        columns: list[Column] = [((), k) for k in range(len(self.measured.learnt[place]))]
        for k in (1, 2, 3):
            yield from self._exact("within", name, place, k, subsets_of(columns, k))

    def across(self, link: MeasuredLink) -> Iterator[Line]:
        """Compare marginals over rows of both ends of a reference."""
        name = self._reference_name(link)
        asked: dict[Marginal, Callable[[], Counts]] = {}
        grouped: dict[Marginal, Sequence[MeasuredAxis]] = {}
        for answer in link.state.answers if link.state is not None else ():
            axes = [link.left[i] for i in attributes_of(answer.workload.left)]
            axes += [link.right[i] for i in attributes_of(answer.workload.right)]
            columns = tuple(column for axis in axes for column in axis.columns)
            if answer.table.size <= MOST_CELLS and len(set(columns)) == len(columns):

                def noisy(
                    values: Floats = answer.table, axes: Sequence[MeasuredAxis] = axes
                ) -> Counts:
                    return _cells(values, [axis.shown for axis in axes])

                asked[Marginal(link.place, columns)] = noisy
                grouped[Marginal(link.place, columns)] = axes
        yield from self._noisy("across", name, asked, grouped)
        left, right = self._ends(link)
        for k in (2, 3):
            yield from self._exact("across", name, link.place, k, across(left, right, k))

    def _ends(self, link: MeasuredLink) -> tuple[list[Column], list[Column]]:
        """Return the columns of both ends: those that links are learnt from, or the nearest."""
        if link.left and link.right:
            return (
                [column for axis in link.left for column in axis.columns],
                [column for axis in link.right for column in axis.columns],
            )
        parent = self._reference(link).parent
        own = {Learned(What.MISSING, link.reference), Learned(What.PARENT, link.reference)}
        learnt = self.measured.learnt
        return (
            [((link.reference,), i) for i in range(len(learnt[parent]))],
            [((), i) for i, item in enumerate(learnt[link.place]) if item not in own],
        )

    def _noisy(
        self,
        part: str,
        name: str,
        asked: Mapping[Marginal, Callable[[], Counts]],
        grouped: Mapping[Marginal, Sequence[MeasuredAxis]] | None = None,
    ) -> Iterator[Line]:
        """Compare with what was measured; several columns of one level count as one each."""
        for k in (1, 2, 3):
            group = [m for m in asked if len(m.columns) == k]
            some = evenly(group, MOST_MARGINALS)
            found = self.copy.marginals(some)
            axes = grouped or {}
            errors = [
                (variation(_grouped(_spelt(found[m]), axes.get(m, ())), asked[m]()), m)
                for m in some
            ]
            yield from self._lines(part, name, k, errors, len(group), _NOISY)

    def _exact(
        self, part: str, name: str, place: int, k: int, columns: Iterable[tuple[Column, ...]]
    ) -> Iterator[Line]:
        """Compare with the original."""
        if self.original is None:
            return
        group = [Marginal(place, c) for c in columns]
        group = [m for m in group if self._cells(m) <= MOST_CELLS]
        some = evenly(group, MOST_MARGINALS)
        ours, theirs = self.copy.marginals(some), self.original.marginals(some)
        errors = [(variation(ours[m], theirs[m]), m) for m in some]
        yield from self._lines(part, name, k, errors, len(group), _EXACT)

    def _cells(self, marginal: Marginal) -> int:
        number = 1
        for path, k in marginal.columns:
            number *= len(self.measured.tables[reached(self.plan, marginal.place, path)].levels[k])
        return number

    def _lines(
        self,
        part: str,
        name: str,
        k: int,
        errors: Sequence[tuple[float, Marginal]],
        of: int,
        note: str,
    ) -> Iterator[Line]:
        if not errors:
            return
        counted = f"{len(errors)} of {of} marginals" if len(errors) < of else f"marginals: {of}"
        mean = sum(error for error, _ in errors) / len(errors)
        worst, marginal = max(errors, key=lambda found: found[0])
        shown = ", ".join(self._column_name(marginal.place, c) for c in marginal.columns)
        yield Line(part, name, f"{k}-way error, mean", mean, None, f"{counted}; {note}")
        yield Line(part, name, f"{k}-way error, largest", worst, None, f"of {shown}; {note}")

    def _column_name(self, place: int, column: Column) -> str:
        path, k = column
        table = reached(self.plan, place, path)
        planned, item = self.plan.tables[table], self.measured.learnt[table][k]
        if item.what is What.ATTRIBUTE:
            shown = planned.attributes[item.place].column
        else:
            shown = ", ".join(planned.references[item.place].key.columns)
            shown += " IS NULL" if item.what is What.MISSING else ""
        return f"{planned.table.name}.{shown}" if path else shown

    def _reference(self, link: MeasuredLink) -> Reference:
        return self.plan.tables[link.place].references[link.reference]

    def _reference_name(self, link: MeasuredLink) -> str:
        key = self._reference(link).key
        return _referring(self.copies.shown(link.place), key.columns)


def _referring(name: str, columns: Sequence[str]) -> str:
    return f"{name} ({', '.join(columns)})"


def _singles(texts: Sequence[str | None]) -> tuple[tuple[str | None, ...], ...]:
    return tuple((text,) for text in texts)


def _cells(values: Floats, levels: Sequence[Sequence[tuple[str | None, ...]]]) -> Counts:
    """Name the cells of a noisy marginal by the texts of its levels; none is negative."""
    numbers = non_negative(values).ravel().tolist()
    names = product(*levels)
    return _spelt(
        {tuple(t for part in name for t in part): n for name, n in zip(names, numbers, strict=True)}
    )


_SHORT = {"true": "t", "false": "f"}


def _spelt(counts: Mapping[Any, float]) -> Counts:
    """Spell truth values alike: levels may have the short form."""
    found: dict[Hashable, float] = {}
    for cell, number in counts.items():
        key = tuple(_SHORT.get(text, text) for text in cell)
        found[key] = found.get(key, 0) + number
    return found


def _grouped(counts: Counts, axes: Sequence[MeasuredAxis]) -> Counts:
    """Put levels together that were measured as one: they have the name of the first."""
    if not any(axis.groups for axis in axes):
        return counts
    names = []
    for axis in axes:
        shown = axis.shown
        groups = axis.groups or range(axis.size)
        pairs = zip(axis.values, groups, strict=True)
        names.append(dict(_spelt_pairs((value, shown[group]) for value, group in pairs)))
    widths = [len(axis.columns) for axis in axes]
    found: dict[Hashable, float] = {}
    for cell, number in counts.items():
        texts, key = list(cast("tuple[Any, ...]", cell)), []
        for width, known in zip(widths, names, strict=True):
            own, texts = tuple(texts[:width]), texts[width:]
            key += known.get(own, own)
        found[tuple(key)] = found.get(tuple(key), 0) + number
    return found


def _spelt_pairs(pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for one, other in pairs:
        yield tuple(_SHORT.get(t, t) for t in one), tuple(_SHORT.get(t, t) for t in other)


def _shares(values: Floats) -> Counts:
    return dict(enumerate(values.tolist()))
