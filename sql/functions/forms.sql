-- How a key is asked in the statement of a release (dp.release): they stand in its GROUP BY and are
-- never executed.
create or replace function dp.prefix(key anyelement)
returns anyelement
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'PD011',
        message = 'dp.prefix can be used in the statement of a release only',
        hint = 'SELECT dp.release(''name'', $q$ SELECT dp.prefix(age) AS age, dp_count(*) FROM t GROUP BY 1 $q$);';
end
$$;
comment on function dp.prefix(anyelement) is
    'in a release: for each level of the key the rows up to it';

create or replace function dp.all_ranges(key anyelement)
returns anyelement
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'PD011',
        message = 'dp.all_ranges can be used in the statement of a release only',
        hint = 'SELECT dp.release(''name'', $q$ SELECT dp.all_ranges(age) AS age, dp_count(*) FROM t GROUP BY 1 $q$);';
end
$$;
comment on function dp.all_ranges(anyelement) is
    'in a release: for each pair of levels of the key the rows from one to the other';

create or replace function dp.ranges(key anyelement, width integer)
returns anyelement
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'PD011',
        message = 'dp.ranges can be used in the statement of a release only',
        hint = 'SELECT dp.release(''name'', $q$ SELECT dp.ranges(age, 10) AS age, dp_count(*) FROM t GROUP BY 1 $q$);';
end
$$;
comment on function dp.ranges(anyelement, integer) is
    'in a release: all ranges of so many neighbouring levels of the key';
