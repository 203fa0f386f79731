-- Internal: the paths from rows of a relation to their privacy units (PRIVACY.md section 1).  "hops" lead to the
-- row whose "unit_column" names the unit; "loose" tells why that may fail; "problem" that there is no answer.
-- A row whose key refers to the unit itself names it, if equal there is equal here.
create or replace function dp.unit_paths(relation oid)
returns table (root integer, hops jsonb, unit_column name, loose text[], excluded boolean, problem text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    most constant integer := 32;
    nodes oid[] := array[relation];
    latest oid[] := array[relation];
    good oid[];
    grown oid[];
    edges jsonb := '[]';
    units jsonb;
    paths jsonb := jsonb_build_array(jsonb_build_object(
        'at', relation::bigint, 'hops', jsonb_build_array(), 'loose', jsonb_build_array(),
        'excluded', true, 'visited', jsonb_build_array(relation::bigint)));
    path jsonb;
    edge jsonb;
    unit jsonb;
    shorter boolean;
    made integer := 0;
begin
    if not exists (select from dp.root as r where r.neighbours = 'unit') then
        return;
    end if;
    select coalesce(jsonb_agg(jsonb_build_object(
               'root', r.id, 'at', t.top::bigint, 'column', coalesce(a.attname, r.unit_column),
               'problem', case
                   when t.top <> p.relation::oid
                       then format('%s, which has privacy units, is now part of %s', p.relation, t.top::regclass)
                   when a.attname is null
                       then format('the column %I that names its privacy unit is gone; protect %s again',
                                   r.unit_column, p.relation)
                   when a.attname <> r.unit_column and not dp.ledger_in_place()
                       then 'a restored database forgets which column names its privacy unit until'
                            ' dp.acknowledge_restore finds it'
                   else coalesce(dp.unit_column_problem(p.relation, r.unit_attnum),
                                 dp.unit_nulls_problem(p.relation, r.unit_attnum)) end)), '[]')
      into units
      from dp.policy as p
      join dp.root as r on r.id = p.root
      join pg_class as c on c.oid = p.relation
     cross join unnest(dp.topmost(c.oid)) as t(top)
      left join pg_attribute as a on a.attrelid = p.relation and a.attnum = r.unit_attnum and not a.attisdropped
     where p.kind = 'protected' and r.neighbours = 'unit';
    -- everything that keys lead to, and the keys
    loop
        exit when latest = '{}';
        edges := edges || coalesce((
            select jsonb_agg(jsonb_build_object(
                       'child', u.oid::bigint, 'parent', e.parent::bigint, 'columns', to_jsonb(e.columns::text[]),
                       'parent_columns', to_jsonb(e.parent_columns::text[]), 'alike', e.alike,
                       'loose', e.loose, 'excluded', e.excluded, 'problem', e.problem,
                       'schema', n.nspname, 'name', c.relname) order by e.parent, e.columns)
              from unnest(latest) as u(oid), dp.unit_edges(u.oid) as e
              join pg_class as c on c.oid = e.parent join pg_namespace as n on n.oid = c.relnamespace), '[]');
        latest := array(select distinct (e ->> 'parent')::oid from jsonb_array_elements(edges) as e
                         where (e ->> 'parent')::oid <> all (nodes));
        nodes := nodes || latest;
    end loop;
    -- of that, what leads on to a unit
    good := array(select distinct (u ->> 'at')::oid from jsonb_array_elements(units) as u
                   where (u ->> 'at')::oid = any (nodes));
    loop
        grown := array(select distinct (e ->> 'child')::oid from jsonb_array_elements(edges) as e
                        where (e ->> 'parent')::oid = any (good) and (e ->> 'child')::oid <> all (good));
        exit when grown = '{}';
        good := good || grown;
    end loop;
    if relation <> all (good) then
        return;
    end if;
    while jsonb_array_length(paths) > 0 loop
        path := paths -> 0;
        paths := paths - 0;
        made := made + 1;
        if made > most then
            problem := format('more than %s ways lead from it to privacy units', most);
            return next;
            return;
        end if;
        for unit in select u from jsonb_array_elements(units) as u where u -> 'at' = path -> 'at' loop
            shorter := coalesce((path -> 'last' ->> 'alike')::boolean and path -> 'last' ->> 'loose' is null
                                and path -> 'last' -> 'parent_columns' = jsonb_build_array(unit -> 'column'), false);
            root := (unit ->> 'root')::integer;
            hops := case when shorter then (path -> 'hops') - -1 else path -> 'hops' end;
            unit_column := case when shorter then path -> 'last' -> 'columns' ->> 0 else unit ->> 'column' end;
            loose := array(select jsonb_array_elements_text(path -> 'loose'));
            excluded := (path ->> 'excluded')::boolean;
            problem := coalesce(path ->> 'problem', unit ->> 'problem');
            return next;
        end loop;
        for edge in select e from jsonb_array_elements(edges) as e
                     where e -> 'child' = path -> 'at' and (e ->> 'parent')::oid = any (good) loop
            if path -> 'visited' @> jsonb_build_array(edge -> 'parent') then
                root := null; hops := null; unit_column := null; loose := null; excluded := null;
                problem := case when edge -> 'parent' = edge -> 'child'
                    then format('rows of %s refer to other rows of it by %s, which may be of other units; if that key'
                                ' leads to no unit, its owner can say so: %s',
                                (edge ->> 'parent')::oid::regclass,
                                array_to_string(array(select jsonb_array_elements_text(edge -> 'columns')), ', '),
                                dp.cuts_of_circle(path, edge))
                    else format('its keys lead in a circle, by %s; where one of them leads to no privacy unit, its owner can say so: %s',
                                (edge ->> 'parent')::oid::regclass, dp.cuts_of_circle(path, edge))
                    end;
                return next;
                continue;
            end if;
            paths := paths || jsonb_build_array(jsonb_build_object(
                'at', edge -> 'parent',
                'hops', (path -> 'hops') || jsonb_build_array(jsonb_build_object(
                            'columns', edge -> 'columns', 'parent', edge -> 'parent',
                            'parent_columns', edge -> 'parent_columns',
                            'schema', edge -> 'schema', 'name', edge -> 'name', 'alike', edge -> 'alike',
                            'loose', edge -> 'loose', 'excluded', edge -> 'excluded')),
                'loose', case when edge ->> 'loose' is null then path -> 'loose'
                              else (path -> 'loose') || to_jsonb(format('%s: %s', (edge ->> 'child')::oid::regclass,
                                                                        edge ->> 'loose')) end,
                'excluded', (path ->> 'excluded')::boolean
                            and (edge ->> 'loose' is null or (edge ->> 'excluded')::boolean),
                'visited', (path -> 'visited') || jsonb_build_array(edge -> 'parent'),
                'problem', coalesce(path ->> 'problem', edge ->> 'problem'),
                'last', edge));
        end loop;
    end loop;
end
$$;
comment on function dp.unit_paths(oid) is 'internal: how rows of a relation find their privacy units';

-- Internal: the statement that says of a key that it leads to no privacy unit.
create or replace function dp.cut_of_key(child oid, parent oid, columns name[], parent_columns name[])
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return format('SELECT dp.link(%L, %L, %s%s, follow => false)', child::regclass, parent::regclass,
                  dp.shown_names(columns),
                  case when dp.primary_key(parent) is distinct from parent_columns
                       then format(', %s', dp.shown_names(parent_columns)) end);
end
$$;
comment on function dp.cut_of_key(oid, oid, name[], name[]) is 'internal: says of a key that it leads to no privacy unit';

-- Internal: the same of each key of a circle that the last key of a path closes; both as dp.unit_paths has them.
create or replace function dp.cuts_of_circle(path jsonb, closing jsonb)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        with step as (
            select u.n, u.key, (path -> 'visited' ->> (u.n - 1)::integer)::oid as child
              from jsonb_array_elements((path -> 'hops') || jsonb_build_array(closing)) with ordinality as u(key, n))
        select string_agg(dp.cut_of_key(s.child, (s.key ->> 'parent')::oid,
                                        array(select jsonb_array_elements_text(s.key -> 'columns'))::name[],
                                        array(select jsonb_array_elements_text(s.key -> 'parent_columns'))::name[]),
                          ' or ' order by s.n)
          from step as s
         where s.n >= (select min(b.n) from step as b where b.child = (closing ->> 'parent')::oid));
