-- Internal: a token that changes when a relation is written anew or when one of the columns is
-- altered: names, types, collations, and the files of the relation and of all its parts.  NULL if
-- a part is a foreign table or Citus keeps it, whose changes nobody here would see, or if a column is missing.
create or replace function dp.sketch_fingerprint(relation oid, columns text[])
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    files text;
    foreign_part boolean;
    used text;
    number bigint;
begin
    select string_agg(c.oid || ':' || c.relfilenode, ',' order by c.oid), bool_or(c.relkind = 'f') or dp.kept_by_citus(relation)
      into files, foreign_part
      from pg_catalog.pg_class as c where c.oid = any (dp.statistics_members(relation));
    select string_agg(concat_ws(':', a.attnum, a.atttypid, a.atttypmod, a.attcollation), ','
                      order by u.n),
           count(*)
      into used, number
      from unnest(columns) with ordinality as u(name, n)
      join pg_catalog.pg_attribute as a on a.attname = u.name::name and a.attrelid = relation
     where a.attnum > 0 and not a.attisdropped;
    if foreign_part or number <> cardinality(columns) then
        return null;
    end if;
    return concat_ws('|', used, files);
end
$$;
comment on function dp.sketch_fingerprint(oid, text[]) is 'internal: what a sketch hangs on';
