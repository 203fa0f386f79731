-- Writing synthetic tables.  The tables are the caller's: every statement on them runs with his rights,
-- and the functions here that have more touch the two tables of the catalogue only.

-- Internal: refuses a synthesis that could not commit as it goes.
-- Not pinned on purpose: with a setting of its own a procedure is called as if it could not commit.
create or replace procedure dp.require_commits()
language plpgsql security invoker
as $$
begin
    if not dp.may_commit() then
        raise exception using
            errcode = 'PD040',
            message = 'a synthesis can be neither made nor written in a transaction block or in a function',
            detail = 'It commits what is measured, and then each part of the tables. Nothing was charged.',
            hint = 'End the block first; clients that begin blocks by themselves call that autocommit.';
    end if;
end
$$;
comment on procedure dp.require_commits() is 'internal: refuses a synthesis that could not commit as it goes';

-- Makes a synthetic copy of relations in a schema: measures once, which is paid for, and then writes tables
-- in batches that commit.  Calling it again after a crash goes on without paying: what was measured is found.
-- Not pinned on purpose: a procedure that commits cannot be.  Every name is qualified.
create or replace procedure dp.synthesize(
    target text,
    relations regclass[],
    epsilon numeric default null,
    delta numeric default null,
    method text default 'pairs',
    d_max jsonb default null,
    row_counts jsonb default null,
    without text[] default '{}',
    bins integer default 32,
    placeholders boolean default false,
    replace boolean default false)
language plpgsql security invoker
as $$
declare
    job pg_catalog.int8;
begin
    call dp.require_commits();
    job := dp.synthesize_query(
        target, relations::pg_catalog._oid, epsilon::pg_catalog.text, delta::pg_catalog.text, method,
        d_max::pg_catalog.text, row_counts::pg_catalog.text, without, bins, placeholders,
        replace);
    commit;
    raise notice using
        message = pg_catalog.format('synthesis %s is measured and paid for', job),
        hint = pg_catalog.format('After a cancel or a crash: CALL dp.write_synthesis(%s); goes on and pays nothing.', job);
    call dp.write_synthesis(job);
end
$$;
comment on procedure dp.synthesize(text, regclass[], numeric, numeric, text, jsonb, jsonb, text[], integer, boolean, boolean) is
    'makes a synthetic copy of relations in the schema target; d_max: rows of each relation that a privacy unit '
    'may have; row_counts: declared numbers of rows; without: foreign keys to leave out; placeholders: make values up where nothing public is known; see docs/synthesis.md';

-- Measures what the tables of a synthesis are made of, or finds it measured; the number of the job.
-- Not pinned on purpose: a door to PL/Python, as in hook_door.sql.
create or replace function dp.synthesize_query(
    target text, relations oid[], epsilon text, delta text, method text, d_max text, row_counts text,
    without text[], bins integer, placeholders boolean, replace boolean)
returns bigint
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';
comment on function dp.synthesize_query(text, oid[], text, text, text, text, text, text[], integer, boolean, boolean) is
    'internal: the part of dp.synthesize that reads and pays';

-- Writes the next batch of a synthesis, or makes its next index; false when nothing is left.  What
-- dp.synthesize repeats, committing in between; call it again to go on after a crash.
-- Not pinned on purpose: a door to PL/Python, as in hook_door.sql.
create or replace function dp.synthesis_step(job bigint)
returns boolean
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';
comment on function dp.synthesis_step(bigint) is
    'internal: writes the next part of a synthesis; false when it is complete';

-- Writes all that is left of a synthesis, and commits after each part; CALL it again to go on after a
-- crash or a cancel of dp.synthesize.
-- Not pinned on purpose: a procedure that is cannot commit; every name here is qualified, and nothing
-- has more rights than the caller.
create or replace procedure dp.write_synthesis(job bigint)
language plpgsql security invoker
as $$
begin
    call dp.require_commits();
    while dp.synthesis_step(job) loop
        commit;
    end loop;
end
$$;
comment on procedure dp.write_synthesis(bigint) is
    'writes what is left of a synthesis, part by part; reads and pays nothing';

-- Internal: the caller's synthesis of that number, without its payload, held until the transaction ends.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.own_synthesis(job bigint)
returns dp.synthesis
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_synthesis dp.synthesis;
begin
    if job is null then
        raise exception using errcode = 'PD040', message = 'parameter "job" must not be null';
    end if;
    -- all but the payload, which is large
    select s.id, s.target, s.role_name, s.role_oid, s.state, s.settings, s.plan, null::bytea, s.seed,
           s.details, s.statements, s.made_schema, s.notes, s.epsilon, s.delta, s.relations, s.protected,
           s.spend, s.created_at, s.finished_at, s.incarnation
      into found_synthesis
      from dp.synthesis as s where s.id = job for update;
    if not found or not dp.caller_made(found_synthesis.role_oid, found_synthesis.role_name,
                                          found_synthesis.incarnation) then
        raise exception using
            errcode = 'PD040',
            message = format('there is no synthesis %s of yours', job),
            detail = 'Whoever called dp.synthesize goes on with it.',
            hint = 'SELECT id, target, state FROM dp.syntheses;';
    end if;
    return found_synthesis;
