"""Settings, parameters, budgets and owners' calls that are refused: all that is told, no charge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.refusals import Refusal, check, read_table

CALLS = r"""
# settings out of their range
! PD040 invalid value for parameter "dp.epsilon": 0
d It must be greater than 0 and at most 100.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.epsilon = 0
! PD040 invalid value for parameter "dp.epsilon": 100.5
d It must be greater than 0 and at most 100.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.epsilon = 100.5
! PD040 invalid value for parameter "dp.delta": -1e-09
d It must be at least 0 and at most 0.001.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.delta = -1e-9
! PD040 invalid value for parameter "dp.delta": 0.002
d It must be at least 0 and at most 0.001.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.delta = 0.002
! PD040 invalid value for parameter "dp.max_epsilon_per_query": 0
d It must be -1 (no limit), or greater than 0 and at most 100.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.max_epsilon_per_query = 0
! PD040 invalid value for parameter "dp.confidence": 1
d It must be greater than 0 and less than 1.
h Use SHOW to see the present value and RESET to return to the default.
> set dp.confidence = 1
! 22023 invalid value for parameter "dp.epsilon": "x"
> set dp.epsilon = 'x'
! 22023 invalid value for parameter "dp.epsilon": "NaN"
> set dp.epsilon = 'NaN'
! 22023 invalid value for parameter "dp.method": "sketch"
h Available values: auto, residual, elastic.
> set dp.method = 'sketch'
! 22023 invalid value for parameter "dp.mechanism": "none"
h Available values: auto, laplace, cauchy, calibrated.
> set dp.mechanism = 'none'
! 22023 parameter "dp.fresh" requires a Boolean value
> set dp.fresh = 'perhaps'
! 42602 invalid configuration parameter name "dp.seed"
d "dp" is a reserved prefix.
> set dp.seed = 1

# more than the analyst's own limit
! PD040 dpsql: the query would spend more than dp.max_epsilon_per_query allows
d dp.epsilon is 0.75, the cap is 0.5.
h Lower dp.epsilon or raise dp.max_epsilon_per_query.
> select dp_count(*) from client
$ set dp.epsilon = 0.75
$ set dp.max_epsilon_per_query = 0.5

# settings that do not go together
! PD040 dpsql: the cauchy mechanism releases a single value
h Use dp.mechanism = 'calibrated' for GROUP BY.
> select c_kind, dp_count(*) from client join purchase on p_client = c_id group by c_kind
$ set dp.mechanism = cauchy
! PD040 dpsql: the cauchy mechanism needs groups with a public domain
h Declare the domain with dp.set_domain, or use dp.mechanism = 'auto'.
> select c_born, dp_count(*) from client group by c_born
$ set dp.mechanism = cauchy
! PD040 dpsql: the laplace mechanism needs groups with a public domain
h Declare the domain with dp.set_domain, or use dp.mechanism = 'auto'.
> select c_born, dp_count(*) from client group by c_born
$ set dp.mechanism = laplace
! PD040 dpsql: the laplace mechanism has no public interval on this query
h Use dp.mechanism = 'calibrated'.
> select dp_count(*), dp_interval_low(dp_count(*)) from client a join client b on a.c_region = b.c_region
$ set dp.mechanism = laplace
! PD040 dpsql: the calibrated mechanism needs a delta greater than 0
h Set dp.delta, for example to 1e-9.
> select dp_count(*) from client a join client b on a.c_region = b.c_region
$ set dp.delta = 0
$ set dp.mechanism = calibrated
! PD020 dpsql: groups whose domain is not declared need delta > 0
h SELECT dp.set_domain('"public"."client"', 'c_born', ARRAY['value', ...])
> select c_born, dp_count(*) from client group by c_born
$ set dp.delta = 0
! PD040 dpsql: dp.epsilon must be between 0.000001 and 1000
> select dp_count(*) from client
$ set dp.epsilon = 1e-300
! PD040 dpsql: dp.delta must be 0 or at least 1e-100
> select dp_count(*) from client a join client b on a.c_region = b.c_region
$ set dp.delta = 1e-300

