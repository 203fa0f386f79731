"""Aggregates of one join whose FILTERs differ, as one pass over the rows that any of them reads.

Conditions that all have stay conditions; what one has beyond is a flag, 0 or 1, that its counts and
sums are multiplied with.  A relation's rows that no aggregate reads are left out, so what follows
from each aggregate's own conditions (that a group is one of those listed) holds for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.expression import Expr
from dpsql.model import JoinQuery, Weight
from dpsql.query.contribution_sql import together
from dpsql.query.ir import template
from dpsql.steps import Steps, leaf


@dataclass(frozen=True, slots=True)
class Amount:
    """What one query adds up: the product of some columns; without any it counts results."""

    flags: tuple[str, ...] = ()
    weight: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All of its columns."""
        return self.flags if self.weight is None else (*self.flags, self.weight)


@dataclass(frozen=True, slots=True)
class Merged:
    """Several queries as one.

    ``query`` has all weights and the common conditions; ``values[i]`` are integers per row of the
    i-th occurrence, by name, and ``made[i]`` what is computed of them; ``amounts`` says for each
    query what it adds up of both.
    """

    query: JoinQuery
    values: tuple[dict[str, Expr], ...]
    made: tuple[dict[str, Steps], ...]
    amounts: tuple[Amount, ...]


def merge(queries: Sequence[JoinQuery]) -> Merged:
    """Merge queries that are equal but for weights and conditions on single occurrences."""
    query = together(queries)
    values: tuple[dict[str, Expr], ...] = tuple({} for _ in query.occurrences)
    flags: list[list[str]] = [[] for _ in queries]
    occurrences = []
    for i, occurrence in enumerate(query.occurrences):
        filters = [one.occurrences[i].filters for one in queries]
        common = tuple(f for f in filters[0] if all(f in listed for listed in filters))
        others = [tuple(f for f in listed if f not in common) for listed in filters]
        known = {more: f"f{i}_{n}" for n, more in enumerate(dict.fromkeys(others)) if more}
        for more, name in known.items():
            flag = "CASE WHEN :a THEN 1 ELSE 0 END"
            values[i][name] = template("integer", flag, _each("and", more))
        for own, more in zip(flags, others, strict=True):
            own += [known[more]] if more else []
        if all(others):
            common += (_each("or", [_each("and", more) for more in known]),)
        occurrences.append(replace(occurrence, filters=common))
    made: tuple[dict[str, Steps], ...] = tuple({} for _ in query.occurrences)
    names = {}
    for j, weight in enumerate(query.weights):
        names[weight] = f"w{j}"
        if len(weight.occurrences) == 1:
            i, steps = min(weight.occurrences), weight.steps or leaf(_integer(weight), weight.bound)
            made[i][f"w{j}"] = steps
            new = [s for s in dict.fromkeys(steps.leaves()) if s not in values[i].values()]
            values[i].update((f"v{j}_{k}", e) for k, e in enumerate(new))
    amounts = tuple(
        Amount(tuple(own), names[one.weights[0]] if one.weights else None)
        for one, own in zip(queries, flags, strict=True)
    )
    return Merged(replace(query, occurrences=tuple(occurrences)), values, made, amounts)


def _each(kind: str, conditions: Sequence[Expr]) -> Expr:
    return conditions[0] if len(conditions) == 1 else Expr(kind, "boolean", tuple(conditions))


def _integer(weight: Weight) -> Expr:
    """Return a weight as an integer of eight bytes, or error 22003."""
    if weight.factor == 1:
        return template("bigint", "(:a)::bigint", weight.expression)
    factor = Expr("literal", "numeric", data=weight.factor)
    return template("bigint", "(:a * :b)::bigint", weight.expression, factor)
