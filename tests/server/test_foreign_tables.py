"""Protected foreign tables: counted through postgres_fdw, nothing about them trusted or told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.refusals import Refusal, books, check

SECRET = "s3cr3t-value"
FAR = f"""
create table far_client (c_id int primary key, c_kind text, c_limit int);
insert into far_client select i, (array['a','b',null])[1 + i % 3], i from generate_series(1, 200) i;
insert into far_client values (777, '{SECRET}', 0);
create table far_part (p_client int, p_day date);
insert into far_part select 1 + i % 200, '2024-01-01' from generate_series(1, 300) i;
"""
NEAR = """
create extension postgres_fdw;
create server far foreign data wrapper postgres_fdw options (host '{host}', dbname '{dbname}');
create user mapping for dp_executor server far options (user 'postgres', password_required 'false');
create foreign table client (c_id int not null, c_kind text, c_limit int)
  server far options (table_name 'far_client');
create table purchase (p_client int not null, p_day date) partition by range (p_day);
create table purchase_2023 partition of purchase for values from ('2023-01-01') to ('2024-01-01');
create foreign table purchase_2024 partition of purchase
  for values from ('2024-01-01') to ('2025-01-01') server far options (table_name 'far_part');
insert into purchase select 1 + i % 200, '2023-01-01' from generate_series(1, 100) i;
alter foreign table client owner to owner1;
alter table purchase owner to owner1;
alter table purchase_2023 owner to owner1;
alter foreign table purchase_2024 owner to owner1;
grant dp_owner to owner1;
set role owner1;
select dp.protect('client'), dp.protect('purchase');
select dp.declare_shards('purchase', written => 'coordinator');
select dp.set_domain('client', 'c_kind', array['a', 'b']);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""
JOIN = "select dp_count(*) from client join purchase on p_client = c_id"


@pytest.fixture(scope="module")
def far(server: Any) -> Iterator[Any]:
    database = server.create_database()
    database.sql(FAR)
    yield database
    server.drop_database(database)


@pytest.fixture(scope="module")
def near(server: Any, far: Any) -> Iterator[Any]:
    database = server.create_database()
    database.sql(NEAR.format(host=server.cluster.socket, dbname=far.name))
    yield database
    server.drop_database(database)


@pytest.fixture
def alice(near: Any) -> Iterator[Any]:
    with near.connect(user="alice") as connection:
        connection.execute("set dp.epsilon = 50")
        connection.execute("set dp.delta = 1e-6")
        yield connection


def test_foreign_tables_and_foreign_partitions_are_counted(alice: Any) -> None:
    # Laplace noise of scale 2 S/50 with S below 7 on the join: beyond 8 with probability below 1e-12
    assert abs(alice.execute("select dp_count(*) from client").fetchone()[0] - 201) <= 2
    assert abs(alice.execute("select dp_count(*) from purchase").fetchone()[0] - 400) <= 2
    assert abs(alice.execute(JOIN).fetchone()[0] - 400) <= 8
    rows = alice.execute("select c_kind, dp_count(*) from client group by 1 order by 1").fetchall()
    assert [kind for kind, _ in rows] == ["a", "b"]
    assert abs(rows[0][1] - 66) <= 8


def test_no_key_or_constraint_of_a_foreign_table_is_trusted(near: Any) -> None:
    """The far side keeps whatever constraints it likes; here a unique key would give 1."""
    with near.connect(user="owner1") as owner:
        (value,) = owner.execute("select dp.sensitivity(%s, 'residual', 1)", (JOIN,)).fetchone()
        (plain,) = owner.execute(
            "select dp.sensitivity(%s, 'residual', 1, false)", (JOIN,)
        ).fetchone()
    assert value == plain


def test_what_the_far_server_says_is_not_told(near: Any, far: Any, alice: Any) -> None:
    """An error on one far row is charged; a far table that is gone shows before any row is read."""
    far.sql("create function boom(int) returns int language plpgsql as"
            f" $$ begin if $1 = 0 then raise exception 'LEAK {SECRET}'; end if; return $1; end $$")  # fmt: skip
    far.sql("alter table far_client rename to kept")
    far.sql("create view far_client as select c_id, c_kind, boom(c_limit) as c_limit from kept")
    heard: list[str] = []
    alice.add_notice_handler(lambda d: heard.append(str(d.message_primary)))
    admin = near.connect()
    told = []
    for sql, charged in (
        ("select dp_count(*) from client where c_limit > 5", True),
        ("select dp_count(*) from client where c_limit > 6 and c_id > 0", False),
    ):
        before = books(admin)
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(sql)
        error = caught.value.diag
        told.append((error.sqlstate, error.message_primary, error.message_detail, error.message_hint))  # fmt: skip
        assert SECRET not in str(caught.value) + str(error.context)
        assert (books(admin) != before) == charged
        far.sql("drop view if exists far_client")
    assert told == [
        (
            "PD900",
            "the answer could not be computed",
            None,
            "The cost was charged. The server log names the cause for the administrator.",
        ),
        (
            "PD052",
            'server "far", which holds parts of the relation, cannot be read',
            "It does not answer, or lacks a table or column of part client.",
            "Nothing was charged. Ask again when it answers; this server's log names the cause"
            " for the administrator.",
        ),
    ]
    assert not any(SECRET in text for text in heard)
    far.sql("alter table kept rename to far_client")
    assert alice.execute("select dp_count(*) from client where c_limit > 5").fetchone()


def test_a_foreign_table_that_nobody_declared(near: Any, alice: Any) -> None:
    near.sql("create foreign table other (c_id int) server far options (table_name 'far_client')")
    refusal = Refusal(
        "PD012",
        'relation "public.other" is neither protected nor public',
        None,
        "Its owner can declare it: SELECT dp.protect('public.other'),"
        " dp.declare_public('public.other'), dp.link('public.other', parent, columns) if its rows"
        " belong to privacy units of another relation, or, if it is a view,"
        " dp.declare_view('public.other'). A synthetic copy needs none: query it without dp_count.",
        "select dp_count(*) from other",
        "other",
    )
    check(alice, near.connect(), refusal)
