-- Internal: a part of dp.check_lockdown: servers that hold parts of protected relations, and who else may reach them.  What
-- roles may do on those servers is not seen from here: a statement for each of them stands behind "--".
create or replace function dp.holes_of_shards(guarded oid[], watched oid[])
returns table (hole text, object text, who text, severity text, why text, statement text)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with held as (
        select s.oid, s.srvname, s.srvowner, s.srvoptions,
               string_agg(distinct concat_ws('.',
                   (select quote_ident(o.option_value) from pg_options_to_table(f.ftoptions) as o where o.option_name = 'schema_name'),
                   quote_ident(coalesce((select o.option_value from pg_options_to_table(f.ftoptions) as o
                                          where o.option_name = 'table_name'), c.relname))), ', ') as tables
          from pg_foreign_table as f join pg_foreign_server as s on s.oid = f.ftserver join pg_class as c on c.oid = f.ftrelid
         where f.ftrelid = any (guarded)
         group by s.oid, s.srvname, s.srvowner, s.srvoptions),
    mapped as (
        select m.umid, m.srvid, m.srvname, m.umuser, dp.watched_through(m.umuser, watched) as who,
               format('DROP USER MAPPING FOR %s SERVER %I', dp.grantee_name(m.umuser), m.srvname) as statement
          from pg_user_mappings as m),
    place as (
        select s.oid, s.srvname,
               (select o.option_value from pg_options_to_table(s.srvoptions) as o where o.option_name = 'host') as host,
               (select o.option_value from pg_options_to_table(s.srvoptions) as o where o.option_name = 'port') as port,
               (select o.option_value from pg_options_to_table(s.srvoptions) as o where o.option_name = 'dbname') as dbname,
               (select o.option_value from pg_options_to_table(s.srvoptions) as o where o.option_name = 'sslmode') as ssl
          from pg_foreign_server as s),
    here as (
        select p.oid, coalesce(p.host, '') ~ '^(/|@|localhost$|127\.|::1$|$)' as local,
               coalesce(p.host, '') ~ '^(/|@|localhost$|127\.|::1$|$)'
               and coalesce(p.port, '5432') = current_setting('port')
               and coalesce(p.dbname, current_database()) = current_database() as itself, p.ssl
          from place as p)
    select 'user mapping', m.srvname::text, m.who, 'critical',
           'with a foreign table on that server it reads rows of protected relations as they are', m.statement
      from mapped as m join held as h on h.oid = m.srvid
     where m.who is not null
     union all
    select 'user mapping', m.srvname::text, m.who, 'high', 'the server is this database: foreign tables on it read as another role',
           m.statement
      from mapped as m join here as p on p.oid = m.srvid and p.itself
     where m.who is not null and m.srvid not in (select h.oid from held as h)
     union all
    select 'foreign server', h.srvname::text, pg_get_userbyid(h.srvowner)::text, 'high',
           'its owner can lead it elsewhere and make mappings that read it',
           format('ALTER SERVER %I OWNER TO dp_owner', h.srvname)
      from held as h where h.srvowner = any (watched)
     union all
    select 'shard', h.srvname::text, 'the network', 'medium',
           'what is read there, and the password, cross the network to whoever says to be that server',
           format('ALTER SERVER %I OPTIONS (%s sslmode ''verify-full'')', h.srvname,
                  case when p.ssl is null then 'ADD' else 'SET' end)
      from held as h join here as p on p.oid = h.oid
     where not p.local and p.ssl is distinct from 'verify-full'
     union all
    select 'shard', h.srvname::text, 'that server', 'low',
           case o.option_name when 'extensions' then 'functions of these extensions run there, in whatever version it has'
                else 'plans are asked for there, before anything is charged' end,
           format('ALTER SERVER %I OPTIONS (DROP %I)', h.srvname, o.option_name)
      from held as h, pg_options_to_table(h.srvoptions) as o
     where o.option_name = 'extensions' and o.option_value <> ''
        or o.option_name = 'use_remote_estimate' and dp.switched_on(array['use_remote_estimate=' || o.option_value]) <> '{}'
     union all
    select 'shard', f.ftrelid::regclass::text, 'that server', 'low', 'plans are asked for there, before anything is charged',
           format('ALTER FOREIGN TABLE %s OPTIONS (DROP use_remote_estimate)', f.ftrelid::regclass)
      from pg_foreign_table as f
     where f.ftrelid = any (guarded) and 'use_remote_estimate=true' = any (dp.switched_on(f.ftoptions))
     union all
    select 'shard', h.srvname::text, 'roles of that server', 'low',
           'its roles, statistics and log are not seen from here; the log holds constants of questions',
           format('-- on that server: REVOKE ALL ON %s FROM PUBLIC', h.tables)
      from held as h
$$;
comment on function dp.holes_of_shards(oid[], oid[]) is 'internal: a part of dp.check_lockdown';
