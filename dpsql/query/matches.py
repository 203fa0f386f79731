"""Joins that meet each row once: when an outer join or a sub-query in WHERE is an inner join.

All arguments are equalities of functions on every instance that satisfies the constraints which
they use (PRIVACY.md section 1), so a mechanism for the inner join is one for what was written.

- A sub-query of ``EXISTS`` or ``IN`` that yields at most one row for each row outside: the rows
  that have a match are those of the join, as often.  At most one there is where every relation of
  the sub-query has a key that is equated to what is outside, or to relations that have one.
- ``A LEFT JOIN T`` by a foreign key of A whose columns are NOT NULL, with no other condition:
  each row of A has a match, so nothing is extended by NULLs.
- ``A LEFT JOIN T`` under a condition which is not true of a row that was extended by NULLs.
- ``A LEFT JOIN T``, where nothing of T is read and a key of T is equated to what is outside: each
  row of A comes once, as without T.
- ``A LEFT JOIN T``, where every number that is asked for leaves out the NULLs of T (``count(t.x)``,
  ``sum(t.x)``), and the groups do not follow from T: rows without a match add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from dpsql.query import refusals
from dpsql.query.expressions import COMPARISONS
from dpsql.query.foreign_keys import compared_alike
from dpsql.query.graph import bare, common_type
from dpsql.query.ir import Expr, column_of
from dpsql.query.measures import Measure
from dpsql.relation import Relation

_STRICT_OPERATORS = COMPARISONS | {"+", "-", "*", "/", "%", "||", "~~", "!~~"}
_STRICT_FUNCTIONS = frozenset(("lower", "upper", "date_trunc", "length", "btrim", "substring"))
_THROUGH = frozenset(("cast", "narrow", "collate", "extract", "not"))


@dataclass(frozen=True, slots=True)
class Outer:
    """An outer join: rows that have no match under ``conditions`` get NULLs for ``inside``."""

    number: int
    inside: frozenset[int]
    conditions: tuple[Expr, ...]
    position: int


@dataclass
class Outers:
    """The outer joins of a statement, numbered as they are met.

    ``pending`` are those of which the FROM clause alone does not tell what they are; ``decided``
    says of each, when the statement is read again, whether its other side stays.  ``needs_groups``
    is the place of one that does not matter if public facts tell the groups.
    """

    pending: list[Outer] = field(default_factory=list)
    decided: dict[int, bool] = field(default_factory=dict)
    met: int = 0
    needs_groups: int | None = None

    def unsure(self) -> set[int]:
        """Return the occurrences whose rows may be missing."""
        return {number for outer in self.pending for number in outer.inside}

    def again(self) -> Outers:
        """Return what the second reading starts with."""
        return Outers(decided=self.decided, needs_groups=self.needs_groups)


def at_most_one(
    relations: Sequence[Relation], inside: Collection[int], conditions: Iterable[Expr]
) -> bool:
    """Tell whether rows outside meet at most one combination of rows inside."""
    equated = [
        (member, other)
        for left, right in map(_sides, conditions)
        if left is not None and right is not None
        for member, other in ((left, right), (right, left))
        if member.kind == "col"
    ]
    open_ = set(inside)

    def found(number: int) -> bool:
        named = {
            str(member.data[1])  # type: ignore[index]
            for member, other in equated
            if member.data[0] == number and not other.occurrences() & open_  # type: ignore[index]
        }
        return any(set(key) <= named for key in relations[number].keys)

    return _exhausted(open_, found)


def always_one(
    relations: Sequence[Relation],
    inside: Collection[int],
    conditions: Iterable[Expr],
    unsure: Collection[int] = (),
) -> bool:
    """Tell whether each row outside meets one row inside, by foreign keys that are not NULL.

    ``unsure`` are occurrences outside whose own rows may be missing.
    """
    open_ = set(inside)
    rest: set[frozenset[tuple[int, str]]] = set()
    for left, right in map(_sides, conditions):
        if left is None or right is None or left.kind != "col" or right.kind != "col":
            return False
        rest.add(left.columns() | right.columns())

    def found(number: int) -> bool:
        for source, child in enumerate(relations):
            if source in open_ or source in unsure:
                continue
            for pairs in _references(relations, child, source, number):
                if pairs <= rest:
                    rest.difference_update(pairs)
                    return True
        return False

    return _exhausted(open_, found) and not rest


def _exhausted(open_: set[int], found: Callable[[int], bool]) -> bool:
    """Close occurrences one after the other, and tell whether none is left."""
    while open_:
        closed = next((number for number in sorted(open_) if found(number)), None)
        if closed is None:
            return False
        open_.discard(closed)
    return True


def _references(
    relations: Sequence[Relation], child: Relation, source: int, target: int
) -> Iterator[frozenset[frozenset[tuple[int, str]]]]:
    """Yield the equalities by which one occurrence always refers to a row of the other."""
    parent = relations[target]
    not_null = {c.name for c in child.columns if c.not_null} if child.kind != "f" else set()
    for key in child.foreign_keys:
        if key.target_oid != parent.oid or not not_null.issuperset(key.columns):
            continue
        if not any(set(k) == set(key.target_columns) for k in parent.keys):
            continue
        pairs = list(zip(key.columns, key.target_columns, strict=True))
        if all(compared_alike(child, a, parent, b) for a, b in pairs):
            yield frozenset(frozenset(((source, a), (target, b))) for a, b in pairs)


def _sides(condition: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the sides of an equality that means the same in either type."""
    if condition.kind != "op" or condition.data != "=" or len(condition.args) != 2:
        return None, None
    left, right = map(bare, condition.args)
    return (left, right) if common_type(left.type, right.type) else (None, None)


