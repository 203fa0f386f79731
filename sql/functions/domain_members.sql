-- The members of a declared domain, as the column's type prints them, in declared order; NULL last
-- where it is a member.  No rows: no domain, one of bounds without members, or its column or public
-- relation changed since.
-- Security definer on purpose, owned by dp_executor: reads public relations.
create or replace function dp.domain_members(relation regclass, column_name name)
returns table (ordinal bigint, member text)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'
set timezone = 'UTC'
as $$
declare
    domain dp.column_domain;
    values_of text;
begin
    perform dp.caller();    -- loads the library, which guards what runs as dp_executor
    select d.* into domain
      from dp.column_domain as d
      join pg_catalog.pg_attribute as a
        on a.attrelid = d.relation and a.attname = d.column_name and not a.attisdropped
      join dp.plain_type(a.atttypid, a.atttypmod) as b on format_type(b.type, b.modifier) = d.type_name
     where d.relation = domain_members.relation and d.column_name = domain_members.column_name;
    if not found then
        return;
    end if;
    if domain.kind = 'values' then
        return query select u.i, u.m from unnest(domain.members) with ordinality as u(m, i);
    elsif domain.kind = 'range' and domain.type_name = 'date' then
        return query
        select u.i, u.m::date::text
          from generate_series(domain.lower::date::timestamp, domain.upper::date::timestamp,
                               domain.step::interval) with ordinality as u(m, i);
    elsif domain.kind = 'range' and domain.type_name like 'numeric%' then
        return query
        select u.i, u.m::text
          from generate_series(domain.lower::numeric, domain.upper::numeric, domain.step::numeric)
               with ordinality as u(m, i);
    elsif domain.kind = 'range' then
        return query
        select u.i, u.m::text
          from generate_series(domain.lower::bigint, domain.upper::bigint, domain.step::bigint)
               with ordinality as u(m, i);
    elsif domain.kind = 'reference' and dp.relation_problem(domain.reference) is null
          and exists (select from dp.policy as p where p.relation = domain.reference and p.kind = 'public')
          and exists (select from pg_catalog.pg_attribute as a
                       cross join dp.plain_type(a.atttypid, a.atttypmod) as b
                       where a.attrelid = domain.reference and a.attname = domain.reference_column
                         and not a.attisdropped
                         and format_type(b.type, b.modifier) = domain.type_name) then
        perform dp.meet_before_domain(domain.reference);
        -- of parts on other servers groups are read, which they send, one part after the other
        values_of := coalesce(
            (select string_agg(format('select %1$I as v from %2$I.%3$I where %1$I is not null group by 1',
                                      domain.reference_column, p ->> 1, p ->> 2), ' union all ')
               from json_array_elements(dp.parts_of(domain.reference) -> 'parts') as p),
            format('select %1$I as v from %2$s where %1$I is not null', domain.reference_column, domain.reference));
        return query execute format(
            'select row_number() over (order by v), '
            || case when dp.domain_type_oid(domain.reference, domain.reference_column) >= 16384
                    then 'enum_out(v)::text' else 'v::text' end ||
            ' from (select distinct v from (%s) as p) as d order by v', values_of);
    else
        return;
    end if;
    if domain.includes_null then
        return query select 9223372036854775807, null::text;
    end if;
end
$$;
comment on function dp.domain_members(regclass, name) is 'internal: members of the declared domain of a column';
alter function dp.domain_members(regclass, name) owner to dp_executor;
