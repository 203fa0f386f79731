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

-- Internal: what a question over the relations needs of other servers.  "far": some are there at all.  "together": those
-- that are read as of one moment: the protected ones that rows could otherwise be seen in twice, moved meanwhile.
create or replace function dp.shards_of(relations oid[], out far boolean, out together oid[])
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    far := exists (select from pg_foreign_table)
       and exists (select from unnest(relations) as r(oid), dp.foreign_parts(r.oid));
    if far then
        together := array(select r.oid from unnest(relations) as r(oid)
                            join dp.shards as s on s.relation = r.oid and s.written = 'coordinator'
                           where (select d.kind from dp.standing(r.oid) as d) = 'protected' and dp.spans_servers(r.oid));
    end if;
end
$$;
comment on function dp.shards_of(oid[]) is 'internal: what a question needs of other servers';

-- Internal: why a relation with parts on other servers cannot be asked about, and what its owner can run.
-- Security definer on purpose: reads what owners declared.
create or replace function dp.shards_problem(relation oid, out problem text, out mend text)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
    said text;
    standing record;
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
    if standing.kind is distinct from 'protected' or not dp.spans_servers(relation) then
        return;
    end if;
    said := (select s.written from dp.shards as s where s.relation = shards_problem.relation);
    if said is null then
        problem := 'its parts are on several servers, and nobody said by which way they are written to';
        mend := format('SELECT dp.declare_shards(%L, written => ''coordinator'');', relation::regclass);
    elsif said = 'anywhere' then
        if json_array_length(standing.units) is null or json_array_length(standing.units) = 0 then
            problem := 'a row that is moved between its servers meanwhile could be seen twice, and it is protected row by row';
            mend := format('SELECT dp.protect(%1$L, privacy_unit => ...); or, if all is written through this server,'
                           ' SELECT dp.declare_shards(%1$L, written => ''coordinator'');', relation::regclass);
        end if;
    else
        for found in select * from dp.foreign_parts(relation) as p order by p.server_name, p.part loop
            if not found.is_postgres then
                problem := format('server %I is not one of postgres_fdw, whose snapshots are known', found.server_name);
            elsif found.own_mapping is null then
                problem := format('server %I has no user mapping for dp_executor itself', found.server_name);
                mend := format('CREATE USER MAPPING FOR dp_executor SERVER %I OPTIONS (user ''...'', password ''...'');',
                               found.server_name);
            elsif 'use_remote_estimate=true' = any (dp.switched_on(found.server_options))
               or 'use_remote_estimate=true' = any (dp.switched_on(found.part_options)) then
                problem := format('use_remote_estimate takes a snapshot on server %I before the others', found.server_name);
                mend := case when 'use_remote_estimate=true' = any (dp.switched_on(found.part_options))
                        then format('ALTER FOREIGN TABLE %s OPTIONS (DROP use_remote_estimate);', found.part::regclass)
                        else format('ALTER SERVER %I OPTIONS (DROP use_remote_estimate);', found.server_name) end;
            end if;
            exit when problem is not null;
        end loop;
    end if;
end
$$;
comment on function dp.shards_problem(oid) is 'internal: why parts on other servers keep a relation from being asked about';

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
