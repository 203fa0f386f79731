"""Which aggregates of a statement read disjoint rows: the rule of parallel composition.

Aggregates with FILTER conditions of which no protected row (no privacy unit) satisfies two are
functions of disjoint blocks of the data; each may have all of the budget (PRIVACY.md section 7,
docs/proofs/composition.md).  Only what the settled graphs say is looked at: the conditions that
every aggregate's rows of one occurrence are filtered by before anything is counted.  Whether two of
them can both be true is decided by comparisons with constants; whatever is not recognised counts as
not disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from dpsql.query.graph import Graph, bare
from dpsql.query.ir import Expr
from dpsql.query.types import INTEGERS
from dpsql.relation import Relation

_Value = tuple[str, Any]  # its kind and something that compares as the type does


def blocks(graphs: Sequence[Graph], stated: int) -> tuple[int, ...]:
    """Return a number for each aggregate: any two of one number read disjoint rows.

    Parameters
    ----------
    graphs : sequence of Graph
        The settled graph of every aggregate, all of one statement.
    stated : int
        Number of occurrences that the statement itself names: the first of each graph.
    """
    members: list[list[Graph]] = []
    numbers = []
    for graph in graphs:
        fits = (all(_apart(graph, other, stated) for other in block) for block in members)
        number = next((n for n, fit in enumerate(fits) if fit), len(members))
        if number == len(members):
            members.append([])
        members[number].append(graph)
        numbers.append(number)
    return tuple(numbers)


def _apart(one: Graph, other: Graph, stated: int) -> bool:
    """Tell whether no protected row, or unit, can contribute to both."""
    return any(
        contradict(one.filters.get(o, ()), other.filters.get(o, ()))
        for o in _deciding(one) & _deciding(other)
        if o < stated
    )


def _deciding(graph: Graph) -> set[int]:
    """Return the occurrences whose row decides all that a protected row, or unit, adds.

    Under row neighbours that is the one protected occurrence.  Under units it is an occurrence of
    the relation that names the units by a key, whose one row is the unit's own: that all results
    of a unit join this very row is what its unit column says.
    """
    if graph.units:  # no row is that of all units of a result
        return set()
    private = [o for o in graph.alive if graph.relations[o].private]
    if graph.unit is None:
        return set(private) if len(private) == 1 else set()
    return {o for o in private if _names_units(graph.relations[o])}


def _names_units(relation: Relation) -> bool:
    return (
        any(
            not path.hops and not path.loose and (path.column,) in relation.keys
            for path in relation.units
        )
        and len(relation.units) == 1
    )


def contradict(some: Iterable[Expr], others: Iterable[Expr]) -> bool:
    """Tell whether conditions of which all must be true cannot all be true together."""
    left, right = list(some), list(others)
    negated = {e.args[0] for e in right if e.kind == "not"} & set(left)
    negated |= {e.args[0] for e in left if e.kind == "not"} & set(right)
    if negated:
        return True
    mine, theirs = _facts(left), _facts(right)
    return any(mine[key].excludes(theirs[key]) for key in mine.keys() & theirs.keys())


@dataclass
class _Facts:
    """What conditions say of one expression; ``low`` and ``high`` are (value, itself included)."""

    null: bool | None = None
    among: set[_Value] | None = None
    never: set[_Value] = field(default_factory=set)
    low: tuple[_Value, bool] | None = None
    high: tuple[_Value, bool] | None = None

    def excludes(self, other: _Facts) -> bool:
        """Tell whether no value satisfies both."""
        if self.null is not None and other.null is not None and self.null != other.null:
            return True
        if self.among is not None and other.among is not None:
            return _one_kind(self.among | other.among) and not self.among & other.among
        if self.among is not None:
            return all(other.refuses(value) for value in self.among)
        if other.among is not None:
            return all(self.refuses(value) for value in other.among)
        return _below(self.high, other.low) or _below(other.high, self.low)

    def refuses(self, value: _Value) -> bool:
        """Tell whether a value certainly does not satisfy it."""
        point = (value, True)
        return value in self.never or _below(point, self.low) or _below(self.high, point)


def _one_kind(values: set[_Value]) -> bool:
    return len({kind for kind, _ in values}) == 1


def _below(high: tuple[_Value, bool] | None, low: tuple[_Value, bool] | None) -> bool:
    """Tell whether everything up to ``high`` is less than everything from ``low`` on."""
    if high is None or low is None or high[0][0] != low[0][0] or high[0][0] == "text":
        return False
    if high[0][1] == low[0][1]:
        return not (high[1] and low[1])
    return bool(high[0][1] < low[0][1])


def _facts(conditions: Iterable[Expr]) -> dict[Expr, _Facts]:
    found: dict[Expr, _Facts] = {}
    for condition in conditions:
        _note(condition, found)
    return found


def _note(condition: Expr, found: dict[Expr, _Facts]) -> None:
    """Note what a condition that is true says of an expression."""

    def of(e: Expr) -> _Facts:
        return found.setdefault(bare(e), _Facts())

    if condition.kind == "op" and len(condition.args) == 2 and condition.args[1].kind == "const":
        value = _value(condition.args[1])
        if value is not None:
            _compare(of(condition.args[0]), str(condition.data), value)
    elif condition.kind == "in":
        # NULL in the list makes nothing true
        values = [_value(e) for e in condition.args[1:] if e.data is not None]
        known = {v for v in values if v is not None}
        if condition.data:  # NOT IN
            of(condition.args[0]).never |= known
        elif None not in values:
            _narrow(of(condition.args[0]), known)
    elif condition.kind == "is" and condition.data in ("NULL", "NOT NULL"):
        of(condition.args[0]).null = condition.data == "NULL"
    elif condition.kind == "is" and condition.data in ("TRUE", "FALSE"):
        _narrow(of(condition.args[0]), {("boolean", condition.data == "TRUE")})
    elif condition.kind == "not" and condition.args[0].kind == "col":
        _narrow(of(condition.args[0]), {("boolean", False)})
    elif condition.kind == "col" and condition.type == "boolean":
        _narrow(of(condition), {("boolean", True)})


def _narrow(facts: _Facts, values: set[_Value]) -> None:
    facts.null = False
    facts.among = values if facts.among is None else facts.among & values


def _compare(facts: _Facts, operator: str, value: _Value) -> None:
    if operator == "=":
        _narrow(facts, {value})
    elif operator == "<>":
        facts.null = False
        facts.never.add(value)
    elif operator in ("<", "<="):
        facts.null = False
        bound = (value, operator == "<=")
        if facts.high is None or _below(bound, facts.high):
            facts.high = bound
    elif operator in (">", ">="):
        facts.null = False
        bound = (value, operator == ">=")
        if facts.low is None or _below(facts.low, bound):
            facts.low = bound


def _value(e: Expr) -> _Value | None:
    """Read a constant if equality and order of its type are known here, for certain."""
    text = None if e.data is None else str(e.data)
    if e.kind != "const" or text is None:
        return None
    try:
        if e.type in (*INTEGERS, "numeric"):
            number = Decimal(text)
            return ("number", number) if number.is_finite() else None
        if e.type == "date":
            return "date", date.fromisoformat(text)
    except (InvalidOperation, ValueError):
        return None
    if e.type == "boolean":
        return {"t": ("boolean", True), "f": ("boolean", False)}.get(text)
    # collations that are not deterministic are refused elsewhere; their order is not known here
    return ("text", text) if e.type in ("text", "character varying") else None
