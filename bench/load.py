"""32 clients at once: fresh, cached, released and refused questions for two minutes.

``python -m bench.load [--clients 32] [--seconds 120] [--rate 560]``, on the cluster that
``make up`` started, in its database ``customers``, whose privacy unit is a customer with all
orders.  Each client is a session of its own that asks at random moments (a Poisson process), so
that together they offer ``--rate`` questions a second; what comes while its session is busy waits,
and its time counts from when it was due.  ``--rate 0`` lets each ask again at once: what the
server can do.

Prints a table and, last, one JSON line: a row for each kind, one for the ledger, where what was
charged and what was answered must be the same amount, one for the memory of all server
processes (``Pss`` without shared buffers' files, so pages that processes share count once), and
one for the processor time that a question took on average, in the server and in its client: it
hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from bench.data import superuser

DATABASE = "customers"
ROLE = "alice"
EPSILON = 0.01
PROCESSES = 4
#: Of a thousand questions, how many are of each kind.
MIX = {"cached": 450, "released": 450, "refused": 90, "fresh": 10}
RELEASE = "bench_load"
STATUS = ("F", "O", "P")
#: Rows that count of each unit: a release answers only who cuts them off as it did.
MOST_ROWS = 20

CACHED = [
    "select dp_count(*) from orders where o_orderstatus = 'F'",
    "select dp_count(*) from customer",
    "select n_name, dp_count(*) from nation join customer on c_nationkey = n_nationkey"
    " group by n_name",
    "select o_orderstatus, dp_count(*) from orders group by o_orderstatus",
    "select dp_count(*) from customer join orders on o_custkey = c_custkey"
    " where o_orderdate >= '1995-01-01'",
]
RELEASED = [
    f"select * from dpv.{RELEASE} where o_orderstatus = 'F'",
    f"select n_name, value from dpv.{RELEASE} where o_orderstatus = 'O' and grouping = 0",
    "select o_orderstatus, dp_count(*) from orders join customer on c_custkey = o_custkey"
    " join nation on n_nationkey = c_nationkey group by o_orderstatus",
    "select n_name, dp_count(*) from orders join customer on c_custkey = o_custkey"
    " join nation on n_nationkey = c_nationkey group by n_name",
]
REFUSED = [
    "select * from dpv.orders limit 100",
    "select n_name, dp_count(*) from nation join customer on c_nationkey = n_nationkey"
    " group by n_name having max(c_acctbal) > 0",
    "select string_agg(c_name, ',') from dpv.customer",
    "select dp_count(*) from orders where o_totalprice > random()",
    "select dp_count(*) from customer left join orders on o_custkey = c_custkey",
    "select dp_count(*) from orders, pg_catalog.pg_class",
]


@dataclass
class Seen:
    """What one client saw: milliseconds by kind, SQLSTATEs of errors, answers that it paid for."""

    times: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in MIX})
    errors: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in MIX}
    )
    texts: dict[str, str] = field(default_factory=dict)
    paid: int = 0


def main() -> None:
    """Run the load and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=560)
    parser.add_argument("--kinds", default=",".join(MIX), help="only these, in their proportions")
    options = parser.parse_args()
    mix = {kind: MIX[kind] for kind in options.kinds.split(",")}
    dsn = make_conninfo(superuser(), dbname=DATABASE)
    with psycopg.connect(dsn, autocommit=True) as owner:
        _prepare(owner, dsn)
        with _Clients(dsn, options, mix) as clients:
            spent, before, busy = _charged(owner), _memory(owner), _busy(owner, clients)
            clients.ask()
            used = zip(_busy(owner, clients), busy, strict=True)
            after = _memory(owner)
        seen = clients.seen
        charged = tuple(end - first for end, first in zip(_charged(owner), spent, strict=True))
    rows = [_row(kind, seen, options.seconds) for kind in mix]
    paid = sum(one.paid for one in seen)
    answered = round(paid * EPSILON, 9)
    rows.append(
        {
            "kind": "ledger",
            "charged_epsilon": float(charged[0]),
            "answered_epsilon": answered,
            "charges": charged[1],
            "answers": paid,
            "equal": abs(float(charged[0]) - answered) < 1e-9 and charged[1] == paid,
        }
    )
    rows.append({"kind": "memory", "before_mb": before, "after_mb": after})
    asked = sum(len(times) for one in seen for times in one.times.values())
    server, client = (round(1e3 * (end - first) / asked, 2) for end, first in used)
    rows.append({"kind": "processor", "server_ms": server, "client_ms": client})
    texts: dict[str, str] = {}
    for one in seen:
        texts |= one.texts
    for state, text in sorted(texts.items()):
        print(f"{state}: {text}")
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    settings = {"clients": options.clients, "rate": options.rate, "seconds": options.seconds}
    print(json.dumps({"bench": "load"} | settings | {"rows": rows}))


