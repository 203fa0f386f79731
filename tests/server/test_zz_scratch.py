from __future__ import annotations

import sys
import time

import psycopg

sys.path.insert(0, "/work/wt-reltests")
from tests.server.conftest import declare


def test_scratch(server):
    database = declare(server.create_database())
    conns = {
        "alice": database.connect(user="alice"),
        "owner": database.connect(user="owner1"),
        "bob": database.connect(user="bob"),
        "super": database.connect(),
    }
    for c in conns.values():
        c.autocommit = True
        c.add_notice_handler(
            lambda d: print(
                "   NOTICE", d.message_primary, "|", d.message_detail, "|", d.message_hint
            )
        )
    who = "alice"
    for block in __import__("pathlib").Path("/tmp/rt/script.sql").read_text().split("\n;;\n"):
        block = block.strip()
        if not block:
            continue
        if block.startswith("@"):
            who, block = block[1:].split(None, 1)
        start = time.time()
        print(f"\n--{who}> {block}")
        try:
            cur = conns[who].execute(block)
            rows = cur.fetchall() if cur.description else []
            for r in rows[:14]:
                print("   ", r)
            print(f"   ({len(rows)} rows, {time.time() - start:.2f}s)")
        except psycopg.Error as e:
            d = e.diag
            print(
                "   ERROR",
                d.sqlstate,
                d.message_primary,
                "\n     DETAIL",
                d.message_detail,
                "\n     HINT",
                d.message_hint,
                "\n     POS",
                d.statement_position,
                d.internal_position,
                d.internal_query,
            )
    print("LOGTAIL")
    print(
        server.cluster.log.read_text()[-int(__import__("os").environ.get("LOGTAIL", "0")) or -1 :]
    )
    for c in conns.values():
        c.close()
    server.drop_database(database)
