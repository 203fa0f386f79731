-- Says by which way the parts of a relation on other servers are written to (docs/shards.md), and lets dp_executor read
-- all its parts; called again it does so for parts that came since.  Callers: the relation's owner, if a member of dp_owner.
-- 'coordinator': all writing goes through this server, so that a question reads all parts as of one moment.
-- 'anywhere': rows may be moved while they are read, and be seen twice; only units are protected then.  Relations that
-- Citus keeps are always that (docs/citus.md).
-- Security definer on purpose: writes the catalogue and lets dp_executor read the parts.
create or replace function dp.declare_shards(relation regclass, written text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
begin
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" of dp.declare_shards must not be null';
    end if;
    if written is null or written not in ('coordinator', 'anywhere') then
        raise exception using
            errcode = 'PD040',
            message = 'parameter "written" of dp.declare_shards must be ''coordinator'' or ''anywhere''',
            hint = 'coordinator: all that is written goes through this server; anywhere: some is written to the other servers.';
    end if;
    perform dp.require_ownership(relation);
    if dp.kept_by_citus(relation) then
        if written <> 'anywhere' then
            raise exception using
                errcode = 'PD040',
                message = format('relation %s cannot be read as of one moment, since Citus keeps its rows', relation),
                hint = 'Say so, for questions over privacy units: written => ''anywhere''.';
        end if;
    elsif not exists (select from dp.foreign_parts(relation)) then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s has no parts on other servers', relation),
            hint = 'Make them first: CREATE FOREIGN TABLE ... PARTITION OF ... SERVER ...';
    end if;
    perform dp.touch_catalogue();
    insert into dp.shards as s (relation, written, declared_by)
    values (relation, written, (select r.rolname from pg_roles as r where r.oid = dp.caller()))
    on conflict on constraint shards_pkey do update
       set written = excluded.written, declared_by = excluded.declared_by, declared_at = clock_timestamp();
    if (select s.kind from dp.standing(relation) as s) in ('protected', 'public') then
        perform dp.let_executor_read(relation);
    end if;
    select q.problem, q.mend into found from dp.shards_problem(relation) as q;
    if found.problem is not null then
        raise warning using
            message = format('relation %s cannot be asked about yet: %s', relation, found.problem),
            hint = coalesce(found.mend, 'Change its parts or their servers.');
    end if;
end
$$;
comment on function dp.declare_shards(regclass, text) is
    'say whether the parts of a relation on other servers are written to through this server only';
