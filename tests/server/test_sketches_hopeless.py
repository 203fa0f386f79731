"""Where a sketch is hopeless: told from public facts, before anybody pays or builds one."""

from __future__ import annotations

import json
from typing import Any

from tests.server.asking import refused
from tests.server.sketching import LOOK, create

HOPELESS = """
create table public.visit (v_key int primary key, v_id uuid, v_at timestamp, v_room int, v_door int, v_code text);
alter table public.visit owner to owner1;
"""


def explained(shop: Any, query: str, *settings: str) -> dict[str, str]:
    with shop.connect(user="alice") as alice:
        for setting in settings:
            alice.execute(f"set {setting}")
        return dict(alice.execute("select * from dp.explain(%s)", (query,)).fetchall())


def chain(column: str) -> str:
    return f"select dp_count(*) from visit a, visit b, visit c where a.{column} = b.{column} and b.v_code = c.v_code"


def test_huge_domains_are_hopeless_by_declaration_and_type(shop: Any) -> None:
    shop.sql(HOPELESS)
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.protect('visit')")
        owner.execute("select dp.set_domain('visit', 'v_room', 1, 100000)")
        owner.execute("select dp.set_domain('visit', 'v_door', 1, 100001)")
    place = "of relation public.visit"
    for column, reason in {
        "v_id": f"column v_id {place} is of type uuid, whose values hardly repeat",
        "v_at": f"column v_at {place} is of type timestamp without time zone, whose values hardly repeat",
        "v_door": f"column v_door {place} has a declared domain of 100001 values",
        "v_room": None,
    }.items():
        auto = explained(shop, chain(column))
        assert auto["method"].startswith("residual")
        told = None if reason is None else f"hopeless: {reason}; dp.method = auto avoids it"
        assert auto.get("sketch") == told
        assert "sketch" not in explained(shop, chain(column), "dp.method = elastic")
        with shop.connect(user="alice") as alice:
            alice.execute("set dp.method = sketch")
            error = refused(alice, chain(column))
            assert error.sqlstate == "PD020"
            hint = str(error.diag.message_hint)
            if reason is None:
                assert "dp.create_sketch" in hint
            else:
                assert hint == f"A sketch would be hopeless: {reason}. Use another dp.method."
    # a sketch that was built all the same is not chosen, and its owner was warned
    with shop.connect(user="owner1") as owner:
        said: list[tuple[str | None, str | None]] = []
        owner.add_notice_handler(lambda d: said.append((d.message_primary, d.message_detail)))
        owner.execute("select dp.collect_statistics('visit')")
        owner.execute("select dp.create_sketch(%s, 64)", (chain("v_room"),))
        assert said == []
        owner.execute("select dp.create_sketch(%s, 64)", (chain("v_door"),))
    assert said == [
        (
            "the sketch is hopeless",
            f"In this join column v_door {place} has a declared domain of 100001 values.",
        )
    ]
    assert explained(shop, chain("v_door"))["method"].startswith("residual")
    asked = explained(shop, chain("v_door"), "dp.method = sketch")
    assert (
        asked["sketch"] == f"hopeless: column v_door {place} has a declared domain of 100001 values"
    )
    assert (
        explained(shop, chain("v_room"), "dp.method = sketch")["sketch"]
        == "nothing public speaks against it"
    )


def test_what_is_hopeless_does_not_follow_the_rows(shop: Any) -> None:
    shop.sql(HOPELESS)
    shop.sql("select dp.protect('visit')", user="owner1")
    before = [explained(shop, chain(column)) for column in ("v_id", "v_room")]
    shop.sql(
        "insert into visit select i, gen_random_uuid(), now(), i, i, i::text from generate_series(1, 5000) i"
    )
    shop.sql("analyze visit")
    assert [explained(shop, chain(column)) for column in ("v_id", "v_room")] == before


def test_hopeless_joins_are_told_from_public_facts(shop: Any) -> None:
    admin = shop.connect()
    admin.execute("select * from dp.explain('select dp_count(*) from client')")
    admin.execute(LOOK)

    def reason(query: str, estimator: str) -> str | None:
        shop.sql(create(query, 64), user="owner1")
        row = admin.execute("select look(dp.deparse(%s), %s, 1)", (query, estimator)).fetchone()
        found: str | None = json.loads(row[0])["hopeless"]
        return found

    key = "column c_id of relation public.client is a key: its values do not repeat, so its norm is needlessly large"
    one = "select dp_count(*) from client, purchase where c_id = p_client and c_kind = 'a'"
    # a purchase leaves one client, a client fixes what is summed: only counters sum over keys
    assert reason(one, "exact_norm") is None
    assert reason(one, "mean") == key
    # a third relation beside the client sums over all purchases of all clients of a region
    two = "select dp_count(*) from client, purchase, client as d where client.c_id = p_client and client.c_region = d.c_region"
    assert reason(two, "exact_norm") == key
    assert (
        reason(one, "norm")
        == "column p_client of relation public.purchase refers to a key: its domain grows with the data"
    )
    assert (
        reason("select dp_count(*) from client a, client b where a.c_kind = b.c_kind", "mean")
        is None
    )
