-- What a query uses, for the allow-lists: parse analysis without executing.
-- Called by dp.run under its own pinned search_path, never by an analyst.  Code that the analysis
-- runs (a domain's CHECK on a literal) has the rights of the role in effect outside all functions,
-- or of the owner of a view, for its definition and nothing else.
-- Costs nothing and reads no row; takes the same locks as planning the query.
-- None is pinned on purpose: the texts name everything with its schema or are read under the settings that
-- dp.run has pinned, and what the analysis runs has the rights of the role that is named.

create or replace function dp.analyze(query text) returns text
    language c stable strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_analyze';

comment on function dp.analyze(text) is
    'internal: JSON: the query deparsed without ambiguity, and every relation, function, operator, type and collation in it';

create or replace function dp.analyze(query text, parameters text[]) returns text
    language c stable parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_analyze';

comment on function dp.analyze(text, text[]) is
    'internal: the same after $n was replaced by the n-th literal, as dp.parameters writes them';

create or replace function dp.analyze_view(view oid) returns text
    language c stable strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_analyze_view';

comment on function dp.analyze_view(oid) is
    'internal: the same of the definition of a view, with the rights of its owner';

create or replace function dp.analyze_own(query text) returns text
    language c stable strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_analyze_own';

comment on function dp.analyze_own(text) is
    'internal: the same of a statement that the caller wrote itself, with its rights';

create or replace function dp.analyze_kept(question integer) returns text
    language c stable strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_analyze_kept';

comment on function dp.analyze_kept(integer) is
    'internal: the same of a question that dp.keep_statistics keeps, with the rights of who keeps it';
