"""Conditions of a release's queries and of questions: whole keys, constants, padded texts, others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.releasing import release, values
from tests.server.test_release_answers import plain, told

pytestmark = pytest.mark.server

SET_UP = """
create table place (p_id int primary key, p_name char(8) not null, p_size numeric not null);
insert into place values (1, 'Aachen', 1.0), (2, 'Berlin', 1.00), (3, 'Celle', 2.5);
create table sale (s_id int primary key, s_place int not null references place, s_kind text,
  s_pieces int not null);
insert into sale select i, 1 + i % 3, (array['a', 'b', 'Z', null])[1 + i % 4], i % 10
  from generate_series(1, 300) i;
create table item (i_id int primary key, i_price numeric, i_code char(4));
insert into item values (1, 1.0, 'F'), (2, 2, 'Q'), (3, 3, 'Z');
select dp.protect('sale'), dp.protect('item'), dp.declare_public('place');
select dp.set_domain('sale', 's_kind', array['a', 'b'], includes_null => true, other => 'rest');
select dp.set_domain('sale', 's_pieces', 0, 9);
select dp.grant_budget('postgres', 1e7, 1), dp.set_root_cap('sale', 1e7, 1);
"""
TERMS = {"epsilon": 1, "delta": 1e-9, "mechanism": "identity"}
CASE = "case when s_id > 200 then 'late' else 'early' end"
JOINED = "sale join place on p_id = s_place"


@pytest.fixture(scope="module")
def sales(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def exact(sales: Any) -> Iterator[Any]:
    """A session without noise, whose releases are dropped in the end."""
    with asking.silent(sales, "sale") as session:
        yield session
        for (name,) in session.execute("select name from dp.releases").fetchall():
            session.execute("select dp.drop_release(%s)", (name,))


def test_a_condition_on_a_whole_key_needs_no_domain_of_its_column(exact: Any) -> None:
    found = release(
        exact,
        "r",
        f"select {CASE} as w, dp_count(*) from sale where true group by 1"
        f" union all select null, dp_count(*) from sale where {CASE} = 'late' or false",
        **TERMS,
    )
    assert values(found, "query", "w") == {(1, "early"): 200, (1, "late"): 100, (2, None): 100}


def test_ranges_are_of_levels_that_a_common_condition_leaves(exact: Any) -> None:
    text = "select dp.ranges(s_pieces, 2) as p, dp_count(*) from sale where s_pieces in (1, 5, 9)"
    found = release(exact, "r", f"{text} group by 1", **TERMS)
    assert values(found, "p_low", "p_high") == {(1, 5): 60, (5, 9): 60}


PUBLIC = (
    "p_name like 'B%'",
    "p_name like 'Berlin  '",
    "p_name not like '%n'",
    "p_name is not null",
    "upper(p_name) = 'CELLE'",
    "p_name in ('Berlin', 'Celle')",
    "p_size + 1 <= 2",
    "true",
)


def test_conditions_on_public_keys_are_evaluated_on_their_levels(exact: Any) -> None:
    text = f"select p_name, p_size, dp_count(*) from {JOINED} group by cube (1, 2)"
    release(exact, "r", text, **TERMS)
    for condition in PUBLIC:
        asked = f"select dp_count(*) from {JOINED} where {condition}"
        found, said = told(exact, asked)
        assert said is not None, condition
        assert found == plain(exact, asked), condition
    # equal sizes are one level, which does not tell how each is written
    asked = f"select dp_count(*) from {JOINED} where p_size::text = '1.00'"
    found, said = told(exact, asked)
    assert said is None
    assert found == plain(exact, asked)


OTHERS = {
    "s_kind = 'a'": True,
    "s_kind <> 'a'": True,
    "s_kind not in ('a', 'b')": True,
    "s_kind is null or s_kind = 'b'": True,
    "true": True,
    "s_kind = 'Z'": False,
    "s_kind like 'a%'": False,
    "s_kind > 'a'": False,
}


def test_what_is_one_for_all_other_values_is_answered(exact: Any) -> None:
    release(exact, "r", "select s_kind, dp_count(*) from sale group by cube (1)", **TERMS)
    for condition, answered in OTHERS.items():
        asked = f"select dp_count(*) from sale where {condition}"
        found, said = told(exact, asked)
        assert (said is not None) == answered, condition
        assert found == plain(exact, asked), condition


def test_explain_and_a_notice_tell_what_other_values_count_as(exact: Any) -> None:
    heard: list[str] = []
    exact.add_notice_handler(lambda n: heard.append(n.message_primary))
    release(exact, "r", "select s_kind, dp_count(*) from sale group by 1", **TERMS)
    assert heard == ["values of s_kind outside of its declared domain are counted as rest"]
    text = "select s_kind, dp_count(*) from sale group by 1"
    (groups,) = exact.execute(
        "select value from dp.explain(%s) where item = 'groups'", (text,)
    ).fetchone()
    assert groups.endswith("; other values of s_kind count as rest")
    assert "not counted" not in groups


@pytest.mark.parametrize(
    ("column", "listed", "other", "another"),
    [("i_price", "1.0, 7", "1.00", "9"), ("i_code", "'F', 'Z'", "'F '", "'q'")],
)
def test_a_case_of_equal_values_written_differently_names_no_levels(
    exact: Any, column: str, listed: str, other: str, another: str
) -> None:
    """Its last value is a listed one: a cell would hold the rows of both."""
    case = f"case when {column} in ({listed}) then {column} when {column} is null then null else"
    text = "select {} {} end as k, dp_count(*) from item group by 1"
    release(exact, "r", text.format(case, another), **TERMS)
    assert asking.state(exact, f"select dp.release('s', $${text.format(case, other)}$$)") == "PD020"
