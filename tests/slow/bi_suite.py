"""Apache Superset on exposed views, looked at in a browser: `make bi`, some minutes.

The file's name keeps it out of `make test`; tests/server/test_views_superset.py replays there what
Superset sent here.  What docs/superset.md tells to do is taken from that page and done.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client import demo
from dpsql.client.layout import Layout
from tests.conftest import Database, Server, start_server
from tests.server.handbook import block
from tests.slow.browsing import Browser, Traffic
from tests.slow.dashboards import Chart, choice, create, metric, simple, where, within, written
from tests.slow.sent import statements_sent
from tests.slow.superset_site import USER, Site

pytestmark = pytest.mark.server

CLONE = Path(__file__).parents[2]
PAGE = CLONE / "docs/superset.md"
REPLAYED = CLONE / "tests/server/superset.json"
TOOL = "superset"
COUNT = metric("COUNT(*)", "Orders")
REVENUE = metric("SUM(o_totalprice)", "Revenue")
CHARTS = [
    Chart("Orders", "big_number_total", {"metric": COUNT, "y_axis_format": ",d"}, 3, 28),
    Chart("Orders by month", "echarts_timeseries_line",
          {"x_axis": "o_orderdate", "time_grain_sqla": "P1M", "metrics": [COUNT], "groupby": []}, 9, 28),
    Chart("Revenue by segment", "echarts_timeseries_bar",
          {"x_axis": "c_mktsegment", "metrics": [REVENUE], "groupby": [], "xAxisLabelInterval": "0",
           "xAxisLabelRotation": 45, "show_legend": False}, 5, 36),
    Chart("Regions", "table",
          {"query_mode": "aggregate", "groupby": ["r_name"],
           "metrics": [COUNT, REVENUE, metric("AVG(o_totalprice)", "Average"), metric("COUNT(DISTINCT o_custkey)", "Customers")],
           "column_config": {name: {"d3NumberFormat": ",d"} for name in ("Orders", "Revenue", "Average", "Customers")}}, 7, 36),
    Chart("Priorities by region", "pivot_table_v2",
          {"groupbyRows": ["o_orderpriority"], "groupbyColumns": ["r_name"], "metrics": [COUNT], "metricsLayout": "COLUMNS",
           "aggregateFunction": "Sum", "valueFormat": ",d", "rowOrder": "key_a_to_z", "colOrder": "key_a_to_z"}, 12, 46),
]  # fmt: skip
ROWS = [[0, 1], [2, 3], [4]]
HALF = Decimal("0.5")
CHART_DATA = "/api/v1/chart/data"
HOLDER = ".dashboard-component-chart-holder"
DRAWN = "[data-test=slice-container], [role=alert], .ant-alert"
YEARLY = {"x_axis": "o_orderdate", "time_grain_sqla": "P1Y", "metrics": [COUNT], "groupby": []}
#: Of each further kind of chart one, by what it asks.
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("Trend", "big_number", {**YEARLY, "metric": COUNT, "compare_lag": 1}),
    ("Pie", "pie", {"metric": COUNT, "groupby": ["o_orderstatus"]}),
    ("Area", "echarts_area", {**YEARLY, "groupby": ["o_orderstatus"]}),
    ("Series limit", "echarts_timeseries_line", {**YEARLY, "groupby": ["r_name"], "limit": 2}),
    ("Series limit by revenue", "echarts_timeseries_line",
     {**YEARLY, "groupby": ["r_name"], "limit": 2, "timeseries_limit_metric": REVENUE, "order_desc": True}),
    ("Simple metrics", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderstatus"], "metrics": [
         simple(each, "o_totalprice") for each in ("AVG", "COUNT", "COUNT_DISTINCT", "MAX", "MIN", "SUM")]}),
    ("Totals and shares", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderstatus"], "metrics": [COUNT, REVENUE], "show_totals": True, "percent_metrics": [COUNT]}),
    ("Pages", "table",
     {"query_mode": "aggregate", "groupby": ["n_name"], "metrics": [COUNT], "server_pagination": True, "server_page_length": 10}),
    ("Quarters", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderdate"], "temporal_columns_lookup": {"o_orderdate": True},
      "time_grain_sqla": "P3M", "metrics": [COUNT]}),
    ("Median", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderstatus"],
      "metrics": [metric("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY o_totalprice)", "Median")]}),
    ("Size", "table",
     {"query_mode": "aggregate", "metrics": [COUNT], "groupby": [
         {"expressionType": "SQL", "label": "size", "sqlExpression": "CASE WHEN o_totalprice > 100000 THEN 'large' ELSE 'small' END"}]}),
    ("Share", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderstatus"], "metrics": [metric("COUNT(*) * 100.0 / SUM(COUNT(*)) OVER ()", "Share")]}),
    ("Filters", "table",
     {"query_mode": "aggregate", "groupby": ["o_orderstatus"], "metrics": [COUNT], "adhoc_filters": [
         within("1995-01-01 : 1996-01-01"), where("r_name", "IN", ["ASIA", "EUROPE"]), where("c_mktsegment", "ILIKE", "%u%"),
         where("o_totalprice", ">", "1000"), where("o_orderpriority", "IS NOT NULL", None),
         written("WHERE", "o_orderkey % 2 = 0"), written("HAVING", "COUNT(*) > 100")]}),
    ("Weeks", "echarts_timeseries_bar", {**YEARLY, "time_grain_sqla": "P1W", "adhoc_filters": [within("1995-01-01 : 1995-03-01")]}),
    ("Year before", "echarts_timeseries_line",
     {**YEARLY, "time_compare": ["1 year ago"], "comparison_type": "values", "adhoc_filters": [within("1995-01-01 : 1997-01-01")]}),
    ("Box plot", "box_plot", {"metrics": [REVENUE], "groupby": ["r_name"], "columns": ["o_orderstatus"], "whiskerOptions": "Tukey"}),
    ("Heatmap", "heatmap_v2", {"x_axis": "o_orderpriority", "groupby": "o_orderstatus", "metric": COUNT, "normalize_across": "heatmap"}),
    ("Treemap", "treemap_v2", {"groupby": ["r_name"], "metric": REVENUE}),
    ("Sunburst", "sunburst_v2", {"columns": ["r_name", "o_orderstatus"], "metric": COUNT}),
    ("Mixed", "mixed_timeseries", {**YEARLY, "metrics_b": [REVENUE], "groupby_b": []}),
    ("Pivot by year", "pivot_table_v2",
     {"groupbyRows": ["o_orderdate"], "groupbyColumns": ["o_orderstatus"], "temporal_columns_lookup": {"o_orderdate": True},
      "time_grain_sqla": "P1Y", "metrics": [COUNT], "metricsLayout": "COLUMNS", "aggregateFunction": "Sum"}),
    ("Rows", "table", {"query_mode": "raw", "all_columns": ["o_orderkey", "o_totalprice"]}),
    ("Histogram", "histogram_v2", {"column": "o_totalprice", "groupby": [], "bins": 5}),
]  # fmt: skip
REFUSED_KINDS = {
    "Rows": "cannot be read",
    "Histogram": "cannot be read",
}
REFUSED = "rows of the protected relation public.orders cannot be read"
HINT = "Numbers: SELECT count(*) FROM dpv.orders."


@dataclass
class Office:
    """A database with its owner's declarations, a Superset on it, somebody's browser."""

    database: Database
    site: Site
    browser: Browser
    pictures: Path
    connection: int = 0
    sales: int = 0
    orders: int = 0
    board: int = 0

    def spent(self) -> Decimal:
        ((spent,),) = self.database.sql(
            "select coalesce(sum(epsilon), 0) from dp.ledger where role = %s", TOOL
        )
        return Decimal(spent)

    def picture(self, name: str) -> None:
        self.browser.screenshot(self.pictures / name)
        if os.environ.get("DPSQL_REWRITE"):
            shutil.copy(self.pictures / name, CLONE / "docs/figures" / name)

    def look(self, board: int, charts: list[Chart], boxes: int = 0) -> dict[str, Any]:
        """Open a dashboard of charts and boxes of filters until all is drawn; return their data."""
        traffic = self.browser.traffic()
        self.browser.open(f"/superset/dashboard/{board}/")
        return self.answers(traffic, charts, boxes)

    def refresh(self, charts: list[Chart]) -> dict[str, Any]:
        """Press the button that asks for all charts anew, around every cache."""
        traffic = self.browser.traffic()
        self.browser.click("[data-test=refresh-button]")
        return self.answers(traffic, charts)

    def answers(self, traffic: Traffic, charts: list[Chart], boxes: int = 0) -> dict[str, Any]:
        """Wait until all charts have their answers and are drawn; return the rows by statement."""

        def drawn() -> bool:
            page = self.browser
            return (
                sum(path.startswith(CHART_DATA) for path, *_ in traffic.seen())
                >= len(charts) + boxes
                and len(page.all("[data-test=slice-container]")) == len(charts)
                and not page.all("[data-test=loading-indicator]")
            )

        self.browser.wait(drawn, f"{len(charts)} charts")
        assert self.browser.toasts() == []
        assert "Data error" not in self.browser.text()
        return data(traffic.seen())


def data(seen: list[tuple[str, int, Any]]) -> dict[str, Any]:
    """Return by statement the rows that charts were given."""
    found = {}
    for path, status, body in seen:
        if path.startswith(CHART_DATA):
            assert status == 200, body
            for result in body["result"]:
                assert result["status"] == "success", result
                assert result["is_cached"] is None, "Superset's cache must be off"
                found[result["query"]] = result["data"]
    return found


@pytest.fixture(scope="module")
def server(installation: None) -> Iterator[Server]:
    server = start_server()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    """The demo database, prepared as the page says."""
    demo.load_customers(Layout.discover(), server.cluster)
    database = Database(server.cluster, "customers")
    database.sql(block(PAGE, "CREATE ROLE superset"))
    database.sql(block(PAGE, "dp.expose("), user=demo.OWNER)
    database.sql(f"alter role {TOOL} set log_statement = 'all'")
    return database


@pytest.fixture(scope="module")
def office(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    layout = Layout.discover()
    folder = tmp_path_factory.mktemp("superset")
    pictures = layout.home / "bi"
    site = Site(layout.home / "superset/bin", folder, block(PAGE, "FLASK_APP_MUTATOR", "python"))
    try:
        site.start()
        browser = Browser(site.address, folder)
    except BaseException:
        site.stop()
        raise
    try:
        browser.log_in(USER, site.password)
        yield Office(database, site, browser, pictures)
        browser.screenshot(pictures / "last.png")
    finally:
        browser.close()
        site.stop()
        shutil.copy(folder / "superset.log", pictures / "superset.log")


@pytest.fixture(scope="module")
def connected(office: Office) -> Office:
    """The database and its datasets, added through the requests that the pages make."""
    host = urllib.parse.quote(str(office.database.cluster.socket), safe="")
    there = {
        "database_name": "private",
        "sqlalchemy_uri": f"postgresql+psycopg2://{TOOL}@/customers?host={host}",
        "extra": json.dumps({"cost_estimate_enabled": True, "allows_virtual_table_explore": True}),
        "expose_in_sqllab": True,
    }
    api = office.browser.api
    tested = {k: v for k, v in there.items() if k != "expose_in_sqllab"}
    assert api("POST", "database/test_connection/", tested)["message"] == "OK"
    office.connection = int(api("POST", "database/", there)["id"])
    office.sales = dataset(office, "public", "sales")
    office.orders = dataset(office, "dpv", "orders")
    return office


@pytest.fixture(scope="module")
def board(connected: Office) -> Office:
    connected.board = create(
        connected.browser,
        "Orders",
        connected.sales,
        CHARTS,
        ROWS,
        [choice("Segment", connected.sales, "c_mktsegment")],
    )
    return connected


def dataset(office: Office, schema: str, table: str, sql: str | None = None) -> int:
    made = {"database": office.connection, "schema": schema, "table_name": table}
    number = int(office.browser.api("POST", "dataset/", made | ({"sql": sql} if sql else {}))["id"])
    office.browser.api("PUT", f"dataset/{number}/refresh")
    return number


def columns(office: Office, number: int) -> dict[str, str]:
    told = office.browser.api("GET", f"dataset/{number}")["result"]["columns"]
    return {column["column_name"]: column["type"] for column in told}


def test_connecting_and_datasets_cost_nothing(connected: Office) -> None:
    api = connected.browser.api
    number = connected.connection
    assert {"public", "dpv"} <= set(api("GET", f"database/{number}/schemas/")["result"])
    found = api("GET", f"database/{number}/tables/?q=(schema_name:dpv)")["result"]
    assert {"customer", "orders"} <= {table["value"] for table in found}
    told = api("GET", f"database/{number}/table_metadata/?name=orders&schema=dpv")
    assert [c["name"] for c in told["columns"]][:2] == ["o_orderkey", "o_custkey"]
    assert told["columns"][0]["comment"] == "primary key"
    assert columns(connected, connected.orders)["o_orderdate"] == "DATE"
    assert columns(connected, connected.sales)["o_totalprice"] == "NUMERIC(15, 2)"
    assert connected.spent() == 0


def test_five_charts_show_the_stored_answers(board: Office) -> None:
    before = board.spent()
    shown = board.look(board.board, CHARTS, boxes=1)
    board.picture("superset-dashboard.png")
    spent = board.spent()
    assert spent > before
    assert len(shown) == 6  # five charts and the box with the values of its filter
    text = board.browser.text()
    with board.database.connect(TOOL, row_factory=psycopg.rows.dict_row) as session:
        for statement, rows in shown.items():
            stored = session.execute(statement.rstrip("; \n")).fetchall()
            assert stored
            # of time series Superset changes the order
            assert sorted(map(plain, stored)) == sorted(map(plain, rows)), statement
            if "DATE_TRUNC" not in statement and "c_mktsegment" not in statement:
                for number in (v for row in stored for v in row.values() if not isinstance(v, str)):
                    assert f"{math.floor(number + HALF):,}" in text, (statement, number)
    assert board.spent() == spent
    for name in ("Orders by month", "Revenue by segment"):
        assert ink(board.browser, name) > 300, name


def plain(row: dict[str, Any]) -> list[tuple[str, str | float]]:
    """Return a row as JSON has it: numbers as floats, times as milliseconds."""
    return [
        (key, value.timestamp() * 1000 if hasattr(value, "timestamp")
         else value.rstrip() if isinstance(value, str) else float(value))
        for key, value in sorted(row.items())
    ]  # fmt: skip


INK = """
const chart = [...document.querySelectorAll('.dashboard-component-chart-holder')]
  .find(e => e.innerText.trim().startsWith(arguments[0]));
