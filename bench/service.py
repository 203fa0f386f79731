"""Today's place of the reading against a service session, in turn, on a cluster of its own.

``python -m bench.service [--rounds 9] [--seconds 10] [--quick]``.  Two roles ask the same
questions of the same tables: one in its own backend, with a ledger connection; the other
through a service session (``dp.service = on``).  Each round measures both, first one first, then
the other; numbers are medians over rounds of medians within a round.

``ms`` is what the client waits, ``cpu_ms`` the processor time of all backends of the database per
question, which hardly depends on what else the machine does (the server's clock ticks are 10 ms,
so it is taken over all questions of a kind).  ``pgbench`` asks from 8 and 32 sessions at once.
Memory is Pss of all backends after 32 sessions asked; shared buffers apart.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.conftest import Database, Server, start_server
from tests.server.conftest import declare

PLACES = {"today": "alice", "service": "bob"}
SMALL = "select dp_count(*) from client"
JOIN = (
    "select r_name, dp_count(*) from region join client on c_region = r_id"
    " join purchase on p_client = c_id group by r_name order by r_name"
)
REFUSED = "select dp_count(*) from client where c_id > random()"
#: Large enough for a parallel plan, which service sessions do not make yet.
LARGE = "select dp_count(*) from big where b_kind > 3"
LARGE_ROWS = 1_000_000
SESSIONS = 32


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=5, help="of each pgbench run")
    parser.add_argument("--quick", action="store_true", help="only try whether everything runs")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 5
    server = start_server(durable=True, max_connections="200")
    try:
        database = _prepare(server)
        rows = _one_session(database, options) + _many_sessions(database, options)
        rows += _memory(database)
    finally:
        server.remove()
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(json.dumps({"bench": "service", "rounds": options.rounds, "rows": rows}))


def _prepare(server: Server) -> Database:
    database: Database = declare(server.create_database())
    database.sql(
        "create table big (b_id int primary key, b_kind int);"
        f" insert into big select i, i % 10 from generate_series(1, {LARGE_ROWS}) as i;"
        " alter table big owner to owner1"
    )
    with database.connect("owner1") as owner:
        owner.execute("select dp.protect('big')")
        for role in PLACES.values():
            owner.execute(f"select dp.grant_budget('{role}', epsilon => 1000000, delta => 0.001)")
    database.sql(f"alter role {PLACES['service']} set dp.service = on")
    for role in PLACES.values():
        with database.connect(role) as session:
            for question in (SMALL, JOIN):
                session.execute(question)
    database.sql("vacuum analyze")
    database.sql("checkpoint")
    return database


def _one_session(database: Database, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One session at a time: cached, refused, fresh, and the first answer of a new one."""
    scale = 1 if options.quick else 10
    seen: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for turn in range(options.rounds):
        places = list(PLACES.items())
        for place, role in places if turn % 2 == 0 else places[::-1]:
            for kind, ask, number in _kinds(database, role, scale):
                with ask as one:
                    seen[place, kind].append(_measured(database, one, number))
    return [
        {
            "kind": kind,
            "place": place,
            "ms": round(statistics.median(ms for ms, _ in found), 3),
            "least_ms": round(min(ms for ms, _ in found), 3),
            "cpu_ms": round(statistics.median(cpu for _, cpu in found), 3),
        }
        for (place, kind), found in sorted(seen.items(), key=lambda item: item[0][1])
    ]