def is_null(e: Expr, inside: Collection[int]) -> bool:
    """Tell whether an expression is surely NULL where all columns of some occurrences are."""
    if e.kind == "col":
        return e.data[0] in inside  # type: ignore[index]
    if e.kind == "const":
        return e.data is None
    if e.kind == "guard":
        return is_not_true(e.args[0], inside) or is_null(e.args[1], inside)
    strict = (
        e.kind in _THROUGH
        or (e.kind == "op" and e.data in _STRICT_OPERATORS)
        or (e.kind == "fn" and e.data in _STRICT_FUNCTIONS)
    )
    if e.kind == "in":
        return is_null(e.args[0], inside)
    return strict and any(is_null(a, inside) for a in e.args)


def is_not_true(e: Expr, inside: Collection[int]) -> bool:
    """Tell whether a condition is surely not true where columns of some occurrences are NULL."""
    if e.kind == "and":
        return any(is_not_true(a, inside) for a in e.args)
    if e.kind == "or":
        return all(is_not_true(a, inside) for a in e.args)
    if e.kind == "is":
        if e.data == "TRUE":
            return is_not_true(e.args[0], inside)
        return e.data in ("NOT NULL", "FALSE", "NOT UNKNOWN") and is_null(e.args[0], inside)
    return is_null(e, inside)


def extended(
    columns: Sequence[tuple[str, Expr]], relations: Sequence[Relation], inside: Sequence[int]
) -> list[tuple[str, Expr]] | None:
    """Write the columns of an outer join's other side as they are where rows may have no match.

    ``None``: there is no column whose NULL would tell such a row.
    """
    found = []
    for name, e in columns:
        if e.kind == "withheld":
            shown = e
        elif e.kind == "col":
            number, column_name, _, *rest = cast("tuple[int, str, bool, str]", e.data)
            shown = Expr("col", e.type, data=(number, column_name, False, *rest))
        else:
            witness = _witness(relations, sorted(e.occurrences()) or inside)
            if witness is None:
                return None
            shown = Expr("guard", e.type, (witness, e))
        found.append((name, shown))
    return found


def _witness(relations: Sequence[Relation], inside: Iterable[int]) -> Expr | None:
    for number in inside:
        for c in relations[number].columns:
            if c.not_null and not c.withheld and relations[number].kind != "f":
                there = column_of(number, c, False)
                return Expr("is", "boolean", (there,), "NOT NULL")
    return None


def decide(
    outers: Outers,
    relations: Sequence[Relation],
    conditions: Iterable[Expr],
    keys: Iterable[Expr],
    measures: Sequence[Measure],
) -> None:
    """Find out what the pending outer joins are.

    Parameters
    ----------
    outers : Outers
        Gets the decisions: whether the other side stays, as in an inner join, or goes.
    relations : sequence of Relation
        The occurrences of the statement, the other sides included.
    conditions, keys, measures
        What must be true of a row, what groups it, what is counted and summed.

    Raises
    ------
    UnsupportedConstruct
        If one of them is neither an inner join nor without effect.
    """
    required = list(conditions)
    read = [*keys, *(e for m in measures for e in (m.condition, *m.needed))]
    pending = list(outers.pending)
    while pending:
        for outer in pending:
            others = [o for o in pending if o is not outer]
            stays = _fate(outer, others, relations, required, read)
            if stays is None and _only_matches(outer, relations, keys, measures):
                stays, outers.needs_groups = True, outer.position
            if stays is not None:
                break
        else:
            refusals.refuse("outer_join", pending[0].position)
        outers.decided[outer.number] = stays
        pending = others
        if stays:
            required.extend(outer.conditions)


def _fate(
    outer: Outer,
    others: Sequence[Outer],
    relations: Sequence[Relation],
    required: Sequence[Expr],
    read: Sequence[Expr],
) -> bool | None:
    if any(is_not_true(c, outer.inside) for c in required):
        return True
    unsure = Outers(list(others)).unsure()
    if always_one(relations, outer.inside, outer.conditions, unsure):
        return True
    everything = [*required, *read, *(c for o in others for c in o.conditions)]
    if any(e.occurrences() & outer.inside for e in everything):
        return None
    return False if at_most_one(relations, outer.inside, outer.conditions) else None


def _only_matches(
    outer: Outer,
    relations: Sequence[Relation],
    keys: Iterable[Expr],
    measures: Sequence[Measure],
) -> bool:
    """Tell whether rows without a match add to no number, and hide no group.

    Public relations and what is said of their columns decide which groups there are.
    """
    inside = outer.inside
    if any(key.occurrences() & inside for key in keys):
        return False
    if not all(relations[number].private for number in inside):
        return False
    equated: list[Expr] = []
    within: list[Expr] = []
    for condition in outer.conditions:
        sides = _sides(condition)
        members = [e for e in sides if e is not None and e.occurrences() & inside]
        if condition.occurrences() <= inside:
            within.append(condition)
        elif len(members) == 1 and members[0].occurrences() <= inside:
            equated.extend(members)
        else:
            return False
    named = [pair for e in equated for pair in e.columns()]
    if len(set(named)) != len(named) or any(c.columns() & set(named) for c in within):
        return False
    return all(_adds_nothing(m, inside) for m in measures)


def _adds_nothing(measure: Measure, inside: Collection[int]) -> bool:
    if is_not_true(measure.condition, inside):
        return True
    if measure.value is None:
        return measure.distinct is not None and is_null(measure.distinct, inside)
    e = measure.value.expression
    zero = e.kind == "coalesce" and len(e.args) == 2 and e.args[1].data == "0"
    return is_null(e.args[0] if zero else e, inside)
