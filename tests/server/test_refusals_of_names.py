"""Functions, types and relations that are refused: all that is told, and no charge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.refusals import Refusal, check, read_table

NAMES = r"""
# functions that are not total
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where c_kind ~ '('
% the operator text ~ text
@ 78 ~ '('::text)
> select dp_count(*) from client where c_kind similar to 'a%'
% similar_to_escape(text)
@ 80 similar_to_escape('a%'::text))
! PD011 dpsql: LIKE with a pattern that is not constant is not supported
h Write the pattern as a constant: name LIKE 'a%'.
> select dp_count(*) from client where c_kind like c_kind
@ 78 ~~ c_kind)
! PD011 dpsql: a LIKE pattern must not end with an escape character
h Double the backslash to match one.
> select dp_count(*) from client where c_kind like 'a\'
@ 78 ~~ 'a\'::text)
> select dp_count(*) from client where c_kind ilike 'a\'
@ 78 ~~* 'a\'::text)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where substring(c_kind from 'a(') is null
% substring(text, text)
@ 71 "substring"(c_kind, 'a('::text) IS NULL)
> select dp_count(*) from client where substring(c_kind from 2 for -1) is null
% a negative substring length
@ 71 SUBSTRING(c_kind FROM 2 FOR '-1'::integer) IS NULL)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h Write them as constants.
> select dp_count(*) from client where left(c_kind, c_id) = 'a'
% left with arguments that are not constant
@ 71 "left"(c_kind, c_id) = 'a'::text)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where lpad(c_kind, 10) = 'a'
% lpad(text, integer)
@ 71 lpad(c_kind, 10) = 'a'::text)
> select dp_count(*) from client where repeat(c_kind, c_id) = 'a'
% repeat(text, integer)
@ 71 repeat(c_kind, c_id) = 'a'::text)
> select dp_count(*) from client where chr(c_id) = 'a'
% chr(integer)
@ 71 chr(c_id) = 'a'::text)
> select dp_count(*) from client where sqrt(c_id) > 1
% sqrt(double precision)
@ 71 sqrt((c_id)::double precision) > (1)::double precision)
> select dp_count(*) from client where factorial(c_id) > 1
% factorial(bigint)
@ 71 factorial((c_id)::bigint) > (1)::numeric)
> select dp_count(*) from purchase where ln(p_amount) > 1
% ln(numeric)
@ 73 ln(p_amount) > (1)::numeric)
> select dp_count(*) from purchase where p_amount ^ 2 > 1
% the operator numeric ^ numeric
@ 83 ^ (2)::numeric) > (1)::numeric)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h Write them as constants.
> select dp_count(*) from purchase where round(p_amount, p_client) > 1
% round with arguments that are not constant
@ 73 round(p_amount, p_client) > (1)::numeric)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where c_id << 3 = 8
% the operator integer << integer
@ 77 << 3) = 8)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h Write them as constants.
> select dp_count(*) from client where width_bucket(c_id, 0, c_region, 3) = 1
% width_bucket with arguments that are not constant
@ 71 width_bucket((c_id)::double precision, (0)::double precision
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where width_bucket(c_id, 0, 0, 3) = 1
% width_bucket with equal bounds
@ 71 width_bucket((c_id)::double precision, (0)::double precision
> select dp_count(*) from client where width_bucket(c_id, 0, 10, 0) = 1
% that number of buckets
@ 71 width_bucket((c_id)::double precision, (0)::double precision
> select dp_count(*) from client where width_bucket(c_id::float8, 0, 'infinity', 3) = 1
% an infinite bound of width_bucket
@ 71 width_bucket((c_id)::double precision, (0)::double precision
> select dp_count(*) from client where to_date(c_kind, 'YYYY') is null
% to_date(text, text)
@ 71 to_date(c_kind, 'YYYY'::text) IS NULL)
> select dp_count(*) from client where make_date(c_id, 1, 1) is null
% make_date(integer, integer, integer)
@ 71 make_date(c_id, 1, 1) IS NULL)
> select dp_count(*) from client where age(c_born) > interval '1 year'
% age(timestamp with time zone)
@ 71 age((c_born)::timestamp with time zone) > '1 year'::interval
> select dp_count(*) from client where c_born + interval '2000 years' > date '2000-01-01'
% an interval of more than 1000 years
@ 79 + '2000 years'::interval) > '2000-01-01'::date)
> select dp_count(*) from client where c_born + c_id * interval '1 day' > date '2000-01-01'
% the operator double precision * interval
@ 107 * '1 day'::interval)) > '2000-01-01'::date)
> select dp_count(*) from client where date_trunc(c_kind, c_born) is null
% date_trunc with a field or zone that is not constant
@ 71 date_trunc(c_kind, (c_born)::timestamp with time zone) IS NU
> select dp_count(*) from client where extract(timezone from c_born) = 1
% extract of timezone from date
@ 71 EXTRACT(timezone FROM c_born) = (1)::numeric)
> select dp_count(*) from client where date_part(c_kind, c_born) = 1
% date_part with a field or zone that is not constant
@ 71 date_part(c_kind, c_born) = (1)::double precision)
> select dp_count(*) from client where c_born at time zone c_kind is null
% timezone(text, date)
@ 79 AT TIME ZONE c_kind) IS NULL)
> select dp_count(*) from client where c_kind collate weak = 'a'
% a nondeterministic collation