def _kinds(database: Database, role: str, scale: int) -> Iterator[tuple[str, Any, int]]:
    fresh = "set dp.epsilon = 0.001; set dp.fresh = on"
    yield "cached", _asking(database, role, SMALL), 50 * scale
    yield "cached join", _asking(database, role, JOIN), 30 * scale
    yield "refused", _asking(database, role, REFUSED), 50 * scale
    yield "fresh", _asking(database, role, SMALL, fresh), 10 * scale
    yield "fresh join", _asking(database, role, JOIN, fresh), 3 * scale
    yield "fresh, a million rows", _asking(database, role, LARGE, fresh), max(1, scale // 2)
    yield "new text", _new_texts(database, role), 5 * scale
    yield "first answer", _connecting(database, role), 2 * scale


@contextmanager
def _asking(
    database: Database, role: str, question: str, settings: str = "select"
) -> Iterator[Callable[[], None]]:
    """Ask the same question in one session that is warm."""
    with database.connect(role) as session:
        session.execute("set client_min_messages = error")
        session.execute(settings)  # type: ignore[arg-type]
        session.prepare_threshold = None

        def ask() -> None:
            try:
                session.execute(question).fetchall()  # type: ignore[arg-type]
            except psycopg.ProgrammingError as error:
                if question != REFUSED or error.sqlstate != "PD013":
                    raise

        for _ in range(5):
            ask()
        yield ask


@contextmanager
def _new_texts(database: Database, role: str) -> Iterator[Callable[[], None]]:
    """Ask a text that the session has not seen, and pay for it."""
    with database.connect(role) as session:
        session.execute(
            "set client_min_messages = error; set dp.epsilon = 0.001; set dp.fresh = on"
        )
        numbers = iter(range(1, 1_000_000))

        def ask() -> None:
            session.execute(
                f"select dp_count(*) from client where c_id > {next(numbers)}"
            ).fetchall()  # type: ignore[arg-type]

        ask()
        yield ask


@contextmanager
def _connecting(database: Database, role: str) -> Iterator[Callable[[], None]]:
    """Connect and ask what was paid for; the session ends outside of the time."""
    opened: list[psycopg.Connection[Any]] = []

    def ask() -> None:
        opened.append(psycopg.connect(database.conninfo(role), autocommit=True))
        opened[-1].execute("set client_min_messages = error")
        opened[-1].execute(SMALL).fetchall()

    yield ask
    for session in opened:
        session.close()


def _measured(database: Database, ask: Callable[[], None], number: int) -> tuple[float, float]:
    """Return the median of the times and the mean of the processor times, in milliseconds."""
    times = []
    before = _processor(database)
    for _ in range(number):
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    used = _processor(database) - before
    return 1e3 * statistics.median(times), 1e3 * used / number


def _pids(database: Database) -> list[int]:
    rows = database.sql(
        "select pid from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid()"
    )
    return [int(row[0]) for row in rows]


def _processor(database: Database) -> float:
    """Return the seconds that the backends have used, those that are still there."""
    used = 0.0
    for pid in _pids(database):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def _many_sessions(database: Database, options: argparse.Namespace) -> list[dict[str, Any]]:
    """pgbench from 8 and 32 sessions: cached and fresh questions."""
    seen: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for turn in range(options.rounds):
        places = list(PLACES.items())
        for place, role in places if turn % 2 == 0 else places[::-1]:
            for sessions in (8, SESSIONS):
                for kind in ("cached", "fresh"):
                    tps = _pgbench(database, role, kind, sessions, options.seconds)
                    seen[kind, sessions, place].append(tps)
    return [
        {
            "kind": f"{kind}, {sessions} sessions",
            "place": place,
            "per_second": round(statistics.median(found), 1),
        }
        for (kind, sessions, place), found in sorted(seen.items())
    ]


def _pgbench(database: Database, role: str, kind: str, sessions: int, seconds: int) -> float:
    settings = "-c client_min_messages=error"
    if kind == "fresh":
        settings += " -c dp.epsilon=0.001 -c dp.fresh=on"
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        # a fresh question is each session's own, so that none waits for another's answer
        script.write(f"{SMALL} where c_id <> :client_id;\n" if kind == "fresh" else f"{SMALL};\n")
        script.flush()
        found = subprocess.run(
            [
                str(database.cluster.bin / "pgbench"),
                *("-n", "-c", str(sessions), "-j", "2", "-T", str(seconds), "-f", script.name),
                *("-h", str(database.cluster.socket), "-U", role, database.name),
            ],
            env=os.environ | {"PGOPTIONS": settings},
            capture_output=True,
            text=True,
            check=False,
        )
    tps = re.search(r"^tps = ([0-9.]+)", found.stdout, re.M)
    if found.returncode or tps is None:
        raise RuntimeError(found.stdout + found.stderr)
    return float(tps.group(1))


def _memory(database: Database) -> list[dict[str, Any]]:
    """Pss of all backends of the database after 32 sessions asked, one place after the other."""
    rows = []
    for place, role in PLACES.items():
        while _pids(database):
            time.sleep(0.1)
        sessions = [
            psycopg.connect(database.conninfo(role), autocommit=True) for _ in range(SESSIONS)
        ]
        for session in sessions:
            session.execute("set client_min_messages = error; set dp.epsilon = 0.001")
            session.execute("set dp.fresh = on")
            for question in (SMALL, JOIN):
                session.execute(question).fetchall()  # type: ignore[arg-type]
            session.execute("set dp.fresh = off")
            session.execute(JOIN).fetchall()
        pids = _pids(database)
        found: dict[str, int] = defaultdict(int)
        for pid in pids:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                if name.startswith("Pss") and rest:
                    found[name] += int(rest.split()[0])
        rows.append(
            {
                "kind": f"memory of {SESSIONS} sessions",
                "place": place,
                "backends": len(pids),
                "private_mb": round((found["Pss_Anon"] + found["Pss_File"]) / 1024, 1),
                "anon_mb": round(found["Pss_Anon"] / 1024, 1),
                "pss_mb": round(found["Pss"] / 1024, 1),
            }
        )
        for session in sessions:
            session.close()
    return rows


if __name__ == "__main__":
    main()
