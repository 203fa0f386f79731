-- Internal: the part of dp.check_lockdown that is about what PostgreSQL and its extensions tell everybody; columns as in
-- lockdown_holes_rows.sql.
create or replace function dp.holes_of_catalogue(watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with reasons(hole, severity, why) as (values
        ('statistics', 'high', 'numbers of rows that are there, were read and were changed'),
        ('sizes', 'high', 'sizes tell of numbers of rows'),
        ('locks', 'medium', 'locks show which relation is read, and of serializable transactions which rows'),
        ('sessions', 'low', 'statements and transactions of other roles may be shown'),
        ('amounts written', 'low', 'how much was written between two looks tells of numbers of rows')),
    callable as (
        select f.hole, f.function, p.proname, a.grantee
          from dp.withheld_functions() as f
          join pg_proc as p on p.oid = f.function, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
         where a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
           and (a.grantee = 0
                or pg_get_userbyid(a.grantee) not in ('dp_owner', 'dp_executor', 'pg_read_all_stats')))
    select c.hole,
           min(c.proname) || case when count(*) > 1 then format(' and %s more', count(*) - 1) else '' end,
           dp.watched_through(c.grantee, watched), r.severity, r.why,
           case when c.grantee = 0 then 'SELECT * FROM dp.lockdown()'
                else format('REVOKE EXECUTE ON FUNCTION %s FROM %s',
                            string_agg(c.function::regprocedure::text, ', ' order by c.function::regprocedure::text),
                            dp.grantee_name(c.grantee)) end
      from callable as c join reasons as r on r.hole = c.hole
     where dp.watched_through(c.grantee, watched) is not null
     group by c.hole, c.grantee, r.severity, r.why
     union all
    select 'catalogue', c.relname::text, dp.watched_through(a.grantee, watched), 'high',
           case c.relname when 'pg_class' then 'estimated numbers of rows and pages of every relation'
                          when 'pg_largeobject_metadata' then 'how many large objects there are'
                          when 'pg_shdepend' then 'how many large objects each role has'
                          else 'values of rows' end,
           case when a.grantee = 0 and c.relname in ('pg_class', 'pg_largeobject_metadata', 'pg_shdepend') then 'SELECT * FROM dp.lockdown()'
                else format('REVOKE SELECT ON %s FROM %s', c.oid::regclass, dp.grantee_name(a.grantee)) end
      from pg_class as c, aclexplode(c.relacl) as a
     where c.oid in ('pg_class'::regclass, 'pg_largeobject_metadata'::regclass, 'pg_shdepend'::regclass, 'pg_largeobject'::regclass,
                     'pg_statistic'::regclass, 'pg_statistic_ext_data'::regclass, 'pg_authid'::regclass)
       and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
       and (a.grantee = 0 or pg_get_userbyid(a.grantee) not in ('dp_owner', 'dp_executor', 'pg_read_all_stats'))
       and dp.watched_through(a.grantee, watched) is not null
     union all
    select 'catalogue', format('%s.%I', c.oid::regclass, t.attname), dp.watched_through(a.grantee, watched), 'high',
           case c.relname when 'pg_class' then 'estimated numbers of rows and pages of every relation' else 'values of rows' end,
           format('REVOKE SELECT (%I) ON %s FROM %s', t.attname, c.oid::regclass, dp.grantee_name(a.grantee))
      from pg_class as c join pg_attribute as t on t.attrelid = c.oid, aclexplode(t.attacl) as a
     where (c.oid = 'pg_class'::regclass and t.attname = any (dp.withheld_columns())
            or c.oid in ('pg_largeobject'::regclass, 'pg_statistic'::regclass, 'pg_statistic_ext_data'::regclass))
       and dp.watched_through(a.grantee, watched) is not null
     union all
    -- nearly all that a toast table holds are values of rows
    select 'catalogue', c.oid::regclass::text, dp.watched_through(a.grantee, watched), 'critical', 'values of rows',
           format('REVOKE SELECT ON %s FROM %s', c.oid::regclass, dp.grantee_name(a.grantee))
      from pg_class as c, aclexplode(c.relacl) as a
     where c.relkind = 't' and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
       and dp.watched_through(a.grantee, watched) is not null
     union all
    select 'extension', i.extension::text, dp.watched_through(a.grantee, watched), 'high',
           'it looks into pages, statistics or other servers: '
               || min(i.object) || case when count(*) > 1 then format(' and %s more', count(*) - 1) else '' end,
           case when a.grantee = 0 then 'SELECT * FROM dp.lockdown()'
                else format('REVOKE %s ON %s %s FROM %s', string_agg(distinct a.privilege_type, ', '), min(i.kind),
                            string_agg(distinct i.object, ', '), dp.grantee_name(a.grantee)) end
      from dp.inspecting_objects() as i, aclexplode(i.acl) as a
     where pg_get_userbyid(a.grantee) not in ('pg_monitor', 'pg_stat_scan_tables', 'pg_read_all_stats')
       and not exists (select from pg_roles as r where r.oid = a.grantee and r.rolsuper)
       and dp.watched_through(a.grantee, watched) is not null
     group by i.extension, a.grantee, case when a.grantee <> 0 then i.kind end
     union all
    -- sizes and statistics of this database can be asked for in every other
    select 'other database', d.datname::text, dp.watched_through(a.grantee, watched), 'medium',
           'from there pg_database_size and pg_stat_database tell of this database, unless it is locked down too',
           format('REVOKE CONNECT ON DATABASE %I FROM %s', d.datname, dp.grantee_name(a.grantee))
      from pg_database as d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) as a
     where d.datname <> current_database() and d.datallowconn
       and a.privilege_type = 'CONNECT' and a.grantee <> d.datdba
       and dp.watched_through(a.grantee, watched) is not null
$$;
comment on function dp.holes_of_catalogue(oid[]) is 'internal: a part of dp.check_lockdown';
