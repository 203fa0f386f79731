-- Internal: the accounts to which questions over relations are charged, with a row for each relation, partition and child.
-- "ways" lists the paths of keys from the relation to the privacy unit of the account, as numbers of columns, or is 'row' if
-- rows are protected one by one; "shown" is the same with names.
create or replace function dp.coverage(objects oid[])
returns table (relation oid, schema_name name, relation_name name, root integer, ways text, shown text)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with whole(oid) as (
        select c.oid from pg_class as c where c.oid = any (objects)),
    paying(oid, root, ways) as (
        select w.oid, p.root, 'row'
          from whole as w
          join dp.policy as p on p.relation = w.oid and p.kind = 'protected'
          join dp.root as r on r.id = p.root and r.neighbours = 'row'
         union all
        select w.oid, u.root, string_agg(distinct t.ways, '; ' order by t.ways)
          from whole as w
         cross join lateral dp.unit_paths(w.oid) as u
         cross join lateral (
            with hop as (
                select h.n, (h.hop ->> 'parent')::oid as parent, h.hop ->> 'schema' as schema, h.hop ->> 'name' as name,
                       coalesce(lag((h.hop ->> 'parent')::oid) over (order by h.n), w.oid) as child,
                       k.columns, k.parent_columns,
                       (h.hop ->> 'alike')::boolean
                       and k.parent_columns = coalesce(lead(k.columns) over (order by h.n), array[u.unit_column::text]) as same
                  from jsonb_array_elements(u.hops) with ordinality as h(hop, n)
                 cross join lateral (
                    select array(select jsonb_array_elements_text(h.hop -> 'columns')) as columns,
                           array(select jsonb_array_elements_text(h.hop -> 'parent_columns')) as parent_columns) as k),
            -- the nearest column that names the unit: whether a key's row may be missing makes no other unit
            near as (
                select k.hops, coalesce((select h.parent from hop as h where h.n = k.hops), w.oid) as relation,
                       coalesce((select h.columns[1] from hop as h where h.n = k.hops + 1), u.unit_column::text) as unit_column
                  from (select coalesce(max(h.n) filter (where h.same is not true), 0) as hops from hop as h) as k)
            select coalesce(string_agg(concat_ws('>', dp.numbers_of(h.child, h.columns), h.parent,
                                                 dp.numbers_of(h.parent, h.parent_columns)), '>' order by h.n)
                                    filter (where h.n is not null) || '>', '')
                   || dp.numbers_of(n.relation, array[n.unit_column])
              from near as n left join hop as h on h.n <= n.hops
             group by n.relation, n.unit_column) as t(ways)
         where u.root is not null
         group by w.oid, u.root)
    select c.oid, n.nspname, c.relname, p.root, w.ways, dp.names_of_ways(m.oid, w.ways)
      from paying as p
     cross join lateral unnest(dp.statistics_members(p.oid)) as m(oid)
     cross join lateral dp.ways_of_member(p.oid, m.oid, p.ways) as w(ways)
      join pg_class as c on c.oid = m.oid
      join pg_namespace as n on n.oid = c.relnamespace;
end
$$;
comment on function dp.coverage(oid[]) is 'internal: which accounts pay for questions over relations';

-- Internal: numbers of columns, in the order of their names as given.
create or replace function dp.numbers_of(relation oid, columns text[])
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(string_agg(coalesce(a.attnum::text, '?'), ',' order by u.n), '')
      from unnest(columns) with ordinality as u(name, n)
      left join pg_attribute as a on a.attrelid = relation and a.attname = u.name and not a.attisdropped
$$;
comment on function dp.numbers_of(oid, text[]) is 'internal: numbers of columns';

-- Internal: ways to units of a partition or an inheriting table: those of the whole, by the numbers of its own columns.
create or replace function dp.ways_of_member(whole oid, member oid, ways text)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when ways = 'row' or member = whole then ways
                else (select string_agg(w.own, '; ' order by w.own)
                        from (select dp.numbers_of(ways_of_member.member, array(
                                        select a.attname::text
                                          from unnest(string_to_array(split_part(s.text, '>', 1), ',')) with ordinality as k(attnum, n)
                                          join pg_attribute as a on a.attrelid = whole and a.attnum::text = k.attnum
                                         order by k.n))
                                     || substr(s.text, length(split_part(s.text, '>', 1)) + 1) as own
                                from unnest(string_to_array(ways, '; ')) as s(text)) as w) end
$$;
comment on function dp.ways_of_member(oid, oid, text) is 'internal: ways to units by numbers of a partition''s columns';

