-- Enters a spend that the ledger does not know, because a backup was restored or the data was
-- published elsewhere; it counts from commit on.  It is kept apart from the ledger's own tables,
-- so that an open transaction cannot block a charge.  "rho" is its price under zCDP, with the same
-- delta; NULL is what epsilon implies, which is much for a sum of many small spends.  Callers: members of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.record_loss(
    role regrole,
    relation regclass,
    epsilon numeric,
    delta numeric,
    note text,
    rho numeric default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    root_id integer;
begin
    perform dp.require_administrator();
    if role is null and relation is null or epsilon is null or delta is null or note is null then
        raise exception using
            errcode = 'PD040',
            message = 'dp.record_loss needs a role or a relation, epsilon, delta and a note';
    end if;
    perform dp.require_loss('dp.record_loss', nullif(epsilon, 0), delta);
    if rho < 0 or rho in ('NaN', 'Infinity') then
        raise exception using
            errcode = 'PD040',
            message = 'parameter "rho" of dp.record_loss must be at least 0 and finite',
            detail = format('Got %s.', rho);
    end if;
    perform dp.require_ledger_in_place();
    if relation is not null then
        perform dp.require_ownership(relation);
        select p.root into root_id from dp.policy as p
         where p.relation = record_loss.relation and p.root is not null;
        if not found then
            raise exception using
                errcode = 'PD040', message = format('relation %s was never protected', relation);
        end if;
    end if;
    insert into dp.loss (principal, root, epsilon, delta, rho, rho_delta, note, recorded_by)
    values (case when role is not null then dp.principal_of(role) end, root_id, epsilon, delta,
            coalesce(rho, dp.zcdp_price(epsilon)), delta, note,
            (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()));
    if root_id is not null then
        perform dp.ledger_cover((
            select coalesce(jsonb_agg(to_jsonb(c)), '[]')
              from dp.coverage(relation::oid || dp.unit_dependants(relation)) as c where c.root = root_id));
    end if;
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.record_loss(regrole, regclass, numeric, numeric, text, numeric) is
    'enter a spend that the ledger does not know';
