-- Internal: refuses relations that cannot be declared, saying why and what to do.
create or replace function dp.require_declarable(relation regclass)
returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    problem text := dp.relation_problem(relation);
begin
    if problem is null then
        return;
    end if;
    raise exception using
        errcode = 'PD040',
        message = format('relation %s cannot be declared: %s', relation, problem),
        hint = case problem
            when 'it is a view' then 'Declare its base relations, then use dp.declare_view for the view.'
            when 'it is a materialized view' then 'Declare the relations that it is computed from.'
            when 'it is a partition of another table' then 'Declare the partitioned table.'
            when 'it inherits from another table' then 'Declare the table that it inherits from.'
            when 'it has row-level security' then
                'Relations with row-level security are not supported; disable it or declare a copy.'
            when dp.foreign_code(relation) then
                'PostgreSQL would run that code while it plans anybody''s question; drop what needs it, or let a superuser review and own it.'
            else 'Only ordinary, partitioned and foreign tables can be declared.'
        end;
end
$$;
comment on function dp.require_declarable(regclass) is 'internal: raises PD040 for relations that cannot be declared';
