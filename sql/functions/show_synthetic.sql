-- Synthetic tables in the schema dpv.  Their views run with the reader's rights: whoever may read the copy
-- may read them, and nobody else.

-- Internal: makes a view over a synthetic table.
create or replace function dp.show_rows(name name, synthetic oid, told text)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set citus.enable_ddl_propagation = off
as $$
begin
    execute (select format('create view dpv.%I with (security_invoker) as select %s from %I.%I', show_rows.name,
                           coalesce((select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute as a
                                      where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped), ''),
                           n.nspname, c.relname)
               from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where c.oid = synthetic);
    -- what took its name meanwhile is something else
    if exists (select from pg_rewrite as w
                 join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
                where w.ev_class = to_regclass(format('dpv.%I', show_rows.name))
                  and d.refclassid = 'pg_class'::regclass and d.refobjid not in (synthetic, w.ev_class)) then
        raise exception using errcode = 'PD015', message = format('%s is another table by now', synthetic::regclass);
    end if;
    execute format('alter view dpv.%I owner to dp_executor', show_rows.name);
    execute format('grant select on dpv.%I to dp_analyst, dp_owner', show_rows.name);
    execute format('comment on view dpv.%I is %L', show_rows.name, told);
end
$$;
comment on function dp.show_rows(name, oid, text) is 'internal: a view of the schema dpv over a synthetic table';

-- Internal: how much was spent on what a synthetic table is drawn from.
create or replace function dp.told_of_synthesis(job bigint)
returns text
language sql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select format('by %s at epsilon %s, delta %s', s.role_name, s.epsilon, s.delta) from dp.synthesis as s where s.id = job
$$;
comment on function dp.told_of_synthesis(bigint) is 'internal: who made a synthesis, and at what price';

