-- Which views of the schema dpv stand for protected relations and for synthetic tables.  A view that refuses belongs
-- to the extension and is made again after a restore; one that shows rows or that dp.expose made is dumped as any view.

create table dp.shown_relation (
    name name primary key,
    -- the protected relation that the view is named after; NULL where it is a synthetic table's own
    relation regclass unique,
    -- the synthetic table whose rows it shows; NULL: reading it is refused
    synthetic regclass,
    -- the columns that dp.expose shows, by name and number, in the view's order; NULL: it only refuses
    columns name[],
    attnums int2[],
    -- who may read it then; NULL: all analysts
    readers name[],
    check (relation is not null or synthetic is not null),
    check ((columns is null) = (attnums is null)),
    check (columns is null or (relation is not null and synthetic is null and cardinality(columns) = cardinality(attnums)))
);
comment on table dp.shown_relation is 'views of the schema dpv: what they are named after, and whose rows they show';

select pg_catalog.pg_extension_config_dump(
    'dp.shown_relation',
    'where (synthetic::oid in (select c.oid from pg_catalog.pg_class as c) or columns is not null)'
    ' and (relation is null or relation::oid in (select c.oid from pg_catalog.pg_class as c))');
