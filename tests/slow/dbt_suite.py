"""dbt builds, tests and documents models over exposed views: `make clients`.

The file's name keeps it out of `make test`, which must not install dbt.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.exposing import EXPOSE, SET_UP

pytestmark = pytest.mark.server

DBT = Path(__file__).parents[2] / ".dpsql" / "dbt" / "bin" / "dbt"
ROLE = "dbt_runner"
PREPARE = f"""
reset role;
create role {ROLE} login;
create schema marts authorization {ROLE};
select dp.grant_budget('{ROLE}', epsilon => 100, delta => 1e-6);
alter role {ROLE} set dp.epsilon = 0.5;
"""
#: The project as somebody writes it (docs/clients.md).
PROJECT = {
    "dbt_project.yml": """
name: shop
version: '1.0'
profile: shop
model-paths: [models]
flags: {send_anonymous_usage_stats: false}
""",
    "models/sources.yml": """
sources:
  - name: shop
    schema: dpv
    tables:
      - name: Orders
        quoting: {identifier: true}
      - name: customer
""",
    "models/stg_orders.sql": """
{{ config(materialized='view') }}
with source as (select * from {{ source('shop', 'Orders') }})
select o_id as id, o_customer as customer_id, o_status as status, o_amount as amount, o_at as placed_at from source
""",
    "models/stg_customers.sql": """
{{ config(materialized='view') }}
select c_id as id, c_country as country from {{ source('shop', 'customer') }}
""",
    "models/by_status.sql": """
{{ config(materialized='table') }}
select status, count(*) as orders, sum(amount) as total from {{ ref('stg_orders') }} group by 1
""",
    "models/by_country.sql": """
{{ config(materialized='table') }}
with orders as (select * from {{ ref('stg_orders') }}), customers as (select * from {{ ref('stg_customers') }}),
joined as (select customers.country, orders.amount from orders left join customers on orders.customer_id = customers.id)
select country, count(*) as orders, avg(amount) as mean from joined group by country
""",
    "models/by_month.sql": """
{{ config(materialized='incremental', unique_key='month') }}
select date_trunc('month', placed_at)::date as month, count(*) as orders from {{ ref('stg_orders') }}
{% if is_incremental() %}
{% set since = run_query('select max(month) from ' ~ this).columns[0][0] %}
where placed_at >= timestamp '{{ since }}'
{% endif %}
group by 1
""",
    "models/shares.sql": """
{{ config(materialized='view') }}
select status, orders / sum(orders) over () as share from {{ ref('by_status') }}
""",
    "models/live.sql": """
{{ config(materialized='view') }}
select status, count(*) as orders from {{ ref('stg_orders') }} where amount < 50 group by status
""",
    "models/schema.yml": """
models:
  - name: by_status
    description: Orders by status, with noise
    columns:
      - name: status
        description: How far the order is
        data_tests: [not_null, unique, {accepted_values: {arguments: {values: [open, sent, back]}}}]
      - name: orders
        data_tests: [not_null]
  - name: shares
    columns:
      - name: status
        data_tests: [{relationships: {arguments: {to: ref('by_status'), field: status}}}]
  - name: by_month
    columns:
      - name: month
        data_tests: [unique, not_null]
