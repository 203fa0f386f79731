-- The smooth sensitivity of a counting query, for tests and tuning; owners of every private relation only.
-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.sensitivity(
    query text,
    method text default 'residual',
    beta double precision default 0.02,
    use_keys boolean default true
)
returns double precision
language sql stable parallel unsafe security invoker
as $sql$ select dp.sensitivity_of(dp.deparse(query), method, beta, use_keys, query) $sql$;

comment on function dp.sensitivity(text, text, double precision, boolean) is
    'smooth sensitivity of a counting query at beta, without noise: owners only';
