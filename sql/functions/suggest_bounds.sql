-- Finds bounds of a column privately: counts rows, or privacy units, in public bins by sign and power of two,
-- or by years, as one question, which pays like any other, and takes as occupied what noise hardly explains
-- (docs/analyst.md).  Nothing here has more rights than the caller: dp.query reads, charges and
-- stores; what follows is a function of its answer (PRIVACY.md section 2).  Callers: whoever may ask.

-- Internal: what separates the bins of a type, ascending.  Of numbers -2^j, 0 twice (it has a bin of its
-- own; "zero" is the number of the first) and 2^j; of dates and timestamps the beginnings of years, in
-- days or microseconds since 1970, in UTC.  Bin i lies between cuts i - 1 and i.  Values are multiples of unit from
-- low_end to high_end, which are null where the type does not tell; beyond the outermost cuts open bins
-- have no end.
create or replace function dp.bound_cuts(
    type_name text, out cuts numeric[], out zero int, out unit numeric, out low_end numeric, out high_end numeric,
    out open boolean)
returns record
language plpgsql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    size text[] := regexp_match(type_name, '^numeric\((\d+),(-?\d+)\)$');
    edge numeric := 1;
    last_edge numeric := 2::numeric ^ 64;
    edges numeric[] := '{}';
begin
    if type_name = 'date' or type_name ~ '^timestamp(\(\d\))? with(out)? time zone$' then
        unit := 10 ^ (6 - coalesce((regexp_match(type_name, '\((\d)\)'))[1]::int, 6));
        open := true;
        cuts := array(
            select (make_date(y, 1, 1) - '1970-01-01'::date)
                   * case type_name when 'date' then 1 else 86400000000::numeric end
              from (select unnest(array[1, 1000, 1500, 1600, 1700, 1750, 1800, 1850])
                    union all select generate_series(1900, 2100)
                    union all select unnest(array[2150, 2200, 2300, 2500, 3000])) as t(y)
             order by y);
        return;
    elsif type_name in ('smallint', 'integer', 'bigint') then
        unit := 1;
        last_edge := case type_name when 'smallint' then 16384 when 'integer' then 1073741824
                                    else 4611686018427387904 end;
        low_end := -2 * last_edge;
        high_end := 2 * last_edge - 1;
    elsif size is not null then
        unit := ('1e' || -size[2]::int)::numeric;
        high_end := ('1e' || size[1]::int - size[2]::int)::numeric - unit;
        low_end := -high_end;
        last_edge := least(high_end, 2::numeric ^ 128);
        while edge > unit loop
            edge := edge * 0.5;
        end loop;
    elsif type_name in ('numeric', 'real', 'double precision') then
        for i in 1 .. 32 loop
            edge := edge * 0.5;
        end loop;
    else
        return;
    end if;
    while edge <= last_edge loop
        edges := edges || trim_scale(edge);
        edge := edge * 2;
    end loop;
    cuts := array(select -e from unnest(edges) as e order by e desc) || array[0, 0]::numeric[] || edges;
    zero := cardinality(edges) + 1;
    open := high_end is null or high_end > 2 * last_edge;
end
$$;
comment on function dp.bound_cuts(text) is 'internal: public bins for dp.suggest_bounds';

-- Internal: whether a value that equals the cut lies below it: 0 and what is negative does.
create or replace function dp.bound_inclusive(zero int, cut int)
returns boolean
language sql immutable called on null input parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$ select coalesce(cut < zero or cut = zero + 1, false) $$;
comment on function dp.bound_inclusive(int, int) is 'internal: on which side of a bin its end is';

-- Internal: a cut, or an end of a bin, as a value of the column's type.
create or replace function dp.bound_text(type_name text, value numeric)
returns text
language sql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, MDY'
as $$
    select case
               when type_name = 'date' then ('1970-01-01'::date + value::int)::text
               when type_name like 'timestamp%'
                   then ('1970-01-01'::timestamp + make_interval(
                            days => div(value, 86400000000)::int,
                            secs => (mod(value, 86400000000) / 1000000)::double precision))::text
                        || case when type_name like '%with time zone' then '+00' else '' end
               else trim_scale(value)::text
           end
$$;
comment on function dp.bound_text(text, numeric) is 'internal: an end of a bin in the type of the column';

