-- Refuses to install where the rest of the script could not keep its promises.

do $guard$
begin
    if not (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = current_user) then
        raise exception using
            errcode = 'PD070',
            message = 'only a superuser can create the extension dpsql',
            hint = 'Run CREATE EXTENSION dpsql CASCADE as a superuser.';
    end if;
    if pg_catalog.current_setting('server_version_num')::integer < 150000 then
        raise exception using
            errcode = 'PD030',
            message = 'dpsql needs PostgreSQL 15 or later';
    end if;
end
$guard$;
