"""Constructs that are refused: SQLSTATE, message, detail, hint, and no charge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.refusals import Refusal, check, read_table

CONSTRUCTS = r"""
# outer joins
! PD011 dpsql: outer joins are not supported
h Use an inner join: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from client left join purchase on p_client = c_id
@ 68 LEFT JOIN public.purchase ON ((purchase.p_client = client.c_
> select dp_count(*) from client right join purchase on p_client = c_id
@ 68 RIGHT JOIN public.purchase ON ((purchase.p_client = client.c
> select dp_count(*) from client full join purchase on p_client = c_id
@ 68 FULL JOIN public.purchase ON ((purchase.p_client = client.c_
> select dp_count(*) from client natural left join (select c_id, c_kind from client) x
@ 68 LEFT JOIN ( SELECT client_1.c_id, client_1.c_kin

# negation and membership
! PD011 dpsql: sub-queries in expressions are not supported
h Join the relation: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from client where not exists (select from purchase where p_client = c_id)
@ 76 EXISTS ( SELECT FROM public.purchase WH
> select dp_count(*) from client where exists (select from purchase where p_client = c_id)
@ 71 EXISTS ( SELECT FROM public.purchase WH
> select dp_count(*) from client where c_id not in (select p_client from purchase)
@ 81 IN ( SELECT purchase.p_client FROM public.purchas
> select dp_count(*) from client where c_id in (select p_client from purchase)
@ 76 IN ( SELECT purchase.p_client FROM public.purchas
> select dp_count(*) from client where c_id <> all (select p_client from purchase)
@ 76 <> ALL ( SELECT purchase.p_client FROM public.pur
> select dp_count(*) from client where c_id = any (select p_client from purchase)
@ 76 IN ( SELECT purchase.p_client FROM public.purchas

# sub-queries in every other place of an expression
! PD011 dpsql: sub-queries in expressions are not supported
h Join the relation: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from client where c_id = (select max(p_client) from purchase)
@ 80 SELECT max(purchase.p_client) AS max FROM public.
> select dp_count(*) from client where c_id = any (array(select p_client from purchase))
@ 88 ( SELECT purchase.p_client FROM public.purchase))
> select dp_count(*) from client where case when (select true) then true end
@ 102 SELECT true) THEN true ELSE NULL::boolean
> select dp_count(*) from client where coalesce(c_id, (select 1)) = 1
@ 88 SELECT 1)) = 1)
> select dp_count(*) from client where abs((select c_id)) = 1
@ 77 SELECT client.c_id)) = 1)
> select dp_count(*) from client join purchase on p_client = (select 1)
@ 116 SELECT 1))))
> select dp_count(*), (select max(c_kind) from client) from client
@ 47 SELECT max(client_1.c_kind) AS max FROM public.cl
> select dp_count(*), exists (select 1) from client
@ 46 EXISTS ( SELECT 1)) AS "exists" FROM public.client
> select dp_count((select 1)) from client
@ 27 SELECT 1)) AS dp_count FROM public.client
> select dp_count(*) from client group by (select 1)
@ 75 SELECT 1)
> select dp_count(*) from client having dp_count(*) > (select 1)
@ 94 SELECT 1))
> select c_region, dp_count(*) from client group by c_region order by (select 1)
@ 109 SELECT 1)
> select dp_count(*) from client limit (select 1)
@ 71 SELECT 1)
> select dp_count(*) from client offset (select 1)
@ 72 SELECT 1)

# sub-queries that do not flatten to select-project-join
! PD011 dpsql: a sub-query may not aggregate, group, limit, sort or remove duplicates
h Use FROM (SELECT a, b FROM t WHERE c > 0) AS x.
> select dp_count(*) from (select distinct c_id from client) s
@ 50 SELECT DISTINCT client.c_id FROM public.client) s
> select dp_count(*) from (select c_id from client limit 3) s
@ 50 SELECT client.c_id FROM public.client LI
> select dp_count(*) from (select c_id from client offset 3) s
@ 50 SELECT client.c_id FROM public.client OF
> select dp_count(*) from (select c_id from client order by c_id) s
@ 50 SELECT client.c_id FROM public.client O
> select dp_count(*) from (select c_region from client group by c_region) s
@ 50 SELECT client.c_region FROM public.client
> select dp_count(*) from (select c_region from client group by c_region having count(*) > 1) s
@ 50 SELECT client.c_region FROM public.client
! PD011 dpsql: dp_count is allowed only in the outermost query's output
h Use SELECT dp_count(*) FROM (SELECT a FROM t WHERE b > 0) AS x.
> select dp_count(*) from (select dp_count(*) from client) s
@ 57 public.dp_count(*) AS dp_count FROM public.client
> with w as (select dp_count(*) as n from client) select dp_count(*) from w
@ 30 public.dp_count(*) AS n FROM public.client

