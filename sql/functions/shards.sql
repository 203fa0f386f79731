-- Parts of relations on other servers (docs/shards.md).

-- Internal: the foreign parts of a relation, with what reads them: the server, and the user mapping of dp_executor alone.
create or replace function dp.foreign_parts(relation oid)
returns table (part oid, server oid, server_name name, own_mapping oid, is_postgres boolean, part_options text[], server_options text[])
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select f.ftrelid, s.oid, s.srvname,
           (select m.umid from pg_user_mappings as m join pg_roles as r on r.oid = m.umuser
             where m.srvid = s.oid and r.rolname = 'dp_executor'),
           exists (select from pg_foreign_data_wrapper as w join pg_proc as p on p.oid = w.fdwhandler
                    where w.oid = s.srvfdw and p.prosrc = 'postgres_fdw_handler' and p.probin like '%postgres_fdw'),
           f.ftoptions, s.srvoptions
      from unnest(dp.statistics_members(relation)) as m(oid)
      join pg_foreign_table as f on f.ftrelid = m.oid
      join pg_foreign_server as s on s.oid = f.ftserver
$$;
comment on function dp.foreign_parts(oid) is 'internal: parts of a relation on other servers';

-- Internal: whether each reading of a relation may show another state of it, even within one statement: what Citus keeps,
-- and foreign tables of other wrappers than postgres_fdw, whose transactions there are REPEATABLE READ.
create or replace function dp.without_snapshot(relation oid)
returns boolean
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select dp.kept_by_citus(relation) or exists (select from dp.foreign_parts(relation) as p where not p.is_postgres)
$$;
comment on function dp.without_snapshot(oid) is 'internal: whether each reading of a relation may show another state';

-- Internal: whether rows of a relation can move between places that are read in different snapshots: several servers, or
-- one and this.
create or replace function dp.spans_servers(relation oid)
returns boolean
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select count(distinct p.server) > 1
        or count(*) > 0 and exists (select from unnest(dp.statistics_members(relation)) as m(oid)
                                      join pg_class as c on c.oid = m.oid and c.relkind = 'r')
      from dp.foreign_parts(relation) as p
$$;
comment on function dp.spans_servers(oid) is 'internal: whether a relation is on several servers';

-- Internal: whether rows and what tells their privacy units are in different places, so that both must be read as of one
-- moment (docs/shards.md, "Links").  Not where the row's own columns are the unit's, and a parent says only that it is there.
create or replace function dp.linked_across(relation oid)
returns boolean
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- relations on other servers have no foreign keys that lead anywhere, nor are led to by any
    if not exists (select from pg_foreign_table)
       or not exists (select from dp.unit_link as l
                       where exists (select from dp.foreign_parts(l.child)) or exists (select from dp.foreign_parts(l.parent))) then
        return false;
    end if;
    return exists (
        select from dp.unit_paths(relation) as u
         where jsonb_array_length(u.hops) > 0
           and not (jsonb_array_length(u.hops) = 1 and u.hops -> 0 -> 'parent_columns' ? u.unit_column::text)
           and (exists (select from dp.foreign_parts(relation))
                or exists (select from jsonb_array_elements(u.hops) as h(hop), dp.foreign_parts((h.hop ->> 'parent')::oid))));
end
$$;
comment on function dp.linked_across(oid) is 'internal: whether rows and what tells their privacy units are in different places';

-- Internal: what a question over the relations needs of other servers.  "far": some are there at all.  "together": those
-- that are read as of one moment: the protected ones that rows could otherwise be seen in twice, moved meanwhile, and all
-- where rows find their units in other places.
create or replace function dp.shards_of(relations oid[], out far boolean, out together oid[])
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    linked oid[] := '{}';
begin
    if exists (select from pg_foreign_table) then
        linked := array(select r.oid from unnest(relations) as r(oid) where dp.linked_across(r.oid));
        -- whoever reads them for their units reads these, too
        relations := relations || array(select distinct (h.hop ->> 'parent')::oid
                                          from unnest(linked) as r(oid), dp.unit_paths(r.oid) as u,
                                               jsonb_array_elements(u.hops) as h(hop));
        far := exists (select from unnest(relations) as r(oid), dp.foreign_parts(r.oid));
    end if;
    far := coalesce(far, false);
    if far then
        together := array(select distinct r.oid from unnest(relations) as r(oid)
                            join dp.shards as s on s.relation = r.oid and s.written = 'coordinator'
                           where (select d.kind from dp.standing(r.oid) as d) = 'protected'
                             and (dp.spans_servers(r.oid) or linked <> '{}' and exists (select from dp.foreign_parts(r.oid))));
    end if;
