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
    -- Values of groups pass through Python, and so through Unicode: one row whose text has no character there could
    -- make an answer fail, and whether it does would tell of that row (PRIVACY.md section 2).  Elsewhere than in
    -- these encodings text is unchecked bytes, or may hold such ones.  A database's encoding never changes.
    if pg_catalog.getdatabaseencoding() not in
       ('UTF8', 'LATIN1', 'LATIN2', 'LATIN4', 'LATIN5', 'LATIN6', 'LATIN7', 'LATIN8', 'LATIN9', 'LATIN10', 'ISO_8859_5',
        'WIN866', 'WIN1256', 'KOI8R', 'KOI8U') then
        raise exception using
            errcode = 'PD040',
            message = pg_catalog.format('dpsql cannot be installed in a database with encoding %s',
                                        pg_catalog.getdatabaseencoding()),
            detail = 'Text of such a database may have no equivalent in Unicode, so that one row could make a question fail.',
            hint = 'Create a database with ENCODING ''UTF8'' TEMPLATE template0 and move the tables there.';
    end if;
end
$guard$;