end
$$;
comment on function dp.own_synthesis(bigint) is 'internal: a synthesis of the caller, locked';

-- Internal: what was measured for the caller's synthesis.  Security definer on purpose, as above.
create or replace function dp.synthesis_payload(job bigint)
returns bytea
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$ select s.payload from dp.synthesis as s where s.id = (dp.own_synthesis(job)).id $$;
comment on function dp.synthesis_payload(bigint) is 'internal: what a synthesis of the caller measured';

-- Internal: how far the tables of the caller's synthesis are, and whether what has their names is what was
-- made and still the maker's; in a restored database by their names.  Security definer on purpose, as below.
create or replace function dp.synthesis_tables(job bigint)
returns table (place integer, rows bigint, written bigint, own boolean)
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select t.place, t.rows, t.written,
           exists (select from pg_class as c
                    where c.oid = to_regclass(format('%I.%I', t.schema_name, t.table_name))
                      and c.relkind = 'r' and dp.is_maker(c.relowner, s.role_oid, s.role_name, s.incarnation)
                      and (c.oid = t.relation
                           or s.incarnation <> (select i.token from dp.ledger_incarnation as i)))
      from dp.own_synthesis(job) as s
      join dp.synthesis_table as t on t.synthesis = s.id
     order by t.place
$$;
comment on function dp.synthesis_tables(bigint) is 'internal: progress of a synthesis';

-- Internal: the tables are made, which names an array of their places, names, and the array's order.
create or replace function dp.synthesis_begun(job bigint, details jsonb, made_schema boolean, places integer[], names name[])
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    own dp.synthesis := dp.own_synthesis(job);
begin
    update dp.synthesis as s
       set state = 'writing', details = synthesis_begun.details, made_schema = synthesis_begun.made_schema
     where s.id = own.id and s.state = 'measured';
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('synthesis %s has begun already', job),
            hint = format('Go on with CALL dp.write_synthesis(%s);', job);
    end if;
    insert into dp.synthesis_table (synthesis, place, schema_name, table_name, relation)
    select own.id, u.place, own.target, u.name, to_regclass(format('%I.%I', own.target, u.name))
      from unnest(places, names) as u(place, name);
    -- the caller says which: a report reads them with their owner's rights
    if exists (select from dp.synthesis_table as t left join pg_class as c on c.oid = t.relation
                where t.synthesis = own.id
                  and dp.is_maker(c.relowner, own.role_oid, own.role_name, own.incarnation) is not true) then
        raise exception using
            errcode = 'PD070',
            message = format('a table of synthesis %s does not belong to role %I', job, own.role_name),
            hint = format('CALL dp.write_synthesis(%s); makes the tables.', job);
    end if;
end
$$;
comment on function dp.synthesis_begun(bigint, jsonb, boolean, integer[], name[]) is
    'internal: the tables of a synthesis are made';

-- Internal: rows of a table were written, in the transaction of the caller.
create or replace function dp.synthesis_wrote(job bigint, place integer, rows bigint, before bigint, written bigint)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    own dp.synthesis := dp.own_synthesis(job);
begin
    update dp.synthesis_table as t set rows = synthesis_wrote.rows, written = synthesis_wrote.written
     where t.synthesis = own.id and t.place = synthesis_wrote.place and t.written = before;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('synthesis %s is elsewhere', job),
            hint = format('Go on with CALL dp.write_synthesis(%s);', job);
    end if;
end
$$;
comment on function dp.synthesis_wrote(bigint, integer, bigint, bigint, bigint) is
    'internal: rows of a synthetic table are written';

-- Internal: state and number of finished statements.
create or replace function dp.synthesis_moved(job bigint, state text, statements integer, notes text[])
returns text[]
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    own dp.synthesis := dp.own_synthesis(job);
begin
    update dp.synthesis as s
       set state = synthesis_moved.state, statements = synthesis_moved.statements,
           notes = s.notes || synthesis_moved.notes,
           finished_at = case when synthesis_moved.state = 'done' then clock_timestamp() end
     where s.id = own.id;
    if synthesis_moved.state = 'done' then
        return dp.show_synthesis_tables(own.id);
    end if;
    return '{}';
end
$$;
comment on function dp.synthesis_moved(bigint, text, integer, text[]) is 'internal: how far a synthesis is';

-- Internal: tables in a schema that syntheses of the caller made and that are still there.  By their
-- OIDs, and by name in a restored database.
create or replace function dp.synthetic_tables(target name)
returns table (synthesis bigint, relation oid, made_schema boolean)
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select t.synthesis, c.oid, s.made_schema
      from dp.synthesis as s
      join dp.synthesis_table as t on t.synthesis = s.id
      join pg_class as c on c.oid = to_regclass(format('%I.%I', t.schema_name, t.table_name))
           and (c.oid = t.relation or s.incarnation <> (select i.token from dp.ledger_incarnation as i))
     where s.target = synthetic_tables.target
       and dp.caller_made(s.role_oid, s.role_name, s.incarnation)
