-- What dp.lockdown took and gave, for dp.unlock to put back.  Functions are kept by name, and relations so that a dump has
-- their names: it has the privileges of the catalogue too, and a restored database must unlock itself.  Columns, schemas
-- and roles are kept by number, as others may have their names by now, and by name for a restored database.

create table dp.lockdown_change (
    id bigint generated always as identity primary key,
    measure text not null,
    -- TABLE, FUNCTION, SCHEMA, SEQUENCE, or DATABASE, which is always the one that the row is in
    kind text not null,
    object text,
    -- instead of its name, where it is a relation: another one may have the name by now
    relation regclass,
    -- NULL: the whole object
    column_name name,
    -- NULL: PUBLIC
    grantee name,
    privilege text not null,
    grantable boolean not null,
    -- whether the privilege was taken away; else it was given
    taken boolean not null,
    changed_by name not null,
    changed_at timestamptz not null default pg_catalog.clock_timestamp(),
    -- what the names stood for, in the database with this token; NULL in all of them: names are all that is known
    attnum int2,
    schema_oid oid,
    grantee_oid oid,
    incarnation uuid,
    check ((object is null) <> (relation is null))
);
comment on table dp.lockdown_change is 'privileges that dp.lockdown took and gave';

-- a restored database goes by names: what others may have the name of is left out
select pg_catalog.pg_extension_config_dump(
    'dp.lockdown_change',
    'where (relation is null or relation::oid in (select c.oid from pg_catalog.pg_class as c))'
    ' and (incarnation is null or incarnation <> (select i.token from dp.ledger_incarnation as i)'
    ' or (column_name is null or (relation::oid, attnum, column_name) in (select a.attrelid, a.attnum, a.attname'
    ' from pg_catalog.pg_attribute as a))'
    ' and (schema_oid is null or (schema_oid, object) in (select n.oid, pg_catalog.quote_ident(n.nspname)'
    ' from pg_catalog.pg_namespace as n))'
    ' and (grantee is null or (grantee_oid, grantee) in (select r.oid, r.rolname from pg_catalog.pg_roles as r)))');
select pg_catalog.pg_extension_config_dump('dp.lockdown_change_id_seq', '');
