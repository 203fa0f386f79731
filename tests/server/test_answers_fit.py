"""What was charged can be read: the number of columns and cells, and the range of result types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.engine.compute import largest
from dpsql.engine.finish import MAX_COLUMNS
from tests.server import asking
from tests.server.asking import refused
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

SET_UP = """
create table v (id int primary key, k int not null, s smallint, i int, b bigint, r real,
  d double precision);
insert into v select g, g % 50, g, g, g, g, g from generate_series(1, 1000) g;
select dp.protect('v', delta => 1), dp.grant_budget('postgres', 1e9, 1);
"""


@pytest.fixture(scope="module")
def numbers(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def session(numbers: Any) -> Iterator[Any]:
    with numbers.connect() as session:
        yield session


def charges(session: Any) -> int:
    """Return how many questions were charged."""
    ((number,),) = session.execute("select count(*) from dp.ledger").fetchall()
    return int(number)


def filtered(number: int) -> str:
    return ", ".join(f"dp_count(*) filter (where id = {n})" for n in range(number))


def patched(session: Any, place: str, name: str, value: int) -> None:
    """Change a limit in the session's service."""
    session.execute(
        in_service(f"import dpsql.engine.{place} as it\nassert it.{name}\nit.{name} = {value}")
    )


def test_more_aggregates_than_a_third_of_all_columns_can_be_read(session: Any) -> None:
    """Each needed three columns of the server's 1,664, whether or not it had an interval."""
    (row,) = session.execute(f"select {filtered(600)} from v").fetchall()
    assert len(row) == 600


AVERAGES = ", ".join(f"dp_avg(id, 0, 9) filter (where id = {n})" for n in range(21))


@pytest.mark.parametrize(
    "statement",
    [
        f"select {filtered(41)} from v",
        f"select array[{AVERAGES}] from v",
        f"select * from dp.query($q$ select {filtered(11)} from v $q$, intervals => 0.9)",
        f"select k, {filtered(40)} from v group by k",
    ],
    ids=["counts", "averages", "intervals", "keys"],
)
def test_more_are_refused_before_the_charge(session: Any, statement: str) -> None:
    assert 1.03 * MAX_COLUMNS < 1664
    before = charges(session)
    patched(session, "finish", "MAX_COLUMNS", 40)
    error = refused(session, statement)
    assert error.sqlstate == "PD010", error
    assert "too many aggregates" in str(error)
    assert error.diag.message_hint
    assert charges(session) == before
    assert len(session.execute(f"select {filtered(40)} from v").fetchone()) == 40


def test_many_cells_of_groups_that_are_not_public_are_no_error(session: Any) -> None:
    """As many groups are shown as have the most cells together; a group has 20 rows, no noise."""
    patched(session, "groups", "MAX_CELLS", 305)
    session.execute("set dp.epsilon = 10; set dp.delta = 0.001")
    told: list[str] = []
    session.add_notice_handler(lambda d: told.append(str(d.message_detail)))
    statement = (
        "select k, n, h[1] from (select k, dp_count(*) as n, dp_histogram(id, 0, 50, {cells}) as h"
        " from v group by k) as answer order by k"
    )
    assert len(session.execute(statement.format(cells=30)).fetchall()) == 10
    assert any("At most 10 are" in detail for detail in told), told
    assert len(session.execute(statement.format(cells=5)).fetchall()) == 50
    before = charges(session)
    error = refused(session, statement.format(cells=306))
    assert error.sqlstate == "PD010"
    assert charges(session) == before


def test_the_largest_groups_are_kept() -> None:
    shown = [(("a",), 3), (("b",), 9), (("c",), 3), ((None,), 7)]
    assert largest(shown, 3) == [(("a",), 3), (("b",), 9), ((None,), 7)]
    assert largest(shown, None) == largest(shown, 4) == shown


@pytest.mark.parametrize(
    "aggregate",
    [
        "dp_sum(r, -1e38, 3e38)",
        "dp_sum(r, 3e49, 4e49)",
        "dp_min(r, -1e49, 1e49)",
        "dp_max(r, 1e49, 2e49)",
        "dp_sum(r, 1e-49, 2e-49)",
        "dp_avg(r, -1e49, 1e49)",
        "dp_variance(r, 0, 9e49)",
        "dp_stddev(d, 1e-49, 2e-49)",
        "dp_avg(d, -2e-99, 2e-99)",
        "dp_sum(d, -9e49, -1e49)",
        "dp_var_samp(d, -2e-99, 2e-99)",
        "dp_sum(s, 1e40, 2e40)",
        "dp_sum(i, -2e40, -1e40)",
        "dp_sum(b, -2e40, -1e40)",
        "dp_median(s, 100000, 200000)",
        "dp_median(s, -200000, -100000)",
        "dp_max(i, 1e40, 2e40)",
        "dp_min(b, -2e40, -1e40)",
    ],
)
def test_answers_fit_their_type(session: Any, aggregate: str) -> None:
    """The cast of a number that is beyond its type, or nearly 0, was an error after the charge."""
    session.execute("set dp.epsilon = 0.01")
    ends = ""
    if aggregate[3:6] in ("sum", "avg"):
        ends = f", dp_interval_low({aggregate}), dp_interval_high({aggregate})"
    ((answer, *interval),) = session.execute(f"select {aggregate}{ends} from v").fetchall()
    assert answer is not None
    assert None not in interval
    if interval:
        assert interval[0] <= answer <= interval[1]


def test_what_lies_beyond_a_type_is_its_end(session: Any) -> None:
    assert session.execute(
        "select dp_median(s, 100000, 200000), dp_median(s, -200000, -100000), dp_max(s, 99999, 99999),"
        " dp_min(r, 1e45, 1e46)::numeric > 3.4e38, dp_sum(r, 1e-60, 2e-60) from v"
    ).fetchall() == [(32767, -32768, 32767, True, 0)]
