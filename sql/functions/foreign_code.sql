-- Internal: which user-defined code PostgreSQL may run while it merely plans a query on a relation,
-- or NULL.  The planner computes constant calls in index expressions and predicates, CHECK
-- constraints, partition keys, extended statistics and virtual columns, of the relation and of its
-- partitions and children, in the name of whoever reads: dp_executor, which reads everybody's
-- declared relations (PRIVACY.md section 2).  So all that these objects depend on must be built in
-- or belong to a superuser, as extensions' objects do.
create or replace function dp.foreign_code(relation oid)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    trusted oid[];
    parts oid[] := dp.statistics_members(relation);
    kinds constant oid[] := array['pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass,
                                  'pg_opfamily'::regclass, 'pg_type'::regclass];
begin
    -- the usual relation: nothing of it depends on anything that is not built in
    if not exists (select from pg_catalog.pg_depend as d
                    where d.classid = 'pg_class'::regclass
                      and d.objid = any (parts || array(select i.indexrelid from pg_catalog.pg_index as i
                                                         where i.indrelid = any (parts)))
                      and d.objsubid = 0 and d.refobjid >= 16384 and d.refclassid = any (kinds))
       and not exists (select from pg_catalog.pg_depend as d
                        where d.classid = 'pg_constraint'::regclass
                          and d.objid = any (array(select k.oid from pg_catalog.pg_constraint as k
                                                    where k.conrelid = any (parts)))
                          and d.refobjid >= 16384 and d.refclassid = any (kinds))
       and not exists (select from pg_catalog.pg_depend as d
                        where d.classid = 'pg_statistic_ext'::regclass
                          and d.objid = any (array(select s.oid from pg_catalog.pg_statistic_ext as s
                                                    where s.stxrelid = any (parts)))
                          and d.refobjid >= 16384 and d.refclassid = any (kinds))
       and not exists (select from pg_catalog.pg_attribute as a
                        where a.attrelid = any (parts) and a.attgenerated = 'v') then
        return null;
    end if;
    trusted := array(select r.oid from pg_catalog.pg_roles as r
                      where r.rolsuper or r.rolname = 'dp_executor');
    -- the usual database: nobody but superusers brought any code
    if not exists (select from pg_catalog.pg_proc as f
                    where f.oid >= 16384 and f.proowner <> all (trusted))
       and not exists (select from pg_catalog.pg_operator as o
                        where o.oid >= 16384 and o.oprowner <> all (trusted))
       and not exists (select from pg_catalog.pg_opclass as o
                        where o.oid >= 16384 and o.opcowner <> all (trusted))
       and not exists (select from pg_catalog.pg_opfamily as o
                        where o.oid >= 16384 and o.opfowner <> all (trusted)) then
        return null;
    end if;
    return (
        with recursive part(oid) as (
            select unnest(parts)
        ), planned(class, object) as (
            select 'pg_class'::regclass::oid, p.oid from part as p
            union all
            select 'pg_class'::regclass, i.indexrelid
              from part as p join pg_catalog.pg_index as i on i.indrelid = p.oid
            union all
            select 'pg_constraint'::regclass, k.oid
              from part as p join pg_catalog.pg_constraint as k on k.conrelid = p.oid
            union all
            select 'pg_statistic_ext'::regclass, s.oid
              from part as p join pg_catalog.pg_statistic_ext as s on s.stxrelid = p.oid
            union all
            select 'pg_attrdef'::regclass, d.oid
              from part as p
              join pg_catalog.pg_attribute as a on a.attrelid = p.oid and a.attgenerated = 'v'
              join pg_catalog.pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
        ), used(class, object, for_class, for_object) as (
            select p.class, p.object, p.class, p.object from planned as p
            union
            select next.class, next.object, u.for_class, u.for_object
              from used as u
             cross join lateral (
                -- the columns' own types (objsubid > 0) take no part in planning
                select d.refclassid, d.refobjid
                  from pg_catalog.pg_depend as d
                 where d.classid = u.class and d.objid = u.object
                   and (d.objsubid = 0 or u.class <> 'pg_class'::regclass)
                   and d.refobjid >= 16384
                   and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass,
                                        'pg_opclass'::regclass, 'pg_opfamily'::regclass,
                                        'pg_type'::regclass)
                union all
                select 'pg_constraint'::regclass, k.oid
                  from pg_catalog.pg_constraint as k
                 where u.class = 'pg_type'::regclass and k.contypid = u.object
                union all
                select 'pg_proc'::regclass, f.amproc
                  from pg_catalog.pg_amproc as f
                 where u.class = 'pg_opfamily'::regclass and f.amprocfamily = u.object
                   and f.amproc >= 16384
                union all
                select 'pg_operator'::regclass, f.amopopr
                  from pg_catalog.pg_amop as f
                 where u.class = 'pg_opfamily'::regclass and f.amopfamily = u.object
                   and f.amopopr >= 16384
             ) as next(class, object)
        )
        select format('%s depends on %s, and role %I, to whom that belongs, is not a superuser',
                      pg_describe_object(u.for_class, u.for_object, 0),
                      pg_describe_object(u.class, u.object, 0), r.rolname)
          from used as u
          join pg_catalog.pg_roles as r on r.oid = case u.class
                   when 'pg_proc'::regclass then
                       (select f.proowner from pg_catalog.pg_proc as f where f.oid = u.object)
                   when 'pg_operator'::regclass then
                       (select o.oprowner from pg_catalog.pg_operator as o where o.oid = u.object)
                   when 'pg_opclass'::regclass then
                       (select o.opcowner from pg_catalog.pg_opclass as o where o.oid = u.object)
                   when 'pg_opfamily'::regclass then
                       (select o.opfowner from pg_catalog.pg_opfamily as o where o.oid = u.object)
               end
         where u.object >= 16384 and not r.rolsuper and r.rolname <> 'dp_executor'
         order by u.for_class, u.for_object, u.class, u.object
         limit 1);
end
$$;
comment on function dp.foreign_code(oid) is 'internal: untrusted code that planning a query on a relation may run, or NULL';
