"""The benchmark over privacy units leaves a row for what cannot be answered, too."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bench import units

SET_UP = """
create table person (id int primary key);
create table visit (id int not null references person, town int not null);
insert into person select generate_series(1, 100);
insert into visit select 1 + k % 100, k % 2 from generate_series(1, 400) k;
select dp.protect('person', privacy_unit => 'id'), dp.grant_budget('alice', epsilon => 100);
select dp.set_domain('visit', 'town', 0, 1);
"""


def test_every_method_leaves_a_row_with_numbers_or_a_reason(database: Any) -> None:
    database.sql(SET_UP)
    arguments = Namespace(epsilon=1.0, repeat=1, methods="quantile,r2t,laplace")
    text = "select town, dp_count(*) from visit group by town"
    quantile, r2t, laplace = units._measure(database.conninfo(), text, arguments)
    assert (quantile["method"], quantile["groups"], "why" in quantile) == ("quantile", 2, False)
    assert r2t == {"method": "r2t", "why": "the r2t mechanism answers a single number"}
    assert laplace["method"] == "laplace"
    assert "row by row" in laplace["why"]