end
$$;
comment on function dp.cuts_of_circle(jsonb, jsonb) is 'internal: the statements of which one cuts a circle of keys';

-- Internal: why a column that names a privacy unit may be NULL, or NULL.  Of foreign tables and parts nobody enforces
-- NOT NULL; there the owner says by it that rows with NULL belong to no unit, and questions never count them
-- (PRIVACY.md section 1, docs/shards.md).
create or replace function dp.unit_nulls_problem(relation oid, attnum int2)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select case
                   when not dp.never_null(a.attrelid, a.attnum)
                       then format('%s.%I, which names its privacy unit, can be NULL', c.oid::regclass, a.attname)
                   when c.relkind = 'r' and c.relhassubclass
                       then format('tables inherit from %s, where %I may be NULL', c.oid::regclass, a.attname)
               end
          from pg_attribute as a join pg_class as c on c.oid = a.attrelid
         where a.attrelid = relation and a.attnum = unit_nulls_problem.attnum);
end
$$;
comment on function dp.unit_nulls_problem(oid, int2) is 'internal: why a column that names a privacy unit may be NULL';

-- Internal: the roots of the privacy units that rows of a relation belong to; NULL if to none.
create or replace function dp.unit_roots(relation oid)
returns integer[]
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select array_agg(distinct u.root order by u.root) from dp.unit_paths(relation) as u where u.root is not null);
end
$$;
comment on function dp.unit_roots(oid) is 'internal: roots of the privacy units of a relation';

