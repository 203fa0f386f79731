-- Who must learn nothing: every role that can log in, but for superusers, administrators of privacy (who trust each
-- other), the roles of the library's own sessions, and those that the caller trusts.

-- Internal: their OIDs.
create or replace function dp.watched_roles(trusted regrole[])
returns oid[]
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(r.oid order by r.rolname), '{}')
      from pg_roles as r
     where r.rolcanlogin and not r.rolsuper and r.rolname <> 'dp_executor'
       and not pg_has_role(r.oid, 'dp_owner', 'member')
       and r.oid <> all (coalesce(trusted, '{}')::oid[])
$$;
comment on function dp.watched_roles(regrole[]) is 'internal: roles that must learn nothing of protected rows';

-- Internal: which of them have what was granted to a role, by name; PUBLIC is everybody.  NULL: none.  A member that does
-- not inherit can SET ROLE.
create or replace function dp.watched_through(grantee oid, watched oid[])
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when grantee = 0 then 'PUBLIC'
                else (select string_agg(quote_ident(pg_get_userbyid(w.oid)), ', ' order by pg_get_userbyid(w.oid))
                        from unnest(watched) as w(oid)
                       where pg_has_role(w.oid, grantee, 'member')) end
$$;
comment on function dp.watched_through(oid, oid[]) is 'internal: which roles have what was granted to one';

-- Internal: a role as GRANT names it.
create or replace function dp.grantee_name(grantee oid)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when grantee = 0 then 'PUBLIC' else quote_ident(pg_get_userbyid(grantee)) end
$$;
comment on function dp.grantee_name(oid) is 'internal: a role as GRANT names it';

-- Internal: protected relations, with their partitions and children; of "relations" only, unless NULL.
create or replace function dp.guarded_relations(relations regclass[])
returns oid[]
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(distinct m.oid), '{}')
      from dp.declarations() as d,
           unnest(dp.statistics_members(d.relation)) as m(oid)
     where d.kind = 'protected' and (relations is null or d.relation = any (relations::oid[]))
$$;
comment on function dp.guarded_relations(regclass[]) is 'internal: protected relations with their parts';

-- Internal: relations, and what shows their rows to whoever may read it: views and materialized views over them, but
-- for views that read with the rights of the reader, for those that belong to the extension and refuse, and for those of
-- private questions: these remember the relation (sql/hook/replace.c) and ask for no permission on it, in every entry that
-- their rule has of it.  What is not written just so counts as showing.
create or replace function dp.showing_relations(relations oid[])
returns oid[]
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with recursive over(oid) as (
        select r.oid from unnest(relations) as r(oid)
        union
        select r.ev_class
          from over
          join pg_depend as d on d.refclassid = 'pg_class'::regclass and d.refobjid = over.oid
                             and d.classid = 'pg_rewrite'::regclass
          join pg_rewrite as r on r.oid = d.objid
         cross join lateral format('%s:relid %s ', case when current_setting('server_version_num')::integer >= 160000
                                                        then '\{RTEPERMISSIONINFO ' end, over.oid) as entry(text)
         where regexp_count(r.ev_action::text, entry.text)
               is distinct from nullif(regexp_count(r.ev_action::text, entry.text || '[^{}]*:requiredPerms 0 '), 0))
    select coalesce(array_agg(c.oid), '{}')
      from over join pg_class as c on c.oid = over.oid
     where c.oid = any (relations)
        or c.relkind in ('v', 'm')
       and not exists (select from pg_options_to_table(c.reloptions) as o
                        where o.option_name = 'security_invoker' and o.option_value::boolean)
       and not exists (select from pg_depend as d
                        where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
$$;
comment on function dp.showing_relations(oid[]) is 'internal: relations, and views that show their rows';
