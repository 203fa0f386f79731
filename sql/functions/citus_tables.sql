-- Internal: whether Citus keeps the rows of a relation or of one of its parts, on other servers or as
-- a shard of its own.  To PostgreSQL they look like ordinary tables, but Citus reads each shard in a
-- snapshot of its own, and each step of a statement again: what a statement counts in two steps are
-- two states of the data (docs/citus.md).
create or replace function dp.kept_by_citus(relation oid)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found boolean := false;
begin
    if to_regclass('pg_catalog.pg_dist_partition') is not null then
        execute 'select exists (select from pg_catalog.pg_dist_partition as d'
                ' where d.logicalrelid::oid = any ($1))'
           into found using dp.statistics_members(relation);
    end if;
    return found;
end
$$;
comment on function dp.kept_by_citus(oid) is 'internal: whether Citus keeps rows of a relation';

-- Internal: why a relation that Citus keeps cannot be declared or asked about, or NULL.  What its owner said is asked for
-- here, whether rows or units are protected by dp.citus_unit_problem.
-- Security definer on purpose: reads what owners declared.
create or replace function dp.citus_problem(relation oid)
returns text
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return case
        when not dp.kept_by_citus(relation) then null
        when exists (select from pg_class as c
                      where c.oid = relation and (c.relkind <> 'r' or c.relhassubclass or c.relispartition))
            then 'Citus keeps its parts, and cannot read them all as of one moment'
        when not exists (select from dp.shards as s
                          where s.relation = citus_problem.relation and s.written = 'anywhere')
            then format('Citus keeps its rows, and cannot read them all as of one moment; for questions over privacy units'
                        ' its owner can allow that: SELECT dp.declare_shards(%L, written => ''anywhere'')', relation::regclass)
    end;
end
$$;
comment on function dp.citus_problem(oid) is 'internal: why a relation that Citus keeps cannot be asked about, or NULL';

-- Internal: why units do not bear that each step of a statement reads rows of a relation that Citus keeps at a moment of
-- its own (docs/citus.md, theorem), and what its owner can run; "units" is what dp.standing gives.
create or replace function dp.citus_unit_problem(relation oid, kind text, units json, out problem text, out mend text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if kind is distinct from 'protected' then
        return;
    end if;
    if coalesce(json_array_length(units), 0) = 0 then
        problem := 'Citus can show a row twice that is written meanwhile, and it is protected row by row';
    elsif exists (select from json_array_elements(units) as u(unit) where json_array_length(u.unit -> 1) > 0) then
        problem := 'its privacy unit is found in another relation, which Citus reads at another moment';
    end if;
    if problem is not null then
        mend := format('SELECT dp.protect(%L, privacy_unit => ...);', relation::regclass);
    end if;
end
$$;
comment on function dp.citus_unit_problem(oid, text, json) is 'internal: why units do not make up for Citus''s snapshots';

-- Internal: those of the relations that cannot be read as of one moment, if protected rows are read with them at all.  What
-- Citus keeps is read in several steps, each at a moment of its own; so may be foreign tables of wrappers without snapshots,
-- public ones, too.  Units bear these (docs/shards.md, "Other wrappers"); rows do not: the answer could be of other states
-- than its bound.
create or replace function dp.read_by_steps(relations oid[])
returns oid[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found oid[];
    by_rows boolean;
begin
    if to_regclass('pg_catalog.pg_dist_partition') is null and not exists (select from pg_foreign_table) then
        return '{}';
    end if;
    found := array(select r.oid from unnest(relations) as r(oid) where dp.without_snapshot(r.oid));
    if found = '{}' then
        return '{}';
    end if;
    select bool_or(coalesce(json_array_length(s.units), 0) = 0) into by_rows
      from unnest(relations) as r(oid), dp.standing(r.oid) as s
     where s.kind = 'protected';
    return case when by_rows then found
                when not by_rows then array(select r.oid from unnest(found) as r(oid) where dp.kept_by_citus(r.oid))
                else '{}' end;
end
$$;
comment on function dp.read_by_steps(oid[]) is 'internal: relations of a question that have no one moment';

-- Internal: why a node of Citus cannot be trusted with a counting statement, or NULL; asked before the charge, reads no
-- row.  Citus writes constants as the coordinator reads them: a node that reads backslashes or "= NULL" otherwise would run
-- another statement.
create or replace function dp.citus_node_problem()
returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found text;
begin
    execute $query$
        select format('%s:%s %s', n.nodename, n.nodeport,
                      case when n.success then 'reads SQL in another way' else 'cannot be reached' end)
          from run_command_on_workers($command$
                   select concat_ws(' ', current_setting('standard_conforming_strings'),
                                         current_setting('transform_null_equals'))$command$) as n
         where not n.success or n.result is distinct from 'on off'
         order by 1 limit 1$query$ into found;
    return found;
end
$$;
comment on function dp.citus_node_problem() is 'internal: the node of Citus that cannot be read, or NULL';
