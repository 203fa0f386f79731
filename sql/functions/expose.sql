-- Exposed views of the schema dpv: ordinary SQL on them is answered privately (docs/views.md).  Each is a view that
-- refuses, as show_refusing.sql makes it, with the columns that the owner chose; the library puts the relation in its
-- place while a statement is analysed.  Where the library is not loaded the view refuses.

-- Internal: what an exposed view stands for: the relation's OID and its columns by number, in the view's order; or 0,
-- message, detail and hint where the relation has other columns by now; NULL for a view that only refuses.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.exposed_columns(view oid)
returns text[]
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_view dp.shown_relation;
    changed name;
begin
    select s.* into found_view
      from pg_class as v join dp.shown_relation as s on s.name = v.relname
     where v.oid = exposed_columns.view and s.columns is not null;
    if not found then
        return null;
    end if;
    select e.name into changed
      from unnest(found_view.columns, found_view.attnums) with ordinality as e(name, attnum, place)
      left join pg_attribute as a on a.attrelid = found_view.relation and a.attnum = e.attnum and a.attname = e.name
      left join lateral dp.plain_type(a.atttypid, a.atttypmod) as b on true
      left join pg_type as t on t.oid = b.type
      left join pg_attribute as v on v.attrelid = exposed_columns.view and v.attnum = e.place
     -- a domain is shown as the type that it is over, an enum as text
     where ((b.type, b.modifier) = (v.atttypid, v.atttypmod) or t.typtype = 'e' and v.atttypid = 'text'::regtype) is not true
     order by e.place
     limit 1;
    if found then
        return array['0',
                     format('column %I of dpv.%I cannot be used: the relation changed', changed, found_view.name),
                     'It was dropped or renamed, or has another type than when it was exposed.',
                     format('Ask its owner for SELECT dp.expose(%L);', found_view.relation)];
    end if;
    return found_view.relation::oid::text || found_view.attnums::text[];
end
$$;
comment on function dp.exposed_columns(oid) is 'internal: the columns that an exposed view stands for';

-- Internal: what is said of a column of an exposed view: its own comment, and the keys that it is in.  Views have no
-- constraints, so comments are where tools and people find them.
create or replace function dp.told_of_column(relation oid, number int2)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select nullif(concat_ws('; ', col_description(relation, number), (
        select string_agg(case c.contype
                               when 'p' then 'primary key'
                               when 'u' then 'unique'
                               else format('references %s', coalesce((select format('dpv.%I', s.name) from dp.shown_relation as s
                                                                       where s.relation = c.confrelid and s.columns is not null),
                                                                     c.confrelid::regclass::text)) end
                          || case when cardinality(c.conkey) = 1 and c.contype = 'f'
                                       then format(' (%I)', (select a.attname from pg_attribute as a
                                                              where a.attrelid = c.confrelid and a.attnum = c.confkey[1]))
                                  when cardinality(c.conkey) = 1 then ''
                                  else format(', with %s', (select string_agg(quote_ident(a.attname), ', ' order by k.place)
                                                              from unnest(c.conkey) with ordinality as k(attnum, place)
                                                              join pg_attribute as a on a.attrelid = relation and a.attnum = k.attnum
                                                             where k.attnum <> number)) end,
                          '; ' order by strpos('puf', c.contype::text), c.conname)
          from pg_constraint as c
         where c.conrelid = relation and c.contype in ('p', 'u', 'f') and number = any (c.conkey))), '')
$$;
comment on function dp.told_of_column(oid, int2) is 'internal: comment of a column of an exposed view';