-- Internal: an expression for the number of the bin of a column, by halving; total and with constants
-- alone as results, so that its groups are public (PRIVACY.md section 6).
create or replace function dp.bound_bins(column_sql text, constant_type text, bins record, first int, last int)
returns text
language plpgsql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    middle int := (first + last) / 2;
begin
    if first = last then
        return first::text;
    end if;
    return format('CASE WHEN %s %s %L::%s THEN %s ELSE %s END', column_sql,
                  case when dp.bound_inclusive(bins.zero, middle) then '<=' else '<' end,
                  dp.bound_text(constant_type, bins.cuts[middle]), constant_type,
                  dp.bound_bins(column_sql, constant_type, bins, first, middle),
                  dp.bound_bins(column_sql, constant_type, bins, middle + 1, last));
end
$$;
comment on function dp.bound_bins(text, text, record, int, int) is 'internal: the bin of a value, as SQL';

-- Internal: the least or (up) greatest value of a bin; of an open one the end that it has.
create or replace function dp.bound_of_bin(bins record, bin int, up boolean)
returns numeric
language plpgsql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    number_of_cuts int := cardinality(bins.cuts);
    cut int := case when up then bin else bin - 1 end;
    found numeric;
begin
    if cut < 1 or cut > number_of_cuts then
        return case when bins.open then bins.cuts[least(greatest(cut, 1), number_of_cuts)]
                    when up then bins.high_end else bins.low_end end;
    end if;
    found := bins.cuts[cut];
    if bins.unit is null then
        return found;
    end if;
    if up then
        found := case when dp.bound_inclusive(bins.zero, cut) then floor(found / bins.unit)
                      else ceil(found / bins.unit) - 1 end;
    else
        found := case when dp.bound_inclusive(bins.zero, cut) then floor(found / bins.unit) + 1
                      else ceil(found / bins.unit) end;
    end if;
    return least(greatest(found * bins.unit, bins.low_end), bins.high_end);
end
$$;
comment on function dp.bound_of_bin(record, int, boolean) is 'internal: an end of a bin';

-- Internal: from what rows of a relation are read as t, and what is counted of them.  Rows of one privacy unit
-- are counted once a bin: a unit is in fewer bins than it has rows, so the noise is less, and a bin
-- stands out by the number of its units (docs/proofs/truncation.md, claim 3).  over_units: whether its rows belong to
-- privacy units at all.  Public facts: keys of declared relations.
-- Security definer on purpose: whoever asks may not read dp.policy.
create or replace function dp.bound_source(relation oid, out source text, out counted text, out spends boolean,
                                           out over_units boolean)
returns record
language plpgsql stable strict parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    path record;
    hop jsonb;
    child text := 't';
    joined int := 0;
begin
    source := (select format('%I.%I AS t', n.nspname, c.relname)
                 from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where c.oid = relation);
    counted := '*';
    spends := coalesce((select d.kind from dp.standing(relation) as d), '') <> 'public';
    over_units := spends and exists (select from dp.unit_paths(relation) as u where u.root is not null);
    if not spends then
        return;
    end if;
    select u.*, count(*) over () as ways into path from dp.unit_paths(relation) as u limit 1;
    if not found or path.ways <> 1 or path.problem is not null or path.root is null then
        return;
    end if;
    for hop in select h from jsonb_array_elements(path.hops) as h loop
        joined := joined + 1;
        source := source || (
            select format(' JOIN %I.%I AS p%s ON %s', hop ->> 'schema', hop ->> 'name', joined,
                          string_agg(format('%s.%I = p%s.%I', child, k.mine, joined, k.theirs), ' AND ' order by k.n))
              from rows from (jsonb_array_elements_text(hop -> 'columns'),
                              jsonb_array_elements_text(hop -> 'parent_columns')) with ordinality as k(mine, theirs, n));
        child := 'p' || joined;
    end loop;
    counted := format('DISTINCT %s.%I', child, path.unit_column);
end
$$;
comment on function dp.bound_source(oid) is 'internal: what dp.suggest_bounds counts of a relation';

-- Internal: whether the end nearer to 0 of these bins, none of them open and all on one side of 0, is better 0
-- itself: where it is at most an eighth of the other end.  Then sums have the same noise and averages at most
-- a seventh more, and nothing on that side is cut off.
create or replace function dp.bound_may_be_zero(bins record, first_bin int, last_bin int)
returns boolean
language plpgsql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if first_bin > bins.zero + 1 then
        return 8 * dp.bound_of_bin(bins, first_bin, false) <= dp.bound_of_bin(bins, last_bin, true);
    elsif last_bin < bins.zero + 1 then
        return 8 * dp.bound_of_bin(bins, last_bin, true) >= dp.bound_of_bin(bins, first_bin, false);
    end if;
    return false;