-- Internal: shows the tables of a finished synthesis as dpv.<target>_<table>, and sees to the views of their originals;
-- tells which are not shown.
create or replace function dp.show_synthesis_tables(job bigint)
returns text[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found_table record;
    missed text[] := '{}';
begin
    for found_table in
        select p.oid as original, k.copy, dp.joined_name(k.target, c.relname) as name
          from dp.synthesis as s
         cross join unnest(s.protected) as u(name)
         cross join lateral (select to_regclass(u.name)::oid) as p(oid)
         cross join dp.synthetic_copies(p.oid) as k
          join pg_class as c on c.oid = k.copy
         where s.id = job and k.synthesis = job
         order by c.relname
    loop
        continue when exists (select from dp.shown_relation as s
                               where s.relation is null and s.synthetic = found_table.copy
                                 and to_regclass(format('dpv.%I', s.name)) is not null);
        if dp.shown_taken(found_table.name) then
            missed := missed || format('%s is not shown in the schema dpv: dpv.%I is there already; read it under its own name',
                                       found_table.copy::regclass, found_table.name);
            continue;
        end if;
        delete from dp.shown_relation as s
         where s.name = found_table.name or s.relation is null and s.synthetic = found_table.copy;
        perform dp.show_rows(found_table.name, found_table.copy,
                             format('synthetic rows made of %s %s', found_table.original::regclass, dp.told_of_synthesis(job)));
        insert into dp.shown_relation (name, synthetic) values (found_table.name, found_table.copy);
    end loop;
    perform dp.show_refusing(array(select to_regclass(u.name)::oid from dp.synthesis as s, unnest(s.protected) as u(name)
                                    where s.id = job and to_regclass(u.name) is not null));
    return missed;
end
$$;
comment on function dp.show_synthesis_tables(bigint) is 'internal: views for the tables of a synthesis';

-- Takes the tables of the caller's syntheses into a schema out of the schema dpv, so that they can be altered and dropped;
-- what showed their rows in the place of a protected relation refuses again.
-- Security definer on purpose: writes the catalogue and the schema dpv; shows and hides what the caller made.
create or replace function dp.hide_synthesis(target name)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_view record;
begin
    for found_view in
        select s.name, s.relation
          from dp.shown_relation as s
         where s.synthetic::oid in (select t.relation from dp.synthetic_tables(hide_synthesis.target) as t
                                      join pg_class as c on c.oid = t.relation
                                     where pg_has_role(dp.caller(), c.relowner, 'usage'))
         order by s.name
    loop
        perform dp.drop_shown(found_view.name);
        if found_view.relation is not null then
            raise notice '% shows no synthetic rows any more', format('dpv.%I', found_view.name);
            perform dp.show_refusing(array[found_view.relation::oid]);
        end if;
    end loop;
end
$$;
comment on function dp.hide_synthesis(name) is
    'takes the tables that dp.synthesize made in a schema out of the schema dpv; for who made them';

-- Shows the tables of the caller's last finished synthesis into a schema in the schema dpv, as dp.synthesize does.
-- Security definer on purpose, as above.
create or replace function dp.show_synthesis(target name)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    missed text;
    job constant bigint := (
        select max(s.id) from dp.synthesis as s
         where s.target = show_synthesis.target and s.state = 'done'
           and dp.caller_made(s.role_oid, s.role_name, s.incarnation));
begin
    if target is null then
        raise exception using errcode = 'PD040', message = 'parameter "target" must not be null';
    end if;
    if job is null then
        raise exception using
            errcode = 'PD040',
            message = format('there is no finished synthesis %s of yours', quote_ident(target)),
            hint = 'SELECT id, target, state FROM dp.syntheses;';
    end if;
    foreach missed in array dp.show_synthesis_tables(job) loop
        raise notice using message = missed;
    end loop;
end
$$;
comment on function dp.show_synthesis(name) is
    'shows the tables that dp.synthesize made in a schema as dpv.<schema>_<table>; for who made them';

-- Shows, in the view of the schema dpv that stands for a protected relation, the rows of its copy in a schema: to whoever
-- may read the copy.  Ends with the copy.  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue and the schema dpv.
create or replace function dp.show_synthetic(relation regclass, target name)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_copy record;
    chosen name;
begin
    if relation is null or target is null then
        raise exception using errcode = 'PD040', message = 'parameters of dp.show_synthetic must not be null';
    end if;
    perform dp.require_ownership(relation);
    select k.* into found_copy from dp.synthetic_copies(relation) as k where k.target = show_synthetic.target limit 1;
    if not found or (select s.kind from dp.standing(relation) as s) is distinct from 'protected' then
        raise exception using
            errcode = 'PD040',
            message = format('there is no finished synthesis %I of the protected relation %s', target, relation),
            detail = 'Its copy is there, complete and still belongs to who made it, or nothing is shown.',
            hint = 'SELECT id, target, state, reads FROM dp.syntheses;';
    end if;
    perform dp.show_refusing(array[relation::oid]);
    if exists (select from dp.shown_relation as s where s.relation = show_synthetic.relation and s.columns is not null) then
        raise exception using
            errcode = 'PD040',
            message = format('%s is exposed: its view answers questions', relation),
            hint = format('Synthetic rows have a view of their own; SELECT dp.unexpose(%L); ends the exposure.', relation);
    end if;
    select s.name into chosen from dp.shown_relation as s where s.relation = show_synthetic.relation;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('there is no free name for %s in the schema dpv', relation),
            hint = 'Drop the release that has its name: SELECT name FROM dp.releases;';
    end if;
    perform dp.drop_shown(chosen);
    perform dp.show_rows(chosen, found_copy.copy,
                         format('synthetic rows, not those of %s; made %s', relation, dp.told_of_synthesis(found_copy.synthesis)));
    insert into dp.shown_relation (name, relation, synthetic) values (chosen, relation, found_copy.copy);
end
$$;
comment on function dp.show_synthetic(regclass, name) is
    'lets the view of a protected relation in dpv show the rows of its synthetic copy; for the owner of the relation';

-- Takes back dp.show_synthetic.
create or replace function dp.hide_synthetic(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    chosen name;
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" of dp.hide_synthetic must not be null';
    end if;
    perform dp.require_ownership(relation);
    select s.name into chosen from dp.shown_relation as s
     where s.relation = hide_synthetic.relation and s.synthetic is not null;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('no synthetic rows are shown for %s', relation),
            hint = 'SELECT dp.show_synthetic(relation, target) shows them.';
    end if;
    perform dp.drop_shown(chosen);
    perform dp.show_refusing(array[relation::oid]);
end
$$;
comment on function dp.hide_synthetic(regclass) is 'take back dp.show_synthetic';
