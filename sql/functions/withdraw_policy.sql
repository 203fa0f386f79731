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
    if kind <> 'view' then
        perform dp.stop_executor_reading(relation);
    end if;
    if had_root then
        update dp.policy as p set kind = 'withdrawn' where p.relation = withdraw_policy.relation;
    else
        delete from dp.policy as p where p.relation = withdraw_policy.relation;
    end if;
    if kind = 'protected' then
        -- what belonged to its units and to no others
        perform dp.stop_executor_reading(m.oid)
           from unnest(members) as m(oid)
          where has_table_privilege('dp_executor', m.oid, 'select')
            and (select s.kind from dp.standing(m.oid) as s) is null;
    end if;
    perform dp.touch_catalogue();
end
$$;
comment on function dp.withdraw_policy(regclass, text) is 'internal: takes back a declaration';
