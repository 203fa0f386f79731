"""What a spy tries with questions that are answered: averaging, differences, seeds, empty budgets, logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.server import spying
from tests.server.asking import refused, state
from tests.server.spying import SECRET
from tests.server.watching import Watch

MORE = """
create table same (id int primary key, k int not null); insert into same select i, i % 7 from generate_series(1, 50) as i;
create table cells (id int primary key, c int not null); insert into cells select i, i % 20 from generate_series(1, 2000) as i;
create table capped (id int primary key); insert into capped select generate_series(1, 100);
create table none_one (id int primary key, k int not null); create table none_two (id int primary key, k int not null);
create table weights (id int primary key, w float8); insert into weights select i, 0 from generate_series(1, 9) as i;
create table large (id int primary key, v bigint); insert into large select i, 1847961562534 from generate_series(1, 4) as i;
select dp.protect(t::regclass) from unnest(array['same', 'cells', 'capped', 'none_one', 'none_two', 'weights', 'large']) as t;
select dp.set_domain('cells', 'c', 0, 19);
"""

TRUE_SUM = 4 * 1847961562534


@pytest.fixture(scope="module")
def pair(server: Any) -> Iterator[tuple[Any, Any]]:
    with spying.spies(server):
        made = spying.make(server, MORE)
        made[1].sql("insert into weights values (777, 0.123456789012345)")
        yield made
        for database in made:
            server.drop_database(database)


@pytest.fixture
def spy(pair: tuple[Any, Any]) -> Iterator[Any]:
    """The spy's session on the database with the person."""
    with pair[1].connect(user="spy_one") as session:
        session.execute("set client_min_messages = error; set dp.delta = 1e-12")
        yield session


def one(session: Any, statement: str) -> Any:
    return session.execute(statement).fetchone()[0]


def paid(session: Any) -> float:
    return float(one(session, "select coalesce(sum(epsilon), 0) from dp.ledger"))


# A. The ledger


WAYS = [
    "begin; {}; rollback",
    "begin read only; {}; rollback",
    "begin isolation level repeatable read read only; {}; rollback",
    "begin; savepoint s; {}; rollback to s; commit",
    "do $d$ begin perform n from ({}) as s(n); raise exception 'undo'; exception when others then null; end $d$",
    "begin; declare c cursor with hold for {}; fetch c; rollback",
    "begin; create table spies.kept as {}; rollback",
    "explain analyze {}",
    "begin; {}; select 1/0",
    "begin; set local dp.fresh = on; {}; {}; rollback",
]


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_no_way_of_asking_is_for_nothing(spy: Any, number: int) -> None:
    before = paid(spy)
    question = f"select dp_count(*) from person where age < {1000 + number}"
    spy.execute("set dp.epsilon = 0.5")
    state(spy, WAYS[number].replace("{}", question))
    spy.execute("rollback")
    assert paid(spy) - before == (1 if WAYS[number].count("{}") == 2 else 0.5)


def test_two_logins_share_the_total_of_the_relation(pair: tuple[Any, Any]) -> None:
    database = pair[0]
    database.sql("select dp.set_root_cap('capped', 1.5)")
    with database.connect(user="spy_one") as first, database.connect(user="spy_two") as second:
        first.execute("select dp_count(*) from capped")
        assert refused(second, "select dp_count(*) from capped where id < 5").sqlstate == "PD001"
        second.execute("set dp.epsilon = 0.5")
        second.execute("select dp_count(*) from capped where id < 5")
        for session in (first, second):
            session.execute("set dp.epsilon = 0.000001")
            assert state(session, "select dp_count(*) from capped where id < 7") == "PD001"


def test_a_new_object_has_no_new_budget(spy: Any) -> None:
    before = paid(spy)
    objects = [
        "create view spies.again{0} as select dp_count(*) as n from same where k <> {0}; select n from spies.again{0}",
        "create materialized view spies.kept{0} as select dp_count(*) as n from same where k <> {0}; select n from spies.kept{0}",
        "prepare p{0} as select dp_count(*) from same where k <> {0}; execute p{0}",
        "create function spies.asks{0}() returns bigint language sql as 'select dp_count(*) from same where k <> {0}'; select spies.asks{0}()",
    ]
    for number, text in enumerate(objects):
        for statement in text.format(number).split("; "):
            spy.execute(statement)
    assert paid(spy) - before == len(objects)