-- Internal: names of columns, given by numbers, so that no two lists of them look the same; NULL if one was dropped.
create or replace function dp.names_of(relation oid, numbers text)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when bool_and(a.attnum is not null) then string_agg(quote_ident(a.attname), ', ' order by u.n) end
      from unnest(string_to_array(numbers, ',')) with ordinality as u(attnum, n)
      left join pg_attribute as a on a.attrelid = relation and a.attnum::text = u.attnum and not a.attisdropped
$$;
comment on function dp.names_of(oid, text) is 'internal: names of columns';

-- Internal: paths of keys from a relation to privacy units, with names instead of numbers; NULL if a relation or a column
-- on them was dropped.  A path lists triples, columns of the child, the parent and its columns, and then the unit's column.
create or replace function dp.names_of_ways(relation oid, ways text)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with step as (
        select w.way, i.n, i.n = (cardinality(w.path) + 2) / 3 as last,
               case i.n when 1 then names_of_ways.relation else w.path[3 * i.n - 4]::oid end as child,
               w.path[3 * i.n - 2] as columns, w.path[3 * i.n - 1]::oid as parent, w.path[3 * i.n] as parent_columns
          from (select s.way, string_to_array(s.text, '>') as path
                  from unnest(string_to_array(ways, '; ')) with ordinality as s(text, way)) as w
         cross join lateral generate_series(1, (cardinality(w.path) + 2) / 3) as i(n)
         where ways <> 'row'),
    shown as (
        select s.way, bool_and(t.text is not null) as whole, string_agg(t.text, ' -> ' order by s.n) as text
          from step as s
         cross join lateral (
            select dp.names_of(s.child, s.columns)
                   || case when s.last then ''
                           else (select format(' -> %I.%I (%s)', n.nspname, c.relname, k.names)
                                   from pg_class as c join pg_namespace as n on n.oid = c.relnamespace,
                                        dp.names_of(s.parent, s.parent_columns) as k(names)
                                  where c.oid = s.parent and k.names is not null) end as text) as t
         group by s.way)
    select case when ways = 'row' then 'row'
                when bool_and(s.whole) then string_agg(distinct s.text, '; ' order by s.text) end
      from shown as s
$$;
comment on function dp.names_of_ways(oid, text) is 'internal: ways to privacy units, by names';

-- Internal: whether recorded paths to units are to be compared by names instead of numbers.  That is so if a relation or
-- column on them was dropped, and all their parents that still exist are on the present paths, too.  Otherwise numbers
-- decide, because two tables can exchange their names.  "relation" is NULL if it was dropped.
create or replace function dp.ways_lapsed(relation oid, recorded text, present text)
returns boolean
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    -- a path is a list of triples: columns of the child, the parent, columns of the parent
    with step as (
        select w.way, e.n, e.numbers
          from unnest(string_to_array(recorded, '; ')) with ordinality as w(text, way)
         cross join unnest(string_to_array(w.text, '>')) with ordinality as e(numbers, n)
         where recorded <> 'row'),
    parent as (
        select s.way, s.n, s.numbers, c.oid
          from step as s left join pg_class as c on c.oid = s.numbers::oid
         where s.n % 3 = 2)
    select (relation is null
            or exists (select from parent as p where p.oid is null)
            or exists (
                select from step as s
                 cross join unnest(string_to_array(s.numbers, ',')) as k(attnum)
                  left join parent as p on p.way = s.way and p.n = s.n - case s.n % 3 when 0 then 1 else 2 end
                 where s.n % 3 <> 2
                   and not exists (select from pg_attribute as a
                                    where a.attrelid = case s.n when 1 then ways_lapsed.relation else p.oid end
                                      and a.attnum::text = k.attnum and not a.attisdropped)))
       and not exists (
            select from parent as p
             where p.oid is not null
               and not exists (select from unnest(string_to_array(present, '; ')) as w(text)
                                cross join unnest(string_to_array(w.text, '>')) with ordinality as e(numbers, n)
                                where e.n % 3 = 2 and e.numbers = p.numbers))
$$;
comment on function dp.ways_lapsed(oid, text, text) is 'internal: whether recorded ways are to be told by names';

