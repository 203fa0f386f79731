-- Lets analysts name an ordinary view; a question over it is answered as if its definition had
-- been written out, so that only its declared base relations count.  Callers: the view's owner,
-- if a member of dp_owner.  A view that no question could name is refused.  Security definer on
-- purpose: writes the catalogue.
create or replace function dp.declare_view(view regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    undeclared text;
begin
    if view is null then
        raise exception using
            errcode = 'PD040', message = 'parameter "view" of dp.declare_view must not be null';
    end if;
    perform dp.require_ownership(view);
    if not exists (select from pg_catalog.pg_class as c
                    where c.oid = view and c.relkind = 'v' and c.relpersistence <> 't')
       or dp.relation_problem(view) = 'it is a system relation' then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not an ordinary view', view),
            hint = 'Use dp.protect or dp.declare_public for tables.';
    end if;
    perform dp.touch_catalogue();
    select string_agg(distinct d.refobjid::regclass::text, ', ')
      into undeclared
      from pg_catalog.pg_rewrite as w
      join pg_catalog.pg_depend as d
        on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = w.oid
       and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid <> view
     where w.ev_class = view
       and not exists (select from dp.declarations() as p where p.relation = d.refobjid);
    if undeclared is not null then
        raise exception using
            errcode = 'PD012',
            message = format('view %s reads relations that are not declared', view),
            detail = format('Not declared: %s.', undeclared),
            hint = 'Use dp.protect or dp.declare_public for each of them first.';
    end if;
    insert into dp.policy (relation, kind, declared_by)
    values (view, 'view', (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()))
    on conflict on constraint policy_pkey do nothing;
    perform dp.require_flat(dp.deparse(format('select public.dp_count(*) from %s', view)));
end
$$;
comment on function dp.declare_view(regclass) is 'let analysts name an ordinary view over declared relations';

-- Internal: refuses a statement, as dp.deparse printed it, over relations and views that no
-- question could read; reads no row.
-- Not pinned on purpose: a door, as those of hook_door.sql; the PL/Python function behind it pins its own.
create or replace function dp.require_flat(query text)
returns void
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';
comment on function dp.require_flat(text) is 'internal: raises why no question can read what a statement reads';
