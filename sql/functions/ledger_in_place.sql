-- Whether the ledger still lives where it was last recorded (PRIVACY.md section 7): false after
-- a dump was restored, the database copied, a backup recovered or a standby promoted.
-- On a standby, where no transaction can write, it is about what can be read: an answer that is there
-- was charged before, and its charge was replayed before it.
-- Security definer on purpose: reads tables that owners cannot, and tells one bit.
create or replace function dp.ledger_in_place()
returns boolean
language plpgsql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    here record := dp.ledger_place();
    last dp.ledger_identity;
begin
    select l.* into last from dp.ledger_identity as l order by l.id desc limit 1;
    return found
       and last.incarnation = here.incarnation
       and last.system_identifier = here.system_identifier
       and case when here.timeline is null then pg_is_in_recovery() else last.timeline = here.timeline end
       and last.database = here.database;
end
$$;
comment on function dp.ledger_in_place() is 'internal: whether the ledger lives where it was recorded';