def _prepare(owner: psycopg.Connection[Any], dsn: str) -> None:
    """Grant, release and ask once what is asked again."""
    owner.execute("select dp.grant_budget('alice', epsilon => 100000, delta => 0.001)")
    owner.execute("select dp.set_root_cap('customer', null, 0.001)")
    for name, value in (("epsilon", EPSILON), ("max_rows_contributed", MOST_ROWS)):
        owner.execute(f"alter role {ROLE} in database {DATABASE} set dp.{name} = {value}")
    owner.execute("select dp.expose('customer'), dp.expose('orders')")
    values = ", ".join(f"'{value}'" for value in STATUS)
    owner.execute(f"select dp.set_domain('orders', 'o_orderstatus', array[{values}])")
    with psycopg.connect(dsn, user=ROLE, autocommit=True) as alice:
        there = "select from dp.releases where name like %s"
        if alice.execute(there, [f"%{RELEASE}"]).fetchone() is None:
            alice.execute(
                "select dp.release(%s, $$ select o_orderstatus, n_name, dp_count(*) from orders"
                " join customer on c_custkey = o_custkey join nation on n_nationkey = c_nationkey"
                " group by cube (o_orderstatus, n_name) $$, epsilon => 1, delta => 1e-9)",
                [RELEASE],
            )
        for question in CACHED + RELEASED:
            alice.execute(question)


class _Clients:
    """Processes with the clients' sessions, connected while this is entered."""

    def __init__(self, dsn: str, options: argparse.Namespace, mix: dict[str, int]) -> None:
        shares = [len(range(k, options.clients, PROCESSES)) for k in range(PROCESSES)]
        shares = [share for share in shares if share]
        pace = options.rate / options.clients
        self.seen: list[Seen] = []
        self._queue: Queue[list[Seen]] = multiprocessing.Queue()
        self._steps = multiprocessing.Barrier(len(shares) + 1)
        self._workers = [
            multiprocessing.Process(
                target=_clients,
                args=(self._queue, self._steps, dsn, number, share, options.seconds, pace, mix),
            )
            for number, share in enumerate(shares)
        ]

    @property
    def pids(self) -> list[str]:
        """The processes in which the clients run."""
        return [str(worker.pid) for worker in self._workers]

    def __enter__(self) -> _Clients:
        for worker in self._workers:
            worker.start()
        self._steps.wait()
        return self

    def ask(self) -> None:
        """Let them ask, and wait until they have."""
        self._steps.wait()
        self.seen = [one for _ in self._workers for one in self._queue.get()]

    def __exit__(self, *_: object) -> None:
        self._steps.wait()
        for worker in self._workers:
            worker.join()


