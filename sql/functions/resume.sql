-- Resets the failures of a role over a relation, so that its questions are answered again.  If "role" is NULL, it resets
-- those of all roles; if "relation" is NULL, those over all protected relations of the caller.  The ledger keeps the
-- failures.  A question that is open now and fails later counts.  Returns how many failures no longer count.
-- Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue and reads the ledger.
create or replace function dp.resume(role regrole default null, relation regclass default null)
returns bigint
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    owned integer[];
    resumed bigint;
begin
    perform dp.require_administrator();
    if relation is not null then
        owned := array[dp.owned_root('dp.resume', relation)];
    else
        owned := array(
            select p.root
              from dp.policy as p
              join pg_catalog.pg_class as c on c.oid = p.relation
             where p.kind = 'protected' and pg_has_role(dp.caller(), c.relowner, 'usage'));
    end if;
    with noted as (
        insert into dp.resumption (spend, root, resumed_by)
        select f.spend, u.root, (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller())
          from dp.failure as f
         cross join unnest(f.roots) as u(root)
         where u.root = any (owned)
           and (resume.role is null
                or f.principal = (select p.id from dp.principal as p where p.role_oid = resume.role))
           and dp.ledger_failed(f)
        on conflict do nothing
        returning spend)
    select count(distinct n.spend) into resumed from noted as n;
    perform dp.touch_catalogue(declarations => false);
    return resumed;
end
$$;
comment on function dp.resume(regrole, regclass) is 'let a role be answered again after failures';
