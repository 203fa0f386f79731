-- Internal: whether reading a relation may tell rows of a protected one: it is one, is a part of one or has one as a part,
-- or keeps or fetches rows of unknown origin (materialized views, foreign tables).  The library asks before a sub-query
-- is read beside a question instead of in it (docs/PRIVACY.md, section 2 (c)).  Views it looks into by itself.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.reads_protected(relation oid)
returns boolean
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
    return (select c.relkind not in ('r', 'p') from pg_class as c where c.oid = relation) is not false
        or exists (
            with recursive parts(oid, up) as (
                select relation, d.up from (values (true), (false)) as d(up)
                union
                select case when p.up then i.inhparent else i.inhrelid end, p.up
                  from parts as p join pg_inherits as i on case when p.up then i.inhrelid else i.inhparent end = p.oid)
            select from parts as p where (select s.kind from dp.standing(p.oid) as s) not in ('public'));
end
$$;
comment on function dp.reads_protected(oid) is 'internal: whether reading a relation may tell rows of a protected one';
