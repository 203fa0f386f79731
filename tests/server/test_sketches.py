"""Sketches on the server: who builds and reads them, what is stored, what makes them invalid."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.server import asking

NETWORK = """
create table public.e (a int, b int);
create table public.f (b int not null, c text);
insert into public.e select i % 7, i % 11 from generate_series(1, 300) i;
insert into public.e values (null, 1), (1, null), (null, null);
insert into public.f select i % 11, 'node ' || i % 5 from generate_series(1, 200) i;
alter table public.e owner to owner1;
alter table public.f owner to owner1;
grant dp_owner to owner1;
"""
PROTECT = "select dp.protect('public.e'), dp.protect('public.f'), dp.grant_budget('alice', 10)"
PATH = "select dp_count(*) from e join f using (b)"
COLLECT = "select dp.collect_statistics('e'), dp.collect_statistics('f')"
CYCLE = "select dp_count(*) from e, f, e as g where e.b = f.b and f.c = 'node 1' and f.b = g.b and g.a = e.a"

# What the engine does with a sketch, for tests only.
LOOK = """
create function public.look(query text, estimator text, beta float8) returns text
language plpython3u as $$
import json, time
from fractions import Fraction
from dpsql.core.sketching import bound, promise
from dpsql.engine.prepare import prepare
from dpsql.errors import DpsqlError
from dpsql.server.session import Session
from dpsql.statistics.sketch_parts import hopeless
from dpsql.statistics.sketches import load
services = Session().services(plpy)
asked = prepare(query, None, services).question.aggregates[0]
shape, reason, times = asked.shape(), hopeless(asked, estimator), []
try:
    for _ in range(20):
        start = time.process_time()
        stored = load(asked, services.database)
        sketch = stored.sketch
        promised = promise(shape, estimator, sketch.estimators, sketch.rows)
        found = bound(shape, sketch, beta, promised)
        times.append(1000 * (time.process_time() - start))
except DpsqlError as error:
    return json.dumps({"error": [error.sqlstate, error.message, error.detail, error.hint]})
return json.dumps({"bound": found.value, "label": promised.label, "ms": min(times), "hopeless": reason,
                   "whole": sketch.moments is not None})
$$
"""


@pytest.fixture
def network(database: Any) -> Any:
    database.sql(NETWORK)
    database.sql(PROTECT, user="owner1")
    return database


@pytest.fixture
def look(network: Any) -> Callable[..., dict[str, Any]]:
    admin = network.connect()
    admin.execute("select * from dp.explain('select dp_count(*) from e')")  # imports the package
    admin.execute(LOOK)

    def ask(query: str, estimator: str = "exact_norm", beta: float = 1.0) -> dict[str, Any]:
        row = admin.execute(
            "select public.look(dp.deparse(%s), %s, %s)", (query, estimator, beta)
        ).fetchone()
        return json.loads(row[0])

    return ask


def refused(database: Any, user: str, statement: str, *before: str) -> psycopg.Error:
    connection = database.connect(user)
    for text in before:
        connection.execute(text)
    return asking.refused(connection, statement)


def create(query: str, *arguments: object) -> str:
    return f"select dp.create_sketch($q${query}$q${''.join(f', {a}' for a in arguments)})"


def sign(seed: bytes, value: str, estimator: int) -> int:
    digest = hashlib.shake_128(seed + value.encode()).digest(estimator // 8 + 1)
    return 1 - 2 * (digest[-1] >> estimator % 8 & 1)


def stored_counters(database: Any) -> dict[str, list[int]]:
    rows = database.sql("select relation::text || occurrence, counters from dp.sketch_counter")
    return {name: list(struct.unpack(f"<{len(raw) // 8}q", raw)) for name, raw in rows}


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
    """At most 5 ms, of processor time, and whatever the number of estimators."""
    for estimators in (10, 100_000):
        network.sql(create(CYCLE, estimators), user="owner1")
        for estimator in ("exact_norm", "norm", "mean"):
            assert look(CYCLE, estimator, 0.02)["ms"] < 5


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


def test_seeds_are_drawn_at_every_building_and_at_rotation(network: Any) -> None:
    seen = set()
    counters = []
    for statement in (create(PATH, 64), create(PATH, 64), "select dp.rotate_sketch_seeds()"):
        network.sql(statement, user="owner1")
        ((seed,),) = network.sql("select seed from dp.sketch_family")
        assert len(seed) == 32
        seen.add(seed)
        counters.append(stored_counters(network)["e0"])
    assert len(seen) == 3
    assert counters[0] != counters[1] != counters[2]


def test_rotation_counts_anew_and_forgets_what_cannot_be_built(network: Any, look: Any) -> None:
    network.sql(COLLECT, user="owner1")
    network.sql(create(PATH, 64), user="owner1")
    network.sql(create("select dp_count(*) from e, e as g where e.a = g.a", 64), user="owner1")
    before = look("select dp_count(*) from e, e as g where e.a = g.a")["bound"]
    network.sql("drop table f; insert into e select 1, 1 from generate_series(1, 50)")
    assert network.sql("select valid from dp.sketches order by 1", user="owner1") == [
        (False,),
        (True,),
    ]
    assert network.sql("select dp.rotate_sketch_seeds()", user="owner1") == [(1,)]
    assert network.sql("select valid from dp.sketches", user="owner1") == [(True,)]
    assert look("select dp_count(*) from e, e as g where e.a = g.a")["bound"] > before + 40


def warned(database: Any, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as the owner; return message, detail and hint of its warnings."""
    notices: list[tuple[Any, ...]] = []
    connection = database.connect("owner1")
    connection.add_notice_handler(
        lambda d: notices.append((d.message_primary, d.message_detail, d.message_hint))
    )
    connection.execute(statement)
    return notices


