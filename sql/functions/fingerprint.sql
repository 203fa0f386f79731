-- Internal: what is declared of relations, as far as questions about them depend on it (PRIVACY.md section 7):
-- their policies, their own roots and those of the units that their rows belong to, what was said of
-- their keys (the paths themselves are in dp.fingerprint_text), and the domains of their columns with
-- what is declared of the relations that these refer to.  Declarations of other relations do not show: their owners
-- would stop the questions of others, after the charge.  Nor do budgets, caps and lifetimes, which are looked up when
-- they matter.  A declaration that was taken back and made again shows.  The incarnation tells a restored database.
create or replace function dp.declared_text(objects oid[], units integer[])
returns text
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (with named(oid) as (
     select o.oid from unnest(objects) as o(oid)
      union
     select d.reference::oid from dp.column_domain as d where d.relation::oid = any (objects) and d.kind = 'reference'),
  charged(id) as (
     select p.root from dp.policy as p join named as n on n.oid = p.relation::oid
      union
     select u.id from unnest(units) as u(id))
    select concat_ws('|', (select i.token from dp.ledger_incarnation as i),
  (select string_agg(row(p.relation::oid, p.kind, p.root, extract(epoch from p.declared_at))::text, ','
            order by p.relation::oid)
     from dp.policy as p
    where p.relation::oid in (select n.oid from named as n) or p.root in (select h.id from charged as h)),
  (select string_agg(row(r.id, r.neighbours, r.unit_attnum, r.unit_column, r.heuristic)::text, ',' order by r.id)
     from dp.root as r join charged as h on h.id = r.id),
  (select string_agg(row(l.child::oid, l.attnums, l.parent::oid, l.parent_attnums, l.follow, l.nulls,
                         extract(epoch from l.declared_at))::text, ','
            order by l.child::oid, l.attnums, l.parent::oid, l.parent_attnums)
     from dp.unit_link as l join named as n on n.oid = l.child::oid),
  (select string_agg(row(s.relation::oid, s.written)::text, ',' order by s.relation::oid)
     from dp.shards as s join named as n on n.oid = s.relation::oid),
  (select string_agg(row(d.xmin, d.relation::oid, d.column_name, d.kind, d.type_name, d.members, d.lower, d.upper,
                         d.step, d.reference::oid, d.reference_column, d.includes_null, d.other,
                         case when d.kind = 'reference' then coalesce(dp.relation_problem(d.reference), '') end)::text,
                     ',' order by d.relation::oid, d.column_name)
     from dp.column_domain as d where d.relation::oid = any (objects))));
end
$$;
comment on function dp.declared_text(oid[], integer[]) is 'internal: what is declared of relations that plans and answers rely on';

-- Internal: whether a trigger is PostgreSQL's own, for a foreign key by which a relation that is not among the
-- objects refers to its table.  What it guards is that other relation's key; reading the objects relies on
-- nothing that it does.  Whoever may refer to a table (as a synthetic copy does to public ones) makes such
-- triggers, so that they must not end answers over it.
create or replace function dp.guards_others(found_trigger pg_trigger, objects oid[])
returns boolean
language sql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select found_trigger.tgisinternal
       and exists (select from pg_constraint as k
                    where k.oid = found_trigger.tgconstraint and k.contype = 'f'
                      and k.confrelid = found_trigger.tgrelid and k.conrelid <> all (objects))
$$;
comment on function dp.guards_others(pg_trigger, oid[]) is
    'internal: whether a trigger serves a foreign key of a relation elsewhere';

