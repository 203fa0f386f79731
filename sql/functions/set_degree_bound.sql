-- Bounds how many rows of a relation can have the same values in some columns, as a public fact (PRIVACY.md
-- section 8): a column dp_slot_... numbers such rows from 1 to "bound", by a unique key with these columns and a
-- CHECK.  PostgreSQL keeps both in every session and isolation level, and neither can be switched off.  A trigger
-- gives new rows the first number that is free, so that nobody who writes needs to know of it; it protects nothing.
-- Writers of the same values wait for each other at a row of a table of turns, which is the owner's alone.  Advisory
-- locks were rejected: any role can take them, so that writers wait for ever, and try them, and so see when a row
-- with certain values is written (section 2); and they are kept in memory, one for each value.
-- A new bound takes the place of the old one.  Callers: the relation's owner.
-- Security invoker on purpose: the constraints, and the trigger's function, are the owner's own.  The function is
-- whoever calls this: it reads the table, which runs code that its owner put into indexes.
create or replace function dp.set_degree_bound(relation regclass, columns name[], bound integer)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    slot constant name := dp.slot_name(columns);
    listed constant text := dp.shown_columns(columns, '');
    turns constant integer := 16384;
    owner name;
    own_schema name;
    own_name name;
    turns_name name;
    filler text;
    reader oid;
    body text;
begin
    perform dp.require_boundable(relation, columns);
    if bound is null or bound < 1 then
        raise exception using
            errcode = 'PD040',
            message = 'dp.set_degree_bound needs a bound from 1',
            hint = 'SELECT dp.set_degree_bound(''rating'', array[''movie''], 100); for example.';
    end if;
    if dp.is_numbered(relation, columns) then
        perform dp.drop_degree_bound(relation, columns);
    end if;
    execute format('alter table %s add column %I integer', relation, slot);
    perform dp.remember_numbered(relation, slot);
    execute format('update only %1$s as t set %2$I = n.place from (select ctid, case when row(%3$s) is not null then row_number() over (partition by %3$s)'
                   ' else 1 end as place'
                   ' from only %1$s) as n where n.ctid = t.ctid', relation, slot, listed);
    begin
        execute format('alter table %1$s alter column %2$I set not null, add check (%2$I between 1 and %3$s), add unique (%4$s, %2$I)',
                       relation, slot, bound, listed);
    exception when check_violation then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s has more than %s rows with the same %s', relation, bound, listed),
            hint = 'Give a larger bound, or let rows go first.';
    end;
    owner := (select r.rolname from pg_class as c join pg_roles as r on r.oid = c.relowner where c.oid = relation);
    select n.nspname, c.relname into own_schema, own_name
      from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where c.oid = relation;
    turns_name := left(own_name::text, 31) || '_' || left(slot::text, 31);
    filler := format('%I.%I', own_schema, turns_name);
    -- whoever waits for the turn sees which numbers were taken meanwhile; what holds the bound is the key
    body := format($body$
begin
    if tg_op = 'UPDATE' and row(%1$s)::text = row(%2$s)::text and new.%3$I is not null then
        return new;
    end if;
    if (select c.relowner from pg_class as c where c.oid = tg_relid) <> quote_ident(current_user)::regrole then
        raise exception using
            errcode = 'insufficient_privilege', message = %9$L, hint = 'SELECT dp.set_degree_bound(...) by its owner again.';
    end if;
    -- the statements below find both tables by names, which another role can have given to something else since
    if not exists (select from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
                    where c.oid = tg_relid and n.nspname = %11$L and c.relname = %12$L)
       or not exists (select from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
                       where n.nspname = %11$L and c.relname = %13$L and c.relkind = 'r'
                         and c.relowner = quote_ident(current_user)::regrole) then
        raise exception using
            errcode = 'insufficient_privilege', message = %14$L, hint = 'SELECT dp.set_degree_bound(...) by its owner again.';
    end if;
    perform from %4$s as t where t.turn = hashtextextended(row(%2$s)::text, 0) & %10$s for update;
    select n into new.%3$I
      from generate_series(1, %5$s) as n
     where not exists (select from %6$s as t where (%7$s) = (%2$s) and t.%3$I = n)
     order by n limit 1;
    if new.%3$I is null then
        raise exception using
            errcode = 'check_violation', message = %8$L, hint = 'dp.set_degree_bound says how many may have.';
    end if;
    return new;
end
$body$,
        dp.shown_columns(columns, 'old.'), dp.shown_columns(columns, 'new.'), slot, filler, bound,
        format('%I.%I', own_schema, own_name),
        dp.shown_columns(columns, 't.'),
        format('relation %s has %s rows with the same %s already', relation, bound, listed),
        format('relation %s belongs to another role than when its rows were bounded', relation), turns - 1,
        own_schema, own_name, turns_name, format('relation %s has another name or schema than when its rows were bounded', relation));
    execute format('create function %s() returns trigger language plpgsql volatile parallel unsafe security definer'
                   ' set search_path = pg_catalog, pg_temp as %L', filler, body);
    execute format('revoke all on function %s() from public', filler);
    execute format('alter function %s() owner to %I', filler, owner);
    execute format('create table %s (turn integer primary key)', filler);
    execute format('insert into %s select generate_series(0, %s)', filler, turns - 1);
    execute format('alter table %s owner to %I', filler, owner);
    -- default privileges may have let others take turns
    for reader in
        select distinct a.grantee from pg_class as c, aclexplode(c.relacl) as a
         where c.oid = filler::regclass and a.grantee <> c.relowner
    loop
        execute format('revoke all on %s from %s', filler,
                       case when reader = 0 then 'public' else reader::regrole::text end);
    end loop;
    execute format('create trigger %I before insert or update on %s for each row execute function %s()',
                   slot, relation, filler);
