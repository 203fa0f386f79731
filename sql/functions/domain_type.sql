-- Internal: returns the base type of a domain, with its modifier; other types as they are.  Reading a value as the base
-- type runs no check of the domain, and equality and order of a domain are those of its base type.
create or replace function dp.plain_type(type oid, modifier integer, out type oid, out modifier integer)
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with recursive base(type, modifier, step) as (
        select $1, $2, 0
        union all
        select t.typbasetype, t.typtypmod, b.step + 1
          from base as b join pg_type as t on t.oid = b.type where t.typtype = 'd')
    select b.type, b.modifier from base as b order by b.step desc limit 1
$$;
comment on function dp.plain_type(oid, integer) is 'internal: the base type of a domain, with its modifier';

create or replace function dp.plain_oid(type oid)
returns oid
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$ select case when $1 < 16384 then $1 else (select b.type from dp.plain_type($1, -1) as b) end $$;
comment on function dp.plain_oid(oid) is 'internal: the base type of a domain';

-- Internal: returns the type, as SQL, of a column for which values may be declared; refuses other columns.  For a domain
-- it is the base type.  Values are cast to the type with the rights of the extension's owner.  Types are therefore refused
-- if their input may run user-defined code (enums with casts from or to PostgreSQL's own types), or if their equality
-- differs from that of their texts.  Floats take ranges only (ranged).
create or replace function dp.domain_type(relation regclass, column_name name, ranged boolean default false)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    type_name text;
    allowed boolean;
begin
    if column_name is null then
        raise exception using errcode = 'PD040', message = 'parameter "column_name" must not be null';
    end if;
    select format_type(b.type, b.modifier),
           t.typtype = 'e'
              and not exists (select
                                from pg_catalog.pg_cast as k
                               where k.castsource in (t.oid, nullif(t.typarray, 0))
                                 and (k.casttarget < 16384 or k.casttarget in (t.oid, t.typarray))
                                  or k.casttarget in (t.oid, nullif(t.typarray, 0))
                                 and (k.castsource < 16384 or k.castsource in (t.oid, t.typarray)))
           or b.type in ('boolean'::regtype, 'smallint'::regtype, 'integer'::regtype,
                             'bigint'::regtype, 'numeric'::regtype, 'text'::regtype,
                             'varchar'::regtype, 'bpchar'::regtype, 'date'::regtype,
                             'timestamp'::regtype, 'timestamptz'::regtype, 'uuid'::regtype)
              and coalesce(c.collisdeterministic, true)
           or ranged and b.type in ('real'::regtype, 'double precision'::regtype)
      into type_name, allowed
      from pg_catalog.pg_attribute as a
     cross join dp.plain_type(a.atttypid, a.atttypmod) as b
      join pg_catalog.pg_type as t on t.oid = b.type
      left join pg_catalog.pg_collation as c on c.oid = a.attcollation
     where a.attrelid = relation and a.attname = column_name and a.attnum > 0 and not a.attisdropped;
    if not found then
        raise exception using
            errcode = 'PD040', message = format('column %I of relation %s does not exist', column_name, relation);
    end if;
    if (select a.attnum = any (dp.derived_columns(relation)) from pg_catalog.pg_attribute as a
         where a.attrelid = relation and a.attname = column_name) then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of relation %s numbers rows and cannot have a domain', column_name, relation),
            detail = 'Its value in one row depends on other rows, so questions cannot read it.',
            hint = 'Declare domains of other columns.';
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

-- Internal: returns the same type by OID, since a name may later mean another type.
create or replace function dp.domain_type_oid(relation regclass, column_name name)
returns oid
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select b.type
      from pg_catalog.pg_attribute as a
     cross join dp.plain_type(a.atttypid, a.atttypmod) as b
     where a.attrelid = relation and a.attname = column_name and a.attnum > 0 and not a.attisdropped
$$;
comment on function dp.domain_type_oid(regclass, name) is 'internal: type of a column, by OID';