let found = 0;
for (const canvas of chart.querySelectorAll('canvas')) {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 100 && Math.max(pixels[i], pixels[i + 1], pixels[i + 2]) - Math.min(pixels[i], pixels[i + 1], pixels[i + 2]) > 60) found++;
}
return found;
"""


def ink(browser: Browser, chart: str) -> int:
    """Return how many coloured pixels a chart has; axes and letters are grey."""
    return int(browser.driver.execute_script(INK, chart))


def test_refreshing_costs_nothing(board: Office) -> None:
    shown = board.look(board.board, CHARTS, boxes=1)
    spent = board.spent()
    for _ in range(2):
        again = board.refresh(CHARTS)
        assert again
        assert all(shown[statement] == rows for statement, rows in again.items())
    assert board.look(board.board, CHARTS, boxes=1) == shown
    assert board.spent() == spent


def test_a_filter_offers_values_and_is_applied(board: Office) -> None:
    shown = board.look(board.board, CHARTS, boxes=1)
    spent = board.spent()
    page = board.browser
    page.click("[data-test=form-item-value] .ant-select")
    wanted = {"AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"}
    page.wait(
        lambda: wanted == {e.text.strip() for e in page.all(".ant-select-item-option")}, "values"
    )
    assert board.spent() == spent
    page.click(".ant-select-item-option", "BUILDING")
    traffic = page.traffic()
    page.click("[data-test=filter-bar__apply-button]")
    filtered = board.answers(traffic, CHARTS)
    assert any("IN ('BUILDING" in statement for statement in filtered), list(filtered)
    (whole,) = next(rows for s, rows in shown.items() if "GROUP BY" not in s)
    (part,) = next(rows for s, rows in filtered.items() if "GROUP BY" not in s)
    assert 0.1 < part["Orders"] / whole["Orders"] < 0.35
    spent = board.spent()
    board.refresh(CHARTS)
    assert board.spent() == spent


def test_every_kind_of_chart_is_drawn_or_refused_in_words(board: Office) -> None:
    charts = [Chart(name, kind, parameters) for name, kind, parameters in KINDS]
    number = create(board.browser, "Kinds", board.sales, charts, [[i] for i in range(len(charts))])
    page = board.browser
    # as its box for times does; two first uses of the parser at once can fail in Superset
    page.api("GET", "time_range/?q='1995-01-01 : 1996-01-01'")
    traffic = page.traffic()
    page.open(f"/superset/dashboard/{number}/")
    page.wait(lambda: len(page.all(HOLDER)) == len(charts), "places of charts")
    for holder in page.all(HOLDER):
        # charts are asked for when they come into view
        page.driver.execute_script("arguments[0].scrollIntoView()", holder)
        page.wait(lambda h=holder: h.find_elements("css selector", DRAWN), "a chart")
    page.wait(lambda: not page.all("[data-test=loading-indicator]"), "all charts")
    text = {holder.text.split("\n")[0]: holder.text for holder in page.all(HOLDER)}
    failed = {name: told for name, told in text.items() if "rror" in told}
    assert set(failed) == set(REFUSED_KINDS), failed
    for name, told in failed.items():
        assert REFUSED_KINDS[name] in told, told
        assert "HINT:" in told
    drawn = data([answer for answer in traffic.seen() if answer[1] == 200])
    assert len(drawn) >= len(charts) - len(REFUSED_KINDS)
    assert all(drawn.values()), [statement for statement, rows in drawn.items() if not rows]


def test_explore_draws_and_its_samples_are_refused_with_a_hint(board: Office) -> None:
    page = board.browser
    board.look(board.board, CHARTS, boxes=1)
    (chart,) = page.api("GET", "chart/?q=(filters:!((col:slice_name,opr:eq,value:Regions)))")["ids"]
    spent = board.spent()
    page.open(f"/explore/?slice_id={chart}")
    page.wait(lambda: "AFRICA" in page.text(), "the chart")
    page.click("[role=tab]", "Samples")
    page.wait(lambda: "cannot be read" in page.text(), "the refusal")
    assert "HINT:" in page.text()
    assert "Numbers: SELECT count(*) FROM dpv." in page.text()
    assert page.toasts() == []
    # the pane counts first: the number that the dashboard shows
    assert board.spent() == spent


def test_sql_lab_answers_and_shows_the_refusal(connected: Office) -> None:
    page = connected.browser
    lab(connected, "SELECT o_orderpriority, count(*) AS n FROM dpv.orders GROUP BY 1 ORDER BY 1")
    page.wait(lambda: "5 rows" in page.text() and "4-NOT SPECIFIED" in page.text(), "the answer")
    spent = connected.spent()
    lab(connected, "SELECT * FROM dpv.orders LIMIT 100")
    page.wait(lambda: REFUSED in page.text(), "the refusal")
    assert HINT in page.text()
    connected.picture("superset-refusal.png")
    assert connected.spent() == spent


def lab(office: Office, statement: str) -> None:
    """Open SQL Lab with a statement and run it."""
    asked = {"dbid": office.connection, "schema": "dpv", "title": "look", "sql": statement}
    office.browser.open("/sqllab?" + urllib.parse.urlencode(asked | {"autorun": "true"}))


def test_cost_estimates_are_free(connected: Office) -> None:
    spent = connected.spent()
    for statement in (
        "SELECT count(*) FROM dpv.orders WHERE o_totalprice > 77",
        "SELECT * FROM dpv.orders",
    ):
        asked = {"database_id": connected.connection, "schema": "dpv", "sql": statement}
        (told,) = connected.browser.api("POST", "sqllab/estimate/", asked)["result"]
        assert "Total cost" in told
    assert connected.spent() == spent


def test_virtual_datasets_are_described_for_nothing(connected: Office) -> None:
    spent = connected.spent()
    number = dataset(
        connected,
        "dpv",
        "dear",
        "SELECT o_orderdate, o_totalprice / 1000 AS k FROM dpv.orders WHERE o_totalprice > 1000",
    )
    assert set(columns(connected, number)) == {"o_orderdate", "k"}
    assert connected.spent() == spent
    charts = [Chart("Dear", "echarts_timeseries_line", YEARLY)]
    board = create(connected.browser, "Dear", number, charts, [[0]])
    ((statement, rows),) = connected.look(board, charts).items()
    assert "AS virtual_table" in statement
    assert len(rows) == 7
    spent = connected.spent()
    number = dataset(
        connected,
        "dpv",
        "counted",
        "SELECT o_orderstatus, count(*) AS n FROM dpv.orders GROUP BY 1",
    )
    assert set(columns(connected, number)) == {"o_orderstatus", "n"}
    assert connected.spent() == spent


def test_values_of_a_column(connected: Office) -> None:
    api = connected.browser.api
    path = f"datasource/table/{connected.orders}/column/o_orderstatus/values/"
    assert api("GET", path)["result"] == ["F", "O", "P"]
    spent = connected.spent()
    assert api("GET", path)["result"] == ["F", "O", "P"]
    assert connected.spent() == spent


def test_everything_works_after_lockdown(board: Office) -> None:
    shown = board.look(board.board, CHARTS, boxes=1)
    spent = board.spent()
    board.database.sql("select * from dp.lockdown()")
    assert board.look(board.board, CHARTS, boxes=1) == shown
    assert board.spent() == spent
    board.browser.api("PUT", f"dataset/{board.sales}/refresh")
    board.browser.api("PUT", f"dataset/{board.orders}/refresh")
    tables = f"database/{board.connection}/tables/?q=(schema_name:dpv,force:!t)"
    assert board.browser.api("GET", tables)["result"]
    assert board.spent() == spent


def test_what_superset_sent_is_replayed_in_every_test_run(board: Office) -> None:
    """What it sent that tests/server/superset.json lacks; DPSQL_REWRITE=1 writes that file."""
    sent = statements_sent(board.database, TOOL)
    if os.environ.get("DPSQL_REWRITE"):
        REPLAYED.write_text(json.dumps(sent, indent=1, ensure_ascii=False) + "\n")
    assert [text for text in sent if text not in json.loads(REPLAYED.read_text())] == []
