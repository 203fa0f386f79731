-- Synthetic databases: one row a call of dp.synthesize, and one for each table that it makes.  The
-- payload is what was measured, with noise; everything else follows from it and from the seed.

create table dp.synthesis (
    id bigint generated always as identity primary key,
    target name not null,
    role_name name not null,
    role_oid oid not null,
    -- measured: nothing is written; writing: rows; finishing: keys and indexes; done
    state text not null default 'measured' check (state in ('measured', 'writing', 'finishing', 'done')),
    settings jsonb not null,
    plan jsonb not null,
    payload bytea not null,
    seed bigint not null,
    -- how tables and constraints are made, read from the catalogue when writing begins
    details jsonb,
    statements integer not null default 0,
    made_schema boolean not null default false,
    notes text[] not null default '{}',
    epsilon numeric not null,
    delta numeric not null,
    relations oid[] not null,
    protected text[] not null,
    spend bigint,
    created_at timestamptz not null default pg_catalog.clock_timestamp(),
    finished_at timestamptz,
    incarnation uuid not null
);
comment on table dp.synthesis is 'calls of dp.synthesize: what was measured, and how far its tables are written';

create table dp.synthesis_table (
    synthesis bigint not null,
    place integer not null,
    schema_name name not null,
    table_name name not null,
    -- means nothing in another database, where the name is all there is
    relation oid not null,
    rows bigint,
    written bigint not null default 0,
    primary key (synthesis, place)
);
comment on table dp.synthesis_table is 'tables that a synthesis made, and how many of their rows are written';

select pg_catalog.pg_extension_config_dump('dp.synthesis', '');
select pg_catalog.pg_extension_config_dump('dp.synthesis_id_seq', '');
select pg_catalog.pg_extension_config_dump('dp.synthesis_table', '');
