-- The parts of dp.check_lockdown: what leads to rows.  Each gives hole, object, who, severity, why and the statement that
-- closes the hole, "critical" where rows can be read, "high" where figures without noise can, "medium" where something
-- of them can, "low" where it takes another mistake.

-- Internal: privileges on protected relations, on views that show their rows, and on sequences.
create or replace function dp.holes_of_relations(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with shown(oid, itself) as (
        select r.oid, r.oid = any (guarded) from unnest(dp.showing_relations(guarded)) as r(oid)),
    granted as (
        select c.oid, c.relkind, c.relowner, s.itself, null::text as columns, a.*
          from shown as s join pg_class as c on c.oid = s.oid, aclexplode(c.relacl) as a
         union all
        select c.oid, c.relkind, c.relowner, s.itself, quote_ident(t.attname), a.*
          from shown as s join pg_class as c on c.oid = s.oid
          join pg_attribute as t on t.attrelid = c.oid and not t.attisdropped, aclexplode(t.attacl) as a),
    held as (
        select g.oid, g.relkind, g.itself, g.columns, g.grantee, nullif(g.grantor, g.relowner) as other,
               dp.watched_through(g.grantee, watched) as who, bool_or(g.is_grantable) as passed_on,
               bool_or(g.privilege_type = 'SELECT') as reads,
               string_agg(g.privilege_type, ', ' order by g.privilege_type) as privileges,
               string_agg(concat(g.privilege_type, ' (' || g.columns || ')'), ', ' order by g.privilege_type) as written
          from granted as g
         where g.grantee <> g.relowner
         group by 1, 2, 3, 4, 5, 6, 7)
    select case when h.columns is not null then 'column privilege'
                when h.itself then 'relation privilege'
                when h.relkind = 'm' then 'materialized view' else 'view' end,
           h.oid::regclass::text || coalesce('.' || h.columns, ''), h.who,
           case when h.reads then 'critical' else 'medium' end,
           case when h.reads and h.itself then 'rows can be read as they are'
                when h.reads then 'it shows rows of a protected relation as they are'
                else h.privileges || ': numbers of changed rows, violated constraints and triggers tell of rows' end,
           concat('SET ROLE ' || quote_ident(pg_get_userbyid(h.other)) || '; ',
                  format('REVOKE %s ON %s FROM %s', h.written, h.oid::regclass, dp.grantee_name(h.grantee)),
                  case when h.passed_on then ' CASCADE' end, case when h.other is not null then '; RESET ROLE' end)
      from held as h
     where h.who is not null
     union all
    select 'sequence', c.oid::regclass::text, dp.watched_through(a.grantee, watched), 'high',
           'its last value is the number of rows that were ever inserted',
           format('REVOKE %s ON SEQUENCE %s FROM %s', string_agg(a.privilege_type, ', ' order by a.privilege_type),
                  c.oid::regclass, dp.grantee_name(a.grantee))
      from pg_depend as d
      join pg_class as c on c.oid = d.objid and c.relkind = 'S', aclexplode(c.relacl) as a
     where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
       and d.refobjid = any (guarded) and d.deptype in ('a', 'i') and a.grantee <> c.relowner
       and dp.watched_through(a.grantee, watched) is not null
     group by c.oid, a.grantee
$$;
comment on function dp.holes_of_relations(oid[], oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: tables whose foreign keys tell of protected rows: an INSERT or UPDATE that refers to a protected row fails
-- where that is missing, a DELETE or UPDATE of a row that a protected one refers to where that is there.
create or replace function dp.holes_of_keys(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with telling(oid, guarded, child, name, columns, privileges, why) as (
        select k.conrelid, k.confrelid, k.conrelid, k.conname, k.conkey, array['INSERT', 'UPDATE'],
               format('rows that refer to %s can be written only where its row is there', k.confrelid::regclass)
          from pg_constraint as k
          left join pg_constraint as whole on whole.oid = k.conparentid
         where k.contype = 'f' and whole.conrelid is distinct from k.conrelid
           and k.confrelid = any (guarded) and k.conrelid <> all (guarded)
         union all
        select k.confrelid, k.conrelid, k.conrelid, k.conname, k.confkey, array['DELETE', 'UPDATE'],
               format('rows can be deleted only where none of %s refers to them', k.conrelid::regclass)
          from pg_constraint as k
          left join pg_constraint as whole on whole.oid = k.conparentid
         where k.contype = 'f' and whole.confrelid is distinct from k.confrelid
           and k.conrelid = any (guarded) and k.confrelid <> all (guarded)),
    granted as (
        select t.oid, t.why, a.grantee, a.privilege_type as privilege, a.privilege_type as written
          from telling as t join pg_class as c on c.oid = t.oid, aclexplode(c.relacl) as a
         where a.privilege_type = any (t.privileges) and a.grantee <> c.relowner
         union all
        select t.oid, t.why, a.grantee, a.privilege_type, format('%s (%I)', a.privilege_type, f.attname)
          from telling as t join pg_class as c on c.oid = t.oid
          join pg_attribute as f on f.attrelid = t.oid and f.attnum = any (t.columns), aclexplode(f.attacl) as a
         where a.privilege_type = any (t.privileges) and a.grantee <> c.relowner)
    select 'foreign key', g.oid::regclass::text, dp.watched_through(g.grantee, watched), 'high',
           string_agg(distinct g.why, '; '),
           format('REVOKE %s ON %s FROM %s', string_agg(distinct g.written, ', '), g.oid::regclass, dp.grantee_name(g.grantee))
      from granted as g
     where dp.watched_through(g.grantee, watched) is not null
     group by g.oid, g.grantee
     union all
    select 'foreign key', t.oid::regclass::text, dp.watched_through(c.relowner, watched), 'high',
           t.why || '; its owner writes it, and may not read that',
           format('ALTER TABLE %s DROP CONSTRAINT %I', t.child::regclass, t.name)
      from telling as t join pg_class as c on c.oid = t.oid
     where dp.watched_through(c.relowner, watched) is not null and not has_table_privilege(c.relowner, t.guarded, 'select')
       -- that of a whole goes with all parts
       and not exists (select from pg_inherits as i where i.inhrelid = t.child)
$$;
comment on function dp.holes_of_keys(oid[], oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: ways to have code run in the statements of an owner who may read protected relations, with that owner's
-- rights.  TRIGGER is one.  REFERENCES is another before PostgreSQL 18: ON DELETE CASCADE changes the referencing table,
-- and its AFTER triggers run as the role that deleted.
create or replace function dp.holes_of_triggers(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with reader as (
        select distinct c.relowner as oid from pg_class as c
         where c.relkind in ('r', 'p', 'v', 'm', 'f')
           and exists (select from unnest(guarded) as g(oid) where has_any_column_privilege(c.relowner, g.oid, 'SELECT'))),
    changed as (
        select c.oid, c.relacl from pg_class as c join reader as r on r.oid = c.relowner
         where c.relkind in ('r', 'p', 'v', 'f') and c.oid >= 16384 and c.oid <> all (guarded)
           and not exists (select from pg_depend as d
                            where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')),
    granted as (
        select c.oid, a.grantee, a.privilege_type as privilege, a.privilege_type as written
          from changed as c, aclexplode(c.relacl) as a
         where a.privilege_type = 'TRIGGER'
            or a.privilege_type = 'REFERENCES' and current_setting('server_version_num')::integer < 180000
         union all
        select c.oid, a.grantee, a.privilege_type, format('%s (%I)', a.privilege_type, f.attname)
          from changed as c join pg_attribute as f on f.attrelid = c.oid, aclexplode(f.attacl) as a
         where a.privilege_type = 'REFERENCES' and current_setting('server_version_num')::integer < 180000)
    select 'trigger privilege', g.oid::regclass::text, dp.watched_through(g.grantee, watched), 'medium',
           format('triggers of who has %s run in its owner''s statements, with the owner''s rights',
                  string_agg(distinct g.privilege, ', ' order by g.privilege)),
           format('REVOKE %s ON %s FROM %s', string_agg(distinct g.written, ', '), g.oid::regclass, dp.grantee_name(g.grantee))
      from granted as g
     where dp.watched_through(g.grantee, watched) is not null
     group by g.oid, g.grantee
     union all
    select 'trigger privilege', c.oid::regclass::text, dp.watched_through(child.relowner, watched), 'medium',
           format('a DELETE or an UPDATE of its owner fires triggers of %s, with the owner''s rights', k.conrelid::regclass),
           format('ALTER TABLE %s DROP CONSTRAINT %I', k.conrelid::regclass, k.conname)
      from changed as c join pg_constraint as k on k.confrelid = c.oid join pg_class as child on child.oid = k.conrelid
     where k.contype = 'f' and k.conparentid = 0 and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))
       and current_setting('server_version_num')::integer < 180000
       and dp.watched_through(child.relowner, watched) is not null
$$;
comment on function dp.holes_of_triggers(oid[], oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: code that runs with the rights of somebody who may read protected relations, and code without a sandbox.
create or replace function dp.holes_of_functions(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with callable as (
        select p.oid, p.prosecdef, p.proowner, l.lanname, l.lanpltrusted, p.prokind, a.grantee,
               dp.watched_through(a.grantee, watched) as who
          from pg_proc as p join pg_language as l on l.oid = p.prolang,
               aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
         where p.oid >= 16384 and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
           and not exists (select from pg_depend as d
                            where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'))
    select 'definer function', c.oid::regprocedure::text, c.who, 'high',
           format('it runs as %s, who may read protected relations: what it gives back may tell of them',
                  pg_get_userbyid(c.proowner)),
           format('REVOKE EXECUTE ON %s %s FROM %s', case c.prokind when 'p' then 'PROCEDURE' else 'FUNCTION' end,
                  c.oid::regprocedure, dp.grantee_name(c.grantee))
      from callable as c
     where c.who is not null and c.prosecdef
       and exists (select from unnest(guarded) as g(oid) where has_any_column_privilege(c.proowner, g.oid, 'SELECT'))
     union all
    select 'untrusted function', c.oid::regprocedure::text, c.who, 'medium',
           format('language %s has no sandbox: it can do what the server can', c.lanname),
           format('REVOKE EXECUTE ON %s %s FROM %s', case c.prokind when 'p' then 'PROCEDURE' else 'FUNCTION' end,
                  c.oid::regprocedure, dp.grantee_name(c.grantee))
      from callable as c
     where c.who is not null and not c.lanpltrusted and c.lanname not in ('internal', 'c')
     union all
    select 'untrusted language', l.lanname, dp.watched_through(a.grantee, watched), 'critical',
           'functions in it read the server''s files, those of protected relations too',
           format('UPDATE pg_catalog.pg_language SET lanpltrusted = false WHERE lanname = %L', l.lanname)
      from pg_language as l, aclexplode(coalesce(l.lanacl, acldefault('l', l.lanowner))) as a
     where l.lanpltrusted and l.lanname ~ '^pl.*(u|3u|sh)$' and a.grantee <> l.lanowner
       and dp.watched_through(a.grantee, watched) is not null
     union all
    -- what PostgreSQL gives to nobody at first: files, logs, programs, memory
    select 'server function', p.oid::regprocedure::text, dp.watched_through(a.grantee, watched), 'critical',
           'it reads files, logs or memory of the server',
           format('REVOKE EXECUTE ON FUNCTION %s FROM %s', p.oid::regprocedure, dp.grantee_name(a.grantee))
      from pg_proc as p, aclexplode(p.proacl) as a
     where p.pronamespace = 'pg_catalog'::regnamespace and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
       and (p.proname ~ '^(pg_ls_|pg_read_|pg_stat_file$|lo_import$|lo_export$|pg_get_backend_memory_contexts$)'
            or p.proname ~ '^(pg_get_shmem_allocations|pg_current_logfile$|pg_hba_file_rules$|pg_show_all_file_settings$)'
            or p.proname ~ '^(pg_rotate_logfile|pg_file_|pg_config$|pg_log_backend_memory_contexts$)')
       and dp.watched_through(a.grantee, watched) is not null
$$;
comment on function dp.holes_of_functions(oid[], oid[]) is 'internal: a part of dp.check_lockdown';

-- Internal: ways out of the database's own privileges: copies, other servers, large objects, code that tells.
create or replace function dp.holes_of_copies(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select 'large object', l.oid::text, dp.watched_through(a.grantee, watched), 'medium',
           'what it holds can be read',
           format('REVOKE %s ON LARGE OBJECT %s FROM %s', string_agg(a.privilege_type, ', ' order by a.privilege_type),
                  l.oid, dp.grantee_name(a.grantee))
      from pg_largeobject_metadata as l, aclexplode(l.lomacl) as a
     where a.grantee <> l.lomowner and dp.watched_through(a.grantee, watched) is not null
     group by l.oid, a.grantee
     union all
    select 'large objects', 'lo_compat_privileges', 'PUBLIC', 'high', 'everybody may read every large object',
           'ALTER SYSTEM RESET lo_compat_privileges'
     where current_setting('lo_compat_privileges')::boolean
     union all
    select 'foreign server', s.srvname, dp.watched_through(a.grantee, watched), 'high',
           'foreign tables can be made on it, and it may lead to this server under another role',
           format('REVOKE USAGE ON FOREIGN SERVER %I FROM %s', s.srvname, dp.grantee_name(a.grantee))
      from pg_foreign_server as s, aclexplode(s.srvacl) as a
     where a.grantee <> s.srvowner and dp.watched_through(a.grantee, watched) is not null
     union all
    select 'foreign-data wrapper', w.fdwname, dp.watched_through(a.grantee, watched), 'high',
           'foreign servers can be made with it, which may lead to this server under another role',
           format('REVOKE USAGE ON FOREIGN DATA WRAPPER %I FROM %s', w.fdwname, dp.grantee_name(a.grantee))
      from pg_foreign_data_wrapper as w, aclexplode(w.fdwacl) as a
     where a.grantee <> w.fdwowner and dp.watched_through(a.grantee, watched) is not null
     union all
    select 'foreign table', c.oid::regclass::text, dp.watched_through(a.grantee, watched), 'medium',
           'it may lead to a protected relation, here or in a copy',
           format('REVOKE %s ON %s FROM %s', string_agg(a.privilege_type, ', ' order by a.privilege_type),
                  c.oid::regclass, dp.grantee_name(a.grantee))
      from pg_class as c, aclexplode(c.relacl) as a
     where c.relkind = 'f' and c.oid <> all (guarded) and a.grantee <> c.relowner
       and not exists (select from dp.declarations() as d where d.relation = c.oid)
       and dp.watched_through(a.grantee, watched) is not null
     group by c.oid, a.grantee
     union all
    select 'publication', p.pubname, 'subscribers', 'medium', 'it sends rows of protected relations to other servers',
           format('DROP PUBLICATION %I', p.pubname)
      from pg_publication as p
     where exists (select from pg_publication_tables as t
                    join pg_class as c on c.relname = t.tablename
                    join pg_namespace as n on n.oid = c.relnamespace and n.nspname = t.schemaname
                   where t.pubname = p.pubname and c.oid = any (guarded))
     union all
    select 'trigger that notifies', format('%I on %s', t.tgname, t.tgrelid::regclass), 'PUBLIC', 'high',
           'every role can LISTEN to any channel',
           format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass)
      from pg_trigger as t join pg_proc as p on p.oid = t.tgfoid
     where t.tgrelid = any (guarded) and not t.tgisinternal and p.prosrc ~* '\m(pg_)?notify\M'
     union all
    select 'event trigger', e.evtname, 'PUBLIC', 'low',
           format('%s runs in the sessions of all roles', e.evtfoid::regprocedure),
           format('DROP EVENT TRIGGER %I', e.evtname)
      from pg_event_trigger as e join pg_proc as p on p.oid = e.evtfoid join pg_roles as r on r.oid = p.proowner
     where e.evtenabled <> 'D' and not r.rolsuper
       and not exists (select from pg_depend as d
                        where d.classid = 'pg_event_trigger'::regclass and d.objid = e.oid and d.deptype = 'e')
$$;
comment on function dp.holes_of_copies(oid[], oid[]) is 'internal: a part of dp.check_lockdown';
