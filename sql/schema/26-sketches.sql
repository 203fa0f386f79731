-- AGMS sketches of the relations of a query (docs/proofs/sketch.md).  All of it is secret or made
-- of protected rows, and can be built again: nothing is dumped.

create table dp.sketch (
    id bigint generated always as identity primary key,
    -- the relations, their join columns and which of them are equal
    identity text not null unique,
    query text not null,
    estimators integer not null check (estimators > 0),
    rows integer not null check (rows > 0),
    -- by row and by the bits of a set of occurrences: sum of the products of |counter|
    moments numeric[]
);
comment on table dp.sketch is 'sketches of all relations of a query, of one building';

create table dp.sketch_family (
    sketch bigint not null references dp.sketch on delete cascade,
    family integer not null check (family >= 0),
    seed bytea not null check (pg_catalog.octet_length(seed) = 32),
    drawn_at timestamptz not null default pg_catalog.clock_timestamp(),
    primary key (sketch, family)
);
comment on table dp.sketch_family is
    'secret seeds of the sign families of a sketch, drawn at each building: nobody may read them';

create table dp.sketch_counter (
    sketch bigint not null references dp.sketch on delete cascade,
    occurrence integer not null check (occurrence >= 0),
    relation regclass not null,
    columns text[] not null,
    types text[] not null,
    families integer[] not null,
    -- one little-endian int8 an estimator, row after row
    counters bytea not null,
    squares numeric not null,
    -- by the bits of the columns that are held fixed: the largest sum of squared frequencies
    norms numeric[] not null,
    fingerprint text not null,
    snapshot pg_snapshot not null,
    taken_at timestamptz not null,
    -- since which changes are counted; null: they are not, and the sketch answers nothing
    measurement bigint references dp.measurement on delete set null,
    primary key (sketch, occurrence)
);
create index sketch_counter_relation on dp.sketch_counter (relation);
comment on table dp.sketch_counter is 'counters and norms of one relation of a sketch';
-- Counters are nearly incompressible.
alter table dp.sketch_counter alter column counters set storage external;
