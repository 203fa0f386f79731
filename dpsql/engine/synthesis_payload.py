"""What a synthesis keeps: noisy measurements and public facts, as bytes, and tables made of them.

Everything here follows from what was measured and paid for (PRIVACY.md section 2 (b)), so that it
can be done again after a crash without reading or paying (section 8).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_ask import Learned, What
from dpsql.errors import InternalError
from dpsql.synthesis.generated import Generated

if TYPE_CHECKING:
    from dpsql.synthesis.assembly import Assembly, Link
    from dpsql.synthesis.backends import ByTypes
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Answer
    from dpsql.synthesis.schema import Plan
    from dpsql.workload.marginals import Floats
    from dpsql.workload.residual_bases import Integers

Texts = tuple[str | None, ...]


@dataclass(slots=True)
class MeasuredTable:
    """One table: levels of its columns, and rows of a public one or measurements of another.

    Attributes
    ----------
    levels : tuple of tuple of (str or None)
        Of each column of codes.
    codes : array, optional
        Of a public table: shape (rows, columns).
    order : tuple of int
        The column of each attribute of the mechanism.
    method, rho, rows : str, Fraction, int
        What measured: see `table_mechanism`.
    measured : list of array
        By the mechanism; or one number, the noisy count, where there is nothing else.
    number : int, optional
        Rows that were declared.
    drawn : int, optional
        Rows that the degrees of parents say, where that is more than what was counted.
    """

    levels: tuple[Texts, ...]
    codes: Integers | None = None
    order: tuple[int, ...] = ()
    method: str = ""
    rho: Fraction = Fraction(0)
    rows: int = 1
    measured: list[Floats] = field(default_factory=list)
    number: int | None = None
    drawn: int | None = None

    @property
    def wanted(self) -> int | None:
        """How many rows, if that is not the noisy number of those that were counted."""
        return self.drawn if self.number is None else self.number

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(map(len, self.levels))


@dataclass(slots=True)
class MeasuredAxis:
    """An attribute across a reference: its columns, and the texts of its levels.

    ``groups`` has the number of each level's group, where several are measured as one.
    """

    columns: tuple[tuple[tuple[int, ...], int], ...]
    values: tuple[Texts, ...]
    groups: tuple[int, ...] = ()

    @property
    def shown(self) -> tuple[Texts, ...]:
        """The texts of a level of each group."""
        if not self.groups:
            return self.values
        return tuple(self.values[self.groups.index(n)] for n in range(self.size))

    @property
    def size(self) -> int:
        """Groups of levels."""
        return max(self.groups) + 1 if self.groups else len(self.values)


@dataclass(slots=True)
class MeasuredLink:
    """One reference: what was measured of its links; without a state they are random.

    ``sigma`` is the standard deviation of the histogram's noise, ``scale`` says how many links
    are made for one that was counted.  ``profile`` counts parents by each attribute of
    ``profiled`` and by groups of degrees from ``groups``, with noise of ``profile_sigma``.
    """

    place: int
    reference: int
    direct: Integers | None = None
    column: int | None = None
    left: tuple[MeasuredAxis, ...] = ()
    right: tuple[MeasuredAxis, ...] = ()
    histogram: Floats | None = None
    starts: tuple[int, ...] = ()
    most: int = 1
    sigma: float = 0.0
    state: LinkState | None = None
    scale: float = 1.0
    profiled: tuple[MeasuredAxis, ...] = ()
    profile: list[Floats] = field(default_factory=list)
    groups: tuple[int, ...] = ()
    profile_sigma: float = 0.0


@dataclass(slots=True)
class Measured:
    """All that was measured, and what is learnt of each table."""

    learnt: tuple[tuple[Learned, ...], ...]
    tables: list[MeasuredTable]
    links: list[MeasuredLink]
    notes: list[str] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)


def assembly_of(plan: Plan, measured: Measured, seed: int, tick: Callable[[], None]) -> Assembly:
    """Begin to generate: the codes of public tables are there."""
    from dpsql.synthesis.assembly import Assembly

    found = Assembly(plan, [table.sizes for table in measured.tables], seed, tick)
    for place, table in enumerate(measured.tables):
        if table.codes is not None:
            found.codes[place] = table.codes
    return found


def add_table(found: Assembly, place: int, table: MeasuredTable) -> None:
    """Sample the rows of a protected table from what was measured."""
    import numpy as np

    from dpsql.synthesis.table_rows import several, table_mechanism, table_rows

    sizes = table.sizes
    if not several(sizes):
        number = table.wanted
        if number is None:
            number = max(0, round(counted_rows(table, found.tick)))
        found.codes[place] = np.zeros((number, len(sizes)), dtype=np.int32)
        return
    asked = [sizes[k] for k in table.order]
    mechanism = table_mechanism(asked, table.method, table.rho, table.rows, found.tick)
    rows = table_rows(mechanism, table.measured, table.wanted, found.seed + place, found.tick)
    codes = np.empty_like(rows)
    for i, k in enumerate(table.order):
        codes[:, k] = rows[:, i]
    found.codes[place] = codes


def counted_rows(table: MeasuredTable, tick: Callable[[], None]) -> float:
    """Return the noisy number of rows of which at most so many of each unit count."""
    from dpsql.synthesis.table_rows import noisy_total, several, table_mechanism

    if not several(table.sizes):
        return float(table.measured[0].ravel()[0])
    sizes = [table.sizes[k] for k in table.order]
    mechanism = table_mechanism(sizes, table.method, table.rho, table.rows, tick)
    return noisy_total(mechanism, table.measured)


def link_of(plan: Plan, measured: Measured, link: MeasuredLink) -> Link:
    """Write what is known of a reference as codes."""
    from dpsql.synthesis.assembly import Degrees, Link
    from dpsql.synthesis.profile import Profile

    learnt = measured.learnt[link.place]
    missing, null = link.column, 1
    for k, item in enumerate(learnt):
        if item == Learned(What.MISSING, link.reference):
            missing = k
            texts = measured.tables[link.place].levels[k]
            null = next((i for i, text in enumerate(texts) if text in ("t", "true")), len(texts))
    law = None
    if link.histogram is not None:
        law = Degrees(link.histogram, link.starts, link.most, link.sigma)
    profile = None
    if link.profile:
        profile = Profile(link.profile, link.groups, link.profile_sigma)
    return Link(
        link.place,
        link.reference,
        missing,
        null,
        link.direct,
        tuple(_axis(plan, measured, link, axis) for axis in link.left),
        tuple(_axis(plan, measured, link, axis) for axis in link.right),
        law,
        profile,
        tuple(_axis(plan, measured, link, axis) for axis in link.profiled) if profile else (),
    )


def _axis(plan: Plan, measured: Measured, link: MeasuredLink, axis: MeasuredAxis) -> Any:
    import numpy as np

    from dpsql.synthesis.assembly import CodeAxis

    own = []
    for path, column in axis.columns:
        place = link.place
        for k in path:
            place = plan.tables[place].references[k].parent
        own.append({text: i for i, text in enumerate(measured.tables[place].levels[column])})
    levels = np.full([len(texts) for texts in own], -1, dtype=np.int64)
    for i, values in enumerate(axis.values):
        group = axis.groups[i] if axis.groups else i
        try:
            levels[tuple(texts[v] for texts, v in zip(own, values, strict=True))] = group
        except KeyError:
            if len(own) == 1:
                raise InternalError("a column has other levels across a reference") from None
    return CodeAxis(axis.columns, levels.ravel(), axis.size)


def add_link(
    found: Assembly,
    plan: Plan,
    measured: Measured,
    link: MeasuredLink,
    learn: Callable[[ByTypes], Sequence[Answer]] | None = None,
    *,
    drawn: bool = True,
) -> None:
    """Generate the links of a reference; ``learn`` fits them, by default to what is stored.

    Unless ``drawn``, they are learnt and not drawn.
    """
    if learn is None and link.state is not None and link.state.answers:
        from dpsql.synthesis.links import scaled

        answers = scaled(link.state.answers, link.scale)

        def learn(backend: ByTypes) -> Sequence[Answer]:
            if not link.profile:
                backend.fit(answers)  # degrees follow what is expected of it
            return answers

    found.link(link_of(plan, measured, link), learn, drawn=drawn)


def is_followed(plan: Plan, measured: Measured, link: MeasuredLink) -> bool:
    """Tell whether anything that is learnt of other references follows this one's links."""
    if plan.tables[link.place].references[link.reference].unique:
        return True  # rows that find no parent are left out
    for other in measured.links:
        for axis in (*other.left, *other.right):
            for path, _ in axis.columns:
                place = other.place
                for k in path:
                    if (place, k) == (link.place, link.reference) and other is not link:
                        return True
                    place = plan.tables[place].references[k].parent
    return False


