-- Internal: finds the columns of units and links, and the columns that number rows, by the names that they had in the dump.
create or replace function dp.find_unit_columns()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    links dp.unit_link[];
begin
    update dp.root as r
       -- no column has the number 0: where the name is not found, questions are refused
       set unit_attnum = coalesce((select a.attnum from pg_attribute as a
                                    where a.attrelid = p.relation and a.attname = r.unit_column), 0)
      from dp.policy as p
     where p.root = r.id and r.unit_column is not null;
    update dp.numbered_column as n
       set attnum = a.attnum
      from pg_attribute as a
     where a.attrelid = n.relation and a.attname = n.column_name and not a.attisdropped;
    -- all at once, since numbers that one link had may be those that another has now
    links := array(select l from dp.unit_link as l);
    delete from dp.unit_link;
    insert into dp.unit_link
    select k.child, f.columns, f.attnums, k.parent, f.parent_columns, f.parent_attnums, k.follow, k.nulls, k.declared_by,
           k.declared_at, k.parts
      from unnest(links) with ordinality as k
     cross join lateral (
        -- where a name is not found, questions are refused: no column has such a number
        select array_agg(u.mine order by a.attnum, u.n), array_agg(coalesce(a.attnum, 2000 + k.ordinality) order by a.attnum, u.n),
               array_agg(u.theirs order by a.attnum, u.n), array_agg(coalesce(b.attnum, 2000 + k.ordinality) order by a.attnum, u.n)
          from unnest(k.columns, k.parent_columns) with ordinality as u(mine, theirs, n)
          left join pg_attribute as a on a.attrelid = k.child and a.attname = u.mine and not a.attisdropped
          left join pg_attribute as b on b.attrelid = k.parent and b.attname = u.theirs and not b.attisdropped
        ) as f(columns, attnums, parent_columns, parent_attnums);
end
$$;
comment on function dp.find_unit_columns() is 'internal: numbers of columns after a restore';

-- Internal, event trigger: keeps the names of these columns, by which a restore finds them again.
-- Security definer on purpose: whoever renames a column cannot write the catalogue.
create or replace function dp.remember_renamed()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    lost record;
begin
    -- most changes rename no column, and should not even lock anything of ours; other commands than ALTER TABLE name
    -- what they rename in other ways, and an attribute of a type is a column of tables
    if tg_tag = 'ALTER TABLE' and not exists (select from pg_event_trigger_ddl_commands() as d
                    where d.classid = 'pg_class'::regclass and d.objsubid <> 0) then
        return;
    end if;
    for lost in
        select distinct c.relation, c.column_name, a.attname
          from pg_event_trigger_ddl_commands() as d
          join dp.column_domain as c on c.relation = d.objid
          join pg_attribute as a on a.attrelid = d.objid and a.attnum = d.objsubid
         where d.classid = 'pg_class'::regclass
           and not exists (select from pg_attribute as same where same.attrelid = d.objid and same.attname = c.column_name
                                                              and not same.attisdropped)
    loop
        raise notice using
            message = format('the domain of column %I of %s is of no column any more', lost.column_name, lost.relation),
            hint = format('Declare it of the new name: SELECT dp.set_domain(%L, %L, ...);', lost.relation, lost.attname);
    end loop;
    -- also in partitions, which the command does not name; until a restore is acknowledged names alone tell which columns
    -- were meant
    if dp.ledger_in_place() then
        update dp.numbered_column as n
           set column_name = a.attname
          from pg_attribute as a
         where a.attrelid = n.relation and a.attnum = n.attnum and a.attname <> n.column_name and not a.attisdropped;
    else
        update dp.numbered_column as n
           set column_name = a.attname
          from pg_event_trigger_ddl_commands() as d
          join pg_attribute as a on a.attrelid = d.objid and a.attnum = d.objsubid
         where d.classid = 'pg_class'::regclass and n.relation = d.objid and n.column_name <> a.attname
           and not exists (select from pg_attribute as same
                            where same.attrelid = d.objid and same.attname = n.column_name);
    end if;
    if not exists (select from dp.root as r where r.neighbours = 'unit') or not dp.ledger_in_place() then
        return;
    end if;
    -- also those of a relation that is not protected at the moment: once it is dropped, names alone tell of its units
    update dp.root as r
       set unit_column = a.attname
      from (select p.root, p.relation from dp.policy as p
             union
            select c.root, c.relation::oid from dp.covered as c
             where (c.schema_name, c.relation_name)
                   = (select o.schema_name, o.relation_name from dp.root as o where o.id = c.root)) as p
      join pg_attribute as a on a.attrelid = p.relation
     where p.root = r.id and a.attnum = r.unit_attnum and a.attname <> r.unit_column and not a.attisdropped;
    perform dp.remember_ways(null);
    update dp.unit_link as l
       set columns = array(select a.attname from unnest(l.attnums) with ordinality as u(attnum, n)
                             join pg_attribute as a on a.attrelid = l.child and a.attnum = u.attnum order by u.n),
           parent_columns = array(select a.attname from unnest(l.parent_attnums) with ordinality as u(attnum, n)
                                    join pg_attribute as a on a.attrelid = l.parent and a.attnum = u.attnum order by u.n)
     where exists (select from unnest(l.attnums, l.columns) as u(attnum, name)
                     join pg_attribute as a on a.attrelid = l.child and a.attnum = u.attnum
                    where a.attname <> u.name and not a.attisdropped)
        or exists (select from unnest(l.parent_attnums, l.parent_columns) as u(attnum, name)
                     join pg_attribute as a on a.attrelid = l.parent and a.attnum = u.attnum
                    where a.attname <> u.name and not a.attisdropped);
end
$$;
comment on function dp.remember_renamed() is 'internal: keeps the names of columns that lead to privacy units';

-- PostgreSQL renames columns of a table also by commands for views, indexes and types.
do $$
begin
    if exists (select from pg_catalog.pg_event_trigger as t
                where t.evtname = 'dpsql_remember_renamed' and t.evttags = array['ALTER TABLE']) then
        drop event trigger dpsql_remember_renamed;
    end if;
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_remember_renamed') then
        create event trigger dpsql_remember_renamed on ddl_command_end
            when tag in ('ALTER TABLE', 'ALTER FOREIGN TABLE', 'ALTER VIEW', 'ALTER MATERIALIZED VIEW', 'ALTER INDEX', 'ALTER TYPE')
            execute function dp.remember_renamed();
    end if;
end
$$;
comment on event trigger dpsql_remember_renamed is 'dpsql: keeps the names of columns that lead to privacy units';