def test_nothing_answers_an_exhausted_login(pair: tuple[Any, Any]) -> None:
    database = pair[0]
    (before,) = database.sql(
        "select coalesce(sum(epsilon), 0) from dp.ledger where role = 'spy_two'"
    )[0]
    database.sql("select dp.grant_budget('spy_two', %s, 1e-6)", before + 2)
    try:
        with database.connect(user="spy_two") as poor:
            while state(poor, "set dp.fresh = on; select dp_count(*) from person") is None:
                pass
            spent = paid(poor)
            for setting in (
                "epsilon = 0.000001", "epsilon = 100", "delta = 0", "method = elastic", "method = residual", "mechanism = laplace", "mechanism = cauchy",
                "mechanism = calibrated", "fresh = off", "statistics = auto", "max_rows_contributed = 1", "max_epsilon_per_query = 50", "confidence = 0.5",
            ):  # fmt: skip
                poor.execute(f"set dp.{setting}")
                for statement in (
                    "select dp_count(*) from visit where paid < 3",
                    "select count(*) from dpv.visit where paid < 4",
                    "select dp.query('select dp_count(*) from visit where paid < 5')",
                    "select * from dp.run('select public.dp_count(*) from public.visit where paid < 6', null) as t(n bigint)",
                    "select dp_sum(paid, 0, 1) from visit",
                ):
                    assert state(poor, statement) in ("PD001", "PD040"), (setting, statement)
                poor.execute("reset all")
            assert paid(poor) == spent == before + 2
    finally:
        database.sql("select dp.grant_budget('spy_two', 1e6, 1e-6)")


# B. Randomness


def test_setseed_does_not_make_noise_predictable(spy: Any) -> None:
    spy.execute("set dp.fresh = on; set dp.epsilon = 0.1")
    seen = set()
    for _ in range(30):
        spy.execute("select setseed(0.42)")
        seen.add(one(spy, "select dp_count(*) from same"))
    # equal by chance: below 0.05 ^ 29
    assert len(seen) > 1


def test_noise_does_not_follow_from_the_question(pair: tuple[Any, Any]) -> None:
    """Two databases hold the same rows and are asked the same in the same order by the same login."""
    asked = [f"select dp_count(*) from same where k <> {i}" for i in range(100, 120)]
    found = []
    for database in pair:
        with database.connect(user="spy_one") as session:
            session.execute("set dp.epsilon = 0.1")
            found.append([one(session, statement) for statement in asked])
    # equal by chance: below 0.05 ^ 20
    assert found[0] != found[1]


def test_no_setting_or_function_gives_a_seed_or_less_noise(spy: Any) -> None:
    word = "seed|noise|random|exact|debug|allow"
    names = [n for (n,) in spy.execute(f"select name from pg_settings where name ~ '^dp\\.' and name ~ '{word}'")]  # fmt: skip
    assert names == []
    found = spy.execute(
        "select p.oid::regprocedure::text from pg_proc as p where pronamespace = 'dp'::regnamespace"
        f" and has_function_privilege(oid, 'execute') and (array_to_string(proargnames, ' ') ~ 'seed' or proname ~ '{word}')"
    ).fetchall()
    assert found == []
    for name in ("seed", "random_seed", "noise", "privacy_noise", "debug"):
        assert state(spy, f"set dp.{name} = 1") == "42602"


# C. Floating point


def test_the_digits_of_a_sum_of_floats_do_not_tell(pair: tuple[Any, Any]) -> None:
    """Zeros, and in one database a number of many digits: all answers lie on the same grid."""
    for database in pair:
        with database.connect(user="spy_one") as session:
            session.execute("set dp.fresh = on; set dp.delta = 1e-12")
            for _ in range(20):
                text = one(session, "select dp_sum(w, 0, 1)::text from weights")
                assert len(text.partition(".")[2]) <= 9, text