# too many groups
! PD010 dpsql: the query has too many groups
d The domains of its group keys have 4000000 combinations; at most 1000000 are reported.
h Group by fewer or coarser keys.
> select a, b, dp_count(*) from wide group by 1, 2

# texts for dp.query and dp.explain
! PD040 dpsql: parameter "query" must not be null
> select dp.query(null)
! PD014 the text must be exactly one SELECT statement
h Pass one query, such as SELECT dp_count(*) FROM ....
> select dp.query('')
> select dp.query('select dp_count(*) from client; select 1')
> select dp.query('insert into client select dp_count(*) from client')
> select dp.query('explain select dp_count(*) from client')
! PD014 the text must be exactly one SELECT statement
h Use CREATE TABLE ... AS around the query instead of SELECT INTO.
> select dp.query('select dp_count(*) into x from client')
! PD011 WITH queries that modify data are not supported
h Run the INSERT, UPDATE or DELETE as a statement of its own.
> select dp.query('with w as (delete from client returning 1) select dp_count(*) from client')
! PD011 dpsql: a query without FROM is not supported
h Use SELECT dp_count(*) FROM relation.
> select dp.query('select 1')
@ 2 SELECT 1 AS "?column?"
! PD011 dpsql: column "c_id" must appear in the GROUP BY clause
h Add it to GROUP BY, or count it: dp_count(column).
> select dp.query('select c_id from client')
@ 9 c_id FROM public.client
! PD011 dpsql: VALUES lists in FROM are not supported
h Use a condition: WHERE a IN (1, 2).
> select dp.query('values (1)')
@ 2 VALUES (1)
! PD011 dpsql: UNION, INTERSECT and EXCEPT are not supported
h Ask one dp_count per arm, or write the arms as conditions with OR.
> select dp.query('select dp_count(*) from client union all select dp_count(*) from purchase')
@ 62 UNION ALL SELECT public.dp_count(*) AS dp_count FROM pub
! PD011 dpsql: FOR UPDATE and FOR SHARE are not supported
h Leave the locking clause out.
> select dp.query('select dp_count(*) from (select c_id from client for update) s')
@ 108 FOR UPDATE OF client) s
! 42P02 there is no parameter $1
> select dp.query('select dp_count(*) from client where c_id = $1')
! 42P01 relation "nowhere" does not exist
> select dp.query('select dp_count(*) from nowhere')
! 42601 syntax error at or near "selec"
> select dp.query('selec dp_count(*) from client')
! PD040 dpsql: parameter "query" must not be null
> select * from dp.explain(null)
! PD012 dpsql: relation %s is neither protected nor public
h Its owner can declare it: SELECT dp.protect('relation') or dp.declare_public('relation').
> select * from dp.explain('select dp_count(*) from hidden')
% "public.hidden"
@ 48 public.hidden

