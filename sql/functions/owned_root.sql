-- Internal: the root of a protected relation, for its owner; refuses everybody else and every other
-- relation in the name of a function.
create or replace function dp.owned_root(function_name text, relation regclass)
returns integer
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found_root integer;
    paying regclass[];
begin
    if relation is null then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "relation" of %s must not be null', function_name);
    end if;
    perform dp.require_ownership(relation);
    select p.root into found_root
      from dp.policy as p
     where p.relation = owned_root.relation and p.kind = 'protected';
    if not found then
        select array_agg(p.relation order by p.relation::text) into paying
          from dp.policy as p
         where p.kind = 'protected' and p.root = any (dp.unit_roots(owned_root.relation));
        if paying is not null then
            raise exception using
                errcode = 'PD040',
                message = format('relation %s is protected with the privacy units that its rows belong to', relation),
                detail = format('Questions about it are charged to %s.', array_to_string(paying, ', ')),
                hint = format('Call %s for %s.', function_name, array_to_string(paying, ' or '));
        end if;
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not protected', relation),
            hint = format('SELECT dp.protect(%L);', relation);
    end if;
    return found_root;
end
$$;
comment on function dp.owned_root(text, regclass) is
    'internal: the root of a protected relation that the caller owns';
