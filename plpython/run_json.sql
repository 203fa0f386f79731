-- Answer one statement privately, one JSON object per row; dp.query calls it with text that was
-- analysed under the caller's search_path.
create or replace function dp.run_json(query text)
returns setof jsonb
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run_json", query=query)
$python$;

comment on function dp.run_json(text) is
    'answers one SELECT with dp_count aggregates privately; rows as jsonb';

alter function dp.run_json(text) owner to dp_executor;
