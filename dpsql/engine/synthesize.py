"""Measure a synthetic database: plan it, pay once, measure in one snapshot, keep what is noisy.

`synthesize` reads: read the schema, plan the copy, admit every statement, debit, measure, store.
Writing the tables is `dpsql.engine.synthesis_write`, which reads nothing that is protected.  What
is measured is a function of public facts, the charge is durable before any protected row is read
(PRIVACY.md sections 7 and 8).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql._version import __version__
from dpsql.engine.bounding import PROVED
from dpsql.engine.prepare import confirm_read
from dpsql.engine.progress import Command, Phase, Progress
from dpsql.engine.release_price import rho_of_settings
from dpsql.engine.request import MAX_DELTA, Role, Settings
from dpsql.engine.synthesis_ask import Learned, What, learned
from dpsql.engine.synthesis_parts import Bounds, DegreePart, LinkPart, Part, Parts, TablePart
from dpsql.engine.synthesis_payload import Measured, MeasuredLink, MeasuredTable, dump
from dpsql.errors import InvalidParameter, LedgerUnavailable, NotAnswerable
from dpsql.ledger.amounts import amount_text
from dpsql.ledger.model import Charge, Hit
from dpsql.relation import quote_identifier, show_name
from dpsql.synthesis.schema import Plan, Planned, Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_units import Units

#: Rows of a public table up to which the one that is referred to is learnt as an attribute is.
FEW_ROWS = 256
#: Counts of single levels that are off by so many rows are worth a warning.
_MUCH_NOISE = 200
_STORE = """
insert into dp.synthesis (target, role_name, role_oid, settings, plan, payload, seed, epsilon,
  delta, relations, protected, spend, notes, incarnation)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
  (select i.token from dp.ledger_incarnation as i))
returning id
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call of ``dp.synthesize`` says.

    Attributes
    ----------
    target : str
        The schema.
    relations : tuple of int
        OIDs of what is copied.
    epsilon, delta : str, optional
        The budget; by default the session's.
    method : str
        What measures tables.
    d_max : str, optional
        JSON: rows of each relation that a privacy unit may have.
    row_counts : str, optional
        JSON: rows that relations are to have, public.
    without : tuple of str
        Foreign keys that are not copied.
    bins : int
        Into how many bins declared ranges are cut.
    placeholders : bool
        Whether values are made up where nothing public is known of them.
    replace : bool
        Whether what an earlier synthesis made is dropped.
    """

    target: str
    relations: tuple[int, ...]
    epsilon: str | None = None
    delta: str | None = None
    method: str = "aim"
    d_max: str | None = None
    row_counts: str | None = None
    without: tuple[str, ...] = ()
    bins: int = 32
    placeholders: bool = False
    replace: bool = False

    def settings(self, own: Settings) -> Settings:
        """Return the session's settings with the budget of the call, checked."""
        from dpsql.engine.release_terms import Terms

        return Terms(self.epsilon, self.delta).settings(own)


def synthesize(
    wish: Wish,
    role: Role,
    own: Settings,
    services: Services,
    in_snapshot: Callable[[Callable[[], Any]], Any],
) -> int:
    """Measure what the tables are made of, or find it measured; returns the job's number.

    Raises
    ------
    DpsqlError
        Nothing is spent unless it is `ReleaseFailed` or says so.
    """
    from dpsql.engine.synthesis_schema import read_schema
    from dpsql.engine.synthesis_target import require_target
    from dpsql.engine.synthesis_units import units_of
    from dpsql.engine.synthesis_write import disguised
    from dpsql.synthesis.planning import planned

    settings = wish.settings(own)
    if services.database.execute("select session_user::text as name")[0][0] != role.name:
        raise disguised(role.name)
    tables = read_schema(wish.relations, services, bins=wish.bins)
    plan = planned(tables, leave_out=wish.without, placeholders=wish.placeholders)
    units = units_of([p.table for p in plan.tables], services)
    require_target(wish.target, plan, wish.replace, services)
    task = _Task(wish, plan, units, settings, services)
    for note in (*plan.notes, *task.notes):
        services.note(note)
    task.warn()
    progress = Progress(services.database, Command.SYNTHESIS, *task.read())
    opened = services.ledger.open(task.charge(role))
    if isinstance(opened, Hit):
        payload = base64.b64decode(json.loads(opened.payload)["payload"])
        return _stored(task, payload, opened.spend, role, services)
    try:
        progress.phase(Phase.MEASURING)
        payload = in_snapshot(lambda: task.measure(progress))
        task.confirm()
    except BaseException:
        services.ledger.fail(opened)
        raise
    try:
        kept = {"payload": base64.b64encode(payload).decode()}
        services.ledger.finish(opened, json.dumps(kept))
    except LedgerUnavailable:
        services.warn(
            "what was measured could not be stored in the ledger",
            "It was charged, and is kept with the synthesis; the ledger went away meanwhile.",
            "Do not roll back: the same call would be charged again.",
        )
    progress.end()
    return _stored(task, payload, opened.spend, role, services)


