-- Sets the total loss that all roles together may ever cause on a protected relation; NULL
-- epsilon removes its cap, NULL delta keeps it.  "composition" says how spends add up, as for dp.grant_budget; NULL
-- keeps what the relation has.  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.set_root_cap(
    relation regclass,
    epsilon numeric,
    delta numeric default null,
    composition text default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    root_id constant integer := dp.owned_root('dp.set_root_cap', relation);
    before dp.root;
    after dp.root;
    warning text;
begin
    perform dp.require_loss('dp.set_root_cap', epsilon, coalesce(delta, 0));
    perform dp.require_composition('dp.set_root_cap', composition);
    select r.* into before from dp.root as r where r.id = root_id;
    update dp.root as r
       set epsilon_cap = set_root_cap.epsilon, delta_cap = coalesce(set_root_cap.delta, r.delta_cap),
           composition = coalesce(set_root_cap.composition, r.composition)
     where r.id = root_id
    returning r.* into after;
    warning := dp.composition_warning(
        before.composition, after.composition, before.delta_cap, after.delta_cap,
        exists (select from dp.root_total as t where t.root = after.id and t.spends > 0));
    if warning <> '' then
        raise notice using
            message = format('the composition of relation %s was changed', relation),
            detail = ltrim(warning),
            hint = 'What was spent on the relation counts, at its price under the new composition.';
    end if;
    if after.epsilon_cap is null then
        perform dp.warn_without_caps(root_id);
    end if;
    perform dp.warn_of_spent_cap(root_id);
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.set_root_cap(regclass, numeric, numeric, text) is 'cap the total loss of a protected relation';
