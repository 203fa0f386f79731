-- The measures of dp.lockdown.  Each revokes privileges on objects that the caller owns.  Only the role that granted a
-- privilege can revoke it; dp.check_lockdown lists privileges that other roles than the owner granted.

-- Internal: takes from PUBLIC and from analysts every privilege on protected relations, on views that show their rows,
-- and on the sequences of their columns.  Roles that are no analysts keep theirs: applications write the data.
-- An analyst who owns such a view can lock it in a transaction and leave the transaction open.  After two seconds the
-- privileges on that view are left as they are, with a warning.
create or replace function dp.lock_relations(relations oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    found_privilege record;
    left_out text[] := '{}';
begin
    for found_privilege in
        with shown(oid) as (
            select unnest(dp.showing_relations(relations))
            union
            select d.objid from pg_depend as d join pg_class as s on s.oid = d.objid and s.relkind = 'S'
             where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
               and d.refobjid = any (relations) and d.deptype in ('a', 'i')),
        granted as (
            select c.oid, c.relkind, c.relowner, null::name as column_name, a.*
              from shown join pg_class as c on c.oid = shown.oid, aclexplode(c.relacl) as a
             union all
            select c.oid, c.relkind, c.relowner, t.attname, a.*
              from shown join pg_class as c on c.oid = shown.oid
              join pg_attribute as t on t.attrelid = c.oid and not t.attisdropped, aclexplode(t.attacl) as a)
        select case g.relkind when 'S' then 'SEQUENCE' else 'TABLE' end as kind, g.oid::regclass::text as object,
               case g.relkind when 'S' then 'sequences' else 'relations' end as measure,
               g.column_name, g.grantee, g.privilege_type, g.is_grantable, g.relkind <> 'v' as guarded
          from granted as g
         where g.grantor = g.relowner and g.grantee <> g.relowner
           and pg_has_role(dp.caller(), g.relowner, 'usage')
           and (g.grantee = 0
                or exists (select from pg_roles as r where r.oid = g.grantee and not r.rolsuper)
               and pg_has_role(g.grantee, 'dp_analyst', 'usage') and not pg_has_role(g.grantee, 'dp_owner', 'member')
               and pg_get_userbyid(g.grantee) not in ('dp_executor', 'dp_ledger'))
         order by g.relkind = 'v', 2, 1, 4, 5, 6
    loop
        continue when found_privilege.object = any (left_out);
        begin
            if found_privilege.is_grantable then
                perform dp.remember_passed_on(found_privilege.measure, found_privilege.kind,
                                              found_privilege.object::regclass, found_privilege.column_name,
                                              found_privilege.grantee, found_privilege.privilege_type);
            end if;
            perform dp.change_privilege(true, found_privilege.measure, found_privilege.kind, found_privilege.object,
                                        found_privilege.column_name, found_privilege.grantee,
                                        found_privilege.privilege_type, found_privilege.is_grantable);
        exception
            -- internal_error: "tuple concurrently updated"; undefined_table: the view was dropped meanwhile
            when lock_not_available or deadlock_detected or internal_error or undefined_table or undefined_object then
                if sqlstate = 'XX000' and sqlerrm not like 'tuple concurrently %' then
                    raise;
                end if;
                if found_privilege.guarded then
                    raise exception using
                        errcode = 'PD040',
                        message = format('the privileges on %s cannot be taken: another transaction is changing them',
                                         found_privilege.object),
                        detail = 'Nothing was changed.',
                        hint = 'Run SELECT * FROM dp.lockdown() again when that transaction has ended; pg_stat_activity '
                               'lists open transactions, and SELECT pg_terminate_backend(pid) ends a session.';
                end if;
                left_out := left_out || found_privilege.object;
                -- an analyst may hold many views: the call waits two seconds for the first, and little for the rest
                perform set_config('lock_timeout', '50ms', true);
        end;
    end loop;
    if left_out <> '{}' then
        raise warning using
            message = format('privileges on %s are left as they are', array_to_string(left_out, ', ')),
            detail = 'Another transaction is changing these relations or their privileges.',
            hint = 'Run SELECT * FROM dp.lockdown() again when it has ended; pg_stat_activity lists open transactions, and '
                   'SELECT pg_terminate_backend(pid) ends a session.';
    end if;
end
$$;
comment on function dp.lock_relations(oid[]) is 'internal: a measure of dp.lockdown';

-- Internal: records the roles that lose a privilege because they got it from a role that loses it.  dp.unlock grants it to
-- them again, as the owner.
create or replace function dp.remember_passed_on(
    measure text, kind text, relation regclass, column_name name, from_role oid, privilege text)
returns void
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with recursive acl as (
        select a.* from pg_class as c, aclexplode(c.relacl) as a
         where c.oid = relation and remember_passed_on.column_name is null and a.privilege_type = privilege
         union all
        select a.* from pg_attribute as t, aclexplode(t.attacl) as a
         where t.attrelid = relation and t.attname = remember_passed_on.column_name and a.privilege_type = privilege),
    passed_on(grantee, is_grantable) as (
        select a.grantee, a.is_grantable from acl as a where a.grantor = from_role
        union
        select a.grantee, a.is_grantable from acl as a join passed_on as p on a.grantor = p.grantee)
    select dp.remember_change(true, measure, kind, relation::text, column_name, p.grantee, privilege, p.is_grantable)
      from passed_on as p
$$;
comment on function dp.remember_passed_on(text, text, regclass, name, oid, text) is
    'internal: remembers privileges that are lost with another';

-- Internal: revokes from PUBLIC the right to create temporary objects, schemas, and objects in schemas.  Names in statements
-- of other roles could resolve to such objects.
create or replace function dp.lock_database()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
    found_object record;
begin
    for found_object in
        select 'DATABASE' as kind, '' as object, a.privilege_type, a.is_grantable
          from pg_database as d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) as a
         where d.datname = current_database() and a.grantee = 0 and a.privilege_type in ('TEMPORARY', 'CREATE')
           and a.grantor = d.datdba and pg_has_role(dp.caller(), d.datdba, 'usage')
         union all
        select 'SCHEMA', quote_ident(n.nspname), a.privilege_type, a.is_grantable
          from pg_namespace as n, aclexplode(n.nspacl) as a
         where a.grantee = 0 and a.privilege_type = 'CREATE' and n.nspname !~ '^pg_(toast_)?temp_'
           and a.grantor = n.nspowner and pg_has_role(dp.caller(), n.nspowner, 'usage')
    loop
        perform dp.change_privilege(true, 'shadowing', found_object.kind, found_object.object, null, 0,
                                    found_object.privilege_type, found_object.is_grantable);
    end loop;
