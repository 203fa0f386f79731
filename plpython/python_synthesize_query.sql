-- The body of dp.synthesize_query, which alone calls it.  Charges the role in effect.  What it reads it
-- reads through dp.python_measure_release, in one snapshot.
create or replace function dp.python_synthesize_query(
    target text, relations oid[], epsilon text, delta text, method text, d_max text, row_counts text,
    without text[], bins integer, placeholders boolean, replace boolean)
returns bigint
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "synthesize", target=target, relations=relations, budget=(epsilon, delta), method=method,
                        numbers=(d_max, row_counts), without=without, bins=bins, placeholders=placeholders, replace=replace)
$python$;

comment on function dp.python_synthesize_query(text, oid[], text, text, text, text, text, text[], integer, boolean, boolean) is
    'internal: dp.synthesize_query';

alter function dp.python_synthesize_query(text, oid[], text, text, text, text, text, text[], integer, boolean, boolean)
    owner to dp_executor;
