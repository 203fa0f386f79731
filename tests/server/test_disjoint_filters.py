"""Parallel composition: which aggregates share nothing, whether that is true, and what they cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.query import disjoint
from dpsql.query.pipeline import analyse
from tests.server.analyser_catalog import LiveCatalog
from tests.server.unit_shop import SET_UP

SCHEMA = """
create table public.t (id int primary key, x int, n numeric, s text, v varchar(3), b boolean,
                       d date, c char(2), f float8, z bigint not null);
create table public.pub (x int not null, k int);
create table public.u (id int primary key, t_id int);
"""
# every combination of two of the columns' values, borders and NULL included
VALUES = {
    "x": ["null", "0", "1", "2", "3", "2147483647"],
    "n": ["null", "0.5", "1.0", "1.00", "2", "'NaN'"],
    "s": ["null", "''", "'a'", "'a '", "'A'", "'b'"],
    "v": ["null", "''", "'a'", "'b'", "'ab'"],
    "b": ["null", "true", "false"],
    "d": ["null", "'2024-02-28'", "'2024-02-29'", "'2024-03-01'", "'infinity'", "'-infinity'"],
    "c": ["null", "'a'", "'a '", "'b'"],
    "f": ["null", "0", "1", "'NaN'"],
    "z": ["0", "1", "2", "3"],
}
CONSTANTS = {
    "x": ["0", "1", "2", "3", "1.5", "null"],
    "n": ["0.5", "1", "1.00", "2"],
    "s": ["''", "'a'", "'a '", "'b'"],
    "v": ["''", "'a'", "'b'"],
    "d": ["date '2024-02-28'", "date '2024-02-29'", "date '2024-03-01'"],
    "c": ["'a'", "'b'", "'a '"],
    "f": ["0", "1"],
    "z": ["0", "1", "2", "3"],
}


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    connection.execute("set search_path = public")
    connection.execute(SCHEMA)
    number = itertools.count()
    for one, other in itertools.combinations(VALUES, 2):
        rows = ", ".join(
            f"({next(number)}, {a}, {b}{'' if 'z' in (one, other) else ', 0'})"
            for a, b in itertools.product(VALUES[one], VALUES[other])
        )
        more = "" if "z" in (one, other) else ", z"
        connection.execute(f"insert into t (id, {one}, {other}{more}) values {rows}")
    yield LiveCatalog(connection, {"public.t": True, "public.pub": False, "public.u": True})
    server.drop_database(database)


def blocks(catalog: LiveCatalog, *conditions: str, source: str = "t") -> tuple[int, ...]:
    counts = ", ".join(f"dp_count(*) filter (where {condition})" for condition in conditions)
    return analyse(catalog.analyze(f"select {counts} from {source}"), catalog).blocks


def condition(chance: random.Random) -> str:
    column = chance.choice(list(VALUES))
    if column == "b":
        return chance.choice(
            ["b", "not b", "b is true", "b is false", "b is null", "b is not true"]
        )
    form = chance.randrange(10)
    first, second = (chance.choice(CONSTANTS[column]) for _ in range(2))
    if form < 5:
        return f"{column} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {first}"
    if form == 5:
        return f"{first} {chance.choice(['<', '>=', '='])} {column}"
    if form == 6:
        return f"{column} {chance.choice(['in', 'not in'])} ({first}, {second})"
    if form == 7:
        return f"{column} between {first} and {second}"
    if form == 8:
        return f"{column} is {chance.choice(['null', 'not null'])}"
    return f"not ({column} = {first} or {column} = {second})"


def pairs(seed: int, number: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(seed)
    for _ in range(number):
        one, other = (
            " and ".join(condition(chance) for _ in range(chance.randrange(1, 3))) for _ in "ab"
        )
        yield one, other


def wrong(catalog: LiveCatalog, seed: int, number: int) -> tuple[int, list[tuple[str, str]]]:
    """Count the pairs that are told apart, and list those of which a row satisfies both."""
    apart, found = 0, []
    for one, other in pairs(seed, number):
        if blocks(catalog, one, other) != (0, 0):
            continue
        apart += 1
        (both,) = catalog.connection.execute(
            f"select count(*) from public.t where ({one}) and ({other})"
        ).fetchone()
        if both:
            found.append((one, other))
    return apart, found


def test_no_row_satisfies_two_conditions_of_a_block(catalog: LiveCatalog) -> None:
    """Exhaustive over the rows of two columns each; conditions are random.

    Of 100 pairs 4.3 are told apart: of 1200 ten or fewer with a probability below 1e-9.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    apart, found = wrong(catalog, seed, 1200)
    assert found == [], f"seed {seed}"
    assert apart > 10, f"seed {seed}"


