-- Releases: a workload is measured once, and its answers are published as the table dpv.<name>.
-- Whoever releases pays and may read the table; dp.share_release lets other roles read it, each of
-- which is charged in its own ledger (PRIVACY.md section 7).

-- Not pinned on purpose: the caller's search_path must reach dp.deparse; every name here is qualified
-- and nothing here has more rights than the caller.
create or replace function dp.release(
    name text,
    query text,
    epsilon numeric default null,
    delta numeric default null,
    mechanism text default 'auto',
    postprocess text default 'none',
    weights double precision[] default null)
returns regclass
language sql volatile parallel unsafe security invoker
as $sql$
    select pg_catalog.to_regclass(dp.release_query(
        name, dp.deparse(query), epsilon::pg_catalog.text, delta::pg_catalog.text, mechanism, postprocess, weights, query))
$sql$;
comment on function dp.release(text, text, numeric, numeric, text, text, double precision[]) is
    'measures a workload of counts once and publishes it as the table dpv.<name>, which costs nothing to read; epsilon and '
    'delta: by default those of the session; mechanism, postprocess: see dp.plan_release and docs/releases.md; weights: '
    'one for each query of a union';

-- Not pinned on purpose: the caller's search_path must reach dp.deparse, as of dp.release.
create or replace function dp.plan_release(
    query text,
    epsilon numeric default null,
    delta numeric default null,
    mechanism text default 'auto',
    weights double precision[] default null,
    postprocess text default 'none')
returns table (
    mechanism text, noise text, epsilon double precision, delta double precision, rho double precision,
    rmse double precision, ratio double precision,
    cells bigint, chosen boolean, note text)
language sql stable parallel unsafe security invoker
as $sql$
    select * from dp.plan_release_query(
        dp.deparse(query), epsilon::pg_catalog.text, delta::pg_catalog.text, mechanism, weights, postprocess, query)
$sql$;
comment on function dp.plan_release(text, numeric, numeric, text, double precision[], text) is
    'what dp.release would use and cost: a row for each mechanism and noise, the best first, with its root mean squared '
    'error (weights included), the ratio to the best one and, where it cannot be used, the reason; touches no data, costs nothing';

-- Measures a release again on the data of now, which is charged again.
create or replace function dp.refresh_release(name text)
returns regclass
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $sql$ select to_regclass(dp.refresh_release_query(name)) $sql$;
comment on function dp.refresh_release(text) is 'measures a release on the data of now and replaces its table; pays again, '
    'and readers with whom it was shared lose it until it is shared again';

-- Internal: the name of a release, also where it is written with the schema of its table: dpv.sales, dpv."Sales".
create or replace function dp.release_name(name text)
returns text
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when name ~ '^dpv\."([^"]|"")+"$' then replace(substr(name, 6, length(name) - 6), '""', '"')
                when name like 'dpv.%' then substr(name, 5)
                else name end
$$;
comment on function dp.release_name(text) is 'internal: the name of a release without the schema';

-- Internal: the roles that may read a release, but for the caller: the role that made it, too, which may be another one.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.release_readers(found_release dp.stored_release)
returns text[]
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select array(select quote_ident(r.rolname)
                   from pg_class as c, aclexplode(c.relacl) as g join pg_roles as r on r.oid = g.grantee
                  where c.oid = to_regclass(format('dpv.%I', found_release.name)) and g.privilege_type = 'SELECT'
                    and r.oid <> c.relowner and r.oid <> dp.caller()
                  order by r.rolname)
$$;
comment on function dp.release_readers(dp.stored_release) is 'internal: the roles that may read a release, but for the caller';

-- Internal: the release of a name, if the caller may change it: who released it or owns what it reads.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.own_release(name text)
returns dp.stored_release
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_release dp.stored_release;
begin
    if name is null then
        raise exception using errcode = 'PD040', message = 'parameter "name" must not be null';
    end if;
    select r.* into found_release from dp.stored_release as r where r.name = dp.release_name(own_release.name);
    if not found or not (dp.caller_made(found_release.role_oid, found_release.role_name, found_release.incarnation) or dp.caller_owns(found_release.relations, found_release.protected, found_release.incarnation)) then
        raise exception using
            errcode = 'PD040',
            message = format('there is no release %s of yours', quote_ident(name)),
            detail = 'Whoever released it can change it, and the owners of all protected relations that it reads.',
            hint = 'SELECT name FROM dp.releases;';
    end if;
    return found_release;
end
$$;
comment on function dp.own_release(text) is 'internal: a release that the caller may change';

-- Internal: the other processes and prepared transactions that have locked a relation.
create or replace function dp.lock_holders(relation regclass)
returns text
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(string_agg(distinct coalesce('process ' || l.pid, 'a transaction of pg_prepared_xacts'), ', '), 'nobody any more')
      from pg_locks as l
     where l.locktype = 'relation' and l.relation = lock_holders.relation::oid and l.granted
       and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database as d where d.datname = current_database())
$$;
comment on function dp.lock_holders(regclass) is 'internal: who else has locked a relation';

