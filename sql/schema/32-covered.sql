-- Which accounts show losses of which relations' rows (docs/ledger.md, "One notion for each relation").  Written with
-- the charge by dp_ledger, and by dp.remember_dropped; never deleted.  No unique key: nobody who inserts the same may
-- have to wait for a transaction of an owner's.

create table dp.covered (
    -- NULL once it was dropped: then its last name stands for it
    relation regclass,
    schema_name name not null,
    relation_name name not null,
    root integer not null,
    -- how its rows belong to what the account is of: 'row', or the ways to the privacy units, by numbers and by names;
    -- NULL after a restore that has no such ways any more: then names alone tell
    ways text,
    shown text not null
);
comment on table dp.covered is 'which accounts show losses of the rows of which relations, and by which ways';
-- no columns are a key; publications of all tables refuse updates of tables that have no identity
alter table dp.covered replica identity full;
create index covered_relation on dp.covered (relation);
create index covered_name on dp.covered (relation_name) where relation is null;
alter table dp.covered owner to dp_ledger;
select pg_catalog.pg_extension_config_dump(
    'dp.covered', 'where relation is null or relation::oid in (select c.oid from pg_catalog.pg_class as c)');
