-- Makes a protected relation unknown to analysts again.  Its root and what was spent stay.
-- Callers: the relation's owner, if a member of dp_owner.  Security definer on purpose: writes
-- the catalogue.
create or replace function dp.unprotect(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.withdraw_policy(relation, 'protected');
end
$$;
comment on function dp.unprotect(regclass) is 'take back dp.protect; losses stay recorded';