end
$$;
comment on function dp.lock_database() is 'internal: a measure of dp.lockdown';

-- Internal: revokes the right to read what the system catalog shows of rows.  Every client reads pg_class, so all of its
-- other columns, system columns included, stay readable by privileges on single columns.
create or replace function dp.lock_catalogue()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
    found_object record;
    kept name;
begin
    for found_object in
        select f.hole, f.function::regprocedure::text as object, a.is_grantable
          from dp.withheld_functions() as f
          join pg_proc as p on p.oid = f.function, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
         where a.grantee = 0 and a.privilege_type = 'EXECUTE'
         order by 1, 2
    loop
        perform dp.change_privilege(true, found_object.hole, 'FUNCTION', found_object.object, null, 0, 'EXECUTE',
                                    found_object.is_grantable);
        perform dp.give_to_trusted(found_object.hole, 'FUNCTION', found_object.object, 'EXECUTE');
    end loop;
    for found_object in
        select c.oid::regclass::text as object, c.relname, a.is_grantable
          from pg_class as c, aclexplode(c.relacl) as a
         where c.oid in ('pg_class'::regclass, 'pg_largeobject_metadata'::regclass, 'pg_shdepend'::regclass)
           and a.grantee = 0 and a.privilege_type = 'SELECT'
    loop
        perform dp.change_privilege(true, 'catalogue', 'TABLE', found_object.object, null, 0, 'SELECT',
                                    found_object.is_grantable);
        perform dp.give_to_trusted('catalogue', 'TABLE', found_object.object, 'SELECT');
        continue when found_object.relname <> 'pg_class';
        for kept in
            select t.attname from pg_attribute as t
             where t.attrelid = 'pg_class'::regclass and not t.attisdropped
               and t.attname <> all (dp.withheld_columns())
             order by t.attnum
        loop
            perform dp.change_privilege(false, 'catalogue', 'TABLE', found_object.object, kept, 0, 'SELECT', false);
        end loop;
    end loop;
end
$$;
comment on function dp.lock_catalogue() is 'internal: a measure of dp.lockdown';

-- Internal: revokes from PUBLIC the functions and views of extensions that show pages, statistics or other servers.
create or replace function dp.lock_extensions()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
    found_object record;
begin
    for found_object in
        select i.extension, i.kind, i.object, a.privilege_type, a.is_grantable
          from dp.inspecting_objects() as i, aclexplode(i.acl) as a
         where a.grantee = 0
         order by 1, 2, 3, 4
    loop
        perform dp.change_privilege(true, 'extensions', found_object.kind, found_object.object, null, 0,
                                    found_object.privilege_type, found_object.is_grantable);
        if found_object.extension = 'pg_stat_statements' then
            perform dp.give_to_trusted('extensions', found_object.kind, found_object.object, found_object.privilege_type);
        end if;
    end loop;
end
$$;
comment on function dp.lock_extensions() is 'internal: a measure of dp.lockdown';
