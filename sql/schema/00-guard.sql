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
    -- There text is unchecked bytes: a row that is not UTF-8 could make an answer fail, and whether
    -- it does would tell of that row (PRIVACY.md section 2).  A database's encoding never changes.
    if pg_catalog.getdatabaseencoding() = 'SQL_ASCII' then
        raise exception using
            errcode = 'PD040',
            message = 'dpsql cannot be installed in a database with encoding SQL_ASCII',
            detail = 'Such a database accepts any bytes as text, so that one row could make a question fail.',
            hint = 'Create a database with ENCODING ''UTF8'' TEMPLATE template0 and move the tables there.';
    end if;
end
$guard$;