""",
}


@dataclass
class Project:
    """A dbt project whose target is the database of a shop."""

    folder: Path
    database: Any

    def dbt(self, *words: str) -> subprocess.CompletedProcess[str]:
        quiet = [] if words == ("debug",) else ["--quiet"]
        return subprocess.run(
            [str(DBT), "--no-use-colors", *quiet, *words, "--project-dir", str(self.folder), "--profiles-dir", str(self.folder)],
            capture_output=True, text=True, timeout=300, cwd=self.folder,
        )  # fmt: skip

    def succeeds(self, *words: str) -> str:
        done = self.dbt(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def questions(self) -> int:
        ((number,),) = self.database.sql("select count(*) from dp.ledger")
        return int(number)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.conninfo(ROLE)) as session:
            return session.execute(statement).fetchall()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.lstrip())


@pytest.fixture(scope="module")
def project(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    for database in asking.made(server, SET_UP + EXPOSE + PREPARE):
        project = Project(tmp_path_factory.mktemp("dbt"), database)
        profile = {"type": "postgres", "host": str(database.cluster.socket), "port": 5432, "user": ROLE, "password": "",
                   "dbname": database.name, "schema": "marts", "threads": 2}  # fmt: skip
        profiles = json.dumps({"shop": {"target": "test", "outputs": {"test": profile}}})
        project.write(PROJECT | {"profiles.yml": profiles})
        yield project
        database.sql(f"drop owned by {ROLE} cascade; select dp.revoke_budget('{ROLE}')")
    with psycopg.connect(server.cluster.conninfo(), autocommit=True) as session:
        session.execute(f"drop role {ROLE}")


@pytest.fixture(scope="module")
def built(project: Project) -> Project:
    """The project after its first run."""
    project.succeeds("debug")
    project.succeeds("run")
    return project


def test_models_hold_private_answers(built: Project) -> None:
    found = built.rows("select status, orders, total from marts.by_status order by 1")
    assert [row[0] for row in found] == ["back", "open", "sent"]
    before = built.questions()
    asked = 'select o_status, dp_count(*), dp_sum(o_amount) from "Orders" group by 1 order by 1'
    assert built.rows(asked) == found
    assert built.questions() == before
    assert len(built.rows("select * from marts.by_country")) == 2
    assert len(built.rows("select * from marts.by_month")) == 3
    assert (
        abs(sum(float(share) for (share,) in built.rows("select share from marts.shares")) - 1)
        < 1e-9
    )


def test_a_second_run_and_a_full_refresh_cost_nothing(built: Project) -> None:
    known = built.rows("select * from marts.by_status order by 1")
    built.succeeds("run")
    before = built.questions()
    for words in (("run",), ("run", "--full-refresh"), ("build",)):
        built.succeeds(*words)
    assert built.questions() == before
    assert built.rows("select * from marts.by_status order by 1") == known


def test_an_increment_asks_for_what_is_new_alone(built: Project) -> None:
    built.succeeds("run", "--select", "by_month")
    found = built.rows("select month, orders from marts.by_month order by 1")
    assert len(found) == 3
    assert len({month for month, _ in found}) == 3


def test_staging_views_refuse_rows_and_views_of_questions_ask(built: Project) -> None:
    with pytest.raises(psycopg.Error) as caught:
        built.rows("select * from marts.stg_orders")
    assert caught.value.sqlstate == "PD010"
    first = built.rows("select status, orders from marts.live order by 1")
    before = built.questions()
    assert built.rows("select status, orders from marts.live order by 1") == first
    assert built.questions() == before


def test_tests_of_models_pass_and_cost_nothing(built: Project) -> None:
    built.succeeds("run")
    before = built.questions()
    built.succeeds("test")
    assert built.questions() == before


def test_documentation_finds_views_columns_and_comments(built: Project) -> None:
    before = built.questions()
    built.succeeds("docs", "generate")
    assert built.questions() == before
    catalogue = json.loads((built.folder / "target" / "catalog.json").read_text())
    assert catalogue["errors"] is None
    source = catalogue["sources"]["source.shop.shop.Orders"]
    assert source["metadata"]["type"] == "VIEW"
    assert source["metadata"]["comment"].startswith("what was bought")
    assert source["columns"]["o_amount"]["type"] == "numeric(10,2)"
    assert source["columns"]["o_amount"]["comment"] == "in euros"
    assert set(catalogue["nodes"]["model.shop.by_status"]["columns"]) == {
        "status",
        "orders",
        "total",
    }


def test_dry_runs_cost_nothing(built: Project) -> None:
    before = built.questions()
    built.succeeds("compile")
    built.succeeds("run", "--empty", "--select", "stg_orders", "by_status", "by_country")
    assert built.questions() == before
    built.succeeds("run")
    assert built.questions() == before


def test_show_prints_an_answer(built: Project) -> None:
    text = "select status, count(*) as n from {{ ref('stg_orders') }} group by 1"
    shown = built.dbt("show", "--inline", text, "--output", "json")
    assert shown.returncode == 0, shown.stdout
    assert {"back", "open", "sent"} <= set(shown.stdout.replace('"', " ").split())


def test_a_model_of_rows_fails_with_the_refusal(built: Project) -> None:
    built.write(
        {
            "models/rows.sql": "{{ config(materialized='table') }} select * from {{ ref('stg_orders') }}"
        }
    )
    before = built.questions()
    failed = built.dbt("run", "--select", "rows")
    (built.folder / "models" / "rows.sql").unlink()
    assert failed.returncode == 1
    assert "rows of the protected relation" in failed.stdout
    assert "SELECT count(*) FROM dpv" in failed.stdout
    assert built.questions() == before


def test_tests_of_sources_are_questions(built: Project) -> None:
    """What compares values of a declared domain passes; what counts rows counts with noise."""
    tests = """
sources:
  - name: shop
    schema: dpv
    tables:
      - name: Orders
        columns:
          - name: o_status
            data_tests: [{accepted_values: {arguments: {values: [open, sent, back]}}}]
          - name: o_customer
            data_tests: [{relationships: {arguments: {to: "source('shop', 'customer')", field: c_id}}}]
      - name: customer
"""
    built.write({"models/sources.yml": tests})
    passed = built.dbt("test", "--select", "source:shop,test_name:accepted_values")
    before = built.questions()
    counted = built.dbt("test", "--select", "source:shop,test_name:relationships")
    built.write({"models/sources.yml": PROJECT["models/sources.yml"]})
    assert passed.returncode == 0, passed.stdout
    assert "Error" not in counted.stdout
    assert built.questions() == before + 1