VALID = "select valid from dp.sketches"
ASK = f"select * from dp.explain('{PATH}')"


@pytest.mark.parametrize(
    ("collected", "named"), [("", "relations public.e, public.f"), ("e", "relation public.f")]
)
def test_a_sketch_that_no_question_may_use_is_not_valid(
    network: Any, collected: str, named: str
) -> None:
    if collected:
        network.sql(f"select dp.collect_statistics('{collected}')", user="owner1")
    expected = (
        f"no question can use the sketch while changes of {named} are not counted",
        "Nobody would know by how many rows the data differs from it.",
        "SELECT dp.collect_statistics('<relation>') for each, then build the sketch again.",
    )
    assert warned(network, create(PATH, 64)) == [expected]
    assert warned(network, "select dp.rotate_sketch_seeds()") == [expected]
    assert network.sql(VALID, user="owner1") == [(False,)]
    error = refused(network, "alice", ASK, "set dp.method = sketch")
    assert error.sqlstate == "PD020"
    network.sql(COLLECT, user="owner1")
    assert network.sql(VALID, user="owner1") == [(False,)]
    assert warned(network, create(PATH, 64)) == []
    assert network.sql(VALID, user="owner1") == [(True,)]
    with network.connect("alice") as alice:
        alice.execute("set dp.method = sketch")
        alice.execute(ASK)
    network.sql("set track_counts = off; insert into f values (1, 'x')")
    assert network.sql(VALID, user="owner1") == [(False,)]
    assert refused(network, "alice", ASK, "set dp.method = sketch").sqlstate == "PD020"


@pytest.mark.parametrize(
    ("away", "back", "why"),
    [
        (
            "alter table f rename to g",
            "alter table g rename to f",
            'Relation "public.f" does not exist. ',
        ),
        (
            "select dp.unprotect('f')",
            "select dp.protect('f')",
            'Relation "public.f" is neither protected nor public. ',
        ),
        (
            "alter table f rename b to d",
            "alter table f rename d to b",
            'Column "b" specified in USING',
        ),
    ],
)
def test_rotation_keeps_what_it_cannot_build_but_nobody_uses_it(
    network: Any, away: str, back: str, why: str
) -> None:
    network.sql(COLLECT, user="owner1")
    network.sql(create(PATH, 64), user="owner1")
    network.sql(create("select dp_count(*) from e, e as g where e.a = g.a", 64), user="owner1")
    ((number, query),) = network.sql(
        "select sketch, query from dp.sketches where 'f'::regclass = any (relations)"
    )
    network.sql("grant create on schema public to owner1")
    network.sql(away, user="owner1")
    ((message, detail, hint),) = warned(network, "select dp.rotate_sketch_seeds()")
    assert message == f"sketch {number} could not be built anew"
    assert detail.startswith(why)
    assert detail.endswith(f"The sketch is of: {query}")
    assert "dp.drop_sketch" in hint
    listed = "select sketch, valid from dp.sketches order by valid"
    ((kept, invalid), (_, valid)) = network.sql(listed, user="owner1")
    assert (kept, invalid, valid) == (number, False, True)
    network.sql(back, user="owner1")
    # old seeds are not used again
    assert network.sql(listed, user="owner1")[0] == (number, False)
    if "unprotect" in away:
        network.sql(COLLECT, user="owner1")
    error = refused(network, "alice", ASK, "set dp.method = sketch")
    assert error.diag.message_primary == "the sketch of relation public.e is not valid any more"
    assert network.sql("select dp.rotate_sketch_seeds()", user="owner1") == [(2,)]
    assert network.sql(VALID, user="owner1") == [(True,), (True,)]
    with network.connect("alice") as alice:
        alice.execute("set dp.method = sketch")
        alice.execute(ASK)


