-- The rows of the view dp.progress: long commands that the reader may see, and of them what it may see.
--
-- A release is shown to whoever may act as the role that asks and pays, and, as a phase of the first relation
-- that is theirs, to owners of relations that it reads.  Its numbers are shown to the role and to owners of all
-- protected relations.  Refreshes and sketches are shown to owners only.
--
-- Why the numbers of a release are no leak (PRIVACY.md sections 2 and 7): no number of rows and nothing that
-- counts while rows are read is here.  Rounds of selecting, the measurements of a mechanism and the cells of
-- the table follow from the workload, public levels and the mechanism.  How many rounds AIM has done and how
-- much of the budget they used follow from what earlier rounds measured, which is perturbed, paid for in
-- advance and in whole, whatever happens then, and part of what the role may see; a role that has not paid is
-- not shown it.  The budget is the charge, which the ledger shows to the same.  Times are times: whoever calls
-- sees how long it takes, and timing is not covered (section 0).
--
-- Security definer on purpose: reads progress and locks of all sessions.
create or replace function dp.running_commands()
returns table (
    pid integer, command text, relation regclass, phase text, rounds_done bigint, rounds_total bigint,
    budget_used double precision, budget double precision, budget_unit text, started_at timestamptz,
    time_left interval)
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    with shown as (
        select s.*, s.command >= 3 and pg_has_role(dp.caller(), s.role, 'usage') as mine,
               own.relation as owned, coalesce(own.protected, 0) = s.protected as all_protected
          from dp.progress_slots() as s
          cross join lateral (
              select (array_agg(u.oid order by u.place))[1] as relation,
                     count(*) filter (where u.place <= s.protected) as protected
                from unnest(s.relations) with ordinality as u(oid, place)
                join pg_class as c on c.oid = u.oid
               where pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers()) as own),
    -- Without shared memory: the phase alone, by the locks of dp.show_phase.  Anybody may take such a lock, so
    -- those of sessions that could not refresh the relation do not count as refreshes.
    locks as (
        select a.pid, l.objid as relation, max(l.classid::bigint - 1685082880)::integer as phase
          from pg_locks as l
          join pg_class as c on c.oid = l.objid
          join pg_stat_activity as w on w.pid = l.pid
          -- a service session runs the command of its leader
          join pg_stat_activity as a on a.pid = coalesce(w.leader_pid, w.pid)
         where not dp.keeps_progress()
           and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
           and l.database = (select d.oid from pg_database as d where d.datname = current_database())
           and l.classid::bigint between 1685082881 and 1685082889
           and case when l.classid::bigint <= 1685082885
                    then pg_has_role(a.usesysid, c.relowner, 'member')
                         and pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers()
                    else pg_has_role(dp.caller(), a.usesysid, 'usage')
                         or pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers()
               end
         group by a.pid, l.objid),
    visible as (
        select s.pid, s.command, case when s.mine then s.relations[1] else s.owned end as relation, s.phase,
               s.mine or s.command <= 2 or s.protected > 0 and s.all_protected as numbers, s.done, s.total,
               s.used, s.budget, s.unit, s.started_at,
               (s.counted - s.counting) * (coalesce(s.total - s.done, s.expected)::double precision / nullif(s.done, 0))
                   - (clock_timestamp() - s.counted) as time_left
          from shown as s
         where s.mine or s.owned is not null
         union all
        (select distinct on (l.pid) l.pid, case when l.phase <= 4 then 1 when l.phase = 5 then 2 else 3 end, l.relation,
                l.phase, false, null, null, null, null, null, null, null
           from locks as l
          order by l.pid, l.relation))
    select v.pid, (array['refresh', 'sketch', 'release', 'plan', 'synthesis'])[v.command], v.relation::regclass,
           (array['waiting for another refresh', 'counting frequencies', 'counting boundaries', 'storing',
                  'building sketches', 'selecting a strategy', 'measuring', 'post-processing', 'publishing'])[v.phase],
           case when v.numbers then v.done end, case when v.numbers then v.total end,
           case when v.numbers then v.used end, case when v.numbers then v.budget end,
           case when v.numbers then (array['epsilon', 'rho'])[v.unit] end, v.started_at,
           -- a round that takes longer than those before it: nobody knows how long
           case when not v.numbers then null
                when v.done = v.total and v.time_left is not null then interval '0'
                when v.time_left > '0' then date_trunc('milliseconds', v.time_left) end
      from visible as v
$$;
comment on function dp.running_commands() is 'internal: the rows of dp.progress';
