"""What a release must not tell by whether it succeeds (PRIVACY.md section 2)."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.server

UNITS = """
create table public.person (id int primary key);
create table public.visit (id int primary key, person int not null references public.person, kind text);
create table public.many (id int primary key);
insert into public.person select generate_series(1, 20);
insert into public.visit select i, 1 + i % 10, (array['a', 'b'])[1 + i % 2] from generate_series(1, 40) i;
insert into public.many select generate_series(1, 65536);
alter table public.person owner to owner1;
alter table public.visit owner to owner1;
alter table public.many owner to owner1;
grant dp_owner to owner1;
analyze;
"""
DECLARE = """
select dp.protect('public.person', 'id');
select dp.link('public.visit', 'public.person', array['person']::name[]);
select dp.declare_public('public.many');
select dp.set_domain('public.visit', 'kind', array['a', 'b']);
select dp.set_domain('public.visit', 'id', 1, 3000);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""


def test_a_person_with_more_results_than_bigint_holds_is_not_told_by_an_error(
    database: Any,
) -> None:
    """Results of one unit multiply along joins of public relations; then it counts as any other."""
    database.sql(UNITS)
    with database.connect("owner1") as owner:
        for statement in DECLARE.strip().split("\n"):
            owner.execute(statement)
    with database.connect("alice") as alice:
        alice.execute("set dp.max_rows_contributed = 1")
        for name, who in (("here", 2), ("gone", 12)):  # the second has no visit
            alice.execute(
                f"select dp.release('{name}', $$ select kind, dp_count(*) from visit, many a, many b,"
                f" many c, many d where person = {who} group by 1 $$, epsilon => 50, delta => 0)"
            )
        found = [
            round(float(alice.execute(f"select sum(value) from dpv.{name}").fetchone()[0]))
            for name in ("here", "gone")
        ]
        # one result is in more than 2^63 rows, of which one counts; noise of scale 1/50: off with
        # probability below 1e-20
        assert found == [1, 0]


def test_keys_of_different_collations_are_told_apart_and_bounded(database: Any) -> None:
    """What of a unit counts is ordered by texts, in one collation whatever the columns have."""
    database.sql(UNITS)
    database.sql(
        "alter table public.visit add b text collate \"POSIX\" default 'x',"
        ' alter kind type text collate "C"'
    )
    with database.connect("owner1") as owner:
        for statement in DECLARE.strip().split("\n"):
            owner.execute(statement)
        owner.execute("select dp.set_domain('public.visit', 'b', array['x', 'y'])")
    with database.connect("alice") as alice:
        alice.execute("set dp.max_rows_contributed = 3")
        alice.execute(
            "select dp.release('r', $$ select kind, b, dp_count(*) from visit group by 1, 2 $$,"
            " epsilon => 100, delta => 0)"
        )
        # ten persons of four visits each; noise of scale 3/100: off with probability below 1e-7
        # for one number to be off by one half, so that sums are compared within 2: below 1e-25
        (total,) = alice.execute("select sum(value) from dpv.r").fetchone()
        assert abs(total - 30) <= 2


def spent(connection: Any) -> Any:
    """What the role has spent."""
    row = connection.execute("select epsilon_spent from dp.budgets where role = 'alice'").fetchone()
    return row[0]


def declared(database: Any) -> Any:
    """Make the persons, and return an analyst's session."""
    database.sql(UNITS)
    database.sql("create schema alice authorization alice")
    with database.connect("owner1") as owner:
        for statement in DECLARE.strip().split("\n"):
            owner.execute(statement)
    return database.connect("alice")


FREE = {
    "label": (
        "select kind, '1.5'::numeric::int as label, dp_count(*) from visit group by 1",
        "epsilon => 1, delta => 0",
        'the constant "1.5" is not of type integer',
    ),
    "scale": (  # of exact noise, too
        "select dp.prefix(id) as id, dp_count(*) from visit group by 1",
        "epsilon => 0.000001, delta => 0, mechanism => 'workload'",
        "no mechanism can answer this workload",
    ),
    "delta": (
        "select kind, dp_count(*) from visit group by 1",
        "epsilon => 1, delta => 1e-38, mechanism => 'residual_planner'",
        "no mechanism can answer this workload",
    ),
}


