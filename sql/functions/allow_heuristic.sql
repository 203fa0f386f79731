-- Allows or forbids sensitivity methods without a proof on a protected relation; they are forbidden at
-- first.  A question needs the permission of all its protected relations; answer, dp.explain and ledger
-- then say "heuristic".  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.allow_heuristic(relation regclass, allowed boolean default true)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if relation is null or allowed is null then
        raise exception using
            errcode = 'PD040', message = 'parameters of dp.allow_heuristic must not be null';
    end if;
    perform dp.require_ownership(relation);
    update dp.root as r
       set heuristic = allowed
      from dp.policy as p
     where p.root = r.id and p.relation = allow_heuristic.relation and p.kind = 'protected';
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not protected', relation),
            hint = format('SELECT dp.protect(%L);', relation);
    end if;
    perform dp.touch_catalogue();
end
$$;
comment on function dp.allow_heuristic(regclass, boolean) is
    'allow sensitivity methods without proof on a protected relation';
