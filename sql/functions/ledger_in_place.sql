-- Whether the ledger still lives where it was last recorded (PRIVACY.md section 7): false after
-- a dump was restored, the database copied, a backup recovered or a standby promoted.
-- Security definer on purpose: reads tables that owners cannot, and tells one bit.
create or replace function dp.ledger_in_place()
returns boolean
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce((
        select (i.incarnation, i.system_identifier, i.timeline, i.database)
               = (p.incarnation, p.system_identifier, p.timeline, p.database)
          from dp.ledger_place() as p
         cross join (select l.* from dp.ledger_identity as l order by l.id desc limit 1) as i
    ), false);
end
$$;
comment on function dp.ledger_in_place() is 'internal: whether the ledger lives where it was recorded';
