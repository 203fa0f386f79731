"""``dpsql`` on the command line: what it does, prints, and how it ends."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql._version import __version__
from dpsql.client import waiting
from tests.server.commanding import Command, commander
from tests.server.releasing import declare
from tests.server.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SHOP = """
create table public.client (c_id integer primary key, c_kind text);
create table public.sale (s_id integer primary key, s_client integer not null references public.client);
insert into client select i, 'abc' from generate_series(1, 50) as i;
insert into sale select i, 1 + i % 50 from generate_series(1, 200) as i;
alter table client owner to owner1; alter table sale owner to owner1;
grant dp_owner to owner1;
"""


@pytest.fixture
def command(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in ("PGHOST", "PGUSER", "PGDATABASE", "PGPORT", "DPSQL_DSN"):
        monkeypatch.delenv(name, raising=False)
    return commander(capfd, monkeypatch)


@pytest.fixture
def shop(database: Any) -> Iterator[Any]:
    database.sql(SHOP)
    yield database
    database.sql("revoke dp_owner from owner1")


def test_an_owner_protects_grants_and_looks(
    shop: Any, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("owner1"))
    done = command(
        "protect", "client", "--unit", "c_id", "--epsilon", "50", "--delta", "1e-5", "--json"
    )
    assert (done.code, [row["relation"] for row in done.document]) == (
        0,
        ["public.client", "public.sale"],
    )
    assert {row["kind"] for row in done.document} == {"protected"}
    assert set(done.document[0]) == {"relation", "kind", "neighbours", "privacy_unit", "problem"}
    assert "public.sale" in command("protect", "client", "--unit", "c_id").out

    done = command("budgets", "grant", "alice", "--epsilon", "3", "--window", "1 month", "--json")
    assert done.code == 0
    assert done.document["epsilon_limit"] == 3
    assert done.document["budget_window"] == "1 mon"
    assert {one["severity"] for one in done.said} <= {"NOTICE", "WARNING"}
    done = command(
        "budgets", "grant", "alice", "--epsilon", "0.1", "--delta", "1e-7", "--composition", "zcdp"
    )
    assert (done.code, done.out) == (0, "alice: epsilon 0.1, delta 1E-7\n")
    assert "dpsql: NOTICE: the budget of role alice was replaced" in done.err
    assert "\nDETAIL: Before: epsilon = 3" in done.err
    assert (
        command("budgets", "grant", "alice", "--epsilon", "5", "--composition", "basic").code == 0
    )

    shop.sql("select dp_count(*) from sale", user="alice")
    listed = command("budgets", "list", "--json").document
    assert [(row["account"], row["role"], row["relation"]) for row in listed] == [
        ("role", "alice", None),
        ("relation", None, "public.client"),
    ]
    assert listed[0]["epsilon_spent"] == 1
    assert listed[1]["epsilon_limit"] == 50
    assert re.search(r"^role +alice +5 +1 +4", command("budgets", "list").out, re.M)
    for account in ("alice", "client", "public.client"):
        (step,) = command("budgets", "burn", account, "--step", "1 day", "--json").document
        assert (step["epsilon"], step["epsilon_spent"], step["spends"]) == (1, 1, 1)
    assert len(command("budgets", "burn", "--json").document) == 2
    assert command("budgets", "burn", "nobody", "--json").document == []

    done = command("status", "--json")
    facts = done.document
    assert (facts["role"], facts["owner"], facts["ledger"]) == ("owner1", True, "ok")
    assert facts["client_version"] == facts["extension_version"] == __version__
    assert set(facts["lockdown_holes"]) <= {"critical", "high", "medium", "low"}
    assert facts["refusals_today"] == 0
    assert facts["running"] == []
    assert "public.sale" in command("status").out

    assert command("budgets", "revoke", "alice").out == "alice: no budget\n"
    with pytest.raises(psycopg.Error):
        shop.sql("select dp_count(*) from client", user="alice")
    assert command("status", "--json").document["refusals_today"] == 1


def test_names_are_names(shop: Any, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is typed becomes SQL, and nothing in a name moves the cursor."""
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("owner1"))
    odd = 'Odd "role"; --\x1b[31m'
    shop.sql(f'create role "{odd.replace(chr(34), 2 * chr(34))}"')
    try:
        done = command("budgets", "grant", odd, "--epsilon", "2", "--json")
        assert (done.code, done.document["role"]) == (0, odd)
        out = command("budgets", "list").out
        assert "\x1b" not in out
        assert 'Odd "role"; --' in out
        assert command("budgets", "burn", odd).code == 0
        assert command("budgets", "revoke", odd).code == 0
    finally:
        shop.sql(f'drop role "{odd.replace(chr(34), 2 * chr(34))}"')
    assert command("protect", "client'); drop table client; --").code == 1
    assert shop.sql("select count(*) from client") == [(50,)]


