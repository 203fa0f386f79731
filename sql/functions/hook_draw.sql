-- dp.draw(key, walk, step, choices): a number from 0 to choices - 1, SipHash-2-4 of walk and step
-- under a secret key of 16 bytes; sql/hook/draw.c says how.  NULL of NULL.  For dp_executor.
-- Not pinned on purpose: it is arithmetic, looks up no name, and is called for each step of each walk.
create or replace function dp.draw(key bytea, walk bigint, step integer, choices bigint)
returns bigint
language c immutable strict parallel safe security invoker
as 'MODULE_PATHNAME', 'dpsql_draw';
comment on function dp.draw(bytea, bigint, integer, bigint) is
    'internal: one choice of a random walk';
