-- First directory of the server's unix sockets: where the ledger's own connection goes.
-- Security definer on purpose: the setting is shown to superusers only.
create or replace function dp.ledger_socket()
returns text
language sql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
    select btrim(split_part(current_setting('unix_socket_directories'), ',', 1), ' "')
$$;
comment on function dp.ledger_socket() is 'internal: directory of the unix socket that the ledger is reached by';