# set operations
! PD011 dpsql: UNION, INTERSECT and EXCEPT are not supported
h Ask one dp_count per arm, or write the arms as conditions with OR.
> select dp_count(*) from (select c_id from client union select p_client from purchase) s
@ 107 UNION SELECT purchase.p_client FROM publ
> select dp_count(*) from (select c_id from client union all select p_client from purchase) s
@ 107 UNION ALL SELECT purchase.p_client FROM
> select dp_count(*) from (select c_id from client intersect select p_client from purchase) s
@ 107 INTERSECT SELECT purchase.p_client FROM
> select dp_count(*) from (select c_id from client except select p_client from purchase) s
@ 107 EXCEPT SELECT purchase.p_client FROM pub
> with w as (select c_id from client union select p_client from purchase) select dp_count(*) from w
@ 80 UNION SELECT purchase.p_client FROM publ
> select dp_count(*) from ((select c_id from client) union (select p_client from purchase)) s
@ 107 UNION SELECT purchase.p_client FROM publ

# grouping sets
! PD011 dpsql: GROUPING SETS, ROLLUP, CUBE, GROUPING() and GROUP BY DISTINCT are not supported
h Use one GROUP BY a, b per query.
> select c_region, dp_count(*) from client group by grouping sets ((c_region), ())
@ 87 GROUPING SETS ((c_region), ())
> select c_region, c_kind, dp_count(*) from client group by rollup (c_region, c_kind)
@ 99 ROLLUP(c_region, c_kind)
> select c_region, c_kind, dp_count(*) from client group by c_kind, cube (c_region)
@ 107 CUBE(c_region)
> select dp_count(*) from client group by ()
@ 73 ()
> select c_region, c_kind, dp_count(*) from client group by distinct c_region, c_kind
@ 99 DISTINCT c_region, c_kind
> select c_region, grouping(c_region), dp_count(*) from client group by c_region
@ 23 GROUPING(c_region) AS "grouping", public.dp_count(*) AS
> select c_region, dp_count(*) from client group by c_region having grouping(c_region) = 0
@ 105 GROUPING(c_region) = 0)

# DISTINCT
! PD011 dpsql: DISTINCT inside dp_count is not supported
h Use dp_count(*), or dp_count(column) for the rows where it is not NULL.
> select dp_count(distinct c_kind) from client
@ 9 public.dp_count(DISTINCT c_kind) AS dp_count FROM public.
! PD011 dpsql: DISTINCT ON is not supported
h Use GROUP BY.
> select distinct on (c_region) c_region, dp_count(*) from client group by c_region
@ 18 ON (c_region) c_region, public.dp_count(*) AS dp_count

# FILTER
! PD011 dpsql: FILTER is not supported
h Put the condition into WHERE, or count CASE WHEN condition THEN 1 END.
> select dp_count(*) filter (where c_id = 777) from client
@ 9 public.dp_count(*) FILTER (WHERE (c_id = 777)) AS dp_count
> select dp_count(c_kind) filter (where true) + 1 from client
@ 10 public.dp_count(c_kind) FILTER (WHERE true) + 1) AS "?column

# ORDER BY inside the aggregate
! PD011 dpsql: ORDER BY inside dp_count is not supported
h Use dp_count(*).
> select dp_count(c_kind order by c_kind) from client
@ 9 public.dp_count(c_kind ORDER BY c_kind) AS dp_count FROM

# window functions
! PD011 dpsql: window functions are not supported
h Use SELECT k, dp_count(*) ... GROUP BY k.
> select dp_count(*) over () from client
@ 28 OVER () AS dp_count FROM public.client
> select dp_count(*), row_number() over () from client
@ 58 OVER () AS row_number FROM public.client
> select c_region, dp_count(*), sum(dp_count(*)) over (order by c_region) from client group by c_region
@ 83 OVER (ORDER BY c_region) AS sum FROM public.client GROU
> select c_region, dp_count(*) from client group by c_region window w as (order by c_region)
@ 98 WINDOW w AS (ORDER BY c_region)
> select dp_count(*) from (select c_id, row_number() over () from client) s
@ 95 OVER () AS row_number FROM public.client) s

