"""Five linked tables with most kinds of keys and columns, for tests of what is written."""

from __future__ import annotations

from typing import Any

from synthesising import listed, read_plan, rows

from dpsql.synthesis.schema import Attribute

CHAIN = """
create type public.mood as enum ('sad', 'glad');
create table public.region (r_id int primary key, r_name varchar(12) not null unique);
insert into public.region select i, 'region ' || i from generate_series(1, 5) i;
create table public.person (p_id bigint generated always as identity primary key,
  p_region int not null references public.region, p_mood public.mood, p_age int check (p_age between 0 and 120),
  p_pay numeric(8,2) not null default 0, p_born date, p_double int generated always as (p_age * 2) stored,
  p_code uuid not null unique, p_email varchar(40) unique, p_note text default 'none',
  p_boss bigint references public.person, check (p_age > 17 or p_pay = 0));
create index person_mood on public.person (p_mood, p_age) where p_age > 3;
comment on column public.person.p_age is 'in years';
create table public.account (a_person bigint not null references public.person, a_number int not null,
  a_kind text not null, primary key (a_person, a_number));
create table public.booking (b_id serial primary key, b_person bigint not null, b_account int not null,
  b_when timestamptz not null, b_by bigint references public.person on delete set null on update cascade deferrable initially deferred, b_ratio float8,
  foreign key (b_person, b_account) references public.account);
create table public.member (m_person bigint references public.person, m_account_person bigint not null,
  m_account int not null, m_role text not null,
  primary key (m_person, m_account_person, m_account),
  foreign key (m_account_person, m_account) references public.account);
grant select on all tables in schema public to owner1;
grant references on public.region to owner1;
grant create on database {database} to owner1;
grant dp_owner to owner1;
"""
REGIONS = listed(r_id=["1", "2", "3", "4", "5"])
NAMES = ["public.region", "public.person", "public.account", "public.booking", "public.member"]
ATTRIBUTES = {
    "public.person": [
        "p_mood",
        Attribute("p_age", "bin", ("0", "18", "40", "121")),
        Attribute("p_pay", "bin", ("0", "0.01", "1000", "99999.99")),
        Attribute("p_born", "bin", ("1950-01-01", "1980-01-01", "2000-01-01")),
    ],
    "public.account": ["a_kind"],
    "public.booking": [
        Attribute("b_when", "bin", ("2024-01-01 00:00:00+00", "2024-06-01 00:00:00+00")),
        Attribute("b_ratio", "bin", ("0", "0.5", "1")),
    ],
    "public.member": ["m_role"],
}
LEVELS = {
    1: [["sad", "glad", None], ["1", "2", "3", None], ["1", "2", "3"], ["0", "1", "2", "3", None]],
    2: [["giro", "loan"]],
    3: [["1"], ["1", "2", None]],
    4: [["owner", "user"]],
}


def chain(people: int = 300, accounts: int = 400, bookings: int = 900, members: int = 700):
    return [
        REGIONS,
        rows(people, LEVELS[1], [people, 5], 1, [True, False]),
        rows(accounts, LEVELS[2], [people], 2),
        rows(bookings, LEVELS[3], [people, accounts], 3, [True, False]),
        rows(members, LEVELS[4], [accounts, people], 4),
    ]


def plan_of_chain(session: Any) -> Any:
    return read_plan(session, NAMES, ATTRIBUTES, public=["public.region"])


def contents(session: Any, target: str) -> dict[str, list[str]]:
    """Return every row of every table of a schema, as texts."""
    names = session.execute(
        "select format('%%I.%%I', schemaname, tablename) from pg_tables where schemaname = %s order by 1",
        (target,),
    ).fetchall()
    return {
        name: [r[0] for r in session.execute(f"select t::text from {name} t order by 1")]
        for (name,) in names
    }
