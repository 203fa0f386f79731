-- Explain the cost and the guarantee of a statement; charges nothing, reads no protected row.
create or replace function dp.explain_query(query text)
returns table (item text, value text)
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "explain", query=query)
$python$;

comment on function dp.explain_query(text) is
    'says how a statement would be answered and what it would cost; free';

alter function dp.explain_query(text) owner to dp_executor;