# other aggregates
! PD011 dpsql: aggregates other than dp_count are not supported
h Use dp_count(*) or dp_count(expression).
> select dp_count(*), max(c_born) from client
@ 45 max(c_born) AS max FROM public.client
> select dp_count(*), count(*) from client
@ 45 count(*) AS count FROM public.client
> select dp_count(*), mode() within group (order by c_id) from client
@ 52 WITHIN GROUP (ORDER BY c_id) AS mode FROM public.client
> select dp_count(*) from client having max(c_id) > 0
@ 71 max(c_id) > 0)
! PD011 dpsql: dp_interval_low needs a dp_count as its argument
h Use dp_interval_low(dp_count(*)).
> select dp_interval_low(max(c_id)), dp_count(*) from client
@ 9 public.dp_interval_low((max(c_id))::bigint) AS dp_interval_l

# LATERAL and other items of FROM
! PD011 dpsql: LATERAL is not supported
h Use a plain join: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from client, lateral (select c_id) s
@ 67 LATERAL ( SELECT client.c_id) s
> select dp_count(*) from client, lateral (select p_id from purchase where p_client = c_id) s
@ 67 LATERAL ( SELECT purchase.p_id FROM public.purcha
> select dp_count(*) from client join lateral generate_series(1, c_id) on true
@ 73 LATERAL generate_series(1, client.c_id) generate_series(gene
! PD011 dpsql: functions in FROM are not supported
h Name protected or public relations only.
> select dp_count(*) from client, generate_series(1, 10)
@ 67 generate_series(1, 10) generate_series(generate_series)
> select dp_count(*) from client, unnest(array[1, 2]) u
@ 67 unnest(ARRAY[1, 2]) u(u)
> select dp_count(*) from client, rows from (generate_series(1, 2), generate_series(1, 3)) as u
@ 67 ROWS FROM(generate_series(1, 2), generate_series(1, 3)) u(ge
> select dp_count(*) from client, xmltable('/a' passing '<a/>' columns b int)
@ 67 XMLTABLE(('/a'::text) PASSING ('<a/>'::xml) COLUMNS b intege
! PD011 dpsql: VALUES lists in FROM are not supported
h Use a condition: WHERE a IN (1, 2).
> select dp_count(*) from client, (values (1), (2)) v(a)
@ 67 ( VALUES (1), (2)) v(a)
! PD011 dpsql: a query without FROM is not supported
h Use SELECT dp_count(*) FROM relation.
> select dp_count(*)
@ 2 SELECT public.dp_count(*) AS dp_count
! PD011 dpsql: ONLY is not supported
h Name the relation without ONLY; a declared relation covers its parts.
> select dp_count(*) from only client
@ 48 ONLY public.client

# TABLESAMPLE
! PD011 dpsql: TABLESAMPLE is not supported
h Count the whole relation.
> select dp_count(*) from client tablesample system (10)
@ 62 TABLESAMPLE system (10)
> select dp_count(*) from client tablesample bernoulli (10) repeatable (1)
@ 62 TABLESAMPLE bernoulli (10) REPEATABLE (1)

# FOR UPDATE
! 0A000 FOR UPDATE is not allowed with aggregate functions
> select dp_count(*) from client for update
! PD011 a query with a private aggregate cannot lock rows
h Remove the FOR UPDATE or FOR SHARE clause.
> select dp_count(*) from (select * from client for update) s
^ dp_count(*) from (select
> select dp_count(*) from (select * from client for share) s
^ dp_count(*) from (select
> with w as (select * from client for key share) select dp_count(*) from w
^ dp_count(*) from w

# correlated sub-queries
! PD011 a query with a private aggregate cannot refer to an outer query
h Join the relations inside the query that holds the aggregate, or group it by the column and join its result.
> select (select dp_count(*) from client where c_region = g) from generate_series(1, 2) g
^ g) from generate_series(1
> select c_id, (select dp_count(*) from purchase where p_client = c_id) from client
^ c_id) from client
> select * from client c, lateral (select dp_count(*) from purchase where p_client = c.c_id) s
^ c.c_id) s

# WITH
! PD011 a query with a private aggregate cannot read the outer WITH query "w"
h Write the WITH clause inside the query that holds the aggregate: SELECT ... FROM (WITH ... SELECT dp_count(*) FROM ...) AS s.
> with w as (select * from client) select (select dp_count(*) from w)
^ dp_count(*) from w)
> with w as (select * from client) select * from (select dp_count(*) from w) s
^ dp_count(*) from w) s
! PD011 dpsql: recursive WITH queries are not supported
h Use WITH x AS (SELECT ...).
> with recursive w(a) as (select c_id from client union all select a + 1 from w where a < 10) select dp_count(*) from w
@ 7 RECURSIVE w(a) AS ( SELECT client.c_id F
> with recursive w(a) as (select c_id from client) select dp_count(*) from w
@ 7 RECURSIVE w(a) AS ( SELECT client.c_id F
! PD011 a query with a private aggregate cannot modify data in WITH
h Run the INSERT, UPDATE or DELETE as a statement of its own.
> with w as (delete from client returning c_id) select dp_count(*) from w
^ dp_count(*) from w
> with w as (insert into client values (1) returning c_id) select dp_count(*) from w
^ dp_count(*) from w

# output
! PD011 dpsql: dp_interval_low needs a dp_count as its argument
h Use dp_interval_low(dp_count(*)).
> select dp_interval_low(dp_count(*) + 1) from client
@ 9 public.dp_interval_low((public.dp_count(*) + 1)) AS dp_inter
> select dp_interval_low(3), dp_count(*) from client
@ 9 public.dp_interval_low((3)::bigint) AS dp_interval_low,
! PD011 column "row" beside a private aggregate has pseudo-type record
h Select columns of ordinary types.
> select dp_count(*), row(dp_count(*)) from client
^ row(dp_count(*)) from cli
! PD011 dpsql: array elements and composite fields are not supported
h Use columns of simple types.
> select dp_count(*), (array[1, 2])[1] from client
@ 58 [1] AS "array" FROM public.client
! PD011 dpsql: this expression is not supported
h See the list of allowed functions.
> select dp_count(*), normalize('a') from client
@ 45 NORMALIZE('a'::text) AS "normalize" FROM public.client
> select dp_count(*), overlay('abc' placing 'x' from 1) from client
@ 65 PLACING 'x'::text FROM 1) AS "overlay" FROM public.client
> select dp_count(*), xmlelement(name a, dp_count(*)) from client
@ 61 a, public.dp_count(*)) AS "xmlelement" FROM public.client
> select dp_count(*), xmlforest(1 as a) from client
@ 57 AS a) AS "xmlforest" FROM public.client
> select dp_count(*), 'a' is normalized from client
@ 59 NORMALIZED) AS is_normalized FROM public.client
! PD013 dpsql: %s is not allowed here
h Use built-in functions of released values: group keys and counts.
> select dp_count(*), current_user from client
% CURRENT_USER
@ 45 CURRENT_USER AS "current_user" FROM public.client
! PD011 dpsql: FETCH FIRST ... WITH TIES is not supported
h Use LIMIT n.
> select c_region, dp_count(*) from client group by c_region order by 2 fetch first 1 row with ties
@ 129 FETCH FIRST (1) ROWS WITH TIES

