-- What was spent (PRIVACY.md section 7).  Owned and written by dp_ledger only, whose functions service sessions
-- call.  No foreign keys to the catalogue: a check would wait for the locks of an
-- administration function that the asker's own open transaction holds.

create table dp.spend (
    id bigint generated always as identity primary key,
    at timestamptz not null default pg_catalog.clock_timestamp(),
    principal integer not null,
    role_name name not null,
    epsilon numeric not null check (epsilon >= 0 and epsilon < 'Infinity'),
    delta numeric not null check (delta >= 0 and delta <= 1),
    rho numeric not null check (rho >= 0 and rho < 'Infinity'),
    rho_delta numeric not null check (rho_delta >= 0 and rho_delta <= 1),
    mechanism text not null,
    method text not null,
    label text not null check (label in ('proved', 'heuristic')),
    question text not null,
    key bytea not null,
    roots integer[] not null,
    source bigint not null,
    state text not null check (state in ('charged', 'answered', 'failed'))
);
comment on table dp.spend is
    'one row per spend, never deleted; each is (epsilon, delta)-DP and rho_delta-approximately '
    'rho-zCDP; roots is empty where a role was shown a stored answer, which source names';
create index spend_source on dp.spend (source, principal);
create index spend_principal on dp.spend (principal, id);

create table dp.role_total (
    principal integer primary key,
    epsilon numeric not null default 0,
    delta numeric not null default 0,
    rho numeric not null default 0,
    rho_delta numeric not null default 0,
    spends bigint not null default 0,
    -- The window in which the role was charged last; null where its budget was for ever.
    window_start timestamptz,
    window_end timestamptz,
    window_epsilon numeric not null default 0,
    window_delta numeric not null default 0,
    window_rho numeric not null default 0,
    window_rho_delta numeric not null default 0,
    window_spends bigint not null default 0,
    check ((window_start is null) = (window_end is null))
) with (fillfactor = 50);
comment on table dp.role_total is
    'sum of the spends of each role, ever and in the window in which it was charged last';

create table dp.root_total (
    root integer primary key,
    epsilon numeric not null default 0,
    delta numeric not null default 0,
    rho numeric not null default 0,
    rho_delta numeric not null default 0,
    spends bigint not null default 0
) with (fillfactor = 50);
comment on table dp.root_total is 'sum of the spends on each root';

create table dp.answer (
    key bytea primary key,
    spend bigint,
    payload text,
    taken_at timestamptz,
    -- what the question names, and a hash of what was declared of it: another one ends the answer
    objects oid[],
    token bytea,
    pending_spend bigint,
    holder_pid integer,
    holder_start timestamptz,
    check ((spend is null) = (payload is null))
) with (fillfactor = 70);
comment on table dp.answer is
    'stored answers by question, and who computes one now; not dumped, since questions name '
    'relations by oid';

create table dp.answer_text (
    text_key bytea primary key,
    key bytea not null
);
create index answer_text_key on dp.answer_text (key);
comment on table dp.answer_text is 'exact texts of questions that were answered before';

create table dp.failure (
    spend bigint primary key,
    principal integer not null,
    roots integer[] not null,
    -- the service session that computes the answer
    holder_pid integer not null,
    holder_start timestamptz not null,
    failed_at timestamptz
);
comment on table dp.failure is
    'charges without an answer: written with the charge, deleted by an answer or a cancel';
create index failure_principal on dp.failure (principal);

alter table dp.spend owner to dp_ledger;
alter table dp.role_total owner to dp_ledger;
alter table dp.root_total owner to dp_ledger;
alter table dp.answer owner to dp_ledger;
alter table dp.answer_text owner to dp_ledger;
alter table dp.failure owner to dp_ledger;

select pg_catalog.pg_extension_config_dump('dp.spend', '');
select pg_catalog.pg_extension_config_dump('dp.spend_id_seq', '');
select pg_catalog.pg_extension_config_dump('dp.role_total', '');
select pg_catalog.pg_extension_config_dump('dp.root_total', '');
select pg_catalog.pg_extension_config_dump('dp.failure', '');
