"""What is said of questions over exposed views is in their words, and points into their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

#: A statement with "^" at the place that its error shows; without, where no place can be told.
PLACES = [
    'select count(*) from dpv.customer as c ^full join dpv."Orders" as o on c.c_id = o.o_customer',
    'select count(*) from dpv.customer ^left join dpv."Orders" on c_id = o_customer',
    'select o_status, count(*) from dpv."Orders" where ^md5(o_status) = \'x\' group by 1',
    "select count(*) from dpv.customer where c_id ^in (select o_customer from dpv.\"Orders\")",
    "select count(*), sum(o_amount) from dpv.\"Orders\" as o where o_amount > (^select o_amount)",
    "select n from (select count(*) as n from dpv.customer where ^md5(c_country) = 'x') as t",
    "with t as (select c_id as i, c_country from dpv.customer) select count(*) from t where ^md5(c_country) = 'x'",
    "select ^max(c_country) from dpv.customer",
    "select count(*), ^array_agg(c_id) from dpv.customer",
    "select c_country, count(*) from dpv.customer where c_country = 'x' or c_country = 'y' group by 1 order by (^select c_country)",
    # nothing of an aggregate says where the question stands
    "select c_country from dpv.customer where md5(c_country) = 'x' group by c_country",
]  # fmt: skip


@pytest.fixture(scope="module")
def alice(views: Any) -> Iterator[Any]:
    with views.connect("alice") as session:
        yield session


@pytest.mark.parametrize("marked", PLACES)
def test_the_cursor_is_in_the_statement_or_nowhere(alice: Any, marked: str) -> None:
    statement = marked.replace("^", "")
    error = refused(alice, statement)
    assert str(error.sqlstate).startswith("PD01")
    place = error.diag.statement_position
    assert (int(place) - 1 if place else -1) == marked.find("^"), (place, error)
    assert error.diag.internal_query is None
    assert "analysed statement" not in str(error.diag.message_detail)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ('select count(*) from dpv.customer full join dpv."Orders" on c_id = o_customer',
         "count matches only: count(b.a_id) by keys of a whose values are declared."),
        ("select count(*) from dpv.customer where c_id in (select o_customer from dpv.\"Orders\")",
         "SELECT count(DISTINCT a.id) FROM a JOIN b ON b.x = a.x; where x is a key of b, count(*) counts the same."),
        ("select sum(distinct c_id) from dpv.customer", "Use count(DISTINCT column), or leave DISTINCT out."),
        ("select count(*) from dpv.customer where c_id > (select max(c_id) from public.customer)", "(SELECT dp_avg(a, 0, 100) FROM t)"),
    ],
)  # fmt: skip
def test_hints_write_what_can_be_written_over_views(alice: Any, statement: str, hint: str) -> None:
    """Also where the statement was prepared, or is one of a function's or of a view's."""
    assert hint in str(refused(alice, statement).diag.message_hint)
    alice.execute(f"prepare q as {statement}")
    error = refused(alice, "execute q")
    assert hint in str(error.diag.message_hint)
    assert error.diag.statement_position is None
    alice.execute("deallocate q")
    body = f"do $$ begin perform * from ({statement}) as s; end $$"
    assert hint in str(refused(alice, body).diag.message_hint)
    alice.execute(f"create view public.stored as select * from ({statement}) as s")
    assert hint in str(refused(alice, "select * from public.stored").diag.message_hint)
    alice.execute("drop view public.stored")


def test_over_relations_they_stay_those_of_private_aggregates(alice: Any) -> None:
    error = refused(
        alice, 'select dp_count(*) from customer full join "Orders" on c_id = o_customer'
    )
    assert "dp_count(b.a_id)" in str(error.diag.message_hint)


def test_the_integer_types_of_drivers_make_no_difference(views: Any, alice: Any) -> None:
    alice.execute("set dp.epsilon = 0.25")
    before = views.sql("select count(*) from dp.ledger")[0][0]
    answers = {
        alice.execute(f"select count(*) from dpv.customer where {condition}").fetchone()
        for condition in ("c_id < 31", "c_id < '31'::smallint", "c_id < '31'::bigint", "31 > c_id")
    }
    several = {
        alice.execute(f"select count(*) from dpv.customer where {condition}").fetchone()
        for condition in ("c_id in (1, 2)", "c_id = any ('{1,2}'::smallint[])", "c_id = any ('{1,2}'::bigint[])")
    }  # fmt: skip
    assert (len(answers), len(several)) == (1, 1)
    assert views.sql("select count(*) from dp.ledger")[0][0] == before + 2
    # one that the column cannot hold is true of no row, and no error
    assert alice.execute("select count(*) from dpv.customer where c_id < 5000000000 and c_id > -5000000000").fetchone()  # fmt: skip
