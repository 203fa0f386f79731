"""SQL as sqlglot trees: statements are put together as trees, and written as text in one place.

`sql` makes a tree of a constant text and of trees that stand for its ``:names``; `build` makes what
depends on a query's shape; `render` writes a tree for PostgreSQL.  Nothing else writes SQL.
"""

from dpsql.sqltree.build import (
    Tree,
    aliased,
    all_of,
    any_of,
    call,
    cast,
    closed,
    column,
    constant,
    cte,
    equal,
    from_,
    infix,
    insert,
    join,
    join_all,
    joined,
    name,
    number,
    parameter,
    raw,
    select,
    subquery,
    table,
    union_all,
    unnest,
    with_,
)
from dpsql.sqltree.dialect import render
from dpsql.sqltree.template import sql

__all__ = [
    "Tree",
    "aliased",
    "all_of",
    "any_of",
    "call",
    "cast",
    "closed",
    "column",
    "constant",
    "cte",
    "equal",
    "from_",
    "infix",
    "insert",
    "join",
    "join_all",
    "joined",
    "name",
    "number",
    "parameter",
    "raw",
    "render",
    "select",
    "sql",
    "subquery",
    "table",
    "union_all",
    "unnest",
    "with_",
]
