"""psql at a terminal: its commands, its completion, Ctrl-C."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.server.waiting import wait_until

# pexpect forks, of which JAX warns where an earlier test loaded it; the child runs psql at once
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

PROMPT = "ready> "
STATUS = 'select o_status, count(*) as n from dpv."Orders" group by 1 order by 1'


class Terminal:
    """psql as somebody types into it."""

    def __init__(self, shop: Any) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        self.child = pexpect.spawn(
            str(shop.database.cluster.bin / "psql"), ["-X", shop.conninfo()], encoding="utf-8", timeout=60,
            dimensions=(60, 220), env=environment | {"TERM": "dumb", "PAGER": "cat", "PSQL_HISTORY": "/dev/null", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        self.child.expect("=> ")
        self.child.sendline("\\set PROMPT1 'ready> '")
        self.child.expect(f"\r\n{PROMPT}")
        self.type("\\set PROMPT2 'more> '")
        self.type("\\pset pager off")

    def type(self, line: str) -> str:
        """Type a line, return what is shown until the next prompt."""
        self.child.sendline(line)
        self.child.expect(f"\n{PROMPT}")
        shown: str = self.child.before.replace("\r", "")
        return shown

    def stop(self) -> None:
        """Press Ctrl-C."""
        self.child.sendintr()
        self.child.expect(f"\n{PROMPT}")

    def rows(self, line: str) -> list[list[str]]:
        """The rows of a table that is shown."""
        shown = [part for part in self.type(line).split("\n") if " | " in part]
        return [[cell.strip() for cell in part.split("|")] for part in shown[1:]]


@pytest.fixture(scope="module")
def psql(shop: Any) -> Iterator[Terminal]:
    terminal = Terminal(shop)
    yield terminal
    terminal.child.close(force=True)


def test_commands_describe_views(shop: Any, psql: Terminal) -> None:
    with shop.costs(0):
        described = psql.rows('\\d+ dpv."Orders"')
        assert ["o_amount", "numeric(10,2)", "", "", "", "main", "in euros"] in described
        assert "o_secret" not in str(described)
        assert [row[:3] for row in psql.rows("\\dv dpv.*")] == [
            ["dpv", "Orders", "view"],
            ["dpv", "customer", "view"],
        ]
        assert len(psql.rows("\\dv+ dpv.*")) == 2
        assert ["dpv", "Orders", "view", "postgres"] not in psql.rows("\\dt+ dpv.*")
        assert 'Did not find any relation named "dpv.*"' in psql.type("\\dt+ dpv.*")
        assert len(psql.rows("\\dt+ public.*")) == 2
        assert "dp_count" in str(psql.rows("\\df public.dp_count"))
        assert "dpv" in str(psql.rows("\\dn+"))
        assert "alice" in str(psql.rows("\\dp dpv.*")) or "dp_analyst=r" in str(
            psql.rows("\\dp dpv.*")
        )
        assert "refuse_rows" in psql.type('\\sv dpv."Orders"')
        for command in (
            "\\d",
            "\\d+",
            "\\df",
            "\\da",
            "\\l",
            "\\du",
            "\\dT",
            "\\dx",
            "\\di+ dpv.*",
            "\\ds",
            "\\dd",
            "\\z",
            "\\ddp",
            "\\dconfig dp.*",
        ):
            assert "ERROR" not in psql.type(command), command


def test_answers_go_where_psql_sends_them(shop: Any, psql: Terminal, tmp_path: Path) -> None:
    with shop.costs(2):
        known = psql.rows(f"{STATUS};")
        assert [row[0] for row in known] == ["back", "open", "sent"]
        psql.type("select count(*) as total from dpv.customer \\gset")
        assert re.fullmatch(r"-?\d+", psql.type("\\echo :total").split("\n")[1])
        assert (
            psql.rows(
                'select o_status, o_status as other, count(*) as n from dpv."Orders" group by 1 order by 1 \\crosstabview'
            )[0][0]
            == "back"
        )
        target = tmp_path / "answers.csv"
        assert "COPY 3" in psql.type(f"\\copy ({STATUS}) to '{target}' csv")
        assert [line.split(",") for line in target.read_text().split()] == known
        psql.type(f"{STATUS} \\g {target}")
        assert "back" in target.read_text()
        assert "n        | " in psql.type(f"{STATUS} \\gx")
        assert "does not exist" in psql.type("execute q;")
        psql.type(f"prepare q as {STATUS};")
        assert psql.rows("execute q;") == known
        psql.type("\\set FETCH_COUNT 2")
        assert psql.rows(f"{STATUS};") == known
        psql.type("\\unset FETCH_COUNT")
        assert (
            psql.rows("select 'select count(*) as n, 1 as one from dpv.customer' \\gexec")[0][1]
            == "1"
        )
    assert [
        [s, str(n)]
        for s, n in shop.stored('select o_status, dp_count(*) from "Orders" group by 1 order by 1')
    ] == known


def test_gdesc_and_explain_ask_nothing(shop: Any, psql: Terminal) -> None:
    with shop.costs(0):
        assert psql.rows('select o_status, count(*) as n, avg(o_amount) as mean from dpv."Orders" group by 1 \\gdesc') == [
            ["o_status", "text"], ["n", "bigint"], ["mean", "numeric"],
        ]  # fmt: skip
        assert psql.rows("select * from dpv.customer \\gdesc") == [
            ["c_id", "integer"],
            ["c_country", "text"],
        ]
        plan = psql.type(
            'explain select o_status, count(*) from dpv."Orders" where o_amount < 3 group by 1;'
        )
        assert "Function Scan on run" in plan


def test_watch_asks_once(shop: Any, psql: Terminal) -> None:
    with shop.costs(1):
        psql.child.sendline("select count(*) as n from dpv.customer where c_id < 23 \\watch 0.2")
        found = []
        for _ in range(4):
            psql.child.expect(r"\n +(-?\d+)\r\n\(1 row\)")
            found.append(psql.child.match.group(1))
        psql.stop()
    assert len(set(found)) == 1


def test_tab_completes_names_of_views_and_columns(shop: Any, psql: Terminal) -> None:
    with shop.costs(0):
        for typed, completed in (
            ("select count(*) from dpv.cus\t", "dpv.customer"),
            ("select count(*) from dpv.\t\t", 'dpv."Orders"'),
            ("set dp.eps\t", "dp.epsilon"),
        ):
            psql.child.send(typed)
            psql.child.expect_exact(completed)
            psql.stop()


def test_a_long_question_stops_at_ctrl_c(shop: Any, psql: Terminal) -> None:
    psql.child.sendline('select count(*) from dpv."Orders" as a, dpv."Orders" as b, dpv."Orders" as c'
                        " where a.o_id + b.o_id > c.o_id + 2;")  # fmt: skip

    def computes() -> bool:
        return bool(shop.database.sql("select 1 from pg_stat_activity where usename = 'alice' and state = 'active'"
                                      " and query like '%c.o_id + 2%' and clock_timestamp() - query_start > interval '0.7 s'"))  # fmt: skip

    wait_until(computes)
    psql.stop()
    assert "canceling statement due to user request" in psql.child.before
    assert psql.rows("select 1 as a, 2 as b;") == [["1", "2"]]


def test_refusals_are_shown_with_hint_and_place(shop: Any, psql: Terminal) -> None:
    with shop.costs(0):
        shown = psql.type("select * from dpv.customer limit 3;")
        assert "rows of the protected relation public.customer cannot be read" in shown
        assert "HINT:  Numbers: SELECT count(*) FROM dpv.customer." in shown
        shown = psql.type("select count(*), max(c_country) from dpv.customer;")
        assert "LINE 1: select count(*), max(c_country) from dpv.customer;" in shown
        assert shown.index("^") > 0
        shown = psql.type(
            'select count(*) from dpv.customer full join dpv."Orders" on c_id = o_customer;'
        )
        assert "outer joins are not supported" in shown
        psql.type("begin;")
        psql.type("select * from dpv.customer;")
        assert "current transaction is aborted" in psql.type("select 1;")
        psql.type("rollback;")
        psql.type("\\set ON_ERROR_ROLLBACK on")
        psql.type("begin;")
        psql.type("select * from dpv.customer;")
        assert "1 row" in psql.type("select 1;")
        psql.type("commit;")
