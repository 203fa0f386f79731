-- Internal: tells what the end of a relation's privacy units means for the relations that belonged to them.
create or replace function dp.tell_members(relation text, members oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    member record;
begin
    for member in
        select m.oid::regclass as name, r.left_units
          from unnest(members) as m(oid)
         cross join lateral (
            select string_agg(distinct format('%I.%I', o.relation_name, o.unit_column), ', ')
              from dp.root as o where o.id = any (dp.unit_roots(m.oid))) as r(left_units)
         where not exists (select from dp.policy as p where p.relation = m.oid and p.kind <> 'withdrawn')
         order by 1
    loop
        raise notice using
            message = case when member.left_units is null
                then format('relation %s belonged to units of %s and cannot be asked about any more', member.name, relation)
                else format('relation %s is protected for units of %s alone from now on', member.name, member.left_units) end,
            detail = format('Answers about it hide units of %s no more.', relation),
            hint = 'Its owner can say what it is now: dp.relations shows what is declared.';
    end loop;
end
$$;
comment on function dp.tell_members(text, oid[]) is 'internal: tells what the end of units means for others';

-- Internal: takes back a declaration of the given kind; a root and its losses stay.
create or replace function dp.withdraw_policy(relation regclass, kind text)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    had_root boolean;
    members constant oid[] := dp.unit_dependants(relation);
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" must not be null';
    end if;
    perform dp.require_ownership(relation);
    select p.root is not null into had_root
      from dp.policy as p
     where p.relation = withdraw_policy.relation and p.kind = withdraw_policy.kind;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not declared as %s', relation, kind),
            hint = 'SELECT * FROM dp.relations shows what is declared.';
    end if;
    if had_root then
        update dp.policy as p set kind = 'withdrawn' where p.relation = withdraw_policy.relation;
    else
        delete from dp.policy as p where p.relation = withdraw_policy.relation;
    end if;
    -- a relation that still belongs to units of another one is still asked about
    if kind <> 'view' and (select s.kind from dp.standing(relation) as s) is null then
        perform dp.stop_executor_reading(relation);
    end if;
    if kind = 'protected' then
        if exists (select from dp.policy as p join dp.root as r on r.id = p.root
                    where p.relation = withdraw_policy.relation and r.neighbours = 'unit') then
            perform dp.tell_members(
                relation::text, case when dp.unit_roots(relation) is null then members else relation::oid || members end);
        end if;
        -- what belonged to its units and to no others
        perform dp.stop_executor_reading(m.oid)
           from unnest(members) as m(oid)
          where has_table_privilege('dp_executor', m.oid, 'select')
            and (select s.kind from dp.standing(m.oid) as s) is null;
    end if;
    perform dp.touch_catalogue();
    if kind = 'protected' then
        perform dp.show_refusing(relation::oid || members);
    end if;
end
$$;
comment on function dp.withdraw_policy(regclass, text) is 'internal: takes back a declaration';
