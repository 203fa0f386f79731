"""Schemas that copies are planned for, as their owner declares them."""

from __future__ import annotations

from typing import Any

from dpsql.engine.synthesis_schema import read_schema
from dpsql.synthesis.schema import Table
from tests.direct import Direct

#: Accounts, clients and loans of a bank with a public table of districts; the unit is an account.
BANK = """
create type public.card as enum ('junior', 'classic', 'gold');
create table public.district (d_id int primary key, d_region text not null, d_pay numeric(8,2));
create table public.account (a_id int primary key, a_district int not null references public.district,
  a_open date not null, a_often text not null, a_note text);
create table public.client (c_id int primary key, c_born date, c_district int references public.district,
  c_email text unique, c_flag boolean not null);
create table public.disp (p_account int not null references public.account,
  p_client int not null references public.client, p_owner boolean not null,
  primary key (p_account, p_client));
create table public.loan (l_id uuid primary key default gen_random_uuid(),
  l_account int not null unique references public.account, l_amount numeric(10,2) not null,
  l_months smallint not null check (l_months > 0), l_status public.card, l_rate double precision,
  l_score real, l_paid bigint, l_at timestamptz, l_double int generated always as (l_months * 2) stored);
create table public.trans (t_loan uuid not null references public.loan, t_no int not null,
  t_kind varchar(10), t_at timestamp, t_free numeric, primary key (t_loan, t_no));
create table public.elsewhere (e_id int primary key, e_account int references public.account);
insert into public.district select i, 'region ' || i % 3, i * 100 from generate_series(1, 9) i;
"""
#: A tree, two keys to one table, composite keys, keys that imply others; the unit is a person.
OFFICE = """
create table public.person (u_id bigint generated always as identity primary key, u_name text not null default '?',
  u_boss bigint references public.person, u_wing text);
create table public.room (r_wing text, r_number int, r_seats int, primary key (r_wing, r_number));
create table public.desk (k_wing text, k_room int, k_number int, k_owner bigint not null references public.person,
  primary key (k_wing, k_room, k_number), unique (k_owner, k_number),
  foreign key (k_wing, k_room) references public.room);
create table public.mail (m_from bigint not null references public.person, m_to bigint references public.person,
  m_day date not null default '2024-01-01', m_words int);
create table public.paper (x_wing text not null, x_room int not null, x_desk int not null, x_what text,
  constraint paper_room foreign key (x_wing, x_room) references public.room,
  constraint paper_desk foreign key (x_wing, x_room, x_desk) references public.desk);
create table public.drawer (w_owner bigint not null references public.person, w_desk int not null, w_copies int,
  constraint drawer_desk foreign key (w_owner, w_desk) references public.desk (k_owner, k_number));
"""
DECLARED_OFFICE = """
select dp.declare_public('room');
select dp.link('person', 'person', array['u_boss'], follow => false);
select dp.link('mail', 'person', array['m_to'], follow => false);
select dp.protect('person', privacy_unit => 'u_id');
"""
ROLES = "grant dp_owner to owner1; grant create on schema public to owner1; grant usage on schema public to alice;"


def services_of(connection: Any) -> Any:
    """What the engine reads a catalogue with, over a session."""
    from dpsql.engine.facts import Facts
    from dpsql.engine.services import Services
    from dpsql.server.catalog import SpiCatalog

    database = Direct(connection)
    return Services(
        database=database,  # type: ignore[arg-type]
        catalog=SpiCatalog(database, Facts()),  # type: ignore[arg-type]
        ledger=None,  # type: ignore[arg-type]
        noise=None,  # type: ignore[arg-type]
        warn=lambda *_: None,
        note=lambda _: None,
    )


def oids(connection: Any, *names: str) -> list[int]:
    """OIDs of relations."""
    return [connection.execute("select %s::regclass::oid::int8", (n,)).fetchone()[0] for n in names]


def bank(database: Any) -> Any:
    """The bank, its accounts as privacy units, its clients row by row."""
    return _declared(database, BANK, DECLARED)


def office(database: Any) -> Any:
    """The office, its persons as privacy units."""
    return _declared(database, OFFICE, DECLARED_OFFICE)


def run(database: Any, script: str) -> None:
    """Run statements that end with a semicolon at the end of a line, each by itself."""
    for statement in script.split(";\n"):
        if statement.strip():
            database.sql(statement)


def _declared(database: Any, made: str, declared: str) -> Any:
    database.sql(ROLES)
    with database.connect(user="owner1") as owner:
        owner.execute(made)
        for statement in declared.strip().split("\n"):
            owner.execute(statement)
    return database


def reader(database: Any) -> Any:
    """A session with the rights that the engine has."""
    connection = database.connect()
    connection.execute("set role dp_executor")
    connection.execute("set search_path = pg_catalog, pg_temp")
    return connection


def read(database: Any, *names: str, **terms: Any) -> dict[str, Table]:
    """What is read of relations of the schema public, by name."""
    connection = reader(database)
    found = oids(connection, *(f"public.{name}" for name in names))
    return {t.name: t for t in read_schema(found, services_of(connection), **terms)}


DECLARED = """
select dp.declare_public('district');
select dp.protect('account', privacy_unit => 'a_id');
select dp.protect('client');
select dp.link('elsewhere', 'account', array['e_account'], nulls => 'excluded');
select dp.set_domain('account', 'a_open', date '1993-01-01', date '1997-12-31');
select dp.set_domain('account', 'a_often', array['monthly', 'weekly', 'it''s']);
select dp.set_domain('client', 'c_born', date '1910-01-01', date '1910-01-20', includes_null => true);
select dp.set_domain('loan', 'l_amount', 0, 600000);
select dp.set_domain('loan', 'l_months', 1, 60);
select dp.set_domain('loan', 'l_rate', 0, 1);
select dp.set_domain('loan', 'l_score', -1, 1);
select dp.set_domain('loan', 'l_paid', -5, 5000000000);
select dp.set_domain('loan', 'l_at', '1990-01-01', '2000-01-01');
select dp.set_domain('trans', 't_kind', array['in', 'out'], includes_null => true, other => 'else');
select dp.set_domain('trans', 't_at', '1993-01-01', '1998-12-31 12:00');
select dp.set_domain('trans', 't_free', 0.5, 2);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""


def spent(database: Any) -> float:
    """Return the epsilon that alice has spent."""
    found = database.sql(
        "select epsilon_spent from dp.budgets where role = 'alice' and account = 'role'"
    )
    return float(found[0][0])
