-- Internal: tells whoever leaves a relation with a cap that is spent already that questions stop.
create or replace function dp.warn_of_spent_cap(root integer)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    if not dp.ledger_exhausted(root) then
        return;
    end if;
    select format('%I.%I', r.schema_name, r.relation_name) into name from dp.root as r where r.id = warn_of_spent_cap.root;
    raise warning using
        message = format('nothing is left to spend on relation %s', name),
        detail = 'All new questions about it, and about what belongs to its privacy units, are refused.'
                 ' dp.budgets shows what was spent.',
        hint = format('To let questions go on: SELECT dp.set_root_cap(%L, epsilon, delta), with more than was spent.', name);
end
$$;
comment on function dp.warn_of_spent_cap(integer) is 'internal: warns of a cap that is spent already';
