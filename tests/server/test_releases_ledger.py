"""What releases cost, who may read them, and what is left when something goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.asking import refused, state
from tests.server.in_service import everywhere
from tests.server.releasing import declare, release, rows, spent
from tests.server.test_dump_restore import dump_and_restore
from tests.server.waiting import wait_until

pytestmark = pytest.mark.server

CUBE = "select s_state, s_place, dp_count(*) from sale group by cube (s_state, s_place)"
ONE = "select s_place, dp_count(*) from sale group by s_place"

#: Lets nothing read the rows of a workload.
NO_READING = everywhere("""
import dpsql.statistics.tabulation
def none(*given):
    raise AssertionError
dpsql.statistics.tabulation.tabulate = none
""")


@pytest.fixture
def sales(database: Any) -> Any:
    return declare(database)


@pytest.fixture
def alice(sales: Any) -> Iterator[Any]:
    with sales.connect("alice") as session:
        yield session


def grant(sales: Any, role: str, epsilon: float) -> None:
    sales.sql(f"select dp.grant_budget('{role}', {epsilon}, 1e-5)", user="owner1")


def test_a_release_is_charged_once(sales: Any, alice: Any) -> None:
    first = release(alice, "one", CUBE, epsilon=1, delta=1e-9)
    assert spent(sales) == (1, 1)
    charged = alice.execute(
        "select relations::text, mechanism, method, epsilon, delta, question from dp.ledger"
    ).fetchone()
    assert "sale" in charged[0]
    assert charged[1:4] == ("laplace", "identity", 1)
    assert 0 < charged[4] < 1e-9
    assert "CUBE" in charged[5]
    # the same question is free, under another name and when reworded
    assert release(alice, "two", CUBE, epsilon=1, delta=1e-9) == first
    again = release(alice, "three", CUBE.replace("sale", "sale as s"), epsilon=1, delta=1e-9)
    assert again == first
    # other groupings of the same measurements are as free
    fewer = release(
        alice, "four", CUBE.replace("cube", "rollup"), epsilon=1, delta=1e-9, mechanism="identity"
    )
    assert {r["value"] for r in fewer} <= {r["value"] for r in first}
    assert spent(sales) == (1, 1)
    # another budget or fresh noise is another measurement; that the noise of twenty cells is drawn
    # twice, of which each is with probability 0.28, has one below 1e-11
    assert release(alice, "five", CUBE, epsilon=2, delta=1e-9) != first
    alice.execute("set dp.fresh = on")
    assert release(alice, "six", CUBE, epsilon=1, delta=1e-9) != first
    assert spent(sales) == (3, 4)


def test_a_role_pays_for_numbers_that_are_known_to_another(sales: Any, alice: Any) -> None:
    """Each role pays for what it sees; the rows are measured, and the relation pays, once."""
    first = release(alice, "one", CUBE, epsilon=1)
    grant(sales, "bob", 5)
    relation = "select epsilon_spent from dp.budgets where relation like '%sale'"
    before = sales.sql(relation)
    with sales.connect("bob") as bob:
        assert release(bob, "mine", CUBE, epsilon=1) == first
        assert spent(sales, "bob") == (1, 1)
        assert sales.sql(relation) == before
        assert before == [(1,)]
        assert state(bob, "select * from dpv.one") == "42501"
        assert bob.execute("select name::text from dp.releases").fetchall() == [("mine",)]


def test_who_cannot_pay_gets_nothing(sales: Any) -> None:
    grant(sales, "bob", 0.5)
    with sales.connect("bob") as bob:
        error = refused(bob, f"select dp.release('r', $${ONE}$$, epsilon => 1)")
        assert error.sqlstate == "PD001"
        assert spent(sales, "bob") == (0, 0)
        release(bob, "r", ONE, epsilon=0.5)
        assert spent(sales, "bob")[0] == 1
    # who is no analyst may not even call it
    stranger = state(sales.connect("mallory"), f"select dp.release('m', $${ONE}$$)")
    assert stranger in ("42501", "PD002")


def test_a_rollback_keeps_the_charge_and_the_next_call_is_free(sales: Any, alice: Any) -> None:
    for end in ("rollback", "select 1/0"):
        alice.execute("set dp.fresh = on; begin")
        inside = release(alice, "r", ONE, epsilon=1)
        if end != "rollback":
            assert state(alice, end) == "22012"
        alice.execute("rollback; reset dp.fresh")
        before = spent(sales)
        assert state(alice, "select * from dpv.r") == "42P01"
        assert alice.execute("select count(*) from dp.releases").fetchone() == (0,)
        assert release(alice, "r", ONE, epsilon=1) == inside
        assert spent(sales) == before
        alice.execute("select dp.drop_release('r')")
    assert spent(sales) == (2, 2)


def test_a_savepoint_is_as_good_as_a_transaction(sales: Any, alice: Any) -> None:
    alice.execute("begin; savepoint s")
    inside = release(alice, "r", ONE, epsilon=1)
    alice.execute("rollback to s")
    assert release(alice, "r", ONE, epsilon=1) == inside
    alice.execute("commit")
    assert rows(alice, "r") == inside
    assert spent(sales) == (1, 1)


def test_read_only_transactions_are_refused_before_the_charge(sales: Any, alice: Any) -> None:
    release(alice, "r", ONE, epsilon=1)
    alice.execute("begin read only")
    for statement in (f"dp.release('x', $${CUBE}$$)", "dp.refresh_release('r')"):
        alice.execute("savepoint s")
        error = refused(alice, f"select {statement}")
        assert "transaction that can write" in str(error)
        assert error.diag.message_hint
        alice.execute("rollback to s")
    alice.execute("rollback")
    assert spent(sales) == (1, 1)


def test_read_committed_and_repeatable_read(sales: Any, alice: Any) -> None:
    for n, level in enumerate(("repeatable read", "read committed")):
        alice.execute(f"begin isolation level {level}")
        release(alice, f"r{n}", ONE, epsilon=1 + n)
        alice.execute("commit")
    assert spent(sales) == (2, 3)


def test_refresh_pays_again_and_drop_keeps_what_is_spent(sales: Any, alice: Any) -> None:
    first = release(alice, "r", ONE, epsilon=1, weights=[2], mechanism="identity")
    sales.sql(
        "insert into sale select 1000 + i, 'a', 'paid', true, 5 from generate_series(1, 900) i"
    )
    assert release(alice, "same", ONE, epsilon=1, mechanism="identity") == first
    alice.execute("select dp.refresh_release('r')")
    second = {row["s_place"]: row["value"] for row in rows(alice, "r")}
    assert second[5] > 800
    assert spent(sales) == (2, 2)
    kept = alice.execute("select mechanism, epsilon from dp.releases where name = 'r'").fetchone()
    assert kept == ("identity", 1)
    alice.execute("select dp.drop_release('r')")
    assert state(alice, "select * from dpv.r") == "42P01"
    assert spent(sales) == (2, 2)
    assert state(alice, "select dp.drop_release('r')") == "PD040"
    assert state(alice, "select dp.refresh_release('r')") == "PD040"


def test_share_charges_the_reader_only_and_needs_the_owner(sales: Any, alice: Any) -> None:
    numbers = release(alice, "r", CUBE, epsilon=1)
    grant(sales, "bob", 1.5)
    with sales.connect("owner1") as owner, sales.connect("bob") as bob:
        assert state(bob, "select * from dpv.r") == "42501"
        error = refused(alice, "select dp.share_release('r', 'bob')")
        assert error.sqlstate == "PD070"
        assert "Ask the owner of the relations" in str(error.diag.message_hint)
        assert state(bob, "select dp.share_release('r', 'bob')") == "PD040"
        total = "select role, relation::text, epsilon_spent from dp.budgets order by 1, 2"
        before = {row[:2]: row[2] for row in sales.sql(total)}
        owner.execute("select dp.share_release('r', 'bob')")
        after = {row[:2]: row[2] for row in sales.sql(total)}
        moved = {
            key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key)
        }
        assert list(moved.values()) == [1]
        assert spent(sales, "bob") == (1, 1)
        assert spent(sales) == (1, 1)
        assert rows(bob, "r") == numbers
        assert bob.execute("select name::text from dp.releases").fetchall() == [("r",)]
        # what is shared already costs nothing more
        owner.execute("select dp.share_release('r', 'bob')")
        assert spent(sales, "bob") == (1, 1)
        # bob reads it and can do nothing else with it
        for statement in ("drop_release('r')", "refresh_release('r')"):
            assert state(bob, f"select dp.{statement}") == "PD040"
        for statement in ("delete from dpv.r", "update dpv.r set value = 0", "drop table dpv.r"):
            assert state(bob, statement) == "42501"
        # a refreshed release has other numbers, which bob has not paid for
        alice.execute("select dp.refresh_release('r')")
        assert state(bob, "select * from dpv.r") == "42501"
        error = refused(owner, "select dp.share_release('r', 'bob')")
        assert error.sqlstate == "PD001"
        assert state(bob, "select * from dpv.r") == "42501"
        assert state(owner, "select dp.share_release('nothing', 'bob')") == "PD040"
        assert state(owner, "select dp.share_release('r', 'mallory')") == "PD002"
        assert state(owner, "select dp.share_release('r', 'nobody')") == "42704"


def test_the_owner_of_another_relation_shares_nothing(sales: Any, alice: Any) -> None:
    release(alice, "r", ONE, epsilon=1)
    grant(sales, "bob", 5)
    sales.sql(
        "create table own (a int); alter table own owner to mallory; grant dp_owner to mallory"
    )
    with sales.connect("mallory") as mallory:
        mallory.execute("select dp.protect('own')")
        for statement in ("share_release('r', 'bob')", "drop_release('r')", "refresh_release('r')"):
            assert state(mallory, f"select dp.{statement}") == "PD040"
        assert mallory.execute("select count(*) from dp.releases").fetchone() == (0,)
        assert state(mallory, "select * from dpv.r") == "42501"
        assert state(mallory, "select * from dp.stored_release") == "42501"
    sales.sql("revoke dp_owner from mallory")


def test_owners_list_and_drop_what_reads_their_relations(sales: Any, alice: Any) -> None:
    release(alice, "r", ONE, epsilon=1)
    with sales.connect("owner1") as owner:
        assert owner.execute(
            "select name::text, released_by::text from dp.releases"
        ).fetchall() == [("r", "alice")]
        assert state(owner, "select * from dpv.r") == "42501"
        assert state(owner, "select dp.refresh_release('r')") == "PD070"
        owner.execute("select dp.drop_release('r')")
    assert state(alice, "select * from dpv.r") == "42P01"


def test_nobody_writes_tables_of_releases(sales: Any, alice: Any) -> None:
    release(alice, "r", ONE, epsilon=1)
    for statement in (
        *("insert into dpv.r values (1)", "delete from dpv.r", "truncate dpv.r", "drop table dpv.r"),
        *("alter table dpv.r rename to s", "create table dpv.mine (a int)", "create view dpv.v as select 1"),
        *("delete from dp.stored_release", "update dp.stored_release set epsilon = 0"),
        *("grant select on dpv.r to public", "create trigger t before insert on dpv.r execute function f()"),
        "select dp.python_measure_release()",
    ):  # fmt: skip
        alice.execute("select 1")
        found = state(alice, statement)
        assert found == "42501" or statement.startswith("grant"), (statement, found)
    assert sales.sql("select count(*) from information_schema.role_table_grants"
                     " where table_schema = 'dpv' and table_name = 'r' and grantee not in ('alice', 'dp_executor')") == [(0,)]  # fmt: skip


def test_a_plan_costs_nothing_and_touches_no_data(sales: Any, alice: Any) -> None:
    with asking.silent(sales, "sale", NO_READING) as session:
        plan = f"select count(*) from dp.plan_release($${CUBE}$$, 1, 1e-9)"
        assert session.execute(plan).fetchone() != (0,)
        assert state(session, f"select dp.release('r', $${CUBE}$$)") == "PD900"
    for data in (
        "delete from sale",
        "insert into sale select i, 'a', 'open', true, 1 from generate_series(1, 5000) i",
    ):
        planned = alice.execute(
            f"select mechanism, noise, epsilon, delta, rmse from dp.plan_release($${CUBE}$$, 1, 1e-9)"
        ).fetchall()
        sales.sql(data)
        assert (
            planned
            == alice.execute(
                f"select mechanism, noise, epsilon, delta, rmse from dp.plan_release($${CUBE}$$, 1, 1e-9)"
            ).fetchall()
        )
    assert [row[4] for row in planned if row[4]] == sorted(row[4] for row in planned if row[4])
    assert spent(sales) == (0, 0)


def test_what_is_chosen_is_what_is_released(sales: Any, alice: Any) -> None:
    for n, (epsilon, delta) in enumerate([(1, 0), (1, 1e-9), (0.1, 1e-5)]):
        planned = alice.execute(
            "select mechanism, noise, epsilon, delta from dp.plan_release(%s, %s::numeric, %s::numeric)"
            " where chosen",
            (CUBE, epsilon, delta),
        ).fetchall()
        release(alice, f"r{n}", CUBE, epsilon=epsilon, delta=delta)
        told = alice.execute(
            "select mechanism, noise, epsilon, delta from dp.releases where name = %s", (f"r{n}",)
        ).fetchone()
        assert len(planned) == 1
        assert planned[0][:2] == told[:2]
        assert [float(x) for x in planned[0][2:]] == pytest.approx([float(x) for x in told[2:]])
        if not delta:
            assert told[3] == 0


def test_two_releases_of_one_name_at_once_pay_once(sales: Any) -> None:
    """The second does not wait for the first: nobody knows when that one's transaction ends."""
    first, second = sales.connect("alice", autocommit=False), sales.connect("alice")
    second.execute("set dp.fresh = on; set statement_timeout = '60s'")
    other = f"select dp.release('r', $${CUBE}$$, epsilon => 1)"
    release(first, "r", ONE, epsilon=1)
    assert state(second, other) == "PD040"
    first.commit()
    assert state(second, other) == "PD040"
    assert spent(sales) == (1, 1)
    first.close()


