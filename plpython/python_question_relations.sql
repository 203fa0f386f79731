-- The body of dp.question_relations, which alone calls it; reads no row.
create or replace function dp.python_question_relations(query text, source text)
returns oid[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "question_relations", query=query)
$python$;

comment on function dp.python_question_relations(text, text) is 'internal: dp.question_relations';

alter function dp.python_question_relations(text, text) owner to dp_executor;
