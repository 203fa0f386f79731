-- Build sketches of all relations of a counting query, with secret seeds drawn for them; a sketch
-- of the same relations and joins is replaced.  Owners of all the relations only.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.create_sketch(
    query text,
    estimators integer default 100000,
    rows integer default 1
)
returns void
language sql volatile parallel unsafe security invoker
as $sql$ select dp.create_sketch_of(dp.deparse(query), estimators, rows, query) $sql$;

comment on function dp.create_sketch(text, integer, integer) is
    'builds sketches of the relations of a counting query: owners only';