def test_a_release_that_is_cancelled_while_it_reads_is_paid_and_lost(
    sales: Any, alice: Any
) -> None:
    """As documented: the charge is durable before a row is read, and stays."""
    sales.sql(
        "insert into sale select 1000 + i, 'a', 'open', true, 1 from generate_series(1, 2000000) i"
    )
    release(alice, "before", ONE, epsilon=0.5)
    # so that most of the time is reading, whatever else the machine does
    alice.execute(f"select count(*) from dp.plan_release($${CUBE}$$, epsilon => 1)")
    cancelled = finished = 0
    for climb in range(5):  # one is enough but where the machine is ten times as fast all at once
        # from 5 ms, which ends it before the charge, to what is enough, or to some minutes
        for attempt in range(120):
            name = f"r{climb}_{attempt}"
            alice.execute("set dp.fresh = on")
            alice.execute(f"set statement_timeout = {int(5 * 1.1**attempt)}")
            found = state(alice, f"select dp.release('{name}', $${CUBE}$$, epsilon => 1)")
            # the limit is on its own end, too
            wait_until(lambda: state(alice, "reset statement_timeout") is None)
            if found == "PD050":  # on a busy machine what was cancelled last has not ended yet
                continue
            alice.execute("reset dp.fresh")
            if found is None:
                alice.execute(f"select dp.drop_release('{name}')")
                finished += 1
                break
            assert found == "57014"
            names = alice.execute("select name::text from dp.releases").fetchall()
            assert names == [("before",)]
            assert sales.sql("select count(*) from pg_class where relnamespace = 'dpv'::regnamespace"
                             " and relkind = 'r'") == [(1,)]  # fmt: skip
            cancelled += 1
        assert found is None
        number, amount = spent(sales)
        assert float(amount) == number - 1 + 0.5
        # at least one was stopped before the charge, and one after it
        if 1 + finished < number < 1 + finished + cancelled:
            break
    assert 1 + finished < number < 1 + finished + cancelled


