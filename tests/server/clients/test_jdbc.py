"""JDBC: a Java program with PostgreSQL's driver, compiled here, tells what it finds."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.server.clients.conftest import EPSILON
from tests.server.clients.relay import tcp_port

#: Debian's libpostgresql-jdbc-java, which scripts/bootstrap.sh installs
DRIVER = "/usr/share/java/postgresql.jar"
PROGRAM = Path(__file__).with_name("Jdbc.java")
#: Questions that the program asks: prepared, with an array, by cursor, and the one that it gives up
ASKED = 4

Told = dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def told(shop: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = str(tmp_path_factory.mktemp("jdbc"))
    compile_ = ["javac", "-cp", DRIVER, "-d", folder, str(PROGRAM)]
    subprocess.run(compile_, check=True, timeout=120)
    before = shop.questions()
    with tcp_port(f"{shop.database.cluster.socket}/.s.PGSQL.5432") as port:
        url = (f"jdbc:postgresql://127.0.0.1:{port}/{shop.database.name}?user=alice&sslmode=disable&prepareThreshold=3"
               f"&options=-c%20dp.epsilon={EPSILON}")  # fmt: skip
        run = ["java", "-cp", f"{folder}:{DRIVER}", "Jdbc", url]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: Told = defaultdict(list)
    for line in done.stdout.splitlines():
        name, *values = line.split("\t")
        found[name].append(values)
    found["asked"] = [[str(shop.questions() - before)]]
    return found


def test_views_are_found_with_columns_and_comments(told: Told) -> None:
    assert told["schema"] == [["dpv"]]
    assert [row[:2] for row in told["table"]] == [["Orders", "VIEW"], ["customer", "VIEW"]]
    assert told["table"][0][2].startswith("what was bought; stands for the protected relation")
    columns = {row[0]: row[1:] for row in told["column"]}
    assert list(columns) == [
        "o_id", "o_customer", "o_status", "o_amount", "o_day", "o_at", "o_channel", "o_note", "o_extra",
    ]  # fmt: skip
    assert columns["o_amount"] == ["numeric", "2", "10", "in euros"]
    assert columns["o_id"][0] == "int8"
    assert columns["o_id"][-1] == "primary key"
    assert columns["o_day"][:2] == ["date", "91"]
    # a view has no keys, and looking for them is no error
    assert [name for name in told if name.startswith("key")] == []
    assert ["dp_analyst", "SELECT"] in told["privilege"]


def test_statements_are_described_without_being_asked(told: Told) -> None:
    assert [row[:3] for row in told["shape"]] == [
        ["Status", "text", "java.lang.String"],
        ["n", "int8", "java.lang.Long"],
        ["total", "numeric", "java.math.BigDecimal"],
        ["mean", "numeric", "java.math.BigDecimal"],
    ]
    assert told["probe"] == [["9", "false"]]


def test_prepared_statements_tell_one_answer(shop: Any, told: Told) -> None:
    rows = told["prepared"]
    assert [row[0] for row in rows[:3]] == ["back", "open", "sent"]
    assert rows == rows[:3] * 8
    assert told["on the server"] == [["true"]]
    known = shop.stored("select o_status, dp_count(*) from \"Orders\" where o_amount < 50 and o_day >= '2024-01-15'"
                        " group by 1 order by 1")  # fmt: skip
    assert [[s, str(n)] for s, n in known] == rows[:3]
    assert len(told["array"]) == 1


def test_cursors_and_read_only_transactions(told: Told) -> None:
    assert told["fetched"] == [["91"]]
    assert told["scrolled"] == [["91"]]


def test_errors_are_told_and_the_connection_goes_on(told: Told) -> None:
    assert [row[0] for row in told["refused"]] == ["PD010", "PD011", "PD010"]
    assert 'SELECT count(*) FROM dpv."Orders"' in told["refused"][0][1]
    assert "Use count, sum" in told["refused"][1][1]
    assert told["goes on"] == [["1"]] * 3
    assert told["canceled"] == [["57014"]]
    assert "answered" not in told


def test_only_questions_are_charged(told: Told) -> None:
    assert told["asked"][0][0] in (str(ASKED - 1), str(ASKED))