-- Internal: an account that records losses of a relation's rows, and that the current declarations would not charge, or
-- would charge for other units of these rows; NULL if there is none.  "told" is the detail of the error, "mend" its hint.
-- Losses of a dropped relation count for the relation that has its name now, whose columns have numbers of their own.
create or replace function dp.uncovered(
    covers jsonb, out relation oid, out root integer, out told text, out mend text)
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    lost record;
begin
    select n.relation, c.root, c.ways, c.shown,
           (select string_agg(distinct o.shown, '; ') from jsonb_to_recordset(covers) as o(relation oid, root integer, shown text)
             where o.relation = n.relation and o.root = c.root) as present
      into lost
      from jsonb_to_recordset(covers) as n(relation oid, schema_name name, relation_name name)
      join dp.covered as c
        on c.relation = n.relation::regclass
        or c.relation is null and c.schema_name = n.schema_name and c.relation_name = n.relation_name
     where not exists (select from jsonb_to_recordset(covers) as o(relation oid, root integer, ways text, shown text)
                        where o.relation = n.relation and o.root = c.root
                          and (o.ways = c.ways and c.relation is not null
                               or o.shown = c.shown and (c.ways is null or dp.ways_lapsed(c.relation, c.ways, o.ways))))
     order by n.relation, c.root
     limit 1;
    if not found then
        return;
    end if;
    relation := lost.relation;
    root := lost.root;
    select case when lost.shown = 'row'
                then format('Losses of single rows of %s are recorded in the account of %I.%I', lost.relation::regclass,
                            r.schema_name, r.relation_name)
                else format('Losses of rows of %s are recorded in the account of %I.%I, as those of its units by %s',
                            lost.relation::regclass, r.schema_name, r.relation_name, lost.shown) end
           || case when lost.present is null then ', which questions would not be charged to any more.'
                   else format(', and would be those of units by %s.', lost.present) end,
           case when lost.present is not null
                then format('Let the owner of %s make rows belong to units as before, by dp.link and dp.unlink: %s.',
                            lost.relation::regclass, lost.shown)
                when lost.shown = 'row'
                then format('Let the owner protect it as before: SELECT dp.protect(%L);', format('%I.%I', r.schema_name, r.relation_name))
                else format('Let the owners protect it as before: SELECT dp.protect(%L, privacy_unit => %L); with the keys or'
                            ' links that led there.', format('%I.%I', r.schema_name, r.relation_name), r.unit_column) end
      into told, mend
      from dp.root as r where r.id = lost.root;
end
$$;
comment on function dp.uncovered(jsonb) is 'internal: an account that would not show all that rows lose';

-- Internal: whether an account is charged for the rows of one of the relations for the first time.
create or replace function dp.covers_more(covers jsonb)
returns boolean
language sql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from jsonb_to_recordset(covers) as n(relation oid, root integer, ways text)
                    where not exists (select from dp.covered as c
                                       where c.relation = n.relation::regclass and c.root = n.root and c.ways = n.ways))
$$;
comment on function dp.covers_more(jsonb) is 'internal: whether an account is charged for rows for the first time';

-- Internal: records to which accounts a charge is made, and for which relations.  Only dp_ledger may call it.
create or replace function dp.ledger_cover(covers jsonb)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into dp.covered (relation, schema_name, relation_name, root, ways, shown)
    select n.relation, n.schema_name, n.relation_name, n.root, n.ways, n.shown
      from jsonb_to_recordset(covers)
           as n(relation oid, schema_name name, relation_name name, root integer, ways text, shown text)
     where not exists (select from dp.covered as c
                        where c.relation = n.relation::regclass and c.root = n.root and c.ways = n.ways);
end
$$;
comment on function dp.ledger_cover(jsonb) is 'internal: writes down which accounts show losses of which rows';

-- Internal: refuses a declaration after which questions about relations would be refused, because an account that records
-- losses of their rows would no longer be charged, or would be charged for other units.  Only relations that the caller
-- owns are checked, so that no other role can keep an owner from protecting his relations.  Relations that no question could
-- read afterwards need no check.
create or replace function dp.require_covered(relations oid[])
returns void
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    lost record;
begin
    select u.* into lost
      from dp.uncovered((
        select coalesce(jsonb_agg(to_jsonb(c)), '[]') from dp.coverage(array(
            select c.oid from pg_class as c where c.oid = any (relations) and pg_has_role(dp.caller(), c.relowner, 'usage'))) as c)) as u;
    if lost.root is not null then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s was protected otherwise when questions about it were charged', lost.relation::regclass),
            detail = lost.told,
            hint = lost.mend;
    end if;
end
$$;
comment on function dp.require_covered(oid[]) is
    'internal: raises PD040 where an account would not show all that rows lose';

-- Internal: losses of a dropped relation become those of the relation that its owner protects in its place, whose columns
-- go on to be known by number.
create or replace function dp.take_over_losses(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    update dp.covered as c
       set relation = n.relation, ways = n.ways
      from dp.coverage(array[take_over_losses.relation::oid]) as n
     where c.relation is null and n.relation = take_over_losses.relation
       and (c.schema_name, c.relation_name, c.root, c.shown) = (n.schema_name, n.relation_name, n.root, n.shown);
end
$$;
comment on function dp.take_over_losses(regclass) is 'internal: losses of a dropped relation become those of its successor';
