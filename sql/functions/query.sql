-- Answer one statement privately without the hook: the text is analysed as the caller wrote it.
-- With "intervals", a level between 0 and 1, each object has beside a column x of perturbed numbers
-- x_low and x_high, between which the true value is with that probability, and x_covers: "all error",
-- or "noise only" where numbers are also cut off.  All three are null for columns that can have none.
-- This may take another mechanism, and then is another question.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.query(query text, intervals double precision default null)
returns setof jsonb
language sql stable parallel unsafe security invoker
as $sql$ select * from dp.run_json(dp.deparse(query), intervals, query) $sql$;

comment on function dp.query(text, double precision) is
    'answers one SELECT with private aggregates, a JSON object a row; intervals: a level such as 0.95; for clients that'
    ' the library does not reach';
