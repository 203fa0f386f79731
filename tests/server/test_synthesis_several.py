"""Copies whose rows belong to several privacy units: users and movies that are linked by ratings.

Noise is drawn for real: counts are compared within bounds that are met but for less than 1e-9.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from tests.server.copying import run

MOVIES = """
create table public.usr (u_id int primary key, u_kind text not null);
create table public.movie (m_id int primary key, m_kind text not null);
create table public.rating (r_user int not null references public.usr, r_movie int not null references public.movie,
  r_liked boolean not null, primary key (r_user, r_movie));
insert into public.usr select i, case when i % 2 = 0 then 'old' else 'young' end from generate_series(1, 2000) i;
insert into public.movie select i, case when i % 3 = 0 then 'war' else 'love' end from generate_series(1, 600) i;
insert into public.rating select u_id, m_id, (u_kind = 'old') = (m_kind = 'war') from public.usr
  cross join lateral (select distinct 1 + (u_id * 7 + k * 13) % 600 as m_id from generate_series(1, 4) k) x
  join public.movie using (m_id) where (u_kind = 'old') = (m_kind = 'war') or u_id % 5 = 0;
select dp.protect('usr', privacy_unit => 'u_id');
select dp.protect('movie', privacy_unit => 'm_id');
select dp.set_domain('usr', 'u_kind', array['old', 'young']);
select dp.set_domain('movie', 'm_kind', array['war', 'love']);
select dp.set_root_cap('usr', 1000, 1e-4);
select dp.set_root_cap('movie', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
create schema syn authorization alice;
"""
CALL = (
    "call dp.synthesize('syn', array['usr', 'movie', 'rating']::regclass[], epsilon => 10,"
    " delta => 1e-6, d_max => '{\"rating\": 4}', placeholders => true)"
)


@pytest.fixture
def movies(database: Any) -> Any:
    run(database, MOVIES)
    return database


def statements(hint: str) -> list[str]:
    """Return the statements of a hint, as they are."""
    return re.findall(r"SELECT dp\.\w+\([^;]*\);", hint)


def refused(session: Any, statement: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement)
    return caught.value


def test_users_and_movies_that_are_both_protected_are_copied_once_ratings_are_bounded(
    movies: Any,
) -> None:
    alice = movies.connect(user="alice")
    error = refused(alice, CALL)
    assert "a row of relation public.rating can belong to several privacy units" in str(error)
    mending = statements(str(error.diag.message_hint))
    assert len(mending) == 1
    movies.sql(mending[0])
    movies.sql(mending[0].replace("100", "12"))
    alice.execute(CALL)
    ((users, rows),) = alice.execute(
        "select count(distinct r_user), count(*) from syn.rating join syn.usr on r_user = u_id"
        " join syn.movie on r_movie = m_id"
    ).fetchall()
    ((truly,),) = movies.sql("select count(*) from rating")
    # a unit changes 24 rows; with a fiftieth of the budget, rho 1.3, 8 standard errors are 1,240
    assert users > 0
    assert abs(rows - truly) < 1500
    ((orphans, most),) = alice.execute(
        "select (select count(*) from syn.rating where r_user is null or r_movie is null),"
        " (select max(n) from (select count(*) as n from syn.rating group by r_movie) x)"
    ).fetchall()
    assert orphans == 0
    assert most <= 12
    # both roots pay for everything, in one entry
    charged = movies.sql(
        "select cardinality(roots) from dp.spend where question like 'synthesis of%'"
    )
    assert charged == [(2,)]
    alice.execute("select * from dp.synthesis_report('syn')")


def test_a_bound_that_is_gone_is_no_bound(movies: Any) -> None:
    alice = movies.connect(user="alice")
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 100)")
    for gone, back in (
        (
            "drop constraint rating_dp_slot_r_movie_check",
            "add check (dp_slot_r_movie between 1 and 100)",
        ),
        (
            "drop constraint rating_r_movie_dp_slot_r_movie_key",
            "add unique (r_movie, dp_slot_r_movie)",
        ),
        ("alter dp_slot_r_movie drop not null", "alter dp_slot_r_movie set not null"),
    ):
        movies.sql(f"alter table rating {gone}")
        assert "can belong to several privacy units" in str(refused(alice, CALL))
        movies.sql(f"alter table rating {back}")
    movies.sql("alter table rating drop constraint rating_dp_slot_r_movie_check")
    movies.sql("alter table rating add check (dp_slot_r_movie between 1 and 100) not valid")
    assert "can belong to several privacy units" in str(refused(alice, CALL))


def test_operators_of_others_bound_nothing(movies: Any) -> None:
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 100)")
    movies.sql("alter table rating drop constraint rating_dp_slot_r_movie_check")
    movies.sql(
        "create function public.always(int, int) returns boolean immutable language sql as 'select true'"
    )
    for name in (">=", "<="):
        movies.sql(
            f"create operator public.{name} (leftarg = int, rightarg = int, function = public.always)"
        )
    movies.sql(
        "alter table rating add check (dp_slot_r_movie operator(public.>=) 1"
        " and dp_slot_r_movie operator(public.<=) 1)"
    )
    alice = movies.connect(user="alice")
    assert "can belong to several privacy units" in str(refused(alice, CALL))


def test_rows_are_numbered_as_they_come_and_go(movies: Any) -> None:
    movies.sql("delete from rating")
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 2)")
    movies.sql("insert into rating values (1, 1, true), (2, 1, true), (3, 2, true)")
    error = refused(movies.connect(), "insert into rating values (4, 1, true)")
    assert "has 2 rows with the same r_movie already" in str(error)
    assert error.sqlstate == "23514"
    movies.sql("delete from rating where r_user = 1")
    movies.sql("insert into rating values (4, 1, true)")
    movies.sql("update rating set r_movie = 3 where r_user = 4")
    movies.sql("update rating set r_liked = false")
    assert movies.sql("select r_user, dp_slot_r_movie from rating order by 1") == [
        (2, 2),
        (3, 1),
        (4, 1),
    ]
    error = refused(movies.connect(), "update rating set dp_slot_r_movie = 3")
    assert error.sqlstate == "23514"


def test_rows_with_null_are_not_bounded(movies: Any) -> None:
    movies.sql("create table public.loose (a int, b int)")
    movies.sql("insert into loose select null, 1 from generate_series(1, 9)")
    movies.sql("insert into loose values (1, 1), (1, 1)")
    movies.sql("select dp.set_degree_bound('loose', array['a', 'b'], 2)")
    movies.sql("insert into loose select null, 1 from generate_series(1, 9)")
    movies.sql("insert into loose values (2, 1), (2, 1), (2, 2)")
    assert refused(movies.connect(), "insert into loose values (1, 1)").sqlstate == "23514"


def test_what_writes_needs_to_know_of_no_bound(movies: Any) -> None:
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 50)")
    movies.sql("grant insert on rating to bob")
    movies.sql("delete from rating where r_user = 10")
    bob = movies.connect(user="bob")
    bob.execute("insert into rating (r_user, r_movie, r_liked) values (10, 1, true)")
    ((slot,),) = movies.sql("select dp_slot_r_movie from rating where r_user = 10")
    assert 1 <= slot <= 50


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_two_writers_at_once_cannot_pass_a_bound(movies: Any, level: str) -> None:
    movies.sql("delete from rating")
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 2)")
    movies.sql("insert into rating values (1, 1, true)")
    first, second = movies.connect(), movies.connect()
    for session in (first, second):
        session.execute(f"begin isolation level {level}")
        session.execute("select count(*) from usr")
    first.execute("insert into rating values (2, 1, true)")
    second.execute("set local lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        second.execute("insert into rating values (3, 1, true)")
    second.execute("rollback")
    second.execute(f"begin isolation level {level}")
    second.execute("select count(*) from usr")
    first.execute("commit")
    assert refused(second, "insert into rating values (3, 1, true)").sqlstate in (
        "23514",
        "23505",
        "40001",
    )
    second.execute("rollback")
    assert movies.sql("select count(*) from rating") == [(2,)]


def test_a_bound_is_set_anew_and_taken_back(movies: Any) -> None:
    owner = movies.connect()
    ((most,),) = movies.sql("select max(n) from (select count(*) n from rating group by r_movie) x")
    error = refused(owner, f"select dp.set_degree_bound('rating', array['r_movie'], {most - 1})")
    assert f"relation public.rating has more than {most - 1} rows with the same r_movie" in str(
        error
    )
    before = movies.sql("select * from rating order by 1, 2 limit 3")
    for bound in (most + 5, most):
        owner.execute(f"select dp.set_degree_bound('rating', array['r_movie'], {bound})")
    ((checks,),) = movies.sql(
        "select string_agg(pg_get_constraintdef(oid), ';') from pg_constraint"
        " where conrelid = 'rating'::regclass and contype = 'c'"
    )
    assert f"<= {most})" in checks
    assert f"<= {most + 5})" not in checks
    owner.execute("select dp.drop_degree_bound('rating', array['r_movie'])")
    assert movies.sql("select * from rating order by 1, 2 limit 3") == before
    assert movies.sql("select count(*) from pg_proc where proname like 'rating_dp_slot%'") == [(0,)]
    error = refused(owner, "select dp.drop_degree_bound('rating', array['r_movie'])")
    assert "has not bounded" in str(error)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("dp.set_degree_bound('rating', array['nope'], 3)", "no column nope"),
        ("dp.set_degree_bound('rating', array['r_movie'], 0)", "a bound from 1"),
        (
            "dp.set_degree_bound('rating', array[]::name[], 3)",
            "must name a relation and columns of it",
        ),
        ("dp.set_degree_bound('rating', null, 3)", "must name a relation and columns of it"),
        (
            "dp.set_degree_bound('rating', array[null]::name[], 3)",
            "must name a relation and columns of it",
        ),
        (
            "dp.set_degree_bound('taken', array['a_b'], 3)",
            "dp_slot_a_b of relation public.taken is",
        ),
        ("dp.drop_degree_bound('taken', array['a_b'])", "dp_slot_a_b of relation public.taken is"),
        ("dp.set_degree_bound('parts', array['a'], 3)", "no table of its own"),
        ("dp.drop_degree_bound('rating', array['r_liked'])", "has not bounded"),
    ],
)
def test_what_cannot_be_bounded_is_refused(movies: Any, statement: str, told: str) -> None:
    movies.sql("create table public.parts (a int not null) partition by list (a)")
    movies.sql("create table public.taken (a int, b int, a_b int)")
    movies.sql("select dp.set_degree_bound('taken', array['a', 'b'], 3)")
    assert told in str(refused(movies.connect(), f"select {statement}"))


def test_what_numbers_rows_has_the_rights_of_the_tables_owner_alone(movies: Any) -> None:
    """It reads the table, and so runs what its owner put into an index."""
    movies.sql("alter table rating owner to owner1; grant dp_owner to owner1")
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 100)")
    found = movies.sql(
        "select proowner::regrole::text, prosecdef from pg_proc where proname like 'rating_dp_slot%'"
    )
    assert found == [("owner1", True)]
    # a table that changes hands has code of somebody else
    movies.sql("alter table rating owner to bob")
    error = refused(movies.connect(), "insert into rating values (1, 1, true)")
    assert (error.sqlstate, "belongs to another role" in str(error)) == ("42501", True)
    movies.sql("select dp.set_degree_bound('rating', array['r_movie'], 100)")
    movies.sql("insert into rating select max(u_id), 1, true from usr")


#: What was renamed, how the table is called then, and the name that another role takes.
RENAMED = {
    "table": ("alter table shop.rating rename to kept", "shop.kept", "shop.rating"),
    "schema": (
        "alter schema shop rename to kept; create schema shop",
        "kept.rating",
        "shop.rating",
    ),
    "turns": (
        "alter table shop.rating_dp_slot_r_movie rename to kept",
        "shop.rating",
        "shop.rating_dp_slot_r_movie",
    ),
}
IMPOSTOR = """
create schema mine authorization mallory;
set role mallory;
create table mine.loot (who text);
grant all on mine.loot to public;
grant usage on schema mine to public;
create function mine.f() returns boolean language plpgsql as
  $$ begin insert into mine.loot values (current_user); return true; end $$;
create view {view} as select g as r_movie, g as dp_slot_r_movie from generate_series(1, 9) as g where mine.f();
grant select on {view} to public;
"""


@pytest.mark.parametrize("renamed", RENAMED)
def test_what_numbers_rows_runs_no_code_of_who_takes_a_name(movies: Any, renamed: str) -> None:
    change, now, taken = RENAMED[renamed]
    movies.sql(
        "create schema shop authorization owner1; grant dp_owner to owner1;"
        " alter table rating owner to owner1; alter table rating set schema shop"
    )
    movies.sql("set role owner1; select dp.set_degree_bound('shop.rating', array['r_movie'], 100)")
    movies.sql(f"{change}; grant all on schema shop to mallory; {IMPOSTOR.format(view=taken)}")
    with movies.connect("owner1") as owner:
        error = refused(owner, f"insert into {now} values (1, 1, true)")
        assert error.sqlstate == "42501"
        assert "another name or schema" in str(error)
        if renamed != "turns":  # the hint, word for word
            owner.execute(f"select dp.set_degree_bound('{now}', array['r_movie'], 100)")
            owner.execute(f"insert into {now} values (1, 1, true)")
    assert movies.sql("select count(*) from mine.loot") == [(0,)]


def test_only_owners_bound(movies: Any) -> None:
    movies.sql("grant dp_owner to bob")
    try:
        bob = movies.connect(user="bob")
        call = "select dp.set_degree_bound('public.rating', array['r_movie'], 100)"
        told = str(refused(bob, call))
    finally:
        movies.sql("revoke dp_owner from bob")
    assert "permission denied to bound the rows of" in told


def test_relations_that_are_protected_row_by_row_get_units_as_the_hint_says(database: Any) -> None:
    database.sql("create table public.parent (p_id int primary key, p_flag boolean not null)")
    database.sql(
        "create table public.child (c_id int primary key,"
        " c_parent int not null references public.parent, c_flag boolean not null)"
    )
    database.sql("insert into public.parent select i, true from generate_series(1, 500) i")
    database.sql("insert into public.child select i, i, true from generate_series(1, 500) i")
    database.sql("select dp.protect('parent'), dp.protect('child')")
    database.sql("select dp.grant_budget('alice', epsilon => 100, delta => 1e-5)")
    database.sql("create schema syn authorization alice")
    alice = database.connect(user="alice")
    call = (
        "call dp.synthesize('syn', array['parent', 'child']::regclass[], epsilon => 10,"
        " delta => 1e-6, d_max => '{\"child\": 3}')"
    )
    error = refused(alice, call)
    assert "protected row by row" in str(error)
    mending = statements(str(error.diag.message_hint))
    assert mending == [
        "SELECT dp.unprotect('public.parent');",
        "SELECT dp.unprotect('public.child');",
        "SELECT dp.protect('public.parent', privacy_unit => 'p_id');",
    ]
    for statement in mending:
        database.sql(statement)
    alice.execute(call)
    assert alice.execute(
        "select count(*) > 0 from syn.child join syn.parent on c_parent = p_id"
    ).fetchone() == (True,)


TRANSFERS = """
create table public.account (a_id int primary key, a_kind text not null);
create table public.transfer (t_id int primary key, t_from int not null references public.account,
  t_to int not null references public.account, t_large boolean not null);
insert into public.account select i, case when i % 10 = 0 then 'firm' else 'person' end from generate_series(1, 3000) i;
insert into public.transfer select i, i, 10 + 10 * (i % 290), i % 2 = 0 from generate_series(1, 2900) i;
select dp.protect('account', privacy_unit => 'a_id');
select dp.set_domain('account', 'a_kind', array['firm', 'person']);
select dp.set_root_cap('account', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
create schema syn authorization alice;
"""


def test_transfers_between_two_units_of_one_root_are_copied_once_one_end_is_bounded(
    database: Any,
) -> None:
    run(database, TRANSFERS)
    alice = database.connect(user="alice")
    call = (
        "call dp.synthesize('syn', array['account', 'transfer']::regclass[], epsilon => 20,"
        " delta => 1e-6, d_max => '{\"transfer\": 2}')"
    )
    error = refused(alice, call)
    assert "a row of relation public.transfer can belong to several privacy units" in str(error)
    assert "follow => false" in str(error.diag.message_hint)
    (mending,) = statements(str(error.diag.message_hint))
    database.sql(mending)
    database.sql(mending.replace("100", "11"))
    alice.execute(call)
    # one account: 2 transfers that it sends, and 11 that it gets, each with one in its place
    assert (
        alice.execute(
            "select note from dp.synthesis_report('syn') where what = 'share of table'"
            " and relation = 'public.transfer'"
        )
        .fetchone()[0]
        .endswith("at most 24 rows of a unit count")
    )
    ((rows,),) = alice.execute(
        "select count(*) from syn.transfer join syn.account as a on t_to = a.a_id"
        " join syn.account as b on t_from = b.a_id"
    ).fetchall()
    # 2,900 are counted with noise of 24 rows at rho 1: far more than 8 standard errors
    assert rows > 1000
