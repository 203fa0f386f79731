"""The commands of docs/shards.md, from nothing to an answer, on three databases for three servers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.documentation import ROOT, Block, blocks
from tests.server.asking import silent
from tests.server.shards import UNCUT

pytestmark = pytest.mark.server
#: The socket trusts everybody, which only a superuser's mapping may rely on.
TRUST = (r", password '[^']*'", ", password_required 'false'")


def told(where: str) -> list[Block]:
    page = ROOT / "docs" / "shards.md"
    return [
        b for b in blocks(page) if b.says == f"run on {where} by tests/server/test_shards_page.py"
    ]


def test_three_shards_from_nothing(server: Any) -> None:
    near = server.create_database()
    far = [server.create_database() for _ in range(3)]
    try:
        run(server, near, far)
    finally:
        for database in (near, *far):
            server.drop_database(database)
        near = server.create_database()
        near.sql("drop role if exists dpsql_reader; drop role if exists visit_writer")
        near.sql("drop owned by steward; drop role if exists steward")
        server.drop_database(near)


def owner_sees_what_is_sent(near: Any, asked: str) -> None:
    near.sql("select dp.grant_budget('steward', 10, 1e-6)", user="steward")
    joined = (
        "select v.ward, dp_count(*) from visit v join visit w on v.patient = w.patient group by 1"
    )
    with near.connect("steward") as owner:
        for question in (asked, joined):
            shown = "select value from dp.explain(%s) where item = 'counting SQL'"
            ((counting,),) = owner.execute(shown, (question,)).fetchall()
            with owner.transaction():
                if question == joined:
                    for name in (
                        "cpu_operator_cost = 0",
                        "cpu_tuple_cost = 0",
                        "enable_nestloop = off",
                    ):
                        owner.execute(f"set local {name}")
                plan = "\n".join(text for (text,) in owner.execute(f"explain (verbose) {counting}"))
            assert plan.count("Async Foreign Scan") == 3, plan
            assert plan.count("GROUP BY") == 3, plan


def run(server: Any, near: Any, far: list[Any]) -> None:
    there, ordinary, looked = told("each shard")
    for number, shard in enumerate(far):
        text = there.text
        if number:  # all are databases of one server here, which has the roles by now
            text = re.sub(r"CREATE ROLE .*", "", text)
        shard.sql(text)
    (here,) = told("the coordinator")
    text = re.sub(*TRUST, here.text)
    for number, shard in enumerate(far, 1):
        text = text.replace(
            f"host 'shard{number}.example.com', dbname 'clinic', sslmode 'verify-full'",
            f"host '{server.cluster.socket}', dbname '{shard.name}'",
        )
    near.sql(text)
    (owned,) = told("the coordinator as the owner")
    near.sql(owned.text, user="steward")
    (written,) = told("the coordinator as the owner, too,")
    near.sql(written.text, user="steward")
    assert all(shard.sql("select count(*) > 1500 from visit") == [(True,)] for shard in far)
    (question,) = told("the coordinator as alice")
    asked = question.text.strip().rstrip(";")
    with near.connect("alice") as alice:
        assert sorted(ward for ward, _ in alice.execute(asked)) == ["north", "south"]
    near.sql("select dp.grant_budget('postgres', 1000, 1)")
    with silent(near, "visit", UNCUT) as session:
        assert sorted(session.execute(asked).fetchall()) == [("north", 3000), ("south", 3000)]
    owner_sees_what_is_sent(near, asked)
    for shard in far:
        assert shard.sql(ordinary.text) == [(True,)]
        for odd in ("citext", "text collate no_case"):
            with shard.connect() as session:
                session.execute("begin; create extension citext")
                session.execute(
                    "create collation no_case"
                    " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
                )
                session.execute(f"alter table visit alter ward type {odd}")
                assert session.execute(ordinary.text).fetchall() == [(False,)]
                session.execute("rollback")
        others = {name for (name,) in shard.sql(looked.text)}
        assert "dpsql_reader" not in others
        assert {"alice", "steward"} <= others  # CONNECT is everybody's until it is taken
