-- Answer one SELECT with dp_count aggregates privately; the hook sends every such query here.
-- Charges the role in effect. Text and parameters are analysed afresh: nothing in them is trusted.
-- STABLE, so that everything is read in the snapshot of the calling statement.
create or replace function dp.run(query text, parameters text[] default null)
returns setof record
language plpython3u stable parallel unsafe security definer
cost 1000000 rows 100
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run", query=query, parameters=parameters)
$python$;

comment on function dp.run(text, text[]) is
    'answers one SELECT with dp_count aggregates privately, charging the role in effect';

alter function dp.run(text, text[]) owner to dp_executor;
