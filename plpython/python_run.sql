-- The body of dp.run, which alone calls it.  Charges the role in effect.
-- Text and parameters are analysed afresh: nothing in them is trusted.  Values leave as texts, all
-- rows in one array: the column types are the caller's, and dp.run makes rows with the caller's rights.
-- Not SETOF: PL/Python frees a function between two of its rows when it was altered meanwhile.
-- STABLE, so that everything is read in the snapshot of the calling statement.
create or replace function dp.python_run(query text, parameters text[])
returns text[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run", query=query, parameters=parameters)
$python$;

comment on function dp.python_run(text, text[]) is 'internal: dp.run';

alter function dp.python_run(text, text[]) owner to dp_executor;
