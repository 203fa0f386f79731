-- Says that rows of a child belong to the privacy unit of the parent whose key equals "columns",
-- where no foreign key says so; or how a foreign key is to be read.  "nulls" tells what happens to rows
-- that have no parent: 'refused' refuses questions while there may be any, 'excluded' never counts
-- them.  "follow" => false says that a foreign key leads to no unit: then rows of the child are
-- protected with that parent's unit no more.  Callers: the child's owner, if a member of dp_owner, who
-- may refer to the parent as a foreign key may.
-- Security definer on purpose: writes the catalogue and lets dp_executor read the child.
create or replace function dp.link(
    child regclass,
    parent regclass,
    columns name[],
    parent_columns name[] default null,
    nulls text default 'refused',
    follow boolean default true)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    pairs record;
    forbidden text;
    members oid[];
    several oid[];
    reaches boolean;
begin
    if child is null or parent is null or columns is null or nulls is null or follow is null then
        raise exception using
            errcode = 'PD040', message = 'parameters of dp.link must not be null, but for "parent_columns"';
    end if;
    if nulls not in ('refused', 'excluded') then
        raise exception using
            errcode = 'PD040', message = 'parameter "nulls" of dp.link must be refused or excluded';
    end if;
    perform dp.require_ownership(child);
    if exists (select from pg_inherits as i where i.inhrelid in (child, parent)) then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is part of another one',
                             (select i.inhrelid::regclass from pg_inherits as i
                               where i.inhrelid in (child, parent) order by i.inhrelid = child desc limit 1)),
            hint = 'Link the whole: the topmost relation.';
    end if;
    -- what its units forbid, this call may be about to mend
    if dp.own_problem(child) is not null then
        perform dp.require_declarable(child);
    end if;
    if not exists (select from pg_class as c where c.oid = parent) then
        raise exception using errcode = 'PD040', message = format('relation %s does not exist', parent);
    end if;
    if parent_columns is null then
        parent_columns := dp.primary_key(parent);
    end if;
    if parent_columns is null or cardinality(parent_columns) <> cardinality(columns) or cardinality(columns) = 0 then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s has no primary key of %s columns', parent, cardinality(columns)),
            hint = 'Name the columns of a unique key: parent_columns => array[...].';
    end if;
    select string_agg(format('%s.%I', u.relation, u.name), ', ') into forbidden
      from (select child, c from unnest(columns) as c
            union all select parent, c from unnest(parent_columns) as c) as u(relation, name)
     where not exists (select from pg_attribute as a
                        where a.attrelid = u.relation and a.attname = u.name and a.attnum > 0 and not a.attisdropped);
    if forbidden is not null then
        raise exception using errcode = 'PD040', message = format('column %s does not exist', forbidden);
    end if;
    if not exists (select from pg_class as c where c.oid = parent
                      and has_schema_privilege(dp.caller(), c.relnamespace, 'usage'))
       or exists (select from unnest(parent_columns) as u(name)
                   where not has_column_privilege(dp.caller(), parent, u.name, 'references')) then
        raise exception using
            errcode = 'PD070',
            message = format('permission denied to refer to relation %s', parent),
            hint = format('Its owner must GRANT REFERENCES ON %s, as for a foreign key.', parent);
    end if;
    -- in the order of the child's columns, as dp.unit_edges gives foreign keys
    select array_agg(a.attname order by a.attnum) as mine, array_agg(a.attnum order by a.attnum) as mine_numbers,
           array_agg(b.attname order by a.attnum) as theirs, array_agg(b.attnum order by a.attnum) as their_numbers,
           min(coalesce(dp.unit_column_problem(child, a.attnum), dp.unit_column_problem(parent, b.attnum))) as problem,
           min(l.unlike) as unlike, min(l.mend) as mend
      into pairs
      from unnest(columns, parent_columns) as u(mine, theirs)
      join pg_attribute as a on a.attrelid = child and a.attname = u.mine
      join pg_attribute as b on b.attrelid = parent and b.attname = u.theirs
     cross join dp.unlike_columns(child, columns, parent, parent_columns) as l;
    if pairs.problem is not null and follow then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s cannot be linked to %s', child, parent),
            detail = format('%s.', pairs.problem),
            hint = 'Link columns of types such as integer, bigint, text or uuid.';
    end if;
    if pairs.unlike is not null and follow then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s cannot be linked to %s by columns of different types', child, parent),
            detail = format('%s.', pairs.unlike),
            hint = format('Give them the same type, then link: %s', pairs.mend);
    end if;
    members := child::oid || dp.unit_dependants(child);
    reaches := dp.unit_roots(parent) is not null;
    if follow and reaches then
        if parent = any (members)
           and not exists (select from dp.unit_edges(child) as e
                            where e.parent = link.parent and e.columns = pairs.mine and e.parent_columns = pairs.theirs) then
            perform dp.refuse_circle(child, parent, members);
        end if;
        perform dp.require_undeclared(parent, array(select m.oid from unnest(members) as m(oid)
                                                     where dp.unit_roots(m.oid) is null));
    end if;
    perform dp.touch_catalogue();
    -- of what could be asked about: for anything else it is news
    several := array(select r.oid from unnest(dp.of_several_units(members)) as r(oid)
                      where (select q.problem from dp.asking_problem(r.oid) as q) is null);
    insert into dp.unit_link as l (child, columns, attnums, parent, parent_columns, parent_attnums, follow, nulls, declared_by, parts)
    values (child, pairs.mine, pairs.mine_numbers, parent, pairs.theirs, pairs.their_numbers, follow, nulls,
            (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()),
            array_remove(dp.statistics_members(child), child::oid)::regclass[])
    on conflict on constraint unit_link_pkey do update
       set columns = excluded.columns, parent_columns = excluded.parent_columns,
           follow = excluded.follow, nulls = excluded.nulls, parts = excluded.parts,
           declared_by = excluded.declared_by, declared_at = pg_catalog.clock_timestamp();
    if not follow and not exists (
        select from pg_constraint as k
         where k.contype = 'f' and k.conrelid = any (dp.statistics_members(child)) and parent = any (dp.topmost(k.confrelid))
           and (select array_agg(n order by n)
                  from unnest(dp.columns_above(k.conrelid, k.conkey, child)) as n) = pairs.mine_numbers) then
        raise notice using
            message = format('no foreign key leads from these columns of %s to %s', child, parent),
            detail = 'What was said holds for one that may come.';
    end if;
    if follow and not reaches then
        perform dp.warn_without_unit(child, parent, pairs.mine);
    end if;
    if follow and dp.unit_roots(child) is not null then
        perform dp.let_executor_read(child);
        perform dp.let_executor_read_members(child);
        perform dp.tell_problems(members, several);
    end if;
    perform dp.show_refusing(members);
