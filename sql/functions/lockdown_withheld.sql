-- What PostgreSQL tells everybody, and should tell nobody who must learn nothing (PRIVACY.md section 2).

-- Internal: columns of pg_class that follow the rows of a relation: numbers of rows and pages, and when it was vacuumed,
-- which autovacuum does after so many changes.
create or replace function dp.withheld_columns()
returns name[]
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select array_agg(a.attname order by a.attnum)
      from pg_attribute as a
     where a.attrelid = 'pg_class'::regclass
       and a.attname in ('relpages', 'reltuples', 'relallvisible', 'relallfrozen', 'relfrozenxid', 'relminmxid')
$$;
comment on function dp.withheld_columns() is 'internal: columns of pg_class that tell of rows';

-- Internal: functions, each with the hole that it is.  Of the statistics only those are left that show other roles'
-- sessions without what they do; a function that a later major adds is withheld.  Those of Citus, which are in pg_catalog
-- too, ask its nodes, where nothing is withheld, or run there what their caller likes (docs/citus.md).
create or replace function dp.withheld_functions()
returns table (function oid, hole text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select p.oid,
           case when p.proname like 'pg\_stat\_get\_%' or p.proname like 'run\_command\_on\_%'
                  or p.proname = 'master_run_on_worker' then 'statistics'
                when p.proname like any (array['%\_size', '%\_sizes', '%\_disk\_space\_stats', '%\_shard\_statistics',
                                               '%\_table\_statistics', 'get\_rebalance\_%']) then 'sizes'
                when p.proname in ('pg_lock_status', 'pg_blocking_pids', 'pg_safe_snapshot_blocking_pids',
                                   'pg_isolation_test_session_is_blocked', 'pg_get_multixact_members',
                                   'pg_get_multixact_stats', 'citus_locks', 'dump_local_wait_edges', 'dump_global_wait_edges',
                                   'citus_internal_local_blocked_processes',
                                   'citus_internal_global_blocked_processes') then 'locks'
                when p.proname in ('pg_prepared_xact', 'pg_prepared_statement', 'pg_cursor', 'citus_stat_activity',
                                   'get_all_active_transactions', 'get_global_active_transactions', 'citus_query_stats',
                                   'citus_stat_statements') then 'sessions'
                else 'amounts written' end
      from pg_proc as p
     where p.pronamespace = 'pg_catalog'::regnamespace
       and (p.proname like 'pg\_stat\_get\_%'
            and p.proname <> all (array[
                'pg_stat_get_activity', 'pg_stat_get_snapshot_timestamp', 'pg_stat_get_progress_info',
                'pg_stat_get_wal_senders', 'pg_stat_get_wal_receiver',
                'pg_stat_get_backend_activity', 'pg_stat_get_backend_activity_start',
                'pg_stat_get_backend_client_addr', 'pg_stat_get_backend_client_port', 'pg_stat_get_backend_dbid',
                'pg_stat_get_backend_idset', 'pg_stat_get_backend_pid', 'pg_stat_get_backend_start',
                'pg_stat_get_backend_userid', 'pg_stat_get_backend_wait_event',
                'pg_stat_get_backend_wait_event_type', 'pg_stat_get_backend_xact_start'])
         or p.proname in (
                'pg_relation_size', 'pg_table_size', 'pg_indexes_size', 'pg_total_relation_size', 'pg_database_size',
                'pg_tablespace_size', 'pg_lock_status', 'pg_blocking_pids', 'pg_safe_snapshot_blocking_pids',
                'pg_isolation_test_session_is_blocked', 'pg_get_multixact_members', 'pg_get_multixact_stats',
                'pg_available_wal_summaries', 'pg_wal_summary_contents', 'pg_get_wal_summarizer_state',
                'pg_prepared_xact', 'pg_prepared_statement', 'pg_cursor',
                'pg_notification_queue_usage', 'pg_current_wal_lsn', 'pg_current_wal_insert_lsn',
                'pg_current_wal_flush_lsn', 'pg_last_wal_receive_lsn', 'pg_last_wal_replay_lsn',
                'pg_get_replication_slots', 'pg_control_checkpoint', 'pg_control_recovery',
                -- it returns where it wrote
                'pg_logical_emit_message',
                'run_command_on_workers', 'run_command_on_all_nodes', 'run_command_on_coordinator',
                'run_command_on_shards', 'run_command_on_placements', 'run_command_on_colocated_placements',
                'master_run_on_worker',
                'citus_relation_size', 'citus_table_size', 'citus_total_relation_size', 'citus_shard_sizes',
                'citus_shard_cost_by_disk_size', 'citus_local_disk_space_stats', 'citus_update_shard_statistics',
                'citus_update_table_statistics', 'master_update_shard_statistics', 'master_update_table_statistics',
                'get_rebalance_table_shards_plan', 'get_rebalance_progress', 'worker_partitioned_relation_size',
                'worker_partitioned_table_size', 'worker_partitioned_relation_total_size',
                'citus_locks', 'dump_local_wait_edges', 'dump_global_wait_edges',
                'citus_internal_local_blocked_processes', 'citus_internal_global_blocked_processes',
                'citus_stat_activity', 'get_all_active_transactions', 'get_global_active_transactions',
                'citus_query_stats', 'citus_stat_statements'))
$$;
comment on function dp.withheld_functions() is 'internal: functions of PostgreSQL that tell of rows';

-- Internal: functions and views of extensions that look into pages, statistics and other servers, and whoever may call
-- or read them.
create or replace function dp.inspecting_objects()
returns table (kind text, object text, extension name, acl aclitem[])
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with inspecting as (
        select e.oid, e.extname from pg_extension as e
         where e.extname in ('pageinspect', 'pgstattuple', 'pg_visibility', 'pg_buffercache', 'pg_freespacemap',
                             'pgrowlocks', 'pg_stat_statements', 'pg_walinspect', 'pg_stat_kcache', 'pg_qualstats',
                             'pg_prewarm', 'amcheck', 'adminpack', 'dblink', 'pg_wait_sampling', 'pg_store_plans'))
    select case p.prokind when 'p' then 'PROCEDURE' else 'FUNCTION' end,
           p.oid::regprocedure::text, i.extname, coalesce(p.proacl, acldefault('f', p.proowner))
      from inspecting as i
      join pg_depend as d on d.refclassid = 'pg_extension'::regclass and d.refobjid = i.oid and d.deptype = 'e'
      join pg_proc as p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
     where p.prorettype not in ('trigger'::regtype, 'fdw_handler'::regtype)
     union all
    select 'TABLE', c.oid::regclass::text, i.extname, coalesce(c.relacl, acldefault('r', c.relowner))
      from inspecting as i
      join pg_depend as d on d.refclassid = 'pg_extension'::regclass and d.refobjid = i.oid and d.deptype = 'e'
      join pg_class as c on d.classid = 'pg_class'::regclass and c.oid = d.objid
     where c.relkind in ('r', 'v', 'm')
$$;
comment on function dp.inspecting_objects() is 'internal: what extensions show of pages, statistics and other servers';
