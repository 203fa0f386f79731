"""Relations that Citus keeps, without Citus: its catalogue makes them so, and each step reads a state of its own.

What a step reads is chosen here: the k-th occurrence of a table in a statement is read from another
table, of other rows, as if others had committed between the steps (docs/citus.md, theorem).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.server.asking import refused, silent, state
from tests.server.in_service import in_service

UNITS = range(1, 7)
STATES = 3
#: What Citus answers when it is asked for its workers.
CITUS = """
set allow_system_table_mods = on;
create table pg_catalog.pg_dist_partition (logicalrelid regclass not null, partmethod "char" not null);
grant select on pg_catalog.pg_dist_partition to public;
create table pg_catalog.node (problem text);
grant select on pg_catalog.node to public;
create function pg_catalog.run_command_on_workers(command text)
  returns table (nodename text, nodeport int, success bool, result text) language sql
  as $$ select 'worker', 5432, problem is distinct from 'down', problem from pg_catalog.node $$;
"""
VISITS = """
create table visit (v_who int not null, v_place int, v_amount int);
create table place (p_id int not null);
insert into place values (1), (2);
alter table visit owner to owner1; alter table place owner to owner1;
grant dp_owner to owner1;
insert into pg_catalog.pg_dist_partition values ('visit', 'h'), ('place', 'n');
"""
DECLARE = """
select dp.declare_shards('visit', written => 'anywhere');
select dp.declare_shards('place', written => 'anywhere');
select dp.protect('visit', privacy_unit => 'v_who'), dp.declare_public('place');
select dp.set_domain('visit', 'v_amount', 0, 9);
select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e6, 1e-2);
"""
#: The k-th time that a statement names the table it means the k-th state; and what units are cut off at.
STEPS = in_service("""
from dpsql.statistics import running
from dpsql.core.mechanisms import truncation
truncation.bounds = lambda largest, least=1: ({tau},)
asked = running._by_steps
def of_states(query, database, sql):
    return asked(query, Moved(database), sql)
class Moved:
    def __init__(self, database): self.database = database
    def __getattr__(self, name): return getattr(self.database, name)
    def execute(self, sql, *more):
        first, *others = sql.split('"public"."visit"')
        for k, text in enumerate(others):
            first += '"public"."visit_' + str((k + {first}) % {states}) + '"' + text
        # a service session reads what it has locked
        named = "select array_agg(oid::int8) as o from pg_class where relname ~ '^visit_[0-9]+$'"
        states = self.database.execute(named)[0][0]
        self.database.lock_members([int(oid) for oid in states], before_rows=True)
        return self.database.execute(first, *more)
running._by_steps = of_states
""")
#: Counts over one reading, and over two or three of one table, each of its own state.
QUESTIONS = (
    "select dp_count(*) from visit",
    "select dp_count(*) from visit where v_amount > 3",
    "select dp_count(distinct v_place) from visit",
    "select dp_count(*) from visit a join visit b on a.v_who = b.v_who where a.v_amount < b.v_amount",
    "select dp_count(*) from visit a join visit b on a.v_who = b.v_who and a.v_place = b.v_place",
    "select dp_count(*) from visit a join visit b on a.v_who = b.v_who"
    " join visit c on b.v_who = c.v_who where c.v_place = 1",
    "select dp_count(*) from visit a join visit b on a.v_who = b.v_who join place on a.v_place = p_id",
)


@pytest.fixture
def clinic(database: Any) -> Any:
    database.sql(CITUS)
    database.sql(VISITS)
    return database


def fill(database: Any, draw: random.Random) -> None:
    """Make states that have little to do with each other; two units have rows in each of them."""
    for k in range(STATES):
        rows = [(unit, 1, draw.randrange(10)) for unit in draw.sample(UNITS, 2)]
        rows += [
            (draw.choice(UNITS), draw.choice((1, 2, 3, None)), draw.randrange(10))
            for _ in range(draw.randrange(5, 25))
        ]
        database.sql(
            f"create table visit_{k} (like visit); grant select on visit_{k} to dp_executor"
        )
        for row in rows:
            database.sql(f"insert into visit_{k} values (%s, %s, %s)", *row)


@pytest.mark.parametrize("tau", [2, 5])
def test_a_unit_more_or_less_moves_an_answer_by_the_bound(clinic: Any, tau: int) -> None:
    """With all its versions in all states; at random, whatever the states are."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    clinic.sql(DECLARE, user="owner1")
    fill(clinic, random.Random(seed))
    with silent(clinic, "visit", STEPS.format(tau=tau, first=0, states=STATES)) as session:

        def asked() -> list[int]:
            return [session.execute(question).fetchone()[0] for question in QUESTIONS]

        whole = asked()
        moved = 0
        for k in range(STATES):
            session.execute(f"create table every_{k} as table visit_{k}")
        for unit in UNITS:
            for k in range(STATES):
                session.execute(f"delete from visit_{k} where v_who = {unit}")
            less = asked()
            for k in range(STATES):
                session.execute(f"truncate visit_{k}; insert into visit_{k} table every_{k}")
            assert all(0 <= w - n <= tau for w, n in zip(whole, less, strict=True)), unit
            moved += whole != less
        assert moved > 1


