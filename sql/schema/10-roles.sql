-- The schemas, and the four roles, which belong to the whole cluster: they are made if missing,
-- shared by all databases that have the extension, and outlive DROP EXTENSION.
--
--   dp_owner      members may call the administration functions (for relations that they own)
--   dp_analyst    members may ask questions
--   dp_executor   reads declared relations; the server's own service sessions are this role
--   dp_ledger     owns the ledger's tables and functions and nothing else

do $roles$
declare
    role_name text;
    found_role record;
    members text;
begin
    foreach role_name in array array['dp_owner', 'dp_analyst', 'dp_executor', 'dp_ledger'] loop
        select r.oid, r.rolsuper, r.rolcanlogin, r.rolcreaterole, r.rolbypassrls
          into found_role
          from pg_catalog.pg_roles as r
         where r.rolname = role_name;
        if not found then
            execute pg_catalog.format(
                'create role %I %s', role_name,
                case when role_name = 'dp_executor' then 'login' else 'nologin' end);
            continue;
        end if;
        if found_role.rolsuper or found_role.rolcreaterole or found_role.rolbypassrls
           or found_role.rolcanlogin <> (role_name = 'dp_executor') then
            raise exception using
                errcode = 'PD070',
                message = pg_catalog.format('role %I exists with attributes that dpsql does not allow', role_name),
                hint = 'Drop or alter the role, then run CREATE EXTENSION again.';
        end if;
        if role_name in ('dp_executor', 'dp_ledger') then
            select pg_catalog.string_agg(pg_catalog.quote_ident(r.rolname), ', ')
              into members
              from pg_catalog.pg_roles as r
             where not r.rolsuper
               and r.oid <> found_role.oid
               and pg_catalog.pg_has_role(r.oid, found_role.oid, 'member');
            if members is not null then
                raise exception using
                    errcode = 'PD070',
                    message = pg_catalog.format('role %I has members', role_name),
                    detail = pg_catalog.format('Members: %s.', members),
                    hint = 'Nobody but a superuser may become this role. Revoke the memberships first.';
            end if;
        end if;
    end loop;
end
$roles$;

create schema dp;
create schema dpv;
comment on schema dp is 'dpsql: functions and views of differential privacy';
comment on schema dpv is 'dpsql: differentially private views';
