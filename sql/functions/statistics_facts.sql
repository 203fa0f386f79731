-- What decides whether statistics of a relation can be kept and used: public facts of the catalogue
-- only, never an amount of change (PRIVACY.md section 2).

-- The relation with all its partitions and children.
create or replace function dp.statistics_members(relation oid)
returns oid[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        with recursive tree(oid) as (
            select relation
            union
            select i.inhrelid from pg_inherits as i join tree as t on i.inhparent = t.oid)
        select array_agg(t.oid order by t.oid) from tree as t);
end
$$;
comment on function dp.statistics_members(oid) is 'internal: a relation with its partitions and children';

-- Whether a row has an identity that outlives updates: a primary key that holds for all members and
-- whose old values every UPDATE logs.
create or replace function dp.has_one_text(type_oid oid, modifier integer, collation_oid oid)
returns boolean
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return (type_oid in ('bool'::regtype, '"char"'::regtype, 'name'::regtype, 'int2'::regtype,
                     'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'uuid'::regtype,
                     'bytea'::regtype, 'text'::regtype, 'varchar'::regtype, 'date'::regtype,
                     'time'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
        or type_oid = 'bpchar'::regtype and modifier > 0)
   and not exists (select from pg_collation as l
                    where l.oid = collation_oid and not l.collisdeterministic);
comment on function dp.has_one_text(oid, integer, oid) is
    'internal: whether equal values of a column have equal texts under the settings of dp.count_updates';

create or replace function dp.statistics_keyed(relation oid)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
begin
    return exists (
               select from pg_index as i join pg_class as c on c.oid = i.indrelid
                where i.indrelid = relation and i.indisprimary and i.indimmediate
                  and i.indisvalid and i.indisready
                  -- equal keys need equal texts (docs/proofs/stale.md, "Shift"), and writing
                  -- a key of somebody's type as text would run his code
                  and not exists (select from pg_attribute as a
                                   where a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[])
                                     and not dp.has_one_text(a.atttypid, a.atttypmod, a.attcollation))
                  and not i.indkey::int2[] && dp.derived_columns(statistics_keyed.relation)
                  and (c.relkind = 'p' or cardinality(members) = 1))
       and not exists (
               select from pg_trigger as t
                where t.tgrelid = any (members)
                  and t.tgfoid = 'dp.count_updates()'::regprocedure
                  and t.tgoldtable is null);
end
$$;
comment on function dp.statistics_keyed(oid) is 'internal: whether changes are counted by primary key';

-- Why no statistics can be kept of a relation, or NULL.
create or replace function dp.statistics_problem(relation oid)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
begin
    return case
        when not exists (select from dp.policy as p
                          where p.relation = statistics_problem.relation::regclass
                            and p.kind in ('protected', 'public'))
             or not exists (select from pg_class as c where c.oid = relation)
            then 'it is neither protected nor public'
        when exists (select from pg_class as c
                      where c.oid = any (members) and c.relkind not in ('r', 'p'))
            then 'it is or has a foreign table, whose changes cannot be counted'
        when dp.kept_by_citus(relation)
            then 'Citus keeps its rows, whose changes cannot be counted'
        when exists (select from pg_class as c
                      where c.oid = any (members) and c.relpersistence <> 'p')
            then 'it is unlogged: a crash would empty it uncounted'
        when exists (select from pg_class as c left join pg_am as a on a.oid = c.relam
                      where c.oid = any (members) and c.relkind = 'r'
                        and a.amhandler is distinct from 'heap_tableam_handler'::regproc)
            then 'its storage is not PostgreSQL''s heap'
        when exists (select from pg_subscription_rel as s where s.srrelid = any (members))
            then 'a subscription writes it, for which no statement trigger fires'
    end;
end
$$;
comment on function dp.statistics_problem(oid) is
    'internal: why no statistics can be kept of a relation, or NULL';

-- Whether every member has the three triggers, always firing.
create or replace function dp.statistics_collected(relation oid)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
begin
    return (
        select count(*) = 3 * cardinality(members)
          from pg_trigger as t
         where t.tgrelid = any (members)
           and t.tgenabled = 'A' and not t.tgisinternal
           and t.tgqual is null and cardinality(t.tgattr::int2[]) = 0
           and (t.tgname, t.tgtype, t.tgfoid::oid) in (
                ('dpsql_insert', 4, 'dp.count_inserts()'::regprocedure::oid),
                ('dpsql_update', 16, 'dp.count_updates()'::regprocedure::oid),
                ('dpsql_truncate', 32, 'dp.count_inserts()'::regprocedure::oid)));
end
$$;
comment on function dp.statistics_collected(oid) is
    'internal: whether the triggers that count changes are in place on all members';

-- All that must stay as it is for statistics to be used: storage, members, columns, unique keys,
-- triggers.  What changes rows without firing a trigger changes one of these: a swapped partition,
-- ALTER ... USING and every other new file, a trigger that was disabled and enabled again, rows
-- written through a parent that a member had for a while (having or leaving one updates its columns).
-- NULL where nothing may be used.
create or replace function dp.statistics_fingerprint(relation oid)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
begin
    if dp.statistics_problem(relation) is not null or not dp.statistics_collected(relation) then
        return null;
    end if;
    return md5(concat_ws('|', members, dp.statistics_keyed(relation),
        (select string_agg(format('%s:%s', c.oid, c.relfilenode), ',' order by c.oid)
           from pg_class as c where c.oid = any (members)),
        (select string_agg(format('%s:%s:%s', i.inhrelid, i.inhparent, i.xmin), ',' order by i.inhrelid, i.inhparent)
           from pg_inherits as i where i.inhparent = any (members)),
        (select string_agg(format('%s:%s:%s:%I:%s:%s:%s', a.attrelid, a.attnum, a.xmin, a.attname, a.atttypid,
                                  a.atttypmod, a.attcollation), ',' order by a.attrelid, a.attnum)
           from pg_attribute as a
          where a.attrelid = any (members) and a.attnum > 0 and not a.attisdropped),
        (select string_agg(format('%s:%s', i.indexrelid, i.indkey), ',' order by i.indexrelid)
           from pg_index as i where i.indrelid = any (members) and i.indisunique),
        (select string_agg(format('%s:%s', t.oid, t.xmin), ',' order by t.oid)
           from pg_trigger as t
          where t.tgrelid = any (members)
            and t.tgfoid in ('dp.count_inserts()'::regprocedure, 'dp.count_updates()'::regprocedure))));
end
$$;
comment on function dp.statistics_fingerprint(oid) is
    'internal: changes with all that makes statistics of a relation useless; NULL: there can be none';