# group keys
! PD011 dpsql: a group key may use columns of one relation only
h Group by each relation's expression: GROUP BY a.x, b.y.
> select c_region + p_client, dp_count(*) from client join purchase on p_client = c_id group by 1
@ 214 + purchase.p_client)
! PD011 dpsql: GROUP BY a constant is not supported
h Leave the constant out of GROUP BY.
> select dp_count(*) from client group by 1 + 1
@ 76 + 1)
! PD011 dpsql: a group key may use columns of one relation only
h Group by each relation's expression: GROUP BY a.x, b.y.
> select p_day - c_born, dp_count(*) from client, purchase group by 1
@ 162 - client.c_born)
! PD011 dpsql: GROUP BY an interval is not supported
h Use EXTRACT(epoch FROM interval).
> select p_day::timestamp - timestamp '2020-01-01', dp_count(*) from purchase group by 1
@ 224 - '2020-01-01 00:00:00'::timestamp without time zone)

# what PostgreSQL itself refuses before anything of ours runs
! 42803 column "client.c_id" must appear in the GROUP BY clause or be used in an aggregate function
> select c_id, dp_count(*) from client
^ c_id, dp_count(*) from cl
! 42803 aggregate function calls cannot be nested
> select sum(dp_count(*)) from client
^ dp_count(*)) from client
! 42803 aggregate functions are not allowed in WHERE
> select dp_count(*) from client where dp_count(*) > 1
^ dp_count(*) > 1
! 42803 aggregate functions are not allowed in LIMIT
> select dp_count(*) from client limit dp_count(*)
^ dp_count(*)
"""


@pytest.mark.parametrize("refusal", read_table(CONSTRUCTS))
def test_a_construct_is_refused_by_name_and_place_and_costs_nothing(
    asker: Any, admin: Any, refusal: Refusal
) -> None:
    check(asker, admin, refusal)
