-- Allows or forbids sensitivity methods without a proof on a protected relation; they are forbidden at
-- first.  A question needs the permission of all its protected relations; answer, dp.explain and ledger
-- then say "heuristic".  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.allow_heuristic(relation regclass, allowed boolean default true)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    root_id constant integer := dp.owned_root('dp.allow_heuristic', relation);
begin
    if allowed is null then
        raise exception using
            errcode = 'PD040', message = 'parameter "allowed" of dp.allow_heuristic must not be null';
    end if;
    update dp.root as r set heuristic = allowed where r.id = root_id;
    perform dp.touch_catalogue();
end
$$;
comment on function dp.allow_heuristic(regclass, boolean) is
    'allow sensitivity methods without proof on a protected relation';