# the same in every other place where a row is read
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(sqrt(c_id)) from client
% sqrt(double precision)
@ 25 sqrt((c_id)::double precision)) AS dp_count FROM public.c
> select dp_count(*) from client group by sqrt(c_id)
% sqrt(double precision)
@ 74 sqrt((c_id)::double precision))
> select dp_count(*) from client join purchase on p_client = sqrt(c_id)
% sqrt(double precision)
@ 134 sqrt((client.c_id)::double precision))))
> select dp_count(*) from (select sqrt(c_id) as a from client) s where a > 1
% sqrt(double precision)
@ 57 sqrt((client.c_id)::double precision) AS a FROM p

# casts
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where c_kind::int > 0
% the cast from text to integer
@ 79 ::integer > 0)
> select dp_count(*) from client where cast(c_kind as date) > date '2000-01-01'
% the cast from text to date
@ 79 ::date > '2000-01-01'::date)
> select dp_count(*) from client where c_kind::numeric > 0
% the cast from text to numeric
@ 79 ::numeric > (0)::numeric)
> select dp_count(*) from client where c_kind::boolean
% the cast from text to boolean
@ 78 ::boolean
> select dp_count(*) from client where c_kind::uuid is null
% the cast from text to uuid
@ 79 ::uuid IS NULL)
> select dp_count(*) from client where c_kind::interval > interval '1 day'
% the cast from text to interval
@ 79 ::interval > '1 day'::interval)
> select dp_count(*) from client where c_born::text = 'x'
% the cast from date to text
@ 79 ::text = 'x'::text)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h Use columns of simple types.
> select dp_count(*) from client where c_kind::pair is null
% the type public.pair
@ 79 ::public.pair IS NULL)
> select dp_count(*) from client where c_id::small > 0
% the type public.small
@ 78 ::public.small)::integer > 0)
> select dp_count(*) from client where c_kind::regclass is null
% the type regclass
@ 79 ::regclass IS NULL)
> select dp_count(*) from client where c_id::oid > 0
% the type oid
@ 77 ::oid > (0)::oid)
> select dp_count(*) from client where c_id::bit(8) = b'1'
% the type bit(8)
@ 77 ::bit(8) = '1'::"bit")
> select dp_count(*) from purchase where p_amount::money > 1::money
% the type money
@ 83 ::money > (1)::money)
> select dp_count(*) from client where c_kind::json is null
% the type json
@ 79 ::json IS NULL)

