"""What one call of ``dp.synthesize`` measures and costs: planned and priced from public facts.

The price is that of all parts together (PRIVACY.md sections 7 and 8); the key says what determines
the law of all measurements, so that a call that asks for the same finds them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql._version import __version__
from dpsql.engine.methods.base import PROVED
from dpsql.engine.prepare import confirm_met, confirm_moved, confirm_read
from dpsql.engine.progress import Progress
from dpsql.engine.release_price import rho_of_settings
from dpsql.engine.request import MAX_DELTA, Role, Settings
from dpsql.engine.synthesis_admission import Parts
from dpsql.engine.synthesis_ask import Learned, What, learned
from dpsql.engine.synthesis_measured import Measured, MeasuredLink, MeasuredTable, axes_of
from dpsql.engine.synthesis_parts import (
    CountPart,
    DegreePart,
    LinkPart,
    Part,
    ProfilePart,
    TablePart,
    queries_of,
)
from dpsql.engine.synthesis_payload import dump
from dpsql.engine.synthesis_public import digest, read_public, small_references
from dpsql.engine.synthesis_statements import Bounds
from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.ledger.model import Charge
from dpsql.relation import show_name
from dpsql.synthesis.schema import Plan, Planned

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_units import Units
    from dpsql.engine.synthesize import Wish
    from dpsql.synthesis.notes import Note

#: How shares of the budget and what is measured with them follow from noisy numbers.
RULE = "unused shares go on; fewer rows of a unit; coarser levels; strata; rows apart"
#: Counts of single levels that are off by so many rows are worth a warning.
_MUCH_NOISE = 200
#: Rows that a table may be declared to have: they are generated in memory.
_MOST_ROWS = 100_000_000


class Call:
    """One call, planned and priced from public facts."""

    def __init__(
        self, wish: Wish, plan: Plan, units: Units, settings: Settings, services: Services
    ) -> None:
        from dpsql.engine.synthesis_units import Passage

        self.wish, self.plan, self.settings, self.services = wish, plan, settings, services
        self.units = units
        self.public: dict[int, MeasuredTable] = {}
        names = [p for p in plan.tables if not p.table.public]
        d_max = _numbers("d_max", wish.d_max, names, least=1)
        self.counts = _numbers("row_counts", wish.row_counts, names, least=0, most=_MOST_ROWS)
        self.learnt = tuple(learned(p, small_references(plan, p, services)) for p in plan.tables)
        self._require_learnt()
        self._require_values()
        through = {
            (place, k): units.passages.get((p.table.oid, r.key.name)) is Passage.THROUGH
            for place, p in enumerate(plan.tables)
            for k, r in enumerate(p.references)
        }
        parts = Parts(
            plan,
            self.learnt,
            Bounds(d_max, int(settings.max_rows_contributed)),
            settings,
            services,
            through,
            units,
            self.counts,
        )
        self.parts: list[Part] = parts.all()
        self.notes = parts.notes
        self.rho = rho_of_settings(settings, services.database, len(self.parts))
        if self.rho <= 0:
            raise self._too_small()
        self.measured = self._measured()

    def _require_learnt(self) -> None:
        """Refuse what would cost as much as any copy and have made-up values alone."""
        from dpsql.synthesis.notes import nothing_learnt

        if self.wish.placeholders or any(
            item.what is not What.MISSING
            for planned, items in zip(self.plan.tables, self.learnt, strict=True)
            for item in items
            if not planned.table.public
        ):
            return
        refused = nothing_learnt(self.plan.notes)
        if refused is not None:
            raise refused

    def _require_values(self) -> None:
        """Refuse more rows of a table than its key has declared values."""
        for planned in self.plan.tables:
            number, most = self.counts.get(planned.table.oid), planned.most
            if number is not None and most is not None and number > most:
                raise InvalidParameter(
                    f"relation {planned.table.shown} cannot have {number} rows: its key has {most}"
                    " declared values",
                    detail="The values are declared for the foreign keys that refer to it.",
                    hint=f"Give at most {most} in row_counts, or let the owner declare more.",
                )

    def _beyond_values(self) -> Iterator[Note]:
        """Yield a note for each link to public rows beyond the declared values."""
        from dpsql.synthesis.notes import Note

        for planned in self.plan.tables:
            for reference in planned.references:
                parent = self.plan.tables[reference.parent]
                own, there = reference.key.columns, reference.key.parent_columns
                values = planned.table.column(own[0]).values if len(own) == 1 else ()
                if not values or not parent.table.public:
                    continue
                if set(self.public[reference.parent].keys.get(there[0], ())) - set(values):
                    yield Note(
                        f"{own[0]} of {planned.table.shown} can refer to any row of"
                        f" {parent.table.shown}, not only its declared values"
                    )

    def _too_small(self) -> InvalidParameter:
        """Say what delta is missing: noise from tables needs more of it for large epsilon."""
        from dpsql.engine.release_noise import reserve

        needed = reserve(self.settings.epsilon, len(self.parts))
        epsilon = f"{float(self.settings.epsilon):g}"
        hint = "Give delta => 1e-6, for example."
        if self.settings.delta > 0:
            hint = "Give a smaller epsilon" + (
                f", or delta above {float(needed):.2g}." if needed < MAX_DELTA else "."
            )
        return InvalidParameter(
            "a synthesis needs Gaussian noise, and for that a delta",
            detail=f"At epsilon {epsilon} it takes more than {float(needed):.2g};"
            f" delta is {float(self.settings.delta):g}.",
            hint=hint,
        )

    def _measured(self) -> Measured:
        """Write down all that is known before anything is measured; refuses what cannot be."""
        from dpsql.synthesis.table_rows import require_levels, several, table_mechanism

        tables = [MeasuredTable(()) for _ in self.plan.tables]
        for place, planned in enumerate(self.plan.tables):
            if planned.table.public:
                table = read_public(planned, self.learnt[place], self.services)
                self.public[place] = tables[place] = table
        self.notes.extend(self._beyond_values())
        for part in self.parts:
            if isinstance(part, TablePart):
                tables[part.place] = table = self._table(part)
                if several(table.sizes):
                    sizes = [table.sizes[k] for k in table.order]
                    require_levels(self.plan.tables[part.place].table.shown, sizes, table.method)
                    tick = self.services.database.tick
                    table_mechanism(sizes, table.method, table.rho, table.rows, tick)
        links = [
            self._link(place, k, tables[place])
            for place, planned in enumerate(self.plan.tables)
            for k in range(len(planned.references))
        ]
        return Measured(
            self.learnt, tables, links, [str(note) for note in self.notes], self._shown()
        )

    def _table(self, part: TablePart) -> MeasuredTable:
        planned = self.plan.tables[part.place]
        levels: dict[int, tuple[str | None, ...]] = {}
        order = []
        for axis in part.counted.axes:
            if len(axis.columns) > 1:
                raise NotAnswerable(
                    f"columns of {planned.table.name} have their levels together",
                    hint="Declare the values of each: SELECT dp.set_domain(relation, column, ...).",
                )
            ((_, k),) = axis.columns
            levels[k] = tuple(text for (text,) in axis.values)
            order.append(k)
        return MeasuredTable(
            tuple(levels[k] for k in range(len(levels))),
            None,
            {},
            tuple(order),
            self.wish.method,
            self.rho * part.share,
            part.counted.rows,
            [],
            self.counts.get(planned.table.oid),
        )

    def _link(self, place: int, k: int, table: MeasuredTable) -> MeasuredLink:
        link = MeasuredLink(place, k)
        direct = Learned(What.PARENT, k)
        if direct in self.learnt[place]:
            link.column = self.learnt[place].index(direct)
            link.direct = self._direct(place, k, table.levels[link.column])
        for part in self.parts:
            if isinstance(part, TablePart | CountPart):
                continue
            if (part.place, part.reference) != (place, k):
                continue
            if isinstance(part, DegreePart):
                link.most = part.most
            elif isinstance(part, ProfilePart):
                link.profiled = axes_of(part, range(len(part.counted.axes)))
            else:
                link.left, link.right = axes_of(part, part.left), axes_of(part, part.right)
        return link

    def _direct(self, place: int, k: int, levels: Sequence[str | None]) -> Any:
        """Find the rows of a public table that the levels of a reference to it mean."""
        import numpy as np

        reference = self.plan.tables[place].references[k]
        (column,) = reference.key.parent_columns
        texts = self.public[reference.parent].keys[column]
        at = {text: n for n, text in enumerate(texts)}
        return np.array([at[text] for text in levels], dtype=np.int64)

    def _shown(self) -> list[dict[str, Any]]:
        """Tell the parts of the budget, for the report."""
        found = []
        for part in self.parts:
            planned = self.plan.tables[part.place]
            shown: dict[str, Any] = {
                "what": "table" if isinstance(part, TablePart) else "degrees",
                "relation": show_name(planned.table.schema, planned.table.name),
                "rho": float(self.rho * part.share),
                "share": float(part.share),
            }
            if isinstance(part, LinkPart):
                shown["what"] = "links"
            if isinstance(part, ProfilePart):
                shown["what"] = "degrees by attributes"
            if isinstance(part, CountPart):
                shown["what"] = "number of rows"
            elif not isinstance(part, TablePart):
                shown["foreign_key"] = planned.references[part.reference].key.name
            if isinstance(part, DegreePart):
                shown["bound"] = part.changed
            elif isinstance(part, ProfilePart):
                shown["bound"] = part.bound
            else:
                shown["bound"] = part.counted.rows
            found.append(shown)
        return found

    def warn(self) -> None:
        """Say where a budget cannot do anything useful: public facts only."""
        for part in self.parts:
            if not isinstance(part, TablePart) or not part.counted.axes:
                continue
            number = len(part.counted.axes)
            noise = part.counted.rows * math.sqrt(number / (2 * float(self.rho * part.share)))
            if noise > _MUCH_NOISE:
                name = self.plan.tables[part.place].table.name
                self.services.warn(
                    f"there is little budget for relation {name}",
                    f"If each of its {number} attributes is counted once, counts of single levels"
                    f" are off by about {noise:.0f} rows.",
                    "Give more epsilon, a smaller d_max, or copy fewer relations and columns.",
                )

    def read(self) -> tuple[list[int], int]:
        """Return the OIDs of all that is read, protected relations first, and how many of them are.

        Parents that are joined only to find the units of rows are read, too: deleting a row of
        theirs changes what is counted.
        """
        found = {o.relation for part in self.parts for q in queries_of(part) for o in q.occurrences}
        private = {relation.oid for relation in found if relation.private}
        public = {relation.oid for relation in found} - private
        public |= {p.table.oid for p in self.plan.tables if p.table.public}
        return [*sorted(private), *sorted(public)], len(private)

    def charge(self, role: Role) -> Charge:
        """Write the charge: everything together, under zCDP and as (epsilon, delta)."""
        from dpsql.engine.release_noise import together

        price = together(self.rho, len(self.parts))
        roots = {root for part in self.parts for root in _statement(part).roots}
        names = ", ".join(
            show_name(p.table.schema, p.table.name) for p in self.plan.tables if not p.table.public
        )
        return Charge(
            role=role.oid,
            role_name=role.name,
            roots=tuple(sorted(roots)),
            epsilon=self.settings.epsilon,
            delta=self.settings.delta,
            rho=price.rho,
            rho_delta=price.delta,
            mechanism="gaussian",
            method=self.wish.method,
            label=PROVED,
            question=f"synthesis of {names}",
            key=self.key,
            fresh=self.settings.fresh,
            what="synthesis",
            objects=tuple(
                sorted({*self.read()[0], *(r for p in self.parts for r in _statement(p).relations)})
            ),
        )

    @cached_property
    def key(self) -> bytes:
        """Return what determines the law of all measurements, and what they mean.

        Not the fingerprint of the relations, which changes with foreign keys to public ones, as the
        copy itself has them: plan, units, levels and policies are what counts.
        """
        from dpsql.synthesis.stored import plan_text

        parts: list[object] = ["synthesis", __version__, plan_text(self.plan), str(self.rho), RULE]
        for part in self.parts:
            read = _statement(part)
            parts.append((type(part).__name__, part.place, str(part.share)))
            parts.append((sorted(read.relations), read.policies, read.roots))
            if isinstance(part, DegreePart):
                parts.append((part.reference, part.bound, part.most, part.whole, part.others))
            else:
                if isinstance(part, ProfilePart):
                    parts.append((part.reference, part.bound, part.keys))
                parts.append((part.counted.ask.text, part.counted.rows, part.counted.cut))
                parts.append([level.lookups for level in part.counted.levels])
        parts += [digest(found) for found in self.public.values()]
        parts += [table.levels for table in self.measured.tables]
        parts += [t.codes.tobytes() for t in self.measured.tables if t.codes is not None]
        parts += [self.wish.method, sorted(self.counts.items()), self.units.roots]
        parts += [self.units.by_rows, sorted(map(repr, self.units.ways.items()))]
        parts += [str(self.settings.epsilon), str(self.settings.delta)]
        return hashlib.sha256("\x1f".join(map(repr, parts)).encode()).digest()

    def measure(self, progress: Progress) -> bytes:
        """Read everything once, in one snapshot; what is returned may leave the database."""
        from dpsql.engine.synthesis_measure import Measuring
        from dpsql.engine.synthesis_shares import Task

        oids, _ = self.read()
        task = Task(self.plan, self.parts, self.rho, self.measured, self.seed)
        return self.services.database.at_one_moment(
            sorted(oids), lambda: dump(Measuring(task, self.services, progress).run())
        )

    @property
    def seed(self) -> int:
        """What generation is seeded with: any number will do, it protects nothing."""
        return int.from_bytes(self.key[:4], "big") >> 1

    def confirm_met(self, *, charged: bool = False) -> None:
        """Refuse what was declared otherwise at the moment that will be read."""
        confirm = confirm_moved if charged else confirm_met
        for part in self.parts:
            read = _statement(part)
            confirm(read.relations, read.fingerprint, self.services)
        confirm(self.units.read, self.units.token, self.services)

    def confirm(self) -> None:
        """Refuse what was measured if anything was swapped under a name meanwhile."""
        for part in self.parts:
            read = _statement(part)
            confirm_read(read.relations, read.fingerprint, self.services)
        confirm_read(self.units.read, self.units.token, self.services)


@dataclass(frozen=True, slots=True)
class _Read:
    relations: tuple[int, ...]
    fingerprint: str
    policies: str
    roots: tuple[int, ...]


def _statement(part: Part) -> _Read:
    """Return what the validity of a part's statement hangs on."""
    if isinstance(part, DegreePart):
        return _Read(part.relations, part.fingerprint, "", part.roots)
    read = part.counted
    return _Read(read.relations, read.fingerprint, read.policies, read.roots)


def _numbers(
    name: str,
    text: str | None,
    tables: Sequence[Planned],
    *,
    least: int,
    most: int = 2**31 - 1,
) -> Mapping[int, int]:
    """Read a parameter that gives numbers for relations."""
    if text is None:
        return {}
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits, deep nesting
        raw = None
    if not isinstance(raw, dict):
        raise InvalidParameter(
            f'parameter "{name}" must be a JSON object of whole numbers',
            hint=f"""{name} => '{{"{tables[0].table.name}": 10}}', for example.""",
        )
    found = {}
    for key, value in raw.items():
        same = [
            t.table.oid
            for t in tables
            if key in (t.table.name, show_name(t.table.schema, t.table.name))
        ]
        if len(same) != 1:
            raise InvalidParameter(
                f'parameter "{name}" names {"no" if not same else "more than one"} relation that'
                " is copied",
                detail=f"Got {key}.",
                hint=f"Protected relations are {', '.join(t.table.name for t in tables)}.",
            )
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidParameter(
                f'parameter "{name}" must give whole numbers from {least} to {most}',
                detail=f"Got {str(value)[:40]} for {key}.",
            )
        found[same[0]] = value
    return found
