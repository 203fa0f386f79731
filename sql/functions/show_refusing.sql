-- Views of the schema dpv for protected relations.  Each has the relation's columns and refuses to be read, with a hint
-- that names a synthetic copy, or shows synthetic rows where an owner said so (show_synthetic.sql).  They depend neither
-- on the relation nor on types that somebody made, so that they hinder no change of them.

-- Internal: two names as one of at most 63 bytes, and different ones for different names: a longer one ends in a digest of all.
create or replace function dp.joined_name(first text, second text)
returns name
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when octet_length(j.name) <= 63 then j.name
                else (select left(j.name, max(n)) from generate_series(1, 54) as n where octet_length(left(j.name, n)) <= 54)
                     || '_' || left(md5(j.name), 8) end::name
      from (select first || '_' || second) as j(name)
$$;
comment on function dp.joined_name(text, text) is 'internal: two names as one';

-- Internal: the columns of a relation as a refusing view has them, in their order: names, and types of PostgreSQL's
-- own; domains have the type that they are based on if that is PostgreSQL's own; others are text.
create or replace function dp.shown_columns(relation oid)
returns table (attnum int2, name name, type_name text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select a.attnum, a.attname, case when b.type < 16384 then format_type(b.type, b.modifier) else 'text' end
      from pg_attribute as a cross join lateral dp.plain_type(a.atttypid, a.atttypmod) as b
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
     order by a.attnum
$$;
comment on function dp.shown_columns(oid) is 'internal: columns of the view that stands for a relation';

-- Internal: whether a name of the schema dpv is taken: by a relation, by a release that lost its table, or by another
-- transaction that has not ended, such as one that makes a release.
create or replace function dp.shown_taken(name name)
returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    -- waits a moment: what the other transaction made is looked for afterwards
    if dp.hold_name(shown_taken.name) is not null then
        return true;
    end if;
    return to_regclass(format('dpv.%I', shown_taken.name)) is not null
        or exists (select from dp.stored_release as r where r.name = shown_taken.name);
end
$$;
comment on function dp.shown_taken(name) is 'internal: whether a name of the schema dpv is taken';

-- Internal: drops a view of the schema dpv, and what others built on it: what they read is not theirs to keep.
create or replace function dp.drop_shown(name name)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    view constant oid := to_regclass(format('dpv.%I', drop_shown.name));
begin
    if exists (select from pg_class as c where c.oid = view and c.relkind = 'v') then
        if exists (select from pg_depend as d
                    where d.classid = 'pg_class'::regclass and d.objid = view and d.deptype = 'e') then
            execute format('alter extension dpsql drop view dpv.%I', drop_shown.name);
        end if;
        execute format('drop view dpv.%I cascade', drop_shown.name);
    end if;
    delete from dp.shown_relation as s where s.name = drop_shown.name;
end
$$;
comment on function dp.drop_shown(name) is 'internal: drops a view of the schema dpv';

-- Internal: makes views for those of some relations that are protected and have none, or one of other columns; drops
-- those of relations that are not any more.
create or replace function dp.show_refusing(relations oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
-- Citus would otherwise make the view, and with it this extension, on all nodes
set citus.enable_ddl_propagation = off
as $$
declare
    found_relation record;
    chosen name;
begin
    for found_relation in
        select u.oid, n.nspname, c.relname, s.name, s.synthetic, s.columns is not null as exposed, c.oid is not null
                 and coalesce((select d.kind from dp.standing(u.oid) as d) = 'protected', false) as protected,
               case when s.name is not null then to_regclass(format('dpv.%I', s.name)) end as view,
               (select string_agg(format('%I %s', f.name, f.type_name), ',') from dp.shown_columns(c.oid) as f) as columns,
               (select string_agg(format('null::%s as %I', f.type_name, f.name), ', ') from dp.shown_columns(c.oid) as f) as list
          from (select distinct unnest(relations)) as u(oid)
          left join pg_class as c on c.oid = u.oid
          left join pg_namespace as n on n.oid = c.relnamespace
          left join dp.shown_relation as s on s.relation = u.oid
         order by n.nspname, c.relname
    loop
        if not found_relation.protected then
            if found_relation.name is not null then
                perform dp.drop_shown(found_relation.name);
            end if;
            continue;
        end if;
        continue when found_relation.view is not null
                  and (found_relation.synthetic is not null or found_relation.exposed
                       or found_relation.columns is not distinct from
                          (select string_agg(format('%I %s', f.name, f.type_name), ',')
                             from dp.shown_columns(found_relation.view) as f));
        chosen := found_relation.name;
        if chosen is not null then
            perform dp.drop_shown(chosen);
        else
            select t.name into chosen
              from (values (1, found_relation.relname),
                           (2, dp.joined_name(found_relation.nspname, found_relation.relname))) as t(n, name)
             where not dp.shown_taken(t.name)
             order by t.n limit 1;
            continue when chosen is null;
            -- of a view that somebody dropped
            delete from dp.shown_relation as s where s.name = chosen;
        end if;
        -- OFFSET: what is asked about its columns, all NULL, must not be found false without reading it
        execute format('create view dpv.%I as select %s from dp.refuse_rows(%L::name) offset 0', chosen,
                       coalesce(found_relation.list, ''), chosen);
        execute format('grant select on dpv.%I to dp_analyst, dp_owner', chosen);
        execute format('comment on view dpv.%I is %L', chosen,
                       format('stands for the protected relation %s, whose rows are not shown', found_relation.oid::regclass));
        execute format('alter extension dpsql add view dpv.%I', chosen);
        insert into dp.shown_relation (name, relation) values (chosen, found_relation.oid);
    end loop;
end
$$;
comment on function dp.show_refusing(oid[]) is 'internal: views for protected relations';

-- Internal: the tables that finished syntheses made of a relation, are still what was made and are still the maker's.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.synthetic_copies(relation oid)
returns table (synthesis bigint, target name, copy oid)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.id, s.target, c.oid
      from dp.synthesis as s
     cross join (select i.token from dp.ledger_incarnation as i) as here
     -- protected tables by their places, in the order in which they are listed
      join lateral (select t.*, row_number() over (order by t.place) as n
                      from dp.synthesis_table as t where t.synthesis = s.id) as t on true
      join lateral unnest(s.relations, s.protected) with ordinality as p(oid, name, n) on p.n = t.n
      join pg_class as c on c.oid = to_regclass(format('%I.%I', t.schema_name, t.table_name))
     where s.state = 'done' and c.relkind = 'r' and dp.is_maker(c.relowner, s.role_oid, s.role_name, s.incarnation)
       and (c.oid = t.relation or s.incarnation <> here.token)
       and case when s.incarnation = here.token then p.oid else to_regclass(p.name) end = synthetic_copies.relation
     order by s.id desc;
end
$$;
comment on function dp.synthetic_copies(oid) is 'internal: finished synthetic copies of a relation';

-- Internal: what an asker may be told who wants rows of a protected relation: the copies that he can read,
-- or how to make one.  NULL where he may not know of the relation.  Security definer on purpose: reads the catalogue.
create or replace function dp.instead_of_rows(relation oid)
returns text
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    copies text;
    named constant text := relation::regclass::text;
    exposed constant text := (select format('dpv.%I', s.name) from dp.shown_relation as s
                               where s.relation = instead_of_rows.relation and s.columns is not null
                                 and has_table_privilege(dp.caller(), to_regclass(format('dpv.%I', s.name)), 'select'));
begin
    if not (pg_has_role(dp.caller(), 'dp_analyst', 'usage') or dp.caller_administers()) then
        return null;
    end if;
    if (select s.kind from dp.standing(relation) as s) = 'public' then
        return format('Questions may join it without a privilege; where it is read by itself, as in the sub-query of a value, its'
                      || ' owner must allow that: GRANT SELECT ON %s TO %s.', named, dp.caller()::regrole);
    end if;
    if (select s.kind from dp.standing(relation) as s) is distinct from 'protected' then
        return null;
    end if;
    -- whoever may read the rows is not sent to tables of others, where reading runs their code
    if has_table_privilege(dp.caller(), relation, 'select') then
        return format('Numbers: SELECT dp_count(*) FROM %s. You may read its rows: SELECT * FROM %1$s.', named);
    end if;
    select string_agg(distinct case when v.name is null then k.copy::regclass::text else format('dpv.%I', v.name) end, ', ')
      into copies
      from dp.synthetic_copies(relation) as k
      join pg_class as c on c.oid = k.copy
      left join dp.shown_relation as v on v.synthetic = k.copy and v.relation is null
     where has_table_privilege(dp.caller(), k.copy, 'select')
       and has_schema_privilege(dp.caller(), c.relnamespace, 'usage');
    return coalesce('Numbers: SELECT count(*) FROM ' || exposed || '. ', format('Numbers: SELECT dp_count(*) FROM %s. ', named))
        || case when copies is not null then format('Synthetic rows, which cost nothing: SELECT * FROM %s.', copies)
           else (
               -- with what its rows refer to
               with recursive copied(oid) as (
                   select relation
                   union
                   select k.confrelid from copied as c join pg_constraint as k on k.conrelid = c.oid and k.contype = 'f'
                    where (select s.kind from dp.standing(k.confrelid) as s) = 'protected')
               select format('For rows make a synthetic copy: CALL dp.synthesize(''syn'', array[%s]::regclass[], epsilon => 1, delta => 1e-6);',
                             string_agg(quote_literal(c.oid::regclass::text), ', ' order by c.oid = relation, c.oid::regclass::text))
                 from copied as c) end;
end
$$;
comment on function dp.instead_of_rows(oid) is 'internal: a hint for who wants rows of a protected relation';

-- Internal: message, detail and hint for who reads a view of a protected relation.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.rows_refused(name name)
returns text[]
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_relation constant regclass := (select s.relation from dp.shown_relation as s where s.name = rows_refused.name);
    hint constant text := case when (select s.kind from dp.standing(found_relation) as s) = 'protected'
                               then dp.instead_of_rows(found_relation) end;
begin
    if hint is null then
        return array[format('dpv.%I has no rows', name), 'The relation that it stood for is not protected any more, or is gone.',
                     'SELECT * FROM dp.relations;'];
    end if;
    return array[format('rows of the protected relation %s cannot be read', found_relation),
                 'Questions over it are answered with noise; its rows are told to nobody.', hint];
end
$$;
comment on function dp.rows_refused(name) is 'internal: how reading a view of a protected relation is refused';

-- Internal: refuses to read a view of the schema dpv.  Not executed where no row is asked for (LIMIT 0, WHERE false).
create or replace function dp.refuse_rows(name name)
returns boolean
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_refuse_rows';
comment on function dp.refuse_rows(name) is 'internal: refuses to read a view of a protected relation';