@pytest.mark.parametrize("form", ["c", "p"])
def test_dumps_carry_the_table_and_its_entry(server: Any, sales: Any, form: str) -> None:
    with sales.connect("alice") as alice:
        numbers = release(alice, "r", CUBE, epsilon=1)
        listed = alice.execute("select * from dp.releases").fetchall()
    copy = dump_and_restore(server, sales, form)
    try:
        with copy.connect("alice") as alice:
            assert rows(alice, "r") == numbers
            assert alice.execute("select * from dp.releases").fetchall() == listed
            assert state(copy.connect("mallory"), "select * from dpv.r") == "42501"
            # the copy's ledger waits; what costs nothing does not
            assert state(alice, f"select dp.release('s', $${ONE}$$)") == "PD051"
            copy.sql("select dp.acknowledge_restore('on purpose')")
            assert spent(copy) == (1, 1)
            alice.execute("select dp.drop_release('r')")
            assert state(alice, "select * from dpv.r") == "42P01"
    finally:
        server.drop_database(copy)


def test_a_backend_that_ends_leaves_the_charge(sales: Any, alice: Any) -> None:
    release(alice, "before", ONE, epsilon=0.5)
    doomed = sales.connect("alice", autocommit=False)
    release(doomed, "r", CUBE, epsilon=1)
    sales.sql(f"select pg_terminate_backend({doomed.info.backend_pid})")
    with pytest.raises(psycopg.OperationalError):
        doomed.execute("select 1")
    assert spent(sales) == (2, sales.sql("select 1.5")[0][0])
    release(alice, "r", CUBE, epsilon=1)
    assert spent(sales)[0] == 2


