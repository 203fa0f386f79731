-- Internal: the statement that gives or takes one privilege.
create or replace function dp.privilege_statement(gives boolean, change dp.lockdown_change)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select format('%s %s%s ON %s %s %s %s%s',
                  case when gives then 'GRANT' else 'REVOKE' end,
                  change.privilege,
                  case when change.column_name is not null then format(' (%I)', change.column_name) end,
                  change.kind,
                  case change.kind when 'DATABASE' then quote_ident(current_database()) 
                                    else coalesce(change.relation::text, change.object) end,
                  case when gives then 'TO' else 'FROM' end,
                  case when change.grantee is null then 'PUBLIC' else quote_ident(change.grantee) end,
                  case when change.grantable then case when gives then ' WITH GRANT OPTION' else ' CASCADE' end end)
$$;
comment on function dp.privilege_statement(boolean, dp.lockdown_change) is 'internal: a GRANT or REVOKE';

-- Internal: gives or takes one privilege and remembers it for dp.unlock.
create or replace function dp.change_privilege(
    taken boolean, measure text, kind text, object text, column_name name, grantee oid, privilege text, grantable boolean)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    change dp.lockdown_change;
begin
    insert into dp.lockdown_change as c
        (measure, kind, object, relation, column_name, grantee, privilege, grantable, taken, changed_by)
    values (measure, kind, case when kind not in ('TABLE', 'SEQUENCE') then object end,
            case when kind in ('TABLE', 'SEQUENCE') then object::regclass end, column_name,
            case when grantee <> 0 then pg_get_userbyid(grantee) end, privilege, grantable, taken,
            pg_get_userbyid(dp.caller()))
    returning c.* into change;
    execute dp.privilege_statement(not taken, change);
end
$$;
comment on function dp.change_privilege(boolean, text, text, text, name, oid, text, boolean) is
    'internal: gives or takes a privilege and remembers it';

-- Internal: gives to those who may know what was taken from PUBLIC: administrators of privacy, who trust each other, the
-- role that answers questions, and whoever may read all statistics by PostgreSQL's own rules.
create or replace function dp.give_to_trusted(measure text, kind text, object text, privilege text)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    trusted name;
begin
    foreach trusted in array array['dp_owner', 'dp_executor', 'pg_read_all_stats'] loop
        if not (case kind when 'TABLE' then has_table_privilege(trusted, object, privilege)
                          else has_function_privilege(trusted, object, privilege) end) then
            perform dp.change_privilege(false, measure, kind, object, null, trusted::regrole, privilege, false);
        end if;
    end loop;
end
$$;
comment on function dp.give_to_trusted(text, text, text, text) is
    'internal: gives to administrators what is taken from everybody';

-- Puts back what dp.lockdown changed, the last first.  Callers: members of dp_owner, each for what dp.lockdown would do
-- for him; a notice names what is left.
-- Security definer on purpose: as dp.lockdown.
create or replace function dp.unlock()
returns table (measure text, changes bigint)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    is_superuser constant boolean := (select r.rolsuper from pg_roles as r where r.oid = dp.caller());
    change dp.lockdown_change;
    undone bigint[] := '{}';
    left_alone bigint := 0;
begin
    perform dp.require_administrator();
    lock table dp.lockdown_change in share row exclusive mode;
    for change in select c.* from dp.lockdown_change as c order by c.id desc loop
        if not is_superuser and not dp.may_unlock(change) then
            left_alone := left_alone + 1;
            continue;
        end if;
        undone := undone || change.id;
        continue when change.relation is not null
                  and not exists (select from pg_class as c where c.oid = change.relation);
        begin
            execute dp.privilege_statement(change.taken, change);
        exception when undefined_object or undefined_table or undefined_function or undefined_column
                    or invalid_schema_name then
            raise notice using
                message = format('a privilege on %s %s is not put back', lower(change.kind),
                                 coalesce(change.relation::text, change.object)),
                detail = format('It was dropped or renamed, or role %s was.', coalesce(change.grantee, 'PUBLIC'));
        end;
    end loop;
    if left_alone > 0 then
        raise notice using
            message = format('%s changes are left as they are', left_alone),
            detail = 'Only a superuser may unlock the catalogue, and only its owner a relation or the database.',
            hint = 'Ask a superuser for SELECT * FROM dp.unlock().';
    end if;
    return query
    with gone as (delete from dp.lockdown_change as c where c.id = any (undone) returning c.measure, c.taken)
    select g.measure, count(*) from gone as g where g.taken group by g.measure order by g.measure;
end
$$;
comment on function dp.unlock() is 'put back what dp.lockdown took; what was put back is returned';

-- Internal: whether the caller owns what was changed.
create or replace function dp.may_unlock(change dp.lockdown_change)
returns boolean
language sql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(case
        when change.measure in ('relations', 'sequences')
            then (select pg_has_role(dp.caller(), c.relowner, 'usage')
                    from pg_class as c where c.oid = change.relation)
        when change.kind = 'DATABASE'
            then (select pg_has_role(dp.caller(), d.datdba, 'usage')
                    from pg_database as d where d.datname = current_database())
        when change.kind = 'SCHEMA'
            then (select pg_has_role(dp.caller(), n.nspowner, 'usage')
                    from pg_namespace as n where n.oid = to_regnamespace(change.object))
        end, false)
$$;
comment on function dp.may_unlock(dp.lockdown_change) is 'internal: whether the caller owns what was changed';
