-- Statistics of the data that sensitivities are computed from, and what has changed since they were
-- taken (PRIVACY.md section 4, "Stale statistics"; docs/proofs/stale.md).  All of it is as secret as
-- the rows: for dp_executor, and for owners through the view dp.statistics.  Nothing is dumped: it
-- is derived, and names relations by oid.

create table dp.change (
    relation oid not null,
    transaction xid8 not null default pg_catalog.pg_current_xact_id(),
    inserted bigint not null,
    updated bigint not null,
    uncounted boolean not null default false
);
comment on table dp.change is
    'rows inserted and updated, appended by the triggers of dp.collect_statistics; "uncounted" says '
    'that nothing older can be trusted';
-- Readers look from the oldest transaction on that a measurement may not have seen.
create index change_relation on dp.change (relation, transaction);

create table dp.changed_key (
    relation oid not null,
    transaction xid8 not null default pg_catalog.pg_current_xact_id(),
    key text collate "C" not null
);
comment on table dp.changed_key is 'primary keys of updated rows, as they were before';
create index changed_key_relation on dp.changed_key (relation, transaction);

-- Publications of all tables refuse updates and deletes of tables that have no identity.
alter table dp.change replica identity full;
alter table dp.changed_key replica identity full;

-- Every refresh deletes what it adds up: vacuum by what is dead, not by what part of a table that is.
alter table dp.change set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
alter table dp.changed_key set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 2000);

create table dp.kept_query (
    id integer generated always as identity primary key,
    query text not null unique,
    relations oid[] not null,
    kept_by oid not null
);
comment on table dp.kept_query is 'questions whose boundaries every refresh counts';

create table dp.measurement (
    id bigint generated always as identity primary key,
    taken_at timestamptz not null default pg_catalog.clock_timestamp(),
    snapshot pg_catalog.pg_snapshot not null,
    transaction xid8 not null
);
comment on table dp.measurement is 'one run of dp.refresh_statistics, and what it saw';

create table dp.measured_relation (
    measurement bigint not null references dp.measurement on delete cascade,
    relation oid not null,
    members oid[] not null,
    keyed boolean not null,
    fingerprint text not null,
    primary key (measurement, relation)
);
comment on table dp.measured_relation is
    'a relation as it was measured; another fingerprint makes its statistics useless';

create table dp.statistic (
    measurement bigint not null references dp.measurement on delete cascade,
    relation oid,
    kept integer references dp.kept_query on delete cascade,
    kind text not null check (kind in ('frequency', 'boundary')),
    identity text not null,
    value numeric not null check (value >= 0),
    unique (measurement, relation, kept, identity),
    check ((relation is null) <> (kept is null))
);
comment on table dp.statistic is
    'maximum frequencies of a relation and boundaries of a kept question; "identity" says of what';
alter table dp.statistic replica identity full;
create index statistic_identity on dp.statistic (identity);
