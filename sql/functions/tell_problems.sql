-- Internal: those of some relations whose rows find privacy units by several ways, so that a result can belong to several units.
create or replace function dp.of_several_units(relations oid[])
returns oid[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(select r.oid from unnest(relations) as r(oid)
                  where (select count(u.root) from dp.unit_paths(r.oid) as u) > 1);
end
$$;
comment on function dp.of_several_units(oid[]) is 'internal: relations whose rows belong to several privacy units';

-- Internal: tells whoever made relations members of privacy units which of them cannot be asked about, and how to
-- mend it, and of which less can be asked from now on; "before" belonged to several units already.
create or replace function dp.tell_problems(relations oid[], before oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    member record;
    several oid[];
    equatable boolean;
begin
    for member in
        select r.oid::regclass as name, q.problem, q.mend
          from unnest(relations) as r(oid)
         cross join lateral dp.asking_problem(r.oid) as q
         -- what only its owner may allow is told where it is granted
         where q.problem is distinct from (select reading.problem from dp.reading_problem(r.oid) as reading)
         order by 1
    loop
        raise notice using
            message = format('relation %s belongs to privacy units, but cannot be asked about yet', member.name),
            detail = format('The reason: %s.', member.problem),
            hint = coalesce('To mend it: ' || member.mend,
                            'It can be asked about once that is changed; dp.relations shows it under "problem".');
    end loop;
    several := array(select r.oid from unnest(dp.of_several_units(relations)) as r(oid) where r.oid <> all (before));
    if several <> '{}' then
        equatable := exists (select from unnest(several) as r(oid)
                              cross join lateral (select count(u.root) - count(distinct u.root) as same
                                                    from dp.unit_paths(r.oid) as u) as w
                              where w.same > 0);
        raise warning using
            message = format('rows of %s belong to several privacy units',
                             (select string_agg(r.oid::regclass::text, ', ' order by r.oid::regclass::text)
                                from unnest(several) as r(oid))),
            detail = 'Of their results only counts, sums and averages are told: dp_count(*), dp_count(x), dp_sum, dp_avg,'
                     ' variances, with FILTER. GROUP BY and all other aggregates are refused'
                     || case when equatable then ' unless the question equates the units' else '' end
                     || '. Questions are charged to each kind of unit.',
            hint = 'dp.relations shows the ways to the units. Where one is none, say so:'
                   ' SELECT dp.link(child, parent, columns, follow => false);';
    end if;
end
$$;
comment on function dp.tell_problems(oid[], oid[]) is 'internal: tells what cannot be asked of members of units';