@pytest.mark.parametrize("kind", FREE)
def test_what_cannot_be_released_as_asked_is_refused_before_the_charge(
    database: Any, kind: str
) -> None:
    statement, terms, message = FREE[kind]
    with declared(database) as alice:
        alice.execute("set dp.max_rows_contributed = 2147483647")
        with pytest.raises(Exception, match=message):
            alice.execute(f"select dp.release('r', $$ {statement} $$, {terms})")
        assert spent(alice) == 0


def test_a_table_that_a_view_reads_is_not_measured_again_in_vain(database: Any) -> None:
    """Nor does a refresh forget how many rows of a unit count."""
    with declared(database) as alice:
        alice.execute("set dp.max_rows_contributed = 1")
        alice.execute(
            "select dp.release('r', $$ select kind, dp_count(*) from visit group by 1 $$,"
            " epsilon => 1, delta => 0)"
        )
        alice.execute("reset dp.max_rows_contributed")
        for makes, drops in (
            ("create view alice.v as select * from dpv.r", "drop view alice.v"),
            ("create table alice.t (r dpv.r)", "drop table alice.t"),
        ):
            alice.execute(makes)
            before = spent(alice)
            with pytest.raises(Exception, match="cannot be replaced"):
                alice.execute("select dp.refresh_release('r')")
            assert spent(alice) == before
            alice.execute(drops)
            alice.execute("select dp.refresh_release('r')")
            assert spent(alice) > before


def test_units_keep_different_rows(database: Any) -> None:
    """Else a release would show the keys that happen to come first, whatever the rows are."""
    with declared(database) as alice:
        database.sql(
            "insert into public.person select generate_series(21, 2000);"
            " insert into public.visit select 1000 + i, 21 + i / 2, (array['a', 'b'])[1 + i % 2]"
            " from generate_series(0, 3959) i"
        )
        alice.execute("set dp.max_rows_contributed = 1")
        alice.execute(
            "select dp.release('r', $$ select kind, dp_count(*) from visit group by 1 $$,"
            " epsilon => 100, delta => 0)"
        )
        found = dict(alice.execute("select kind, value from dpv.r").fetchall())
    # 1980 persons with one visit of each kind keep either: a kind has 400 fewer than half of them
    # with probability below exp(-2 * 400 ** 2 / 1980) < 1e-70
    assert min(found.values()) > 1980 / 2 - 400
    assert abs(sum(found.values()) - 1990) < 5


def test_an_answer_from_a_release_says_that_units_were_cut_off(database: Any) -> None:
    told: list[str] = []
    with declared(database) as alice:
        alice.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        alice.execute("set dp.max_rows_contributed = 3")
        alice.execute(
            "select dp.release('r', $$ select kind, dp_count(*) from visit group by 1 $$,"
            " epsilon => 100, delta => 0)"
        )
        question = "select kind, dp_count(*) from visit group by 1"
        alice.execute(question)
        assert any("of each privacy unit at most 3" in message for message in told)
        # whoever asks for another bound is not answered with this one
        told.clear()
        before = spent(alice)
        alice.execute("reset dp.max_rows_contributed")
        alice.execute(question)
        assert spent(alice) > before
        assert not any("release" in message for message in told)


def test_levels_too_long_to_be_looked_up_are_refused_before_the_charge(database: Any) -> None:
    with declared(database) as alice, database.connect("owner1") as owner:
        owner.execute(
            "select dp.set_domain('public.visit', 'kind',"
            " (select array_agg(i || repeat('x', 700000)) from generate_series(1, 100) i))"
        )
        alice.execute("set dp.max_rows_contributed = 1")
        with pytest.raises(Exception, match="the levels of kind are too long"):
            alice.execute(
                "select dp.release('r', $$ select kind, dp_count(*) from visit group by 1 $$,"
                " epsilon => 1, delta => 0)"
            )
        assert spent(alice) == 0
