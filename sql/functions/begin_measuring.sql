-- Internal: begins to measure relations, for statistics or for sketches.  From here to the end of the
-- transaction no other measurement forgets changes that this one has still to count, and the
-- relations keep their definition.  "what" is said in errors.  Security definer on purpose: locks a
-- table of ours; its callers have checked who asks.
create or replace function dp.begin_measuring(relations oid[], what text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    members oid[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using
            errcode = 'PD040',
            message = format('%s in this transaction', what),
            detail = format('It is %s: its snapshot may be older than those of refreshes.',
                            upper(current_setting('transaction_isolation'))),
            hint = 'Use a transaction that is READ COMMITTED.';
    end if;
    lock table dp.measurement in share row exclusive mode;
    perform dp.lock_declared(relations);
    members := array(select distinct unnest(dp.statistics_members(r)) from unnest(relations) as r);
    if dp.changed_here(members)
       or exists (select from dp.change as c
                   where c.relation = any (members)
                     and c.transaction = pg_current_xact_id_if_assigned()) then
        raise exception using
            errcode = 'PD040',
            message = format('%s in a transaction that changed the rows itself', what),
            hint = 'Commit the changes first.';
    end if;
end
$$;
comment on function dp.begin_measuring(oid[], text) is
    'internal: locks out what would forget changes of relations that are measured';
