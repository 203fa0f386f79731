-- How many rows the planner expects of a statement, which it plans and does not run: a choice
-- between ways of counting that differ in time alone.  For dp_executor.
-- Not pinned on purpose: the statements are run without it and name everything with its schema.
create or replace function dp.planned_rows(query text) returns double precision
    language c stable strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_planned_rows';

comment on function dp.planned_rows(text) is 'internal: the planner''s estimate of a result';
