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

-- Internal: remembers for dp.unlock a privilege that is given or taken.
create or replace function dp.remember_change(
    taken boolean, measure text, kind text, object text, column_name name, grantee oid, privilege text, grantable boolean)
returns dp.lockdown_change
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    insert into dp.lockdown_change as c
        (measure, kind, object, relation, column_name, grantee, privilege, grantable, taken, changed_by,
         attnum, schema_oid, grantee_oid, incarnation)
    select measure, kind, case when r.oid is null then object end, r.oid, column_name,
           case when grantee <> 0 then pg_get_userbyid(grantee) end, privilege, grantable, taken,
           pg_get_userbyid(dp.caller()),
           (select a.attnum from pg_attribute as a where a.attrelid = r.oid and a.attname = remember_change.column_name),
           case when kind = 'SCHEMA' then to_regnamespace(object) end, nullif(grantee, 0),
           (select i.token from dp.ledger_incarnation as i)
      from (select case when kind in ('TABLE', 'SEQUENCE') then object::regclass end) as r(oid)
    returning c.*
$$;
comment on function dp.remember_change(boolean, text, text, text, name, oid, text, boolean) is
    'internal: remembers a change of dp.lockdown';

-- Internal: gives or takes one privilege and remembers it for dp.unlock.
create or replace function dp.change_privilege(
    taken boolean, measure text, kind text, object text, column_name name, grantee oid, privilege text, grantable boolean)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    execute dp.privilege_statement(
        not taken, dp.remember_change(taken, measure, kind, object, column_name, grantee, privilege, grantable));
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

-- Internal: whether the numbers of a change are those of this database.  In one that a dump was restored into they are
-- somebody else's, and names decide.
create or replace function dp.numbers_hold(change dp.lockdown_change)
returns boolean
language sql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(change.incarnation = (select i.token from dp.ledger_incarnation as i), false)
$$;
comment on function dp.numbers_hold(dp.lockdown_change) is 'internal: whether numbers, not names, tell what was changed';

-- Internal: the schema whose privilege was changed; NULL if there is none any more.
create or replace function dp.changed_schema(change dp.lockdown_change)
returns oid
language sql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
    select n.oid
      from pg_namespace as n
     where n.oid = case when dp.numbers_hold(change) then change.schema_oid else to_regnamespace(change.object) end
$$;
comment on function dp.changed_schema(dp.lockdown_change) is 'internal: the schema whose privilege was changed';

-- Internal: whether a role that was dumped was renamed since, so that its name is nobody's or another one's.  In another
-- cluster its number says nothing; there, too, it gets nothing where another role has it.
create or replace function dp.grantee_was_renamed(change dp.lockdown_change)
returns boolean
language sql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
    select change.taken
       and exists (select from pg_roles as r where r.oid = change.grantee_oid and r.rolname <> change.grantee)
$$;
comment on function dp.grantee_was_renamed(dp.lockdown_change) is 'internal: whether a role has another name than in a dump';

-- Internal: a change with the names that what was changed has now.  Raises undefined_object where a column, a schema or a
-- role is not there any more: whoever has its name by now was never meant.
create or replace function dp.change_named_now(change dp.lockdown_change)
returns dp.lockdown_change
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    named dp.lockdown_change := change;
begin
    if change.kind = 'SCHEMA' then
        select quote_ident(n.nspname) into strict named.object
          from pg_namespace as n where n.oid = dp.changed_schema(change);
    end if;
    if not dp.numbers_hold(change) then
        if dp.grantee_was_renamed(change) then
            raise undefined_object;
        end if;
        return named;
    end if;
    if change.column_name is not null then
        select a.attname into strict named.column_name
          from pg_attribute as a
         where a.attrelid = change.relation and a.attnum = change.attnum and not a.attisdropped;
    end if;
    if change.grantee is not null then
        select r.rolname into strict named.grantee from pg_roles as r where r.oid = change.grantee_oid;
    end if;
    return named;
exception when no_data_found then
    raise undefined_object;
end
$$;
comment on function dp.change_named_now(dp.lockdown_change) is 'internal: a change of dp.lockdown with current names';

-- Internal: keeps names of columns and schemas current in what is remembered: in a database that a dump is restored into
-- they are all there is.  Roles belong to the cluster, and nobody is told of their names.
create or replace function dp.remember_names_of_changes()
returns void
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    update dp.lockdown_change as c
       set column_name = a.attname
      from pg_attribute as a
     where c.incarnation = (select i.token from dp.ledger_incarnation as i)
       and a.attrelid = c.relation and a.attnum = c.attnum and a.attname <> c.column_name and not a.attisdropped;
    update dp.lockdown_change as c
       set object = quote_ident(n.nspname)
      from pg_namespace as n
     where c.incarnation = (select i.token from dp.ledger_incarnation as i)
       and n.oid = c.schema_oid and quote_ident(n.nspname) <> c.object;
$$;
comment on function dp.remember_names_of_changes() is 'internal: keeps names current in what dp.lockdown changed';

-- Internal: numbers in a restored database what names tell of there, since these may change from now on; 0, which is
-- nothing's number, for what is not there.
create or replace function dp.number_changes()
returns void
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    update dp.lockdown_change as c
       set attnum = case when c.column_name is not null then coalesce(
               (select a.attnum from pg_attribute as a where a.attrelid = c.relation and a.attname = c.column_name), 0) end,
           schema_oid = case when c.kind = 'SCHEMA' then coalesce(to_regnamespace(c.object)::oid, 0) end,
           grantee_oid = case when c.grantee is not null then coalesce(
               (select r.oid from pg_roles as r where r.rolname = c.grantee and not dp.grantee_was_renamed(c)), 0) end,
           incarnation = i.token
      from dp.ledger_incarnation as i
     where c.incarnation <> i.token
$$;
comment on function dp.number_changes() is 'internal: numbers of what dp.lockdown changed, after a restore';

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
    -- as in dp.lockdown
    lock table dp.lockdown_change in share update exclusive mode;
    for change in select c.* from dp.lockdown_change as c order by c.id desc loop
        if not is_superuser and not dp.may_unlock(change) then
            left_alone := left_alone + 1;
            continue;
        end if;
        undone := undone || change.id;
        continue when change.relation is not null
                  and not exists (select from pg_class as c where c.oid = change.relation);
        begin
            execute dp.privilege_statement(change.taken, dp.change_named_now(change));
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
                    from pg_namespace as n where n.oid = dp.changed_schema(change))
        end, false)
$$;
comment on function dp.may_unlock(dp.lockdown_change) is 'internal: whether the caller owns what was changed';