end
$$;
comment on function dp.link(regclass, regclass, name[], name[], text, boolean) is
    'declare how rows of a relation belong to the privacy unit of another one';

-- Internal: refuses a link that would close a circle of keys, of which nothing could be asked any more, and tells
-- which statements cut it elsewhere.  Only relations that lead to the child are looked through: its members.
create or replace function dp.refuse_circle(child regclass, parent regclass, members oid[])
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    cuts text;
begin
    if child <> parent then
        with recursive way(at, cuts, visited) as (
            select parent::oid, '{}'::text[], array[parent::oid]
            union all
            select e.parent, w.cuts || (dp.cut_of_key(w.at, e.parent, e.columns, e.parent_columns) || ';') collate "default",
                   w.visited || e.parent
              from way as w
             cross join lateral dp.unit_edges(w.at) as e
             where w.at <> child and e.parent = any (members) and e.parent <> all (w.visited))
        select array_to_string(w.cuts, ' or ') into cuts
          from way as w where w.at = child order by cardinality(w.cuts), w.cuts limit 1;
    end if;
    raise exception using
        errcode = 'PD040',
        message = case when child = parent then format('relation %s cannot be linked to itself', child)
                       else format('relation %s cannot be linked to %s: keys would lead in a circle', child, parent) end,
        detail = case when child = parent then 'Its rows refer to other rows of it, which may be of other units.'
                      else format('Keys lead from %s to %s already. Nothing on a circle could be asked about, nor what'
                                  ' refers to it.', parent, child) end,
        hint = case when child = parent then 'Leave it out: such a key leads to no unit.'
                    else 'Leave it out; or, where another key leads to no privacy unit, say so first: ' || cuts end;
end
$$;
comment on function dp.refuse_circle(regclass, regclass, oid[]) is
    'internal: raises PD040 where a link would close a circle of keys';

