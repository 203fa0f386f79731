"""Columns that number rows: their value in one row depends on rows of other units.

Twin databases differ in one unit, whose ratings were inserted first: without it every other rating has another number.
A question that read the numbers would differ by hundreds, while noise hides the rows of one unit only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import made, neighbours, say, silent

SET_UP = """
create table public.usr (id int primary key, kind text not null);
create table public.rating (id int primary key, usr int not null references usr, movie int not null, stars int not null);
insert into usr select i, 'a' from generate_series(0, 600) i;
select dp.protect('usr', privacy_unit => 'id');
select dp.set_degree_bound('rating', array['movie'], 1000);
select dp.set_root_cap('usr', 100000, 1e-3);
select dp.grant_budget('alice', epsilon => 100000, delta => 1e-3);
select dp.grant_budget('postgres', epsilon => 100000, delta => 1e-3);
create schema syn authorization alice;
"""
#: The rows of unit 0 take the first number; all others move on by one.
FIRST = "insert into rating (id, usr, movie, stars) values (0, 0, 1, 5)"
OTHERS = "insert into rating (id, usr, movie, stars) select i, i, 1, i % 5 from generate_series(1, 500) i"
EQUAL = "select dp_count(*) from rating where id = dp_slot_movie"


@pytest.fixture(scope="module")
def twins(server: Any) -> Iterator[tuple[Any, Any]]:
    for pair in neighbours(server, SET_UP, FIRST):
        for database in pair:
            database.sql(OTHERS)
        yield pair


@pytest.fixture(scope="module")
def numbered(server: Any) -> Iterator[Any]:
    for database in made(server, f"{SET_UP}; {OTHERS}"):
        database.sql(
            "create table public.movie (movie int primary key, dp_slot_movie int, copy int);"
            "select dp.declare_public('movie')"
        )
        yield database


def test_numbers_move_by_hundreds_where_one_unit_is_missing(twins: tuple[Any, Any]) -> None:
    """The difference that an attacker would look for: it exists in the rows."""
    count = "select count(*) from rating where id = dp_slot_movie"
    assert [database.sql(count) for database in twins] == [[(500,)], [(0,)]]
    told = []
    for database in twins:
        with silent(database, "usr") as session:
            told.append(say(session, EQUAL))
            assert say(session, "select dp_count(*) from rating").startswith("[(")
    assert told[0] == told[1]
    assert told[0].startswith("PD011 columns that number rows"), told


QUESTIONS = {
    "a condition": "from rating where id = dp_slot_movie",
    "a condition of an outer query": "from usr where id in (select usr from rating where dp_slot_movie = 1)",
    "a sub-query": "from (select dp_slot_movie as n from rating) as r where n = 3",
    "all columns of a sub-query": "from (select * from rating) as r where stars = 3",
    "other names": "from rating as r (a, b, c, d, e) where a = e",
    "other names, for a few": "from rating as r (a) where a = dp_slot_movie",
    "a join": "from rating as r join rating as s on r.dp_slot_movie = s.id",
    "a join with a public table": "from rating join movie on rating.dp_slot_movie = movie.copy",
    "USING": "from rating join movie using (movie, dp_slot_movie)",
    "NATURAL": "from rating natural join movie",
    "a whole join": "from (rating as r join usr as u on u.id = r.usr) as j (a, b, c, d, e) where a = e",
    "an outer join": "from usr left join rating on usr.id = rating.usr where dp_slot_movie = 1",
    "WITH": "from (with r as (select id, dp_slot_movie from rating) select * from r) as r where id = 1",
    "a whole row": "from rating where rating is not null",
    "a field of a row": "from rating where (rating).dp_slot_movie = 1",
    "an expression": "from rating where coalesce(dp_slot_movie, 0) between 2 and 4",
}
OUTPUTS = {
    "a group": "select dp_slot_movie, dp_count(*) from rating group by 1",
    "a part of a group": "select stars, dp_slot_movie > 3, dp_count(*) from rating group by 1, 2",
    "a hidden group": "select dp_count(*) from rating group by dp_slot_movie",
    "ORDER BY": "select stars, dp_count(*) from rating group by stars order by dp_count(dp_slot_movie)",
    "HAVING": "select stars, dp_count(*) from rating group by stars having dp_sum(dp_slot_movie, 0, 9) > 1",
    "FILTER": "select dp_count(*) filter (where dp_slot_movie = id) from rating",
    "a count of values": "select dp_count(dp_slot_movie) from rating",
    "a count of different values": "select dp_count(distinct dp_slot_movie) from rating",
    "a count of rows": "select dp_count(distinct rating) from rating",
    "a sum": "select dp_sum(dp_slot_movie, 0, 1000) from rating",
    "an average": "select dp_avg(dp_slot_movie - id, 0, 1000) from rating",
    "a percentile": "select dp_percentile(dp_slot_movie, 0.5, 0, 1000) from rating",
    "a histogram": "select dp_histogram(dp_slot_movie, 0, 1000, 10) from rating",
}  # fmt: skip
CALLS = {
    "dp.query": f"select * from dp.query($${EQUAL}$$)",
    "dp.explain": f"select * from dp.explain($${EQUAL}$$)",
    "dp.estimate": f"select * from dp.estimate($${EQUAL}$$)",
    "dp.sensitivity": f"select * from dp.sensitivity($${EQUAL}$$)",
    "dp.release": "select dp.release('r', $$select dp_slot_movie, dp_count(*) from rating group by 1$$)",
    "dp.release of a condition": f"select dp.release('r', $${EQUAL}$$)",
    "dp.plan_release": "select dp.plan_release($$select dp_slot_movie, dp_count(*) from rating group by 1$$)",
    "dp.suggest_bounds": "select * from dp.suggest_bounds('rating', 'dp_slot_movie', 1)",
}
OWNERS = {
    "dp.keep_statistics": f"select dp.keep_statistics($${EQUAL}$$)",
    "dp.create_sketch": "select dp.create_sketch($$select dp_count(*) from rating as r join rating as s"
    " on r.dp_slot_movie = s.dp_slot_movie$$)",
    "dp.set_domain": "select dp.set_domain('rating', 'dp_slot_movie', array[1, 2])",
    "dp.set_domain, a range": "select dp.set_domain('rating', 'dp_slot_movie', 1, 2)",
    "dp.set_domain, of a table": "select dp.set_domain('rating', 'dp_slot_movie', 'movie', 'copy')",
    "dp.set_domain, from it": "select dp.set_domain('usr', 'id', 'movie', 'dp_slot_movie')",
    "dp.expose": "select dp.expose('rating', array['id', 'dp_slot_movie'])",
    "dp.declare_view": "create view public.seen as select id, dp_slot_movie from rating;"
    " select dp.declare_view('seen')",
    "dp.link": "select dp.link('rating', 'usr', array['dp_slot_movie'])",
    "dp.link to it": "create table public.child (a int not null, b int not null);"
    " select dp.link('child', 'rating', array['a', 'b'], array['movie', 'dp_slot_movie'])",
    "dp.protect": "select dp.protect('rating', privacy_unit => 'dp_slot_movie')",
}
#: Refused over any column.
ELSEWHERE = ("a whole row", "a field of a row", "a count of rows", "an outer join", "WITH")
ASKED = {
    **{name: f"select dp_count(*) {text}" for name, text in QUESTIONS.items()},
    **OUTPUTS,
    **CALLS,
}


@pytest.mark.parametrize("name", ASKED)
def test_no_question_reads_a_number(numbered: Any, name: str) -> None:
    numbered.sql("select dp.expose('rating')")
    with numbered.connect(user="alice") as alice:
        told = say(alice, ASKED[name])
    assert told.startswith("PD011 "), told
    assert "number rows" in told or name in ELSEWHERE, told
    assert numbered.sql("select count(*) from dp.spend") == [(0,)]


@pytest.mark.parametrize("name", OWNERS)
def test_no_declaration_takes_a_number(numbered: Any, name: str) -> None:
    with numbered.connect(autocommit=False) as owner:
        told = say(owner, OWNERS[name])
        owner.rollback()
    assert told.split()[0] in ("PD011", "PD040"), told
    assert "number" in told or "does not exist" not in told, told


def test_exposed_views_leave_numbers_out(numbered: Any) -> None:
    numbered.sql("select dp.expose('rating')")
    columns = (
        "select attname from pg_attribute where attrelid = 'dpv.rating'::regclass and attnum > 0"
    )
    assert numbered.sql(columns) == [("id",), ("usr",), ("movie",), ("stars",)]
    with numbered.connect(user="alice") as alice:
        assert "does not exist" in say(alice, "select count(dp_slot_movie) from dpv.rating")
        assert say(
            alice, "select count(*) from (select * from dpv.rating) r where stars = 1"
        ).startswith("[(")


@pytest.fixture
def fresh(database: Any) -> Any:
    database.sql(SET_UP)
    database.sql(OTHERS)
    return database


def withheld(database: Any, relation: str) -> list[str]:
    """Return the columns that no question reads."""
    found = database.sql(
        "select a.attname from unnest(dp.derived_columns(%s::regclass)) as d(n)"
        " join pg_attribute as a on a.attrelid = %s::regclass and a.attnum = d.n order by a.attnum",
        relation,
        relation,
    )
    return [name for (name,) in found]


def refusal(database: Any, condition: str, relation: str = "rating") -> str:
    with database.connect(user="alice") as alice:
        return say(alice, f"select dp_count(*) from {relation} where {condition}")


def test_a_column_is_known_by_its_record_whatever_its_name_is(fresh: Any) -> None:
    fresh.sql("alter table rating rename column dp_slot_movie to place")
    assert refusal(fresh, "id = place").startswith("PD011")
    fresh.sql("alter table rating rename column stars to dp_stars")
    assert refusal(fresh, "dp_stars = 1").startswith("[(")


def test_a_number_stays_one_when_its_bound_is_gone(fresh: Any) -> None:
    fresh.sql("alter table rating rename column dp_slot_movie to place")
    fresh.sql("drop trigger dp_slot_movie on rating")
    fresh.sql("alter table rating drop constraint rating_movie_dp_slot_movie_key")
    fresh.sql("select dp.unprotect('usr')")
    fresh.sql("select dp.protect('usr', privacy_unit => 'id')")
    assert refusal(fresh, "id = place").startswith("PD011")
    fresh.sql("alter table rating drop column place")
    fresh.sql("alter table rating add column place int not null default 1")
    assert refusal(fresh, "id = place").startswith("[(")


def test_a_bound_that_is_taken_back_leaves_nothing(fresh: Any) -> None:
    fresh.sql("select dp.drop_degree_bound('rating', array['movie'])")
    assert withheld(fresh, "rating") == []
    assert "does not exist" in refusal(fresh, "dp_slot_movie = 1")
    fresh.sql("select dp.set_degree_bound('rating', array['movie'], 1000)")
    assert withheld(fresh, "rating") == ["dp_slot_movie"]


def test_what_the_server_fills_from_numbers_is_as_they_are(fresh: Any) -> None:
    fresh.sql("alter table rating rename column dp_slot_movie to place")
    fresh.sql("alter table rating add column twice int generated always as (place * 2) stored")
    fresh.sql("alter table rating add column other int generated always as (stars * 2) stored")
    fresh.sql(
        "create table public.remark (m int not null, p int not null, usr int not null references usr,"
        " foreign key (m, p) references rating (movie, place));"
        "select dp.link('remark', 'rating', array['m', 'p'], array['movie', 'place'], follow => false);"
        "create materialized view public.kept as select id, usr, place as n from rating"
    )
    assert withheld(fresh, "rating") == ["place", "twice"]
    assert withheld(fresh, "remark") == ["p"]
    assert withheld(fresh, "kept") == ["id", "usr", "n"]
    assert refusal(fresh, "twice = 4").startswith("PD011")
    assert refusal(fresh, "other = 4").startswith("[(")
    assert refusal(fresh, "p = 4", "remark").startswith("PD011")
    assert refusal(fresh, "usr = 4", "remark").startswith("[(")


def test_numbers_of_a_part_are_numbers_of_the_whole(fresh: Any) -> None:
    fresh.sql("alter table rating rename column dp_slot_movie to place")
    fresh.sql(
        "create table public.ratings (id int not null, usr int not null references usr, movie int not null,"
        " stars int not null, place int not null) partition by range (id);"
        "alter table ratings attach partition rating for values from (0) to (10000)"
    )
    assert withheld(fresh, "ratings") == ["place"]
    assert refusal(fresh, "id = place", "ratings").startswith("PD011")
    assert refusal(fresh, "id = stars", "ratings").startswith("[(")


def test_a_copy_of_a_table_keeps_the_name_that_is_reserved(fresh: Any) -> None:
    fresh.sql(
        "create table public.copied as select * from rating; alter table copied add foreign key (usr) references usr"
    )
    fresh.sql("alter table copied alter usr set not null")
    assert refusal(fresh, "id = dp_slot_movie", "copied").startswith("PD011")
    assert refusal(fresh, "id = stars", "copied").startswith("[(")


def test_a_column_that_an_owner_numbers_is_the_owners_to_declare(fresh: Any) -> None:
    fresh.sql("alter table rating add column position int not null default 1")
    assert refusal(fresh, "position = 1").startswith("[(")


def test_keys_of_numbers_identify_no_rows_of_plans(fresh: Any) -> None:
    (keys,) = fresh.sql("select dp.trusted_keys('rating'::regclass)")[0]
    assert keys == [["id"]]


def test_synthesis_numbers_the_rows_of_its_copy_itself(twins: tuple[Any, Any]) -> None:
    """The copy does not depend on the numbers in the original."""
    for database in twins:
        with database.connect(user="alice") as alice:
            alice.execute(
                "call dp.synthesize('syn', array['usr', 'rating']::regclass[], epsilon => 5,"
                " delta => 1e-6, d_max => '{\"rating\": 2}', placeholders => true)"
            )
            most, wrong = alice.execute(
                "select max(dp_slot_movie), count(*) filter (where dp_slot_movie not between 1 and 1000)"
                " from syn.rating"
            ).fetchone() or (None, None)
        assert most is not None
        assert wrong == 0
        reads = database.sql("select question from dp.spend where question like 'synthesis%'")
        assert reads
        assert all("dp_slot" not in text for (text,) in reads)


def test_a_refusal_says_what_to_do(numbered: Any) -> None:
    with numbered.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(EQUAL)
    assert "dp_slot_movie of relation public.rating" in str(caught.value.diag.message_detail)
    assert "Leave it out" in str(caught.value.diag.message_hint)
