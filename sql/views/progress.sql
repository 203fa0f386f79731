-- What long commands are doing: the phase only, no number of rows.  Refreshes and sketches are shown to
-- owners; releases to the role that runs them and to owners of the relation.  Shown by
-- the advisory locks of dp.refresh_phase, which end with the command however it ends.  Anybody may
-- take such a lock, so those of sessions that could not refresh the relation do not count as refreshes.
create or replace view dp.progress with (security_barrier) as
select l.pid,
       case max(l.classid::bigint - 1685082880) when 5 then 'sketch' when 6 then 'release'
            when 7 then 'release' when 8 then 'release' else 'refresh' end as command,
       c.oid::regclass as relation,
       (array['waiting for another refresh', 'counting frequencies', 'counting boundaries', 'storing',
              'building sketches', 'selecting a strategy', 'measuring', 'publishing'])
           [max(l.classid::bigint - 1685082880)] as phase
  from pg_catalog.pg_locks as l
  join pg_catalog.pg_class as c on c.oid = l.objid
  join pg_catalog.pg_stat_activity as a on a.pid = l.pid
 where l.locktype = 'advisory'
   and l.objsubid = 1
   and l.granted
   and l.database = (select d.oid from pg_catalog.pg_database as d
                      where d.datname = pg_catalog.current_database())
   and l.classid::bigint between 1685082881 and 1685082888
   and case when l.classid::bigint <= 1685082885
            then pg_catalog.pg_has_role(a.usesysid, c.relowner, 'member')
                 and pg_catalog.pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers()
            else pg_catalog.pg_has_role(dp.caller(), a.usesysid, 'usage')
                 or pg_catalog.pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers()
       end
 group by l.pid, c.oid;
comment on view dp.progress is 'phases of running refreshes, of building sketches and of releases';
