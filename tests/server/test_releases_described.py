"""What makes a release another one, and how it is described: list, amounts, comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.releasing import declare, release, spent
from tests.server.test_dump_restore import dump_and_restore

pytestmark = pytest.mark.server

CUBE = "select s_state, s_place, dp_count(*) from sale group by cube (s_state, s_place)"
ONE = "select s_place, dp_count(*) from sale group by s_place"


@pytest.fixture
def sales(database: Any) -> Any:
    return declare(database)


@pytest.fixture
def alice(sales: Any) -> Iterator[Any]:
    with sales.connect("alice") as session:
        yield session


UNREAD = [
    "select dp.set_domain('sale', 's_kind', array['a', 'z'])",
    "select dp.drop_domain('sale', 's_day')",
    "select dp.set_domain('sale', 's_price', array[0.5])",
    "select dp.set_domain('nobody', 'n_kind', array['x'])",
    "select dp.set_root_cap('sale', 1000)",
    "select dp.grant_budget('bob', epsilon => 1)",
    "select dp.undeclare_view('sold')",
    "select dp.protect('sale')",
    "select dp.unprotect('nobody')",
]
READ = [
    "select dp.set_domain('sale', 's_place', 1, 6)",
    "select dp.set_domain('sale', 's_place', 1, 5, includes_null => true)",
    "select dp.set_domain('sale', 's_pieces', array[1, 2, 3])",
    "select dp.protect('sale', epsilon => 1000)",
    "select dp.unprotect('sale'); select dp.protect('sale')",
    "alter table sale add more int",
    "alter table sale alter s_price type numeric(9,2)",
    "alter table sale drop more",
    "select dp.protect('sale', delta => 1e-3)",
]


def test_only_what_a_release_reads_makes_it_another(sales: Any, alice: Any) -> None:
    """Declarations of other columns and relations do not; of its own, all do."""
    query = f"{ONE} union all select null, dp_count(*) from sale where s_pieces < 3"

    def paid(n: int) -> int:
        release(alice, f"r{n}", query, epsilon=0.5, delta=0)
        return int(spent(sales)[0])

    with sales.connect("owner1") as owner:
        assert paid(0) == 1
        for n, statement in enumerate(UNREAD, 1):
            owner.execute(statement)
            assert paid(n) == 1, statement
        for n, statement in enumerate(READ, 2):
            owner.execute(statement)
            assert paid(100 + n) == n, statement
            assert paid(200 + n) == n, statement


def test_purging_keeps_what_a_release_was_made_of(sales: Any, alice: Any) -> None:
    alice.execute("select dp_count(*) from sale")
    numbers = release(alice, "r", ONE, epsilon=1)
    release(alice, "dropped", CUBE, epsilon=1)
    alice.execute("select dp.drop_release('dropped')")
    expired = "select expired_answers from dp.ledger_status"
    with sales.connect("owner1") as owner:
        assert owner.execute(expired).fetchone() == (0,)
        owner.execute("select dp.set_domain('sale', 's_kind', array['a', 'z'])")
        # the domain is not read by what was released
        assert owner.execute(expired).fetchone() == (1,)
        assert owner.execute("select dp.purge_answers()").fetchone() == (1,)
        assert owner.execute(expired).fetchone() == (0,)
        assert release(alice, "again", ONE, epsilon=1) == numbers
        release(alice, "dropped", CUBE, epsilon=1)
        assert spent(sales) == (3, 3)
        alice.execute("select dp.drop_release('dropped')")
        sales.sql("create index on sale (s_kind)")
        assert owner.execute("select dp.purge_answers()").fetchone() == (1,)


def test_amounts_are_shown_short_and_not_below_what_they_are(sales: Any, alice: Any) -> None:
    release(alice, "r", CUBE, epsilon="0.123456789123456789", delta=1e-9, mechanism="opt_m")
    for amount in ("epsilon", "delta", "rho"):
        shown, exact = sales.sql(
            f"select r.{amount}, s.{amount}::text from dp.releases as r"
            " join dp.stored_release as s using (name)"
        )[0]
        assert len(f"{shown!r}") <= 12
        assert float(exact) * (1 - 1e-15) <= shown <= float(exact) * (1 + 1.1e-5)
    for exact, told in (
        ("0", "0"), ("1", "1"), ("0.1", "0.1"), ("0.1000001", "0.100001"), ("999999.1", "1000000"),
        ("12345678", "12345700"), ("3.5264830524e-37", "3.52649e-37"), ("99.99999999", "100"),
        ("1e-60", "1e-60"), ("0.9999991", "1"), ("0.999999", "0.999999"),
    ):  # fmt: skip
        assert sales.sql(f"select dp.shown_cost({exact}::numeric)::text") == [(told,)]


def test_the_catalogue_says_what_was_asked(sales: Any, alice: Any) -> None:
    query = """select s_state, dp.ranges(s_pieces, 3) p, dp_count(*) from sale where s_id > 3 group by 1, 2
      union all select s_state, null, dp_count(*) from sale where s_id > 3 and s_place in (1, 2) group by 1"""
    release(alice, "r", query, epsilon=1)
    told = alice.execute("select queries, reads from dp.releases").fetchone()
    assert told[0] == [
        {"query": 1, "grouping": 0, "keys": [["s_state", "levels"], ["p", "ranges", 3]], "where": []},
        {"query": 2, "grouping": 1, "keys": [["s_state", "levels"]],
         "where": ["(s_place = ANY(ARRAY[CAST('1' AS integer), CAST('2' AS integer)]))"]},
    ]  # fmt: skip
    assert told[1] == ["sale"]
    missing = """select a.attname from pg_attribute as a where a.attrelid = 'dp.releases'::regclass
      and a.attnum > 1 and col_description(a.attrelid, a.attnum) is null"""
    assert sales.sql(missing) == []
    undescribed = """select p.oid::regprocedure::text from pg_proc as p where p.pronamespace = 'dp'::regnamespace
      and p.proname ~ 'release' and obj_description(p.oid, 'pg_proc') is null"""
    assert sales.sql(undescribed) == []


COMMENTS = """select a.attname, col_description(a.attrelid, a.attnum) from pg_attribute as a
  where a.attrelid = 'dpv.r'::regclass and a.attnum > 0 order by a.attnum"""


def test_tables_tell_what_is_in_them(server: Any, sales: Any, alice: Any) -> None:
    query = """select s_state, dp.prefix(s_place) upto, dp.ranges(s_pieces, 3) p, 'it''s' as label, dp_count(*)
      from sale group by 1, 2, 3 union all select s_state, null, null, 'b', dp_count(*) from sale group by 1"""
    terms = {"epsilon": "0.12345678", "delta": 1e-9, "mechanism": "opt_m"}
    release(alice, "r", query, **terms)
    about = "select obj_description('dpv.r'::regclass)"
    (text,) = alice.execute(about).fetchone()
    for part in ("opt_m with", "noise, epsilon 0.12345", ", delta ", "UTC", "costs nothing"):
        assert part in text
    told = dict(alice.execute(COMMENTS).fetchall())
    assert None not in told.values()
    assert "GROUPING(s_state, upto, p)" in told["grouping"]
    assert "union" in told["query"]
    assert "level of the group key" in told["s_state"]
    assert "up to this level" in told["upto"]
    assert "first level" in told["p_low"]
    assert "last level" in told["p_high"]
    assert "constant" in told["label"]
    assert "negative" in told["value"]
    assert "exactly" in told["standard_error"]
    copy = dump_and_restore(server, sales, "c")
    try:
        assert copy.sql(about) == [(text,)]
        assert dict(copy.sql(COMMENTS)) == told
    finally:
        server.drop_database(copy)
    alice.execute("select dp.drop_release('r')")
    release(alice, "r", query, postprocess="integral", **terms)
    told = dict(alice.execute(COMMENTS).fetchall())
    assert "post-processed to whole numbers" in told["value"]
    assert "before that" in told["standard_error"]
    alice.execute("select dp.refresh_release('r')")
    assert dict(alice.execute(COMMENTS).fetchall()) == told