-- Internal: what a relation is declared as, by itself or as part of privacy units (NULL: not at all), the paths to
-- its units, and why these forbid to ask about it, or NULL.  All of it from one look for the paths.
create or replace function dp.standing(relation oid)
returns table (kind text, root integer, units json, problem text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    roots integer[];
    names text;
begin
    select json_agg(json_build_array(u.root, u.hops, u.unit_column, u.loose, u.excluded)) filter (where u.root is not null),
           array_agg(distinct u.root order by u.root) filter (where u.root is not null),
           min(u.problem)
      into units, roots, problem
      from dp.unit_paths(relation) as u;
    -- before what seems wrong because of it
    if (roots is not null or problem is not null) and exists (select from dp.unit_link)
       and not dp.ledger_in_place() then
        problem := 'the database was restored and forgets which columns were linked until dp.acknowledge_restore finds them';
    end if;
    select p.kind, p.root into kind, root from dp.policy as p
     where p.relation = standing.relation and p.kind <> 'withdrawn'
       and exists (select from pg_class as c where c.oid = standing.relation);
    if kind is null and roots is not null
       and not exists (select from pg_inherits as i where i.inhrelid = standing.relation) then
        kind := 'protected';
        root := roots[1];
    elsif problem is null and kind in ('protected', 'public') and roots is not null
       and not exists (select from dp.root as r where r.id = standing.root and r.neighbours = 'unit') then
        names := (select string_agg(distinct format('%I.%I', r.relation_name, r.unit_column), ', ')
                    from dp.root as r where r.id = any (roots));
        problem := format('it is declared as %s, but its rows belong to units of %s; to take that back: SELECT %s(%L)%s',
                          case kind when 'public' then 'public' else 'protected row by row' end, names,
                          case kind when 'public' then 'dp.undeclare_public' else 'dp.unprotect' end, relation::regclass,
                          (select ', or, if its keys lead to none: ' || string_agg(
                                      dp.cut_of_key(relation, e.parent, e.columns, e.parent_columns), ' and '
                                      order by e.parent, e.columns)
                             from dp.unit_edges(relation) as e where dp.unit_roots(e.parent) is not null));
    end if;
    return next;
end
$$;
comment on function dp.standing(oid) is 'internal: what a relation is declared as, and its privacy units';

-- Internal: all relations that may be asked about, those that belong to units included.
create or replace function dp.declarations()
returns table (relation oid, kind text, root integer)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select p.relation::oid, p.kind, p.root from dp.policy as p
     where p.kind <> 'withdrawn' and exists (select from pg_class as c where c.oid = p.relation);
    return query
    select m.oid, 'protected'::text, min(r.id)
      from dp.policy as u join dp.root as r on r.id = u.root,
           unnest(dp.unit_dependants(u.relation)) as m(oid)
     where u.kind = 'protected' and r.neighbours = 'unit'
       and exists (select from pg_class as c where c.oid = u.relation)
       and not exists (select from dp.policy as p where p.relation = m.oid and p.kind <> 'withdrawn')
     group by m.oid;
end
$$;
comment on function dp.declarations() is 'internal: relations that may be asked about';
