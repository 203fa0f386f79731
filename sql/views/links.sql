-- What owners said of keys with dp.link: public facts.
--
-- follow  false: the key leads to no unit
-- nulls   what becomes of rows without a parent: refused, or excluded
create or replace view dp.links with (security_barrier) as
select pg_catalog.format('%I.%I', n.nspname, c.relname) as child,
       l.columns,
       pg_catalog.format('%I.%I', m.nspname, p.relname) as parent,
       l.parent_columns,
       l.follow,
       l.nulls,
       l.declared_by,
       l.declared_at
  from dp.unit_link as l
  join pg_catalog.pg_class as c on c.oid = l.child
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  join pg_catalog.pg_class as p on p.oid = l.parent
  join pg_catalog.pg_namespace as m on m.oid = p.relnamespace
 order by n.nspname, c.relname, l.columns, p.relname;
comment on view dp.links is 'what owners said of keys that lead to privacy units';