end
$$;
comment on function dp.shards_of(oid[]) is 'internal: what a question needs of other servers';

-- Internal: lets a public relation be read before the question is known: reading it takes snapshots on its servers, which
-- are those of all relations there that are read as of one moment, with whatever the question joins them to.  So all that
-- a question could need is met first (docs/shards.md, "One moment").
create or replace function dp.meet_before_domain(relation oid)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    together oid[];
begin
    if not exists (select from pg_foreign_table) or not exists (select from dp.foreign_parts(relation)) then
        return;
    end if;
    -- as for a question about all that may be asked about
    together := array(select t.oid
                        from unnest((dp.shards_of(array(select d.relation from dp.declarations() as d
                                                         where d.kind = 'protected'))).together) as t(oid)
                       where (dp.shards_problem(t.oid)).problem is null
                       order by t.oid);
    if exists (select from unnest(together) as t(oid), dp.foreign_parts(t.oid) as p
                 join dp.foreign_parts(meet_before_domain.relation) as q on q.server = p.server) then
        perform dp.meet_shards(together, together);
    end if;
end
$$;
comment on function dp.meet_before_domain(oid) is 'internal: snapshots of one moment before a public relation is read';

-- Internal: why a relation with parts on other servers cannot be asked about, and what its owner can run.
-- Security definer on purpose: reads what owners declared.
create or replace function dp.shards_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    said text;
    standing record;
    by_rows boolean;
    linked boolean;
begin
    if dp.kept_by_citus(relation) then
        select p.problem, p.mend into problem, mend
          from dp.standing(relation) as s, dp.citus_unit_problem(relation, s.kind, s.units) as p;
        return;
    end if;
    if not exists (select from pg_foreign_table) or not exists (select from dp.foreign_parts(relation)) then
        return;
    end if;
    select string_agg(concat_ws(' ',
               case when not has_schema_privilege('dp_executor', c.relnamespace, 'usage')
                    then format('GRANT USAGE ON SCHEMA %s TO dp_executor;', c.relnamespace::regnamespace) end,
               case when not has_table_privilege('dp_executor', c.oid, 'select')
                    then format('GRANT SELECT ON %s TO dp_executor;', c.oid::regclass) end), ' ' order by c.oid) into mend
      from dp.foreign_parts(relation) as p join pg_class as c on c.oid = p.part
     where not has_table_privilege('dp_executor', c.oid, 'select')
        or not has_schema_privilege('dp_executor', c.relnamespace, 'usage');
    if mend is not null then
        problem := 'role dp_executor may not read parts of it on other servers';
        return;
    end if;
    select s.kind, s.units into standing from dp.standing(relation) as s;
    if standing.kind is distinct from 'protected' then
        return;
    end if;
    problem := dp.seen_twice(relation);
    if problem is not null then
        return;
    end if;
    by_rows := coalesce(json_array_length(standing.units), 0) = 0;
    linked := dp.linked_across(relation);
    if not linked and not dp.spans_servers(relation) then
        -- an answer and its sensitivity can be of two statements; units bear that (docs/shards.md, "Written anywhere")
        if by_rows then
            select format('server %I is not one of postgres_fdw, and could show other rows from statement to statement, while'
                          ' it is protected row by row', p.server_name),
                   format('SELECT dp.protect(%L, privacy_unit => ...);', relation::regclass) into problem, mend
              from dp.foreign_parts(relation) as p where not p.is_postgres order by p.server_name, p.part limit 1;
        end if;
        return;
    end if;
    said := (select s.written from dp.shards as s where s.relation = shards_problem.relation);
    if said is null then
        problem := case when dp.spans_servers(relation)
            then 'its parts are on several servers, and nobody said by which way they are written to'
            else 'it is on another server than what leads to its privacy unit, and nobody said by which way it is written to' end;
        mend := format('SELECT dp.declare_shards(%L, written => ''coordinator'');', relation::regclass);
    elsif said = 'anywhere' then
        problem := case
            when linked then 'its rows find their privacy units in other places, and could find those of another moment while'
                             ' they are written to anywhere'
            when by_rows then 'a row that is moved between its servers meanwhile could be seen twice, and it is protected row by row' end;
        if problem is not null then
            mend := format('SELECT dp.protect(%1$L, privacy_unit => ...); or, if all is written through this server,'
                           ' SELECT dp.declare_shards(%1$L, written => ''coordinator'');', relation::regclass);
        end if;
    else
        select m.problem, m.mend into problem, mend from dp.moment_problem(relation) as m;
    end if;
