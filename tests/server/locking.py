"""A shop with more to lock, and what its analyst is told."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import psycopg

# How many purchases more the second database has: whoever tells the two apart has learnt it.
SECRET = 4321
MORE = """
create table public.ticket (t_id serial primary key, t_text text);
create extension pg_stat_statements;
create extension pageinspect;
create view public.amounts as select count(*) from public.purchase;
create materialized view public.kept as select count(*) from public.purchase;
grant select on public.amounts, public.kept to public;
grant select on public.purchase to alice;
grant usage on sequence public.ticket_t_id_seq to public;
select dp.protect('public.ticket');
create schema mal authorization alice;
grant execute on function public.pg_stat_statements_reset to mallory;
"""

# What the analyst makes in a schema of her own.
CODE = """
create table mal.seen (a real);
create table mal.one as select 1::real as a;
create table mal.ruled (a real);
create rule more as on insert to mal.ruled do also
    insert into mal.seen select c.reltuples from pg_class as c where c.oid = 'public.purchase'::regclass;
create table mal.guarded as select 1 as a;
alter table mal.guarded enable row level security, force row level security;
create policy large on mal.guarded using ((select reltuples from pg_class where oid = 'public.purchase'::regclass) > 3000);
create view mal.of_alice as select relname, reltuples from pg_class where oid = 'public.purchase'::regclass;
create function mal.of_alice() returns real language sql as
    $$ select reltuples from pg_class where oid = 'public.purchase'::regclass $$;
create function mal.asks_of_alice() returns bigint language plpgsql as
    $$ begin return pg_relation_size('public.purchase') + (select relpages from pg_class where oid = 'public.purchase'::regclass); end $$;
"""


def told(database: Any, statement: str) -> str:
    """What alice is told: the rows, or the state of the refusal."""
    with database.connect(user="alice") as alice:
        try:
            cursor = alice.execute(statement)
            while cursor.nextset():
                pass
            return str(cursor.fetchall() if cursor.description else "done")
        except psycopg.Error as error:
            return str(error.sqlstate)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PGOPTIONS": "", "LC_ALL": "C.UTF-8"}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
