-- Internal: the type of a column whose domain may be declared, as SQL; refuses others.  Values are
-- cast to it with the rights of the extension's owner: types whose input runs code that others
-- wrote (domains with checks, enums with casts from or to PostgreSQL's own types) or whose equality is not that of their texts are left out.
-- Floats have ranges only (ranged).
create or replace function dp.domain_type(relation regclass, column_name name, ranged boolean default false)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    type_name text;
    allowed boolean;
begin
    select format_type(a.atttypid, a.atttypmod),
           t.typtype = 'e'
              and not exists (select
                                from pg_catalog.pg_cast as k
                               where k.castsource in (t.oid, nullif(t.typarray, 0))
                                 and (k.casttarget < 16384 or k.casttarget in (t.oid, t.typarray))
                                  or k.casttarget in (t.oid, nullif(t.typarray, 0))
                                 and (k.castsource < 16384 or k.castsource in (t.oid, t.typarray)))
           or a.atttypid in ('boolean'::regtype, 'smallint'::regtype, 'integer'::regtype,
                             'bigint'::regtype, 'numeric'::regtype, 'text'::regtype,
                             'varchar'::regtype, 'bpchar'::regtype, 'date'::regtype,
                             'timestamp'::regtype, 'timestamptz'::regtype, 'uuid'::regtype)
              and coalesce(c.collisdeterministic, true)
           or ranged and a.atttypid in ('real'::regtype, 'double precision'::regtype)
      into type_name, allowed
      from pg_catalog.pg_attribute as a
      join pg_catalog.pg_type as t on t.oid = a.atttypid
      left join pg_catalog.pg_collation as c on c.oid = a.attcollation
     where a.attrelid = relation and a.attname = column_name and a.attnum > 0 and not a.attisdropped;
    if not found then
        raise exception using
            errcode = 'PD040', message = format('column %I of relation %s does not exist', column_name, relation);
    end if;
    if not allowed then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of relation %s cannot have a domain', column_name, relation),
            detail = format('Its type is %s, or is an enum with casts, or its collation is not deterministic.', type_name),
            hint = 'Domains are for boolean, integer, numeric, text, date, timestamp, uuid and enum columns; '
                   'floats take a range.';
    end if;
    return type_name;
end
$$;
comment on function dp.domain_type(regclass, name, boolean) is 'internal: type of a column that may have a domain';

-- Internal: the same type by OID: a name can come to mean another type.
create or replace function dp.domain_type_oid(relation regclass, column_name name)
returns oid
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select a.atttypid
      from pg_catalog.pg_attribute as a
     where a.attrelid = relation and a.attname = column_name and a.attnum > 0 and not a.attisdropped
$$;
comment on function dp.domain_type_oid(regclass, name) is 'internal: type of a column, by OID';
