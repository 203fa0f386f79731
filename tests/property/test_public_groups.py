"""Groups that public relations tell: none that can have a result is left out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from dpsql.engine.groups import public_groups
from dpsql.query.pipeline import analyse
from dpsql.relation import Domain
from tests.property.random_joins import SnapshotDatabase
from tests.server.analyser_catalog import LiveCatalog

pytestmark = pytest.mark.server

COLUMNS = {
    "pub1": ("a", "b", "n", "t"),
    "pub2": ("a", "b", "n", "t"),
    "pub3": ("a", "b", "n", "t"),
    "priv1": ("a", "b", "n", "t"),
    "priv2": ("a", "b", "n", "t"),
}
PRIVATE = ("priv1", "priv2")
DECLARED = {f"public.{name}": name in PRIVATE for name in COLUMNS}
TYPES = {
    "pub1": "a int not null, b bigint, n numeric, t text",
    "pub2": "a bigint, b smallint, n numeric(8,2), t varchar(8)",
    "pub3": "a int primary key, b int, n numeric(6,1) not null, t char(3)",
    "priv1": "a int, b bigint, n numeric(8,2), t text",
    "priv2": "a int references pub3, b int not null, n numeric, t varchar(8)",
}
DOMAINS = {"public.priv2": (Domain("t", ("x", "y"), False), Domain("b", ("0", "1", "3"), False))}


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    connection.execute("set search_path = public")
    for name, columns in TYPES.items():
        connection.execute(f"create table {name} ({columns})")
    yield LiveCatalog(connection, DECLARED, domains=DOMAINS)
    server.drop_database(database)


def fill(catalog: LiveCatalog, random_: random.Random, names: tuple[str, ...]) -> None:
    """Fill relations with few values, so that they join often; NULL where it may be."""
    catalog.connection.execute("set search_path = public")
    for name in reversed(names):
        catalog.connection.execute(f"delete from {name}")  # type: ignore[arg-type]
    for name in names:
        for i in range(random_.randint(1, 8)):
            a = str(i) if name == "pub3" else random_.choice(["0", "1", "2", "3"])
            b = random_.choice(["0", "1", "2", "null" if name != "priv2" else "3"])
            if name not in ("pub1", "pub3") and random_.random() < 0.2:
                a = "null"
            if name == "priv2":
                a = f"(select min(a) from pub3 where a >= {random_.randint(0, 3)})"
            t = random_.choice(["'x'", "'y'", "'z '", "null"])
            n = random_.choice(["1", "1.0", "2.50", "0" if name == "pub3" else "null"])
            catalog.connection.execute(f"insert into {name} values ({a}, {b}, {n}, {t})")  # type: ignore[arg-type]


def random_query(random_: random.Random) -> tuple[str, list[str]]:
    """Draw FROM and WHERE over some public and private relations, and group keys."""
    names = [random_.choice(list(COLUMNS)) for _ in range(random_.randint(2, 5))]
    if not any(n in PRIVATE for n in names):
        names.append(random_.choice(PRIVATE))
    refs = [f"r{i}.{c}" for i, n in enumerate(names) for c in COLUMNS[n]]
    numbers = [r for r in refs if r[-1] != "t"]
    texts = [r for r in refs if r[-1] == "t"]
    makers = [
        *[lambda: f"{random_.choice(numbers)} = {random_.choice(numbers)}"] * 4,
        lambda: f"{random_.choice(texts)} = {random_.choice(texts)}",
        lambda: (
            f"{random_.choice(numbers)} {random_.choice(['<', '<>'])} {random_.choice(numbers)}"
        ),
        lambda: f"{random_.choice(numbers)} = {random_.randint(0, 3)}",
        lambda: f"{random_.choice(texts)} <> 'x'",
        lambda: f"({random_.choice(numbers)} > 0 or {random_.choice(texts)} is null)",
        lambda: f"{random_.choice(numbers)} + {random_.choice(numbers)} = 2",
    ]
    where = [random_.choice(makers)() for _ in range(random_.randint(1, 4))]
    sources = ", ".join(f"{n} r{i}" for i, n in enumerate(names))
    keys = random_.sample(refs, random_.randint(1, min(3, len(refs))))
    if random_.random() < 0.2:
        keys[0] = f"{random_.choice(numbers)} + 1"
    return f"from {sources} where {' and '.join(where)}", keys


def test_no_group_with_a_result_is_left_out(catalog: LiveCatalog) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    database = SnapshotDatabase(catalog.connection)
    known = pruned = met = 0
    for case in count():
        # the test itself must have met what it is about
        if case >= 150 and known > 20 and met > 50 and pruned > 5:
            break
        assert case < 2000, (known, met, pruned)
        body, keys = random_query(random_)
        fill(catalog, random_, tuple(COLUMNS))
        listed = ", ".join(keys)
        question = analyse(catalog.analyze(f"select dp_count(*) {body} group by {listed}"), catalog)
        catalog.connection.execute("set search_path = pg_catalog")
        groups = public_groups(question, database)
        if groups is None:
            continue
        known += 1
        assert len(set(groups)) == len(groups)
        shown = set(groups)
        # keys that are written twice are one
        unique = list(dict.fromkeys(keys))
        texts = ", ".join(written(body, k) for k in unique)
        for _ in range(4):
            fill(catalog, random_, PRIVATE)
            catalog.connection.execute("set search_path = public")
            rows = catalog.connection.execute(  # type: ignore[call-overload]
                f"select {texts} {body}{within(body, keys)} group by {listed}, {texts}"
            ).fetchall()
            met += len(rows)
            missing = {tuple(r) for r in rows} - shown
            assert not missing, (
                f"{body} group by {listed}: {missing} not in {sorted(groups, key=repr)}"
            )
        plain = 1
        for key in unique:
            name = relation_of(body, key)
            plain *= catalog.connection.execute(  # type: ignore[call-overload]
                f"select count(distinct coalesce(({key})::text, 'n')) from {name} {key[:2]}"
            ).fetchone()[0]
        pruned += len(groups) < plain


def relation_of(body: str, key: str) -> str:
    return body.split(f" {key[:2]}")[0].split()[-1]


def written(body: str, key: str) -> str:
    """Write a key as its text: a numeric without a declared scale is trimmed."""
    if key[3:4] == "n" and (" + " in key or relation_of(body, key) in ("pub1", "priv2")):
        return f"trim_scale({key})::text"
    return f"({key})::text"


def within(body: str, keys: list[str]) -> str:
    """Write what declared domains add: rows outside are not counted where it is a key."""
    added = []
    for key in keys:
        for domain in DOMAINS.get(f"public.{relation_of(body, key)}", ()):
            if domain.column == key[3:4]:
                values = ", ".join(f"'{v}'" for v in domain.values)
                added.append(f" and {key[:4]} in ({values})")
    return "".join(added)


NATIONS = """
create table region (r_regionkey int primary key, r_name char(25) not null);
create table nation (n_nationkey int primary key, n_name char(25) not null,
                     n_regionkey int not null references region);
