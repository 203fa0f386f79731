"""Declarations that later majors do not enforce are trusted nowhere; earlier majors reject them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import major, refused

PERSON = """
create table person (id int primary key); insert into person select generate_series(1, 9);
select dp.protect('person', privacy_unit => 'id', delta => 1e-6);
select dp.grant_budget('alice', 1000, 1e-3)
"""


def claim(database: Any, since: int, statement: str) -> bool:
    """Run a declaration; a major before ``since`` must reject it."""
    if major(database) >= since:
        database.sql(statement)
        return True
    with pytest.raises((psycopg.errors.SyntaxError, psycopg.errors.FeatureNotSupported)):
        database.sql(statement)
    return False


def said(database: Any, question: str) -> Any:
    with database.connect(user="alice") as alice:
        return refused(alice, question)


def problem(database: Any, relation: str) -> str:
    return str(dict(database.sql("select relation_name, problem from dp.relations")).get(relation))


def test_not_null_that_is_not_valid(database: Any) -> None:
    database.sql(PERSON)
    database.sql("create table visit (p int references person); insert into visit values (null)")
    claim(database, 18, "alter table visit add constraint later not null p not valid")
    assert database.sql("select dp.never_null('visit'::regclass, 1::int2)") == [(False,)]
    assert "p can be NULL" in problem(database, "visit")
    assert said(database, "select dp_count(*) from visit").sqlstate == "PD012"


def test_a_foreign_key_that_is_not_enforced(database: Any) -> None:
    database.sql(PERSON)
    database.sql("create table visit (p int not null); insert into visit values (77)")
    claim(database, 18, "alter table visit add foreign key (p) references person not enforced")
    database.sql("grant select on visit to dp_executor")
    assert said(database, "select dp_count(*) from visit").sqlstate == "PD012"


def test_a_key_without_overlaps_is_no_key_of_its_other_columns(database: Any) -> None:
    database.sql(PERSON)
    database.sql("create extension btree_gist; create table stay (p int, at daterange)")
    if claim(database, 18, "alter table stay add primary key (p, at without overlaps)"):
        database.sql("insert into stay values (1, '[2020-01-01,2020-02-01)'), (1, '[2020-02-01,)')")
    (keys,) = database.sql("select dp.trusted_keys('stay'::regclass)")[0]
    assert ["p"] not in (keys or [])


def test_a_temporal_foreign_key_is_no_way_to_units(database: Any) -> None:
    database.sql(PERSON)
    database.sql(
        "create extension btree_gist; create table stay (p int references person, at daterange)"
    )
    database.sql("create table bill (p int not null, at daterange not null)")
    if claim(database, 18, "alter table stay add primary key (p, at without overlaps)"):
        database.sql(
            "alter table bill add foreign key (p, period at) references stay (p, period at)"
        )
    assert said(database, "select dp_count(*) from bill").sqlstate == "PD012"


VIRTUAL = "alter table person add half int generated always as (10 / (id - 777)) virtual"


def test_a_column_that_is_computed_when_it_is_read(database: Any) -> None:
    """It could raise an error on some row."""
    database.sql(PERSON)
    known = claim(database, 18, VIRTUAL)
    database.sql("grant select on person to dp_executor")
    error = said(database, "select dp_count(*) from person where half > 1")
    assert error.sqlstate == ("PD011" if known else "42703")


STATEMENTS: dict[str, tuple[int, str]] = {
    "json_table": (17, "select dp_count(*) from person, json_table('[1]', '$[*]' columns (x int path '$')) as j"),
    "json_exists": (17, "select dp_count(*) from person where json_exists(jsonb '[1]', '$[*]')"),
    "is json": (16, "select dp_count(*) from person where '1' is json"),
    "merge returning": (17, "merge into mine using (values (1)) as s (b) on a = b when matched then update set a = 2 returning (select dp_count(*) from person where id = a)"),
    "returning old": (18, "update mine set a = 2 returning (select dp_count(*) from person where id = old.a)"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_of_a_later_major_tells_no_more(database: Any, name: str) -> None:
    """It is refused before a row is read, or the whole of it is a syntax error."""
    since, statement = STATEMENTS[name]
    database.sql(PERSON)
    database.sql("create schema mine authorization alice; create table mine.mine (a int)")
    database.sql("insert into mine.mine values (1); alter table mine.mine owner to alice")
    spent = database.sql("select count(*) from dp.ledger")
    with database.connect(user="alice") as alice:
        alice.execute("set search_path = mine, public")
        error = refused(alice, statement)
    earlier = {"42601", "42703", "42883", "42P01"}
    assert error.sqlstate in ({"PD011", "PD013"} if major(database) >= since else earlier)
    assert database.sql("select count(*) from dp.ledger") == spent