end
$$;
comment on function dp.set_degree_bound(regclass, name[], integer) is
    'bound, by a key and a check, how many rows can have the same values in some columns';

-- Takes back dp.set_degree_bound: the column with its constraints, and the trigger.
create or replace function dp.drop_degree_bound(relation regclass, columns name[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    slot constant name := dp.slot_name(columns);
    filler oid;
    turns regclass;
begin
    perform dp.require_boundable(relation, columns);
    if not dp.is_numbered(relation, columns) then
        raise exception using
            errcode = 'PD040',
            message = format('dp.set_degree_bound has not bounded the rows of %s with the same %s', relation,
                             dp.shown_columns(columns, ''));
    end if;
    select t.tgfoid into filler from pg_trigger as t
     where t.tgrelid = relation and t.tgname = slot and not t.tgisinternal;
    if found then
        -- of the same name and owner
        select c.oid into turns
          from pg_proc as p join pg_class as c on c.relnamespace = p.pronamespace and c.relname = p.proname
          join pg_attribute as a on a.attrelid = c.oid and a.attname = 'turn' and a.attnum = 1
         where p.oid = filler and c.relkind = 'r' and c.relowner = p.proowner;
        execute format('drop trigger %I on %s', slot, relation);
        execute format('drop function %s', filler::regprocedure);
        if turns is not null then
            execute format('drop table %s', turns);
        end if;
    end if;
    execute format('alter table %s drop column %I', relation, slot);
end
$$;
comment on function dp.drop_degree_bound(regclass, name[]) is 'take back dp.set_degree_bound';

-- Internal: raises PD040 or PD070 where the rows of a relation cannot be bounded by a key, or not by this role.
create or replace function dp.require_boundable(relation regclass, columns name[])
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    forbidden text;
begin
    if relation is null or columns is null or cardinality(columns) = 0 or array_position(columns, null) > 0 then
        raise exception using errcode = 'PD040', message = 'parameters "relation" and "columns" must name a relation and columns of it';
    end if;
    if not exists (select from pg_class as c where c.oid = relation and pg_has_role(c.relowner, 'usage')) then
        raise exception using
            errcode = 'PD070', message = format('permission denied to bound the rows of %s', relation),
            hint = 'Its owner may.';
    end if;
    if exists (select from pg_class as c where c.oid = relation and (c.relkind <> 'r' or c.relhassubclass or c.relispartition))
       or exists (select from pg_inherits as i where i.inhrelid = relation) or dp.kept_by_citus(relation) then
        raise exception using
            errcode = 'PD040', message = format('relation %s is no table of its own', relation),
            detail = 'A unique key of a part, or of what others inherit, bounds no rows of the whole.';
    end if;
    select string_agg(format('%I', u.name), ', ') into forbidden
      from unnest(columns) as u(name)
     where not exists (select from pg_attribute as a
                        where a.attrelid = relation and a.attname = u.name and a.attnum > 0 and not a.attisdropped);
    if forbidden is not null then
        raise exception using
            errcode = 'PD040', message = format('relation %s has no column %s', relation, forbidden);
    end if;
end
$$;
comment on function dp.require_boundable(regclass, name[]) is
    'internal: raises where the rows of a relation cannot be bounded by a key';

-- Internal: whether dp.set_degree_bound numbers rows by these columns; raises PD040 where their column's name is taken.
create or replace function dp.is_numbered(relation regclass, columns name[])
returns boolean
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    slot constant name := dp.slot_name(columns);
begin
    if exists (select from pg_constraint as k
                where k.conrelid = relation and k.contype = 'u'
                  and array(select a.attname from unnest(k.conkey) as u(n) join pg_attribute as a
                                on a.attrelid = relation and a.attnum = u.n order by a.attname)
                      = array(select u.name from unnest(columns || slot) as u(name) order by u.name)) then
        return true;
    end if;
    if exists (select from pg_attribute as a where a.attrelid = relation and a.attname = slot and not a.attisdropped) then
        raise exception using
            errcode = 'PD040',
            message = format('the column %I of relation %s is there already', slot, relation),
            detail = 'It numbers no rows by these columns.',
            hint = 'Drop or rename it: SELECT dp.drop_degree_bound(relation, columns) if that made it.';
    end if;
    return false;
end
$$;
comment on function dp.is_numbered(regclass, name[]) is 'internal: whether rows are numbered by some columns';

-- Internal: the column that numbers rows with the same values in some columns; cut as names are.
create or replace function dp.slot_name(columns name[])
returns name
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$ select ('dp_slot_' || array_to_string(columns, '_'))::name $$;
comment on function dp.slot_name(name[]) is 'internal: the column of dp.set_degree_bound';

-- Internal: columns, quoted, each behind a prefix.
create or replace function dp.shown_columns(columns name[], prefix text)
returns text
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$ select string_agg(prefix || quote_ident(u.name::text), ', ' order by u.i) from unnest(columns) with ordinality as u(name, i) $$;
comment on function dp.shown_columns(name[], text) is 'internal: lists columns in SQL';