# rows, arrays, system columns
! PD011 dpsql: row values are not supported
h Compare columns: a = 1 AND b = 2.
> select dp_count(*) from client where (c_id, c_region) in (select p_client, 1 from purchase)
@ 72 c_id, c_region) IN ( SELECT purchase.p_client, 1
> select dp_count(row(c_id)) from client
@ 25 ROW(c_id)) AS dp_count FROM public.client
! PD011 dpsql: whole-row references are not supported
h Name a column: dp_count(t.a).
> select dp_count(client.*) from client
@ 25 client.*) AS dp_count FROM public.client
> select dp_count(client) from client
@ 25 client.*) AS dp_count FROM public.client
> select dp_count(*) from client where client is null
@ 71 client.* IS NULL)
! PD011 dpsql: this expression is not supported
h See the list of allowed functions.
> select dp_count(*) from client where array[c_id] = array[1]
@ 71 ARRAY[c_id] = ARRAY[1])
! PD011 dpsql: array elements and composite fields are not supported
h Use columns of simple types.
> select dp_count(*) from client where (array[c_id])[1] = 1
@ 84 [1] = 1)
! PD011 dpsql: this expression is not supported
h See the list of allowed functions.
> select dp_count(variadic array[1]) from client
@ 25 ARRAY[1]) AS dp_count FROM public.client
! PD011 dpsql: system columns are not supported
h Use columns that the relation declares.
> select dp_count(*) from client where ctid = '(0,1)'
@ 71 ctid = '(0,1)'::tid)
> select dp_count(*) from client where xmin::text = '1'
@ 72 xmin)::text = '1'::text)
> select dp_count(*) from client where tableoid = 1
@ 71 tableoid = (1)::oid)

# volatile functions, and those that read the server
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where random() < 0.5
% random()
@ 71 random() < (0.5)::double precision)
> select dp_count(*) from client where pg_sleep(1) is null
% pg_sleep(double precision)
@ 71 pg_sleep((1)::double precision) IS NULL)
> select dp_count(*) from client where clock_timestamp() > now()
% clock_timestamp()
@ 71 clock_timestamp() > now())
> select dp_count(*) from client where gen_random_uuid() is null
% gen_random_uuid()
@ 71 gen_random_uuid() IS NULL)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h Use columns of simple types.
> select dp_count(*) from client where nextval('seq') > 0
% the type regclass
@ 79 'public.seq'::regclass) > 0)
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where current_setting('is_superuser') = 'on'
% current_setting(text)
@ 71 current_setting('is_superuser'::text) = 'on'::text)
> select dp_count(*) from client where query_to_xml('select 1', true, true, '') is not null
% query_to_xml(text, boolean, boolean, text)
@ 71 query_to_xml('select 1'::text, true, true, ''::text) IS NOT
> select dp_count(*) from client where current_user = 'alice'
% CURRENT_USER
@ 71 CURRENT_USER = 'alice'::name)
! PD013 dpsql: %s is not allowed in a private query
d It is not one of the built-in functions that only compute.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*), random() from client
% function pg_catalog.random
> select dp_count(*), query_to_xml('select * from client', true, true, '') from client
% function pg_catalog.query_to_xml
> select dp_count(*), pg_read_file('/etc/passwd') from client
% function pg_catalog.pg_read_file
> select dp_count(*), repeat('x', 1000000000) from client
% function pg_catalog.repeat
> select dp_count(*), generate_series(1, 3) from client
% function pg_catalog.generate_series
! PD011 column "pg_advisory_lock" beside a private aggregate has pseudo-type void
h Select columns of ordinary types.
> select dp_count(*), pg_advisory_lock(1) from client
^ pg_advisory_lock(1) from

