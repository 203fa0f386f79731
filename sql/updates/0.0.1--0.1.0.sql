-- What tables of 0.0.1 lack.  Functions, views and privileges follow by themselves, but for functions whose results
-- have another type now: nothing replaces these.

do $guard$
begin
    -- Values of groups pass through Python, and so through Unicode: one row whose text has no character there could
    -- make an answer fail, and whether it does would tell of that row (PRIVACY.md section 2).  Elsewhere than in
    -- these encodings text is unchecked bytes, or may hold such ones.  A database's encoding never changes.
    if pg_catalog.getdatabaseencoding() not in
       ('UTF8', 'LATIN1', 'LATIN2', 'LATIN4', 'LATIN5', 'LATIN6', 'LATIN7', 'LATIN8', 'LATIN9', 'LATIN10', 'ISO_8859_5',
        'WIN866', 'WIN1256', 'KOI8R', 'KOI8U') then
        raise exception using
            errcode = 'PD040',
            message = pg_catalog.format('dpsql cannot be used in a database with encoding %s',
                                        pg_catalog.getdatabaseencoding()),
            detail = 'Text of such a database may have no equivalent in Unicode, so that one row could make a question fail.',
            hint = 'Create a database with ENCODING ''UTF8'' TEMPLATE template0 and move the tables there.';
    end if;
end
$guard$;

-- Service sessions log in as it; pg_hba.conf and pg_ident.conf let only the server's own processes do so (dpsql install).
alter role dp_executor login;
alter role dp_ledger nologin;

-- Service sessions charge by transactions of their own, which no connection can lose.
alter table dp.spend drop column request;

alter table dp.shown_relation
    add column columns name[],
    add column attnums int2[],
    add column readers name[];
alter table dp.shown_relation add check ((columns is null) = (attnums is null));
alter table dp.shown_relation
    add check (columns is null or (relation is not null and synthetic is null and cardinality(columns) = cardinality(attnums)));
select pg_catalog.pg_extension_config_dump(
    'dp.shown_relation',
    'where (synthetic::oid in (select c.oid from pg_catalog.pg_class as c) or columns is not null)'
    ' and (relation is null or relation::oid in (select c.oid from pg_catalog.pg_class as c))');

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

create table dp.shards (
    relation regclass primary key,
    written text not null check (written in ('coordinator', 'anywhere')),
    declared_by name not null,
    declared_at timestamptz not null default pg_catalog.clock_timestamp()
);
comment on table dp.shards is 'by which way parts on other servers are written to';

select pg_catalog.pg_extension_config_dump(
    'dp.shards', 'where relation::oid in (select c.oid from pg_catalog.pg_class as c)');

create table dp.numbered_column (
    relation regclass not null,
    attnum int2 not null,
    column_name name not null,
    primary key (relation, attnum)
);
comment on table dp.numbered_column is 'columns in which dp.set_degree_bound numbers rows; questions cannot read them';

select pg_catalog.pg_extension_config_dump(
    'dp.numbered_column',
    'where (relation::oid, attnum) in (select a.attrelid, a.attnum from pg_catalog.pg_attribute as a where not a.attisdropped)');

alter table dp.root
    add column failure_limit integer not null default 3 check (failure_limit between 1 and 1000),
    add column failure_limit_in_all integer check (failure_limit_in_all between 1 and 1000),
    add column earlier_names text[] not null default '{}';

create table dp.resumption (
    spend bigint not null,
    root integer not null,
    resumed_by name not null,
    resumed_at timestamptz not null default pg_catalog.clock_timestamp(),
    primary key (spend, root)
);
comment on table dp.resumption is 'failures that dp.resume reset for a relation';
select pg_catalog.pg_extension_config_dump('dp.resumption', '');

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
create index answer_text_key on dp.answer_text (key);
alter table dp.failure owner to dp_ledger;
select pg_catalog.pg_extension_config_dump('dp.failure', '');

alter table dp.change replica identity full;
alter table dp.changed_key replica identity full;
alter table dp.statistic replica identity full;

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
alter table dp.covered replica identity full;
create index covered_relation on dp.covered (relation);
create index covered_name on dp.covered (relation_name) where relation is null;
alter table dp.covered owner to dp_ledger;
select pg_catalog.pg_extension_config_dump(
    'dp.covered', 'where relation is null or relation::oid in (select c.oid from pg_catalog.pg_class as c)');

drop function dp.reported_synthesis(name);
drop function dp.shown_columns(oid);
drop function dp.show_synthesis_tables(bigint);
drop function dp.synthesis_moved(bigint,text,integer,text[]);
#!code
-- What was spent before is taken for losses of the relations that the accounts cover now.
select dp.ledger_cover((
    select coalesce(jsonb_agg(to_jsonb(c)), '[]')
      from dp.coverage(array(
               select p.relation::oid from dp.policy as p
                union select d.oid from dp.policy as p, unnest(dp.unit_dependants(p.relation)) as d(oid))) as c
     where exists (select from dp.spend as s where c.root = any (s.roots))
        or exists (select from dp.loss as l where l.root = c.root)));
