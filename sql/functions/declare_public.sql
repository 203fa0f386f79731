-- Declares that a relation's content is public: it is read exactly, free of charge and without
-- noise (PRIVACY.md section 1).  Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue and lets dp_executor read the relation.
create or replace function dp.declare_public(relation regclass)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if relation is null then
        raise exception using
            errcode = 'PD040', message = 'parameter "relation" of dp.declare_public must not be null';
    end if;
    perform dp.require_ownership(relation);
    perform dp.require_declarable(relation);
    if dp.unit_roots(relation) is not null then
        raise exception using
            errcode = 'PD040',
            message = format('rows of relation %s belong to privacy units', relation),
            detail = 'SELECT * FROM dp.relations tells to which ones.',
            hint = 'Where a foreign key has nothing to do with the unit, say so first: dp.link(child, parent, columns, follow => false).';
    end if;
    if exists (select from dp.policy as p
                where p.relation = declare_public.relation and p.kind = 'public') then
        -- Nothing changes, so stored answers stay; not even a privilege is written again.
        if not has_table_privilege('dp_executor', relation, 'select') then
            perform dp.let_executor_read(relation);
        end if;
        return;
    end if;
    perform dp.touch_catalogue();
    if exists (select from dp.policy as p
                where p.relation = declare_public.relation and p.kind = 'protected') then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is protected', relation),
            hint = format('Publishing what was private cannot be undone. If that is meant, run SELECT dp.unprotect(%L) first.', relation);
    end if;
    insert into dp.policy (relation, kind, declared_by)
    values (relation, 'public', (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()))
    on conflict on constraint policy_pkey do update
       set kind = excluded.kind, declared_by = excluded.declared_by,
           declared_at = pg_catalog.clock_timestamp();
    perform dp.let_executor_read(relation);
end
$$;
comment on function dp.declare_public(regclass) is 'declare the content of a relation as public';
