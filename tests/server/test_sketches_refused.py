"""Sketches on the server: what cannot be sketched, and what is said then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.sketching import PATH, create, refused


def test_more_estimators_than_memory_allows_are_refused(network: Any) -> None:
    error = refused(network, "owner1", create(PATH), "set maintenance_work_mem = '1MB'")
    assert error.sqlstate == "PD040"
    assert error.diag.message_primary == (
        "100000 estimators need more memory than maintenance_work_mem allows"
    )
    assert error.diag.message_detail.endswith("MB; maintenance_work_mem is 1MB.")
    assert error.diag.message_hint == (
        "Raise maintenance_work_mem for this session, or ask for fewer estimators."
    )
    assert network.sql("select count(*) from dp.sketch") == [(0,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), 'parameter "estimators" must be between 1 and 1000000'),
        ((-1,), 'parameter "estimators" must be between 1 and 1000000'),
        (("null",), 'parameter "estimators" must be between 1 and 1000000'),
        ((1_000_001,), 'parameter "estimators" must be between 1 and 1000000'),
        ((5, 0), 'parameter "rows" must be between 1 and 101'),
        ((5, 102), 'parameter "rows" must be between 1 and 101'),
    ],
)
def test_numbers_out_of_range_are_refused(network: Any, arguments: Any, message: str) -> None:
    error = refused(network, "owner1", create(PATH, *arguments))
    assert (error.sqlstate, error.diag.message_primary) == ("PD040", message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select dp_count(*) from e", "a sketch needs a join"),
        (
            "select dp_count(*) from e, f where e.b + 1 = f.b",
            "a join of relation public.e cannot be sketched",
        ),
        (
            "select dp_count(*) from w, w as v where w.t = v.t",
            "column t of relation public.w cannot be sketched",
        ),
    ],
)
def test_what_cannot_be_sketched_is_named(network: Any, query: str, message: str) -> None:
    network.sql("create table w (t time); alter table w owner to owner1")
    network.sql("select dp.protect('w')", user="owner1")
    error = refused(network, "owner1", create(query))
    assert (error.sqlstate, error.diag.message_primary) == ("PD010", message)
    assert error.diag.message_detail
    assert error.diag.message_hint


def test_a_foreign_table_is_refused(network: Any) -> None:
    network.sql(
        "create extension postgres_fdw; create server elsewhere foreign data wrapper postgres_fdw"
        " options (host 'elsewhere.invalid', dbname 'd'); create foreign table public.far (b int) server elsewhere; alter table far owner to owner1"
    )
    network.sql("select dp.protect('far')", user="owner1")
    error = refused(network, "owner1", create("select dp_count(*) from e join far using (b)", 10))
    assert (error.sqlstate, error.diag.message_primary) == (
        "PD010",
        "relation public.far cannot be sketched",
    )
