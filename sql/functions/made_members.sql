-- Internal: those of some relations that constraints made members of privacy units: each of their ways goes through
-- one of these.  Who was a member before had been decided about.
create or replace function dp.made_members(relations oid[], keys oid[])
returns oid[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        with key as (
            select k.oid = any (keys) as made, t.top as child, p.top as parent, n.columns
              from (select distinct topmost.top
                      from pg_constraint as k cross join unnest(dp.topmost(k.conrelid)) as topmost(top)
                     where k.oid = any (keys)) as t
             cross join lateral (
                select k.oid, k.conrelid, k.confrelid, k.conkey from pg_constraint as k
                 where k.contype = 'f' and k.conparentid = 0 and k.conrelid = any (dp.statistics_members(t.top))
                union all
                select null, l.child, l.parent, l.attnums from dp.unit_link as l
                 where l.follow and l.child = any (dp.statistics_members(t.top))) as k
             cross join unnest(dp.topmost(k.confrelid)) as p(top)
             cross join lateral (
                select jsonb_agg(a.attname order by a.attnum)
                  from unnest(dp.columns_above(k.conrelid, k.conkey, t.top)) as u(attnum)
                  join pg_attribute as a on a.attrelid = t.top and a.attnum = u.attnum) as n(columns)
        ), made as (
            -- what no other key said before
            select k.child, k.parent, k.columns from key as k group by k.child, k.parent, k.columns
            having bool_and(coalesce(k.made, false))
        ), way as (
            select r.oid, w.root, w.hops, w.unit_column, coalesce((w.hops -> -1 ->> 'parent')::oid, r.oid) as last
              from unnest(relations) as r(oid), dp.unit_paths(r.oid) as w
             where w.root is not null
        )
        select w.oid
          from way as w
         group by w.oid
        having bool_and(exists (
            select from (select coalesce(lag((h.hop ->> 'parent')::oid) over (order by h.n), w.oid) as child,
                                (h.hop ->> 'parent')::oid as parent, h.hop -> 'columns' as columns
                           from jsonb_array_elements(w.hops) with ordinality as h(hop, n)
                         union all
                         -- the last key is left out where its column names the unit
                         select w.last, p.relation, jsonb_build_array(w.unit_column)
                           from dp.policy as p where p.root = w.root and p.relation <> w.last) as step
              join made as m on m.child = step.child and m.parent = step.parent and m.columns = step.columns)));
end
$$;
comment on function dp.made_members(oid[], oid[]) is 'internal: relations that keys made members of units';

-- Internal: whether a relation and all that leads it to privacy units belong to one role.  What belongs to
-- somebody else can be given a key to other units at any time, which nobody else was asked about.
create or replace function dp.of_one_owner(relation oid)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        with recursive above(oid) as (
            select of_one_owner.relation
            union
            select e.parent from above as a, dp.unit_edges(a.oid) as e
             where exists (select from dp.unit_paths(e.parent))
        )
        select count(distinct c.relowner) = 1 from above as a join pg_class as c on c.oid = a.oid);
end
$$;
comment on function dp.of_one_owner(oid) is 'internal: whether all that leads a relation to units has one owner';