def test_a_share_that_the_reader_cannot_pay_names_the_grant_that_lets_it(
    sales: Any, alice: Any
) -> None:
    sales.sql('drop role if exists "Carl\'s"; create role "Carl\'s" login')
    grant(sales, "bob", 0.25)
    numbers = release(alice, "r", CUBE, epsilon=1, delta=1e-9, mechanism="residual_planner")
    try:
        with sales.connect("owner1") as owner:
            for role, code, price in (("bob", "PD001", "epsilon => 1"), ('"Carl\'s"', "PD002", "")):
                quoted = role.replace("'", "''")
                share = f"select dp.share_release('r', '{quoted}')"
                error = refused(owner, share)
                assert error.sqlstate == code
                hint = str(error.diag.message_hint)
                assert price in hint
                statement = hint[: hint.index(") ") + 1]
                assert statement.startswith(f"SELECT dp.grant_budget('{quoted}', epsilon => ")
                owner.execute(statement)
                owner.execute(share)
        assert rows(sales.connect("bob"), "r") == numbers
        assert spent(sales, "bob") == (1, 1)
    finally:
        sales.sql('drop owned by "Carl\'s"; drop role "Carl\'s"')


def test_a_release_beyond_the_budget_names_the_epsilon_that_fits(sales: Any) -> None:
    grant(sales, "bob", 0.5)
    with sales.connect("bob") as bob:
        error = refused(bob, f"select dp.release('r', $${ONE}$$, epsilon => 90)")
        assert "The release costs epsilon = 90 and" in str(error.diag.message_detail)
        assert "Release with at most epsilon => 0.5," in str(error.diag.message_hint)
        release(bob, "r", ONE, epsilon=0.5, delta=0)
        hint = str(refused(bob, f"select dp.release('s', $${CUBE}$$)").diag.message_hint)
        assert (
            hint
            == "Ask the owner of the data for more budget; what was released before stays free."
        )


