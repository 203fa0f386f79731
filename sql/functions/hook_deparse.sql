-- The query as its caller means it, printed with every name qualified.
-- Reads no row.  Called by dp.query and dp.explain in the caller's name.
-- Unsafe in parallel plans: it begins a subtransaction, so that its locks end with it.
-- None is pinned on purpose: the analysis is under the caller's settings and search_path, with the caller's rights.

create or replace function dp.deparse(query text) returns text
    language c stable strict parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_deparse';

comment on function dp.deparse(text) is
    'internal: one SELECT statement with every name qualified, as PostgreSQL understood it';

create or replace function dp.deparse(query text, parameters text[]) returns text
    language c stable strict parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_deparse';

comment on function dp.deparse(text, text[]) is
    'internal: the same after $n was replaced by the n-th value, whose type follows from its place';
