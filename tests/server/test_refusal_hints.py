"""What hints say to write instead of sub-queries and outer joins counts what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.asking import refused

pytestmark = pytest.mark.server

SET_UP = """
create table a (id int primary key, x int); create table b (id int, x int unique);
insert into a select g, g from generate_series(1, 300) g;
insert into b select 1 + g % 200, 100 + g from generate_series(0, 499) g;
create table person (id int primary key); insert into person select generate_series(1, 300);
create table c (id int primary key, x int, p int not null references person);
create table d (id int, x int unique, p int not null references person);
insert into c select id, x, id from a; insert into d select id, x, id from b;
select dp.protect('a', delta => 1), dp.protect('b', delta => 1),
  dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.grant_budget('postgres', 1e6, 1);
"""
WITHOUT = (
    "SELECT n - m FROM (SELECT dp_count(*) AS n FROM a) AS whole, (SELECT dp_count(DISTINCT a.id)"
    " AS m FROM a JOIN b ON b.a_id = a.id) AS matched."
)
NOT_A_MEMBER = (
    "SELECT n - m FROM (SELECT dp_count(*) AS n FROM a WHERE x IS NOT NULL) AS whole, (SELECT"
    " dp_count(DISTINCT a.id) AS m FROM a JOIN b ON b.x = a.x) AS matched, if b.x has no NULL."
)
ONCE = "SELECT dp_count(DISTINCT a.id) FROM a JOIN b ON b.a_id = a.id;"
MEMBER = "SELECT dp_count(DISTINCT a.id) FROM a JOIN b ON b.x = a.x;"
VALUE = "write it as a constant or parameter: WHERE a > $1."
OUTSIDE = "SELECT n, (SELECT ...) FROM (SELECT dp_count(*) AS n FROM t) AS answer."
#: What is refused, and the essence of its hint.
CASES = {
    "exists": ("where exists (select from b where b.id = a.id)", ONCE),
    "not exists": ("where not exists (select from b where b.id = a.id)", WITHOUT),
    "in": ("where a.x in (select x from b)", MEMBER),
    "any": ("where a.x = any (select x from b)", MEMBER),
    "array": ("where a.x = any (array(select x from b))", MEMBER),
    "not in": ("where a.x not in (select x from b)", NOT_A_MEMBER),
    "all": ("where a.x <> all (select x from b)", NOT_A_MEMBER),
    "some not": ("where not (a.x = 7 or exists (select from b where b.id = a.id))", WITHOUT),
    "not not": ("where not (not exists (select from b where b.id = a.id))", ONCE),
    "left": ("left join b on b.id = a.id", WITHOUT),
    "full": ("full join b on b.id = a.id", WITHOUT),
    "scalar": ("where a.x > (select min(x) from b)", VALUE),
    "above all": ("where a.x > all (select x from b)", VALUE),
    "in an argument": ("where a.x < 7 and abs((select min(x) from b)) = 1", VALUE),
    "having": ("having dp_count(*) > (select min(x) from b)", OUTSIDE),
    "having exists": ("having exists (select from b)", OUTSIDE),
    "limit": ("limit (select min(x) from b)", OUTSIDE),
}
#: What the hints make of it, and what PostgreSQL counts; over units that the join equates.
INSTEAD = [
    (
        "select dp_count(distinct {a}.id) from {a} join {b} on {b}.id = {a}.id{and_units}",
        "select count(*) from {a} where exists (select from {b} where {b}.id = {a}.id)",
    ),
    (
        "select n - m from (select dp_count(*) as n from {a}) as whole, (select dp_count(distinct"
        " {a}.id) as m from {a} join {b} on {b}.id = {a}.id{and_units}) as matched",
        "select count(*) from {a} where not exists (select from {b} where {b}.id = {a}.id)",
    ),
    # where x is a key
    (
        "select dp_count(*) from {a} join {b} on {b}.x = {a}.x",
        "select count(*) from {a} where x in (select x from {b})",
    ),
    (
        "select (select n > 7) from (select dp_count(*) as n from {a}) as answer",
        "select count(*) > 7 from {a}",
    ),
    (
        "select dp_count(distinct x.id) from (select id from {b} where x > 300) as x",
        "select count(*) from (select distinct id from {b} where x > 300) as x",
    ),
]
ROWS = {"a": "a", "b": "b", "and_units": ""}
UNITS = {"a": "c", "b": "d", "and_units": " and d.p = c.p"}


@pytest.fixture(scope="module")
def silent(server: Any) -> Iterator[Any]:
    for database in asking.made(server, SET_UP):
        with asking.silent(database, "a", BOUND.format(2**20)) as session:
            session.execute("set dp.epsilon = 100")
            yield session


@pytest.mark.parametrize("names", [ROWS, UNITS], ids=["rows", "units"])
@pytest.mark.parametrize("kind", CASES)
def test_each_construct_has_its_own_hint(silent: Any, kind: str, names: dict[str, str]) -> None:
    clause, hint = CASES[kind]
    before = silent.execute("select count(*) from dp.spend").fetchone()
    clause = re.sub(r"\b(from|join) b\b", rf"\1 {names['b']} as b", clause)
    error = refused(silent, f"select dp_count(*) from {names['a']} as a {clause}")
    assert error.sqlstate == "PD011"
    assert hint in str(error.diag.message_hint)
    assert silent.execute("select count(*) from dp.spend").fetchone() == before


@pytest.mark.parametrize("place", ["{}", "dp_count(*) filter (where x = {})", "dp_count({})"])
def test_a_query_in_the_output_is_put_around_the_answer(silent: Any, place: str) -> None:
    asked = place.format("(select min(x) from b)")
    error = refused(silent, f"select dp_count(*), {asked} from a")
    # what is inside of an aggregate is read of every row
    assert (OUTSIDE if asked.startswith("(") else VALUE) in str(error.diag.message_hint)
    # a sub-query in FROM has no output of its own
    error = refused(
        silent, "select dp_count(*) from (select (select min(x) from b) as y from a) as s"
    )
    assert VALUE in str(error.diag.message_hint)


def test_different_rows_of_a_sub_query_are_counted_outside(silent: Any) -> None:
    error = refused(silent, "select dp_count(*) from (select distinct id from b) as x")
    assert "SELECT dp_count(DISTINCT x.a) FROM (SELECT a FROM t" in str(error.diag.message_hint)
    error = refused(silent, "select dp_count(*) from (select distinct id from b limit 3) as x")
    assert "DISTINCT" not in str(error.diag.message_hint)


@pytest.mark.parametrize("names", [ROWS, UNITS], ids=["rows", "units"])
@pytest.mark.parametrize(("instead", "own"), INSTEAD)
def test_what_the_hints_say_counts_the_same(
    silent: Any, instead: str, own: str, names: dict[str, str]
) -> None:
    found = silent.execute(instead.format(**names)).fetchone()
    assert found == silent.execute(own.format(**names)).fetchone()


def test_a_join_on_what_is_no_key_counts_once(silent: Any) -> None:
    found = silent.execute("select dp_count(distinct a.id) from a join b on b.x = a.x").fetchone()
    own = silent.execute("select count(*) from a where x in (select x from b)").fetchone()
    assert found == own


def test_what_is_no_member_is_counted_without_nulls(silent: Any) -> None:
    silent.execute("insert into a values (1001, null), (1002, null)")
    found = silent.execute(NOT_A_MEMBER.removesuffix(", if b.x has no NULL.")).fetchone()
    own = silent.execute("select count(*) from a where x not in (select x from b)").fetchone()
    silent.execute("delete from a where x is null")
    assert found == own


@pytest.mark.parametrize(
    ("aggregate", "words"),
    [
        ("dp_percentile(x, 0.5, 0, 100)", "FILTER (WHERE value <= 100)"),
        ("dp_median(x, 0, 100)", "FILTER (WHERE value <= 100)"),
        ("dp_stddev(x, 0, 100)", "dp_interval_low(dp_avg(value, 0, 100))"),
    ],
)
def test_ends_of_intervals_that_there_are_none_of(silent: Any, aggregate: str, words: str) -> None:
    error = refused(silent, f"select dp_interval_low({aggregate}) from a")
    assert words in str(error.diag.message_hint)


def test_a_regular_expression_is_a_pattern_of_like(silent: Any) -> None:
    error = refused(silent, "select dp_count(*) from a where x::text ~ '7'")
    assert "LIKE '%word%'" in str(error.diag.message_hint)
