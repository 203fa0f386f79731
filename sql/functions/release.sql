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
    weights double precision[] default null)
returns table (
    mechanism text, noise text, epsilon double precision, delta double precision, rho double precision,
    rmse double precision, ratio double precision,
    cells bigint, chosen boolean, note text)
language sql stable parallel unsafe security invoker
as $sql$
    select * from dp.plan_release_query(
        dp.deparse(query), epsilon::pg_catalog.text, delta::pg_catalog.text, mechanism, weights, query)
$sql$;
comment on function dp.plan_release(text, numeric, numeric, text, double precision[]) is
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

-- Internal: whether the caller is, or is a member of, the role that made a release.  Roles are known by
-- oid in the database where it was made, and by name in one that it was restored into.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.made_release(found_release dp.stored_release)
returns boolean
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from pg_roles as r
                    where case when found_release.incarnation = (select i.token from dp.ledger_incarnation as i)
                               then r.oid = found_release.role_oid else r.rolname = found_release.role_name end
                      and pg_has_role(dp.caller(), r.oid, 'usage'))
$$;
comment on function dp.made_release(dp.stored_release) is 'internal: whether the caller made a release';

-- Internal: whether the caller is a member of dp_owner and owns every protected relation that a release reads.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.owns_release(found_release dp.stored_release)
returns boolean
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select dp.caller_administers()
       and coalesce(bool_and(c.oid is not null and pg_has_role(dp.caller(), c.relowner, 'usage')), false)
      from unnest(found_release.protected) as u(name)
      -- a relation that took the name later is another one; in a restored database names are all there is
      left join pg_class as c on c.oid = to_regclass(u.name)
           and (c.oid = any (found_release.relations)
                or found_release.incarnation is distinct from (select i.token from dp.ledger_incarnation as i))
$$;
comment on function dp.owns_release(dp.stored_release) is
    'internal: whether the caller owns the protected relations of a release';

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
    select r.* into found_release from dp.stored_release as r where r.name = own_release.name;
    if not found or not (dp.made_release(found_release) or dp.owns_release(found_release)) then
        raise exception using
            errcode = 'PD040',
            message = format('there is no release %s of yours', coalesce(quote_ident(name), 'NULL')),
            detail = 'Whoever released it can change it, and the owners of all protected relations that it reads.',
            hint = 'SELECT name FROM dp.releases;';
    end if;
    return found_release;
end
$$;
comment on function dp.own_release(text) is 'internal: a release that the caller may change';

-- Drops a release and its table; what it cost stays spent.  Callers: who released it, or the owners of
-- all relations that it reads.  Security definer on purpose: owned by dp_executor, who owns the table.
create or replace function dp.drop_release(name text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_release dp.stored_release := dp.own_release(drop_release.name);
begin
    if to_regclass(format('dpv.%I', found_release.name)) is not null then
        execute format('drop table dpv.%I', found_release.name);
    end if;
    delete from dp.stored_release as r where r.name = found_release.name;
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
