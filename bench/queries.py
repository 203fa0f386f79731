"""The eight join queries that private counting is measured on."""

from __future__ import annotations

FACEBOOK = {
    "Q4": (
        "edge1, edge2, edge3, edge4, edge5",
        "edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge4_from "
        "and edge4_to = edge5_from",
    ),
    "Q5": (
        "edge1, edge2, edge3",
        "edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge1_from",
    ),
    "Q6": (
        "edge1, edge2, edge3, edge4",
        "edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge4_from "
        "and edge4_to = edge1_from",
    ),
    "Q7": (
        "edge1, edge2, edge3, edge4, edge5",
        "edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge4_from "
        "and edge4_to = edge5_from and edge5_to = edge1_from",
    ),
    "Q8": (
        "r6, edge3, edge4, edge5",
        "a = edge3_from and b = edge3_to and b = edge4_from and c = edge4_to "
        "and c = edge5_from and a = edge5_to",
    ),
}

TPCH = {
    "Q1": (
        "nation, customer, orders, lineitem, supplier",
        "n_nationkey = c_nationkey and c_custkey = o_custkey and o_orderkey = l_orderkey "
        "and l_suppkey = s_suppkey",
    ),
    "Q2": (
        "part, partsupp, supplier, lineitem, orders",
        "p_partkey = ps_partkey and ps_suppkey = s_suppkey and ps_partkey = l_partkey "
        "and ps_suppkey = l_suppkey and l_orderkey = o_orderkey",
    ),
    "Q3": (
        "supplier, lineitem, orders, customer, nation, region",
        "s_suppkey = l_suppkey and l_orderkey = o_orderkey and o_custkey = c_custkey "
        "and c_nationkey = n_nationkey and n_nationkey = s_nationkey "
        "and r_regionkey = n_regionkey",
    ),
}

_TRIANGLES = """
select e1.{0}_from as a, e2.{0}_from as b, e3.{0}_from as c from {0} e1, {0} e2, {0} e3
 where e1.{0}_to = e2.{0}_from and e2.{0}_to = e3.{0}_from and e3.{0}_to = e1.{0}_from
"""

#: R6(a, b, c): directed triangles within edge1 united with those within edge2.
R6 = f"create table r6 as {_TRIANGLES.format('edge1')} union {_TRIANGLES.format('edge2')}"


def statement(query: tuple[str, str], aggregate: str) -> str:
    """Write a query with an aggregate."""
    return f"select {aggregate} from {query[0]} where {query[1]}"
