-- What owners declared.  Written by administration functions only.
--
-- Roles are kept as oid and name, not as regrole: a dump that names a role which the target
-- cluster lacks would fail to load the whole table, and with it everyone's losses.  Relations
-- are regclass, so that a dump carries their names; rows of dropped relations are not dumped,
-- because a bare number would mean some other relation after the restore.

create table dp.catalog_version (
    singleton boolean primary key default true check (singleton),
    version uuid not null default pg_catalog.gen_random_uuid()
);
comment on table dp.catalog_version is
    'one row; changes with every declaration, so that they wait for each other';
insert into dp.catalog_version default values;

create table dp.principal (
    id integer generated always as identity primary key,
    role_oid oid unique,
    role_name name not null
);
comment on table dp.principal is 'stable ledger identity of a role, surviving renames';

create table dp.role_budget (
    principal integer primary key,
    epsilon numeric not null check (epsilon > 0 and epsilon < 'Infinity'),
    delta numeric not null check (delta >= 0 and delta <= 1),
    granted_by name not null,
    granted_at timestamptz not null default pg_catalog.clock_timestamp(),
    -- The last two are written by the trigger of dp.limit_account only.
    composition text not null default 'basic' check (composition in ('basic', 'zcdp')),
    rho_limit numeric,
    delta_reserved numeric not null default 0,
    -- null: for ever; else the limits hold for each window of that length, the first from the anchor on
    budget_window interval,
    window_anchor timestamptz,
    check ((budget_window is null) = (window_anchor is null))
);
comment on table dp.role_budget is 'budget of a role, for ever or for each window';

create table dp.root (
    id integer generated always as identity primary key,
    schema_name name not null,
    relation_name name not null,
    unit_column name,
    unit_attnum int2,
    neighbours text not null default 'row' check (neighbours in ('row', 'unit')),
    epsilon_cap numeric check (epsilon_cap > 0 and epsilon_cap < 'Infinity'),
    delta_cap numeric check (delta_cap >= 0 and delta_cap <= 1),
    created_at timestamptz not null default pg_catalog.clock_timestamp(),
    answer_lifetime interval check (answer_lifetime > '0'),
    composition text not null default 'basic' check (composition in ('basic', 'zcdp')),
    rho_limit numeric,
    delta_reserved numeric not null default 0,
    heuristic boolean not null default false,
    -- limits on failures after the charge, of one role and of all roles together (null: no limit)
    failure_limit integer not null default 3 check (failure_limit between 1 and 1000),
    failure_limit_in_all integer check (failure_limit_in_all between 1 and 1000),
    -- as format('%I.%I') writes them
    earlier_names text[] not null default '{}',
    check ((neighbours = 'unit') = (unit_column is not null)),
    check ((unit_column is null) = (unit_attnum is null))
);
comment on table dp.root is
    'stable ledger identity of a protected relation, surviving unprotect, rename and drop';

create table dp.policy (
    relation regclass primary key,
    kind text not null check (kind in ('protected', 'public', 'view', 'withdrawn')),
    root integer unique,
    declared_by name not null,
    declared_at timestamptz not null default pg_catalog.clock_timestamp(),
    check (kind <> 'protected' or root is not null)
);
comment on table dp.policy is 'declared relations; withdrawn ones keep their root';

create table dp.unit_link (
    child regclass not null,
    columns name[] not null check (cardinality(columns) > 0),
    attnums int2[] not null check (cardinality(attnums) = cardinality(columns)),
    parent regclass not null,
    parent_columns name[] not null check (cardinality(parent_columns) = cardinality(columns)),
    parent_attnums int2[] not null check (cardinality(parent_attnums) = cardinality(columns)),
    follow boolean not null,
    nulls text not null check (nulls in ('refused', 'excluded')),
    declared_by name not null,
    declared_at timestamptz not null default pg_catalog.clock_timestamp(),
    -- partitions and children of the child, as far as anybody saw
    parts regclass[] not null default '{}',
    primary key (child, attnums, parent, parent_attnums)
);
comment on table dp.unit_link is
    'what owners say of keys that lead to privacy units, beside the declared foreign keys';