-- Internal: makes or changes an exposed view.  Where the new columns begin with the old ones the view stays, and what
-- others built on it.
create or replace function dp.show_exposed(relation oid, name name, attnums int2[], readers name[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set citus.enable_ddl_propagation = off
as $$
declare
    view constant oid := to_regclass(format('dpv.%I', name));
    found_name name;
    list text;
    reader name;
    told record;
    kept boolean := view is not null;
begin
    select string_agg(format('null::%s%s as %I', f.type_name,
                             case when a.attcollation not in (0, t.typcollation)
                                  then format(' collate %I.%I', n.nspname, c.collname) else '' end,
                             f.name), ', ' order by e.place)
      into list
      from unnest(show_exposed.attnums) with ordinality as e(attnum, place)
      join dp.shown_columns(show_exposed.relation) as f on f.attnum = e.attnum
      join pg_attribute as a on a.attrelid = show_exposed.relation and a.attnum = e.attnum
      join pg_type as t on t.oid = dp.plain_oid(a.atttypid)
      left join pg_collation as c on c.oid = a.attcollation
      left join pg_namespace as n on n.oid = c.collnamespace;
    kept := kept and not exists (
        select from dp.shown_columns(view) as old
          left join unnest(show_exposed.attnums) with ordinality as e(attnum, place) on e.place = old.attnum
          left join dp.shown_columns(show_exposed.relation) as f on f.attnum = e.attnum
          left join pg_attribute as a on a.attrelid = show_exposed.relation and a.attnum = e.attnum
          join pg_attribute as v on v.attrelid = view and v.attnum = old.attnum
         where (f.name, f.type_name) is distinct from (old.name, old.type_name)
            -- an enum has no collation, the text that shows it has the default one
            or v.attcollation <> case a.attcollation when 0 then (select t.typcollation from pg_type as t where t.oid = v.atttypid)
                                                         else a.attcollation end);
    select s.name into found_name from dp.shown_relation as s where s.relation = show_exposed.relation;
    if found_name is not null and (found_name <> show_exposed.name or not kept) then
        perform dp.drop_shown(found_name);
    end if;
    -- OFFSET: what is asked about its columns, all NULL, must not be found false without reading it
    execute format('create or replace view dpv.%I as select %s from dp.refuse_rows(%L::name) offset 0', show_exposed.name, list,
                   show_exposed.name);
    -- a view that refuses belongs to the extension; this one is dumped, and so are the views over it
    if exists (select from pg_depend as d where d.classid = 'pg_class'::regclass and d.deptype = 'e'
                  and d.objid = to_regclass(format('dpv.%I', show_exposed.name))) then
        execute format('alter extension dpsql drop view dpv.%I', show_exposed.name);
    end if;
    execute format('alter view dpv.%I owner to dp_executor', show_exposed.name);
    for reader in
        select r.rolname from pg_class as c, aclexplode(c.relacl) as x join pg_roles as r on r.oid = x.grantee
         where c.oid = to_regclass(format('dpv.%I', show_exposed.name)) and x.grantee <> c.relowner
    loop
        execute format('revoke all on dpv.%I from %I', show_exposed.name, reader);
    end loop;
    for reader in
        select r.rolname from pg_roles as r where r.rolname = any (coalesce(readers, array['dp_analyst']::name[]) || 'dp_owner'::name)
    loop
        execute format('grant select on dpv.%I to %I', show_exposed.name, reader);
    end loop;
    execute format('comment on view dpv.%I is %L', show_exposed.name,
                   concat_ws('; ', obj_description(show_exposed.relation, 'pg_class'),
                             format('stands for the protected relation %s: aggregates are answered with noise, rows are not shown',
                                    show_exposed.relation::regclass)));
    for told in
        select f.name, dp.told_of_column(show_exposed.relation, f.attnum) as text
          from unnest(show_exposed.attnums) as e(attnum)
          join dp.shown_columns(show_exposed.relation) as f on f.attnum = e.attnum
    loop
        execute format('comment on column dpv.%I.%I is %L', show_exposed.name, told.name, told.text);
    end loop;
    insert into dp.shown_relation as s (name, relation, columns, attnums, readers)
    select show_exposed.name, show_exposed.relation, array_agg(f.name order by e.place), show_exposed.attnums, show_exposed.readers
      from unnest(show_exposed.attnums) with ordinality as e(attnum, place)
      join dp.shown_columns(show_exposed.relation) as f on f.attnum = e.attnum
    on conflict on constraint shown_relation_pkey do update
        set columns = excluded.columns, attnums = excluded.attnums, readers = excluded.readers;
end
$$;
comment on function dp.show_exposed(oid, name, int2[], name[]) is 'internal: makes or changes an exposed view';

-- Internal: after a restore: finds the columns of exposed views by name.  A view whose columns are others only refuses.
create or replace function dp.show_exposed_again()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found_view dp.shown_relation;
    found_attnums int2[];
begin
    for found_view in select s.* from dp.shown_relation as s where s.columns is not null loop
        select array_agg(f.attnum order by e.place) into found_attnums
          from unnest(found_view.columns) with ordinality as e(name, place)
          join dp.shown_columns(found_view.relation) as f on f.name = e.name;
        if cardinality(found_attnums) = cardinality(found_view.columns) then
            perform dp.show_exposed(found_view.relation, found_view.name, found_attnums, found_view.readers);
        else
            perform dp.drop_shown(found_view.name);
        end if;
    end loop;
end
$$;
comment on function dp.show_exposed_again() is 'internal: finds the columns of exposed views after a restore';

-- Exposes a protected relation: count, sum, avg and their like over dpv.<name> are answered with noise.  "columns" are
-- those that can be used, all whose types questions take unless given; "readers" the roles that may read the view, all
-- analysts unless given; each pays from its own budget.  Called again it changes what is exposed.
-- Callers: the relation's owner, if a member of dp_owner.  Security definer on purpose: writes the catalogue and the
-- schema dpv.
create or replace function dp.expose(
    relation regclass,
    columns name[] default null,
    name text default null,
    readers name[] default null)
returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_view dp.shown_relation;
    chosen name;
    parts text[];
    named text;
    found_attnums int2[];
    hidden int2[];
    wrong text;
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" of dp.expose must not be null';
    end if;
    perform dp.require_ownership(relation);
    if (select d.kind from dp.standing(relation) as d) is distinct from 'protected' then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not protected', relation),
            detail = 'Only protected relations are exposed; privileges let others read the rest.',
            hint = case (select c.relkind from pg_class as c where c.oid = relation)
                   when 'v' then 'Expose the tables that the view reads with SELECT dp.expose(table), and create the view over'
                                 ' their views in the schema dpv.'
                   else format('SELECT dp.protect(%L);', relation) end;
    end if;
    perform dp.show_refusing(array[relation::oid]);
    select s.* into found_view from dp.shown_relation as s where s.relation = expose.relation;
    if found_view.synthetic is not null then
        raise exception using
            errcode = 'PD040',
            message = format('dpv.%I shows synthetic rows in the place of %s', found_view.name, relation),
            hint = format('SELECT dp.hide_synthetic(%L);', relation);
    end if;
    -- columns
    select string_agg(quote_ident(u.name), ', ') into wrong
      from unnest(columns) as u(name)
     where u.name is not null and not exists (select from dp.shown_columns(relation) as f where f.name = u.name);
    if wrong is not null or cardinality(columns) = 0 or array_position(columns, null) is not null
       or cardinality(columns) <> (select count(distinct u.name) from unnest(columns) as u(name)) then
        raise exception using
            errcode = 'PD040',
            message = case when wrong is not null then format('relation %s has no column %s', relation, wrong)
                           else 'parameter "columns" of dp.expose must name columns, each once' end;
    end if;
    hidden := dp.derived_columns(relation);
    select string_agg(quote_ident(a.attname), ', ') into wrong
      from pg_attribute as a
     where a.attrelid = relation and a.attnum = any (hidden) and a.attname = any (columns);
    if wrong is not null then
        raise exception using
            errcode = 'PD040',
            message = format('questions cannot use %s of %s', wrong, relation),
            detail = 'Its value in one row depends on other rows: dp.set_degree_bound numbers rows in it.',
            hint = 'Leave it out of "columns".';
    end if;
    select string_agg(format('%I (%s)', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum) into wrong
      from pg_attribute as a join pg_type as t on t.oid = dp.plain_oid(a.atttypid)
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
       and t.oid >= 16384 and t.typtype <> 'e' and (columns is null or a.attname = any (columns));
    if wrong is not null then
        if columns is not null then
            raise exception using
                errcode = 'PD040',
                message = format('questions cannot use %s of %s', wrong, relation),
                detail = 'Columns have types of PostgreSQL''s own, domains over these, or enums.',
                hint = 'Leave them out of "columns".';
        end if;
        raise notice using
            message = format('columns of %s are not exposed: %s', relation, wrong),
            detail = 'Columns have types of PostgreSQL''s own, domains over these, or enums.';
    end if;
    select array_agg(a.attnum order by array_position(columns, a.attname), a.attnum) into found_attnums
      from pg_attribute as a join pg_type as t on t.oid = dp.plain_oid(a.atttypid)
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attnum <> all (hidden)
       and (columns is null and (t.oid < 16384 or t.typtype = 'e') or a.attname = any (columns));
    if found_attnums is null then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s has no column that questions can use', relation);
    end if;
    -- name: behind "dpv." as SQL writes it, else as it is
    if name ~ '^dpv\.' then
        parts := parse_ident(name);
        named := parts[2];
    else
        named := name;
    end if;
    if octet_length(named) > 63 or named = '' or cardinality(parts) > 2 then
        raise exception using
            errcode = 'PD040',
            message = 'parameter "name" of dp.expose must be the name of a view, or that behind "dpv."',
            detail = 'The view is made in the schema dpv.';
    end if;
    chosen := named;
    chosen := coalesce(chosen, found_view.name);
    if chosen is null or chosen is distinct from found_view.name and dp.shown_taken(chosen) then
        raise exception using
            errcode = 'PD040',
            message = case when chosen is not null then format('there is a relation dpv.%I already', chosen)
                           else format('there is no free name for %s in the schema dpv', relation) end,
            hint = 'Choose another one: dp.expose(relation, name => ...).';
    end if;
    -- readers
    select string_agg(coalesce(quote_ident(u.name), 'NULL'), ', ') into wrong
      from unnest(readers) as u(name)
     where not exists (select from pg_roles as r where r.rolname = u.name);
    if wrong is not null then
        raise exception using
            errcode = 'PD040',
            message = format('role %s does not exist', wrong);
    end if;
    perform dp.show_exposed(relation, chosen, found_attnums, readers);
    return format('dpv.%I', chosen);
end
$$;
comment on function dp.expose(regclass, name[], text, name[]) is
    'let ordinary SQL over dpv.<name> be answered privately; columns, name and readers of the view can be chosen';

-- Takes back dp.expose: the view refuses all but questions for columns, under the relation's name.
-- Callers: the relation's owner, if a member of dp_owner.  Security definer on purpose, as above.
create or replace function dp.unexpose(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    chosen name;
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" of dp.unexpose must not be null';
    end if;
    perform dp.require_ownership(relation);
    select s.name into chosen from dp.shown_relation as s
     where s.relation = unexpose.relation and s.columns is not null;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not exposed', relation),
            hint = 'SELECT dp.expose(relation) exposes it.';
    end if;
    perform dp.drop_shown(chosen);
    perform dp.show_refusing(array[relation::oid]);
end
$$;
comment on function dp.unexpose(regclass) is 'take back dp.expose; the view of the relation only refuses from now on';
