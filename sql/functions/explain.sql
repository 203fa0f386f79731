-- Say how a statement would be answered and what it would cost; free.  The parameters are values
-- for $1, $2, ... as text; their types follow from the statement, as those of a client's do.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.explain(query text, variadic parameters text[] default '{}')
returns table (item text, value text)
language sql stable parallel unsafe security invoker
as $sql$ select * from dp.explain_query(dp.deparse(query, parameters), query) $sql$;

comment on function dp.explain(text, text[]) is
    'private relations, method, mechanism, guarantee, cost and expected error of a statement; charges nothing';