create table dp.column_domain (
    relation regclass not null,
    column_name name not null,
    kind text not null check (kind in ('values', 'range', 'bounds', 'reference')),
    type_name text not null,
    members text[],
    lower text,
    upper text,
    step text,
    reference regclass,
    reference_column name,
    includes_null boolean not null default false,
    other text check (other is null or kind = 'values'),
    primary key (relation, column_name),
    check (
        case kind
            when 'values' then members is not null
            when 'range' then lower is not null and upper is not null and step is not null
            when 'bounds' then lower is not null and upper is not null and step is null
            else reference is not null and reference_column is not null
        end
    )
);
comment on table dp.column_domain is 'public domains of columns';

create table dp.numbered_column (
    relation regclass not null,
    attnum int2 not null,
    -- a restore finds the column by its name
    column_name name not null,
    primary key (relation, attnum)
);
comment on table dp.numbered_column is 'columns in which dp.set_degree_bound numbers rows; questions cannot read them';

create table dp.shards (
    relation regclass primary key,
    written text not null check (written in ('coordinator', 'anywhere')),
    declared_by name not null,
    declared_at timestamptz not null default pg_catalog.clock_timestamp()
);
comment on table dp.shards is 'by which way parts on other servers are written to';

create table dp.loss (
    id bigint generated always as identity primary key,
    principal integer,
    root integer,
    epsilon numeric not null check (epsilon >= 0 and epsilon < 'Infinity'),
    delta numeric not null check (delta >= 0 and delta <= 1),
    rho numeric not null check (rho >= 0 and rho < 'Infinity'),
    rho_delta numeric not null check (rho_delta >= 0 and rho_delta <= 1),
    note text not null,
    recorded_by name not null,
    recorded_at timestamptz not null default pg_catalog.clock_timestamp(),
    check (principal is not null or root is not null)
);
comment on table dp.loss is 'spends that a restored backup does not know, entered by an owner';

create table dp.resumption (
    spend bigint not null,
    root integer not null,
    resumed_by name not null,
    resumed_at timestamptz not null default pg_catalog.clock_timestamp(),
    primary key (spend, root)
);
comment on table dp.resumption is 'failures that dp.resume reset for a relation';

create table dp.ledger_incarnation (
    singleton boolean primary key default true check (singleton),
    token uuid not null default pg_catalog.gen_random_uuid()
);
comment on table dp.ledger_incarnation is
    'one row, drawn at CREATE EXTENSION and never dumped: tells a restored ledger from the original';
insert into dp.ledger_incarnation default values;

create table dp.ledger_identity (
    id integer generated always as identity primary key,
    incarnation uuid not null,
    system_identifier bigint not null,
    timeline bigint not null,
    database oid not null,
    note text not null,
    recorded_by name not null,
    recorded_at timestamptz not null default pg_catalog.clock_timestamp()
);
comment on table dp.ledger_identity is
    'where the ledger lived; the last row must describe this database or nothing is charged';

select pg_catalog.pg_extension_config_dump('dp.principal', '');
select pg_catalog.pg_extension_config_dump('dp.principal_id_seq', '');
select pg_catalog.pg_extension_config_dump('dp.role_budget', '');
select pg_catalog.pg_extension_config_dump('dp.root', '');
select pg_catalog.pg_extension_config_dump('dp.root_id_seq', '');
select pg_catalog.pg_extension_config_dump(
    'dp.policy', 'where relation::oid in (select c.oid from pg_catalog.pg_class as c)');
select pg_catalog.pg_extension_config_dump(
    'dp.unit_link',
    'where child::oid in (select c.oid from pg_catalog.pg_class as c)'
    ' and parent::oid in (select c.oid from pg_catalog.pg_class as c)');
select pg_catalog.pg_extension_config_dump(
    'dp.column_domain',
    'where relation::oid in (select c.oid from pg_catalog.pg_class as c)'
    ' and (reference is null or reference::oid in (select c.oid from pg_catalog.pg_class as c))');
select pg_catalog.pg_extension_config_dump(
    'dp.numbered_column',
    'where (relation::oid, attnum) in (select a.attrelid, a.attnum from pg_catalog.pg_attribute as a where not a.attisdropped)');
select pg_catalog.pg_extension_config_dump(
    'dp.shards', 'where relation::oid in (select c.oid from pg_catalog.pg_class as c)');
select pg_catalog.pg_extension_config_dump('dp.resumption', '');
select pg_catalog.pg_extension_config_dump('dp.loss', '');
select pg_catalog.pg_extension_config_dump('dp.loss_id_seq', '');
select pg_catalog.pg_extension_config_dump('dp.ledger_identity', '');
select pg_catalog.pg_extension_config_dump('dp.ledger_identity_id_seq', '');
