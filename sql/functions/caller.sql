-- The role that asks: the SET ROLE target if there is one, else the session user.  Inside a
-- definer function current_user is the definer and would be wrong.  Evaluated at execution.
create or replace function dp.caller()
returns oid
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select r.oid
              from pg_catalog.pg_roles as r
             where r.rolname = case current_setting('role')
                                   when 'none' then session_user
                                   else current_setting('role')::name
                               end);
end
$$;
comment on function dp.caller() is 'role that budgets and permissions are looked up for';
