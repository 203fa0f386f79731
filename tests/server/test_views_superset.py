"""What Apache Superset sends, on exposed views: the statements that it sent in `make bi`, and more of their kinds.

The database is prepared as docs/superset.md says; noise is off where answers are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.server import asking
from tests.server.handbook import block

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[2] / "docs/superset.md"
SENT = json.loads((Path(__file__).parent / "superset.json").read_text())
SET_UP = """
create table region (r_regionkey int primary key, r_name char(25) not null);
create table nation (n_nationkey int primary key, n_name char(25) not null, n_regionkey int not null references region);
create table customer (c_custkey int primary key, c_nationkey int not null references nation, c_mktsegment char(10) not null);
create table orders (o_orderkey bigint primary key, o_custkey int not null references customer, o_orderstatus char(1) not null,
  o_totalprice numeric(15,2) not null, o_orderdate date not null, o_orderpriority char(15) not null, o_clerk char(15) not null);
insert into region select i, (array['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'])[i + 1] from generate_series(0, 4) as i;
insert into nation select i, 'NATION ' || i, i % 5 from generate_series(0, 24) as i;
insert into customer select i, i % 25, (array['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])[1 + i / 7 % 5]
  from generate_series(1, 120) as i;
insert into orders select i, 1 + floor(120 * power(i * 0.6180339887 % 1, 1.5))::int, (array['F', 'O', 'P'])[1 + i * i / 11 % 3],
  i * 7919 % 500000 + 0.25, date '1992-01-01' + i * 13 % 2404,
  (array['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])[1 + i * i / 7 % 5], 'clerk' from generate_series(1, 12000) as i;
create role steward login;
grant dp_owner to steward;
grant create on schema public to steward;
alter table region owner to steward; alter table nation owner to steward;
alter table customer owner to steward; alter table orders owner to steward;
set role steward;
select dp.protect('customer'), dp.protect('orders'), dp.declare_public('nation'), dp.declare_public('region');
select dp.set_domain('orders', 'o_orderdate', date '1992-01-01', date '1998-07-31');
"""
#: The same names for the relations themselves: what a superuser reads there is the truth.
TRUTH = """
create schema truth;
create view truth.orders as select o_orderkey, o_custkey, o_orderstatus, o_orderpriority, o_totalprice, o_orderdate from public.orders;
create view truth.customer as select c_custkey, c_mktsegment, c_nationkey from public.customer;
create view truth.sales as select o_orderkey, o_orderdate, o_orderstatus, o_orderpriority, o_totalprice, o_custkey, c_mktsegment, n_name, r_name
  from public.orders join public.customer on c_custkey = o_custkey join public.nation on n_nationkey = c_nationkey join public.region on r_regionkey = n_regionkey;
"""
OF_VIEWS = re.compile(r"\b(dpv\.|public\.sales\b)")
#: Values by rank are about right; every other answer is exact without noise.
BY_RANK = re.compile(r"\b(min|max|percentile_cont)\s*\(", re.I)
QUESTIONS = [
    text for text in SENT
    if OF_VIEWS.search(text) and re.match(r"SELECT|WITH", text) and "pg_catalog" not in text and "::regclass" not in text
]  # fmt: skip
BESIDE = [text for text in SENT if text not in QUESTIONS]
TOP = "(SELECT r_name AS r_name__, count(*) AS mme_inner__ FROM public.sales GROUP BY r_name ORDER BY mme_inner__ DESC, 1 LIMIT 2) AS top"
#: Series limits: rows joined with the largest groups of them.
LIMITED = [
    f"SELECT date_trunc('year', o_orderdate) AS y, r_name, count(*) AS n FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 7",
    f"SELECT r_name, sum(o_totalprice), count(*) FROM public.sales, {TOP} WHERE r_name__ = r_name AND o_totalprice > 1000 GROUP BY r_name HAVING count(*) > 3",
    f"SELECT o_orderstatus, sum(o_totalprice) AS s FROM public.sales JOIN {TOP} ON r_name = r_name__ WHERE o_orderkey < 2000 GROUP BY o_orderstatus, r_name ORDER BY s",
    f"SELECT r_name FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY r_name",
    f"SELECT r_name, count(*) FROM dpv.orders JOIN dpv.customer ON c_custkey = o_custkey JOIN public.nation ON n_nationkey = c_nationkey"
    f" JOIN public.region ON r_regionkey = n_regionkey JOIN {TOP} ON r_name = r_name__ GROUP BY r_name",
    "SELECT r_name, o_orderstatus, count(*) FROM public.sales JOIN (SELECT r_name AS a, o_orderstatus AS b FROM public.sales GROUP BY 1, 2"
    " ORDER BY sum(o_totalprice) DESC LIMIT 4) AS top ON r_name = a AND o_orderstatus = b GROUP BY 1, 2",
    "SELECT r_name, count(*) FROM public.sales JOIN (SELECT 3 + count(*) AS n FROM public.sales) AS whole ON n > 0 GROUP BY r_name",
    f"SELECT x, z FROM (SELECT r_name AS x, count(*) + 1 AS z FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY r_name) AS t ORDER BY 1 DESC",
    f"SELECT a, (SELECT max(n) FROM (SELECT r_name, count(*) AS n FROM public.sales JOIN {TOP} ON r_name = r_name__ AND o_orderkey > 5 GROUP BY 1) AS t WHERE n > a)"
    " FROM generate_series(1, 2) AS a",
]  # fmt: skip
#: A grain of time in docs/superset.md, and joins that are no choice among groups, so that they cannot go around.
REFUSED = [
    "SELECT DATE_TRUNC('hour', o_orderdate) + INTERVAL '30 minutes' * FLOOR(EXTRACT(MINUTE FROM o_orderdate) / 30), COUNT(*) FROM public.sales GROUP BY 1",
    f"SELECT o_orderstatus, count(*) FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY o_orderstatus",
    f"SELECT r_name, count(*), sum(mme_inner__) FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY r_name",
    f"SELECT r_name, mme_inner__, count(*) FROM public.sales JOIN {TOP} ON r_name = r_name__ GROUP BY 1, 2",
    f"SELECT r_name, count(*) FROM public.sales JOIN {TOP} ON r_name <= r_name__ GROUP BY r_name",
    f"SELECT r_name, count(*) FROM public.sales JOIN {TOP} ON true GROUP BY r_name",
    f"SELECT r_name, count(*) FROM public.sales JOIN {TOP} ON r_name = r_name__ AND o_totalprice > mme_inner__ GROUP BY r_name",
    f"SELECT count(*) FROM public.sales JOIN {TOP} ON r_name = r_name__",
    f"SELECT r_name, count(*) FROM public.sales LEFT JOIN {TOP} ON r_name = r_name__ GROUP BY r_name",
    "SELECT r_name, count(*) FROM public.sales JOIN (SELECT r_name AS a, o_orderstatus AS b FROM public.sales GROUP BY 1, 2 LIMIT 4) AS top ON r_name = a GROUP BY 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def shop(server: Any) -> Iterator[Any]:
    """Rows are protected one by one, so that answers without noise are exact."""
    database = server.create_database()
    database.sql(SET_UP)
    database.sql(block(PAGE, "CREATE ROLE superset"))
    database.sql("reset role; set role steward;" + block(PAGE, "dp.expose("))
    database.sql(TRUTH + "select dp.grant_budget('postgres', epsilon => 100000, delta => 1e-4)")
    database.sql("select dp.grant_budget('superset', epsilon => 100000, delta => 1e-4)")
    yield database
    database.close()
    database.sql("drop owned by superset, steward cascade; drop role superset; drop role steward")
    server.drop_database(database)


@pytest.fixture(scope="module")
def tool(shop: Any) -> Iterator[Any]:
    with shop.connect("superset") as session:
        session.execute("set client_min_messages = error")
        yield session


@pytest.fixture(scope="module")
def silent(shop: Any) -> Iterator[Any]:
    with asking.silent(shop, "customer") as session:
        session.execute("set client_min_messages = error; set dp.epsilon = 1")
        yield session


def spends(shop: Any) -> int:
    return int(shop.sql("select count(*) from dp.ledger")[0][0])


def of_relations(statement: str) -> str:
    return statement.replace("dpv.", "truth.").replace("public.sales", "truth.sales")


def compare(silent: Any, statement: str) -> None:
    asked, known = (
        [[_plain(value) for value in row] for row in silent.execute(text).fetchall()]
        for text in (statement, of_relations(statement))
    )
    assert known
    assert sorted(asked, key=str) == sorted(known, key=str)


def _plain(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, (Decimal, float)) else value


def is_row_reader(statement: str) -> bool:
    """Return whether it wants rows, which Superset does for samples and in SQL Lab."""
    return not re.search(
        r"\b(count|sum|avg|min|max|percentile_cont)\s*\(|GROUP BY|SELECT DISTINCT|LIMIT 0",
        statement,
        re.I,
    )


def test_the_record_holds_questions_probes_refusals_and_metadata() -> None:
    assert len(QUESTIONS) >= 30
    assert any("LIMIT 0" in text for text in QUESTIONS)
    assert any(is_row_reader(text) for text in QUESTIONS)
    assert any("pg_catalog" in text for text in BESIDE)
    assert any(text.startswith("EXPLAIN") for text in BESIDE)


@pytest.mark.parametrize("lockdown", [False, True])
def test_what_it_asks_by_itself_costs_nothing(shop: Any, tool: Any, lockdown: bool) -> None:
    if lockdown:
        shop.sql("select * from dp.lockdown()")
    before = spends(shop)
    try:
        for statement in BESIDE:
            tool.execute(statement)
    finally:
        if lockdown:
            shop.sql("select * from dp.unlock()")
    assert spends(shop) == before


@pytest.mark.parametrize("statement", [text for text in QUESTIONS if is_row_reader(text)])
def test_rows_are_refused_with_a_hint(shop: Any, tool: Any, statement: str) -> None:
    before = spends(shop)
    error = asking.refused(tool, statement)
    assert error.sqlstate == "PD010"
    assert "Numbers: SELECT count(*) FROM dpv." in str(error.diag.message_hint)
    assert spends(shop) == before


@pytest.mark.parametrize("statement", [text for text in QUESTIONS if not is_row_reader(text)])
def test_what_it_asked_is_answered_once(shop: Any, tool: Any, statement: str) -> None:
    first = tool.execute(statement)
    found, names = first.fetchall(), [column.name for column in first.description]
    paid = spends(shop)
    assert tool.execute(statement).fetchall() == found
    assert spends(shop) == paid
    assert names == [
        c.name for c in tool.execute(f"SELECT * FROM ({statement}) AS t LIMIT 0").description
    ]


@pytest.mark.parametrize(
    "statement",
    [
        text
        for text in QUESTIONS
        if not (is_row_reader(text) or BY_RANK.search(text) or "LIMIT 0" in text)
    ],
)
def test_what_it_asked_is_answered_as_of_the_relations(silent: Any, statement: str) -> None:
    compare(silent, statement)


@pytest.mark.parametrize("statement", LIMITED)
def test_the_largest_groups_of_rows(shop: Any, silent: Any, tool: Any, statement: str) -> None:
    compare(silent, statement)
    found = tool.execute(statement).fetchall()
    paid = spends(shop)
    assert tool.execute(statement).fetchall() == found
    assert spends(shop) == paid


@pytest.mark.parametrize("statement", REFUSED)
def test_what_cannot_be_asked_is_refused(shop: Any, tool: Any, statement: str) -> None:
    before = spends(shop)
    assert asking.refused(tool, statement).sqlstate in ("PD011", "PD013")
    assert spends(shop) == before