# parameters of the wrong type or form
! PD040 dpsql: parameter "query" must not be null
> select * from dp.run(null, null) as t(a int)
! PD014 dpsql: the text must be exactly one SELECT statement
h Pass one query, such as SELECT dp_count(*) FROM ....
> select * from dp.run('', null) as t(a int)
> select * from dp.run('select 1; drop table client', null) as t(a int)
> select * from dp.run('delete from public.client', null) as t(a int)
! PD011 dpsql: column "c_kind" must appear in the GROUP BY clause
h Add it to GROUP BY, or count it: dp_count(column).
> select * from dp.run('select c_kind from public.client', null) as t(a text)
@ 9 c_kind FROM public.client
! PD014 dpsql: there is no parameter $1
h Correct the statement; nothing was spent.
> select * from dp.run('select public.dp_count($1) from public.client', null) as t(a int)
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $1', array[null]) as t(a int)
! PD014 dpsql: there is no parameter $2
h Correct the statement; nothing was spent.
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $2', array['''1''::pg_catalog.int4']) as t(a int)
! PD040 dpsql: a query parameter must be a literal with a type
h Use dp.parameters(...) to write the parameters.
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $1', array['1']) as t(a int)
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $1', array['c_id']) as t(a int)
! PD014 dpsql: invalid input syntax for type integer: "x"
h Correct the statement; nothing was spent.
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $1', array['''x''::integer']) as t(a int)
! PD014 dpsql: operator does not exist: integer = text
h No operator matches the given name and argument types. You might need to add explicit type casts.
> select * from dp.run('select public.dp_count(*) from public.client where c_id = $1', array['''x''::pg_catalog.text']) as t(a int)
! PD040 dp.parameters does not take a VARIADIC array
h Pass the parameters one by one.
> select dp.parameters(variadic array[1])
! 42601 wrong number of parameters for prepared statement "p1"
d Expected 1 parameters but got 2.
> execute p1(date '2000-01-01', 3)
$ prepare p1(text) as select dp_count(*) from client where c_kind = $1
! 22P02 invalid input syntax for type integer: "x"
> execute p2('x')
$ prepare p2(int) as select dp_count(*) from client where c_id = $1
^ 'x')
! 42804 parameter $1 of type date cannot be coerced to the expected type integer
h You will need to rewrite or cast the expression.
> execute p3(date '2000-01-01')
$ prepare p3(int) as select dp_count(*) from client where c_id = $1
^ date '2000-01-01')
! PD011 a query with a private aggregate cannot take a parameter of a pseudo-type
h Pass the columns of the record as parameters.
> prepare q(record) as select dp_count(*) from client where $1 is null
^ $1 is null

# what would be stored un-intercepted
! PD011 a rule cannot hold the private aggregate dp_count
h Use a view, or a function whose body is a string: AS $$ SELECT ... $$.
> create rule r as on insert to mine do also select dp_count(*) from client
$ create temp table mine (a bigint)
! PD011 a row-security policy cannot hold the private aggregate dp_count
h Use a view, or a function whose body is a string: AS $$ SELECT ... $$.
> create policy p on mine using (a > (select dp_count(*) from client))
$ create temp table mine (a bigint)
! PD011 a BEGIN ATOMIC or RETURN function body cannot hold the private aggregate dp_count
h Use a view, or a function whose body is a string: AS $$ SELECT ... $$.
> create function pg_temp.f() returns bigint begin atomic select dp_count(*) from client; end
> create function pg_temp.f() returns bigint return (select dp_count(*) from client)

# outside of a query over relations
! PD060 dp_interval_low was not intercepted
h Use it on a dp_count in the select list of the same statement.
> select dp_interval_low(3)

# an analyst and what belongs to owners
! PD070 dpsql: only the owner of the protected relations may see this
h Use dp.explain for what an analyst may know.
> select dp.sensitivity('select dp_count(*) from client')
! 42501 permission denied for function protect
> select dp.protect('client')
! 42501 permission denied for function unprotect
> select dp.unprotect('client')
! 42501 permission denied for function grant_budget
> select dp.grant_budget('alice', 1000000, 1)
! 42501 permission denied for function set_root_cap
> select dp.set_root_cap('client', 1)
! 42501 permission denied for function acknowledge_restore
> select dp.acknowledge_restore('x')
! 42501 permission denied for function record_loss
> select dp.record_loss('alice', 'client', 1, 0, 'x')
! 42501 permission denied for table spend
> select * from dp.spend
! 42501 permission denied for table answer
> select * from dp.answer
! 42501 permission denied for table spend
> update dp.spend set epsilon = 0
! 42501 permission denied for aggregate pack
> select dp.pack(1, 100)
! 42501 permission denied to set role "dp_executor"
> set role dp_executor
! 42501 permission denied to set session authorization "dp_ledger"
> set session authorization dp_ledger

u mallory
# a role that nobody gave a budget
! PD002 dpsql: role "mallory" has no privacy budget in this database
d A budget counts once the transaction that granted it has committed.
h Ask the owner of the data for SELECT dp.grant_budget('<role>', epsilon => ...).
> select dp_count(*) from client
> select dp.query('select dp_count(*) from client')

u bob
# a role whose budget was taken back
! PD002 dpsql: role "bob" has no privacy budget in this database
d A budget counts once the transaction that granted it has committed.
h Ask the owner of the data for SELECT dp.grant_budget('<role>', epsilon => ...).
> select dp_count(*) from client

u owner1
# owners
! 42704 role "nobody" does not exist
> select dp.grant_budget('nobody', 1)
^ 'nobody', 1)
! PD040 parameter "epsilon" of dp.grant_budget must be greater than 0 and finite
d Got -1.
> select dp.grant_budget('alice', -1)
! PD040 parameter "epsilon" of dp.grant_budget must be greater than 0 and finite
d Got NaN.
> select dp.grant_budget('alice', 'NaN')
! PD040 parameter "epsilon" of dp.grant_budget must be greater than 0 and finite
d Got Infinity.
> select dp.grant_budget('alice', 'infinity')
! PD040 parameters of dp.grant_budget must not be null
> select dp.grant_budget('alice', null)
! PD040 parameter "delta" of dp.grant_budget must be between 0 and 1
d Got 2.
> select dp.grant_budget('alice', 1, 2)
! PD040 role dp_owner cannot have a budget
h Grant the budget to the role that asks.
> select dp.grant_budget('dp_owner', 1)
! PD040 relation public.hidden is not protected
h SELECT dp.protect('public.hidden');
> select dp.set_root_cap('hidden', 1)
! PD040 parameter "relation" of dp.protect must not be null
> select dp.protect(null)
! 42P01 relation "nowhere" does not exist
> select dp.protect('nowhere')
^ 'nowhere')
! PD070 must be owner of relation pg_class
> select dp.protect('pg_class')
! PD040 relation public.seq cannot be declared: it is not a table
h Only ordinary, partitioned and foreign tables can be declared.
> select dp.protect('seq')
! PD040 relation public.bare cannot be declared: it is a view
h Declare its base relations, then use dp.declare_view for the view.
> select dp.protect('bare')
! PD040 relation public.frozen cannot be declared: it is a materialized view
h Declare the relations that it is computed from.
> select dp.protect('frozen')
! PD040 relation public.hidden cannot be declared: it has row-level security
h Relations with row-level security are not supported; disable it or declare a copy.
> select dp.protect('hidden')
$ alter table hidden enable row level security
! PD012 view public.own reads relations that are not declared
d Not declared: public.hidden.
h Use dp.protect or dp.declare_public for each of them first.
> select dp.declare_view('own')
$ create view own as select 1 from hidden
! PD040 relation public.hidden is not an ordinary view
h Use dp.protect or dp.declare_public for tables.
> select dp.declare_view('hidden')
! PD040 dpsql: parameter "method" must be residual or elastic
d Got 'sketch'.
> select dp.sensitivity('select dp_count(*) from client', 'sketch')
! PD040 dpsql: parameter "beta" must be between 0.0001 and 100
d Got 0.0.
> select dp.sensitivity('select dp_count(*) from client', 'residual', 0)
! PD040 dpsql: parameter "beta" must be between 0.0001 and 100
d Got nan.
> select dp.sensitivity('select dp_count(*) from client', 'residual', 'NaN')
! PD040 dpsql: parameter "beta" must be between 0.0001 and 100
d Got None.
> select dp.sensitivity('select dp_count(*) from client', 'residual', null)
! PD011 dpsql: outer joins are not supported
h Use an inner join: FROM a JOIN b ON a.id = b.a_id.
> select dp.sensitivity('select dp_count(*) from client left join purchase on true')
@ 68 LEFT JOIN public.purchase ON (true))
! PD040 parameter "note" of dp.acknowledge_restore must not be empty
> select dp.acknowledge_restore('')
! PD040 dp.record_loss needs a role or a relation, epsilon, delta and a note
> select dp.record_loss(null, null, 1, 0, 'x')
! PD040 parameter "epsilon" of dp.record_loss must be greater than 0 and finite
d Got -1.
> select dp.record_loss('alice', 'client', -1, 0, 'x')
"""


@pytest.mark.parametrize("refusal", read_table(CALLS))
def test_a_call_is_refused_in_these_words_and_costs_nothing(
    ask_as: Any, admin: Any, refusal: Refusal
) -> None:
    check(ask_as(refusal.user), admin, refusal)