-- Internal: reserves a name of the schema dpv until this transaction ends.  Returns NULL, or, if another open transaction
-- has reserved it, the processes that have reserved names.  Only the library can write the table of reserved names; an
-- advisory lock could be taken by any role.
-- Security definer on purpose: reads the locks of all sessions, and writes what owners who protect cannot.
create or replace function dp.hold_name(wanted text)
returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
    insert into dp.release_held (name) values (wanted);
    delete from dp.release_held as h where h.name = wanted::name;
    return null;
exception when lock_not_available then
    return dp.lock_holders('dp.release_held');
end
$$;
comment on function dp.hold_name(text) is 'internal: reserves a name of the schema dpv, or returns who has reserved names';

-- Internal: locks the table of a release: ACCESS EXCLUSIVE to drop or replace it, else ACCESS SHARE.  Waits two seconds at
-- most, because later readers queue behind an ACCESS EXCLUSIVE request.
-- Security definer on purpose: the table is dp_executor's; reads the locks of all sessions.
create or replace function dp.lock_release(name text, exclusive boolean)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    released constant regclass := to_regclass(format('dpv.%I', lock_release.name));
begin
    if released is not null then
        execute format('lock table dpv.%I in %s mode', lock_release.name,
                       case when exclusive then 'access exclusive' else 'access share' end);
    end if;
exception
    when undefined_table then
        raise exception using
            errcode = 'PD040',
            message = format('release %I does not exist any more', lock_release.name),
            hint = 'Another transaction has dropped it; SELECT * FROM dp.releases lists those that there are.';
    when lock_not_available then
    raise exception using
        errcode = 'PD040',
        message = format('dpv.%I is in use by a transaction that has not ended', lock_release.name),
        detail = format('Who reads or replaces it: %s.', dp.lock_holders(released)),
        hint = 'Nothing was charged or changed. Call the function again when that transaction has ended.';
end
$$;
comment on function dp.lock_release(text, boolean) is 'internal: locks the table of a release, or refuses within two seconds';

-- Internal: takes a release and its table away.  Security definer on purpose: owned by dp_executor, who owns the table.
create or replace function dp.remove_release(found_release dp.stored_release)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if to_regclass(format('dpv.%I', found_release.name)) is not null then
        execute format('drop table dpv.%I', found_release.name);
    end if;
    delete from dp.stored_release as r where r.name = found_release.name;
end
$$;
comment on function dp.remove_release(dp.stored_release) is 'internal: takes a release and its table away';
alter function dp.remove_release(dp.stored_release) owner to dp_executor;

-- Drops a release and its table; what it cost stays spent.  Callers: who released it, or the owners of
-- all relations that it reads.  Security definer on purpose: owned by dp_executor, who owns the table.
create or replace function dp.drop_release(name text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_release dp.stored_release := dp.own_release(drop_release.name);
    readers constant text[] := dp.release_readers(found_release);
begin
    perform dp.lock_release(found_release.name, true);
    perform dp.remove_release(found_release);
    if cardinality(readers) > 0 then
        raise notice using
            message = format('%s could read dpv.%I and cannot any more', array_to_string(readers, ', '), found_release.name),
            detail = 'What it cost each of them stays spent.',
            hint = 'The same release is found again for nothing as long as what was measured is stored; its owner shares it'
                   ' again with dp.share_release, which charges nobody twice.';
    end if;
end
$$;
comment on function dp.drop_release(text) is 'drops a release and its table; what it cost stays spent; for who '
    'released it and for the owners of what it reads';
alter function dp.drop_release(text) owner to dp_executor;

-- Lets another role read a release.  It sees what its budget pays for: the role is charged in its own
-- ledger, the protected relations are not (PRIVACY.md section 7).  Callers: the owners, members of dp_owner,
-- of all relations that it reads.
create or replace function dp.share_release(name text, role regrole)
returns void
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $sql$ select dp.share_release_with(name, role::oid) $sql$;
comment on function dp.share_release(text, regrole) is 'lets another role read a release, which is charged to that role; '
    'for the owners of what it reads';

-- Takes the right to read a release away; what it cost the role stays spent, so that sharing it with the role again
-- costs nothing.  Callers: the owners, members of dp_owner, of all relations that it reads.
-- Security definer on purpose: owned by dp_executor, who owns the table.
create or replace function dp.unshare_release(name text, role regrole)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_release constant dp.stored_release := dp.own_release(unshare_release.name);
begin
    if not dp.caller_owns(found_release.relations, found_release.protected, found_release.incarnation) then
        raise exception using
            errcode = 'PD070',
            message = 'must be owner of all relations of the release',
            detail = 'Owners decide who may read what was measured of their relations.';
    end if;
    perform dp.lock_release(found_release.name, false);
    if role is null or not exists (
        select from pg_class as c, aclexplode(c.relacl) as g
         where c.oid = to_regclass(format('dpv.%I', found_release.name)) and g.grantee = role::oid and g.grantee <> c.relowner) then
        raise exception using
            errcode = 'PD040',
            message = format('the release %s is not shared with role %s', found_release.name, coalesce(role::text, 'NULL')),
            hint = 'A role also reads what was shared with a role of which it is a member.';
    end if;
    execute format('revoke select on dpv.%I from %s', found_release.name, role);
end
$$;
comment on function dp.unshare_release(text, regrole) is 'takes the right to read a release away from a role, also from who '
    'made it; for the owners of what it reads';
alter function dp.unshare_release(text, regrole) owner to dp_executor;
