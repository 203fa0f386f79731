"""Twin databases on a server with small limits; only the second has a planted person or row.

Limits that the planted texts, numbers and links can reach are reached there only.  The server's
limits are small, so that a session comes near to them quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SPY = "alice"
#: A role that the spy may become.
OTHER = "bob"
#: Limits of the server.
LIMITS = {
    "max_connections": "24",
    "max_pred_locks_per_transaction": "10",
    "max_worker_processes": "4",
    "max_wal_senders": "0",
    "temp_file_limit": "'8MB'",
    "max_stack_depth": "'2MB'",
    "autovacuum": "off",
    "work_mem": "'4MB'",
}
HEAVY = 777
#: The name of a release that exists from the beginning, and a join of which statistics and a sketch are kept.
KEPT = "kept"
PATHS = "road as x join road as y on x.b = y.a"
SET_UP = f"""
create table town (t_name text primary key);
insert into town values ('here'), ('there');
create table person (id int primary key, age int not null, kind text, note text not null, amount numeric not null, weight float8, born date);
create table shop (s_id int primary key, s_kind text);
create table visit (v_id int primary key, person int not null references person, shop int not null references shop,
                    paid numeric(8,2), v_kind text, v_note text not null);
create table call (c_id int primary key, person int not null references person, c_kind text, c_paid numeric(8,2), c_note text not null);
create table reading (r_id int primary key, r_kind text, r_note text not null, r_amount numeric not null, r_value int not null, r_day date);
create table edge (a int not null, b int not null);
create table road (a int not null, b int not null);
insert into person select i, i % 90, (array['a', 'b'])[1 + i % 2], 'note', 5, 0.5, date '1980-01-01' + i from generate_series(1, 300) as i;
insert into shop select i, (array['x', 'y'])[1 + i % 2] from generate_series(1, 20) as i;
insert into visit select i, 1 + i % 300, 1 + i % 20, i % 40, (array['a', 'b'])[1 + i % 2], 'b' from generate_series(1, 900) as i;
insert into call select i, 1 + i % 300, (array['a', 'b'])[1 + i % 2], i % 40, 'b' from generate_series(1, 600) as i;
insert into reading select i, (array['a', 'b'])[1 + i % 2], 'b', 5, i % 100, date '2024-01-01' + i % 90 from generate_series(1, 600) as i;
insert into edge select i % 60, (i * 7 + i / 60) % 60 from generate_series(1, 400) as i;
insert into road select a, b from edge;
alter table town owner to owner1; alter table person owner to owner1; alter table shop owner to owner1; alter table visit owner to owner1; alter table call owner to owner1;
alter table reading owner to owner1; alter table edge owner to owner1; alter table road owner to owner1;
grant dp_owner to owner1; grant {OTHER} to {SPY};
create schema lab authorization {SPY}; create schema own authorization {SPY}; grant create on schema lab to {OTHER};
grant usage on schema public to public; grant select on town to public;
"""
DECLARE = f"""
select dp.protect('person', privacy_unit => 'id'), dp.protect('shop', privacy_unit => 's_id'), dp.protect('reading'), dp.protect('edge'), dp.protect('road'), dp.declare_public('town');
select dp.set_domain('person', 'kind', array['a', 'b']), dp.set_domain('reading', 'r_kind', array['a', 'b']), dp.set_domain('call', 'c_kind', array['a', 'b']);
select dp.set_domain('person', 'age', 0, 100), dp.set_domain('reading', 'r_value', 0, 100), dp.set_domain('visit', 'paid', 0, 40), dp.set_domain('call', 'c_paid', 0, 40);
select dp.expose('reading', array['r_id', 'r_kind', 'r_value', 'r_note']), dp.expose('person', array['id', 'age', 'kind', 'note']);
select dp.grant_budget('{SPY}', 1e6, 1e-3), dp.grant_budget('{OTHER}', 1e6, 1e-3);
select dp.allow_heuristic('reading'), dp.allow_heuristic('edge'), dp.allow_heuristic('road');
select dp.collect_statistics('road'); select dp.keep_statistics('select dp_count(*) from {PATHS}'); select dp.refresh_statistics('road');
"""
#: Made by the owner and the spy when all rows exist.  The statistics above were taken before rows were planted.
SKETCH = f"select dp.create_sketch('select dp_count(*) from {PATHS}', 100, 2)"
RELEASE = f"select dp.release('{KEPT}', 'select r_kind, dp_count(*) from reading group by r_kind', 0.01, 1e-12)"
#: After `dp.lockdown()` the shapes need temporary objects, which an owner may grant by name.
LOCK = f"select dp.lockdown(); grant temporary on database {{}} to {SPY}, {OTHER}"
#: One person and the rows linked to that person.
UNIT = f"""
insert into person values ({HEAVY}, 33, 'a', repeat('a', 10000), ('1' || repeat('0', 3000))::numeric, 1e308, 'infinity');
insert into visit select 10000 + i, {HEAVY}, 1 + i % 20, 7, 'a', repeat('a', 10000) from generate_series(1, 60) as i;
insert into call select 10000 + i, {HEAVY}, 'a', 7, repeat('a', 10000) from generate_series(1, 60) as i;
"""
#: One row of each relation that is protected row by row.
ROW = f"""
insert into reading values ({HEAVY}, 'a', repeat('a', 10000), ('0.' || repeat('1', 3000))::numeric, 33, '2024-01-01');
insert into edge values (7, 7);
insert into road values (7, 7);
"""
#: The same rows; one has other values.
VALUES = """
update reading set r_note = repeat('a', 10000), r_amount = ('1' || repeat('0', 10000))::numeric where r_id = 1;
update person set note = repeat('a', 10000), amount = ('0.' || repeat('1', 10000))::numeric, weight = 'NaN' where id = 1;
"""
PLANTED = UNIT + ROW
DIFFERENCES = (PLANTED, UNIT, ROW, VALUES)
#: Asked first, because the first session leaves caches that later ones use.
WARM = "select dp_count(*) from reading"


def make(server: Any, *more: str) -> Any:
    """Make one twin; ``more`` are statements that are run before the sketch and the release are made."""
    database = server.create_database()
    database.sql(SET_UP)
    database.sql(DECLARE, user="owner1")
    for text in more:
        database.sql(text)
    database.sql("analyze")
    database.sql(SKETCH, user="owner1")
    database.sql(RELEASE, user=SPY)
    return database


@contextmanager
def twins(server: Any, planted: str = PLANTED) -> Iterator[tuple[Any, Any]]:
    """Yield the two databases, without and with the planted rows."""
    # one after the other: both make the same roles members of others
    pair = make(server), make(server, planted)
    try:
        for database in pair:
            database.sql(WARM, user=SPY)
        yield pair[0], pair[1]
    finally:
        for database in pair:
            server.drop_database(database)
