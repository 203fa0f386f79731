"""Sensitivities that the server computes on public data, against an independent implementation.

That implementation knows no keys.  The rows for TPC-H at scale factor 0.01 and for the
ego-network are the ones that the unit tests of the formulas use, where boundaries are given; here
the server finds the boundaries itself.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.queries import FACEBOOK, TPCH, statement
from dpsql.client import tpch
from dpsql.client.layout import Layout

DEMO = Layout.discover().clone / "demo"
DATA = json.loads((Path(__file__).parents[1] / "unit" / "core" / "reference.json").read_text())
# Q8 joins six million rows, and its reference value is not the definition's.
ROWS = [
    (query, beta, method, value)
    for query, data, beta, method, value in DATA["rows"]
    if data in (f"{query} 0.01", f"{query} ego-facebook") and query != "Q8"
]


def fill(database: Any, name: str, tables: Iterator[tuple[str, Any]]) -> Any:
    with database.connect(user="postgres", autocommit=False) as connection:
        connection.execute("grant dp_owner to owner1")
        connection.execute("grant create on schema public to owner1")
        connection.execute("set role owner1")
        connection.execute((DEMO / name / "tables.sql").read_bytes())
        for table, content in tables:
            with connection.cursor().copy(
                f"copy {table} from stdin (format csv, delimiter '|')"
            ) as copy:
                copy.write(content)
        connection.execute((DEMO / name / "keys.sql").read_bytes())
        connection.execute((DEMO / name / "protect.sql").read_bytes())
    return database.connect(user="owner1")


@pytest.fixture(scope="module")
def owners(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Sessions of the owner of the ego-network and of a small TPC-H database."""
    facebook, sales = server.create_database(), server.create_database()
    edges = (
        (f"edge{i}", gzip.decompress((DEMO / "data" / f"edge{i}.csv.gz").read_bytes()))
        for i in range(1, 6)
    )
    generated = (
        (table, path.read_bytes())
        for table, path in tpch.generate(tmp_path_factory.mktemp("tpch"), 0.01)
    )
    network, shop = fill(facebook, "facebook", edges), fill(sales, "tpch", generated)
    yield dict.fromkeys(FACEBOOK, network) | dict.fromkeys(TPCH, shop)
    server.drop_database(facebook)
    server.drop_database(sales)


def ask(owners: dict[str, Any], query: str, method: str, beta: float, use_keys: bool) -> float:
    (value,) = (
        owners[query]
        .execute(
            "select dp.sensitivity(%s, %s, %s, %s)",
            (statement((FACEBOOK | TPCH)[query], "dp_count(*)"), method, beta, use_keys),
        )
        .fetchone()
    )
    return float(value)


@pytest.mark.parametrize(("query", "beta", "method", "expected"), ROWS)
def test_the_server_equals_the_reference_to_six_digits(
    owners: dict[str, Any], query: str, beta: float, method: str, expected: float
) -> None:
    found = ask(owners, query, method, beta, use_keys=False)
    assert found == pytest.approx(expected, rel=5e-7)
    if query in TPCH:  # the network has no keys; here they only help
        assert 1 <= ask(owners, query, method, beta, use_keys=True) <= found * (1 + 1e-9)


def test_there_are_rows_for_every_query() -> None:
    assert {(q, b, m) for q, b, m, _ in ROWS} == {
        (f"Q{i}", beta, method)
        for i in range(1, 8)
        for beta in (0.02, 0.08)
        for method in ("residual", "elastic")
    }
