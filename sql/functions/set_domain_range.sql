-- Declares the public range of a column: what sums and averages clamp its values to, and where the
-- range has a step (whole numbers and dates have one unless they are too many) also its members, each
-- of which becomes a group (PRIVACY.md section 6).  Callers: the relation's owner, if a member of
-- dp_owner.  Security definer on purpose: writes the catalogue.
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
set extra_float_digits = 1
as $$
declare
    type_name text;
    type_oid oid;
    bare text;
    domain dp.column_domain;
    ordered boolean;
    size numeric;
begin
    perform dp.require_ownership(relation);
    type_name := dp.domain_type(relation, column_name, true);
    type_oid := dp.domain_type_oid(relation, column_name);
    bare := format_type(type_oid, null);
    if bare not in ('smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision', 'date',
                    'timestamp without time zone', 'timestamp with time zone') then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of type %s cannot have a range', column_name, type_name),
            hint = 'Ranges are for numbers, dates and timestamps; give an array of values instead.';
    end if;
    if lower is null or upper is null then
        raise exception using errcode = 'PD040', message = 'bounds of a domain must not be null';
    end if;
    domain.relation := relation;
    domain.column_name := column_name;
    domain.type_name := type_name;
    domain.lower := (dp.cast_members(array[lower], type_name, type_oid))[1];
    domain.upper := (dp.cast_members(array[upper], type_name, type_oid))[1];
    domain.includes_null := coalesce(includes_null, false);
    if bare <> 'date' and array[lower(domain.lower), lower(domain.upper)]
                          && array['nan', 'infinity', '-infinity'] then
        raise exception using
            errcode = 'PD040',
            message = format('a range from %L to %L is not finite', lower, upper),
            hint = 'Give bounds that nearly all values keep; values beyond them are moved to them.';
    end if;
    begin
        if bare = 'date' then
            domain.step := coalesce(step, '1 day')::interval::text;
            if not isfinite(domain.lower::date) or not isfinite(domain.upper::date)
               or date_trunc('day', domain.step::interval) <> domain.step::interval
               or domain.step::interval < '1 day'::interval then
                raise data_exception;
            end if;
            size := (domain.upper::date - domain.lower::date)::bigint
                    / greatest(1, (extract(epoch from domain.step::interval) / 86400)::bigint) + 1;
        elsif bare in ('smallint', 'integer', 'bigint') then
            domain.step := coalesce(step, '1')::bigint::text;
            if domain.step::bigint < 1 then
                raise data_exception;
            end if;
            size := trunc((domain.upper::numeric - domain.lower::numeric) / domain.step::numeric) + 1;
            if step is null and size > 1000000 then
                domain.step := null;
            end if;
        elsif bare = 'numeric' and step is not null then
            domain.step := (dp.cast_members(array[step], type_name, type_oid))[1];
            if not (domain.step::numeric > 0 and domain.step::numeric < 'Infinity') then
                raise data_exception;
            end if;
            size := div(domain.upper::numeric - domain.lower::numeric, domain.step::numeric) + 1;
        elsif step is not null then
            raise data_exception;
        end if;
    exception
        when data_exception then
            raise exception using
                errcode = 'PD040',
                message = format('step %L does not fit a range from %L to %L', step, lower, upper),
                hint = 'Integers take a positive integer, numerics a positive number, dates a positive '
                       'interval of whole days, other types none.';
    end;
    execute format('select $1::%1$s <= $2::%1$s', type_name)
       into ordered using domain.lower, domain.upper;
    if not ordered then
        raise exception using
            errcode = 'PD040',
            message = format('a range from %s to %s is empty: its lower bound is above its upper one', domain.lower, domain.upper),
            hint = format('Give the lower bound first: SELECT dp.set_domain(%L, %L, %L, %L%s%s);', relation, column_name,
                          domain.upper, domain.lower, case when step is not null then format(', %L', step) end,
                          case when domain.includes_null then ', includes_null => true' end);
    end if;
    domain.kind := case when domain.step is null then 'bounds' else 'range' end;
    if domain.step is not null and size > 1000000 then
        raise exception using
            errcode = 'PD040',
            message = 'a domain must have between 1 and 1000000 values',
            detail = format('Got %s.', size),
            hint = case when bare = 'date' then 'Give a longer step, or dates that are nearer.'
                        else 'Leave the step out to declare bounds for sums, without groups.' end;
    end if;
    if domain.kind = 'bounds' and domain.includes_null then
        raise exception using
            errcode = 'PD040',
            message = 'a range without a step has no values that NULL could be one of',
            hint = 'Leave includes_null out: NULL is in no sum.';
    end if;
    perform dp.store_domain(domain);
end
$$;
comment on function dp.set_domain(regclass, name, text, text, text, boolean) is 'declare a range of a column as public';

create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    lower numeric,
    upper numeric,
    step numeric default null,
    includes_null boolean default false)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.set_domain(relation, column_name, lower::text, upper::text, step::text, includes_null);
end
$$;
comment on function dp.set_domain(regclass, name, numeric, numeric, numeric, boolean) is 'declare a range of numbers as public';

-- For dates and timestamps; PostgreSQL reads their texts in the caller's time zone.
create or replace function dp.set_domain(
    relation regclass,
    column_name name,
    lower timestamptz,
    upper timestamptz,
    step interval default null,
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
comment on function dp.set_domain(regclass, name, timestamptz, timestamptz, interval, boolean) is 'declare a range of times as public';
