-- Say how a statement would be answered and what it would cost; free.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.explain(query text)
returns table (item text, value text)
language sql stable parallel unsafe security invoker
as $sql$ select * from dp.explain_query(dp.deparse(query)) $sql$;

comment on function dp.explain(text) is
    'private relations, method, mechanism, guarantee, cost and expected error of a statement; charges nothing';
