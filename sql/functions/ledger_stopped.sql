-- Returns whether failures refuse or delay the next charge of a role, and over which root (PRIVACY.md section 7).
--
--   stopped      the role's failures over the root have reached the owner's limit
--   stopped_all  the failures of all roles over the root have reached the owner's limit
--   crowded      there are failures, and together with the open questions they reach the limit: wait
--   null         neither
--
-- So the number of failures never exceeds the larger of the limit and the number of questions that were open at the
-- first failure.  The caller holds the locks of ledger_open, without which no charge is made.  Only dp_ledger may call it.
create or replace function dp.ledger_stopped(
    principal integer,
    roots integer[],
    out status text,
    out root integer)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    select s.status, s.root into status, root
      from (
        select case
                   when count(*) filter (where f.failed) >= r.failure_limit then 'stopped'
                   when count(*) filter (where f.failed) > 0 and count(*) >= r.failure_limit then 'crowded'
               end as status,
               r.id as root
          from (select f.spend, f.roots, dp.ledger_failed(f) as failed
                  from dp.failure as f
                 where f.principal = ledger_stopped.principal) as f
          join dp.root as r on r.id = any (f.roots)
         where r.id = any (ledger_stopped.roots)
           and not exists (select from dp.resumption as u where u.spend = f.spend and u.root = r.id)
         group by r.id
        union all
        select case
                   when count(*) filter (where f.failed) >= r.failure_limit_in_all then 'stopped_all'
                   when count(*) filter (where f.failed) > 0 and count(*) >= r.failure_limit_in_all then 'crowded'
               end,
               r.id
          from dp.root as r
         cross join lateral (
               select f.spend, dp.ledger_failed(f) as failed
                 from dp.failure as f
                where r.id = any (f.roots)) as f
         where r.id = any (ledger_stopped.roots)
           and r.failure_limit_in_all is not null
           and not exists (select from dp.resumption as u where u.spend = f.spend and u.root = r.id)
         group by r.id) as s
     where s.status is not null
     order by s.status = 'crowded', s.status, s.root
     limit 1;
end
$$;
comment on function dp.ledger_stopped(integer, integer[]) is 'internal: whether failures refuse or delay a charge';