def test_errors_go_to_standard_error_with_their_hint(
    shop: Any, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("alice"))
    done = command("protect", "client")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("dpsql: ERROR: ")
    done = command("protect", "nothing", "--json")
    assert (done.code, done.out) == (1, "")
    assert done.said[-1]["severity"] == "ERROR"
    assert done.said[-1]["sqlstate"] == "42P01"
    shop.sql("select dp.protect('client'), dp.grant_budget('alice', 1)")
    query = "select c_kind, count(*) from client group by c_kind"
    done = command("release", "kinds", query, "--epsilon", "1", "--json")
    assert done.code == 1
    assert done.said[-1]["sqlstate"].startswith("PD")
    assert done.said[-1]["hint"]
    assert "\nHINT: " in command("release", "kinds", query).err
    # a role that may see nothing
    shop.sql("select dp.revoke_budget('alice'); revoke dp_analyst from alice")
    done = command("status", "--json")
    assert (done.code, done.document["relations"], done.document["ledger"]) == (0, [], None)
    # no server there
    done = command("status", "--dsn", "host=/nowhere port=1")
    assert (done.code, done.out) == (1, "")
    assert "dpsql: ERROR: connection to server" in done.err
    assert "\nHINT: --dsn" in done.err
    done = command("status", "--dsn", "not a connection string")
    assert (done.code, done.out) == (1, "")
    assert "\nHINT: --dsn" in done.err


def test_a_database_without_the_extension_says_so(server: Any, command: Command) -> None:
    dsn = server.cluster.conninfo(dbname="postgres")
    for words in (["status"], ["budgets", "list"], ["report", "--json"]):
        done = command(*words, "--dsn", dsn)
        assert (done.code, done.out) == (1, "")
        assert 'database "postgres" has no extension dpsql' in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["protect"],
        ["budgets", "grant", "alice"],
        ["budgets", "grant", "alice", "--epsilon", "much"],
        ["budgets", "grant", "alice", "--epsilon", "inf"],
        ["release", "r"],
        ["release", "r", "select 1", "--file", str(ROOT / "README.md")],
        ["release", "r", "--file", "/no/such/file"],
        ["synthesize", "copy"],
        ["synthesize", "copy", "client", "--resume", "1"],
        ["report"],
        ["report", "--json", "--without", "everything"],
    ],
)
def test_wrong_usage_ends_with_2_before_a_connection(command: Command, words: list[str]) -> None:
    done = command(*words) if words == ["nonsense"] else command(*words, "--dsn", "host=/nowhere")
    assert (done.code, done.out) == (2, "")
    assert "Error" in done.err