create table customer (c_custkey int primary key, c_nationkey int not null references nation);
create table supplier (s_suppkey int primary key, s_nationkey int references nation);
insert into region values (0, 'AFRICA'), (1, 'ASIA'), (2, 'EUROPE');
insert into nation select i, 'nation ' || i, i % 3 from generate_series(0, 8) i;
insert into customer select i, 1 + i % 2 from generate_series(1, 20) i;
"""
REPORTED = [
    ("n_name", "nation, region, customer where n_regionkey = r_regionkey"
     " and c_nationkey = n_nationkey and r_name = 'ASIA'", 3),
    # over a private relation: all three are equal
    ("n_name", "nation, region, customer, supplier where n_regionkey = r_regionkey and"
     " c_nationkey = s_nationkey and s_nationkey = n_nationkey and r_name = 'ASIA'", 3),
    # a private key that equals a public one
    ("c_nationkey", "nation, region, customer where n_regionkey = r_regionkey"
     " and c_nationkey = n_nationkey and r_name in ('ASIA', 'EUROPE')", 6),
    # two keys of connected relations are reported as they occur together
    ("n_name, r_name", "nation, region, customer where n_regionkey = r_regionkey"
     " and c_nationkey = n_nationkey and r_name <> 'ASIA'", 6),
    # a private condition says nothing about groups
    ("n_name", "nation, customer where c_nationkey = n_nationkey and c_custkey < 5", 9),
    # but one that the text puts on a public key does
    ("n_name", "nation, customer where c_nationkey = n_nationkey and c_nationkey = 4", 1),
    ("n_name", "nation, customer, region where c_nationkey = n_nationkey and"
     " n_regionkey < r_regionkey and r_name = 'EUROPE'", 6),
    # an independent public relation does not multiply
    ("n_name", "nation, region, customer where c_nationkey = n_nationkey and r_regionkey > 0", 9),
    ("a.n_name, b.n_name", "nation a, nation b, customer, region where c_nationkey = a.n_nationkey"
     " and b.n_regionkey = r_regionkey and r_name = 'ASIA'", 27),
    ("n_name", "nation, region, customer where n_regionkey = r_regionkey"
     " and c_nationkey = n_nationkey and r_name = 'ATLANTIS'", 0),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "body", "number"), REPORTED)
def test_how_many_groups_are_reported(server: Any, keys: str, body: str, number: int) -> None:
    database = server.create_database()
    connection = database.connect()
    connection.execute("set search_path = public")
    connection.execute(NATIONS)
    private = ("customer", "supplier")
    catalog = LiveCatalog(
        connection,
        {f"public.{n}": n in private for n in ("region", "nation", *private)},
    )
    question = analyse(
        catalog.analyze(f"select {keys}, dp_count(*) from {body} group by {keys}"), catalog
    )
    connection.execute("set search_path = pg_catalog")
    groups = public_groups(question, SnapshotDatabase(connection))
    server.drop_database(database)
    assert groups is not None
    assert len(groups) == number
    assert len(set(groups)) == number
