-- The doors to PL/Python (hook_door.sql) that statistics need.  Internal: their callers have checked
-- who may do this.
-- None is pinned on purpose: as in hook_door.sql, the PL/Python function behind each pins its own.

-- Maximum frequencies of a relation and boundaries of questions, as a JSON array of objects.
create or replace function dp.measure_statistics(relation oid, questions jsonb)
returns jsonb
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';
comment on function dp.measure_statistics(oid, jsonb) is 'internal: counts what dp.refresh_statistics stores';

-- All relations of a question, if the caller owns them; refuses what cannot be kept.
create or replace function dp.question_relations(query text, source text)
returns oid[]
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_text';
comment on function dp.question_relations(text, text) is 'internal: relations of a question to be kept';