$$;
comment on function dp.synthetic_tables(name) is 'internal: tables that syntheses of the caller made';

-- Internal: forgets syntheses of the caller into a schema: all, or those that wrote but for one.
create or replace function dp.forget_syntheses(target name, but bigint default null)
returns bigint
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    gone bigint[];
begin
    with forgotten as (
        delete from dp.synthesis as s
         where s.target = forget_syntheses.target and (but is null or s.id <> but and s.state <> 'measured')
           and dp.caller_made(s.role_oid, s.role_name, s.incarnation)
        returning s.id)
    select coalesce(array_agg(f.id), '{}') into gone from forgotten as f;
    delete from dp.synthesis_table as t where t.synthesis = any (gone);
    return cardinality(gone);
end
$$;
comment on function dp.forget_syntheses(name, bigint) is 'internal: forgets syntheses of the caller';

-- How far the tables of a finished synthesis are from what was measured, and with true_data from the original.
-- Not pinned on purpose: a door to PL/Python, as in hook_door.sql.  Volatile: it locks what it reads.
create or replace function dp.synthesis_report(target name, true_data boolean default false)
returns table (part text, relation text, what text, value double precision, expected double precision, note text)
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_table';
comment on function dp.synthesis_report(name, boolean) is
    'sizes, keys, degrees, budget and errors of marginals of the tables that dp.synthesize made in a schema; '
    'true_data: errors against the original relations, for the owner of all of them, not to be published';

-- Internal: the last synthesis into a schema that the caller made or whose protected relations he owns, and
-- its tables as in dp.synthetic_tables.  Security definer on purpose: reads the catalogue.
create or replace function dp.reported_synthesis(target name)
returns table (id bigint, state text, plan text, payload bytea, epsilon text, delta text, owns boolean,
               places integer[], relations oid[], made boolean)
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    with own as (
        select s.*, dp.caller_owns(s.relations, s.protected, s.incarnation) as owns
          from dp.synthesis as s
         where s.target = reported_synthesis.target),
    visible as (
        select s.* from own as s
         where s.owns or dp.caller_made(s.role_oid, s.role_name, s.incarnation)
         order by s.state = 'done' desc, s.id desc limit 1)
    select s.id, s.state, s.plan::text, s.payload, s.epsilon::text, s.delta::text, s.owns,
           array_agg(t.place order by t.place) filter (where c.oid is not null),
           array_agg(c.oid order by t.place) filter (where c.oid is not null),
           bool_and(dp.is_maker(c.relowner, s.role_oid, s.role_name, s.incarnation)) filter (where c.oid is not null)
      from visible as s
      left join dp.synthesis_table as t on t.synthesis = s.id
      left join pg_class as c
        on c.oid = case when t.table_name is not null then to_regclass(format('%I.%I', t.schema_name, t.table_name)) end
           and (c.oid = t.relation or s.incarnation <> (select i.token from dp.ledger_incarnation as i))
     group by s.id, s.state, s.plan, s.payload, s.epsilon, s.delta, s.owns
$$;
comment on function dp.reported_synthesis(name) is 'internal: what dp.synthesis_report reads of the catalogue';

-- Drops the tables of a synthesis with the caller's rights, its schema if the synthesis made that and
-- nothing else is in it, and what was measured; what it cost stays spent.
create or replace function dp.drop_synthesis(target name)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    tables text;
    made boolean;
begin
    if target is null then
        raise exception using errcode = 'PD040', message = 'parameter "target" must not be null';
    end if;
    select string_agg(format('%I.%I', n.nspname, c.relname), ', ' order by c.relname), bool_or(t.made_schema)
      into tables, made
      from dp.synthetic_tables(drop_synthesis.target) as t
      join pg_class as c on c.oid = t.relation
      join pg_namespace as n on n.oid = c.relnamespace;
    if tables is not null then
        perform dp.hide_synthesis(drop_synthesis.target);
    end if;
    -- entries before tables: a step holds its entry first, too
    if dp.forget_syntheses(drop_synthesis.target) = 0 then
        raise exception using
            errcode = 'PD040',
            message = format('there is no synthesis %s of yours', quote_ident(drop_synthesis.target)),
            detail = 'Whoever called dp.synthesize can drop it.',
            hint = 'SELECT id, target, state FROM dp.syntheses;';
    end if;
    if tables is not null then
        execute 'drop table ' || tables;
    end if;
    if made and not exists (select from pg_depend as d
                             where d.refclassid = 'pg_namespace'::regclass
                               and d.refobjid = to_regnamespace(quote_ident(drop_synthesis.target))) then
        execute format('drop schema %I', drop_synthesis.target);
    end if;
end
$$;
comment on function dp.drop_synthesis(name) is
    'drops the tables that dp.synthesize made in a schema; what it cost stays spent; for who made them';
