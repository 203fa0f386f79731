"""What is refused, in words: the construct, why, and an allowed form.

One table, so that messages stay uniform and the documentation can list them.
"""

from __future__ import annotations

from typing import NoReturn

from dpsql.errors import UnsupportedConstruct

AFTER_FROM_ITEM = frozenset(
    [
        "ON",
        "USING",
        "JOIN",
        "CROSS",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "NATURAL",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "FETCH",
        "FOR",
        "WINDOW",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "TABLESAMPLE",
    ]
)

_WITHOUT_MATCH = (
    "SELECT n - m FROM (SELECT dp_count(*) AS n FROM a) AS whole, (SELECT dp_count(DISTINCT a.id)"
    " AS m FROM a JOIN b ON b.a_id = a.id) AS matched."
)

_WITHOUT_MEMBER = (
    "SELECT n - m FROM (SELECT dp_count(*) AS n FROM a WHERE x IS NOT NULL) AS whole,"
    " (SELECT dp_count(DISTINCT a.id) AS m FROM a JOIN b ON b.x = a.x) AS matched,"
    " if b.x has no NULL."
)

CONSTRUCTS: dict[str, tuple[str, str]] = {
    "outer_join": (
        "outer joins are not supported",
        "Use an inner join, which leaves out what has no match: FROM a JOIN b ON b.a_id = a.id,"
        " or count matches only: dp_count(b.a_id) by keys of a whose values are declared."
        f" How much has none: {_WITHOUT_MATCH}",
    ),
    "natural_join": ("this join form is not supported", "Use JOIN ... USING (column)."),
    "set_operation": (
        "UNION, INTERSECT and EXCEPT are not supported",
        "Ask one dp_count per arm, or write the arms as conditions with OR.",
    ),
    "recursive": ("recursive WITH queries are not supported", "Use WITH x AS (SELECT ...)."),
    "data_modifying": (
        "data-modifying statements are not supported here",
        "Use INSERT INTO own_table SELECT dp_count(*) FROM ....",
    ),
    "lateral": ("LATERAL is not supported", "Use a plain join: FROM a JOIN b ON a.id = b.a_id."),
    "values": (
        "VALUES lists in FROM are not supported",
        "Use a condition: WHERE a IN (1, 2).",
    ),
    "table_function": (
        "functions in FROM are not supported",
        "Name protected or public relations only.",
    ),
    "tablesample": ("TABLESAMPLE is not supported", "Count the whole relation."),
    "window": (
        "window functions are not supported beside dp_count",
        "Use them on the answer: SELECT k, n, rank() OVER (ORDER BY n) FROM"
        " (SELECT k, dp_count(*) AS n FROM t GROUP BY k) AS answer.",
    ),
    "grouping_sets": (
        "GROUPING SETS, ROLLUP, CUBE, GROUPING() and GROUP BY DISTINCT are not supported",
        "Use one GROUP BY a, b per query, or SELECT dp.release('name', $$ ... $$), which measures"
        " all sets at once: its table is read for nothing.",
    ),
    "row_lock": ("FOR UPDATE and FOR SHARE are not supported", "Leave the locking clause out."),
    "distinct_on": ("DISTINCT ON is not supported", "Use GROUP BY."),
    "with_ties": ("FETCH FIRST ... WITH TIES is not supported", "Use LIMIT n."),
    "order_using": ("ORDER BY ... USING is not supported", "Use ASC or DESC."),
    "exists": (
        "EXISTS is not supported",
        "Write a join and count each row of a once: SELECT dp_count(DISTINCT a.id) FROM a"
        " JOIN b ON b.a_id = a.id; dp_count(*) counts every match.",
    ),
    "not_exists": (
        "NOT EXISTS is not supported",
        f"Subtract what has a match from all: {_WITHOUT_MATCH}",
    ),
    "in_query": (
        "IN (sub-query) is not supported",
        "Write a join and count each row of a once: SELECT dp_count(DISTINCT a.id) FROM a"
        " JOIN b ON b.x = a.x; where x is a key of b, dp_count(*) counts the same.",
    ),
    "not_in_query": (
        "NOT IN (sub-query) is not supported",
        f"Subtract what has a match from all: {_WITHOUT_MEMBER}",
    ),
    "scalar": (
        "a sub-query as a value must stand alone and read no protected rows",
        "Let it ask a question of its own, WHERE a > (SELECT dp_avg(a, 0, 100) FROM t), or find the"
        " value first and write it as a constant or parameter: WHERE a > $1.",
    ),
    "output_query": (
        "a sub-query beside a private aggregate must stand alone and read no protected rows",
        "Use it on the answer: SELECT n, (SELECT ...) FROM (SELECT dp_count(*) AS n FROM t)"
        " AS answer.",
    ),
    "whole_row": ("whole-row references are not supported", "Name a column: dp_count(t.a)."),
    "row_value": ("row values are not supported", "Compare columns: a = 1 AND b = 2."),
    "subscript": (
        "array elements and composite fields are not supported",
        "Use columns of simple types.",
    ),
    "system_column": (
        "system columns are not supported",
        "Use columns that the relation declares.",
    ),
    "derived_column": (
        "columns that number rows are not supported",
        "Leave it out: its value in one row depends on other rows. If * or NATURAL included it,"
        " name the columns that the question needs.",
    ),
    "virtual_column": (
        "virtual generated columns are not supported",
        "Write the expression in the question, or let the owner make the column STORED.",
    ),
    "aggregate_distinct": (
        "DISTINCT is supported inside dp_count only",
        "Use dp_count(DISTINCT column), or leave DISTINCT out.",
    ),
    "aggregate_order": ("ORDER BY inside a private aggregate is not supported", "Leave it out."),
    "other_aggregate": (
        "aggregates other than the private ones are not supported",
        "Use dp_count, dp_sum, dp_avg, dp_variance, dp_stddev, dp_min, dp_max, dp_median,"
        " dp_percentile or dp_histogram.",
    ),
    "derived_distinct": (
        "a sub-query may not remove duplicates",
        "Count different values outside: SELECT dp_count(DISTINCT x.a) FROM (SELECT a FROM t"
        " WHERE c > 0) AS x.",
    ),
    "derived_aggregate": (
        "a sub-query may not aggregate, group, limit or sort",
        "Use FROM (SELECT a, b FROM t WHERE c > 0) AS x.",
    ),
    "nested_count": (
        "dp_count is allowed only in the outermost query's output",
        "Use SELECT dp_count(*) FROM (SELECT a FROM t WHERE b > 0) AS x.",
    ),
    "parameter": ("a parameter has no value", "Bind every parameter."),
    "indeterminate_collation": (
        "texts of different collations are compared",
        'Name one for both sides: a COLLATE "C" < b COLLATE "C".',
    ),
    "expression": ("this expression is not supported", "See the list of allowed functions."),
}


def refuse(construct: str, position: int | None = None, detail: str | None = None) -> NoReturn:
    """Raise ``UnsupportedConstruct`` for an entry of the table."""
    message, hint = CONSTRUCTS[construct]
    raise UnsupportedConstruct(message, detail=detail, hint=hint, position=position)
