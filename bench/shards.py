"""TPC-H on three servers, to try: what an analyst types, and what the servers send.

``python -m bench.shards [--shards 3] [--database tpch]``, or ``make shards``.  Beside the private
cluster as many clusters without dpsql are made; ``orders`` and ``lineitem`` of the demo's TPC-H are
spread over them by the hash of their order key, all else stays on the coordinator.  At a terminal
all stays until Enter is pressed; then, or at once, it is removed.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import superuser
from bench.spreading import SPREAD, Shards, spread

_DATABASE = "shards"
#: What asks whether a server can be read, and for its snapshot: sends no row (sql/hook/reached.c).
_PROBE = re.compile(r"LIMIT 0|CASE WHEN \$1::boolean THEN .* ELSE false END")
_JOIN = "FROM orders JOIN lineitem ON l_orderkey = o_orderkey"
#: What is asked, with what is to be seen.
QUESTIONS = {
    "One relation. Each shard counts its rows by status, all at the same time:": (
        "SELECT o_orderstatus, dp_count(*) FROM orders GROUP BY o_orderstatus"
    ),
    "Both are cut by the order key, so they are joined where they are. A second statement finds"
    " the largest counts, which the noise needs: one row of each shard.": (
        f"SELECT o_orderstatus, dp_count(*) {_JOIN} GROUP BY o_orderstatus"
    ),
    "Customers are on the coordinator: a shard says how many orders each has.": (
        "SELECT c_mktsegment, dp_count(*) FROM orders JOIN customer ON o_custkey = c_custkey"
        " WHERE c_mktsegment IN ('BUILDING', 'MACHINERY') GROUP BY c_mktsegment"
    ),
}


def main() -> None:
    """Make the shards, ask, say how to go on, and remove all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--database", default="tpch", help="whose rows are spread")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is removed
    dsn = superuser()
    source = make_conninfo(dsn, dbname=arguments.database)
    print(f"dpsql: making {arguments.shards} clusters, and spreading rows over them", flush=True)
    with spread(dsn, source, arguments.shards, database=_DATABASE) as shards:
        show(shards, print)
        if sys.stdin.isatty():
            print("To go on yourself, as the analyst, and as a superuser:\n")
            for user in ("alice", "postgres"):
                print(f"    psql '{make_conninfo(shards.dsn, user=user)}'")
            for number, server in enumerate(shards.servers):
                print(f"    psql '{server}'    # shard{number}")
            with suppress(KeyboardInterrupt, EOFError):
                input("\nPress Enter to remove all of it. ")


def show(shards: Shards, say: Callable[[str], Any]) -> None:
    """Print a session: questions, answers, and what was asked of the first shard."""
    with psycopg.connect(shards.dsn, autocommit=True) as owner:
        grant = "select dp.grant_budget('alice', epsilon => 20, delta => 1e-6)"
        owner.execute(grant)
    for server, name in zip(shards.servers, _names(shards), strict=True):
        with psycopg.connect(server) as shard:
            held = [f"{_count(shard, table)} rows of {table}" for table in SPREAD]
        say(f"{name} holds {' and '.join(held)}")
    alice = make_conninfo(shards.dsn, user="alice")
    for told, question in QUESTIONS.items():
        say(f"\n-- {told}\nalice=> {question};\n")
        with shards.counted(), psycopg.connect(alice, autocommit=True) as session:
            for wire in shards.wires:
                wire.reset()
            for row in session.execute(question).fetchall():
                say("    " + "  ".join(str(value) for value in row))
            say(f"\n{_names(shards)[0]} was asked, once it had answered and taken its snapshot:\n")
            for text in shards.wires[0].statements:
                if not _PROBE.search(text):
                    say(textwrap.indent(textwrap.fill(text, 110), "    "))
        sent = ", ".join(str(wire.rows) for wire in shards.wires)
        say(f"\nRows that the shards sent: {sent}.\n")


def _names(shards: Shards) -> list[str]:
    return [f"shard{number}" for number in range(len(shards.servers))]


def _count(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"select count(*) from {table}").fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main()
