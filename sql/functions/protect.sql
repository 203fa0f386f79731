-- Declares a relation as protected: its rows are private, questions over it are answered with
-- noise and charged to its root.  Callers: the relation's owner, if a member of dp_owner.
-- "epsilon" and "delta" cap what all roles together may ever spend on it; NULL epsilon means no
-- cap, NULL delta means the default of PRIVACY.md section 0.  Called again, it changes the caps
-- that are given.  A relation that was protected before keeps its root with all losses.
-- "privacy_unit" names the column that tells whose a row is: then all rows of one value of it are
-- protected together, in this relation and in all that reach it by foreign keys or dp.link.
-- Security definer on purpose: writes the catalogue and lets dp_executor read the relations.
create or replace function dp.protect(
    relation regclass,
    privacy_unit text default null,
    epsilon numeric default null,
    delta numeric default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_root integer;
    found_kind text;
    found_schema name;
    found_name name;
    notion constant text := case when privacy_unit is null then 'row' else 'unit' end;
    attnum_found int2;
    known dp.root;
    members oid[];
    several oid[];
    full_name text;
    last_name text;  -- of the relation that had the account
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" of dp.protect must not be null';
    end if;
    perform dp.require_ownership(relation);
    perform dp.require_loss('dp.protect', epsilon, delta);
    -- what its units forbid, this call may be about to mend
    if dp.own_problem(relation) is not null then
        perform dp.require_declarable(relation);
    end if;
    perform dp.require_unit(relation, privacy_unit);
    select a.attnum into attnum_found from pg_catalog.pg_attribute as a
     where a.attrelid = relation and a.attname = privacy_unit;
    select n.nspname, c.relname into found_schema, found_name
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where c.oid = protect.relation;
    full_name := format('%I.%I', found_schema, found_name);

    select p.root, p.kind into found_root, found_kind from dp.policy as p where p.relation = protect.relation;
    perform dp.require_notion(relation, found_root, privacy_unit);
    if found_kind = 'protected' and epsilon is null and delta is null
       and exists (select from dp.root as r where r.id = found_root and r.neighbours = notion
                      and r.unit_column is not distinct from privacy_unit
                      and r.unit_attnum is not distinct from attnum_found) then
        -- Nothing changes, so stored answers stay; not even a privilege is written again.
        if not has_table_privilege('dp_executor', relation, 'select') then
            perform dp.let_executor_read(relation);
        end if;
        perform dp.show_refusing(relation::oid || dp.unit_dependants(relation));
        return;
    end if;
    perform dp.touch_catalogue();
    if found_root is null then
        select r.id, n.name into found_root, last_name
          from dp.root as r cross join format('%I.%I', r.schema_name, r.relation_name) as n(name)
         where (n.name = full_name or full_name = any (r.earlier_names))
           and not exists (select from dp.policy as p where p.root = r.id)
         order by n.name = full_name desc, r.id desc
         limit 1;
        if not found then
            perform dp.require_no_other_account(relation, full_name);
        end if;
        perform dp.require_notion(relation, found_root, privacy_unit);
    end if;
    select r.* into known from dp.root as r where r.id = found_root and found_kind = 'protected';
    members := relation::oid || dp.unit_dependants(relation);
    several := dp.of_several_units(members);
    if found_root is null then
        insert into dp.root (schema_name, relation_name, neighbours, unit_column, unit_attnum, epsilon_cap, delta_cap)
        values (found_schema, found_name, notion, privacy_unit, attnum_found, epsilon, coalesce(delta, 1e-6))
        returning id into found_root;
    else
        update dp.root as r
           set neighbours = notion,
               unit_column = privacy_unit,
               unit_attnum = attnum_found,
               epsilon_cap = coalesce(protect.epsilon, r.epsilon_cap),
               delta_cap = coalesce(protect.delta, r.delta_cap)
         where r.id = found_root;
    end if;
    insert into dp.policy as p (relation, kind, root, declared_by)
    values (relation, 'protected', found_root, (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()))
    on conflict on constraint policy_pkey do update
       set kind = excluded.kind, root = excluded.root,
           declared_by = excluded.declared_by, declared_at = pg_catalog.clock_timestamp();
    if last_name <> full_name then
        raise notice using
            message = format('the account of %s goes on with relation %s, which has its earlier name', last_name, relation);
    end if;
    perform dp.require_covered(array[relation::oid]);
    perform dp.take_over_losses(relation);
    perform dp.warn_without_caps(found_root);
    perform dp.warn_of_spent_cap(found_root);
    perform dp.let_executor_read(relation);
    if privacy_unit is not null then
        perform dp.let_executor_read_members(relation);
        if known.unit_attnum is distinct from attnum_found then
            perform dp.tell_problems(members, several);
        end if;
    elsif known.neighbours = 'unit' then
        raise warning using
            message = format('relation %s is protected row by row from now on, no more with the privacy unit %I',
                             relation, known.unit_column),
            hint = format('To keep the unit: SELECT dp.protect(%L, privacy_unit => %L);', relation, known.unit_column);
        perform dp.tell_members(relation::text, dp.unit_dependants(relation));
    end if;
    if found_kind = 'public' then
        raise notice using
            message = format('relation %s was public and is protected from now on', relation),
            detail = 'Answers that were given while it was public were exact and are charged to nobody.';
    end if;
    perform dp.show_refusing(relation::oid || dp.unit_dependants(relation));
    if current_setting('dp.preload_python', true) is null then
        raise warning using
            message = 'the library dpsql is not loaded at server start: dp_count is not intercepted',
            detail = 'Only dp.query answers; SELECT dp_count(*) fails for want of privileges or with PD060.',
            hint = 'Add dpsql to shared_preload_libraries and restart, as dpsql install does.';
    end if;
end
$$;
comment on function dp.protect(regclass, text, numeric, numeric) is
    'protect the rows of a relation, or with privacy_unit all that belongs to each value of a column; epsilon and delta cap its loss';