-- Internal: tells whoever links a relation to one that leads to no privacy unit that this protects nothing.
create or replace function dp.warn_without_unit(child regclass, parent regclass, columns name[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    child_kind constant text := (select s.kind from dp.standing(child) as s);
    with_units constant boolean := dp.unit_roots(child) is not null;
    owns_units constant boolean := exists (
        select from dp.policy as p join dp.root as r on r.id = p.root
         where p.relation = child and p.kind = 'protected' and r.neighbours = 'unit');
begin
    raise warning using
        message = format('relation %s belongs to no privacy unit, so that the link protects no row of %s', parent, child),
        detail = case
            when owns_units then format('Rows of %s have privacy units of their own.', child)
            when with_units then format('Rows of %s belong to privacy units by other ways.', child)
            when child_kind = 'protected' then format('Rows of %s are protected one by one.', child)
            when child_kind = 'public' then format('Rows of %s are public and told exactly.', child)
            else format('Relation %s is not declared: questions about it are refused.', child) end,
        hint = format('Where rows of %1$s tell whose they are, protect it: SELECT dp.protect(%1$L, privacy_unit => column);'
                      ' otherwise take the link back: SELECT dp.unlink(%2$L, %1$L, %3$s);', parent, child,
                      dp.shown_names(columns))
               || case when with_units or child_kind is not null then ''
                       else format(' and protect single rows: SELECT dp.protect(%L);', child) end;
end
$$;
comment on function dp.warn_without_unit(regclass, regclass, name[]) is
    'internal: warns of a link that leads to no privacy unit';

-- Takes back dp.link; a foreign key says again what it says.
create or replace function dp.unlink(child regclass, parent regclass, columns name[])
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := child::oid || dp.unit_dependants(child);
    several oid[];
begin
    if child is null or parent is null or columns is null then
        raise exception using errcode = 'PD040', message = 'parameters of dp.unlink must not be null';
    end if;
    perform dp.require_ownership(child);
    several := dp.of_several_units(members);
    delete from dp.unit_link as l
     where l.child = unlink.child and l.parent = unlink.parent
       and l.attnums = (select array_agg(a.attnum order by a.attnum) from pg_attribute as a
                         where a.attrelid = unlink.child and a.attname = any (unlink.columns));
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not linked to %s by %s', child, parent, array_to_string(columns, ', '));
    end if;
    perform dp.touch_catalogue();
    if dp.unit_roots(child) is not null then
        perform dp.tell_problems(members, several);
    end if;
    perform dp.show_refusing(members);
end
$$;
comment on function dp.unlink(regclass, regclass, name[]) is 'take back dp.link';

-- Internal: which columns of a child the analyser cannot compare with those of the parent, and the statement that
-- gives the child's the types of the parent's; NULL for none.
create or replace function dp.unlike_columns(
    child oid, columns name[], parent oid, parent_columns name[], out unlike text, out mend text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    numbers constant oid[] := array['int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype];
    texts constant oid[] := array['text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, '"char"'::regtype];
begin
    select string_agg(format('%s.%I is of type %s, %s.%I of type %s', child::regclass, a.attname, format_type(a.atttypid, null),
                             parent::regclass, b.attname, format_type(b.atttypid, null)), '; ' order by a.attnum)
               filter (where not (t.mine = any (numbers) and t.theirs = any (numbers)
                                  or t.mine = any (texts) and t.theirs = any (texts))),
           format('ALTER TABLE %s %s;', child::regclass,
                  string_agg(format('ALTER %1$I TYPE %2$s USING %1$I::%2$s', a.attname, format_type(b.atttypid, b.atttypmod)),
                             ', ' order by a.attnum))
      into unlike, mend
      from unnest(columns, parent_columns) as u(mine, theirs)
      join pg_attribute as a on a.attrelid = child and a.attname = u.mine and a.attnum > 0
      join pg_attribute as b on b.attrelid = parent and b.attname = u.theirs and b.attnum > 0
     cross join lateral (select dp.plain_oid(a.atttypid), dp.plain_oid(b.atttypid)) as t(mine, theirs)
     where t.mine <> t.theirs;
    if unlike is null then
        mend := null;
    end if;
end
$$;
comment on function dp.unlike_columns(oid, name[], oid, name[]) is
    'internal: columns of both sides of a key that cannot be compared';
