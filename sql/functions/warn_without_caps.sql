-- Internal: tells whoever leaves a relation without a cap while budgets have windows, or grants such
-- a budget, that nothing bounds what such a relation loses in the long run.  NULL: all relations.
create or replace function dp.warn_without_caps(root integer)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    names text;
begin
    if not exists (select from dp.role_budget as b where b.budget_window is not null) then
        return;
    end if;
    select string_agg(p.relation::text, ', ' order by p.relation::text) into names
      from dp.policy as p
      join dp.root as r on r.id = p.root
     where p.kind = 'protected' and r.epsilon_cap is null
       and (warn_without_caps.root is null or r.id = warn_without_caps.root);
    if names is not null then
        raise warning using
            message = 'a budget for each window bounds no loss in the long run',
            detail = format('Relations without a cap on epsilon: %s.', names),
            hint = 'Their owners cap what all roles together may ever spend: SELECT dp.set_root_cap(relation, epsilon).';
    end if;
end
$$;
comment on function dp.warn_without_caps(integer) is
    'internal: warns of windows over relations without a cap';