def test_the_states_are_different_ones(clinic: Any) -> None:
    """Each occurrence is read in a step of its own, so that the test above tests something."""
    clinic.sql(DECLARE, user="owner1")
    fill(clinic, random.Random(1))
    for k, rows in enumerate(([(1, 1, 1)], [(1, 1, 2), (1, 2, 2)], [(1, 1, 1)] * 3)):
        clinic.sql(f"truncate visit_{k}")
        for row in rows:
            clinic.sql(f"insert into visit_{k} values (%s, %s, %s)", *row)
    with silent(clinic, "visit", STEPS.format(tau=10**6, first=0, states=STATES)) as session:
        found = [session.execute(question).fetchone()[0] for question in QUESTIONS]
    # 1; 0 of it above 3; one place; 1 < 2 twice; one pair of place 1; 1 x 2 x 3; 1 x 2
    assert found == [1, 0, 1, 2, 1, 6, 2]


def test_a_text_may_name_the_relation(clinic: Any) -> None:
    """What is looked at is where a statement reads a relation, not what it says of it."""
    clinic.sql(DECLARE, user="owner1")
    clinic.sql("insert into visit values (1, 1, 1), (2, 1, 1)")
    with clinic.connect("alice") as session:
        session.execute("set dp.epsilon = 1")
        asked = """select dp_count(*) from visit where v_amount::text <> '"public"."visit"'"""
        assert session.execute(asked).fetchone() is not None


def test_readings_that_share_no_unit_would_move_it_further(clinic: Any) -> None:
    """A mutant: cut off by the first row's unit, filtered by what the second reading has."""
    clinic.sql("create table seen (u int, place int); create table then_seen (u int, place int)")
    clinic.sql("insert into seen select i, 1 from generate_series(1, 50) i")
    clinic.sql("insert into then_seen values (99, 1)")
    mutant = (
        "select coalesce(sum(least(c, 2)), 0)::int from (select s.u, count(*) as c from seen s"
        " where s.place in (select place from then_seen) group by s.u) as k"
    )
    ((whole,),) = clinic.sql(mutant)
    ((less,),) = clinic.sql(
        f"delete from seen where u = 99; delete from then_seen where u = 99; {mutant}"
    )
    assert whole - less == 50


def test_what_units_do_not_bear_is_refused_before_the_charge(clinic: Any) -> None:
    clinic.sql(DECLARE, user="owner1")
    with clinic.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 1")
        several = "select dp_count(*) from visit a join visit b on a.v_place = b.v_place"
        error = refused(alice, several)
        assert error.sqlstate == "PD011"
        assert "Citus keeps a relation" in str(error)
        sensitivity = "select dp.sensitivity('select dp_count(*) from visit')"
        assert state(alice, sensitivity) is not None
        assert clinic.sql("select sum(epsilon_spent) from dp.budgets") == [(0,)]
        assert alice.execute("select dp_count(*) from visit").fetchone()


def test_rows_are_not_protected_there(clinic: Any) -> None:
    """And their owner is told when he protects them so."""
    clinic.sql("select dp.declare_shards('visit', written => 'anywhere')", user="owner1")
    clinic.sql("select dp.protect('visit'), dp.grant_budget('alice', 10, 1e-6)", user="owner1")
    with clinic.connect(user="alice") as alice:
        error = refused(alice, "select dp_count(*) from visit")
        assert "protected row by row" in str(error.diag.message_detail)


def test_local_rows_are_not_joined_to_its_public_tables(clinic: Any) -> None:
    """Bound and answer would be of two states of the public table."""
    clinic.sql("create table bill (b_id int, b_place int); alter table bill owner to owner1")
    clinic.sql(
        "select dp.declare_shards('place', written => 'anywhere'), dp.declare_public('place');"
        " select dp.protect('bill'), dp.grant_budget('alice', 10, 1e-6)",
        user="owner1",
    )
    with clinic.connect(user="alice") as alice:
        question = "select dp_count(*) from bill join place on b_place = p_id"
        assert refused(alice, question).sqlstate == "PD011"
        assert clinic.sql("select sum(epsilon_spent) from dp.budgets") == [(0,)]
        assert alice.execute("select dp_count(*) from place").fetchone() == (2,)


@pytest.mark.parametrize("problem", ["down", "off off", "on on"])
def test_a_node_that_cannot_be_trusted_is_named(clinic: Any, problem: str) -> None:
    clinic.sql(DECLARE, user="owner1")
    clinic.sql("insert into node values (%s)", problem)
    with clinic.connect(user="alice") as alice:
        error = refused(alice, "select dp_count(*) from visit")
        assert error.sqlstate == "PD052"
        assert "node worker:5432" in str(error)
        assert clinic.sql("select sum(epsilon_spent) from dp.budgets") == [(0,)]


def test_its_keys_and_not_null_are_claims(clinic: Any) -> None:
    clinic.sql("alter table visit add primary key (v_who)")
    assert clinic.sql("select dp.trusted_keys('visit'::regclass)") == [(None,)]
    clinic.sql("delete from pg_catalog.pg_dist_partition")
    assert clinic.sql("select dp.trusted_keys('visit'::regclass)::text") == [('[["v_who"]]',)]


def test_it_is_never_as_of_one_moment(clinic: Any) -> None:
    with clinic.connect(user="owner1") as owner:
        call = "select dp.declare_shards('visit', written => 'coordinator')"
        assert "as of one moment" in str(refused(owner, call))
