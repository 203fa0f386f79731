"""From what a synthesis measured to the rows of its tables: deterministic, and free.

It follows from noisy numbers and public facts alone (PRIVACY.md section 2 (b)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_ask import Learned, What
from dpsql.engine.synthesis_measured import Measured, MeasuredAxis, MeasuredLink, MeasuredTable
from dpsql.engine.synthesis_payload import load
from dpsql.engine.synthesis_shares import variance_for
from dpsql.errors import InternalError
from dpsql.synthesis.generated import Generated

if TYPE_CHECKING:
    from dpsql.synthesis.assembly import Assembly, Link
    from dpsql.synthesis.backends import Backend
    from dpsql.synthesis.records import Answer
    from dpsql.synthesis.schema import Plan


def generate(
    plan: Plan, payload: bytes, seed: int, tick: Callable[[], None]
) -> list[Generated | None]:
    """Generate the tables of a plan; of public ones there are codes and keys alone.

    Parameters
    ----------
    plan : Plan
        As it was when the payload was measured.
    payload : bytes
        Of `dpsql.engine.synthesis_payload.dump`.
    seed : int
        Equal seeds give equal rows.
    tick : callable
        Called now and then; may raise to cancel.
    """
    return generated(plan, load(payload), seed, tick)


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
            number = max(0, round(row_count(table, found.tick)[0]))
        found.codes[place] = np.zeros((number, len(sizes)), dtype=np.int32)
        return
    mechanism = table_mechanism(table.asked, table.method, table.rho, table.rows, found.tick)
    rows = table_rows(
        mechanism,
        table.measured,
        table.wanted,
        found.seed + place,
        found.tick,
        strata=table.weights,
    )
    codes = np.empty((len(rows), len(sizes)), dtype=rows.dtype)
    for i, k in enumerate(table.order):
        codes[:, k] = rows[:, i]
    found.codes[place] = codes


def row_count(table: MeasuredTable, tick: Callable[[], None]) -> tuple[float, float]:
    """Return how many rows the measurement of the columns counted, and its noise's variance."""
    from dpsql.synthesis.table_rows import noisy_total, several, table_mechanism

    if not several(table.sizes):
        return float(table.measured[0].ravel()[0]), float(variance_for(table.rows, table.rho))
    mechanism = table_mechanism(table.asked, table.method, table.rho, table.rows, tick)
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
    codes: list[tuple[int, ...]] = []
    levels: list[int] = []
    for i, values in enumerate(axis.values):
        try:
            codes.append(tuple(texts[v] for texts, v in zip(own, values, strict=True)))
        except KeyError:
            if len(own) == 1:
                raise InternalError("a column has other levels across a reference") from None
            continue
        levels.append(axis.groups[i] if axis.groups else i)
    return CodeAxis(
        axis.columns,
        np.array(codes, dtype=np.int64).reshape(len(codes), len(own)),
        np.array(levels, dtype=np.int64),
        axis.size,
    )


def add_link(
    found: Assembly,
    plan: Plan,
    measured: Measured,
    link: MeasuredLink,
    learn: Callable[[Backend], Sequence[Answer]] | None = None,
    *,
    drawn: bool = True,
) -> None:
    """Generate the links of a reference; ``learn`` fits them, by default to what is stored.

    Unless ``drawn``, they are learnt and not drawn.
    """
    if learn is None and link.state is not None and link.state.answers:
        from dpsql.synthesis.links import scaled

        answers = scaled(link.state.answers, link.scale)

        def learn(backend: Backend) -> Sequence[Answer]:
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
    """Generate all tables; of public ones there are codes and keys alone."""
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
        number = len(planned.attributes)
        if planned.table.public:
            table = measured.tables[place]
            if table.codes is None:
                raise InternalError("the rows of a public table were not read")
            codes = table.codes[:, :number]
            result.append(Generated(len(codes), codes, table.levels, keys=table.keys))
            continue
        result.append(
            Generated(
                found.rows(place),
                found.codes[place][:, :number],
                measured.tables[place].levels[:number],
                tuple(found.parents[place, k] for k in range(len(planned.references))),
            )
        )
    return result
