-- After a connection broke while a charge was under way: whether that charge was committed, and
-- if so, takes it over for this connection.  NULL: not committed, or not yet.
-- Only dp_ledger may call it.
create or replace function dp.ledger_adopt(request uuid, holder_start timestamptz)
returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    spent dp.spend;
begin
    select s.* into spent from dp.spend as s where s.request = ledger_adopt.request and s.state = 'charged';
    if not found then
        return null;
    end if;
    update dp.answer as a
       set holder_pid = pg_backend_pid(), holder_start = ledger_adopt.holder_start
     where a.key = spent.key and a.pending_spend = spent.id;
    if not found then
        return null;
    end if;
    update dp.failure as f
       set holder_pid = pg_backend_pid(), holder_start = ledger_adopt.holder_start
     where f.spend = spent.id;
    perform set_config('idle_session_timeout', '0', false);
    return spent.id;
end
$$;
comment on function dp.ledger_adopt(uuid, timestamptz) is 'internal: takes over a charge after a broken connection';
