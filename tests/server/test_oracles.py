"""Three ways to read a protected value exactly, without noise, tell nothing before and after `dp.lockdown()`.

Twin databases differ in one customer.  Each way is tried by a role that has nothing but a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpsql.query.constants import MAX_WILDCARDS
from tests.server.hostile.questions import Question
from tests.server.hostile.shapes import STACKS
from tests.server.hostile.trying import Pair, Seen, Trial, compare, deepest

pytestmark = pytest.mark.server

SET_UP = """
create table customer (c_custkey int primary key, c_name text not null, c_acctbal numeric(15, 2) not null);
create table reading (like customer including all);
create table rating (id int primary key, customer int not null references customer, movie int not null, stars int not null);
insert into customer select i, 'customer ' || i, i from generate_series(1, 400) as i;
insert into reading table customer;
select dp.protect('customer', privacy_unit => 'c_custkey'), dp.protect('reading');
select dp.set_degree_bound('rating', array['movie'], 1000), dp.expose('rating');
select dp.grant_budget('alice', 1e6, 1e-3);
"""
PLANTED = """
insert into customer values (7000, 'somebody', 469.82);
insert into reading select * from customer where c_custkey = 7000;
insert into rating values (0, 7000, 1, 5);
"""
#: Inserted last, so that the planted rating takes the first number.
OTHERS = "insert into rating select i, i % 400 + 1, 1, i % 5 from generate_series(1, 500) as i"


@contextmanager
def twins(server: Any) -> Iterator[Pair]:
    databases = []
    for planted in ("", PLANTED):
        databases.append(server.create_database())
        for text in (SET_UP, planted, OTHERS):
            databases[-1].sql(text or "select 1")
    pair = Pair((databases[0], databases[1]))
    yield pair
    pair.close()
    for database in databases:
        server.drop_database(database)


@pytest.fixture(scope="module", params=["open", "locked"])
def pair(server: Any, request: Any) -> Iterator[Pair]:
    with twins(server) as made:
        made.lock(request.param == "locked")
        yield made


def asked(pair: Pair, trial: Trial) -> list[Seen]:
    """Run a trial on both; they show the same."""
    seen = pair.run(trial)
    assert (found := compare(trial, *seen)) is None, found
    return list(seen)


def questions(*texts: str) -> tuple[Question, ...]:
    return tuple(Question(text[:60], (text,)) for text in texts)


@pytest.mark.parametrize("relation", ["customer", "reading"])
def test_a_full_stack_and_a_pattern_tell_nothing(pair: Pair, relation: str) -> None:
    """LIKE calls itself for each wildcard that a text matches; the text is long for one row only."""
    where = f"replace(case when c_custkey = 7000 and c_acctbal >= 469.82 then '{'a' * 99}' else 'b' end, 'a', '{'a' * 100}')"
    texts = [f"select dp_count(*) from {relation} where {where} like '{'%a' * n}'" for n in (MAX_WILDCARDS, 5000)]  # fmt: skip
    shape = STACKS[0]
    most = deepest(pair, shape)
    for short in (1, 20, 100, most - 60, most):
        for seen in asked(pair, Trial(((shape, most - short),), questions(*texts))):
            # the stack that reads is the service's: the asker's does not count
            assert seen.states() == ["", "PD011"]
            assert len(seen.charged) == 1


def test_numbers_of_rows_tell_nothing(pair: Pair) -> None:
    """Without the planted customer each of the other ratings has another number."""
    counts = [twin.sql("select count(*) from rating where id = dp_slot_movie") for twin in pair.twins]  # fmt: skip
    assert counts == [[(500,)], [(0,)]]
    texts = (
        "select dp_count(*) from rating where id = dp_slot_movie",
        "select dp_count(*) from (select * from rating) as r where id = dp_slot_movie",
        "select count(*) from dpv.rating where id = dp_slot_movie",
        "select dp_count(*) from rating as r join customer on r.dp_slot_movie = c_custkey",
        "select dp_slot_movie, dp_count(*) from rating group by 1",
        "select dp.release('r', 'select dp_slot_movie > 9, dp_count(*) from rating group by 1')",
    )
    for seen in asked(pair, Trial((), questions(*texts))):
        assert seen.states() == ["PD011", "PD011", "42703", "PD011", "PD011", "PD011"]
        assert seen.charged == []


#: Combinations of units go to disk beyond so many bytes; the original limit, scaled down.
LIMIT = """
import dpsql.statistics.memberships as m
m.memberships.__kwdefaults__["memory_limit"] = {limit}
"""
#: A mutant: beyond the limit the question fails.
FAILS = """
def refuse(*given):
    raise MemoryError
m._Reading.in_pieces = refuse
"""
COMBINED = questions(
    "select dp_count(*) from customer as a, customer as b where a.c_custkey <= 2 or a.c_name = 'somebody'"
)


def at_limits(mutant: str) -> Iterator[Trial]:
    """Yield trials whose limits begin below the 2 x 400 combinations and end above 3 x 401."""
    for combinations in range(600, 1600, 100):
        yield Trial((), COMBINED, patch=LIMIT.format(limit=6 * 12 * combinations) + mutant)


def test_the_memory_of_combinations_tells_nothing(pair: Pair) -> None:
    """A name that exists adds the combinations of its customer with all others."""
    for trial in at_limits(""):
        for seen in asked(pair, trial):
            assert seen.states() == [""]


def test_a_limit_on_combinations_is_noticed(pair: Pair) -> None:
    for twin in pair.twins:
        twin.sql("select dp.set_failure_limit('customer', 1000)")
    found = [compare(trial, *pair.run(trial)) for trial in at_limits(FAILS)]
    assert any("PD900" in each.what for each in found if each)
