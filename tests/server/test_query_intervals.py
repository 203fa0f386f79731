"""dp.query with intervals: what stands beside each number, what it covers, what it costs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from scipy.stats import binom

from tests.server.unit_shop import SET_UP

COUNT = "select dp_count(*) as n from client"
JOIN = "select dp_count(*) as n from client a join client b on a.c_region = b.c_region"


def query(connection: Any, statement: str, level: object = 0.95) -> list[dict[str, Any]]:
    sql = "select * from dp.query(%s, intervals => %s)"
    return [row[0] for row in connection.execute(sql, (statement, level)).fetchall()]


def spends(shop: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = shop.sql(
        "select mechanism, epsilon, delta from dp.spend order by id"
    )
    return rows


def test_a_count_and_its_interval(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.5")
        (row,) = query(alice, COUNT)
        assert set(row) == {"n", "n_low", "n_high", "n_covers"}
        assert (row["n"] - row["n_low"], row["n_high"] - row["n"]) == (6, 6)
        assert row["n_covers"] == "all error"
        (wider,) = query(alice, COUNT, 0.999)
        assert wider["n"] == row["n"]
        assert wider["n_high"] > row["n_high"]
        # without intervals it is the same question, and the other way round
        assert alice.execute(COUNT).fetchone() == (row["n"],)
        assert alice.execute("select * from dp.query(%s)", (COUNT,)).fetchone() == (
            {"n": row["n"]},
        )
        (without,) = query(alice, COUNT, None)
        assert without == {"n": row["n"]}
    assert len(spends(shop)) == 1


def test_a_join_takes_a_mechanism_with_a_public_scale_and_is_another_question(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        plain = alice.execute(JOIN).fetchone()[0]
        (row,) = query(alice, JOIN)
        assert [s[0] for s in spends(shop)] == ["laplace", "calibrated"]
        assert row["n_low"] < row["n"] < row["n_high"]
        for _ in range(2):
            assert query(alice, JOIN) == [row]
            assert alice.execute(JOIN).fetchone()[0] == plain
        assert len(spends(shop)) == 2
        # the same mechanism as an interval in the statement: the same question
        ends = (
            "select dp_count(*) as n, dp_interval_low(dp_count(*)) as l"
            + JOIN[JOIN.index(" from") :]
        )
        assert alice.execute(ends).fetchone() == (row["n"], row["n_low"])
        assert len(spends(shop)) == 2
        told = alice.execute(
            "select epsilon, delta, rho from dp.ledger where mechanism = 'calibrated'"
        ).fetchone()
        alice.execute("set dp.mechanism = calibrated; set dp.fresh = on")
        total = alice.execute(
            "select epsilon, delta, trim_scale(round(rho, 12)) from dp.estimate(%s)"
            " where aggregate = 'total'",
            (JOIN,),
        ).fetchone()
        assert told == total


def test_groups_each_have_theirs(shop: Any) -> None:
    statement = "select c_kind, dp_count(*) as n from client group by c_kind order by n"
    with shop.connect(user="alice") as alice:
        rows = query(alice, statement)
    assert len(rows) == 3
    assert all(r["n_high"] - r["n"] == r["n"] - r["n_low"] > 0 for r in rows)
    assert [r["n"] for r in rows] == sorted(r["n"] for r in rows)
    assert all(set(r) == {"c_kind", "n", "n_low", "n_high", "n_covers"} for r in rows)


def test_expressions_of_one_number_have_intervals_and_others_null(shop: Any) -> None:
    statement = (
        "select dp_count(*) as n, 10 - 2 * dp_count(*) as falling,"
        " round(dp_count(*) / 7.0, 1) as rounded, greatest(dp_count(*), 0) as floor,"
        " dp_count(*) - dp_count(c_born) as difference, abs(dp_count(*)) as magnitude,"
        " dp_count(*)::text as written, dp_interval_low(dp_count(*)) as low, 'x' as text"
        " from client"
    )
    with shop.connect(user="alice") as alice:
        (row,) = query(alice, statement)
    assert (row["falling_low"], row["falling_high"]) == (
        10 - 2 * row["n_high"],
        10 - 2 * row["n_low"],
    )
    assert float(row["rounded_low"]) == pytest.approx(round(row["n_low"] / 7, 1), abs=0.051)
    assert row["floor_low"] == max(row["n_low"], 0)
    for name in ("difference", "magnitude", "written"):
        assert [row[f"{name}_{part}"] for part in ("low", "high", "covers")] == [None] * 3
    assert not {"low_low", "text_low", "text_covers"} & set(row)
    assert row["low"] == row["n_low"]


def test_texts_of_a_statement_may_have_backslashes(shop: Any) -> None:
    statement = r"select dp_count(*) as n, 'C:\a1, ''FROM noisy' as path from client"
    with shop.connect(user="alice") as alice:
        (row,) = query(alice, statement)
        names = alice.execute("select column_name from dp.estimate(%s)", (statement,)).fetchall()
    assert row["path"] == r"C:\a1, 'FROM noisy"
    assert row["n_low"] < row["n"] < row["n_high"]
    assert ("n",) in names


def test_names_stay_distinct(shop: Any) -> None:
    statement = (
        "select dp_count(*) as n, 7 as n_low, dp_count(*) + 1 as n, 8 as n_covers from client"
    )
    with shop.connect(user="alice") as alice:
        (row,) = query(alice, statement)
    assert (row["n_low"], row["n_covers"]) == (7, 8)
    assert row["n_2"] == row["n"] + 1
    assert row["n_low_2"] + 1 == row["n_low_3"]
    assert row["n_covers_2"] == row["n_covers_3"] == "all error"
    assert len(row) == 10


def test_units_are_cut_off_and_the_interval_says_what_it_covers(database: Any) -> None:
    database.sql(SET_UP)
    statement = "select dp_count(*) as n from orders"
    with database.connect("alice") as alice:
        (row,) = query(alice, statement)
        assert row["n_covers"] == "noise only"
        assert row["n_low"] < row["n"] < row["n_high"]
        alice.execute("set dp.mechanism = r2t")
        (row,) = query(alice, statement)
        assert (row["n_low"], row["n_high"], row["n_covers"]) == (None, None, None)
        (row,) = query(alice, "select dp_count(*) as n from nation")
        assert (row["n_low"], row["n_high"], row["n_covers"]) == (2, 2, "all error")


def test_ends_in_a_statement_are_told_what_they_cover(database: Any) -> None:
    """dp.query has a column for it; where nothing is cut off nothing is said."""
    database.sql(SET_UP)
    told: list[str] = []
    with database.connect("alice") as alice:
        alice.add_notice_handler(lambda d: told.append(str(d.message_primary)))
        statement = "select dp_count(*), dp_interval_low(dp_count(*)) from {}"
        alice.execute(statement.format("customer"))
        assert told == []
        query(alice, "select dp_count(*) as n from orders")
        assert told == []
        alice.execute(statement.format("orders where o > 7"))
    (said,) = told
    assert said.startswith(
        "dp_interval_low and dp_interval_high cover the noise alone: units above"
    )


@pytest.mark.parametrize(
    ("level", "shown"), [("0", "0"), ("1", "1"), ("-0.5", "-0.5"), ("95", "95"), ("NaN", "'NaN'")]
)
def test_levels_that_mean_nothing_are_refused(shop: Any, level: str, shown: str) -> None:
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        query(alice, COUNT, level)
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_primary.startswith('parameter "intervals" must be')
    assert caught.value.diag.message_detail == f"Got {shown}."
    assert spends(shop) == []


def test_what_cannot_have_intervals_is_refused_before_it_costs_anything(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            query(alice, "select distinct dp_count(*) as n from client")
        assert caught.value.sqlstate == "PD011"
        assert "SELECT DISTINCT" in caught.value.diag.message_primary
        alice.execute("set dp.mechanism = laplace")
        with pytest.raises(psycopg.Error) as caught:
            query(alice, JOIN)
        assert caught.value.sqlstate == "PD040"
        assert "no public interval" in caught.value.diag.message_primary
        assert query(alice, COUNT)[0]["n_covers"] == "all error"
    assert len(spends(shop)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "select dp_interval_low(n) from (select dp_count(*) as n from client) s",
        "with s as (select dp_count(*) as n from client) select dp_interval_high(n) from s",
        "select n from (select dp_count(*) as n from client) s where n > dp_interval_low(n)",
        "select abs(dp_interval_low(n)) from (select dp_count(*) as n from client offset 0) s",
        "select (select dp_interval_low(s.n)) from (select dp_count(*) as n from client) s",
        "create table t as select dp_interval_low(n) from (select dp_count(*) as n from client) s",
        "explain select dp_interval_low(n) from (select dp_count(*) as n from client) s",
    ],
)
def test_an_end_of_what_a_query_inside_counted_is_refused_for_nothing(
    shop: Any, statement: str
) -> None:
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(statement)
        assert caught.value.sqlstate == "PD011"
        assert "needs a dp_count, dp_sum or dp_avg" in str(caught.value.diag.message_primary)
        place = int(str(caught.value.diag.statement_position)) - 1
        assert statement[place:].startswith("dp_interval_")
        assert spends(shop) == []
        # what the hint says
        assert "(SELECT dp_count(*) AS n, dp_interval_" in str(caught.value.diag.message_hint)
        row = alice.execute(
            "select low, n from (select dp_count(*) as n, dp_interval_low(dp_count(*)) as low"
            " from client) as s"
        ).fetchone()
        assert row[0] < row[1]


def test_intervals_hold_the_truth_as_often_as_they_say(shop: Any) -> None:
    """The exact probability at epsilon 0.2 is 0.8105 for level 0.8; false alarms below 1e-9."""
    asks, held = 250, 0
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.2")
        for n in range(asks):
            statement = f"select 3 - 2 * dp_count(*) as x from client where c_id > {-n}"
            (row,) = query(alice, statement, 0.8)
            assert row["x_high"] - row["x_low"] == 4 * 8
            held += row["x_low"] <= 3 - 2 * 200 <= row["x_high"]
    # P(|DLap(5)| <= 8) by its tail
    from math import exp

    p = 1 - 2 * exp(-9 / 5) / (1 + exp(-1 / 5))
    assert p >= 0.8 > 1 - 2 * exp(-8 / 5) / (1 + exp(-1 / 5))
    assert binom.ppf(5e-10, asks, p) <= held <= binom.isf(5e-10, asks, p)
