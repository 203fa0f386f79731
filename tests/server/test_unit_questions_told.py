"""What is told of questions over privacy units before they are paid, and what is refused then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.asking import refused

pytestmark = pytest.mark.server

SET_UP = """
create table person (id int primary key, born date not null, kind boolean not null);
create table visit (v int primary key, guest int not null references person, at timestamp not null);
insert into person select g, date '1970-01-01' + g, g % 2 = 0 from generate_series(1, 100) g;
insert into visit select g, g, timestamp '2020-01-01' + g * interval '1 day' from generate_series(1, 100) g;
select dp.protect('person', privacy_unit => 'id'), dp.grant_budget('alice', 1000, 1e-3);
grant usage on schema public to alice;
"""


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def alice(people: Any) -> Iterator[Any]:
    with people.connect("alice") as session:
        yield session


def explained(session: Any, statement: str) -> dict[str, str]:
    return dict(session.execute("select * from dp.explain(%s)", (statement,)).fetchall())


def test_an_error_that_is_a_multiple_of_what_is_drawn_is_no_number(alice: Any) -> None:
    estimate = (
        "select expected_error, error_95, note from dp.estimate(%s) where aggregate <> 'total'"
    )
    statement = "select dp_count(*) from visit"
    ((mean, within, note),) = alice.execute(estimate, (statement,)).fetchall()
    assert (mean, within) == (None, None)
    assert note.startswith("1.33 times the bound at which units are cut off, which is drawn,")
    assert "SET dp.max_rows_contributed sets the bound" in note
    alice.execute("set dp.max_rows_contributed = 5")
    ((mean, within, note),) = alice.execute(estimate, (statement,)).fetchall()
    assert 4 < mean < 6
    assert within > mean
    assert note is None


@pytest.mark.parametrize(
    ("settings", "statement", "bias", "covers", "words"),
    [
        ("", "dp_count(*) as n from person", None, "all error", "nothing is drawn"),
        ("", "dp_count(distinct id) as n from person", None, "all error", "nothing is drawn"),
        ("", "dp_count(distinct guest) as n from visit", None, "all error", "nothing is drawn"),
        ("", "dp_count(*) as n from visit", "that is drawn", "noise only", "the bound is drawn"),
        (
            "set dp.max_rows_contributed = 2",
            "dp_count(*) as n from visit",
            "that is set are cut off",
            "noise only",
            "nothing is drawn",
        ),
        (
            "set dp.max_rows_contributed = 2",
            "dp_count(*) as n from person",
            None,
            "all error",
            "nothing is drawn",
        ),
        (
            "set dp.max_groups_contributed = 1",
            "kind, dp_count(*) as n from visit join person on guest = id group by kind",
            "of each unit 1 groups count",
            "noise only",
            "the bound is drawn",
        ),
        (
            "",
            "dp_sum(v, 0, 5) as n from visit",
            "units above the bound that is drawn are cut off",
            "noise only",
            "the bound is drawn",
        ),
        (
            "",
            "dp_sum(id, 0, 5) as n from person",
            "values outside their declared or written bounds",
            "noise only",
            "nothing is drawn",
        ),
    ],
)
def test_it_is_told_whether_units_are_cut_off(
    alice: Any, settings: str, statement: str, bias: str | None, covers: str, words: str
) -> None:
    """By keys a unit may have one result; a bound may be set; else it is drawn."""
    alice.execute(settings or "select 1")
    statement = f"select {statement}"
    found = explained(alice, statement)
    assert words in found["mechanism"]
    if bias is None:
        assert "nothing is cut off" in found["method"]
    ((told,),) = alice.execute(
        "select bias from dp.estimate(%s) where aggregate <> 'total'", (statement,)
    ).fetchall()
    assert told == bias or (bias and bias in told)
    answer = alice.execute("select * from dp.query(%s, intervals => 0.9)", (statement,)).fetchone()
    assert answer[0]["n_covers"] == covers


def test_what_selects_groups_is_called_so(alice: Any) -> None:
    found = explained(alice, "select at, dp_count(*) from visit group by at")
    assert "expected error of count 1" in found
    assert "expected error of the selection of groups, 2" in found


def test_parts_of_the_cost_are_told_to_eight_digits(alice: Any) -> None:
    statement = "select dp_count(*), dp_count(v) filter (where v > 3), dp_count(v) filter (where v > 4) from visit"
    rows = alice.execute("select aggregate, epsilon::text from dp.estimate(%s)", (statement,))
    assert rows.fetchall() == [*[("dp_count", "0.33333333")] * 3, ("total", "1")]


@pytest.mark.parametrize(
    "statement",
    [
        "select id, dp_count(*) from person group by id",
        "select guest, dp_sum(v) from visit group by guest",
        "select kind, p.id, dp_count(*) from person p join visit on p.id = guest group by 1, 2",
    ],
)
def test_groups_that_are_units_are_refused_and_cost_nothing(
    people: Any, alice: Any, statement: str
) -> None:
    before = people.sql("select count(*) from dp.spend")
    error = refused(alice, statement)
    assert error.sqlstate == "PD011"
    assert "names the privacy unit, and its values are not public" in str(error)
    assert people.sql("select count(*) from dp.spend") == before


def test_groups_that_only_may_be_units_are_answered(people: Any, alice: Any) -> None:
    for statement in (
        "select v, dp_count(*) from visit group by v",
        "select id % 7, dp_count(*) from person group by 1",
    ):
        alice.execute(statement)
    people.sql("select dp.set_domain('person', 'id', 1, 3)")
    rows = alice.execute("select id, dp_count(*) from person group by id").fetchall()
    assert [row[0] for row in rows] == [1, 2, 3]
    people.sql("select dp.drop_domain('person', 'id')")


def test_explain_names_the_unit_and_no_sketch(alice: Any) -> None:
    for statement, unit in (
        ("select dp_count(*) from person", "public.person.id"),
        ("select dp_count(*) from visit", "public.visit.guest"),
        ("select dp_count(*) from visit a join visit b on a.at = b.at", "public.visit.guest"),
    ):
        told = explained(alice, statement)
        assert told["privacy unit"] == unit
        assert "sketch" not in told


def test_an_argument_that_is_not_allowed_is_called_one(alice: Any) -> None:
    error = refused(alice, "select dp_avg(extract(year from age(born)), 0, 100) from person")
    assert "is not allowed in a condition, group key or argument" in str(error)
    assert "2026 - extract(year FROM column)" in str(error.diag.message_hint)


def test_all_private_aggregates_are_named_where_another_is_used(alice: Any) -> None:
    error = refused(alice, "select * from dp.estimate('select count(*) from person')")
    for name in ("dp_count", "dp_median", "dp_histogram", "dp_percentile"):
        assert name in str(error.diag.message_hint)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_rows_contributed": 3}, "dp.max_rows_contributed has no effect: "),
        ({"max_groups_contributed": 3}, "dp.max_groups_contributed has no effect: "),
        ({"max_contribution": 3}, "dp.max_contribution has no effect: "),
        (
            {"max_contribution": 3, "max_rows_contributed": 3},
            "dp.max_rows_contributed, dp.max_contribution have no effect: ",
        ),
        ({"max_contribution": 1000000000, "max_rows_contributed": 0}, None),
    ],
)
def test_settings_for_units_that_rows_ignore_are_told_of(
    people: Any, alice: Any, settings: dict[str, int], said: str | None
) -> None:
    if not people.sql("select to_regclass('single')")[0][0]:
        people.sql("create table single (k int not null); select dp.protect('single')")
    found: list[str] = []
    alice.add_notice_handler(lambda told: found.append(f"{told.severity} {told.message_primary}"))
    for name, value in settings.items():
        alice.execute(f"set dp.{name} = {value}")
    alice.execute("set dp.fresh = on; select dp_count(*) from single")
    told = [message for message in found if "effect" in message]
    assert len(told) == (said is not None)
    assert all(message.startswith(f"NOTICE {said}") for message in told)
    # where units are protected the same settings are of use
    del found[:]
    alice.execute("select dp_count(*) from visit")
    assert not [message for message in found if "effect" in message]