def test_an_empty_join_is_noised(spy: Any) -> None:
    """Every key has frequency 0 there, but not in a neighbour."""
    spy.execute("set dp.fresh = on; set dp.epsilon = 0.5")
    for method in ("residual", "elastic"):
        spy.execute(f"set dp.method = {method}")
        join = "select dp_count(*) from none_one as a join none_two as b on a.k = b.k"
        # all 0 by chance: below 0.25 ^ 40
        assert {one(spy, join) for _ in range(40)} != {0}


# E. Many evaluations of one question, logs


def test_averaging_pays_for_every_draw(spy: Any) -> None:
    """Each statement asks the same: what is new was paid, what was not paid is an old number."""
    spy.execute("set dp.epsilon = 0.1")
    where = "age > 30"
    rewrites = [
        f"select dp_count(*) from person where {where}", f"select dp_count(*) from person where not (age <= 30) and {where}", f"select dp_count(*) from person p where p.{where}",
        f"select dp_count(id) from person where {where}", f"select dp_count(1) from person where {where}", f"select dp_count(*) from (select * from person) as s where {where}",
        f"with w as (select * from person where {where}) select dp_count(*) from w", "select dp_count(*) from person where 30 < age", "select dp_count(*) from person where age >= 31",
        f"select dp_count(*) from person where {where} and 1 = 1", f"select dp_count(*) filter (where {where}) from person", f"select dp_count(*) + 0 from person where {where}",
        f"select count(*) from dpv.person where {where}", f"select count(id) from dpv.person where {where}", f"select sum(n) from (select count(*) as n from dpv.person where {where}) as s",
        f"select dp_sum(1, 0, 1) from person where {where}", f"select n from (select dp_count(*) as n from person where {where}) as s, generate_series(1, 3)",
    ]  # fmt: skip
    known: set[int] = set()
    draws = 0
    for statement in rewrites:
        before = paid(spy)
        (value,) = {int(row[0]) for row in spy.execute(statement).fetchall()}
        cost = paid(spy) - before
        assert cost == pytest.approx(0.1) or (cost == 0 and value in known), statement
        draws += cost > 0
        known.add(value)
    assert len(known) <= draws < len(rewrites)


def test_one_view_has_one_answer_in_one_statement(spy: Any) -> None:
    spy.execute("create view spies.once as select dp_count(*) as n from person where age > 31")
    before = paid(spy)
    spy.execute("select * from spies.once limit 0")
    spy.execute("explain select * from spies.once")
    assert paid(spy) == before
    rows = spy.execute(
        "select a.n, b.n from spies.once as a, spies.once as b union all select n, n from spies.once"
    ).fetchall()
    assert len({n for row in rows for n in row}) == 1
    assert paid(spy) == before + 1


def test_the_log_holds_no_number_without_noise(pair: tuple[Any, Any]) -> None:
    database = pair[1]
    for setting in ("log_min_messages = debug5", "log_statement = 'all'", "debug_print_plan = on", "debug_print_rewritten = on", "log_executor_stats = on",
                    "log_min_duration_statement = 0", "log_temp_files = 0", "log_parameter_max_length = -1", "log_error_verbosity = verbose"):  # fmt: skip
        database.sql(f"alter role spy_one in database {database.name} set {setting}")
    log = database.cluster.log
    start = log.stat().st_size
    try:
        with database.connect(user="spy_one") as session:
            answer = one(session, "select dp_sum(v, 0, 2000000000000) from large")
            session.execute("select kind, dp_count(*) from person group by kind")
            state(session, "select dp_count(*) from person where note::int = 3")
    finally:
        for role in ROLES_THAT_READ:
            database.sql(f"alter role {role} in database {database.name} reset all")
    written = log.read_bytes()[start:].decode(errors="replace")
    assert "LOG:  00000: plan:" in written
    assert SECRET not in written
    # a draw of 0 on this scale has a probability below 1e-12
    assert answer != TRUE_SUM
    assert str(TRUE_SUM) not in written