def generated(
    plan: Plan, measured: Measured, seed: int, tick: Callable[[], None]
) -> list[Generated | None]:
    """Generate all tables; None for public ones."""
    found = assembly_of(plan, measured, seed, tick)
    links = {(link.place, link.reference): link for link in measured.links}
    for place, planned in enumerate(plan.tables):
        if planned.table.public:
            continue
        add_table(found, place, measured.tables[place])
        for k in range(len(planned.references)):
            add_link(found, plan, measured, links[place, k])
    result: list[Generated | None] = []
    for place, planned in enumerate(plan.tables):
        if planned.table.public:
            result.append(None)
            continue
        number = len(planned.attributes)
        result.append(
            Generated(
                found.rows(place),
                found.codes[place][:, :number],
                measured.tables[place].levels[:number],
                tuple(found.parents[place, k] for k in range(len(planned.references))),
            )
        )
    return result


# -- bytes ----------------------------------------------------------------------------


class _Arrays:
    """Arrays that a JSON text refers to by number."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def put(self, array: Any) -> int | None:
        if array is None:
            return None
        self.found.append(array)
        return len(self.found) - 1


def dump(measured: Measured) -> bytes:
    """Write measurements as bytes: numbers and texts, which cannot run."""
    import numpy as np

    arrays = _Arrays()
    text = {
        "learnt": [[[i.what.value, i.place] for i in items] for items in measured.learnt],
        "tables": [_table_text(table, arrays) for table in measured.tables],
        "links": [_link_text(link, arrays) for link in measured.links],
        "notes": measured.notes,
        "parts": measured.parts,
    }
    named = {f"a{n}": np.asarray(array) for n, array in enumerate(arrays.found)}
    named["text"] = np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)
    target = io.BytesIO()
    np.savez_compressed(target, allow_pickle=False, **named)
    return target.getvalue()


def _table_text(table: MeasuredTable, arrays: _Arrays) -> dict[str, Any]:
    return {
        "levels": table.levels,
        "codes": arrays.put(table.codes),
        "order": table.order,
        "method": table.method,
        "rho": str(table.rho),
        "rows": table.rows,
        "measured": [arrays.put(m) for m in table.measured],
        "number": table.number,
        "drawn": table.drawn,
    }


def _link_text(link: MeasuredLink, arrays: _Arrays) -> dict[str, Any]:
    state = None
    if link.state is not None:
        state = {
            "answers": [
                [a.workload.left, a.workload.right, arrays.put(a.table), str(a.variance)]
                for a in link.state.answers
            ],
            "used": str(link.state.used),
            "rounds": link.state.rounds,
        }
    return {
        "place": link.place,
        "reference": link.reference,
        "direct": arrays.put(link.direct),
        "column": link.column,
        "left": _axes_text(link.left),
        "right": _axes_text(link.right),
        "histogram": arrays.put(link.histogram),
        "starts": link.starts,
        "most": link.most,
        "sigma": link.sigma,
        "state": state,
        "scale": link.scale,
        "profiled": _axes_text(link.profiled),
        "profile": [arrays.put(table) for table in link.profile],
        "groups": link.groups,
        "profile_sigma": link.profile_sigma,
    }


def load(payload: bytes) -> Measured:
    """Read what `dump` wrote."""
    import numpy as np

    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        raw = json.loads(stored["text"].tobytes())
        arrays = {n: stored[f"a{n}"] for n in range(len(stored.files) - 1)}
    return Measured(
        tuple(
            tuple(Learned(What(what), place) for what, place in items) for items in raw["learnt"]
        ),
        [_table(table, arrays) for table in raw["tables"]],
        [_link(link, arrays) for link in raw["links"]],
        raw["notes"],
        raw["parts"],
    )


def _table(raw: dict[str, Any], arrays: Mapping[int, Any]) -> MeasuredTable:
    return MeasuredTable(
        tuple(tuple(texts) for texts in raw["levels"]),
        None if raw["codes"] is None else arrays[raw["codes"]],
        tuple(raw["order"]),
        raw["method"],
        Fraction(raw["rho"]),
        raw["rows"],
        [arrays[n] for n in raw["measured"]],
        raw["number"],
        raw.get("drawn"),
    )


def _link(raw: dict[str, Any], arrays: Mapping[int, Any]) -> MeasuredLink:
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Answer, Cross

    state = None
    if raw["state"] is not None:
        answers = tuple(
            Answer(Cross(left, right), arrays[n], Fraction(variance))
            for left, right, n, variance in raw["state"]["answers"]
        )
        state = LinkState(answers, Fraction(raw["state"]["used"]), raw["state"]["rounds"])
    return MeasuredLink(
        raw["place"],
        raw["reference"],
        None if raw["direct"] is None else arrays[raw["direct"]],
        raw["column"],
        _axes(raw["left"]),
        _axes(raw["right"]),
        None if raw["histogram"] is None else arrays[raw["histogram"]],
        tuple(raw["starts"]),
        raw["most"],
        raw.get("sigma", 0.0),
        state,
        raw.get("scale", 1.0),
        _axes(raw.get("profiled", ())),
        [arrays[n] for n in raw.get("profile", ())],
        tuple(raw.get("groups", ())),
        raw.get("profile_sigma", 0.0),
    )


def _axes_text(axes: Sequence[MeasuredAxis]) -> list[Any]:
    return [[axis.columns, axis.values, axis.groups] for axis in axes]


def _axes(raw: Sequence[Any]) -> tuple[MeasuredAxis, ...]:
    return tuple(
        MeasuredAxis(
            tuple((tuple(path), column) for path, column in columns),
            tuple(tuple(texts) for texts in values),
            tuple(*groups),
        )
        for columns, values, *groups in raw
    )
