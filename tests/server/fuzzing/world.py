"""The database that is fuzzed: protected, public, exposed, released, synthetic and own relations.

Its twin has the same declarations and next to none of the rows.
"""

from __future__ import annotations

from typing import Any

#: What nobody but the owner may ever be shown.
CANARY = "canary"
ROLES = ("fuzz_rich", "fuzz_poor")
PROTECTED = ["public.customer", 'public."Orders"', "public.member", "public.visit"]

TABLES = """
create table country (k_code text primary key, k_name text not null, k_pop int);
insert into country values ('DE', 'Germany', 83), ('FR', 'France', 68);
create table customer (c_id int primary key, c_country text not null references country, c_secret text);
create table "Orders" (o_id bigint primary key, o_customer int not null references customer,
  o_status text not null, o_amount numeric(10,2), o_day date not null, o_at timestamp, o_weight float8, o_note text);
create table member (m_id int primary key, m_age int, m_name text);
create table visit (v_id int primary key, v_member int not null references member, v_paid numeric(8,2), v_kind text);
alter table country owner to owner1; alter table customer owner to owner1; alter table "Orders" owner to owner1;
alter table member owner to owner1; alter table visit owner to owner1;
grant dp_owner to owner1;
create extension if not exists postgres_fdw;
"""
ROWS = f"""
insert into customer select i, (array['DE', 'FR'])[1 + i % 2], '{CANARY} ' || i from generate_series(1, {{0}}) as i;
insert into "Orders" select i, 1 + i % {{0}}, (array['open', 'sent', 'back', '{CANARY}'])[1 + i % 4],
    case when i % 50 = 0 then 'NaN'::numeric when i % 7 > 0 then i % 100 end, date '2024-01-01' + i % 91,
    case when i % 9 = 0 then 'infinity' else timestamp '2024-01-01 08:00' + i % 91 * interval '1 day' end,
    case i % 11 when 0 then 'NaN'::float8 when 1 then 1e308 when 2 then 0 else i end, '{CANARY} ' || i
  from generate_series(1, {{1}}) as i;
insert into member select i, case when i % 8 > 0 then i % 90 end, '{CANARY} ' || i from generate_series(1, {{0}}) as i;
insert into visit select i, 1 + i * i % {{0}}, i % 40, (array['a', 'b', null, '{CANARY}'])[1 + i % 4] from generate_series(1, {{1}}) as i;
analyze;
"""
DECLARED = """
select dp.protect('customer'), dp.protect('"Orders"'), dp.protect('member', privacy_unit => 'm_id'), dp.declare_public('country');
select dp.set_domain('customer', 'c_country', array['DE', 'FR']);
select dp.set_domain('"Orders"', 'o_status', array['open', 'sent', 'back']);
select dp.set_domain('"Orders"', 'o_amount', 0, 100);
select dp.set_domain('"Orders"', 'o_day', date '2024-01-01', date '2024-03-31');
select dp.set_domain('visit', 'v_kind', array['a', 'b']);
select dp.set_domain('visit', 'v_paid', 0, 40);
select dp.set_domain('member', 'm_age', 0, 100);
select dp.expose('"Orders"', array['o_id', 'o_customer', 'o_status', 'o_amount', 'o_day', 'o_note']);
select dp.expose('customer', array['c_id', 'c_country']);
select dp.expose('visit');
"""
GRANTED = """
grant usage on schema public to {role};
grant select on country to {role};
select dp.grant_budget('{role}', epsilon => {limit}, delta => 1e-8);
"""
#: A group of one planted text, of some hundred in a question, is shown with this delta: in all scripts
#: with a probability below 1e-9.
SETTINGS = """
grant create on database {database} to {role};
alter role {role} in database {database} set statement_timeout = '20s';
alter role {role} in database {database} set dp.delta = '1e-16';
"""
BOUGHT = """
select dp.release('sold', $$ select o_status, o_day, dp_count(*) from "Orders" group by cube (o_status, o_day) $$, 1, 1e-12);
create schema syn;
"""
COPIED = "call dp.synthesize('syn', array['member', 'visit']::regclass[], 2, 1e-12, d_max => '{\"visit\": 20}', placeholders => true)"
#: What a role makes anew before each script.
OWN = """
create table lab.mine (a int primary key, b text, c numeric, d date);
insert into lab.mine select i, 'b' || i % 3, i * 1.5, date '2024-01-01' + i from generate_series(1, 20) as i;
create view lab.over as select o_status, o_amount, o_customer from dpv."Orders";
create view lab.asked as select c_country as k, public.dp_count(*) as n from public.customer group by c_country;
"""


def make(server: Any, persons: int = 40, orders: int = 400) -> Any:
    """Make the database with so many rows."""
    database = server.create_database()
    database.sql(TABLES)
    database.sql(ROWS.format(persons, orders))
    database.sql(DECLARED, user="owner1")
    for role, limit in (("fuzz_rich", 1e7), ("fuzz_poor", 30)):
        database.sql(GRANTED.format(role=role, limit=limit))
        database.sql(SETTINGS.format(role=role, database=database.name))
    with database.connect(user="fuzz_rich") as rich:
        rich.execute("set statement_timeout = 0")  # the copy may take longer than a script
        for statement in BOUGHT.strip().split(";\n"):
            rich.execute(statement)
        rich.execute("set client_min_messages = error")
        rich.execute(COPIED)
        rich.execute(
            "grant usage on schema syn to public; grant select on all tables in schema syn to public"
        )
    return database


def twin(server: Any, database: Any) -> Any:
    """Copy the database, and take nearly all protected rows away."""
    other = server.create_database(template=database.name)
    for role in ROLES:
        other.sql(SETTINGS.format(role=role, database=other.name))
    other.sql(
        'delete from visit; delete from "Orders" where o_id > 1; delete from member where m_id > 3; analyze'
    )
    other.sql('delete from customer where c_id not in (select o_customer from "Orders")')
    return other