def test_a_refresh_names_who_lost_the_release_and_how_it_is_shared_again(
    sales: Any, alice: Any
) -> None:
    told: list[tuple[str, str]] = []
    alice.add_notice_handler(
        lambda n: (
            told.append((str(n.message_primary), str(n.message_hint)))
            if n.severity == "WARNING"
            else None
        )
    )
    alice.execute(f"select dp.release('it''s', $${ONE}$$, epsilon => 1)")
    alice.execute("select dp.refresh_release('it''s')")
    assert told == []
    grant(sales, "bob", 5)
    grant(sales, "mallory", 5)
    with sales.connect("owner1") as owner:
        for reader in ("mallory", "bob"):
            owner.execute(f"select dp.share_release('it''s', '{reader}')")
        alice.execute("select dp.refresh_release('it''s')")
        ((message, hint),) = told
        assert message == 'bob, mallory cannot read dpv."it\'s" any more'
        place = hint.index("SELECT")
        assert "owner of the relations" in hint[:place]
        for reader in ("bob", "mallory"):
            assert state(sales.connect(reader), 'select * from dpv."it\'s"') == "42501"
        owner.execute(hint[place:])
        for reader in ("bob", "mallory"):
            assert state(sales.connect(reader), 'select * from dpv."it\'s"') is None
            assert spent(sales, reader)[0] == 2
