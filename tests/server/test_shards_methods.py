"""Every method bounds joins over shards as over one server, and none has a shard send its rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from dpsql.core.sampling import ALPHA
from dpsql.model import Boundary, JoinQuery
from dpsql.query.places import with_places
from dpsql.relation import Part, Relation
from dpsql.statistics.chains import plan_chains
from dpsql.statistics.norms import count_norms
from dpsql.statistics.sizes import read_facts
from dpsql.statistics.walks import Runner
from tests.property.random_joins import SnapshotDatabase, some_boundaries
from tests.server.asking import refused
from tests.server.shards import Shards, sharded
from tests.server.walk_cases import join

ROWS = 3000
#: A path of three relations; the first two are joined on what both are cut by.  Every row has
#: partners, and no value has many: whatever walks choose, they arrive, and they read little.
TABLES = {"e1": ("b", 300), "e2": ("a", 500), "e3": ("b", 400)}
PATH = "select dp_count(*) from e1, e2, e3 where e1.b = e2.a and e2.b = e3.a"
WALKS = 60
DECLARE = "select dp.protect('{name}'), dp.declare_shards('{name}', written => 'coordinator')"
FILL = (
    "insert into {name} select i % {values}, (i * 7919) % 400 from generate_series(1, "
    f"{ROWS}) i"
)


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 3) as found:
        for name, (key, values) in TABLES.items():
            found.table(name, "a int, b int", key, declare=DECLARE.format(name=name))
            found.near.sql(FILL.format(name=name, values=values))
        found.near.sql("select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4)")
        yield found


class Watching(SnapshotDatabase):
    """Keeps what shards are asked, and how many rows they send."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.sent: list[tuple[str, int]] = []
        #: Of each of these how many keys the shard got; ``None``: none.
        self.keys: list[int | None] = []
        self.asynchronous: list[bool] = []

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        written = re.sub(r"\$\d", "%s", sql.replace("%", "%%")) if parameters else sql
        cursor = psycopg.ClientCursor(self.connection)
        explain = f"explain (analyze, verbose, format json) {written}"
        (plan,) = cursor.execute(explain, [v for _, v in parameters] or None).fetchone() or ()
        self._read(plan[0]["Plan"])
        return super().execute(sql, parameters)

    def _read(self, node: dict[str, Any]) -> None:
        if node["Node Type"] == "Foreign Scan":
            rows = round(node["Actual Rows"] * node["Actual Loops"])
            self.sent.append((node["Remote SQL"], rows))
            lists = [n for n in node.get("Plans", []) if n["Parent Relationship"] == "InitPlan"]
            self.keys.append(sum(n["Actual Rows"] for n in lists) if lists else None)
            self.asynchronous.append(node["Async Capable"])
        for below in node.get("Plans", []):
            self._read(below)


def path(connection: psycopg.Connection[Any]) -> JoinQuery:
    """Return the path over the relations as the catalogue shows them."""
    query = join([(-1, 0), (0, 1), (1, -1)], [*TABLES])

    def cut(relation: Relation) -> Relation:
        found = connection.execute(
            "select c::oid::int8, dp.parts_of(c) from cast(%s as regclass) as c", (relation.name,)
        ).fetchone()
        assert found is not None
        facts = found[1] if isinstance(found[1], dict) else json.loads(found[1])
        return replace(
            relation,
            oid=found[0],
            kind="p",
            parts=tuple(Part(*part) for part in facts["parts"]),
            cut_by=tuple(facts["cut_by"]),
            layout=facts["layout"],
        )

    occurrences = tuple(replace(o, relation=cut(o.relation)) for o in query.occurrences)
    return with_places(replace(query, occurrences=occurrences))


@pytest.fixture
def watching(shards: Shards) -> Iterator[tuple[Watching, JoinQuery]]:
    with shards.near.connect() as connection:
        query = path(connection)
        assert sum(a.place for a in query.attributes) == 1
        yield Watching(connection), query


def test_walks_ask_shards_for_keys_and_groups(watching: tuple[Watching, JoinQuery]) -> None:
    database, query = watching
    sizes = read_facts(query, database).sizes(query)  # type: ignore[arg-type]
    wanted = [b for b in boundaries(query) if len(b.occurrences) == 3]
    (chain, *_) = plan_chains(query, wanted, sizes)
    runner = Runner(query, database, b"0123456789abcdef", sizes, lambda: None)  # type: ignore[arg-type]
    whole = runner.whole(chain)
    runner.learn(step.degree for step in whole.steps)
    largest = max(runner.largest[step.degree] for step in whole.steps[1:])
    database.sent.clear()
    database.keys.clear()
    (report, *_) = runner.walk(whole, WALKS)
    assert report.join > 0
    assert database.sent
    grouped = 0
    for (text, rows), keys in zip(database.sent, database.keys, strict=True):
        if "GROUP BY" in text or "count(" in text:
            grouped += rows
        else:
            assert "= ANY ($" in text
            assert rows <= min(keys or 0, WALKS) * largest
    assert grouped <= 400  # the first relation's kept values, each on one shard
    sent = sum(rows for _, rows in database.sent)
    assert sent <= 400 + (len(whole.steps) - 1) * WALKS * largest < ROWS / 2