-- Internal: a token of all that a plan relies on: declarations, names, columns, keys, foreign keys and
-- their triggers, paths to privacy units, indexes, view definitions, types, collations and casts.  As
-- of the caller's snapshot; dp.fingerprint_now tells it as of now, whatever the transaction's snapshot.  Both keep
-- tokens as long as snapshots show the same dp.catalogue_version().  What stands behind the '#' says where rows are read:
-- parts and files, which the executor finds as of now, servers of parts and who reads them, whether the parts' triggers keep what foreign
-- keys say; the two add whether dp_executor may use the schemas now.  It tells whether a reading is of
-- one state; answers outlive it, as they outlive other changes of rows.  What stands before the first '|'
-- is dp.declared_text; releases tell those levels that they read, and go without it.  The second c.oid
-- stands where earlier versions had relfilenode, which equals it until VACUUM FULL, TRUNCATE or a rewrite: so
-- keys of most answers that they stored remain valid.
--
-- Nothing in it may be changed by a role that neither owns nor declares anything of the question: it
-- would stop the questions of others, after the charge, and end their stored answers.  So rows of
-- pg_class, pg_attribute and pg_type count with what they say and not with their xmin: a GRANT by
-- somebody who may grant nothing (a warning, where he has any privilege, as everybody has on types)
-- writes the row again as it was.  That a relation or type was renamed and named back shows in the xmin
-- of its array type, which is renamed with it and takes no GRANT; other changes wait for a reader's lock.
-- Whoever was given a grant option can change privileges, which count.
--
-- Casts take part because the counting SQL is analysed anew: a cast could change what a comparison
-- means, and an enum with casts to or from built-in types is not allowed.  A cast can do so only if the
-- types of both ends occur: in an expression, or as what an operator or function takes, and those are
-- PostgreSQL's.  So both ends must be built in or types that the question names or its relations'
-- columns have, their elements, arrays and base types.  Whoever makes a cast owns one of its ends: of
-- such a pair that is the owner of a type of the question, or a superuser.
create or replace function dp.fingerprint_text(objects oid[])
returns text
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    parts oid[] := objects;
    ways text;
    units integer[];
