-- Internal: whether a partition or child of a relation, at any depth, is declared itself or has a
-- second parent: its rows would then belong to two declared relations, or to two roots.
-- Security definer on purpose: whoever reads dp.relations may not read dp.policy.
create or replace function dp.has_shared_part(relation oid)
returns boolean
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from pg_catalog.pg_inherits as i where i.inhparent = relation) then
        return false;
    end if;
    return exists (
        select
          from unnest(dp.statistics_members(relation)) as p(oid)
         where p.oid <> relation
           and (exists (select from dp.policy as own where own.relation = p.oid and own.kind <> 'withdrawn')
             or (select count(*) from pg_catalog.pg_inherits as i where i.inhrelid = p.oid) > 1));
end
$$;
comment on function dp.has_shared_part(oid) is 'internal: whether rows of a relation belong to another declared one too';