@pytest.mark.parametrize(
    "change",
    [
        "alter table f alter b type bigint",
        "alter table f alter c type text using c || '!'",
        "truncate f",
        "vacuum full f",
        "alter table f rename b to d; alter table f add b int not null default 1",
    ],
)
def test_a_sketch_of_an_altered_relation_is_refused(network: Any, look: Any, change: str) -> None:
    network.sql(create(PATH, 64), user="owner1")
    for statement in change.split(";"):
        network.sql(statement)
    state, message, detail, hint = look(PATH)["error"]
    assert state == "PD020"
    # another type makes another join
    assert message in (
        "the sketch of relation public.f is not valid any more",
        "relation public.e has no sketch for this join",
    )
    assert detail
    assert "dp.create_sketch" in hint
    network.sql(create(PATH, 64), user="owner1")
    assert "bound" in look(PATH)


def test_a_relation_without_a_sketch_is_named(network: Any, look: Any) -> None:
    network.sql(create(PATH, 64), user="owner1")
    assert look("select dp_count(*) from e, f where e.a = f.b")["error"] == [
        "PD020",
        "relation public.e has no sketch for this join",
        "It is joined on a.",
        "Its owner builds one: SELECT dp.create_sketch('<statement>').",
    ]


def test_a_swapped_partition_makes_a_sketch_invalid(network: Any, look: Any) -> None:
    network.sql(
        "create table p (b int, d int) partition by list (d);"
        " create table p1 partition of p for values in (1); create table p2 (b int, d int);"
        " insert into p values (1, 1), (2, 1); alter table p owner to owner1; alter table p1 owner to owner1"
    )
    network.sql("select dp.protect('p')", user="owner1")
    query = "select dp_count(*) from e join p using (b)"
    network.sql(create(query, 64), user="owner1")
    assert "bound" in look(query)
    network.sql("alter table p attach partition p2 for values in (2)")
    assert look(query)["error"][1] == "the sketch of relation public.p is not valid any more"


def test_more_estimators_than_memory_allows_are_refused(network: Any) -> None:
    error = refused(network, "owner1", create(PATH), "set maintenance_work_mem = '1MB'")
    assert error.sqlstate == "PD040"
    assert error.diag.message_primary == (
        "100000 estimators need more memory than maintenance_work_mem allows"
    )
    assert error.diag.message_detail.endswith("MB; maintenance_work_mem is 1MB.")
    assert error.diag.message_hint == (
        "Raise maintenance_work_mem for this session, or ask for fewer estimators."
    )
    assert network.sql("select count(*) from dp.sketch") == [(0,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), 'parameter "estimators" must be between 1 and 1000000'),
        ((-1,), 'parameter "estimators" must be between 1 and 1000000'),
        (("null",), 'parameter "estimators" must be between 1 and 1000000'),
        ((1_000_001,), 'parameter "estimators" must be between 1 and 1000000'),
        ((5, 0), 'parameter "rows" must be between 1 and 101'),
        ((5, 102), 'parameter "rows" must be between 1 and 101'),
    ],
)
def test_numbers_out_of_range_are_refused(network: Any, arguments: Any, message: str) -> None:
    error = refused(network, "owner1", create(PATH, *arguments))
    assert (error.sqlstate, error.diag.message_primary) == ("PD040", message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select dp_count(*) from e", "a sketch needs a join"),
        (
            "select dp_count(*) from e, f where e.b + 1 = f.b",
            "a join of relation public.e cannot be sketched",
        ),
        (
            "select dp_count(*) from w, w as v where w.t = v.t",
            "column t of relation public.w cannot be sketched",
        ),
    ],
)
def test_what_cannot_be_sketched_is_named(network: Any, query: str, message: str) -> None:
    network.sql("create table w (t time); alter table w owner to owner1")
    network.sql("select dp.protect('w')", user="owner1")
    error = refused(network, "owner1", create(query))
    assert (error.sqlstate, error.diag.message_primary) == ("PD010", message)
    assert error.diag.message_detail
    assert error.diag.message_hint


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


def test_a_foreign_table_is_refused(network: Any) -> None:
    network.sql(
        "create extension postgres_fdw; create server elsewhere foreign data wrapper postgres_fdw;"
        " create foreign table public.far (b int) server elsewhere; alter table far owner to owner1"
    )
    network.sql("select dp.protect('far')", user="owner1")
    error = refused(network, "owner1", create("select dp_count(*) from e join far using (b)", 10))
    assert (error.sqlstate, error.diag.message_primary) == (
        "PD010",
        "relation public.far cannot be sketched",
    )


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


def test_nothing_of_a_sketch_is_dumped(database: Any) -> None:
    rows = database.sql(
        "select c::regclass::text from pg_extension, unnest(extconfig) c where extname = 'dpsql'"
    )
    assert not [name for (name,) in rows if "sketch" in name]
