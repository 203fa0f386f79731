-- Internal: that dp_executor may not read a relation, or parts of it on other servers, and what its owner can run.
create or replace function dp.reading_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    select concat_ws(' ',
               case when not has_schema_privilege('dp_executor', c.relnamespace, 'usage')
                    then format('GRANT USAGE ON SCHEMA %s TO dp_executor;', c.relnamespace::regnamespace) end,
               case when not has_table_privilege('dp_executor', c.oid, 'select')
                    then format('GRANT SELECT ON %s TO dp_executor;', c.oid::regclass) end)
      into mend
      from pg_class as c where c.oid = relation;
    mend := nullif(mend, '');
    problem := case when mend is not null then 'role dp_executor may not read it' end;
    if problem is null then
        select s.problem, s.mend into problem, mend from dp.shards_problem(relation) as s;
    end if;
    if problem is null then
        select f.problem, f.mend into problem, mend from dp.far_parents_problem(relation) as f;
    end if;
end
$$;
comment on function dp.reading_problem(oid) is 'internal: that dp_executor may not read a relation';

-- Internal: why rows of a relation cannot be followed to their privacy units, and what an owner can run, if one
-- statement mends it.  "units" is what dp.standing gives.  Where units are attributed to the results of a question
-- the same is refused.
create or replace function dp.way_problem(relation oid, units json, out problem text, out mend text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    hop record;
    parents oid[];
    node oid;
    options text[];
    filled boolean;
    types record;
begin
    for hop in
        select u.n, (u.unit ->> 0)::integer as root, h.hop ->> 'loose' as loose, (h.hop ->> 'excluded')::boolean as excluded,
               coalesce(lag((h.hop ->> 'parent')::oid) over way, relation) as child, (h.hop ->> 'parent')::oid as parent,
               array(select jsonb_array_elements_text(h.hop -> 'columns'))::name[] as columns,
               array(select jsonb_array_elements_text(h.hop -> 'parent_columns'))::name[] as parent_columns
          from json_array_elements(units) with ordinality as u(unit, n)
         cross join lateral jsonb_array_elements((u.unit -> 1)::jsonb) with ordinality as h(hop, m)
        window way as (partition by u.n order by h.m)
         order by u.n, h.m
    loop
        parents := parents || hop.parent;
        types := dp.unlike_columns(hop.child, hop.columns, hop.parent, hop.parent_columns);
        if types.unlike is not null or hop.loose is not null and not hop.excluded then
            problem := format('rows may belong to no privacy unit, since of %s %s', hop.child::regclass, hop.loose);
            filled := hop.loose = format('%s can be NULL', array_to_string(hop.columns, ', '));
            mend := format('SELECT dp.link(%L, %L, %s%s, ', hop.child::regclass, hop.parent::regclass,
                           dp.shown_names(hop.columns),
                           case when dp.primary_key(hop.parent) is distinct from hop.parent_columns
                                then format(', %s', dp.shown_names(hop.parent_columns)) end);
            options := array[mend || 'nulls => ''excluded'');'];
            if types.unlike is not null then
                problem := format('the columns that lead to its privacy unit cannot be compared: %s', types.unlike);
                options := array[types.mend];
            elsif filled then
                options := options || format('ALTER TABLE %s %s;', hop.child::regclass, dp.filling(hop.columns));
            end if;
            if exists (select from json_array_elements(units) with ordinality as o(unit, n)
                        where o.n <> hop.n and (o.unit ->> 0)::integer = hop.root and json_array_length(o.unit -> 3) = 0) then
                -- dropping rows is not what whoever has another way wants first
                if types.unlike is null then
                    options[1] := options[1] || format(' (rows where %s leads to no parent are never counted)',
                                                       array_to_string(hop.columns, ', '));
                end if;
                options := array[mend || 'follow => false); (every row still belongs to its unit by another way, and to none by this one)']
                           || options;
            end if;
            mend := array_to_string(options, ' or ');
            return;
        end if;
        -- there rows find what all rows of a key agree on (docs/shards.md, "Links")
        if dp.parts_of(hop.parent) is not null
           or exists (select from pg_foreign_table as f where f.ftrelid = any (dp.statistics_members(hop.parent)))
              and (select r.problem from dp.reading_problem(hop.parent) as r) is not null then
            continue;
        end if;
        if not coalesce((select bool_or(k.columns::jsonb <@ to_jsonb(hop.parent_columns))
                           from json_array_elements(dp.trusted_keys(hop.parent)) as k(columns)), false) then
            problem := format('the columns %s of %s, which lead to its privacy unit, are not a primary key or a valid'
                              ' unique key without NULL', array_to_string(hop.parent_columns, ', '), hop.parent::regclass);
            mend := dp.key_mend(hop.parent, hop.parent_columns);
            return;
        end if;
    end loop;
    -- what a question on the relation joins besides
    for node in select distinct p from unnest(parents) as u(p) order by p loop
        select coalesce(dp.own_problem(node), (select s.problem from dp.standing(node) as s), r.problem), r.mend
          into problem, mend
          from dp.reading_problem(node) as r;
        if problem is not null then
            problem := format('%s, which leads to its privacy unit, cannot be asked about: %s', node::regclass, problem);
            return;
        end if;
    end loop;
end
$$;
comment on function dp.way_problem(oid, json) is 'internal: why rows cannot be followed to their privacy units';

-- Internal: the statement that makes columns a key that units can be found by; NULL where there is none.
create or replace function dp.key_mend(relation oid, columns name[])
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    is_unique boolean;
begin
    if exists (select from pg_class as c
                where c.oid = relation and (c.relkind not in ('r', 'p') or c.relkind = 'r' and c.relhassubclass)) then
        return null;
    end if;
    is_unique := exists (
        select from pg_index as i
         where i.indrelid = relation and i.indisunique and i.indisvalid and i.indimmediate
           and i.indpred is null and i.indexprs is null
           and not exists (select from unnest(i.indkey::int2[]) with ordinality as u(attnum, n)
                             join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = u.attnum
                            where u.n <= i.indnkeyatts and a.attname <> all (columns)));
    return format('ALTER TABLE %s %s;', relation::regclass, concat_ws(', ',
        dp.filling(array(select a.attname from unnest(columns) with ordinality as u(name, n)
                           join pg_attribute as a on a.attrelid = relation and a.attname = u.name
                                                    and not dp.never_null(relation, a.attnum)
                          order by u.n)),
        case when not is_unique
             then format('ADD UNIQUE (%s)', (select string_agg(quote_ident(c), ', ' order by n)
                                               from unnest(columns) with ordinality as u(c, n))) end));
end
$$;
comment on function dp.key_mend(oid, name[]) is 'internal: the statement that makes columns a trusted key';

-- Internal: what forbids NULL in columns, as a part of ALTER TABLE; NULL for none.
create or replace function dp.filling(columns name[])
returns text
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select string_agg(format('ALTER %I SET NOT NULL', c), ', ' order by n)
              from unnest(columns) with ordinality as u(c, n));
end
$$;
comment on function dp.filling(name[]) is 'internal: what forbids NULL in columns';

-- Internal: names as they are written in a call.
create or replace function dp.shown_names(names name[])
returns text
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select format('array[%s]', string_agg(quote_literal(c), ', ' order by n))
              from unnest(names) with ordinality as u(c, n));
end
$$;
comment on function dp.shown_names(name[]) is 'internal: names as they are written in a call';

-- Internal: why every question on a declared relation is refused, or NULL, and what its owner can run.
create or replace function dp.asking_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    standing record;
begin
    select s.* into standing from dp.standing(relation) as s;
    problem := coalesce(dp.own_problem(relation), standing.problem);
    if problem is null and standing.units is not null then
        select w.problem, w.mend into problem, mend from dp.way_problem(relation, standing.units) as w;
    end if;
    if problem is null then
        select r.problem, r.mend into problem, mend from dp.reading_problem(relation) as r;
    end if;
end
$$;
comment on function dp.asking_problem(oid) is 'internal: why a relation cannot be asked about';
