"""Explain a statement before paying: public facts only, no protected row is read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.answer import charge
from dpsql.engine.expected import expected, shown_error
from dpsql.engine.explain_released import released
from dpsql.engine.from_release import serve
from dpsql.engine.groups import confirmed_groups
from dpsql.engine.prepare import prepare
from dpsql.engine.price import Quote, price
from dpsql.engine.request import Role, Settings
from dpsql.engine.undeclared import describe_threshold, remedy
from dpsql.errors import LedgerUnavailable, NotAnswerable, TooManyFailures, UndeclaredRelation
from dpsql.query.late import fetched
from dpsql.relation import show_name

if TYPE_CHECKING:
    from dpsql.engine.methods.base import Method
    from dpsql.engine.prepare import Prepared
    from dpsql.engine.services import Services
    from dpsql.ports import Database
    from dpsql.relation import Relation


def explain(text: str, role: Role, settings: Settings, services: Services) -> list[tuple[str, str]]:
    """Return (item, value) rows: relations, method, guarantee, cost, expected error.

    The counting SQL is shown to owners of all private relations only.
    """
    try:
        prepared = prepare(text, None, services)
    except NotAnswerable:
        rows = released(text, role, services)
        if rows is None:
            raise
        return rows
    question = prepared.question
    groups = confirmed_groups(prepared, services)
    quote = price(
        question, groups, settings, services.database, want_interval=question.wants_interval
    )
    relations = [o.relation for q in question.aggregates for o in q.occurrences]
    rows = [
        ("private relations", _names({r.shown for r in relations if r.private})),
        ("public relations", _names({r.shown for r in relations if not r.private})),
        ("neighbours", _neighbours(quote)),
        *(("privacy unit", unit) for unit in _units(relations)),
        ("method", f"{quote.method}: {_why_method(quote, settings)}"),
        ("mechanism", f"{quote.mechanism}: {_why_mechanism(quote, settings)}"),
        ("guarantee", f"{_guarantee(quote)} ({quote.label})"),
        ("cost epsilon", _decimal(quote.guarantee.epsilon)),
        ("cost delta", _decimal(quote.guarantee.delta)),
        ("cost rho", _decimal(quote.zcdp.rho)),
        ("groups", _groups(quote)),
    ]
    sketch = _why_sketch(quote, settings)
    if sketch is not None:
        rows.insert(4, ("sketch", sketch))
    narrow = _left_out(quote, services.database)
    if narrow:
        rows.insert(4, ("left out of the bound", narrow))
    if question.roots and groups is not None:
        served = serve(prepared, groups, role, settings, services)
        if served is not None:
            told = f"{served[1]}; with dp.fresh = on the following holds"
            rows.insert(0, ("release", told))
    if question.redundant:
        redundant = f"{', '.join(question.redundant)}: foreign keys say that they change nothing"
        rows.insert(2, ("redundant joins", redundant))
    refused = _refused(quote, prepared, role, settings, services)
    if refused:
        rows.insert(0, ("refused", refused))
    for j, aggregate in enumerate(quote.aggregates):
        name = (
            f"expected error of {_kind(quote, j)} {j + 1}"
            if len(quote.aggregates) > 1
            else "expected error"
        )
        rows.append((name, _error(aggregate, settings)))
    rows += _rows_sent(quote)
    if services.catalog.owns(role.oid, tuple(r.oid for r in relations if r.private)):
        for aggregate in quote.aggregates:
            rows.append(("counting SQL", aggregate.counting_sql(services.database)))
    return rows


def _refused(
    quote: Quote, prepared: Prepared, role: Role, settings: Settings, services: Services
) -> str:
    """Say why the ledger would refuse the question whatever it costs; ``""``: it would not.

    Amounts are left to ``dp.estimate``.
    """
    if not quote.reads_private:
        return ""
    try:
        outlook = services.ledger.outlook(charge(quote, prepared, None, role, settings))
    except LedgerUnavailable:
        return ""
    error = outlook.refused
    if not isinstance(error, TooManyFailures | UndeclaredRelation):
        return ""
    told = filter(None, (f"{error.message}.", error.detail, error.hint))
    return f"{' '.join(told)} ({error.sqlstate})"


def _kind(quote: Quote, j: int) -> str:
    query = quote.aggregates[j].query
    if quote.groups is None and j == quote.question.selection and j not in quote.question.vectors:
        return "the selection of groups,"
    return "sum" if query.weights else "distinct count" if query.distinct else "count"


def _rows_sent(quote: Quote) -> list[tuple[str, str]]:
    """Say of which relations other servers send every row, whatever is counted (docs/sql.md)."""
    found = dict.fromkeys(c for a in quote.aggregates for c in fetched(a.query))
    return [
        (
            "rows sent",
            f"those of {relation}, one by one: other servers are not asked about {column}, of the"
            f" enum type {type_}, unless it belongs to an extension that they are said to have",
        )
        for relation, column, type_ in found
    ]


def _neighbours(quote: Quote) -> str:
    if not _over_units(quote):
        return "one row of one private relation more or less"
    return "one privacy unit more or less, with all rows that belong to it"


def _units(relations: list[Relation]) -> list[str]:
    """Name the columns whose values are the units that the rows belong to."""
    found = set()
    for relation in relations:
        for path in relation.units:
            last = path.hops[-1] if path.hops else relation
            found.add(show_name(last.schema, last.name, path.column))
    return sorted(found)


def _over_units(quote: Quote) -> bool:
    return any(a.query.over_units for a in quote.aggregates)


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.12g}"


def _guarantee(quote: Quote) -> str:
    if not quote.reads_private:
        return "exact: no private relation is read"
    if quote.guarantee.delta == 0:
        return f"pure {_decimal(quote.guarantee.epsilon)}-differential privacy"
    return (
        f"({_decimal(quote.guarantee.epsilon)}, {_decimal(quote.guarantee.delta)})"
        "-differential privacy"
    )


def _why_method(quote: Quote, settings: Settings) -> str:
    if not quote.reads_private:
        return "nothing to protect"
    return _speaker(quote).why(quote.aggregates, settings)


def _why_mechanism(quote: Quote, settings: Settings) -> str:
    if not quote.reads_private:
        return "nothing to protect"
    return _speaker(quote).why_mechanism(
        quote.aggregates, settings, groups_known=quote.groups is not None
    )


def _speaker(quote: Quote) -> Method:
    """Choose the aggregate whose method explains the question: that of most units per result."""
    return max(quote.aggregates, key=lambda aggregate: aggregate.units_per_result)


def _why_sketch(quote: Quote, settings: Settings) -> str | None:
    """Say whether sketches suit the question, from public facts, where one is or could be asked."""
    from dpsql.engine.methods.choose import SKETCHES
    from dpsql.statistics.sketch_parts import hopeless

    asked = settings.method in SKETCHES
    if not quote.reads_private or not (asked or settings.method == "auto"):
        return None
    if _over_units(quote):
        return None
    for aggregate in quote.aggregates:
        if aggregate.has_constant_sensitivity or len(aggregate.query.occurrences) < 2:
            continue
        reason = hopeless(aggregate.query, SKETCHES.get(settings.method, SKETCHES["sketch"]))
        if reason is not None:
            return f"hopeless: {reason}" + ("" if asked else "; dp.method = auto avoids it")
    return "nothing public speaks against it" if asked else None


def _left_out(quote: Quote, database: Database) -> str:
    """Name the relations that the bound does without where other servers would send their rows."""
    found = {
        aggregate.query.occurrences[i].relation.shown
        for aggregate in quote.aggregates
        for i in aggregate.left_out(database)
    }
    if not found:
        return ""
    return (
        f"{', '.join(sorted(found))}, where other servers would send nearly all rows; so the bound"
        " may be larger than on one server"
    )


def _groups(quote: Quote) -> str:
    if not quote.question.group_keys:
        return "no GROUP BY: one row"
    if quote.groups == []:
        return "none: the public relations and domains exclude every group; nothing is read"
    if quote.groups is not None:
        others = quote.question.others
        listed = sum(len(d.positions) for d in quote.question.group_domains or () if d.sql)
        left_out = ""
        if listed > len(others):
            left_out = "; rows outside a declared domain are not counted"
        counted = "".join(f"; other values of {name} count as {other}" for name, other in others)
        return f"{len(quote.groups)}, all reported: their domains are public{left_out}{counted}"
    return (
        f"unknown, usually few or none are shown. {describe_threshold(quote)} "
        f"{remedy(quote.question)}"
    )


def _error(aggregate: Method, settings: Settings) -> str:
    found = expected(aggregate, settings.confidence)
    if found.known and found.scale == 0:
        return "0"
    if found.within is None:
        return found.note
    within = f"within ±{shown_error(found.within)} with probability {_decimal(settings.confidence)}"
    if found.known and found.scale is not None:
        return f"{within} (noise scale {shown_error(found.scale)})"
    return f"{within}, {found.note}"