# functions and types that somebody made
! PD013 dpsql: %s is not allowed in a condition or group key
d Only functions that cannot raise an error on any row are.
h The documentation lists the allowed ones (docs/sql.md).
> select dp_count(*) from client where one() = 1
% one()
@ 71 public.one() = 1)
> select dp_count(*) from client where vol(c_id) = 1
% vol()
@ 71 public.vol(c_id) = 1)
> select dp_count(*) from client where rec(c_id)
% rec()
@ 70 public.rec(c_id)
! PD013 dpsql: %s is not allowed here
h Use built-in functions of released values: group keys and counts.
> select dp_count(*), vol(1) from client
% public.vol()
@ 45 public.vol(1) AS vol FROM public.client
> select dp_count(*), 3::small from client
% the type public.small
@ 48 ::public.small AS small FROM public.client
> select dp_count(*), point '(1,2)' from client
% the type point
@ 45 '(1,2)'::point AS point FROM public.client

# undeclared relations, views and catalogues
! PD012 dpsql: relation %s is neither protected nor public
h Its owner can declare it: SELECT dp.protect('relation') or dp.declare_public('relation').
> select dp_count(*) from hidden
% "public.hidden"
@ 48 public.hidden
> select dp_count(*) from client, hidden where h_id = c_id
% "public.hidden"
@ 67 public.hidden WHERE (hidden.h_id = client.c_id)
> with w as (select * from hidden) select dp_count(*) from w
% "public.hidden"
@ 85 public.hidden ) SELECT public.dp_count(*) AS dp_cou
> select dp_count(*) from bare
% "public.bare"
@ 48 public.bare
> select dp_count(*) from frozen
% "public.frozen"
@ 48 public.frozen
> select dp_count(*) from seq
% "public.seq"
@ 48 public.seq
> select dp_count(*) from pg_catalog.pg_class
% "pg_class"
@ 48 pg_class
> select dp_count(*) from client, pg_stats where tablename = c_kind
% "pg_stats"
@ 67 pg_stats WHERE (pg_stats.tablename = client.c_kind)
> select dp_count(*) from pg_stat_activity
% "pg_stat_activity"
@ 48 pg_stat_activity
> select dp_count(*) from information_schema.tables
% "information_schema.tables"
@ 48 information_schema.tables
> select dp_count(*) from dp.ledger
% "dp.ledger"
@ 48 dp.ledger
> select dp_count(*) from dp.spend
% "dp.spend"
@ 48 dp.spend

# a protected relation that got row-level security
! PD012 dpsql: relation public.guarded cannot be queried privately
d Of this relation it must not be true that it has row-level security.
h Ask its owner to change that, or query other relations.
> select dp_count(*) from guarded

# declared views whose definition cannot be answered
! PD011 dpsql: aggregates other than dp_count are not supported
d It is used in the definition of view "public.totals".
h Use dp_count(*) or dp_count(expression).
> select dp_count(*) from totals
@ 48 public.totals
! PD011 dpsql: outer joins are not supported
d It is used in the definition of view "public.pairs".
h Use an inner join: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from pairs
@ 48 public.pairs
! PD011 dpsql: UNION, INTERSECT and EXCEPT are not supported
d It is used in the definition of view "public.arms".
h Ask one dp_count per arm, or write the arms as conditions with OR.
> select dp_count(*) from arms
@ 48 public.arms
! PD011 dpsql: outer joins are not supported
d It is used in the definition of view "public.pairs".
h Use an inner join: FROM a JOIN b ON a.id = b.a_id.
> select dp_count(*) from pairs join client on client.c_id = pairs.c_id
@ 49 public.pairs JOIN public.client ON ((client.c_id = pair

# what PostgreSQL itself refuses before anything of ours runs
! 42501 permission denied for schema shut
> select dp_count(*) from shut.raw
^ shut.raw
! 42P01 relation "nowhere" does not exist
> select dp_count(*) from nowhere
^ nowhere
! 42703 column "c_nothing" does not exist
> select dp_count(*) from client where c_nothing = 1
^ c_nothing = 1
"""


@pytest.mark.parametrize("refusal", read_table(NAMES))
def test_a_function_type_or_relation_is_refused_by_name_and_place_and_costs_nothing(
    asker: Any, admin: Any, refusal: Refusal
) -> None:
    check(asker, admin, refusal)
