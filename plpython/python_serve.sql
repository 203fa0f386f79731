-- The body of dp.serve, which alone calls it.
-- Not pinned on purpose: a procedure that commits can pin nothing; its session has the settings.
create or replace procedure dp.python_serve(
    inout rows text[], handler text, query text, parameters text[], arguments text, role oid, asker integer,
    wrote boolean, database oid, settings text, zone text)
language plpython3u security invoker
as $python$
#!boot
return (GD["dpsql"].call(plpy, GD, "serve", wanted=handler, query=query, parameters=parameters, arguments=arguments, asker=asker, wrote=wrote, settings=settings),)
$python$;

comment on procedure dp.python_serve(text[], text, text, text[], text, oid, integer, boolean, oid, text, text) is
    'internal: dp.serve';
