-- Internal: checks who asks and stores a domain in place of an older one.
create or replace function dp.store_domain(domain dp.column_domain)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from dp.declarations() as p
                    where p.relation = domain.relation and p.kind in ('protected', 'public')) then
        raise exception using
            errcode = 'PD040',
            message = format('relation %s is not declared', domain.relation),
            hint = format('SELECT dp.protect(%L);', domain.relation);
    end if;
    if exists (select from dp.column_domain as d where d = domain) then
        return;     -- nothing changes, so stored answers stay
    end if;
    delete from dp.column_domain as d
     where d.relation = domain.relation and d.column_name = domain.column_name;
    if found then
        raise notice using
            message = format('the domain of %s.%I was replaced', domain.relation, domain.column_name),
            detail = 'Stored answers to questions that read the relation end: these are asked anew and charged.';
    end if;
    insert into dp.column_domain select domain.*;
    perform dp.touch_catalogue();
    if domain.kind <> 'bounds' and not domain.includes_null
       and not (select dp.never_null(a.attrelid, a.attnum) from pg_attribute as a
                 where a.attrelid = domain.relation and a.attname = domain.column_name) then
        raise notice using
            message = format('rows where %s.%I is NULL are in no group', domain.relation, domain.column_name),
            hint = 'Declare the domain with includes_null => true to make a group of them.';
    end if;
end
$$;
comment on function dp.store_domain(dp.column_domain) is 'internal: stores the domain of a column';