def test_a_walk_steps_to_the_shard_that_holds_its_key(
    watching: tuple[Watching, JoinQuery],
) -> None:
    """Where parts are joined one by one; the third relation is cut by something else."""
    database, query = watching
    sizes = read_facts(query, database).sizes(query)  # type: ignore[arg-type]
    wanted = [b for b in boundaries(query) if len(b.occurrences) == 3]
    (chain, *_) = plan_chains(query, wanted, sizes)
    runner = Runner(query, database, b"0123456789abcdef", sizes, lambda: None)  # type: ignore[arg-type]
    whole = runner.whole(chain)
    assert whole.order == (0, 1, 2)
    runner.learn(step.degree for step in whole.steps)
    database.sent.clear()
    database.keys.clear()
    database.asynchronous.clear()
    runner.walk(whole, WALKS)
    asked = [text for text, _ in database.sent]
    own = [k for k, text in zip(database.keys, asked, strict=True) if "FROM public.e2" in text]
    every = [k for k, text in zip(database.keys, asked, strict=True) if "FROM public.e3" in text]
    assert len(own) == len(every) == 3
    assert 0 < sum(k or 0 for k in own) <= WALKS  # each key goes to one shard
    assert max(k or 0 for k in own) < sum(k or 0 for k in own)  # of several
    assert len(set(every)) == 1  # and these to all
    assert all(database.asynchronous), asked


def boundaries(query: JoinQuery) -> list[Boundary]:
    own = frozenset({0, 1, 2})
    found = some_boundaries(query)
    return [*found, *(Boundary(own, frozenset({a.id})) for a in query.attributes if not a.place)]


def test_norms_ask_shards_for_groups(watching: tuple[Watching, JoinQuery]) -> None:
    database, query = watching
    count_norms(query, database)  # type: ignore[arg-type]
    assert database.sent
    assert all("GROUP BY" in text for text, _ in database.sent)


def bound(database: Any, method: str) -> float:
    call = "select dp.sensitivity(%s, method => %s, beta => 0.1)"
    with database.connect() as session:
        # walks may miss a largest group, or estimate too much, with half this probability
        session.execute("set dp.delta = 1e-10")
        ((value,),) = session.execute(call, (PATH, method)).fetchall()
    return float(value)


@pytest.fixture(scope="module")
def one_server(server: Any) -> Iterator[Any]:
    database = server.create_database()
    database.sql("grant dp_owner to owner1")
    for name, (_, values) in TABLES.items():
        database.sql(f"create table {name} (a int, b int); alter table {name} owner to owner1")
        database.sql(f"select dp.protect('{name}')", user="owner1")
        database.sql(FILL.format(name=name, values=values))
    yield database
    server.drop_database(database)


@pytest.mark.parametrize(("method", "exact"), [("residual", True), ("elastic", False), ("sampling", False)])  # fmt: skip
def test_methods_bound_as_over_one_server(
    shards: Shards, one_server: Any, method: str, exact: bool
) -> None:
    """By definition the join over shards has one more join attribute, which may only help."""
    many = bound(shards.near, method)
    one = bound(one_server, "residual" if method == "sampling" else method)
    slack = math.exp(ALPHA) if method == "sampling" else 1.0
    assert many <= one * slack * (1 + 1e-6)
    assert many == pytest.approx(one, rel=1e-6) or not exact


def test_norms_bound_what_is_counted(shards: Shards) -> None:
    assert bound(shards.near, "sketch") >= bound(shards.near, "residual")


def test_a_sketch_is_neither_kept_nor_needed(shards: Shards) -> None:
    with shards.near.connect(user="owner1") as owner:
        error = refused(owner, f"select dp.create_sketch('{PATH}')")
        assert "other servers" in str(error.diag.message_detail)
    shards.near.sql("select dp.allow_heuristic('e1'), dp.allow_heuristic('e2'), dp.allow_heuristic('e3')")  # fmt: skip
    with shards.near.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 1; set dp.method = sketch")
        assert alice.execute(PATH).fetchone() is not None
        alice.execute("set dp.method = sketch_published")
        error = refused(alice, PATH)
        assert "needs a sketch that is kept" in str(error)
        assert "other servers" in str(error.diag.message_detail)
