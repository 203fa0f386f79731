-- Declares the public domain of a column: values, a range, or the values of a column of a public
-- relation.  Every member becomes a group, present in the data or not; rows with other values are
-- in no group, or in that of other, where it is given (PRIVACY.md section 6).  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.

-- Security invoker on purpose: values of the caller's own types are turned into text with the
-- caller's rights, because a cast can run code that the type's owner wrote.
create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    members anycompatiblearray,
    includes_null boolean default false,
    other anycompatible default null)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
as $$
begin
    perform dp.set_domain_values(
        relation, column_name,
        case when members is not null then array(select m::text from unnest(members) as m) end,
        includes_null, other::text);
end
$$;
comment on function dp.set_domain(regclass, name, anycompatiblearray, boolean, anycompatible) is 'declare the values of a column as public';

create or replace function dp.set_domain_values(
    relation regclass,
    column_name name,
    members text[],
    includes_null boolean,
    other text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
as $$
declare
    type_name text;
    type_oid oid;
    given text[];
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
    if other is not null and cardinality(members) not between 1 and 10000 then
        raise exception using
            errcode = 'PD040',
            message = 'a domain with a value for all others must have between 1 and 10000 values',
            detail = format('Got %s.', cardinality(members)),
            hint = 'Leave other out: rows with other values are then not counted.';
    end if;
    type_oid := dp.domain_type_oid(relation, column_name);
    given := coalesce(dp.cast_members(members, type_name, type_oid), '{}');
    if other is not null then
        domain.other := (dp.cast_members(array[other], type_name, type_oid))[1];
        if domain.other = any (given) then
            raise exception using
                errcode = 'PD040',
                message = format('the value %L for all others is one of the domain''s values', other),
                hint = format('Give a value of type %s that is not listed.', type_name);
        end if;
        perform dp.cast_members(given || domain.other, type_name, type_oid);   -- as its type compares
    end if;
    domain.relation := relation;
    domain.column_name := column_name;
    domain.kind := 'values';
    domain.type_name := type_name;
    domain.members := given;
    domain.includes_null := coalesce(includes_null, false);
    perform dp.store_domain(domain);
end
$$;
comment on function dp.set_domain_values(regclass, name, text[], boolean, text) is 'internal: dp.set_domain with values as texts';

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