end
$$;
comment on function dp.bound_may_be_zero(record, int, int) is 'internal: whether 0 is the better end of bounds';

-- Internal: warns where the bounds found may leave out much, or where there are none since all that is seen lies
-- beyond the bins.  All arguments are functions of a released answer.
create or replace function dp.warn_of_outside(
    shown text, lower text, upper text, some_beyond boolean, about_inside numeric, outside_at_most numeric)
returns void
language plpgsql volatile called on null input parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if lower is null then
        if some_beyond then
            raise warning using
                message = format('no bounds are suggested for %s', shown),
                detail = 'All values that are seen are infinite or beyond the outermost bins.',
                hint = 'Give bounds that are known, or ask again with a larger epsilon.';
        end if;
    elsif outside_at_most is null then
        raise warning using
            message = format('how many values of %s lie outside of %s and %s is not known', shown, lower, upper),
            detail = 'Privacy units are counted, those in very many bins in some of them only.',
            hint = 'Compare dp_count(*) FILTER (WHERE the column is outside) with dp_count(*), or ask again with a larger'
                   ' epsilon.';
    elsif outside_at_most * 10 > about_inside then
        raise warning using
            message = format('up to %s rows may have values of %s outside of %s and %s',
                             round(outside_at_most), shown, lower, upper),
            detail = format('About %s rows are inside%s.', round(about_inside),
                            case when some_beyond then '; values that are infinite or beyond all bins are seen' else '' end),
            hint = 'Ask again with a larger epsilon, or give bounds that are known.';
    end if;
end
$$;
comment on function dp.warn_of_outside(text, text, text, boolean, numeric, numeric) is
    'internal: warns where bounds may leave out much';

-- Internal: what is behind dp.suggest_bounds, a door that takes the frames of this function from refusals.
create or replace function dp.asking_suggest_bounds(
    relation regclass, column_name name, epsilon numeric, confidence numeric)
returns table (lower text, upper text, epsilon_spent numeric, outside_at_most numeric, statement text)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set dp.epsilon = 1
set dp.delta = 0
set dp.method = 'auto'
set dp.mechanism = 'auto'
as $$
declare
    shown text;
    type_name text;
    of_table boolean;
    bins record;
    low_value numeric;
    high_value numeric;
    read record;
    number_of_bins int;
    constant_type text;
    bin_of text;
    first_bin int;
    last_bin int;
    some_beyond boolean;
    about_inside numeric;
