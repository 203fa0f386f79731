-- Internal: refuses columns that cannot name a privacy unit, and relations that belong to one already.
create or replace function dp.require_unit(relation regclass, privacy_unit text)
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    problem text;
    attnum int2;
begin
    if privacy_unit is null then
        if dp.unit_roots(relation) is not null
           and not exists (select from dp.policy as p join dp.root as r on r.id = p.root
                            where p.relation = require_unit.relation and p.kind = 'protected'
                              and r.neighbours = 'unit') then
            raise exception using
                errcode = 'PD040',
                message = format('rows of relation %s belong to privacy units and are protected with them', relation),
                detail = 'SELECT * FROM dp.relations tells to which ones.',
                hint = 'Nothing is to be done.';
        end if;
        return;
    end if;
    select a.attnum into attnum from pg_attribute as a
     where a.attrelid = relation and a.attname = privacy_unit and a.attnum > 0 and not a.attisdropped;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s has no column %I', relation, privacy_unit),
            hint = 'privacy_unit is the name of the column that tells whose a row is, its primary key for example.';
    end if;
    problem := coalesce(dp.unit_column_problem(relation, attnum), dp.unit_nulls_problem(relation, attnum));
    if problem is not null then
        raise exception using
            errcode = 'PD040',
            message = format('column %I of relation %s cannot name a privacy unit', privacy_unit, relation),
            detail = format('%s.', problem),
            hint = 'Name a NOT NULL column of a type such as integer, bigint, text or uuid that tells whose a row is.';
    end if;
    perform dp.require_undeclared(relation, dp.unit_dependants(relation));
end
$$;
comment on function dp.require_unit(regclass, text) is 'internal: raises PD040 where a privacy unit cannot be declared';

-- Internal: refuses that relations get privacy units by a parent while the caller declared them as something else, and
-- tells of those of other owners.
create or replace function dp.require_undeclared(parent regclass, members oid[])
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    conflicts text;
    others record;
begin
    select string_agg(format('%s (%s)', p.relation, case p.kind when 'public' then 'public' else 'protected row by row' end), ', '
                      order by p.relation::text)
      into conflicts
      from dp.policy as p join pg_class as c on c.oid = p.relation left join dp.root as r on r.id = p.root
     where p.relation = any (members)
       and p.kind in ('protected', 'public')
       and coalesce(r.neighbours, 'row') = 'row'
       and pg_has_role(dp.caller(), c.relowner, 'usage');
    if conflicts is not null then
        raise exception using
            errcode = 'PD040',
            message = format('relations that refer to %s are declared otherwise', parent),
            detail = format('They would belong to its units: %s.', conflicts),
            hint = 'Take that back first with dp.unprotect or dp.undeclare_public, or say that the key leads to no unit: dp.link(child, parent, columns, follow => false).';
    end if;
    -- whoever may refer to a relation must not be able to keep its owner from protecting it: what others
    -- declared is refused from now on (dp.standing)
    for others in
        select p.relation, p.kind, p.declared_by
          from dp.policy as p left join dp.root as r on r.id = p.root
         where p.relation = any (members)
           and p.kind in ('protected', 'public')
           and coalesce(r.neighbours, 'row') = 'row'
         order by 1
    loop
        raise warning using
            message = format('relation %s of another owner refers to %s and cannot be asked about any more',
                             others.relation, parent),
            detail = format('%s declared it as %s, but its rows belong to these units.', others.declared_by,
                            case others.kind when 'public' then 'public' else 'protected row by row' end),
            hint = 'Let its owner take that back, or say that the key leads to no unit:'
                   ' dp.link(child, parent, columns, follow => false).';
    end loop;
end
$$;
comment on function dp.require_undeclared(regclass, oid[]) is
    'internal: raises PD040 where what would belong to privacy units is declared as something else';

-- Internal: one notion of neighbours per root, for ever (PRIVACY.md section 1): refuses another one
-- once anything was spent.
create or replace function dp.require_notion(relation regclass, root_id integer, privacy_unit text)
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    known dp.root;
    same boolean;  -- the relation that the number of the unit's column is of
begin
    select r.* into known from dp.root as r where r.id = root_id;
    if not found then
        return;
    end if;
    same := exists (select from dp.policy as p where p.root = root_id and p.relation = require_notion.relation)
            or exists (select from dp.covered as c where c.root = root_id and c.relation = require_notion.relation);
    -- a column stays the same one by whatever name; of a relation or column that was dropped only names are left
    if known.unit_column is null and privacy_unit is null
       or same and known.unit_attnum = (select a.attnum from pg_attribute as a
                                         where a.attrelid = relation and a.attname = privacy_unit)
       or known.unit_column = privacy_unit
          and not (same and exists (select from pg_attribute as a
                                     where a.attrelid = relation and a.attnum = known.unit_attnum
                                       and not a.attisdropped)) then
        return;
    end if;
    if exists (select from dp.spend as s where root_id = any (s.roots))
       or exists (select from dp.loss as l where l.root = root_id) then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s was protected %s', relation,
                             case when known.unit_column is null then 'row by row'
                                  else format('with the privacy unit %I', known.unit_column) end),
            detail = 'Its losses were recorded so, and what they mean cannot be changed any more.',
            hint = case when known.unit_column is null then 'Call dp.protect without privacy_unit, as before'
                        else format('Call dp.protect with privacy_unit => %L, as before', known.unit_column) end
                   || ', or dp.set_root_cap to change the caps alone.';
    end if;
end
$$;
comment on function dp.require_notion(regclass, integer, text) is
    'internal: raises PD040 where losses are recorded under another notion of neighbours';

-- Internal: lets dp_executor read what belongs to the units of a relation and to the caller, and
-- tells what belongs to others.
create or replace function dp.let_executor_read_members(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.unit_dependants(relation);
    member record;
begin
    for member in
        select c.oid::regclass as name, pg_has_role(dp.caller(), c.relowner, 'usage') as owned
          from pg_class as c
         where c.oid = any (members)
         order by 1
    loop
        if member.owned then
            perform dp.let_executor_read(member.name);
        else
            raise notice using
                message = format('relation %s belongs to these privacy units, but not to you', member.name),
                hint = format('Let its owner allow questions about it: GRANT SELECT ON %s TO dp_executor;', member.name);
        end if;
    end loop;
end
$$;
comment on function dp.let_executor_read_members(regclass) is 'internal: lets dp_executor read what belongs to units';
