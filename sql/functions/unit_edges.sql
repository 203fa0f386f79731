-- Internal: the topmost relation that a partition or child belongs to, or the relation itself.
create or replace function dp.topmost(relation oid)
returns oid
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    above oid;
    found_oid oid := relation;
begin
    loop
        select i.inhparent into above from pg_inherits as i where i.inhrelid = found_oid order by 1 limit 1;
        exit when not found;
        found_oid := above;
    end loop;
    return found_oid;
end
$$;
comment on function dp.topmost(oid) is 'internal: the topmost parent of a partition or child';

-- Internal: why values of a column cannot name privacy units or lead to them, or NULL.  Equal values
-- must be one value for PostgreSQL wherever they are grouped, joined or referred to.
create or replace function dp.unit_column_problem(relation oid, attnum int2)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select case
                   when a.atttypid not in ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype,
                                           'numeric'::regtype, 'text'::regtype, 'varchar'::regtype,
                                           'bpchar'::regtype, '"char"'::regtype, 'uuid'::regtype, 'date'::regtype,
                                           'timestamp'::regtype, 'timestamptz'::regtype, 'bytea'::regtype)
                       then format('the type %s of %s.%I is not one that can name privacy units',
                                   format_type(a.atttypid, null), a.attrelid::regclass, a.attname)
                   when c.oid >= 16384 or not c.collisdeterministic
                       then format('the collation of %s.%I is not one of PostgreSQL''s own that tell texts apart',
                                   a.attrelid::regclass, a.attname)
               end
          from pg_attribute as a left join pg_collation as c on c.oid = a.attcollation
         where a.attrelid = relation and a.attnum = unit_column_problem.attnum);
end
$$;
comment on function dp.unit_column_problem(oid, int2) is 'internal: why a column cannot lead to privacy units';

-- Internal: the keys of a relation that may lead its rows to privacy units: foreign keys, those of
-- its parts included, and what owners linked; not those of which they said that they lead to none.
-- Columns are in the order of the child's.  "loose" says why rows may have no parent by this key, NULL
-- where the database forbids it; "excluded" that the owner has such rows never counted.
create or replace function dp.unit_edges(relation oid)
returns table (
    columns name[], parent oid, parent_columns name[], alike boolean, loose text, excluded boolean, problem text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with declared as (
        select k.oid, k.conrelid, k.confrelid, dp.topmost(k.confrelid) as top, pairs.*,
               concat_ws(', ',
                   case when not k.convalidated then 'a foreign key is not valid' end,
                   case when k.condeferrable then 'a foreign key is deferrable' end,
                   case when not coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
                        then 'a foreign key is not enforced' end,
                   case when k.conrelid <> unit_edges.relation
                        then format('a foreign key is of its part %s alone', k.conrelid::regclass) end,
                   case when exists (select from pg_attribute as a
                                      where a.attrelid = k.conrelid and a.attnum = any (k.conkey) and not a.attnotnull)
                        then format('%s can be NULL', array_to_string(pairs.mine, ', ')) end,
                   case when exists (select from pg_class as c
                                      where c.oid = unit_edges.relation and c.relkind = 'r' and c.relhassubclass)
                        then 'tables inherit from it, which foreign keys do not cover' end,
                   case when not pairs.alike
                        then format('types of %s and %s differ', array_to_string(pairs.mine, ', '),
                                    array_to_string(pairs.theirs, ', ')) end) as why
          from pg_constraint as k
         cross join lateral (
            select array_agg(a.attname order by u.mine), array_agg(b.attname order by u.mine),
                   bool_and(a.atttypid = b.atttypid
                            or a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
                           and b.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)),
                   min(coalesce(dp.unit_column_problem(a.attrelid, a.attnum),
                                dp.unit_column_problem(b.attrelid, b.attnum)))
              from unnest(k.conkey, k.confkey) as u(mine, theirs)
              join pg_attribute as a on a.attrelid = k.conrelid and a.attnum = u.mine
              join pg_attribute as b on b.attrelid = k.confrelid and b.attnum = u.theirs
            ) as pairs(mine, theirs, alike, problem)
         where k.contype = 'f'
           and k.conrelid = any (dp.statistics_members(unit_edges.relation))
           and (k.conparentid = 0 or not exists (
                   select from pg_constraint as above
                    where above.oid = k.conparentid
                      and above.conrelid = any (dp.statistics_members(unit_edges.relation))))
    ), linked as (
        select l.*,
               coalesce(
                   (select min(dp.unit_column_problem(l.child, n)) from unnest(l.attnums) as n),
                   (select min(dp.unit_column_problem(l.parent, n)) from unnest(l.parent_attnums) as n),
                   case when exists (
                       select from (select l.child, u.* from unnest(l.columns, l.attnums) as u(name, attnum)
                                    union all
                                    select l.parent, u.* from unnest(l.parent_columns, l.parent_attnums) as u(name, attnum)
                                   ) as c(relation, name, attnum)
                        where not exists (select from pg_attribute as a
                                           where a.attrelid = c.relation and a.attnum = c.attnum and a.attname = c.name))
                        then 'a column that was named to dp.link is gone or has another name' end) as problem,
               (select bool_and(a.atttypid = b.atttypid
                                or a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
                               and b.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype))
                  from unnest(l.attnums, l.parent_attnums) as u(mine, theirs)
                  join pg_attribute as a on a.attrelid = l.child and a.attnum = u.mine
                  join pg_attribute as b on b.attrelid = l.parent and b.attnum = u.theirs) as alike
          from dp.unit_link as l
          join pg_class as c on c.oid = l.parent
         where l.child = unit_edges.relation
    )
    select d.mine, d.top, d.theirs, d.alike, nullif(d.why, ''), coalesce(l.nulls = 'excluded', false), d.problem
      from declared as d
      left join linked as l on l.parent = d.top and l.columns = d.mine and l.parent_columns = d.theirs
     where coalesce(l.follow, true)
    union all
    select l.columns, l.parent::oid, l.parent_columns, coalesce(l.alike, false),
           'no foreign key says that there is a parent', l.nulls = 'excluded', l.problem
      from linked as l
     where l.follow
       and not exists (select from declared as d
                        where d.top = l.parent and d.mine = l.columns and d.theirs = l.parent_columns);
end
$$;
comment on function dp.unit_edges(oid) is 'internal: keys of a relation that lead to privacy units';

-- Internal: all relations with a key that leads to a relation, directly.
create or replace function dp.unit_children(relation oid)
returns setof oid
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select c.oid
      from (select distinct dp.topmost(k.conrelid) from pg_constraint as k
             where k.contype = 'f' and k.confrelid = any (dp.statistics_members(relation))
            union
            select l.child from dp.unit_link as l where l.parent = unit_children.relation) as c(oid)
     where exists (select from pg_class as p where p.oid = c.oid)
       and exists (select from dp.unit_edges(c.oid) as e where e.parent = unit_children.relation);
end
$$;
comment on function dp.unit_children(oid) is 'internal: relations with a key that leads to a relation';

-- Internal: all relations whose rows belong to units of a relation, itself not included.
create or replace function dp.unit_dependants(relation oid)
returns oid[]
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_oids oid[] := array[relation];
    latest oid[] := array[relation];
begin
    loop
        latest := array(select distinct c.oid from unnest(latest) as p(oid), dp.unit_children(p.oid) as c(oid)
                         where c.oid <> all (found_oids));
        exit when latest = '{}';
        found_oids := found_oids || latest;
    end loop;
    return array_remove(found_oids, relation);
end
$$;
comment on function dp.unit_dependants(oid) is 'internal: relations that belong to the units of a relation';
