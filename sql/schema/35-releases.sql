-- Workloads that were measured and published: one row a release, whose numbers are in the table
-- dpv.<name>, which is an ordinary table of dp_executor's and is dumped as such.

create table dp.stored_release (
    name name primary key,
    question text not null,
    mechanism text not null,
    noise text not null check (noise in ('laplace', 'gaussian')),
    epsilon numeric not null,
    delta numeric not null,
    rho numeric not null,
    rho_delta numeric not null,
    rows_of_a_unit integer not null,
    relations oid[] not null,
    protected text[] not null,
    spend bigint not null,
    role_name name not null,
    role_oid oid not null,
    -- when rows were read, and when the table was written
    measured_at timestamptz not null,
    released_at timestamptz not null,
    cells bigint not null,
    rmse double precision,
    domain jsonb not null,
    terms jsonb not null,
    sets jsonb not null,
    -- what finds the questions that it answers; names relations by oid, in this database only
    span jsonb not null,
    incarnation uuid not null
);
comment on table dp.stored_release is 'published workloads; the numbers are in dpv.<name>';
select pg_catalog.pg_extension_config_dump('dp.stored_release', '');

-- Empty but for transactions that run: who inserts a name lets others wait who want the same one.  An
-- advisory lock would do too, but any role can take any of them and block a name for ever.
create table dp.release_held (
    name name primary key
);
comment on table dp.release_held is 'names of releases that are being made';
