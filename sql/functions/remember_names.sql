-- Internal: keeps the names of declared relations current, and the earlier ones: once a relation is dropped, its account goes
-- on with the next one of any of these names that is protected (docs/ledger.md, "Identity of a relation").
create or replace function dp.remember_names()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    renamed record;
begin
    -- most calls find nothing, and should not lock rows or tell sessions
    for renamed in
        select r.id, n.nspname, c.relname, format('%I.%I', r.schema_name, r.relation_name) as earlier
          from dp.root as r
          join dp.policy as p on p.root = r.id
          join pg_catalog.pg_class as c on c.oid = p.relation
          join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
         where (r.schema_name, r.relation_name) is distinct from (n.nspname, c.relname)
    loop
        update dp.root as r
           set schema_name = renamed.nspname, relation_name = renamed.relname,
               earlier_names = array_append(array_remove(r.earlier_names, renamed.earlier), renamed.earlier)
         where r.id = renamed.id;
    end loop;
end
$$;
comment on function dp.remember_names() is 'internal: keeps names of declared relations current';

-- Internal: keeps the names on the ways by which rows of relations belong to units, for the time when one of them is dropped:
-- those of some relations that were renamed, or of all.
create or replace function dp.remember_ways(renamed oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    update dp.covered as c
       set shown = dp.names_of_ways(c.relation, c.ways)
     where (renamed is null or c.relation = any (renamed::regclass[])
            or exists (select from unnest(renamed) as r(oid) where c.ways like format('%%>%s>%%', r.oid)))
       and dp.names_of_ways(c.relation, c.ways) <> c.shown;
end
$$;
comment on function dp.remember_ways(oid[]) is 'internal: keeps names on ways to units current';

-- Internal, event trigger: the same when a relation, a schema or a column was renamed.
-- Security definer on purpose: whoever renames a table cannot write the catalogue.
create or replace function dp.remember_relations_renamed()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.remember_names();
    if tg_tag = 'ALTER TYPE'
       or exists (select from pg_event_trigger_ddl_commands() as d
                   where d.classid = 'pg_class'::regclass and d.objsubid <> 0 or d.classid = 'pg_namespace'::regclass) then
        perform dp.remember_names_of_changes();
    end if;
    if dp.ledger_in_place() then
        perform dp.remember_ways(array(
            select d.objid from pg_event_trigger_ddl_commands() as d where d.classid = 'pg_class'::regclass
             union
            select c.oid from pg_event_trigger_ddl_commands() as d join pg_class as c on c.relnamespace = d.objid
             where d.classid = 'pg_namespace'::regclass));
    end if;
end
$$;
comment on function dp.remember_relations_renamed() is 'internal: keeps names of declared relations when they change';

-- ALTER INDEX and its like rename tables, too.
do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_remember_relations_renamed') then
        create event trigger dpsql_remember_relations_renamed on ddl_command_end
            when tag in ('ALTER TABLE', 'ALTER FOREIGN TABLE', 'ALTER SCHEMA', 'ALTER VIEW', 'ALTER MATERIALIZED VIEW',
                         'ALTER INDEX', 'ALTER SEQUENCE', 'ALTER TYPE')
            execute function dp.remember_relations_renamed();
    end if;
end
$$;
comment on event trigger dpsql_remember_relations_renamed is 'dpsql: keeps names of declared relations when they change';

-- Internal: refuses a new account for a relation whose name another one had, when that is still there and lost something.
-- A reload that swaps names would leave the losses of the same rows behind.
create or replace function dp.require_no_other_account(relation regclass, name text)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    other record;
begin
    select p.relation, case when r.unit_column is not null then format(', privacy_unit => %L', r.unit_column) end as unit
      into other
      from dp.root as r join dp.policy as p on p.root = r.id
     where require_no_other_account.name = any (r.earlier_names)
       and (exists (select from dp.spend as s where r.id = any (s.roots)) or exists (select from dp.loss as l where l.root = r.id))
     order by r.id desc limit 1;
    if not found then
        return;
    end if;
    raise exception using
        errcode = 'PD040',
        message = format('relation %s has the name that %s had, whose account would stay behind', relation, other.relation),
        detail = 'If both hold the same rows, no account would show all that these lose.',
        hint = format('If they do: DROP TABLE %s; SELECT dp.protect(%L%s); and the account goes on. If they do not,'
                      ' call dp.protect while %s has another name.', other.relation, relation::text, other.unit, relation);
end
$$;
comment on function dp.require_no_other_account(regclass, text) is 'internal: refuses a new account for an old name';