class _Task:
    """One call, planned and priced from public facts."""

    def __init__(
        self, wish: Wish, plan: Plan, units: Units, settings: Settings, services: Services
    ) -> None:
        from dpsql.engine.synthesis_units import Passage

        self.wish, self.plan, self.settings, self.services = wish, plan, settings, services
        self.units = units
        self.listings: list[str] = []
        names = [p for p in plan.tables if not p.table.public]
        d_max = _numbers("d_max", wish.d_max, names, least=1)
        self.counts = _numbers("row_counts", wish.row_counts, names, least=0)
        self.learnt = tuple(learned(p, _small(plan, p, services)) for p in plan.tables)
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
        )
        self.parts: list[Part] = parts.all()
        self.notes = parts.notes
        self.rho = rho_of_settings(settings, services.database, len(self.parts))
        if self.rho <= 0:
            raise self._too_small()
        self.measured = self._measured()

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
        from dpsql.synthesis.table_rows import several, table_mechanism

        tables = [MeasuredTable(()) for _ in self.plan.tables]
        for place, planned in enumerate(self.plan.tables):
            if planned.table.public:
                tables[place] = _public(planned, self.learnt[place], self.services)
                self.listings.append(_listing(planned, self.services))
        for part in self.parts:
            if isinstance(part, TablePart):
                tables[part.place] = table = self._table(part)
                if several(table.sizes):
                    sizes = [table.sizes[k] for k in table.order]
                    tick = self.services.database.tick
                    table_mechanism(sizes, table.method, table.rho, table.rows, tick)
        links = [
            self._link(place, k, tables[place])
            for place, planned in enumerate(self.plan.tables)
            for k in range(len(planned.references))
        ]
        return Measured(self.learnt, tables, links, list(self.notes), self._shown())

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
            tuple(order),
            self.wish.method,
            self.rho * part.share,
            part.counted.rows,
            [],
            self.counts.get(planned.table.oid),
        )

    def _link(self, place: int, k: int, table: MeasuredTable) -> MeasuredLink:
        from dpsql.engine.synthesis_measure import axes_of
        from dpsql.synthesis.degree_law import edges

        link = MeasuredLink(place, k)
        direct = Learned(What.PARENT, k)
        if direct in self.learnt[place]:
            link.column = self.learnt[place].index(direct)
            link.direct = self._direct(place, k, table.levels[link.column])
        for part in self.parts:
            if isinstance(part, TablePart) or (part.place, part.reference) != (place, k):
                continue
            if isinstance(part, DegreePart):
                link.most, link.starts = part.most, edges(part.most)
            else:
                link.left, link.right = axes_of(part, part.left), axes_of(part, part.right)
        return link

    def _direct(self, place: int, k: int, levels: Sequence[str | None]) -> Any:
        """Find the rows of a public table that the levels of a reference to it mean."""
        import numpy as np

        from dpsql.engine.synthesis_public import public_rows

        reference = self.plan.tables[place].references[k]
        (column,) = reference.key.parent_columns
        parent = self.plan.tables[reference.parent]
        (texts,) = public_rows(parent, [quote_identifier(column)], self.services).texts
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
            if not isinstance(part, TablePart):
                shown["foreign_key"] = planned.references[part.reference].key.name
            shown["bound"] = part.bound if isinstance(part, DegreePart) else part.counted.rows
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
        """Return the OIDs of all tables, protected ones first, and how many of them are."""
        private = [p.table.oid for p in self.plan.tables if not p.table.public]
        return private + [p.table.oid for p in self.plan.tables if p.table.public], len(private)

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
        )

    @cached_property
    def key(self) -> bytes:
        """Return what determines the law of all measurements, and what they mean.

        Not the fingerprint of the relations, which changes with foreign keys to public ones, as the
        copy itself has them: plan, units, levels and policies are what counts.
        """
        from dpsql.synthesis.stored import plan_text

        parts: list[object] = ["synthesis", __version__, plan_text(self.plan), str(self.rho)]
        for part in self.parts:
            read = _statement(part)
            parts.append((type(part).__name__, part.place, str(part.share)))
            parts.append((sorted(read.relations), read.policies, read.roots))
            if isinstance(part, DegreePart):
                parts.append((part.reference, part.bound, part.most, part.whole))
            else:
                parts.append((part.counted.ask.text, part.counted.rows))
                parts.append([level.lookups for level in part.counted.levels])
        parts += self.listings
        parts += [table.levels for table in self.measured.tables]
        parts += [t.codes.tobytes() for t in self.measured.tables if t.codes is not None]
        parts += [self.wish.method, sorted(self.counts.items()), self.units.root]
        parts += [self.units.by_rows, sorted(map(repr, self.units.ways.items()))]
        parts += [str(self.settings.epsilon), str(self.settings.delta)]
        return hashlib.sha256("\x1f".join(map(repr, parts)).encode()).digest()

    def measure(self, progress: Progress) -> bytes:
        """Read everything once, in one snapshot; what is returned may leave the database."""
        from dpsql.engine.synthesis_measure import Measuring, Task

        oids, _ = self.read()
        self.services.database.before_reading(sorted(oids))
        task = Task(self.plan, self.parts, self.rho, self.measured, self.seed)
        return dump(Measuring(task, self.services, progress).run())

    @property
    def seed(self) -> int:
        """What generation is seeded with: any number will do, it protects nothing."""
        return int.from_bytes(self.key[:4], "big") >> 1

    def confirm(self) -> None:
        """Refuse what was measured if anything was swapped under a name meanwhile."""
        for part in self.parts:
            read = _statement(part)
            confirm_read(read.relations, read.fingerprint, self.services)


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


