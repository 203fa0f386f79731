-- Takes from PUBLIC, in this database, what PostgreSQL tells everybody about rows, and from analysts what they were
-- granted on protected relations; dp.unlock puts it back.  Callers: members of dp_owner.  What concerns a relation is
-- done for its owner, what concerns the database for its owner, the catalogue for a superuser only; a notice names what
-- is left undone.  Called again it does what has come to be needed since.
-- Security definer on purpose: only a superuser changes privileges of the catalogue, and the record for dp.unlock must
-- hold nothing but what was done.
create or replace function dp.lockdown(relations regclass[] default null)
returns table (measure text, changes bigint)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    first_change bigint;
    is_superuser constant boolean := (select r.rolsuper from pg_roles as r where r.oid = dp.caller());
    unknown text;
begin
    perform dp.require_administrator();
    select string_agg(r.name::text, ', ') into unknown
      from unnest(relations) as r(name)
     where not exists (select from dp.declarations() as d where d.relation = r.name and d.kind = 'protected');
    if unknown is not null then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not protected', unknown),
            hint = 'Protect it first: SELECT dp.protect(relation).';
    end if;
    -- one call at a time; whoever has renamed a column, and keeps the transaction open, hinders none
    lock table dp.lockdown_change in share update exclusive mode;
    select coalesce(max(c.id), 0) into first_change from dp.lockdown_change as c;
    if is_superuser then
        perform dp.lock_catalogue();
        perform dp.lock_extensions();
    end if;
    perform dp.lock_database();
    -- last: views of analysts are among them, whom nothing of the above may have to wait for
    perform dp.lock_relations(dp.guarded_relations(relations));
    if not is_superuser then
        raise notice using
            message = 'the catalogue is left as it is',
            detail = 'Only a superuser may take from PUBLIC what the catalogue tells of every relation.',
            hint = 'Ask a superuser for SELECT * FROM dp.lockdown(); dp.check_lockdown() lists what is left.';
    end if;
    if is_superuser and current_setting('dp.preload_python', true) is null then
        raise warning using
            message = 'the library dpsql is not loaded at server start: sizes are refused instead of being hidden',
            detail = 'Clients that ask for sizes, as psql does for \dt+, get "permission denied".',
            hint = 'Add dpsql to shared_preload_libraries and restart, as dpsql install does.';
    end if;
    return query
    select c.measure, count(*) from dp.lockdown_change as c
     where c.id > first_change and c.taken group by c.measure order by c.measure;
end
$$;
comment on function dp.lockdown(regclass[]) is
    'take from everybody what PostgreSQL tells about rows, and from analysts what they may read; what was done is returned';