end
$$;
comment on function dp.shards_problem(oid) is 'internal: why parts on other servers keep a relation from being asked about';

-- Internal: why the parts of a relation on other servers cannot be read as of one moment, and what mends it.
create or replace function dp.moment_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
begin
    for found in select * from dp.foreign_parts(relation) as p order by p.server_name, p.part loop
        if not found.is_postgres then
            problem := format('server %I is not one of postgres_fdw, whose snapshots are known', found.server_name);
        elsif found.own_mapping is null then
            problem := format('server %I has no user mapping for dp_executor itself', found.server_name);
            mend := format('CREATE USER MAPPING FOR dp_executor SERVER %I OPTIONS (user ''...'', password ''...'');',
                           found.server_name);
        elsif dp.may_be_standby(found.server_options) then
            problem := format('server %I may be read from a standby, which is behind what was written', found.server_name);
            mend := format('ALTER SERVER %I OPTIONS (%s target_session_attrs ''primary'');', found.server_name,
                           case when found.server_options::text like '%target_session_attrs=%' then 'SET' else 'ADD' end);
        elsif 'use_remote_estimate=true' = any (dp.switched_on(found.server_options))
           or 'use_remote_estimate=true' = any (dp.switched_on(found.part_options)) then
            problem := format('use_remote_estimate takes a snapshot on server %I before the others', found.server_name);
            mend := case when 'use_remote_estimate=true' = any (dp.switched_on(found.part_options))
                    then format('ALTER FOREIGN TABLE %s OPTIONS (DROP use_remote_estimate);', found.part::regclass)
                    else format('ALTER SERVER %I OPTIONS (DROP use_remote_estimate);', found.server_name) end;
        end if;
        exit when problem is not null;
    end loop;
end
$$;
comment on function dp.moment_problem(oid) is 'internal: why parts on other servers cannot be read as of one moment';

-- Internal: why rows cannot find their privacy units by parents with parts on other servers: these must be read as of the
-- moment of what refers to them.
-- Security definer on purpose: reads what owners declared.
create or replace function dp.far_parents_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    parent oid;
begin
    if not dp.linked_across(relation) then
        return;
    end if;
    for parent in
        select distinct (h.hop ->> 'parent')::oid
          from dp.unit_paths(relation) as u, jsonb_array_elements(u.hops) as h(hop)
         where exists (select from dp.foreign_parts((h.hop ->> 'parent')::oid)) order by 1
    loop
        if (select s.written from dp.shards as s where s.relation = parent) is distinct from 'coordinator' then
            problem := 'nobody said that it is written to through this server only, so that it could be of another moment';
            mend := format('SELECT dp.declare_shards(%L, written => ''coordinator'');', parent::regclass);
        else
            select m.problem, m.mend into problem, mend from dp.moment_problem(parent) as m;
        end if;
        if problem is not null then
            problem := format('%s, on other servers, leads to its privacy unit, and %s', parent::regclass, problem);
            return;
        end if;
    end loop;
end
$$;
comment on function dp.far_parents_problem(oid) is
    'internal: why rows cannot find their privacy units by parents on other servers';

-- Internal: whether a server's options let libpq choose a standby.
create or replace function dp.may_be_standby(options text[])
returns boolean
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(bool_or(o.option_name = 'target_session_attrs' and o.option_value in ('read-only', 'standby', 'prefer-standby')), false)
        or coalesce(bool_or(o.option_name in ('host', 'hostaddr') and o.option_value like '%,%'), false)
           and not coalesce(bool_or(o.option_name = 'target_session_attrs' and o.option_value in ('read-write', 'primary')), false)
      from pg_options_to_table(options) as o
$$;
comment on function dp.may_be_standby(text[]) is 'internal: whether options of a server let a standby be read';

-- Internal: options that are true, however that is written.
create or replace function dp.switched_on(options text[])
returns text[]
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(o.option_name || '=true'), '{}')
      from pg_options_to_table(options) as o
     where o.option_value is null or lower(o.option_value) in ('true', 'tru', 'tr', 't', 'yes', 'ye', 'y', 'on', '1')
$$;
comment on function dp.switched_on(text[]) is 'internal: options that are true';
