-- Internal: which accounts pay for questions over relations, for each of these and of its partitions and children:
-- "ways" says how rows belong to what the account is of, by numbers of columns, "shown" the same by names.
create or replace function dp.coverage(objects oid[])
returns table (relation oid, schema_name name, relation_name name, root integer, ways text, shown text)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with whole(oid) as (
        select c.oid from pg_class as c where c.oid = any (objects)),
    paying(oid, root, ways, shown) as (
        select w.oid, p.root, 'row', 'row'
          from whole as w
          join dp.policy as p on p.relation = w.oid and p.kind = 'protected'
          join dp.root as r on r.id = p.root and r.neighbours = 'row'
         union all
        select w.oid, u.root, string_agg(t.ways, '; ' order by t.ways), string_agg(t.shown, '; ' order by t.shown)
          from whole as w
         cross join lateral dp.unit_paths(w.oid) as u
         cross join lateral (
            select coalesce(string_agg(concat_ws('>',
                                dp.numbers_of(s.child, s.columns), s.parent, dp.numbers_of(s.parent, s.parent_columns)), '>'
                            order by s.n) || '>', '')
                   || dp.numbers_of(coalesce((array_agg(s.parent order by s.n desc))[1], w.oid), array[u.unit_column::text]),
                   coalesce(string_agg(format('%s -> %s (%s)', array_to_string(s.columns, ', '), s.name,
                                              array_to_string(s.parent_columns, ', ')), ' -> ' order by s.n) || ' -> ', '')
                   || u.unit_column
              from (select h.n, (h.hop ->> 'parent')::oid as parent, h.hop ->> 'name' as name,
                           coalesce(lag((h.hop ->> 'parent')::oid) over (order by h.n), w.oid) as child,
                           array(select jsonb_array_elements_text(h.hop -> 'columns')) as columns,
                           array(select jsonb_array_elements_text(h.hop -> 'parent_columns')) as parent_columns
                      from jsonb_array_elements(u.hops) with ordinality as h(hop, n)) as s) as t(ways, shown)
         where u.root is not null
         group by w.oid, u.root)
    select c.oid, n.nspname, c.relname, p.root, p.ways, p.shown
      from paying as p
     cross join lateral unnest(dp.statistics_members(p.oid)) as m(oid)
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

-- Internal: an account that shows losses of some relation's rows and that what is declared now would not charge, or
-- would charge for other units of the rows; NULL for none.  "told" names it, "mend" says what to do.  A relation that
-- was dropped is the one that has its name now.
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
                        where o.relation = n.relation and o.root = c.root and (o.ways = c.ways or o.shown = c.shown))
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

-- Internal: whether a charge is the first of an account for some relation's rows.
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

-- Internal: writes down which accounts a charge is to.  Only dp_ledger may call it.
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

-- Internal: refuses a declaration after which relations could not be asked about, since an account that shows losses
-- of their rows would not be charged any more, or as another notion.  Only what could be asked about counts, and
-- only relations of the caller's: others must not keep an owner from protecting what is his.
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