@pytest.mark.parametrize("mutant", ["touching ranges", "lists that overlap", "blanks"])
def test_mutants_of_the_rule_are_caught(
    catalog: LiveCatalog, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    pairs_of = {
        "touching ranges": ("x <= 2", "x >= 2"),
        "lists that overlap": ("x in (1, 2)", "x in (2, 3)"),
        "blanks": ("c = 'a'", "c = 'a '"),
    }
    one, other = pairs_of[mutant]
    assert len(set(blocks(catalog, one, other))) == 2
    if mutant == "touching ranges":
        monkeypatch.setattr(
            disjoint, "_below", lambda high, low: bool(high and low) and high[0] <= low[0]
        )
    elif mutant == "lists that overlap":
        monkeypatch.setattr(disjoint._Facts, "excludes", lambda a, b: a.among != b.among)
    else:
        monkeypatch.setattr(disjoint, "_value", lambda e: ("bpchar", str(e.data)))
    assert blocks(catalog, one, other) == (0, 0)
    (both,) = catalog.connection.execute(
        f"select count(*) from public.t where ({one}) and ({other})"
    ).fetchone()
    assert both > 0


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (("x = 1", "x = 2", "x = 3"), (0, 0, 0)),
        (("x = 1", "x = 2", "x < 2"), (0, 0, 1)),
        (("true", "x = 1", "x = 2"), (0, 1, 1)),
        (("x < 10", "x >= 10 and x < 20", "x >= 20"), (0, 0, 0)),
        (("b", "not b"), (0, 0)),
        (("b", "b is null"), (0, 0)),
        (("s = 'a' and x > 3", "s = 'b'"), (0, 0)),
        (("s like 'a%'", "not (s like 'a%')"), (0, 0)),
        (("s like 'a%'", "s like 'b%'"), (0, 1)),
        (("x = 1", "z = 2"), (0, 1)),
        (("x = 1 or x = 2", "x = 3"), (0, 1)),
        (("v in ('a', 'b')", "v = 'ab'", "v is null"), (0, 0, 0)),
        (("d < date '2024-03-01'", "d >= date '2024-03-01'"), (0, 0)),
        (("id % 2 = 0", "id % 2 = 1"), (0, 0)),
    ],
)
def test_what_is_recognised(
    catalog: LiveCatalog, conditions: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    assert blocks(catalog, *conditions) == expected


@pytest.mark.parametrize(
    ("source", "one", "other", "apart"),
    [
        ("t join pub on pub.x = t.x", "t.b", "not t.b", True),
        ("t join pub on pub.x = t.x", "t.x = 1", "t.x = 2", True),
        # a protected row joins public rows of both kinds
        ("t join pub on pub.x = t.x", "pub.k = 1", "pub.k = 2", False),
        # a row takes part in results of either kind, of its own and as another's partner
        ("t join t t2 on t.x = t2.x", "t.b", "not t.b", False),
        ("t join u on u.t_id = t.x", "t.b", "not t.b", False),
        ("t join u on u.t_id = t.x", "u.id = 1", "u.id = 2", False),
    ],
)
def test_every_private_relation_must_be_told_apart(
    catalog: LiveCatalog, source: str, one: str, other: str, apart: bool
) -> None:
    assert blocks(catalog, one, other, source=source) == ((0, 0) if apart else (0, 1))


def estimates(connection: Any, statement: str) -> tuple[list[float], float]:
    *lines, (_, total) = connection.execute(
        "select aggregate, epsilon::float8 from dp.estimate(%s)", (statement,)
    ).fetchall()
    return [epsilon for _, epsilon in lines], total


UNITS = "select dp_count(*) filter (where {}), dp_count(*) filter (where {}) from {}"


@pytest.mark.parametrize(
    ("one", "other", "source", "apart"),
    [
        ("n = 1", "n = 2", "customer", True),
        ("n = 1", "n = 2", "customer join orders using (c)", True),
        ("n = 1", "n = 2", "customer join orders using (c) join item using (o)", True),
        # a unit has orders of both kinds
        ("urgent", "not urgent", "orders", False),
        ("urgent", "not urgent", "customer join orders using (c)", False),
        ("weight < 3", "weight > 5", "item", False),
    ],
)
def test_units_are_in_one_block_by_their_own_row_only(
    database: Any, one: str, other: str, source: str, apart: bool
) -> None:
    database.sql(SET_UP)
    statement = UNITS.format(one, other, source)
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 8")
        share = 8.0 if apart else 4.0
        assert estimates(alice, statement) == ([share, share], 8.0)
    if not apart:
        return
    # what the claim rests on: no unit adds to both numbers
    both = f"select count(*) from (select c from {source} group by c having bool_or({one}) and bool_or({other})) q"
    assert database.sql(both) == [(0,)]


def test_a_unit_whose_column_is_no_key_has_several_rows(database: Any) -> None:
    database.sql(
        "create table visit (person int not null, ward int);"
        " insert into visit select i % 50, i % 3 from generate_series(1, 500) i;"
        " select dp.protect('visit', privacy_unit => 'person');"
        " grant usage on schema public to alice; select dp.grant_budget('alice', 100)"
    )
    with database.connect("alice") as alice:
        assert estimates(alice, UNITS.format("ward = 1", "ward = 2", "visit"))[0] == [0.5, 0.5]


def test_the_charge_is_that_of_one_block_and_each_number_has_all_of_it(shop: Any) -> None:
    statement = (
        "select dp_count(*) filter (where c_kind = 'a') as a, dp_count(*) filter (where c_kind = 'b')"
        " as b, dp_interval_high(dp_count(*) filter (where c_kind = 'a')) -"
        " dp_count(*) filter (where c_kind = 'a') as half from client"
    )
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 0.5")
        a, b, half = alice.execute(statement).fetchone()
        assert half == 6, "the noise of one count at epsilon 0.5, not 0.25"
        assert shop.sql("select epsilon, delta, rho < 0.5 * 0.5 / 2 from dp.spend") == [
            (0.5, 0, True)
        ]
        assert alice.execute(statement).fetchone() == (a, b, half)
        assert shop.sql("select epsilon_spent::float8 from dp.budgets where role = 'alice'") == [
            (0.5,)
        ]
        total = alice.execute(
            "select note from dp.estimate(%s) where aggregate = 'total'",
            (statement.replace("'a'", "'c'"),),
        ).fetchone()
        assert total is not None
        assert "disjoint rows" in total[0]


@pytest.mark.parametrize(
    "setting", ["dp.statistics = auto", "dp.method = sampling_published", "dp.method = sampling"]
)
def test_bounds_that_look_at_other_rows_share_nothing(shop: Any, setting: str) -> None:
    shop.sql("select dp.allow_heuristic('client')")
    statement = (
        "select dp_count(*) filter (where c_kind = 'a'), dp_count(*) filter (where c_kind = 'b')"
        " from client join region on r_id = c_region"
    )
    with shop.connect(user="alice") as alice:
        assert estimates(alice, statement)[0] == [1.0, 1.0]
        alice.execute(f"set {setting}")
        each, total = estimates(alice, statement)
        assert max(each) <= 0.5
        assert total <= 1
