-- Answer one statement privately without the hook: the text is analysed as the caller wrote it.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.query(query text)
returns setof jsonb
language sql stable parallel unsafe security invoker
as $sql$ select * from dp.run_json(dp.deparse(query), query) $sql$;

comment on function dp.query(text) is
    'answers one SELECT with dp_count aggregates privately; one JSON object per row; works without the hook';
