-- Declared domains: public facts.
create or replace view dp.domains with (security_barrier) as
select n.nspname as schema_name,
       c.relname as relation_name,
       d.column_name,
       d.kind,
       d.type_name,
       d.members,
       d.lower,
       d.upper,
       d.step,
       d.reference,
       d.reference_column,
       d.includes_null,
       d.other,
       case when not exists (
           select from pg_catalog.pg_attribute as a
            cross join dp.plain_type(a.atttypid, a.atttypmod) as b
            where a.attrelid = d.relation and a.attname = d.column_name and not a.attisdropped
              and pg_catalog.format_type(b.type, b.modifier) = d.type_name)
           then 'the column was dropped, renamed or changed its type' end as problem
  from dp.column_domain as d
  join dp.declarations() as p on p.relation = d.relation and p.kind in ('protected', 'public')
  join pg_catalog.pg_class as c on c.oid = d.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
 order by n.nspname, c.relname, d.column_name;
comment on view dp.domains is 'declared domains of columns';
