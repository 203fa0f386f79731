"""`make shards`: the demo's TPC-H on servers of its own, a session, and nothing that is left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench import shards as tried
from bench.data import load_tpch
from bench.spreading import spread

pytestmark = pytest.mark.server
DATABASE = "tried_shards"


def test_a_session_shows_answers_and_what_was_sent(server: Any) -> None:
    single = server.create_database()
    said: list[str] = []
    load_tpch(single.conninfo(), 0.01, indexed=False)
    single.sql(
        "do $$ begin if to_regrole('alice') is null then create role alice login; end if; end $$"
    )
    with spread(server.cluster.conninfo(), single.conninfo(), 2, database=DATABASE) as shards:
        tried.show(shards, said.append)
        folder = shards.wires[0].folder
        # whoever reaches a shard is a superuser there
        assert folder.stat().st_mode & 0o077 == 0
        assert Path(shards.servers[0].split("host=")[1].split()[0]).stat().st_mode & 0o077 == 0
    server.drop_database(single)
    assert not folder.parent.exists()
    ((left,),) = server.create_database().sql(
        f"select count(*) from pg_database where datname = '{DATABASE}'"
    )
    assert left == 0

    text = "\n".join(said)
    held = [int(n) for n in re.findall(r"holds (\d+) rows of orders", text)]
    assert len(held) == 2
    assert sum(held) == 15_000
    sent = [
        [int(n) for n in line.split(", ")] for line in re.findall(r"shards sent: ([\d, ]+)\.", text)
    ]
    assert len(sent) == len(tried.QUESTIONS)
    one_relation, joined, with_customers = sent
    assert max(one_relation) <= 3  # states of orders
    assert max(joined) <= 3 + 2  # and two largest counts
    assert 5 < sum(with_customers) < sum(held)
    # not how a server is asked whether it answers
    assert "false END" not in text.replace("\n    ", " ")
    assert "LIMIT 0" not in text
    assert re.search(r"INNER JOIN public\.(orders|lineitem)", text.replace("\n    ", " "))
    assert text.count("alice=> ") == len(tried.QUESTIONS)
