-- Internal: the topmost relations that a partition or child belongs to, or the relation itself.
create or replace function dp.topmost(relation oid)
returns oid[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    found_oids oid[] := '{}';
    latest oid[] := array[relation];
begin
    if not exists (select from pg_inherits as i where i.inhrelid = relation) then
        return latest;
    end if;
    while latest <> '{}' loop
        found_oids := found_oids || array(select o from unnest(latest) as o
                                           where not exists (select from pg_inherits as i where i.inhrelid = o));
        latest := array(select distinct i.inhparent from pg_inherits as i where i.inhrelid = any (latest));
    end loop;
    return array(select distinct o from unnest(found_oids) as o order by o);
end
$$;
comment on function dp.topmost(oid) is 'internal: the topmost parents of a partition or child';

-- Internal: columns of a partition or child as those of a relation that it is part of, by their names,
-- which inheritance keeps equal; NULL if one is missing there.
create or replace function dp.columns_above(part oid, attnums int2[], relation oid)
returns int2[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    if part = relation then
        return attnums;
    end if;
    return (select case when count(b.attnum) = cardinality(attnums) then array_agg(b.attnum order by u.n) end
              from unnest(attnums) with ordinality as u(attnum, n)
              join pg_attribute as a on a.attrelid = part and a.attnum = u.attnum
              left join pg_attribute as b on b.attrelid = relation and b.attname = a.attname and not b.attisdropped);
end
$$;
comment on function dp.columns_above(oid, int2[], oid) is 'internal: columns of a part as those of the whole';

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
                   when a.attnum = any (dp.derived_columns(a.attrelid))
                       then format('%s.%I numbers rows: its value in one row depends on other rows', a.attrelid::regclass, a.attname)
                   when case when a.atttypid < 16384 then a.atttypid else dp.plain_oid(a.atttypid) end
                            not in ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype,
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
         where a.attrelid = relation and a.attnum = unit_column_problem.attnum and not a.attisdropped);
end
$$;
comment on function dp.unit_column_problem(oid, int2) is 'internal: why a column cannot lead to privacy units';

-- Internal: the keys of a relation that may lead its rows to privacy units: foreign keys and what
-- owners linked, those of its parts included; not those of which they said that they lead to none.
-- Foreign keys of the same columns to the same columns count as one; as one of the parent if each partition or child has it.
-- What was said of columns holds for these columns, by whatever name.  "loose" says why rows may have no
-- parent by this key, NULL where the database forbids it; "excluded" that the owner has such rows never
-- counted; "alike" that both sides have one type.
create or replace function dp.unit_edges(relation oid)
returns table (
    columns name[], parent oid, parent_columns name[], alike boolean, loose text, excluded boolean, problem text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
    in_place constant boolean := not exists (select from dp.unit_link) or dp.ledger_in_place();
begin
    return query
    with recursive tree as (
        select unit_edges.relation as oid, array[unit_edges.relation] as above
        union all
        select i.inhrelid, t.above || i.inhrelid from tree as t join pg_inherits as i on i.inhparent = t.oid
    ), leaf as (
        select t.oid, t.above from tree as t join pg_class as c on c.oid = t.oid where c.relkind <> 'p'
    ), key as (
        -- foreign keys, those of parts unless they came from above
        select k.conrelid as child, k.confrelid as parent, k.conkey as mine, k.confkey as theirs, true as declared,
               concat_ws(', ',
                   case when not k.convalidated then 'a foreign key is not valid' end,
                   case when k.condeferrable then 'a foreign key is deferrable' end,
                   case when not coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
                        then 'a foreign key is not enforced' end) as why,
               true as follow, false as excluded, null::text as stale
          from pg_constraint as k
         where k.contype = 'f' and k.conrelid = any (members)
           and (k.conparentid = 0 or not exists (
                   select from pg_constraint as above where above.oid = k.conparentid and above.conrelid = any (members)))
        union all
        select l.child, l.parent, l.attnums, l.parent_attnums, false,
               concat_ws(', ', 'no foreign key says that there is a parent',
                   case when l.child <> unit_edges.relation
                        then format('its part %s alone is linked', l.child::regclass) end),
               l.follow, l.nulls = 'excluded',
               case when not in_place then 'a restored database forgets which columns were meant until'
                                           ' dp.acknowledge_restore finds them' end
          from dp.unit_link as l
         where l.child = any (members) and exists (select from pg_class as c where c.oid = l.parent)
    ), whole as (
        -- the same between topmost relations, in the order of the child's columns
        select k.*, t.top, pairs.*
          from key as k
         cross join unnest(dp.topmost(k.parent)) as t(top)
         cross join lateral (
            select array_agg(u.mine order by u.mine), array_agg(u.theirs order by u.mine)
              from unnest(dp.columns_above(k.child, k.mine, unit_edges.relation),
                          dp.columns_above(k.parent, k.theirs, t.top)) as u(mine, theirs)
            ) as pairs(above_mine, above_theirs)
    ), judged as (
        select w.*, j.*
          from whole as w
         cross join lateral (
            select array_agg(a.attname order by a.attnum), array_agg(b.attname order by a.attnum),
                   bool_and(t.mine = t.theirs
                            or t.mine in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
                           and t.theirs in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)),
                   coalesce(w.stale,
                            min(coalesce(dp.unit_column_problem(a.attrelid, a.attnum),
                                         dp.unit_column_problem(b.attrelid, b.attnum))),
                            case when count(*) <> cardinality(w.mine) or bool_or(a.attisdropped or b.attisdropped)
                                 then 'a column that leads to a privacy unit is gone' end),
                   bool_and(dp.never_null(a.attrelid, a.attnum)) and not exists (
                       select from unnest(w.mine) as part(attnum) where not dp.never_null(w.child, part.attnum))
              from unnest(w.above_mine, w.above_theirs) as u(mine, theirs)
              join pg_attribute as a on a.attrelid = unit_edges.relation and a.attnum = u.mine
              join pg_attribute as b on b.attrelid = w.top and b.attnum = u.theirs
             cross join lateral (
                select case when a.atttypid < 16384 then a.atttypid else dp.plain_oid(a.atttypid) end,
                       case when b.atttypid < 16384 then b.atttypid else dp.plain_oid(b.atttypid) end
                ) as t(mine, theirs)
            ) as j(names, parent_names, same, wrong, filled)
    ), cut as (
        select j.child, j.top, j.above_mine, j.above_theirs
          from judged as j where not j.declared and not j.follow and j.stale is null
    ), united as (
        select j.names, j.parent_names, j.top, j.above_mine, j.above_theirs, j.same, j.declared, min(j.wrong) as wrong,
               bool_or(j.excluded) as excluded, bool_and(coalesce(j.filled, false)) as filled,
               string_agg(distinct nullif(j.why, ''), ', ') as why, array_agg(j.child) as children,
               coalesce(array_agg(j.child) filter (where j.why = '' and j.filled), '{}') as enforced
          from judged as j
         where j.follow
         group by j.names, j.parent_names, j.top, j.above_mine, j.above_theirs, j.same, j.declared
    ), told as (
        -- a row has a parent if its table, or one that this is a partition or child of, has the key
        select u.*,
               case when not u.declared then u.why
                    when exists (select from leaf as l where not l.above && u.enforced)
                    then concat_ws(', ', u.why,
                             case when not u.filled then format('%s can be NULL', array_to_string(u.names, ', ')) end,
                             (select format('its partition or child %s has no foreign key', min(l.oid::regclass::text))
                                from leaf as l where not l.above && u.children having count(*) > 0)) end as reason
          from united as u
    )
    select coalesce(d.names, '{}'), d.top, coalesce(d.parent_names, '{}'), coalesce(d.same, false),
           nullif(concat_ws(', ', nullif(d.reason, ''),
               case when exists (select from pg_class as c
                                  where c.oid = unit_edges.relation and c.relkind = 'r' and c.relhassubclass)
                    then 'tables inherit from it, which foreign keys do not cover' end,
               case when not coalesce(d.same, false)
                    then format('types of %s and %s differ', array_to_string(d.names, ', '),
                                array_to_string(d.parent_names, ', ')) end), ''),
           d.excluded or exists (select from judged as l
                                  where not l.declared and l.follow and l.excluded and l.top = d.top
                                    and l.above_mine = d.above_mine and l.above_theirs = d.above_theirs),
           coalesce(d.wrong, case when d.names is null then 'a column that leads to a privacy unit is gone' end)
      from told as d
     where (d.declared
            or not exists (select from judged as k
                            where k.declared and k.top = d.top
                              and k.above_mine = d.above_mine and k.above_theirs = d.above_theirs))
       -- Keys that the owner cut are left out, if it is known which columns were meant.  A cut of one partition,
       -- declared before it was attached, does not cut the others: each leaf must be cut, itself or above it.
       and not (exists (select from cut as c where (c.top, c.above_mine, c.above_theirs) = (d.top, d.above_mine, d.above_theirs))
                and not exists (
                    select from leaf as l
                     where not exists (
                         select from cut as c
                          where (c.top, c.above_mine, c.above_theirs) = (d.top, d.above_mine, d.above_theirs)
                            and c.child = any (l.above))));
end
$$;
comment on function dp.unit_edges(oid) is 'internal: keys of a relation that lead to privacy units';

-- Internal: all relations with a key that leads to a relation, directly.
create or replace function dp.unit_children(relation oid)
returns setof oid
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
    candidates constant oid[] := array(
        select k.conrelid from pg_constraint as k where k.contype = 'f' and k.confrelid = any (members)
        union
        select l.child from dp.unit_link as l where l.parent = any (members));
begin
    return query
    select distinct t.top
      from unnest(candidates) as c(oid), unnest(dp.topmost(c.oid)) as t(top)
     where exists (select from pg_class as p where p.oid = t.top)
       and exists (select from dp.unit_edges(t.top) as e where e.parent = unit_children.relation);
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
    found_oids oid[] := dp.topmost(relation);
    latest oid[] := found_oids;
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
