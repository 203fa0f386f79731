-- Where the ledger lives now.  The timeline comes from the WAL position, not from the control
-- file, which learns of a promotion only at the next checkpoint.
create or replace function dp.ledger_place(
    out incarnation uuid,
    out system_identifier bigint,
    out timeline bigint,
    out database oid)
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select i.token,
           (select s.system_identifier from pg_catalog.pg_control_system() as s),
           ('x' || pg_catalog.left(
               pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
           )::pg_catalog.bit(32)::bigint,
           (select d.oid from pg_catalog.pg_database as d
             where d.datname = pg_catalog.current_database())
      from dp.ledger_incarnation as i
$$;
comment on function dp.ledger_place() is 'internal: identity of the place that the ledger lives in';
