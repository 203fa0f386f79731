-- Sets how many questions, releases and syntheses of one role over a protected relation may fail after their charge
-- before the role is refused.  Each failure may tell one bit about rows without noise (docs/not-protected.md).  "in_all"
-- limits the failures of all roles together; NULL sets no such limit.
-- Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.set_failure_limit(relation regclass, failures integer, in_all integer default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    root_id constant integer := dp.owned_root('dp.set_failure_limit', relation);
begin
    if failures is null or failures not between 1 and 1000 or in_all not between 1 and 1000 then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "%s" of dp.set_failure_limit must be between 1 and 1000',
                             case when failures between 1 and 1000 then 'in_all' else 'failures' end),
            detail = format('Got %s.', case when failures between 1 and 1000 then in_all else failures end),
            hint = 'The default is 3.';
    end if;
    update dp.root as r
       set failure_limit = failures, failure_limit_in_all = in_all
     where r.id = root_id;
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.set_failure_limit(regclass, integer, integer) is
    'how many questions over a relation may fail before a role is refused';
