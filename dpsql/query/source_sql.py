"""The rows of one occurrence as a FROM clause, and its values in the types that are counted in.

What records hold as expressions becomes trees here and where statements are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate, Weight
from dpsql.query.elimination import Base
from dpsql.query.ir import Expr, tree
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    equal,
    from_,
    number,
    select,
    sql,
    subquery,
    table,
)


def typed(use: AttributeUse, attribute: Attribute, occurrence: Occurrence) -> Expr:
    """Return an attribute over its occurrence, in the attribute's type."""
    for c in occurrence.relation.columns:
        if c.name == use.column and c.type_name == attribute.type_name:
            return use.expression
    return Expr("cast", attribute.type_name, (use.expression,), attribute.type_name)


def all_sql(predicates: Iterable[Predicate]) -> Tree | None:
    """Write that all predicates are true; ``None`` without any."""
    return all_of(tree(p.expression) for p in predicates)


#: An attribute, by its number, or a sum, by its name.
Key = TypeVar("Key", int, str)


def written(query: JoinQuery) -> JoinQuery:
    """Return a query whose expressions are trees already, for a statement that repeats them."""

    def made(e: Expr) -> Expr:
        return Expr("tree", e.type, data=tree(e))

    def uses(o: Occurrence) -> tuple[AttributeUse, ...]:
        return tuple(replace(u, expression=made(u.expression)) for u in o.uses)

    return replace(
        query,
        occurrences=tuple(
            replace(o, uses=uses(o), filters=tuple(map(made, o.filters))) for o in query.occurrences
        ),
        predicates=tuple(replace(p, expression=made(p.expression)) for p in query.predicates),
        weights=tuple(replace(w, expression=made(w.expression)) for w in query.weights),
    )


def named(values: Mapping[Key, Tree]) -> list[Tree]:
    """Return output columns: attributes by their numbers, sums by their names."""
    return [aliased(made, name_of(key)) for key, made in values.items()]


def name_of(key: int | str) -> str:
    """Return the name of a column: of an attribute ``a<number>``."""
    return f"a{key}" if isinstance(key, int) else key


def of(alias: str, keys: Iterable[int | str]) -> list[Tree]:
    """Return the columns of a source that attributes and sums are."""
    return [column(alias, name_of(key)) for key in keys]


def source_sql(
    query: JoinQuery,
    base: Base,
    conditions: tuple[Tree, ...] = (),
    values: dict[str, Tree] | None = None,
    part: int | None = None,
) -> tuple[dict[int, Tree], exp.Select]:
    """Return each attribute's expression, and a SELECT of a base factor without output columns.

    ``conditions`` over the alias are added to the occurrence's own filters.  ``values`` are named
    expressions over the alias; they are rewritten where they must be.  With ``part`` the rows are
    those of that part of the relation.
    Rows with a NULL join attribute take part in no result and are left out everywhere.
    """
    values = {} if values is None else values
    occurrence = query.occurrences[base.occurrence]
    columns = {c.name: c for c in occurrence.relation.columns}
    expressions: dict[int, Tree] = {}
    tests = [*conditions, *map(tree, occurrence.filters)]
    for use in occurrence.uses:
        attribute = query.attributes[use.attribute]
        if attribute.place and part is not None:
            place = number(occurrence.relation.place(part) + 1)
            expressions[use.attribute] = cast(place, "integer")
            continue
        value = tree(typed(use, attribute, occurrence))
        if use.attribute in expressions:
            tests.append(equal(expressions[use.attribute], value))
        else:
            expressions[use.attribute] = value
        if attribute.place:
            continue  # every row is in some part
        if attribute.join and not (use.column in columns and columns[use.column].not_null):
            tests.append(sql(":a IS NOT NULL", a=tree(use.expression)))
    relation = occurrence.relation
    name = relation.sql if part is None else relation.parts[part].sql
    source = from_([table(name, occurrence.alias)], all_of(tests))
    if base.predicates:
        inner = select([*named(expressions), *named(values)], source)
        alias = occurrence.alias
        values.update((name, column(alias, name)) for name in values)
        spanning = all_sql(query.predicates[n] for n in base.predicates)
        source = from_([subquery(inner, alias)], spanning)
        expressions = {a: column(alias, f"a{a}") for a in expressions}
    return expressions, source


def weight_sql(weight: Weight, number: str) -> Tree:
    """Write a value in a type in which its sums are exact; integers in what counts are in."""
    value = tree(weight.expression)
    return cast(value, number) if weight.integer else value