begin
    if relation is null or column_name is null then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "%s" must not be null', case when relation is null then 'relation'
                                                                     else 'column_name' end);
    end if;
    select format('%I.%I', n.nspname, c.relname), format_type(b.type, b.modifier),
           c.relkind in ('r', 'p', 'f')
      into shown, type_name, of_table
      from pg_catalog.pg_attribute as a
     cross join dp.plain_type(a.atttypid, a.atttypmod) as b
      join pg_catalog.pg_class as c on c.oid = a.attrelid
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where a.attrelid = relation and a.attname = column_name and a.attnum > 0 and not a.attisdropped;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of relation %s does not exist', column_name, relation);
    end if;
    select * into bins from dp.bound_cuts(type_name);
    if bins.cuts is null or not of_table then
        raise exception using
            errcode = 'PD040',
            message = format('no bounds can be suggested for column %I of %s', column_name, relation),
            detail = case when of_table then format('Its type is %s.', type_name) else 'It is not of a table.' end,
            hint = 'Bounds are found for numbers, dates and timestamps.';
    end if;
    if (epsilon between 0.000001 and 100) is not true or (confidence between 0.5 and 0.999) is not true then
        raise exception using
            errcode = 'PD040',
            message = 'parameter "confidence" must be between 0.5 and 0.999, "epsilon" between 0.000001 and 100',
            detail = format('Got %s and %s.', coalesce(left(confidence::text, 20), 'null'),
                            coalesce(left(epsilon::text, 20), 'null'));
    end if;
    number_of_bins := cardinality(bins.cuts) + 1;
    constant_type := case
        when type_name in ('smallint', 'integer', 'bigint') then 'bigint'
        when type_name like 'numeric%' then 'numeric'
        when type_name = 'date' then type_name
        when type_name like 'timestamp%' then regexp_replace(type_name, '\(\d\)', '')
        else 'double precision'
    end;
    bin_of := dp.bound_bins(format('t.%I', column_name), constant_type, bins, 1, number_of_bins);
    if constant_type in ('numeric', 'double precision') then
        bin_of := format('CASE WHEN t.%1$I < %2$L::%3$s THEN %4$s WHEN t.%1$I = %2$L::%3$s THEN %5$s END',
                         column_name, 'Infinity', constant_type, bin_of, number_of_bins);
    else
        bin_of := format('CASE WHEN t.%I IS NOT NULL THEN %s END', column_name, bin_of);
    end if;
    read := dp.bound_source(relation);
    perform set_config('dp.epsilon', epsilon::text, true);
    with counted as materialized (
        -- all intervals together hold with the probability asked for, or a greater one: a level has six digits
        select (q ->> 'bin')::int as bin, (q ->> 'n_low')::numeric as low, (q ->> 'n_high')::numeric as high
          from dp.query(format('SELECT %s AS bin, public.dp_count(%3$s) AS n FROM %2$s GROUP BY 1',
                               bin_of, read.source, read.counted),
                        intervals => 1 - trunc((1 - confidence) / number_of_bins, 6)) as q),
    told as materialized (
        -- values in open bins are beyond all cuts, infinite ones among them: they bound nothing
        select c.*, bins.open and c.bin in (1, number_of_bins) as beyond from counted as c),
    ends as materialized (
        select min(c.bin) filter (where not c.beyond) as first_bin, max(c.bin) filter (where not c.beyond) as last_bin,
               count(*) filter (where c.beyond) > 0 as some_beyond
          from told as c where c.low > 0),
    occupied as materialized (
        select case when e.last_bin > bins.zero and dp.bound_may_be_zero(bins, e.first_bin, e.last_bin)
                    then bins.zero + 1 else e.first_bin end as first_bin,
               case when e.first_bin <= bins.zero and dp.bound_may_be_zero(bins, e.first_bin, e.last_bin)
                    then bins.zero + 1 else e.last_bin end as last_bin, e.some_beyond
          from ends as e)
    select o.first_bin, o.last_bin, o.some_beyond,
           sum(greatest(c.high, 0)) filter (where i.outside), sum((c.low + c.high) / 2) filter (where not i.outside)
      into first_bin, last_bin, some_beyond, outside_at_most, about_inside
      from occupied as o
      left join told as c on c.bin is not null
     cross join lateral (
               select o.first_bin is null or c.bin not between o.first_bin and o.last_bin or c.beyond) as i(outside)
     group by o.first_bin, o.last_bin, o.some_beyond;
    outside_at_most := coalesce(outside_at_most, 0);
    if read.over_units then
        outside_at_most := null;    -- the intervals do not cover what units lose above their bound
    end if;
    epsilon_spent := case when read.spends then current_setting('dp.epsilon')::numeric else 0 end;
    if first_bin is not null then
        low_value := dp.bound_of_bin(bins, first_bin, false);
        high_value := dp.bound_of_bin(bins, last_bin, true);
        lower := dp.bound_text(constant_type, least(low_value, high_value));
        upper := dp.bound_text(constant_type, greatest(low_value, high_value));
        statement := format('SELECT dp.set_domain(%L, %L, %L, %L);', shown, column_name, lower, upper);
    end if;
    perform dp.warn_of_outside(
        format('%s.%I', shown, column_name), lower, upper, coalesce(some_beyond, false), about_inside, outside_at_most);
    return next;
end
$$;
comment on function dp.asking_suggest_bounds(regclass, name, numeric, numeric) is
    'internal: finds bounds of a column privately';

-- Not pinned on purpose: as in hook_door.sql, the function behind it pins its own.
create or replace function dp.suggest_bounds(
    relation regclass,
    column_name name,
    epsilon numeric default pg_catalog.current_setting('dp.epsilon')::numeric,
    confidence numeric default 0.95)
returns table (lower text, upper text, epsilon_spent numeric, outside_at_most numeric, statement text)
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_asking';

comment on function dp.suggest_bounds(regclass, name, numeric, numeric) is
    'finds bounds of a column privately, as one question that pays epsilon';
