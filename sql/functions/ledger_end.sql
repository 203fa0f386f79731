-- What the ledger notes when dp.ledger_finish failed: the question was answered, or was not, and is no failure.
-- Each function writes one table, so that whoever keeps the other table from being written does not keep it from working.
-- Only dp_ledger and service sessions may call them.
create or replace function dp.ledger_take_from_failures(spend_id bigint)
returns void
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    delete from dp.failure where spend = spend_id and failed_at is null
$$;
comment on function dp.ledger_take_from_failures(bigint) is 'internal: the charge of a question is no failure';

create or replace function dp.ledger_end(spend_id bigint, new_state text)
returns void
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    update dp.spend set state = new_state where id = spend_id and state = 'charged'
$$;
comment on function dp.ledger_end(bigint, text) is 'internal: a question ended, with or without an answer';

alter function dp.ledger_take_from_failures(bigint) owner to dp_ledger;
alter function dp.ledger_end(bigint, text) owner to dp_ledger;
