-- Internal: every administration function ends with it.  Forgets dropped relations, refreshes
-- remembered names, and lets other declarations wait until this one is committed, unless only budgets changed.
create or replace function dp.touch_catalogue(declarations boolean default true)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from dp.policy as p
     where not exists (select from pg_catalog.pg_class as c where c.oid = p.relation);
    delete from dp.unit_link as l
     where not exists (select from pg_catalog.pg_class as c where c.oid = l.child)
        or not exists (select from pg_catalog.pg_class as c where c.oid = l.parent);
    delete from dp.column_domain as d
     where not exists (select from pg_catalog.pg_class as c where c.oid = d.relation);
    delete from dp.numbered_column as n
     where not exists (select from pg_catalog.pg_attribute as a
                        where a.attrelid = n.relation and a.attnum = n.attnum and not a.attisdropped)
       and dp.ledger_in_place();
    delete from dp.shards as s
     where not exists (select from pg_catalog.pg_class as c where c.oid = s.relation);
    perform dp.remember_names();
    if dp.ledger_in_place() then
        update dp.principal as p
           set role_name = r.rolname
          from pg_catalog.pg_roles as r
         where r.oid = p.role_oid
           and p.role_name <> r.rolname;
    end if;
    if declarations then
        update dp.catalog_version set version = pg_catalog.gen_random_uuid();
    end if;
    if not exists (select from dp.ledger_identity) then
        insert into dp.ledger_identity (
            incarnation, system_identifier, timeline, database, note, recorded_by)
        select i.incarnation, i.system_identifier, i.timeline, i.database,
               'first declaration', session_user
          from dp.ledger_place() as i;
    end if;
end
$$;
comment on function dp.touch_catalogue(boolean) is 'internal: marks the catalogue as changed';
