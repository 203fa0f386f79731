"""Failing arithmetic on noised values: the corrected statement reuses the paid counts.

Each statement fails, or divides by 0, for some noised values; nobody can foresee it.  The budget
is enough for one question, so that the mended one is served from what is stored or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent

SET_UP = """
create table sale (kind text not null, price int not null, n int not null);
insert into sale select 'a', 10, 1 from generate_series(1, 200);
select dp.protect('sale');
select dp.set_root_cap('sale', 1e6);
select dp.set_domain('sale', 'kind', array['a', 'none']);
select dp.set_domain('sale', 'price', 0, 100);
grant select on sale to alice;
"""
#: Statements that fail, each with one that has the same aggregates and cannot fail.
FAILING = {
    "ln": ("ln(dp_count(*) - 1000000)", "ln(greatest(dp_count(*) - 1000000, 1))"),
    "sqrt": ("sqrt(dp_count(*) - 1000000)", "sqrt(greatest(dp_count(*) - 1000000, 0))"),
    "power": ("power(dp_count(*) - 1000000, 0.5)", "dp_count(*)"),
    "overflow": ("dp_count(*) * 9223372036854775807", "dp_count(*)"),
    "integer": ("(dp_count(*) + 3000000000)::integer", "(dp_count(*) + 3000000000)"),
    "smallint": ("(dp_count(*) + 100000)::smallint", "dp_count(*)"),
    "numeric": ("(dp_count(*) + 100000)::numeric(3)", "dp_count(*)"),
    "date": ("date '2000-01-01' + (dp_count(*) + 2147000000)::int", "dp_count(*)"),
    "bucket": ("width_bucket(1, 0, 1, (dp_count(*) - 1000000)::int)", "dp_count(*)"),
    "exp": ("exp((dp_count(*) + 100000)::float8)", "dp_count(*)"),
    "factorial": ("factorial(dp_count(*) - 1000000)", "dp_count(*)"),
}
CLAUSES = {
    "having": " HAVING ln(dp_count(*) - 1000000) > 0",
    "order": " ORDER BY ln(dp_count(*) - 1000000)",
}
#: Divisions by 0 of a group without rows, with what they give where noise is silent.
DIVIDING = {
    "dp_sum(price) / dp_count(*)": 10,
    "dp_sum(price) % dp_count(*)": 0,
    "mod(dp_sum(price)::bigint, dp_count(*))": 0,
    "div(dp_sum(price)::numeric, dp_count(*)::numeric)": 10,
    "100 * (dp_count(*) / dp_count(*))": 100,
    "1 / (dp_count(*) / dp_count(*))": 1,
    "(dp_sum(price) / dp_count(*)) / (dp_count(*) / dp_count(*))": 10,
    "round(dp_sum(price)::numeric / dp_count(*), 2)": 10,
    "dp_sum(price)::float8 / dp_count(*)": 10,
    "interval '200 days' / dp_count(*)": timedelta(days=1),
}


@pytest.fixture
def shop(database: Any) -> Iterator[Any]:
    """Make sales of which one declared kind has none."""
    database.sql(SET_UP)
    database.sql("select dp.grant_budget('alice', 1), dp.grant_budget('postgres', 1e6)")
    return database


def refused(session: Any, text: str) -> psycopg.Error:
    """Return the error of a statement that must fail."""
    with pytest.raises(psycopg.Error) as caught:
        session.execute(text)
    return caught.value


@pytest.mark.parametrize("case", [*FAILING, *CLAUSES])
def test_a_mended_statement_is_free(shop: Any, case: str) -> None:
    wrong, right = FAILING.get(case, ("dp_count(*)", "dp_count(*)"))
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 1")
        error = refused(alice, f"SELECT {wrong} FROM sale" + CLAUSES.get(case, ""))
        alice.rollback()
        assert error.sqlstate == "PD041", error
        alice.execute("set dp.epsilon = 1")
        assert len(alice.execute(f"SELECT {right} AS mended FROM sale").fetchall()) == 1
        assert refused(alice, "SELECT dp_count(*) FROM sale WHERE price > 3").sqlstate == "PD001"
    assert shop.sql("select count(*), sum(epsilon) from dp.spend") == [(1, 1)]


def test_division_by_a_noised_zero_gives_null_and_a_notice(shop: Any) -> None:
    with silent(shop, "sale") as session:
        told: list[tuple[str, str]] = []
        session.add_notice_handler(
            lambda d: told.append((str(d.message_primary), str(d.message_hint)))
        )
        for shown, expected in DIVIDING.items():
            del told[:]
            text = f"SELECT kind, {shown} AS ratio FROM sale GROUP BY kind ORDER BY kind"
            rows = dict(session.execute(text).fetchall())
            assert rows["none"] is None, shown
            assert rows["a"] == expected, shown
            notices = [t for t in told if "division by 0" in t[0]]
            assert len(notices) == 1, shown
            assert '"ratio"' in notices[0][0]
            assert "NULLIF" in notices[0][1]
        del told[:]
        written = "SELECT kind, dp_sum(price) / nullif(dp_count(*), 0) FROM sale GROUP BY kind"
        assert dict(session.execute(written).fetchall()) == {"a": 10, "none": None}
        assert not [t for t in told if "division by 0" in t[0]]


def test_a_literal_that_spells_a_division_stays_as_it_is(shop: Any) -> None:
    """The literal is the division as the library writes it over noised values."""
    with silent(shop, "sale") as session:
        told: list[str] = []
        session.add_notice_handler(lambda d: told.append(str(d.message_primary)))
        text = (
            "SELECT kind, dp_count(*) / dp_count(*) AS ratio, '(a0 / a0)'::text AS spelled,"
            " concat('(a0 / a0)', kind) AS again FROM sale GROUP BY kind ORDER BY kind"
        )
        assert session.execute(text).fetchall() == [
            ("a", 1, "(a0 / a0)", "(a0 / a0)a"),
            ("none", None, "(a0 / a0)", "(a0 / a0)none"),
        ]
    assert [t for t in told if "division" in t] == ['a division by 0 for column "ratio" gave NULL']


def test_division_by_zero_elsewhere_leaves_groups_out(shop: Any) -> None:
    with silent(shop, "sale") as session:
        having = "SELECT kind, dp_count(*) FROM sale GROUP BY kind HAVING 100 / dp_count(*) >= 0"
        assert session.execute(having).fetchall() == [("a", 200)]
        order = "SELECT kind, dp_count(*) FROM sale GROUP BY kind ORDER BY 100 / dp_count(*)"
        assert session.execute(order).fetchall() == [("a", 200), ("none", 0)]
