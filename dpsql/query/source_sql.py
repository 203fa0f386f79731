"""The rows of one occurrence as a FROM clause, and its values in the types that are counted in.

What records hold as expressions becomes text here and where statements are put together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate, Weight
from dpsql.query.elimination import Base
from dpsql.query.ir import Expr, render


def typed(use: AttributeUse, attribute: Attribute, occurrence: Occurrence) -> Expr:
    """Return an attribute over its occurrence, in the attribute's type."""
    for column in occurrence.relation.columns:
        if column.name == use.column and column.type_name == attribute.type_name:
            return use.expression
    return Expr("cast", attribute.type_name, (use.expression,), attribute.type_name)


def all_sql(predicates: Iterable[Predicate]) -> str:
    """Write that all predicates are true."""
    return " AND ".join(f"({render(p.expression)})" for p in predicates)


def written(query: JoinQuery) -> JoinQuery:
    """Return a query whose expressions are written already, for a statement that repeats them."""

    def text(e: Expr) -> Expr:
        return Expr("sql", e.type, data=render(e))

    def uses(o: Occurrence) -> tuple[AttributeUse, ...]:
        return tuple(replace(u, expression=text(u.expression)) for u in o.uses)

    return replace(
        query,
        occurrences=tuple(
            replace(o, uses=uses(o), filters=tuple(map(text, o.filters))) for o in query.occurrences
        ),
        predicates=tuple(replace(p, expression=text(p.expression)) for p in query.predicates),
        weights=tuple(replace(w, expression=text(w.expression)) for w in query.weights),
    )


def source_sql(
    query: JoinQuery,
    base: Base,
    conditions: tuple[str, ...] = (),
    values: dict[str, str] | None = None,
    part: int | None = None,
) -> tuple[dict[int, str], str]:
    """Return each attribute's expression and the FROM and WHERE clauses of a base factor.

    ``conditions`` over the alias are added to the occurrence's own filters.  ``values`` are named
    expressions over the alias; they are rewritten where they must be.  With ``part`` the rows are
    those of that part of the relation.
    Rows with a NULL join attribute take part in no result and are left out everywhere.
    """
    values = {} if values is None else values
    occurrence = query.occurrences[base.occurrence]
    columns = {column.name: column for column in occurrence.relation.columns}
    expressions: dict[int, str] = {}
    tests = [*conditions, *(f"({render(f)})" for f in occurrence.filters)]
    for use in occurrence.uses:
        attribute = query.attributes[use.attribute]
        if attribute.place and part is not None:
            expressions[use.attribute] = f"{occurrence.relation.place(part) + 1}::integer"
            continue
        value = render(typed(use, attribute, occurrence))
        if use.attribute in expressions:
            tests.append(f"{expressions[use.attribute]} = {value}")
        else:
            expressions[use.attribute] = value
        if attribute.place:
            continue  # every row is in some part
        if attribute.join and not (use.column in columns and columns[use.column].not_null):
            tests.append(f"{render(use.expression)} IS NOT NULL")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    relation = occurrence.relation
    name = relation.sql if part is None else relation.parts[part].sql
    source = f"{name} AS {occurrence.alias}{where}"
    if base.predicates:
        inner_columns = [f"{sql} AS a{a}" for a, sql in expressions.items()]
        inner_columns += [f"{sql} AS {name}" for name, sql in values.items()]
        inner = ", ".join(inner_columns) or "1"
        values.update((name, f"{occurrence.alias}.{name}") for name in values)
        spanning = all_sql(query.predicates[n] for n in base.predicates)
        source = f"(SELECT {inner} FROM {source}) AS {occurrence.alias} WHERE {spanning}"
        expressions = {a: f"{occurrence.alias}.a{a}" for a in expressions}
    return expressions, source


def weight_sql(weight: Weight, number: str) -> str:
    """Write a value in a type in which its sums are exact; integers in what counts are in."""
    value = render(weight.expression)
    return f"({value})::{number}" if weight.integer else value
