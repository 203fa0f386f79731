-- Parameters of an intercepted query as literals with types, readable under
-- any setting.  Put by the interception beside the text that dp.run gets.
-- None is pinned on purpose: types and their output functions are found by OID, under settings that the C code pins.

create or replace function dp.parameters(variadic "any") returns text[]
    language c stable parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_parameters';

comment on function dp.parameters("any") is
    'internal: the arguments as typed literals: {''1''::integer,NULL::date}';
