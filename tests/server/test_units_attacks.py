"""Who a row belongs to cannot be bent: spelling, dropped and renamed objects, parts, other people.

One unit with many rows that its keys tell apart must stay one unit, or the question be refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

GRANTS = "grant usage on schema public to alice; select dp.grant_budget('alice', 100000, 1e-3);"


def ask(database: Any, question: str) -> Any:
    """Ask as an analyst, with hardly any noise; return the answer or the error."""
    database.sql(GRANTS)
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 50; set client_min_messages = error")
        try:
            return alice.execute(question).fetchall()
        except Exception as error:  # noqa: BLE001
            return error


SPELLINGS = {
    "char": ("char(10)", "'a'", "text", "rpad('a', 1 + i % 9)"),
    "float8": ("float8", "1", "numeric", "1 + i * 1e-30"),
    "timestamp": (
        "timestamp",
        "'2020-01-01'",
        "timestamptz",
        "timestamptz '2020-01-01 00:00+00' + interval '0'",
    ),
    "citext": (
        "text collate ci",
        "'a'",
        'text collate "C"',
        "case i % 2 when 0 then 'a' else 'A' end",
    ),
    "ci both": (
        "text collate ci",
        "'a'",
        "text collate ci",
        "case i % 2 when 0 then 'a' else 'A' end",
    ),
}


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("kind", SPELLINGS)
def test_one_unit_in_many_spellings(database: Any, kind: str, excluded: bool) -> None:
    parent, key, child, value = SPELLINGS[kind]
    database.sql(
        "set timezone = 'UTC';"
        "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        f"create table p (k {parent} primary key); insert into p values ({key});"
        f"create table c (k {child} not null references p, i int);"
        f"insert into c select {value}, i from generate_series(1, 400) i"
    )
    with database.connect() as owner:
        try:
            owner.execute("select dp.protect('p', privacy_unit => 'k', delta => 1e-3)")
        except Exception as error:  # noqa: BLE001
            assert "cannot name a privacy unit" in str(error)  # noqa: PT017
            return
        if excluded:
            try:
                owner.execute("select dp.link('c', 'p', array['k'], nulls => 'excluded')")
            except Exception as error:  # noqa: BLE001
                assert "cannot be linked" in str(error)  # noqa: PT017
    found = ask(database, "select dp_count(*) from c")
    if isinstance(found, Exception):
        assert getattr(found, "sqlstate", "") == "PD012"
    else:  # one unit is cut off, and what does not match is not counted
        assert found[0][0] < 100


def test_equal_values_of_one_type_are_one_unit(database: Any) -> None:
    database.sql(
        "create table p (k numeric primary key); insert into p values (1);"
        "create table c (k numeric not null references p);"
        "insert into c select ('1.' || repeat('0', i % 20))::numeric from generate_series(1, 400) i;"
        "select dp.protect('p', privacy_unit => 'k', delta => 1e-3)"
    )
    ((value,),) = ask(database, "select dp_count(*) from c")
    assert value < 100


STAYS = """
create table person (id int primary key, x int not null);
insert into person select g, g % 3 from generate_series(1, 3) g;
create table stay (id int primary key, person int not null);
insert into stay select g, 1 + g % 3 from generate_series(1, 3000) g;
create table note (id int primary key, stay int not null references stay);
insert into note select g, 1 + g % 3000 from generate_series(1, 6000) g;
select dp.protect('person', privacy_unit => 'id', delta => 1e-3);
select dp.link('stay', 'person', array['person'], nulls => 'excluded');
"""


def test_a_dropped_unit_takes_its_members_along(database: Any) -> None:
    database.sql(STAYS)
    assert ask(database, "select dp_count(*) from stay")[0][0] < 1000
    database.sql("drop table person")
    assert database.sql("select * from dp.unit_paths('stay'::regclass)") == []
    for member in ("stay", "note"):
        found = ask(database, f"select dp_count(*) from {member}")
        assert getattr(found, "sqlstate", "") == "PD012", member


def test_a_renamed_unit_column_ends_questions(database: Any) -> None:
    database.sql(STAYS)
    ask(database, "select dp_count(*) from person")
    database.sql("alter table person rename id to old; alter table person rename x to id")
    for relation in ("person", "stay", "note"):
        found = ask(database, f"select dp_count(*) from {relation}")
        assert "has another name" in str(found.diag.message_detail), relation
    error = refused(database.connect(), "select dp.protect('person', privacy_unit => 'id')")
    assert "was protected with the privacy unit" in str(error)


def test_an_innocent_rename_is_mended_by_protecting_again(database: Any) -> None:
    database.sql(STAYS)
    ask(database, "select dp_count(*) from person")
    database.sql("alter table person rename id to pid")
    database.sql("select dp.protect('person', privacy_unit => 'pid')")
    assert isinstance(ask(database, "select dp_count(*) from person"), list)
    database.sql("alter table stay rename person to who")
    assert "named to dp.link" in str(
        ask(database, "select dp_count(*) from stay").diag.message_detail
    )
    database.sql("select dp.link('stay', 'person', array['who'], nulls => 'excluded')")
    assert isinstance(ask(database, "select dp_count(*) from note"), list)


PARTS = """
create table cust (id int primary key); insert into cust select generate_series(1, 5);
create table log (c int not null) partition by range (c);
create table log1 partition of log for values from (0) to (10);
alter table log1 add foreign key (c) references cust;
create table ev (c int not null); create table ev1 () inherits (ev);
alter table ev1 add foreign key (c) references cust;
create table top (id int primary key) partition by range (id);
create table top1 partition of top for values from (0) to (10);
create table low (id int not null references top1);
insert into log values (1), (1); insert into ev1 values (1);
insert into top values (1); insert into low values (1);
"""


@pytest.mark.parametrize("first", ["public", "unit"])
def test_keys_of_parts_count_for_the_whole(database: Any, first: str) -> None:
    database.sql(PARTS)
    units = ("dp.protect('cust', privacy_unit => 'id')", "dp.protect('top', privacy_unit => 'id')")
    owner = database.connect()
    owner.autocommit = True
    if first == "unit":
        for call in units:
            database.sql(f"select {call}")
        for relation in ("log", "ev", "low"):
            error = refused(owner, f"select dp.declare_public('{relation}')")
            assert "belong to privacy units" in str(error)
    else:
        database.sql(
            "select dp.declare_public('log'), dp.declare_public('ev'), dp.declare_public('low')"
        )
        for call in units:
            assert "declared otherwise" in str(refused(owner, f"select {call}"))
        return
    found = ask(database, "select dp_count(*) from log")
    assert "of its part" in str(found.diag.message_detail)


def test_only_who_may_refer_to_a_relation_links_to_it(database: Any) -> None:
    database.sql(STAYS)
    database.sql(
        "create schema m authorization mallory; grant dp_owner to mallory;"
        "create schema hidden; create table hidden.t (id int primary key);"
    )
    with database.connect("mallory") as mallory:
        mallory.execute("create table m.t (p int not null)")
        (oid,) = database.sql("select 'hidden.t'::regclass::oid")[0]
        for parent in (oid, "'public.person'::regclass"):
            error = refused(mallory, f"select dp.link('m.t', ({parent})::regclass, array['p'])")
            assert error.sqlstate == "PD070"
    database.sql("grant references on person to mallory")
    with database.connect("mallory") as mallory:
        mallory.execute("select dp.link('m.t', 'public.person', array['p'])")


def test_many_ways_are_refused_and_slow_nobody(database: Any) -> None:
    database.sql(STAYS)
    database.sql("create table l0 (id int primary key, a int not null references stay)")
    for i in range(1, 9):
        database.sql(
            f"create table l{i} (id int primary key, a int not null references l{i - 1},"
            f" b int not null references l{i - 1})"
        )
    problems = dict(database.sql("select relation_name, problem from dp.relations"))
    assert "more than 32 ways" in problems["l8"]
    assert problems["stay"] is None


def test_rows_of_inheriting_tables_may_have_no_unit(database: Any) -> None:
    database.sql(STAYS)
    database.sql(
        "create table ic (c int not null references person);"
        "create table ic_old () inherits (ic); alter table ic_old alter c drop not null;"
        "insert into ic_old select null from generate_series(1, 1000);"
        "grant select on ic, ic_old to dp_executor"
    )
    found = ask(database, "select dp_count(*) from ic")
    assert "tables inherit from it" in str(found.diag.message_detail)
    database.sql("select dp.link('ic', 'person', array['c'], nulls => 'excluded')")
    assert abs(ask(database, "select dp_count(*) from ic")[0][0]) < 50


def test_a_member_of_a_partition_of_a_member(database: Any) -> None:
    """What refers to a partition belongs to the units of the whole."""
    database.sql(STAYS)
    database.sql(
        "create table ord (id int not null, p int not null references person, primary key (id))"
        " partition by range (id); create table ord1 partition of ord for values from (0) to (10);"
        "create table item (o int not null references ord1); grant select on ord, item to dp_executor;"
        "insert into ord values (1, 1); insert into item select 1 from generate_series(1, 500)"
    )
    shown = dict(database.sql("select relation_name, privacy_unit from dp.relations"))
    assert shown["item"] == "person.id by ord"
    assert ask(database, "select dp_count(*) from item")[0][0] < 200
