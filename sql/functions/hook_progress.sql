-- Progress of long commands in shared memory (sql/hook/progress.c); dp.running_commands says who sees it.

-- The command of this session enters a phase: kinds and phases are numbered as in dp.running_commands.
-- The first relations, so many, are protected.  Without shared memory advisory locks show the phase.
create or replace function dp.show_phase(command integer, phase integer, relations oid[], protected integer)
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_show_phase';
comment on function dp.show_phase(integer, integer, oid[], integer) is 'internal: a long command enters a phase';

-- So many rounds of the phase are done, of a total or with so many expected to be left; so much of the
-- budget is used.  Not strict: null is what is not known, or as before.
create or replace function dp.show_rounds(
    done bigint, total bigint, expected bigint, used double precision, budget double precision, unit integer)
returns void
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_show_rounds';
comment on function dp.show_rounds(bigint, bigint, bigint, double precision, double precision, integer) is
    'internal: how far a long command is';

create or replace function dp.end_progress()
returns void
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_end_progress';
comment on function dp.end_progress() is 'internal: a long command ended well; errors end it anyway';

create or replace function dp.keeps_progress()
returns boolean
language c stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_keeps_progress';
comment on function dp.keeps_progress() is 'internal: whether the library was loaded at server start';

-- What all sessions of this database do.  Granted to nobody.
create or replace function dp.progress_slots()
returns table (
    pid integer, role oid, command integer, phase integer, relations oid[], protected integer,
    started_at timestamptz, counting timestamptz, counted timestamptz, done bigint, total bigint,
    expected bigint, used double precision, budget double precision, unit integer)
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_progress_slots';
comment on function dp.progress_slots() is 'internal: progress of all sessions, for dp.running_commands';
