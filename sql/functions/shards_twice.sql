-- Internal: why rows of a protected relation would be counted twice (docs/shards.md, "Each row once"), as far as options
-- tell: two parts that are one table, a part that another protected relation has too, or a way back into this database.
-- Hosts that mean this machine are one; a database that nobody names could be any.
-- Security definer on purpose: reads declarations, and where this server's sockets are.
create or replace function dp.seen_twice(relation oid)
returns text
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    own constant oid[] := array(select p.part from dp.foreign_parts(relation) as p);
    sockets constant text[] := regexp_split_to_array(btrim(lower(current_setting('unix_socket_directories')), ' "'),
                                                    '"?\s*,\s*"?');
    found record;
begin
    for found in
        with said as materialized (
            select f.ftrelid, f.ftserver, s.srvname, s.srvfdw, c.relname, n.nspname, f.ftoptions, s.srvoptions,
                   p.prosrc = 'postgres_fdw_handler' and p.probin like '%postgres_fdw' as is_postgres,
                   (select jsonb_object_agg(o.option_name, o.option_value) from pg_options_to_table(s.srvoptions) as o) as far,
                   (select jsonb_object_agg(o.option_name, o.option_value) from pg_options_to_table(f.ftoptions) as o) as part
              from pg_foreign_table as f
              join pg_foreign_server as s on s.oid = f.ftserver
              join pg_class as c on c.oid = f.ftrelid
              join pg_namespace as n on n.oid = c.relnamespace
              join pg_foreign_data_wrapper as w on w.oid = s.srvfdw
              left join pg_proc as p on p.oid = w.fdwhandler),
        placed as materialized (
            select s.*, coalesce(s.part ->> 'schema_name', s.nspname) as far_schema,
                   coalesce(s.part ->> 'table_name', s.relname) as far_table,
                   case when h.host ~ '^(localhost|127\..*|::1|)$' or h.host = any (sockets) then 'this machine' else h.host end as host,
                   coalesce(s.far ->> 'port', '5432') as port, s.far ->> 'dbname' as dbname
              from said as s, lower(coalesce(s.far ->> 'hostaddr', s.far ->> 'host', '')) as h(host)),
        known as materialized (
            select p.*, p.is_postgres and p.host = 'this machine' and p.port = current_setting('port')
                        and coalesce(p.dbname = current_database(), true) as is_back
              from placed as p)
        select a.ftrelid as part, a.srvname, a.is_back, b.ftrelid as twin
          from known as a
          left join known as b
            on b.ftrelid <> a.ftrelid and b.srvfdw = a.srvfdw
           and case when a.is_postgres
                    then b.far_schema = a.far_schema and b.far_table = a.far_table
                     and (b.ftserver = a.ftserver
                          or b.host = a.host and b.port = a.port and coalesce(b.dbname = a.dbname, true))
                    else b.ftoptions = a.ftoptions and b.srvoptions is not distinct from a.srvoptions end
         where a.ftrelid = any (own)
           and (b.ftrelid is not null or a.is_back)
         order by 1, 3
    loop
        if found.is_back then
            return format('server %I of its part %s leads back to this database', found.srvname, found.part::regclass);
        elsif found.twin = any (own) then
            return format('its parts %s and %s are one table of another server', found.part::regclass, found.twin::regclass);
        elsif exists (
            with recursive up(oid) as (
                select found.twin union select i.inhparent from pg_inherits as i join up on i.inhrelid = up.oid)
            select from up join dp.declarations() as d on d.relation = up.oid and d.kind = 'protected') then
            return format('%s is the same table of another server as %s, which is protected by itself',
                          found.part::regclass, found.twin::regclass);
        end if;
    end loop;
    return null;
end
$$;
comment on function dp.seen_twice(oid) is 'internal: why rows of a relation would be counted twice';
