-- Declares the public domain of a column: values, a range, or the values of a column of a public
-- relation.  Every member becomes a group, present in the data or not; rows with other values are
-- in no group (PRIVACY.md section 6).  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.

-- Security invoker on purpose: values of the caller's own types are turned into text with the
-- caller's rights, because a cast can run code that the type's owner wrote.
create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    members anyarray,
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
as $$
begin
    perform dp.set_domain_values(
        relation, column_name,
        case when members is not null then array(select m::text from unnest(members) as m) end,
        includes_null);
end
$$;
comment on function dp.set_domain(regclass, name, anyarray, boolean) is 'declare the values of a column as public';

create or replace function dp.set_domain_values(
    relation regclass,
    column_name name,
    members text[],
    includes_null boolean)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
as $$
declare
    type_name text;
    domain dp.column_domain;
begin
    perform dp.require_ownership(relation);
    type_name := dp.domain_type(relation, column_name);
    if cardinality(members) is null or cardinality(members) > 1000000
       or cardinality(members) = 0 and includes_null is not true then
        raise exception using
            errcode = 'PD040',
            message = 'a domain must have between 1 and 1000000 values',
            detail = format('Got %s.', coalesce(cardinality(members)::text, 'null'));
    end if;
    domain.relation := relation;
    domain.column_name := column_name;
    domain.kind := 'values';
    domain.type_name := type_name;
    domain.members := coalesce(dp.cast_members(members, type_name, dp.domain_type_oid(relation, column_name)), '{}');
    domain.includes_null := coalesce(includes_null, false);
    perform dp.store_domain(domain);
end
$$;
comment on function dp.set_domain_values(regclass, name, text[], boolean) is 'internal: dp.set_domain with values as texts';

create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    lower text,
    upper text,
    step text default null,
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
set intervalstyle = 'postgres'
as $$
declare
    type_name text;
    domain dp.column_domain;
    size bigint;
begin
    perform dp.require_ownership(relation);
    type_name := dp.domain_type(relation, column_name);
    if type_name not in ('smallint', 'integer', 'bigint', 'date') then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of type %s cannot have a range', column_name, type_name),
            hint = 'Ranges are for integers and dates; give an array of values instead.';
    end if;
    if lower is null or upper is null then
        raise exception using errcode = 'PD040', message = 'bounds of a domain must not be null';
    end if;
    domain.relation := relation;
    domain.column_name := column_name;
    domain.kind := 'range';
    domain.type_name := type_name;
    if lower = upper then
        domain.lower := (dp.cast_members(array[lower], type_name, dp.domain_type_oid(relation, column_name)))[1];
        domain.upper := domain.lower;
    else
        domain.lower := (dp.cast_members(array[lower, upper], type_name, dp.domain_type_oid(relation, column_name)))[1];
        domain.upper := (dp.cast_members(array[lower, upper], type_name, dp.domain_type_oid(relation, column_name)))[2];
    end if;
    domain.includes_null := coalesce(includes_null, false);
    begin
        if type_name = 'date' then
            domain.step := coalesce(step, '1 day')::interval::text;
            if not isfinite(domain.lower::date) or not isfinite(domain.upper::date)
               or date_trunc('day', domain.step::interval) <> domain.step::interval
               or domain.step::interval < '1 day'::interval then
                raise data_exception;
            end if;
            size := (domain.upper::date - domain.lower::date)::bigint
                    / greatest(1, (extract(epoch from domain.step::interval) / 86400)::bigint) + 1;
        else
            domain.step := coalesce(step, '1')::bigint::text;
            if domain.step::bigint < 1 then
                raise data_exception;
            end if;
            size := trunc((domain.upper::numeric - domain.lower::numeric) / domain.step::numeric) + 1;
        end if;
    exception
        when data_exception then
            raise exception using
                errcode = 'PD040',
                message = format('step %L does not fit a range from %L to %L', step, lower, upper),
                hint = 'Integers take a positive integer, dates a positive interval of whole days.';
    end;
    if size < 1 or size > 1000000 then
        raise exception using
            errcode = 'PD040',
            message = 'a domain must have between 1 and 1000000 values',
            detail = format('Got %s.', greatest(size, 0));
    end if;
    perform dp.store_domain(domain);
end
$$;
comment on function dp.set_domain(regclass, name, text, text, text, boolean) is 'declare a range of a column as public';

create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    lower bigint,
    upper bigint,
    step bigint default 1,
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.set_domain(relation, column_name, lower::text, upper::text, step::text, includes_null);
end
$$;
comment on function dp.set_domain(regclass, name, bigint, bigint, bigint, boolean) is 'declare a range of integers as public';

create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    lower date,
    upper date,
    step interval default '1 day',
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
set intervalstyle = 'postgres'
as $$
begin
    perform dp.set_domain(relation, column_name, lower::text, upper::text, step::text, includes_null);
end
$$;
comment on function dp.set_domain(regclass, name, date, date, interval, boolean) is 'declare a range of dates as public';

create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    reference regclass,
    reference_column name,
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    domain dp.column_domain;
begin
    perform dp.require_ownership(relation);
    domain.type_name := dp.domain_type(relation, column_name);
    if not exists (select from dp.policy as p where p.relation = set_domain.reference and p.kind = 'public') then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not public', reference),
            hint = 'A domain can only be taken from a relation that was declared public.';
    end if;
    if dp.domain_type(reference, reference_column) <> domain.type_name then
        raise exception using
            errcode = 'PD040',
            message = format('columns %I and %I are of different types', column_name, reference_column);
    end if;
    domain.relation := relation;
    domain.column_name := column_name;
    domain.kind := 'reference';
    domain.reference := reference;
    domain.reference_column := reference_column;
    domain.includes_null := coalesce(includes_null, false);
    perform dp.store_domain(domain);
end
$$;
comment on function dp.set_domain(regclass, name, regclass, name, boolean) is
    'declare that the values of a column are those of a public column';