def test_a_release_by_argument_file_and_standard_input(
    database: Any, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sales = declare(database)
    monkeypatch.setenv("DPSQL_DSN", sales.conninfo("alice"))
    query = "select s_state, dp_count(*) from sale group by s_state"
    done = command("release", "one", query, "--epsilon", "1", "--json")
    assert (done.code, done.document["name"], done.document["relation"]) == (0, "one", "dpv.one")
    assert done.document["epsilon"] == 1
    file = tmp_path / "query.sql"
    file.write_text(query)
    done = command(
        "release", "two", "--file", str(file), "--epsilon", "1", "--postprocess", "integral"
    )
    assert done.code == 0
    assert re.search(r"^relation +dpv.two$", done.out, re.M)
    assert sales.sql("select count(*) > 0 from dpv.two", user="alice") == [(True,)]


def test_a_synthesis_is_written(
    shop: Any, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql(
        "select dp.protect('client', 'c_id'); select dp.grant_budget('owner1', 20, 1e-5)",
        user="owner1",
    )
    shop.sql("create schema copy authorization owner1")
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("owner1"))
    # the 200 sales have noise of a standard deviation of 11: none at all is below 1e-70
    words = ["copy", "client", "sale", "--epsilon", "16", "--placeholders", "--json"]
    done = command("synthesize", *words, "--d-max", '{"sale": 8}')
    assert (done.code, done.document["target"], done.document["state"]) == (0, "copy", "done")
    assert done.document["epsilon"] == 16
    assert shop.sql("select count(*) > 0 from copy.sale", user="owner1") == [(True,)]
    # what is complete stays so
    number = str(done.document["id"])
    assert command("synthesize", "copy", "--resume", number).code == 0
    assert command("synthesize", "copy", "--resume", "4711").code == 1
    done = command("synthesize", "another", "--resume", number)
    assert (done.code, done.out) == (1, "")


def test_the_bar_follows_a_release(database: Any) -> None:
    """What dp.progress tells of another session, and of the rows that a synthesis wrote."""
    with database.connect() as watcher:
        assert waiting.look(watcher, 1, None) is None
        assert waiting.look(watcher, 1, "copy") is None
        database.sql(
            "insert into dp.synthesis (target, role_name, role_oid, state, settings, plan, payload, seed,"
            " epsilon, delta, relations, protected, incarnation)"
            " select 'copy', 'postgres', 10, 'writing', '{}', '{}', '', 1, 1, 0, '{}', '{}', i.token"
            " from dp.ledger_incarnation as i"
        )
        database.sql("insert into dp.synthesis_table values (1, 1, 'copy', 't', 0, 50, 20)")
        assert waiting.look(watcher, 1, "copy") == waiting.Step("writing", 20, 50)


def test_no_bar_without_a_terminal_and_one_with_it(database: Any, monkeypatch: Any) -> None:
    sales = declare(database)
    words = [sys.executable, "-m", "dpsql.client.cli", "release", "bar", "--epsilon", "1", "--json"]
    words += ["--dsn", sales.conninfo("alice")]
    words.append(
        "select s_state, s_big, s_day, dp_count(*) from sale group by cube (s_state, s_big, s_day)"
    )
    environment = os.environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)}
    plain = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert "\x1b" not in plain.stderr
    outer, inner = pty.openpty()
    seen: list[bytes] = []
    reader = threading.Thread(target=_read, args=(outer, seen))
    reader.start()
    words[words.index("bar")] = "bar2"
    with sales.connect() as blocker:
        # hold what the release reads, so that it lasts
        blocker.execute("begin; lock table sale in access exclusive mode")
        shown = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=inner, env=environment)
        wait_until(lambda: b"waiting" in b"".join(seen))
        assert shown.poll() is None
        blocker.execute("rollback")
    out, _ = shown.communicate(timeout=300)
    os.close(inner)
    reader.join(120)
    os.close(outer)
    assert shown.returncode == 0
    assert b'"bar2"' in out
    assert b"\x1b" not in out


def _read(descriptor: int, into: list[bytes]) -> None:
    try:
        while block := os.read(descriptor, 4096):
            into.append(block)
    except OSError:  # the other end is closed
        pass


def test_help_has_examples_and_versions_agree(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    assert "--install-completion" in done.out
    for name in ("status", "protect", "release", "synthesize", "report", "install"):
        told = command(name, "--help").out
        assert "Example:\n    dpsql " in told
        assert "--json" in told
    for name in ("list", "grant", "revoke", "burn"):
        assert f"dpsql budgets {name}" in command("budgets", name, "--help").out
    assert command("version", "--json").document == {"version": __version__}
    assert command("version").out == f"{__version__}\n"


def test_documented_keys_are_those_that_are_printed(
    shop: Any, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    rows = {
        match[1]: set(re.findall(r"`([a-z_]+)`", match[2].replace("`protect`", "")))
        for match in re.finditer(r"^\| `dpsql ((?:budgets )?[a-z]+).*\| ([^|]*) \|$", page, re.M)
    }
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("owner1"))
    shop.sql("select dp.protect('client'), dp.grant_budget('alice', 2)", user="owner1")
    shop.sql("select dp_count(*) from client", user="alice")
    assert set(command("budgets", "list", "--json").document[0]) == rows["budgets list"]
    assert set(command("budgets", "burn", "--json").document[0]) == rows["budgets burn"]
    assert set(command("protect", "client", "--json").document[0]) == rows["protect"]
    running = {
        "pid",
        "command",
        "relation",
        "phase",
        "rounds_done",
        "rounds_total",
        "started_at",
        "time_left",
    }
    assert set(command("status", "--json").document) == rows["status"] - running - {"advice"} | {
        "relations"
    }
