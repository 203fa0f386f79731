-- Makes a declared view unknown to analysts again.
-- Callers: the relation's owner, if a member of dp_owner.  Security definer on purpose: writes
-- the catalogue.
create or replace function dp.undeclare_view(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.withdraw_policy(relation, 'view');
end
$$;
comment on function dp.undeclare_view(regclass) is 'take back dp.declare_view';
