-- Say what each aggregate of a statement would cost and how far off it must be expected to be, and what
-- is left afterwards; free.  The row whose aggregate is "total" is about the whole statement: what it
-- costs, what one further question could cost then, whether the answer is stored and free, and which
-- account would refuse it.  The parameters are as for dp.explain.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.estimate(query text, variadic parameters text[] default '{}')
returns table (
    column_name text, aggregate text, mechanism text, epsilon numeric, delta numeric, rho numeric,
    expected_error double precision, error_95 double precision, bias text, groups bigint,
    epsilon_remaining numeric, delta_remaining numeric, stored boolean, refused_by text, note text)
language sql stable parallel unsafe security invoker
as $sql$ select * from dp.estimate_query(dp.deparse(query, parameters), query) $sql$;

comment on function dp.estimate(text, text[]) is
    'cost and expected error of each aggregate of a statement, and what is left afterwards; charges nothing';
