-- Where the ledger lives now.  The timeline comes from the WAL position, not from the control
-- file, which learns of a promotion only at the next checkpoint.  A standby has none of its own: NULL.
create or replace function dp.ledger_place(
    out incarnation uuid,
    out system_identifier bigint,
    out timeline bigint,
    out database oid)
language plpgsql volatile parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    -- PL/pgSQL, because it keeps the plan: this runs at every charge.
    select i.token into incarnation from dp.ledger_incarnation as i;
    select s.system_identifier into system_identifier from pg_control_system() as s;
    if not pg_is_in_recovery() then
        timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    end if;
    select d.oid into database from pg_catalog.pg_database as d where d.datname = current_database();
end
$$;
comment on function dp.ledger_place() is 'internal: identity of the place that the ledger lives in';
