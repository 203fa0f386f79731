-- Internal: refuses relations of which no statistics can be kept.
create or replace function dp.require_statistics(relation regclass)
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    problem text;
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" must not be null';
    end if;
    perform dp.require_ownership(relation);
    problem := case
        when not exists (select from dp.policy as p where p.relation = require_statistics.relation)
             and exists (select from dp.unit_paths(relation))
            then 'its rows belong to privacy units, and questions over units need no statistics'
        else coalesce(dp.statistics_problem(relation), dp.relation_problem(relation)) end;
    if problem is not null then
        raise exception using
            errcode = 'PD040',
            message = format('no statistics can be kept of relation %s', relation),
            detail = format('Of this relation it is true that %s.', problem),
            hint = 'Questions over it are answered as before, from the data itself.';
    end if;
end
$$;
comment on function dp.require_statistics(regclass) is
    'internal: raises an error where no statistics can be kept';

-- Starts counting the changes of a relation, by statement triggers on it and on all its partitions
-- and children.  Waits for writers, so it is short and apart from refreshing.  Called again, it
-- brings new partitions in and repairs triggers; statistics count from the next refresh on.
-- Callers: the relation's owner, if a member of dp_owner.  Security definer on purpose: nobody else
-- may make triggers of functions that write what is known of a relation.
create or replace function dp.collect_statistics(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    member regclass;
    old_table text;
begin
    perform dp.require_statistics(relation);
    if dp.statistics_collected(relation) then
        return;
    end if;
    execute format('lock table %s in share row exclusive mode', relation);
    perform dp.drop_counting(relation);
    if not dp.statistics_keyed(relation)
       and exists (select from dp.policy as p where p.relation = collect_statistics.relation and p.kind = 'protected') then
        raise warning using
            message = format('relation %s has no primary key that identifies a row through its updates', relation),
            detail = 'Each version of a row counts as a row of its own. Answers from statistics hide one version of a row, not how often it was updated.',
            hint = 'Give the relation itself, if it has no children, a primary key of columns of type integer, bigint, uuid, text or date, or do not update its rows.';
    end if;
    -- without such a key every version is a row, and no keys are logged
    old_table := case when dp.statistics_keyed(relation) then 'referencing old table as dpsql_old' else '' end;
    foreach member in array dp.statistics_members(relation)::regclass[] loop
        execute format('create trigger dpsql_insert after insert on %s'
                       ' for each statement execute function dp.count_inserts()', member);
        execute format('create trigger dpsql_update after update on %s %s'
                       ' for each statement execute function dp.count_updates()', member, old_table);
        execute format('create trigger dpsql_truncate after truncate on %s'
                       ' for each statement execute function dp.count_inserts()', member);
        execute format('alter table only %s enable always trigger dpsql_insert,'
                       ' enable always trigger dpsql_update,'
                       ' enable always trigger dpsql_truncate', member);
    end loop;
end
$$;
comment on function dp.collect_statistics(regclass) is
    'count the changes of a relation from now on; dp.refresh_statistics then takes statistics';

-- Internal: drops the triggers from a relation and its members.
create or replace function dp.drop_counting(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
begin
    for found in
        select t.tgname, t.tgrelid::regclass as member
          from pg_trigger as t
         where t.tgrelid = any (dp.statistics_members(relation))
           and t.tgfoid in ('dp.count_inserts()'::regprocedure, 'dp.count_updates()'::regprocedure)
    loop
        execute format('drop trigger %I on %s', found.tgname, found.member);
    end loop;
end
$$;
comment on function dp.drop_counting(regclass) is 'internal: drops the triggers that count changes';

-- Stops counting and forgets all statistics that involve the relation.  Callers: its owner, if a
-- member of dp_owner.  Security definer on purpose: writes tables of ours.
create or replace function dp.drop_statistics(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" must not be null';
    end if;
    perform dp.require_ownership(relation);
    -- in the order of dp.refresh_statistics
    lock table dp.measurement in share row exclusive mode;
    perform dp.drop_counting(relation);
    delete from dp.statistic as s
     where s.relation = drop_statistics.relation
        or s.kept in (select k.id from dp.kept_query as k
                       where drop_statistics.relation = any (k.relations));
    perform dp.compact_changes();
    delete from dp.change as c where c.relation = any (dp.statistics_members(drop_statistics.relation));
    delete from dp.changed_key as k where k.relation = any (dp.statistics_members(drop_statistics.relation));
end
$$;
comment on function dp.drop_statistics(regclass) is
    'stop counting the changes of a relation and forget its statistics';