def _clients(
    queue: Queue[list[Seen]],
    steps: Any,
    dsn: str,
    number: int,
    count: int,
    seconds: float,
    pace: float,
    mix: dict[str, int],
) -> None:
    conninfo = make_conninfo(dsn, user=ROLE).encode()
    connections = [pq.PGconn.connect(conninfo) for _ in range(count)]
    for connection in connections:
        for question in [*CACHED, *RELEASED, *REFUSED, _question("fresh", random.Random())]:
            _ask(connection, question)
    steps.wait()
    steps.wait()
    end = time.perf_counter() + seconds
    seen = [Seen() for _ in connections]
    threads = [
        threading.Thread(
            target=_client, args=(connection, one, random.Random(f"{number} {k}"), end, pace, mix)
        )
        for k, (connection, one) in enumerate(zip(connections, seen, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put(seen)
    steps.wait()


def _client(
    connection: pq.PGconn,
    seen: Seen,
    chance: random.Random,
    end: float,
    pace: float,
    mix: dict[str, int],
) -> None:
    kinds, weights = list(mix), list(mix.values())
    due = time.perf_counter()
    while True:
        now = time.perf_counter()
        due = due + chance.expovariate(pace) if pace else now
        if max(due, now) >= end:  # what was due and not asked by then is left
            return
        time.sleep(max(due - now, 0))
        kind = chance.choices(kinds, weights)[0]
        state, text = _ask(connection, _question(kind, chance))
        seen.times[kind].append((time.perf_counter() - due) * 1e3)
        if state:
            seen.errors[kind][state] += 1
            seen.texts.setdefault(state, text)
        elif kind == "fresh":
            seen.paid += 1


def _question(kind: str, chance: random.Random) -> str:
    if kind == "fresh":
        # The number makes it a question that nobody asked before.
        below = time.time_ns() % 10**15 - 10**15
        return f"select dp_count(*) from orders where o_orderkey > {below}"
    return chance.choice({"cached": CACHED, "released": RELEASED, "refused": REFUSED}[kind])


def _ask(connection: pq.PGconn, sql: str) -> tuple[str, str]:
    """Return SQLSTATE and message, empty where it was answered."""
    result = connection.exec_(sql.encode())
    if result.status == pq.ExecStatus.TUPLES_OK:
        return "", ""
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b"?"
    return state.decode(), (result.error_message or b"").decode().partition("\n")[0]


def _row(kind: str, seen: list[Seen], seconds: float) -> dict[str, Any]:
    times = sorted(time for one in seen for time in one.times[kind])
    errors: Counter[str] = Counter()
    for one in seen:
        errors += one.errors[kind]
    wrong = (
        dict(errors)
        if kind != "refused"
        else {state: count for state, count in errors.items() if not state.startswith("PD")}
    )
    if kind == "refused" and (answered := len(times) - errors.total()):
        wrong["answered"] = answered
    return {
        "kind": kind,
        "per_second": round(len(times) / seconds, 1),
        "p50_ms": _quantile(times, 0.5),
        "p99_ms": _quantile(times, 0.99),
        "errors": wrong,
    }


def _quantile(times: list[float], q: float) -> float | None:
    return round(times[min(int(q * len(times)), len(times) - 1)], 2) if times else None


def _charged(owner: psycopg.Connection[Any]) -> tuple[Any, int]:
    row = owner.execute("select coalesce(sum(epsilon), 0), count(*) from dp.spend").fetchone()
    assert row is not None
    return row[0], row[1]


def _processes(owner: psycopg.Connection[Any]) -> list[str]:
    server = Path(f"/proc/{owner.info.backend_pid}/stat").read_text().rpartition(")")[2].split()[1]
    return [server, *Path(f"/proc/{server}/task/{server}/children").read_text().split()]


def _busy(owner: psycopg.Connection[Any], clients: _Clients) -> tuple[float, float]:
    """Seconds of processor time of the server and of the clients."""
    return _seconds(_processes(owner)), _seconds(clients.pids)


def _seconds(pids: list[str]) -> float:
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(owner: psycopg.Connection[Any]) -> float:
    """Proportional anonymous memory of all processes of the server in MB."""
    total = 0
    for pid in _processes(owner):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended meanwhile
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return round(total / 1024, 1)


if __name__ == "__main__":
    main()