begin
    select string_agg(c.oid || ':' || u::text, ',' order by c.oid, u::text), array_agg(distinct u.root) into ways, units
      from pg_class c, dp.unit_paths(c.oid) as u where c.oid = any (objects);
    if exists (select from pg_inherits i where i.inhparent = any (objects)) then
        parts := array(select distinct unnest(dp.statistics_members(o)) from unnest(objects) as o);
    end if;
    return (select concat_ws('|',
  (select encode(sha256(convert_to(dp.declared_text(objects, units), getdatabaseencoding())), 'hex')),
  (select string_agg(row(c.oid, n.nspname, c.relname, c.relowner, c.relkind, c.relpersistence, c.relrowsecurity,
            c.relforcerowsecurity, c.relispartition, c.relam, c.reltablespace, c.oid, c.reltype, c.relnatts,
            c.relchecks, c.reloptions, coalesce(c.relacl, acldefault('r', c.relowner)),
            (select own.xmin from pg_type r join pg_type own on own.oid = r.typarray where r.oid = c.reltype))::text,
            ',' order by c.oid)
     from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any (objects)),
  (select string_agg(row(t.oid, n.nspname, t.typname, t.typowner, t.typtype, t.typelem, t.typbasetype, t.typtypmod,
            t.typnotnull, t.typcollation, t.typinput, t.typoutput,
            (select own.xmin from pg_type own where own.oid = t.typarray),
            array(select row(e.enumlabel, e.xmin) from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder))::text,
            ',' order by t.oid)
     from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = any (objects)),
  (select string_agg(o.oid || ':' || o.xmin || ':' || n.nspname || '.' || o.collname, ',' order by o.oid)
     from pg_collation o join pg_namespace n on n.oid = o.collnamespace where o.oid = any (objects)),
  (select string_agg(row(a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull,
            a.attisdropped, a.atthasdef, a.attgenerated, a.attidentity, a.attislocal, a.attinhcount, a.attacl)::text,
            ',' order by a.attrelid, a.attnum)
     from pg_attribute a where a.attrelid = any (objects) and a.attnum > 0),
  (select string_agg(i.indexrelid || ':' || i.xmin || ':' || i.indisvalid, ','
            order by i.indexrelid)
     from pg_index i where i.indrelid = any (objects)),
  (select string_agg(k.oid || ':' || k.xmin, ',' order by k.oid)
     from pg_constraint k where k.conrelid = any (objects)),
  (select string_agg(t.oid || ':' || t.xmin || ':' || t.tgenabled::text, ',' order by t.oid)
     from pg_trigger t where t.tgrelid = any (objects) and not dp.guards_others(t, parts || objects)),
  (select string_agg(r.oid || ':' || r.xmin, ',' order by r.oid)
     from pg_rewrite r where r.ev_class = any (objects)),
  (with recursive own(oid) as (
     select t.oid from pg_type t where t.oid = any (objects) and t.oid >= 16384
     union
     select a.atttypid from pg_attribute a where a.attrelid = any (objects) and a.attnum > 0 and a.atttypid >= 16384
     union
     select next.oid
       from own join pg_type t on t.oid = own.oid
      cross join lateral (values (t.typelem), (t.typarray), (t.typbasetype)) as next(oid)
      where next.oid >= 16384)
   select string_agg(k.oid || ':' || k.xmin, ',' order by k.oid) from pg_cast k
    where k.oid >= 16384
      and (k.castsource < 16384 or k.castsource in (select o.oid from own o))
      and (k.casttarget < 16384 or k.casttarget in (select o.oid from own o))),
  -- what indexes, partitions and functions' owners forbid by now
  (select string_agg(c.oid || ':' || dp.own_problem(c.oid), ',' order by c.oid)
     from pg_class c where c.oid = any (objects)),
  (select 'citus:' || string_agg(c.oid::text, ',' order by c.oid)
     from pg_class c where c.oid = any (objects) and dp.kept_by_citus(c.oid)),
  ways) || '#' || concat_ws('|',
  (select string_agg(c.oid || ':' || c.relfilenode, ',' order by c.oid)
     from pg_class c where c.oid = any (parts)),
  (select string_agg(row(f.ftrelid, f.ftoptions, s.oid, s.srvname, s.srvowner, s.srvoptions, coalesce(c.relacl, acldefault('r', c.relowner)),
            (select m.umid from pg_user_mappings m join pg_roles r on r.oid = m.umuser
              where m.srvid = s.oid and r.rolname = 'dp_executor'))::text, ',' order by f.ftrelid)
     from pg_foreign_table f join pg_class c on c.oid = f.ftrelid join pg_foreign_server s on s.oid = f.ftserver
    where f.ftrelid = any (parts)),
  -- parts on other servers are read by name (dp.parts_of)
  (select string_agg(row(c.oid, n.nspname, c.relname, f.xmin, c.relacl)::text, ',' order by c.oid)
     from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_foreign_table f on f.ftrelid = c.oid
    where c.oid = any (parts) and exists (select from pg_foreign_table g where g.ftrelid = any (parts))),
  (select string_agg(i.inhrelid || ':' || i.inhparent || ':' || i.xmin, ',' order by i.inhrelid, i.inhparent)
     from pg_inherits i where i.inhparent = any (parts)),
  (select string_agg(t.oid || ':' || t.xmin || ':' || t.tgenabled::text, ',' order by t.oid)
     from pg_trigger t where t.tgrelid = any (parts) and t.tgrelid <> all (objects)
      and not dp.guards_others(t, parts || objects))));
end
$$;
comment on function dp.fingerprint_text(oid[]) is 'internal: what plans and stored answers rely on';

create or replace function dp.fingerprint(objects oid[])
returns text
language c stable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_fingerprint';
comment on function dp.fingerprint(oid[]) is 'internal: dp.fingerprint_text, kept for a version of the catalogue';

create or replace function dp.fingerprint_now(objects oid[])
returns text
language c stable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_fingerprint_now';
comment on function dp.fingerprint_now(oid[]) is 'internal: dp.fingerprint_text under the newest snapshot';
