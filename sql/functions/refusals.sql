-- How many statements were refused, in shared memory (sql/hook/refusals.c).

-- Rows of this database: who asked, SQLSTATE, hour, number, hint where it is constant.  Granted to nobody.
create or replace function dp.refusal_counts()
returns table (role oid, sqlstate text, hour timestamptz, refused bigint, hint text)
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_refusal_counts';
comment on function dp.refusal_counts() is 'internal: refusals of all roles, for dp.refused_statements';

create or replace function dp.refusals_since()
returns timestamptz
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_refusals_since';
comment on function dp.refusals_since() is
    'since when dp.refusals counts every refusal; NULL: the library is not preloaded, or log_min_messages hides errors';

-- The rows of the view dp.refusals: a role sees its own, members of dp_owner those of all roles.
-- Of service sessions nothing: what is refused there is refused to who asked, too.
-- Security definer on purpose: reads the counts of all roles.
create or replace function dp.refused_statements()
returns table (role text, sqlstate text, reason text, advice text, hint text, hour timestamptz, refused bigint)
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select pg_get_userbyid(c.role)::text, c.sqlstate, coalesce(k.reason, 'another refusal'), k.advice, c.hint,
           c.hour, c.refused
      from dp.refusal_counts() as c
      left join (values
           ('PD001', 'the budget does not suffice', 'grant more, or a larger cap; what was asked before stays free'),
           ('PD002', 'the role has no budget', 'dp.grant_budget'),
           ('PD003', 'too many questions of the role failed', 'dp.resume, after finding the cause in the server log; docs/owner.md'),
           ('PD010', 'the question cannot be answered privately', 'the message names the part; docs/analyst.md says how to ask'),
           ('PD011', 'a construct, or an argument without bounds, that cannot be answered privately', 'declare bounds with dp.set_domain'),
           ('PD012', 'a relation is not declared, or cannot be read now', 'dp.protect or dp.declare_public; problem in dp.relations'),
           ('PD013', 'a function, operator, cast or type outside the allow-list', 'docs/sql.md lists what there is'),
           ('PD014', 'not one SELECT statement', 'one statement a question'),
           ('PD015', 'a declaration changed while the question was asked', 'ask again'),
           ('PD020', 'a domain, bound, unit or statistic is missing', 'dp.set_domain, dp.link, dp.refresh_statistics'),
           ('PD030', 'the server was upgraded under the session', 'begin a new session'),
           ('PD040', 'an argument or setting is out of range', 'the message names it'),
           ('PD041', 'an answer did not fit its type; it was charged', 'cast to a wider type'),
           ('PD050', 'the ledger could not be reached', 'max_connections, pg_hba.conf; docs/ledger.md'),
           ('PD051', 'the ledger came from a backup', 'dp.acknowledge_restore'),
           ('PD052', 'a server that holds parts of a relation could not be read', 'docs/shards.md'),
           ('PD060', 'the library is not loaded', 'shared_preload_libraries'),
           ('PD070', 'the role may not do this', 'membership of dp_owner, or ownership'),
           ('PD900', 'something unexpected after data was read; charged', 'the server log names the place'),
           ('PD901', 'a bug, before data was read', 'the server log names the place'),
           ('PD902', 'a server broke off while its rows were read; charged', 'ask again once it answers; docs/shards.md')
           ) as k(sqlstate, reason, advice) on k.sqlstate = c.sqlstate
     where (c.role = dp.caller() or dp.caller_administers())
       and c.role is distinct from (select r.oid from pg_roles as r where r.rolname = 'dp_ledger')
$$;
comment on function dp.refused_statements() is 'internal: the rows of dp.refusals';
