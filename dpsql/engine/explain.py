"""Explain a statement before paying: public facts only, no protected row is read."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.expected import bound_is_set, expected, shown_error
from dpsql.engine.explain_released import released
from dpsql.engine.from_release import serve
from dpsql.engine.groups import confirmed_groups
from dpsql.engine.prepare import prepare
from dpsql.engine.price import AggregateQuote, Quote, price
from dpsql.engine.request import Role, Settings
from dpsql.engine.truncated import Truncated
from dpsql.engine.undeclared import describe_threshold, remedy
from dpsql.errors import NotAnswerable
from dpsql.query.late import fetched
from dpsql.relation import show_name

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.model import Boundary, JoinQuery
    from dpsql.ports import Database
    from dpsql.query.elimination import Plan
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
            rows.append(("counting SQL", _counting_sql(aggregate, services.database)))
    return rows


def _kind(quote: Quote, j: int) -> str:
    query = quote.aggregates[j].query
    if quote.groups is None and j == quote.question.selection and j not in quote.question.vectors:
        return "the selection of groups,"
    return "sum" if query.weights else "distinct count" if query.distinct else "count"


def _counting_sql(aggregate: AggregateQuote, database: Database) -> str:
    """Write what runs if it is not executed in arrays, by the size facts of now.

    These are for owners only (PRIVACY.md section 2).
    """
    from dpsql.query.contribution_sql import contribution_sql, per_unit
    from dpsql.query.counting_sql import counting_sql
    from dpsql.query.elimination import make_plan
    from dpsql.query.membership_sql import per_units
    from dpsql.query.sum_sql import distinct_sql, per_value, sum_sql
    from dpsql.statistics.sizes import read_facts

    def plan(counted: JoinQuery, boundaries: Iterable[Boundary] = ()) -> Plan:
        sizes = read_facts(counted, database).sizes(counted)
        return make_plan(counted, boundaries, sizes=sizes, tick=database.tick)

    query = aggregate.query
    if query.units:
        each = per_units(query)
        return sum_sql(plan(each), [each]) if query.weights else counting_sql(plan(each))
    if isinstance(aggregate.bounding, Truncated):
        return contribution_sql(plan(per_unit(query)), [query], [aggregate.plan.bounds])
    if query.distinct or query.weights:
        write = distinct_sql if query.distinct else sum_sql
        return write(plan(per_value(query)), [query])
    return counting_sql(plan(query, aggregate.bounding.boundaries))


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


def _over_several(quote: Quote) -> bool:
    return any(a.query.units for a in quote.aggregates)


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
    if _over_several(quote):
        return "a linear program cuts every unit of a result off at a bound"
    if _over_units(quote):
        return _why_truncation(quote)
    stored = ", from stored statistics" if _is_old(quote) else ""
    if settings.method != "auto":
        from dpsql.engine.choose import SAMPLING

        slower = "; dp.method = auto is usually faster" if settings.method in SAMPLING else ""
        return f"as dp.method says{stored}{slower}"
    if quote.method == "elastic":
        return f"the join is too wide for residual sensitivity{stored}"
    return f"the tightest bound that is proved{stored}"


def _why_truncation(quote: Quote) -> str:
    if all(getattr(a.bounding, "whole", False) for a in quote.aggregates):
        if any(getattr(a.bounding, "reach", 0) for a in quote.aggregates):
            return "of each unit some groups count, in which it has one result"
        return "a unit counts once, by keys, so that nothing is cut off"
    if all(map(bound_is_set, quote.aggregates)):
        return "every unit is cut off at a bound that is set"
    return "every unit is cut off at a bound that few exceed"


def _is_old(quote: Quote) -> bool:
    from dpsql.engine.estimated import Old

    return any(isinstance(a.bounding, Old) for a in quote.aggregates)


def _why_sketch(quote: Quote, settings: Settings) -> str | None:
    """Say whether sketches suit the question, from public facts, where one is or could be asked."""
    from dpsql.engine.choose import SKETCHES
    from dpsql.statistics.sketch_parts import hopeless

    asked = settings.method in SKETCHES
    if not quote.reads_private or not (asked or settings.method == "auto"):
        return None
    if _over_units(quote):
        return None
    for aggregate in quote.aggregates:
        if aggregate.bounding.constant or len(aggregate.query.occurrences) < 2:
            continue
        reason = hopeless(aggregate.query, SKETCHES.get(settings.method, SKETCHES["sketch"]))
        if reason is not None:
            return f"hopeless: {reason}" + ("" if asked else "; dp.method = auto avoids it")
    return "nothing public speaks against it" if asked else None


def _left_out(quote: Quote, database: Database) -> str:
    """Name the relations that the bound does without where other servers would send their rows."""
    from dpsql.core.sensitivity import left_out
    from dpsql.engine.bounding import Counted
    from dpsql.engine.estimated import Sampled

    found: set[str] = set()
    for aggregate in quote.aggregates:
        query, bounding = aggregate.query, aggregate.bounding
        if isinstance(bounding, Counted | Sampled) and not query.over_units:
            method = "elastic" if bounding.method == "elastic" else "residual"
            without = left_out(query.shape(), method, bounding.use_keys, database.tick)
            found |= {query.occurrences[i].relation.shown for i in without}
    if not found:
        return ""
    return (
        f"{', '.join(sorted(found))}, where other servers would send nearly all rows; so the bound"
        " may be larger than on one server"
    )


def _why_mechanism(quote: Quote, settings: Settings) -> str:
    if not quote.reads_private:
        return "nothing to protect"
    if _over_units(quote) and all(map(bound_is_set, quote.aggregates)):
        hidden = "; the groups are unknown: delta is spent to hide those of one unit"
        return (
            "the bound is given by keys or settings (dp.max_rows_contributed), so that nothing is"
            " drawn or raced and all of epsilon is noise"
            f"{hidden if quote.groups is None else ''}"
        )
    if settings.mechanism != "auto":
        return "as dp.mechanism says"
    if _over_several(quote):
        return "the bound is drawn with two fifths of epsilon; results can belong to several units"
    if _over_units(quote) and quote.groups is None:
        return "a bound is drawn; the groups are unknown: delta is spent to hide those of one unit"
    if _over_units(quote):
        return "the bound is drawn with a quarter of epsilon, the rest perturbs what is left"
    if quote.groups is None:
        return "the groups are unknown, and one row can create one: delta is spent to hide it"
    if all(a.bounding.constant for a in quote.aggregates):
        return "the sensitivity is a public constant, so no delta is spent"
    return "chosen by the number of groups and by whether an interval is asked for"


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


def _error(aggregate: AggregateQuote, settings: Settings) -> str:
    found = expected(aggregate, settings.confidence)
    if found.known and found.scale == 0:
        return "0"
    if found.within is None:
        return found.note
    within = f"within ±{shown_error(found.within)} with probability {_decimal(settings.confidence)}"
    if found.known and found.scale is not None:
        return f"{within} (noise scale {shown_error(found.scale)})"
    return f"{within}, {found.note}"
