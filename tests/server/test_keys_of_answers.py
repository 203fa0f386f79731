"""The key of a stored answer has all that its distribution depends on, and nothing about rows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import psycopg
import pytest

from dpsql.engine.request import Settings

OF_ROWS = "select p_shop, dp_count(*) from purchase group by p_shop"
JOINED = "select dp_count(*) from client join purchase on c_id = p_client where c_kind = 'a'"
OF_UNITS = "select o_total, dp_count(*) from orders group by o_total"
#: A setting, two of its values, and the questions whose distribution differs between the two.  Other
#: questions do not read the setting, so both values share one answer.
CHANGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "epsilon": ("1", "0.5", (OF_ROWS, JOINED, OF_UNITS)),
    "delta": ("1e-8", "1e-7", (OF_ROWS, JOINED, OF_UNITS)),
    "method": ("auto", "elastic", (JOINED,)),
    "mechanism": ("laplace", "calibrated", (JOINED,)),
    "max_contribution": ("64", "128", (OF_UNITS,)),
    "max_groups_contributed": ("2", "3", (OF_UNITS,)),
    "max_rows_contributed": ("2", "3", (OF_UNITS,)),
    "min_frequency": ("300", "900", (OF_ROWS, OF_UNITS)),
}
#: Settings without two values here, and why a key needs none of their values.
ELSEWHERE = {
    "sampling_rate": "part of the key of the method sampling alone: test_walks_answers",
    "sampling_filter": "likewise",
    "statistics": "needs stored statistics: test_statistics",
    "max_epsilon_per_query": "refuses; no answer depends on it",
    "fresh": "draws anew whatever is stored",
    "confidence": "intervals are computed from the stored answer",
}


def test_every_setting_is_looked_at() -> None:
    assert {f.name for f in fields(Settings)} == {*CHANGES, *ELSEWHERE}


@pytest.fixture
def asked(shop: Any) -> Any:
    """The shop, and customers with orders as privacy units beside it."""
    shop.sql(
        "alter table purchase add column p_shop int;"
        "update purchase set p_shop = p_id % 2;"
        "create table customer (id int primary key);"
        "create table orders (id int primary key, customer int not null references customer,"
        " o_total int not null);"
        "insert into customer select generate_series(1, 1000);"
        "insert into orders select k, 1 + k % 1000, k % 3 from generate_series(1, 2000) k;"
        "select dp.protect('customer', privacy_unit => 'id')"
    )
    return shop


@pytest.mark.parametrize("setting", CHANGES)
def test_an_answer_serves_the_settings_of_its_own_law_alone(asked: Any, setting: str) -> None:
    one, other, changed = CHANGES[setting]
    with asked.connect(user="alice") as alice:

        def spends() -> int:
            return int(alice.execute("select count(*) from dp.ledger").fetchall()[0][0])

        for question in (OF_ROWS, JOINED, OF_UNITS):
            if setting in ("method", "mechanism") and question != JOINED:
                continue  # refused for units, and the mechanism for groups that are not public
            alice.execute(f"reset all; set dp.{setting} = {one}")
            alice.execute(question)
            before = spends()
            alice.execute(f"set dp.{setting} = {other}")
            alice.execute(question)
            assert (spends() > before) == (question in changed), (setting, question)
            alice.execute(f"set dp.{setting} = {one}")
            before = spends()
            alice.execute(question)
            assert spends() == before


def test_a_group_is_not_shown_by_the_answer_of_a_smaller_frequency(asked: Any) -> None:
    """Of 1,000 rows each at epsilon 1: the noise passes 400 with a probability below 1e-100."""
    for settings in (("300", "3000"), ("2900", "310")):
        with asked.connect(user="alice") as alice:
            for least in settings:
                alice.execute(f"set dp.min_frequency = {least}")
                shown = alice.execute(OF_ROWS).fetchall()
                assert len(shown) == (2 if int(least) < 1000 else 0)


REWRITES = {
    "VACUUM FULL": ("vacuum full purchase",),
    "the same rows again": (
        "create table kept as select * from purchase",
        "truncate purchase",
        "insert into purchase select * from kept",
    ),
    "other rows": ("delete from purchase where p_id % 2 = 0", "vacuum full purchase"),
    "REINDEX": ("reindex table purchase",),
}


@pytest.mark.parametrize("name", REWRITES)
def test_an_answer_outlives_the_file_of_its_rows(shop: Any, name: str) -> None:
    with shop.connect(user="alice") as alice:
        first = alice.execute(JOINED).fetchall()
    with shop.connect(autocommit=True) as owner:
        for statement in REWRITES[name]:
            owner.execute(psycopg.sql.SQL(statement))  # type: ignore[arg-type]
    with shop.connect(user="alice") as alice:
        assert alice.execute(JOINED).fetchall() == first
        assert alice.execute("select count(*) from dp.ledger").fetchall() == [(1,)]
