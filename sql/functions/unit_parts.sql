-- Internal, event trigger: a partition or child that leaves a linked relation keeps the link as its own.  A foreign key
-- stays with a partition that is detached, but what was said by dp.link was said of the whole; without it the rows
-- would belong to nobody, and could be declared public.  Which parts a whole had is written down, since
-- after the fact the catalogue does not tell.
-- Security definer on purpose: whoever alters a table cannot write the catalogue.
create or replace function dp.keep_links_of_parts()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    part record;
    added boolean := false;
begin
    if not exists (select from dp.unit_link) then
        return;
    end if;
    for part in
        select l.*, p.oid::regclass as relation
          from dp.unit_link as l
         cross join unnest(l.parts::oid[]) as p(oid)
         where exists (select from pg_class as c where c.oid = l.child)
           and exists (select from pg_class as c where c.oid = l.parent)
           and exists (select from pg_class as c where c.oid = p.oid)
           and p.oid <> all (dp.statistics_members(l.child))
           -- parts of a part that left are still parts of it
           and not exists (
               select from unnest(l.parts::oid[]) as q(oid)
                where q.oid <> p.oid and q.oid <> all (dp.statistics_members(l.child))
                  and p.oid = any (dp.statistics_members(q.oid)))
    loop
        insert into dp.unit_link as l (
            child, columns, attnums, parent, parent_columns, parent_attnums, follow, nulls, declared_by, parts)
        select part.relation, array_agg(a.attname order by a.attnum), array_agg(a.attnum order by a.attnum),
               part.parent, array_agg(u.theirs order by a.attnum), array_agg(u.their_number order by a.attnum),
               part.follow, part.nulls, part.declared_by,
               array_remove(dp.statistics_members(part.relation), part.relation::oid)::regclass[]
          from unnest(part.columns, part.parent_columns, part.parent_attnums) as u(mine, theirs, their_number)
          join pg_attribute as a on a.attrelid = part.relation and a.attname = u.mine and not a.attisdropped
        having count(*) = cardinality(part.columns)
            on conflict on constraint unit_link_pkey do nothing;
        if not found then
            continue;
        end if;
        added := true;
        raise notice using
            message = format('relation %s was a part of %s and is linked to %s by itself from now on',
                             part.relation, part.child, part.parent),
            detail = case when part.follow then 'Its rows belong to the same privacy units as before.'
                          else 'Its key leads to no privacy unit, as before.' end,
            hint = format('Questions about it need GRANT SELECT ON %1$s TO dp_executor;'
                          ' dp.unlink(%1$L, %2$L, %3$L) takes the link back.',
                          part.relation, part.parent, part.columns);
    end loop;
    update dp.unit_link as l
       set parts = m.parts
      from dp.unit_link as k
     cross join lateral (
        select coalesce(array_remove(dp.statistics_members(k.child), k.child::oid), '{}')::regclass[]) as m(parts)
     where l.ctid = k.ctid and l.parts::oid[] is distinct from m.parts::oid[];
    if added then
        perform dp.touch_catalogue();
    end if;
end
$$;
comment on function dp.keep_links_of_parts() is 'internal: what leaves a linked relation stays linked';

-- Internal, event trigger: forgets dropped parts, whose numbers would mean other relations in a restored database.
create or replace function dp.forget_dropped_parts()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from dp.unit_link as l where l.parts <> '{}') then
        return;
    end if;
    update dp.unit_link as l
       set parts = array(select p.oid from unnest(l.parts) as p(oid)
                          where p.oid not in (select d.relation from dp.dropped_relations() as d))
     where exists (select from dp.dropped_relations() as d where d.relation = any (l.parts::oid[]));
end
$$;
comment on function dp.forget_dropped_parts() is 'internal: forgets dropped parts of linked relations';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_forget_dropped_parts') then
        create event trigger dpsql_forget_dropped_parts on sql_drop execute function dp.forget_dropped_parts();
        alter event trigger dpsql_forget_dropped_parts enable always;
    end if;
end
$$;
comment on event trigger dpsql_forget_dropped_parts is 'dpsql: forgets dropped parts of linked relations';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_keep_links_of_parts') then
        create event trigger dpsql_keep_links_of_parts on ddl_command_end
            when tag in ('ALTER TABLE', 'ALTER FOREIGN TABLE', 'CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA')
            execute function dp.keep_links_of_parts();
        alter event trigger dpsql_keep_links_of_parts enable always;
    end if;
end
$$;
comment on event trigger dpsql_keep_links_of_parts is 'dpsql: what leaves a linked relation stays linked';
