-- The parts of dp.check_lockdown that are about roles and their settings; columns as in lockdown_holes_rows.sql.

-- Internal: memberships and attributes that open the server.
create or replace function dp.holes_of_roles(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with opening(name, severity, why) as (values
        ('pg_read_all_data', 'critical', 'reads every relation'),
        ('pg_write_all_data', 'critical', 'changes every relation'),
        ('pg_maintain', 'medium', 'runs VACUUM and ANALYZE, whose messages tell of rows'),
        ('pg_read_server_files', 'critical', 'reads the server''s files'),
        ('pg_write_server_files', 'critical', 'writes the server''s files'),
        ('pg_execute_server_program', 'critical', 'runs programs on the server'),
        ('pg_monitor', 'high', 'reads all statistics, and every session''s statements'),
        ('pg_read_all_stats', 'high', 'reads all statistics, and every session''s statements'),
        ('pg_stat_scan_tables', 'high', 'reads pages of relations'),
        ('pg_read_all_settings', 'low', 'reads all settings'),
        ('pg_create_subscription', 'medium', 'connects to other servers'),
        ('pg_signal_backend', 'low', 'ends sessions of others'),
        ('dp_executor', 'critical', 'reads every protected relation'),
        ('dp_ledger', 'critical', 'writes the ledger')),
    dangerous as (
        select r.oid, r.rolname, o.severity, o.why from opening as o join pg_roles as r on r.rolname = o.name
         union all
        select r.oid, r.rolname, 'critical', 'is a superuser' from pg_roles as r where r.rolsuper)
    select 'membership', d.rolname::text, dp.watched_through(m.member, watched), d.severity, d.why,
           format('REVOKE %I FROM %I', d.rolname, pg_get_userbyid(m.member))
      from dangerous as d join pg_auth_members as m on m.roleid = d.oid
     where dp.watched_through(m.member, watched) is not null
       -- a predefined role that has another one is listed itself
       and (m.member >= 16384 or m.member = any (watched))
     union all
    select 'attribute', a.attribute, dp.watched_through(r.oid, watched), a.severity, a.why,
           format('ALTER ROLE %I NO%s', r.rolname, a.attribute)
      from pg_roles as r
     cross join lateral (values
        ('CREATEROLE', r.rolcreaterole, 'critical', 'gives itself other roles, those that read relations too'),
        ('REPLICATION', r.rolreplication, 'critical', 'copies the whole server, and decodes what is written'),
        ('BYPASSRLS', r.rolbypassrls, 'low', 'row-level security does not hold for it'),
        ('CREATEDB', r.rolcreatedb and exists (select from pg_database as d
                                                where d.datname = current_database() and d.datistemplate),
         'critical', 'copies this database, which is a template')) as a(attribute, has, severity, why)
     where a.has and not r.rolsuper and dp.watched_through(r.oid, watched) is not null
     union all
    select 'owner', g.oid::regclass::text, pg_get_userbyid(w.oid)::text, 'medium',
           'owns it, or can become its owner, and has a budget as if it had to ask',
           format('SELECT dp.revoke_budget(%L)', pg_get_userbyid(w.oid))
      from unnest(watched) as w(oid), unnest(guarded) as g(oid) join pg_class as c on c.oid = g.oid
     where pg_has_role(w.oid, c.relowner, 'member')
       and exists (select from dp.principal as p join dp.role_budget as b on b.principal = p.id where p.role_oid = w.oid)
     union all
    select 'administrator', 'dp_owner', r.rolname::text, 'medium', 'has a budget, and can give itself more',
           format('SELECT dp.revoke_budget(%L)', r.rolname)
      from pg_roles as r
     where not r.rolsuper and pg_has_role(r.oid, 'dp_owner', 'member')
       and exists (select from dp.principal as p join dp.role_budget as b on b.principal = p.id where p.role_oid = r.oid)
$$;
comment on function dp.holes_of_roles(oid[], oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: where objects can be made that others' names could mean.
create or replace function dp.holes_of_schemas(watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select 'shadowing', case a.privilege_type when 'TEMPORARY' then 'temporary objects' else 'new schemas' end,
           dp.watched_through(a.grantee, watched), 'low',
           case a.privilege_type
               when 'TEMPORARY' then 'unqualified names in functions that do not pin search_path can mean a temporary table'
               else 'a schema with the name of a role is on that role''s search_path' end,
           format('REVOKE %s ON DATABASE %I FROM %s', a.privilege_type, d.datname, dp.grantee_name(a.grantee))
      from pg_database as d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) as a
     where d.datname = current_database() and a.grantee <> d.datdba
       and a.privilege_type in ('TEMPORARY', 'CREATE') and dp.watched_through(a.grantee, watched) is not null
     union all
    select 'shadowing', format('schema %I', n.nspname), dp.watched_through(a.grantee, watched),
           case when n.nspname = 'public' then 'high' else 'medium' end,
           'functions and operators that are made there can run in the name of whoever has it on the search_path',
           format('REVOKE CREATE ON SCHEMA %I FROM %s', n.nspname, dp.grantee_name(a.grantee))
      from pg_namespace as n, aclexplode(n.nspacl) as a
     where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner
       and pg_get_userbyid(a.grantee) <> 'dp_executor' and n.nspname !~ '^pg_(toast_)?temp_'
       and dp.watched_through(a.grantee, watched) is not null
       and (n.nspname = 'public'
            or exists (select from pg_db_role_setting as s, unnest(s.setconfig) as c(setting)
                        where c.setting like 'search\_path=%' and position(n.nspname in c.setting) > 0)
            or exists (select from pg_roles as r where r.rolname = n.nspname))
$$;
comment on function dp.holes_of_schemas(oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: settings that a database, a role or the server has, and the right to change those of superusers.
create or replace function dp.holes_of_settings(watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with stored as (
        select s.setdatabase, s.setrole, split_part(c.setting, '=', 1) as name,
               substr(c.setting, position('=' in c.setting) + 1) as value
          from pg_db_role_setting as s, unnest(s.setconfig) as c(setting)
         where s.setdatabase in (0, (select d.oid from pg_database as d where d.datname = current_database()))),
    careless as (
        select s.*, s.name as shown
          from stored as s
         where s.name = 'standard_conforming_strings' and not s.value::boolean
            or s.name in ('debug_print_parse', 'debug_print_rewritten', 'debug_print_plan', 'log_parser_stats',
                          'log_planner_stats', 'log_executor_stats', 'log_statement_stats', 'transform_null_equals')
               and s.value::boolean
            or s.name = 'row_security' and not s.value::boolean
            or s.name = 'client_min_messages' and s.value ~* '^(debug|log)')
    select 'setting', c.name,
           case when c.setrole = 0 then 'PUBLIC' else dp.watched_through(c.setrole, watched) end,
           'low', 'it changes how statements are read or what is printed of them; functions of dpsql pin it, others may not',
           case when c.setrole = 0 then format('ALTER DATABASE %I RESET %I', current_database(), c.name)
                when c.setdatabase = 0 then format('ALTER ROLE %I RESET %I', pg_get_userbyid(c.setrole), c.name)
                else format('ALTER ROLE %I IN DATABASE %I RESET %I', pg_get_userbyid(c.setrole), current_database(), c.name) end
      from careless as c
     where c.setrole = 0 or dp.watched_through(c.setrole, watched) is not null
     union all
    select 'parameter', p.parname, dp.watched_through(a.grantee, watched), 'high',
           'a setting of superusers: among these are libraries to load and plans to print',
           format('REVOKE %s ON PARAMETER %s FROM %s', string_agg(a.privilege_type, ', ' order by a.privilege_type),
                  p.parname, dp.grantee_name(a.grantee))
      from pg_parameter_acl as p, aclexplode(p.paracl) as a
     where dp.watched_through(a.grantee, watched) is not null
     group by p.parname, a.grantee
     union all
    select 'log', s.name, 'readers of the log', s.severity, s.why, format('ALTER SYSTEM RESET %s', s.name)
      from (values
        ('log_statement', current_setting('log_statement') <> 'none', 'low',
         'statements are written to the log, with the constants of owners'' statements'),
        ('log_min_duration_statement', current_setting('log_min_duration_statement') not in ('-1'), 'low',
         'statements and their parameters are written to the log, chosen by a time that depends on the data'),
        ('log_temp_files', current_setting('log_temp_files') <> '-1', 'low',
         'sizes of temporary files are written to the log'),
        ('auto_explain.log_min_duration', coalesce(current_setting('auto_explain.log_min_duration', true), '-1') <> '-1',
         'medium', 'plans with the numbers of rows that they met are written to the log')) as s(name, is_set, severity, why)
     where s.is_set
$$;
comment on function dp.holes_of_settings(oid[]) is 'internal: a part of dp.check_lockdown';