def test_the_difference_of_two_releases_is_noise(spy: Any) -> None:
    before = paid(spy)
    released = (
        "select dp.release('{}', $$ select c, dp_count(*) from cells {} group by c $$, 0.1, 1e-12)"
    )
    number = one(spy, "select count(*) from dp.releases")
    spy.execute(released.format(f"whole{number}", ""))
    spy.execute(released.format(f"less{number}", "where id <> 777"))
    assert paid(spy) - before == pytest.approx(0.2)
    differences = spy.execute(
        f"select a.value - b.value from dpv.whole{number} as a join dpv.less{number} as b using (c) where c <> 17"
    ).fetchall()
    # noise of scale 10 in each of 19 cells
    assert len(set(differences)) > 3


# D. Time


REFUSED = [
    "select note from person", "select dp_count(*) from person where note ~ 'x'", "select dp_count(*) from person left join visit on person = person.id", "select * from dpv.person",
    "select dp_sum(weight) from person", "select dp_count(*) from person where pg_sleep(1) is null", "select dp_count(*) from person, spies.nothing",
    "set dp.max_epsilon_per_query = 0.1; select dp_count(*) from person where age = 4", "select * from dp.explain('select dp_count(*) from person where age < 9')",
    "explain select dp_count(*) from person where age < 8", "select * from dp.estimate('select kind, dp_count(*) from person group by kind')",
    "select dp_count(*) from person where age < 10",
]  # fmt: skip


#: Who asks, and who reads for it.
ROLES_THAT_READ = ["spy_one", "dp_executor"]


def test_what_is_refused_reads_no_row(pair: tuple[Any, Any]) -> None:
    """So that its time tells nothing of them; estimates and stored answers neither."""
    database = pair[1]
    with database.connect(user="spy_one") as session:
        session.execute(REFUSED[-1])  # stored from now on
    watch = Watch.over(database, ["public.person", "public.visit"], ROLES_THAT_READ)
    for role in ROLES_THAT_READ:
        database.sql(f"alter role {role} in database {database.name} set watch.doors = on")
    try:
        with database.connect(user="spy_one") as session:
            for statement in REFUSED:
                state(session, statement)
                assert watch.alarms() == [], statement
                session.execute("reset dp.max_epsilon_per_query")
            session.execute("select dp_count(*) from person where age < 11")
            assert watch.alarms()
    finally:
        database.sql(f"alter role spy_one in database {database.name} reset all")


# Two-phase commit and decoding need a server of their own


def test_prepared_transactions_and_slots(make_server: Callable[..., Any]) -> None:
    server = make_server(max_prepared_transactions="4", wal_level="logical")
    with spying.spies(server):
        database = server.create_database()
        database.sql(spying.SET_UP)
        database.sql("select pg_create_logical_replication_slot('admins', 'test_decoding')")
        database.sql("select dp.grant_budget('spy_one', 10, 1e-6)")
        with database.connect(user="spy_one") as spy:
            for number, end in enumerate(("rollback prepared 'x'", "commit prepared 'x'")):
                spy.execute("begin")
                spy.execute(f"select dp_count(*) from person where id <> {number}")
                ending = state(spy, "prepare transaction 'x'")
                assert ending in (None, "0A000", "55000")
                if ending is None:
                    spy.execute(end)
                assert paid(spy) == number + 1
            for statement in (
                "select * from pg_logical_slot_get_changes('admins', null, null)",
                "select * from pg_logical_slot_peek_binary_changes('admins', null, null)",
                "select pg_create_logical_replication_slot('mine', 'test_decoding')",
                "select pg_replication_slot_advance('admins', '0/1')",
                "select pg_logical_emit_message(true, 'a', 'b')",
            ):
                assert state(spy, statement) in ("42501", None)
                if state(spy, statement) is None:
                    assert "emit" in statement
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(database.conninfo("spy_one", replication="database"))
        database.sql("select pg_drop_replication_slot('admins')")
        server.drop_database(database)
