-- What long commands of members of dp_owner are doing: the phase only, no number of rows.  Shown by
-- the advisory locks of dp.refresh_phase, which end with the command however it ends.  Anybody may
-- take such a lock, so those of sessions that could not refresh the relation do not count.
create or replace view dp.progress with (security_barrier) as
select l.pid,
       case when max(l.classid::bigint) = 1685082885 then 'sketch' else 'refresh' end as command,
       c.oid::regclass as relation,
       (array['waiting for another refresh', 'counting frequencies', 'counting boundaries', 'storing',
              'building sketches'])
           [max(l.classid::bigint - 1685082880)] as phase
  from pg_catalog.pg_locks as l
  join pg_catalog.pg_class as c on c.oid = l.objid
 where l.locktype = 'advisory'
   and l.objsubid = 1
   and l.granted
   and l.database = (select d.oid from pg_catalog.pg_database as d
                      where d.datname = pg_catalog.current_database())
   and l.classid::bigint between 1685082881 and 1685082885
   and pg_catalog.pg_has_role(dp.caller(), c.relowner, 'usage')
   and dp.caller_administers()
   and exists (select from pg_catalog.pg_stat_activity as a
                where a.pid = l.pid and pg_catalog.pg_has_role(a.usesysid, c.relowner, 'member'))
 group by l.pid, c.oid;
comment on view dp.progress is 'phases of running refreshes and of building sketches, for owners';
