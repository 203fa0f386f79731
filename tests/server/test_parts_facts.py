"""What the catalogue says of parts on other servers, and who may read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.shards import READER, Shards, sharded


@pytest.fixture
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        yield found


def parts_of(shards: Shards, name: str) -> dict[str, Any] | None:
    ((found,),) = shards.near.sql(f"select dp.parts_of('{name}'::regclass)")
    return json.loads(found) if isinstance(found, str) else found


def readable(shards: Shards, name: str) -> bool:
    ((found,),) = shards.near.sql(f"select has_table_privilege('dp_executor', '{name}', 'select')")
    return bool(found)


def test_relations_that_are_cut_in_one_way_have_one_layout(shards: Shards) -> None:
    made = {
        "one": ("k int, v text", "k", "hash", ()),
        "same": ("v int, k int", "k", "hash", ()),
        "wider": ("k bigint, v int", "k", "hash", ()),
        "listed": ("k int, v int", "k", "list", ("in (1, 2)", "in (3)")),
        "listed_so": ("k int, v int", "k", "list", ("in (1, 2)", "in (3)")),
        "listed_else": ("k int, v int", "k", "list", ("in (1)", "in (2, 3)")),
        "by_both": ("k int, v int", "k, v", "hash", ()),
    }
    for name, (columns, key, method, bounds) in made.items():
        shards.table(name, columns, key, method=method, bounds=bounds)
        shards.near.sql(f"select dp.protect('{name}')", user="owner1")
    facts = {name: parts_of(shards, name) or {} for name in made}
    layouts = {name: found["layout"] for name, found in facts.items()}
    assert layouts["one"] == layouts["same"]
    assert layouts["listed"] == layouts["listed_so"]
    assert len(set(layouts.values())) == len(made) - 2
    assert facts["one"]["cut_by"] == ["k"]
    assert facts["by_both"]["cut_by"] == ["k", "v"]
    names = [part[2] for part in facts["listed"]["parts"]]
    assert names == ["listed_0", "listed_1"]
    servers = [part[3] for part in facts["listed"]["parts"]]
    assert len({*servers}) == 2
    assert 0 not in servers


def test_what_is_here_as_a_whole_or_cut_by_expressions_has_no_layout(shards: Shards) -> None:
    shards.near.sql("create table here (k int) partition by hash (k);"
                    "create table here_0 partition of here for values with (modulus 1, remainder 0)")  # fmt: skip
    assert parts_of(shards, "here") is None
    shards.table("computed", "k int", "(k + 1)")
    shards.near.sql("select dp.protect('computed')", user="owner1")
    found = parts_of(shards, "computed")
    assert found is not None
    assert len(found["parts"]) == 2
    assert found["layout"] is None


def test_a_foreign_table_is_its_own_part(shards: Shards) -> None:
    shards.far[0].sql(f"create table lone (k int); grant select on lone to {READER}")
    shards.near.sql("create foreign table lone (k int) server shard0;"
                    "alter foreign table lone owner to owner1")  # fmt: skip
    shards.near.sql("select dp.protect('lone')", user="owner1")
    found = parts_of(shards, "lone")
    assert found is not None
    assert [part[2] for part in found["parts"]] == ["lone"]
    assert found["layout"] is None


def test_parts_are_read_one_by_one_as_long_as_each_may_be_read(shards: Shards) -> None:
    shards.table("r", "k int", "k", local=[1])
    assert parts_of(shards, "r") is None
    shards.near.sql(
        "select dp.protect('r'); select dp.declare_shards('r', written => 'coordinator');"
        " select dp.grant_budget('alice', 1000, 1e-4)",
        user="owner1",
    )
    assert readable(shards, "r_0")
    assert readable(shards, "r_1")
    assert parts_of(shards, "r") is not None
    shards.near.sql("insert into r select i from generate_series(1, 100) i")
    with shards.near.connect("alice") as alice:
        alice.execute("set dp.epsilon = 40; set dp.fresh = on")
        for change, missing in (
            ("select 1", None),
            ("alter foreign table r_0 rename to moved", None),
            (
                "create schema elsewhere; alter foreign table moved set schema elsewhere;"
                " alter foreign table elsewhere.moved options (add schema_name 'public')",
                "GRANT USAGE ON SCHEMA elsewhere TO dp_executor",
            ),
            ("grant usage on schema elsewhere to dp_executor", None),
            (
                "revoke select on elsewhere.moved from dp_executor",
                "GRANT SELECT ON elsewhere.moved TO dp_executor",
            ),
        ):
            shards.near.sql(change)
            if missing:  # whether its server can be read is found out by the part itself
                with pytest.raises(psycopg.Error) as caught:
                    alice.execute("select dp_count(*) from r")
                assert missing in (caught.value.diag.message_hint or "")
                continue
            (found,) = alice.execute("select dp_count(*) from r").fetchone()
            # noise of scale 1/40 is beyond 1 with probability below 1e-17
            assert abs(found - 100) <= 1, change
    assert parts_of(shards, "r") is None
    shards.near.sql("grant select on elsewhere.moved to dp_executor")
    assert parts_of(shards, "r") is not None
    shards.near.sql("select dp.unprotect('r')", user="owner1")
    assert not readable(shards, "elsewhere.moved")
    assert not readable(shards, "r_1")


def test_parts_that_others_own_are_left_alone(shards: Shards) -> None:
    shards.table("r", "k int", "k", local=[1])
    shards.near.sql("alter table r_1 owner to postgres")
    shards.near.sql("select dp.protect('r')", user="owner1")
    assert readable(shards, "r_0")
    assert not readable(shards, "r_1")
    assert parts_of(shards, "r") is None
