-- Internal: declared values as the column's type prints them, in the order given; raises PD040
-- naming the value that does not fit, is NULL or occurs twice.  The texts are read and printed
-- with ISO dates; timestamps with time zone are printed in UTC.
create or replace function dp.cast_members(members text[], type_name text, type_oid oid)
returns text[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
set extra_float_digits = 1
as $$
declare
    bare text := case when type_name like 'character(%' then 'bpchar'
                      else regexp_replace(type_name, '\(\d+(,-?\d+)?\)', '') end;
    printed text := case when bare = 'timestamp with time zone'
                         then $sql$(m::%1$s at time zone 'UTC')::text || '+00'$sql$
                         else 'm::%1$s::text' end;
    found_members text[];
    first_index integer := 1;
    last_index integer := cardinality(members);
    middle integer;
    found_value text;
    labels text[] := array(select e.enumlabel::text
                              from pg_catalog.pg_enum as e
                             where e.enumtypid = type_oid);
begin
    if array_position(members, null) is not null then
        raise exception using
            errcode = 'PD040',
            message = 'a domain''s values must not be null',
            hint = 'Use includes_null => true.';
    end if;
    -- Not built in: an enum, whose labels are looked up.  Never a cast, which could run code of the
    -- type's owner, nor its name, which could be another type's by now.
    if type_oid is null or type_oid >= 16384 then
        select m into found_value from unnest(members) as u(m) where m <> all (labels) limit 1;
        if found then
            raise exception using
                errcode = 'PD040',
                message = format('value %L is not of type %s', found_value, type_name);
        end if;
        select m into found_value from unnest(members) as u(m) group by m having count(*) > 1 limit 1;
        if found then
            raise exception using
                errcode = 'PD040',
                message = format('value %L occurs twice', found_value),
                detail = format('Values are compared as %s.', type_name);
        end if;
        return members;
    end if;
    begin
        execute format('select array_agg(' || printed || ' order by i) from unnest($1) with ordinality as u(m, i)', type_name)
           into found_members using members;
    exception
        when data_exception then
            -- Halve to the first value that cannot be read.
            while first_index < last_index loop
                middle := (first_index + last_index) / 2;
                begin
                    execute format('select count(m::%s) from unnest($1) as u(m)', type_name)
                      using members[first_index:middle];
                    first_index := middle + 1;
                exception
                    when data_exception then
                        last_index := middle;
                end;
            end loop;
            raise exception using
                errcode = 'PD040',
                message = format('value %L is not of type %s', members[first_index], type_name);
    end;
    if bare <> type_name then
        execute format('select m from unnest($1) as u(m) where m::%s is distinct from m::%s limit 1', type_name, bare)
           into found_value using members;
        if found_value is not null then
            raise exception using
                errcode = 'PD040',
                message = format('value %L does not fit type %s', found_value, type_name);
        end if;
    end if;
    execute format('select min(m) from unnest($1) as u(m) group by m::%s having count(*) > 1 limit 1', type_name)
       into found_value using members;
    if found_value is not null then
        raise exception using
            errcode = 'PD040',
            message = format('value %L occurs twice', found_value),
            detail = format('Values are compared as %s.', type_name);
    end if;
    return found_members;
end
$$;
comment on function dp.cast_members(text[], text, oid) is 'internal: checks and prints the values of a domain';
