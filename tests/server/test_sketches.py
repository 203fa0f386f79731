"""Sketches on the server: what is stored and comes out of it, and who builds and reads it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.server.sketching import COLLECT, CYCLE, PATH, create, refused, stored_counters
from tests.server.waiting import wait_until


def sign(seed: bytes, value: str, estimator: int) -> int:
    digest = hashlib.shake_128(seed + value.encode()).digest(estimator // 8 + 1)
    return 1 - 2 * (digest[-1] >> estimator % 8 & 1)


def test_counters_are_what_seeds_and_rows_make_them(network: Any) -> None:
    network.sql(create(PATH, 100, 2), user="owner1")
    ((seed,),) = network.sql("select seed from dp.sketch_family")
    found = stored_counters(network)
    for name, column in (("e0", "b"), ("f1", "b")):
        rows = network.sql(
            f"select {column}::text, count(*) from {name[0]} where b is not null group by 1"
        )
        expected = [sum(n * sign(seed, v, s) for v, n in rows) for s in range(200)]
        assert found[name] == expected
    ((squares, norms, moments),) = network.sql(
        "select c.squares, c.norms, s.moments from dp.sketch_counter c join dp.sketch s on s.id = c.sketch"
        " where c.occurrence = 0"
    )
    assert squares == sum(v * v for v in found["e0"])
    ((total, most),) = network.sql(
        "select sum(n * n), max(n * n) from (select count(*) n from e where b is not null group by b) g"
    )
    assert norms == [total, most]
    products = [abs(x * y) for x, y in zip(found["e0"], found["f1"], strict=True)]
    assert moments[3] == sum(products[:100])
    assert moments[7] == sum(products[100:])


def test_equal_values_have_equal_signs_whatever_their_text(database: Any) -> None:
    database.sql(
        "create table n (x numeric, y char(9)); create table m (x numeric, y char(4));"
        " insert into n values (1.0, 'a'), (1.00, 'a '), (null, 'a'), (1, null);"
        " insert into m values (1, 'a'); select dp.protect('n'), dp.protect('m')"
    )
    database.sql(create("select dp_count(*) from n join m on n.x = m.x and n.y = m.y", 50))
    counters = stored_counters(database)
    assert {abs(v) for v in counters["n0"]} == {2}
    assert {abs(v) for v in counters["m1"]} == {1}


def test_bounds_come_out_of_the_tables(network: Any, look: Any) -> None:
    network.sql(create(PATH), user="owner1")
    ((mine, theirs),) = network.sql(
        "select (select max(n) from (select count(*) n from e where b is not null group by b) g),"
        " (select max(n) from (select count(*) n from f group by b) g)"
    )
    exact = look(PATH, "exact_norm")
    assert exact["bound"] == pytest.approx(max(mine, theirs), rel=1e-6)
    assert exact["label"] == "proved"
    for estimator in ("norm", "mean"):
        sketched = look(PATH, estimator)
        assert sketched["label"] == "proved"
        assert sketched["bound"] > exact["bound"]


def test_reading_takes_no_time(network: Any, look: Any) -> None:
    """At most 5 ms, of processor time, and whatever the number of estimators.

    On a machine that does nothing else: what others take of its caches is waited out.
    """
    for estimators in (10, 100_000):
        network.sql(create(CYCLE, estimators), user="owner1")
        for estimator in ("exact_norm", "norm", "mean"):
            wait_until(lambda e=estimator: look(CYCLE, e, 0.02)["ms"] < 5)


def test_norms_of_another_query_serve_and_its_means_do_not(network: Any, look: Any) -> None:
    network.sql(
        create("select dp_count(*) from e, f where f.b = e.b and e.a > 3", 1000), user="owner1"
    )
    other = "select dp_count(*) from f, e, e as g where e.b = f.b and g.b = f.b"
    found = look(other, "norm")
    assert "error" not in found
    assert not found["whole"]
    assert look("select dp_count(*) from e, f where e.b = f.b")["whole"]


@pytest.mark.parametrize(
    "rows", ["", "insert into e values (null, null), (3, null); insert into f values (1, 'x')"]
)
def test_no_rows_and_keys_of_null_have_counters_of_zero(network: Any, look: Any, rows: str) -> None:
    network.sql(f"truncate e, f; {rows}")
    network.sql(create(PATH, 64), user="owner1")
    assert set(stored_counters(network)["e0"]) == {0}
    for estimator in ("exact_norm", "norm", "mean"):
        assert look(PATH, estimator, 5.0)["bound"] <= 1.2 + 3 * bool(rows)


def test_a_sketch_replaces_an_older_one_and_ignores_filters(network: Any) -> None:
    network.sql(create(PATH, 64), user="owner1")
    network.sql(create(PATH.replace("using (b)", "using (b) where c = 'x'"), 128, 3), user="owner1")
    assert network.sql("select estimators, rows from dp.sketches", user="owner1") == [(128, 3)]
    assert network.sql("select count(*) from dp.sketch_counter") == [(2,)]


def test_nobody_reads_seeds_or_counters(network: Any) -> None:
    network.sql(COLLECT, user="owner1")
    network.sql(create(PATH, 64), user="owner1")
    for role in ("alice", "owner1"):
        for table in ("dp.sketch", "dp.sketch_family", "dp.sketch_counter"):
            assert refused(network, role, f"select * from {table}").sqlstate == "42501"
    assert network.sql(
        "select r, has_column_privilege(r, 'dp.sketch_family', 'seed', 'select')"
        " from unnest(array['alice', 'owner1', 'dp_owner', 'dp_analyst', 'dp_executor', 'dp_ledger']) r"
    ) == [
        (r, False)
        for r in ("alice", "owner1", "dp_owner", "dp_analyst", "dp_executor", "dp_ledger")
    ]
    assert refused(network, "alice", "select * from dp.sketches").sqlstate == "42501"
    assert network.sql("select relations::text, valid from dp.sketches", user="owner1") == [
        ("{e,f}", True)
    ]


def test_only_the_owner_of_all_relations_builds_drops_and_sees(network: Any) -> None:
    assert refused(network, "alice", create(PATH)).sqlstate == "42501"
    network.sql("alter table f owner to mallory; grant dp_owner to mallory")
    try:
        error = refused(network, "owner1", create(PATH))
        assert error.sqlstate == "PD070"
        assert error.diag.message_primary == "must be owner of all relations of the statement"
        assert error.diag.message_hint
        network.sql(create(PATH, 64))  # a superuser
        ((number,),) = network.sql("select sketch from dp.sketches")
        assert network.sql("select * from dp.sketches", user="owner1") == []
        assert refused(network, "owner1", f"select dp.drop_sketch({number})").sqlstate == "PD070"
        assert network.sql("select dp.rotate_sketch_seeds()", user="owner1") == [(0,)]
        assert network.sql("select sketch from dp.sketches") == [(number,)]
    finally:
        network.sql("revoke dp_owner from mallory")


def test_sketches_are_dropped_with_all_that_is_secret(network: Any) -> None:
    network.sql(create(PATH, 64), user="owner1")
    ((number,),) = network.sql("select sketch from dp.sketches", user="owner1")
    network.sql("select dp.drop_sketch(%s)", number, user="owner1")
    assert network.sql(
        "select (select count(*) from dp.sketch), (select count(*) from dp.sketch_family),"
        " (select count(*) from dp.sketch_counter)"
    ) == [(0, 0, 0)]
    error = refused(network, "owner1", f"select dp.drop_sketch({number})")
    assert (error.sqlstate, error.diag.message_primary) == (
        "PD040",
        f"sketch {number} does not exist",
    )


def test_a_cancelled_building_leaves_the_old_sketch(network: Any) -> None:
    network.sql(create(PATH, 64), user="owner1")
    before = stored_counters(network)
    network.sql("insert into f select i, i::text from generate_series(1, 30000) i")
    error = refused(
        network,
        "owner1",
        create(PATH, 200_000),
        "set maintenance_work_mem = '1GB'",
        "set statement_timeout = 200",
    )
    assert error.sqlstate == "57014"
    assert stored_counters(network) == before


def test_two_buildings_at_once_leave_one_sketch(network: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: network.sql(create(PATH, n), user="owner1"), (64, 65, 66, 67)))
    assert network.sql("select count(*), count(distinct sketch) from dp.sketch_counter") == [(2, 1)]


def test_nothing_of_a_sketch_is_dumped(database: Any) -> None:
    rows = database.sql(
        "select c::regclass::text from pg_extension, unnest(extconfig) c where extname = 'dpsql'"
    )
    assert not [name for (name,) in rows if "sketch" in name]