def _stored(task: _Task, payload: bytes, spend: int, role: Role, services: Services) -> int:
    """Keep what was measured; the entry belongs to the caller's transaction."""
    from dpsql.synthesis.stored import plan_text

    private = [p.table for p in task.plan.tables if not p.table.public]
    rows = services.database.execute(
        _STORE,
        [
            ("name", task.wish.target),
            ("name", role.name),
            ("oid", role.oid),
            ("jsonb", json.dumps({"replace": task.wish.replace, "method": task.wish.method})),
            ("jsonb", plan_text(task.plan)),
            ("bytea", payload),
            ("int8", task.seed),
            ("numeric", amount_text(task.settings.epsilon)),
            ("numeric", amount_text(task.settings.delta)),
            ("oid[]", [table.oid for table in private]),
            ("text[]", [_quoted(table) for table in private]),
            ("int8", spend),
            ("text[]", [*task.plan.notes, *task.notes]),
        ],
    )
    return int(str(rows[0][0]))


def _quoted(table: Table) -> str:
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"


def _small(plan: Plan, planned: Planned, services: Services) -> list[int]:
    """List the references to public tables of so few rows that they are levels."""
    found = []
    for k, reference in enumerate(planned.references):
        parent = plan.tables[reference.parent].table
        if not parent.public or reference.nullable or len(reference.key.columns) > 1:
            continue
        name = _quoted(parent)
        number = services.database.execute(
            f"SELECT count(*) AS n FROM (SELECT FROM {name} LIMIT {FEW_ROWS + 1}) AS t"
        )[0][0]
        if 0 < int(str(number)) <= FEW_ROWS:
            found.append(k)
    return found


def _public(planned: Planned, learnt: Sequence[Learned], services: Services) -> MeasuredTable:
    """Read the levels and codes of a public table's rows, in the order that links are numbered."""
    import numpy as np

    from dpsql.engine.synthesis_ask import expression
    from dpsql.engine.synthesis_public import public_rows

    columns = public_rows(planned, [expression(planned, item) for item in learnt], services)
    levels, codes = [], []
    for texts in columns.texts:
        known = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        levels.append(tuple(known))
        codes.append([known[text] for text in texts])
    found = np.array(codes, dtype=np.int32).reshape(len(codes), columns.rows).T
    return MeasuredTable(tuple(levels), np.ascontiguousarray(found))


def _listing(planned: Planned, services: Services) -> str:
    """Return a digest of a public table's keys in their order: links are numbers of its rows."""
    from dpsql.engine.synthesis_public import public_rows

    columns = dict.fromkeys(c for unique in planned.table.uniques for c in unique.columns)
    found = public_rows(planned, [quote_identifier(column) for column in columns], services)
    return hashlib.sha256(repr((found.rows, found.texts)).encode()).hexdigest()


def _numbers(
    name: str, text: str | None, tables: Sequence[Planned], *, least: int
) -> Mapping[int, int]:
    """Read a parameter that gives numbers for relations."""
    if text is None:
        return {}
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise InvalidParameter(
            f'parameter "{name}" must be a JSON object',
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
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
            raise InvalidParameter(
                f'parameter "{name}" must give whole numbers from {least}',
                detail=f"Got {value} for {key}.",
            )
        found[same[0]] = value
    return found
