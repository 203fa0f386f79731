"""Questions about tables that Citus keeps on two workers which know nothing of dpsql: `make test-citus`.

Where no Citus is installed these tests are reported as skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.server.asking import refused, silent, state
from tests.server.shards import UNCUT
from tests.server.waiting import wait_until
from tests.slow.citus_nodes import PROTECT, Nodes, shop, spent, started, told

pytestmark = pytest.mark.server
QUESTION = "select dp_count(*) from purchase"
QUESTIONS = (
    QUESTION,
    "select dp_count(*) from purchase where p_amount > 50 and p_place <> 2",
    "select dp_sum(p_amount) from purchase",
    "select dp_sum(p_amount), dp_count(*) from purchase where p_place = 3",
    "select dp_count(distinct p_place) from purchase",
    "select dp_count(distinct p_client) from purchase",
    "select c_kind, dp_count(*) from client group by c_kind order by 1",
    "select c_kind, dp_count(*), dp_sum(p_amount) from client join purchase on p_client = c_id"
    " group by c_kind order by 1",
    "select p_id, dp_count(*) from purchase join place on p_place = p_id group by p_id order by 1",
    "select dp_count(*) from purchase a join purchase b on a.p_client = b.p_client"
    " where a.p_amount < b.p_amount",
    # of different columns than those by which the tables are distributed
    "select dp_count(*) from client join purchase on c_id = p_client and c_place = p_place",
    "select c_kind, dp_sum(p_amount) from client join purchase on p_client = c_id"
    " join place on p_id = c_place group by c_kind order by 1",
)
ALL = ("client", "purchase", "place")


@pytest.fixture(scope="module")
def servers(server: Any) -> Iterator[Any]:
    with started(server) as found:
        yield found


@pytest.fixture(scope="module")
def nodes(servers: Any) -> Iterator[Nodes]:
    """All tables are kept by Citus, and may be asked about."""
    with shop(*servers) as made:
        made.distribute(*ALL)
        made.allow(*ALL)
        yield made


@pytest.fixture
def alice(nodes: Nodes) -> Iterator[Any]:
    with nodes.near.connect("alice") as session:
        session.execute("set dp.epsilon = 50; set dp.fresh = on")
        yield session


def answers(database: Database) -> list[Any]:
    with silent(database, "purchase", UNCUT) as session:
        return [session.execute(question).fetchall() for question in QUESTIONS]


@pytest.mark.parametrize("kept", [ALL, ("client", "purchase"), ("place",)])
def test_the_same_as_on_one_server(servers: Any, kept: tuple[str, ...]) -> None:
    """Hash-distributed, reference and local tables: exact answers before and after."""
    with shop(*servers) as nodes:
        before = answers(nodes.near)
        assert before[0] == [(200,)]
        nodes.distribute(*kept)
        nodes.allow(*kept)
        assert answers(nodes.near) == before


def test_nothing_of_dpsql_is_on_the_workers(nodes: Nodes) -> None:
    for worker in nodes.far:
        assert worker.sql("select extname from pg_extension where extname ~ 'dp|plpython'") == []
        assert worker.sql("select nspname from pg_namespace where nspname in ('dp', 'dpv')") == []
        roles = "select rolname from pg_roles where rolname in ('alice', 'dp_analyst', 'dp_ledger')"
        assert worker.sql(roles) == []


def test_refused_until_the_owner_says_so(servers: Any) -> None:
    with shop(*servers) as nodes:
        nodes.distribute("client", "purchase")
        with nodes.near.connect("alice") as alice:
            error = refused(alice, QUESTION)
            assert "cannot read them all as of one moment" in str(error.diag.message_detail)
            assert "written => 'anywhere'" in str(error.diag.message_detail)
        problem = "select problem from dp.relations where relation_name = 'purchase'"
        assert "Citus" in nodes.near.sql(problem, user="owner1")[0][0]
        assert spent(nodes) == [(0,)]
        with nodes.near.connect("owner1") as owner:
            call = "select dp.declare_shards('purchase', written => 'coordinator')"
            assert "as of one moment" in str(refused(owner, call))
        nodes.allow("client", "purchase")
        assert nodes.near.sql(problem, user="owner1")[0][0] is None
        assert nodes.near.sql(QUESTION, user="alice")


def test_rows_are_never_protected_there(servers: Any) -> None:
    with shop(*servers, more="") as nodes:
        nodes.near.sql(
            "select dp.protect('purchase'), dp.grant_budget('alice', 1e6, 1e-1)", user="owner1"
        )
        nodes.distribute("client", "purchase")
        nodes.allow("purchase")
        with nodes.near.connect("alice") as alice:
            error = refused(alice, QUESTION)
            assert "protected row by row" in str(error.diag.message_detail)
        assert spent(nodes) == [(0,)]


def test_what_needs_one_moment_is_refused_before_the_charge(nodes: Nodes, alice: Any) -> None:
    """Results of several units; copies, releases, statistics and sketches."""
    before = spent(nodes)
    several = "select dp_count(*) from purchase a join purchase b on a.p_place = b.p_place"
    assert refused(alice, several).sqlstate == "PD011"
    release = "select dp.release('r', 'select c_kind, dp_count(*) from client group by c_kind')"
    with nodes.near.connect("owner1") as owner:
        owner.execute("set dp.epsilon = 1")
        for call in (
            release,
            "select dp.sensitivity('select dp_count(*) from purchase')",
            "select dp.collect_statistics('purchase')",
            "select dp.set_degree_bound('purchase', array['p_client'], 5)",
        ):
            assert state(owner, call) in ("PD011", "PD040"), call
    assert spent(nodes) == before


def test_public_tables_of_citus_are_not_joined_to_rows(servers: Any) -> None:
    """The bound of an answer would be of another state of the public table than the answer."""
    with shop(*servers, more="") as nodes:
        nodes.near.sql(
            "select dp.protect('purchase'), dp.declare_public('place');"
            " select dp.grant_budget('alice', 1e6, 1e-1)",
            user="owner1",
        )
        question = f"{QUESTION} join place on p_id = p_place"
        assert nodes.near.sql(question, user="alice")
        before = spent(nodes)
        nodes.distribute("place")
        nodes.allow("place")
        with nodes.near.connect("alice") as alice:
            alice.execute("set dp.fresh = on")
            assert refused(alice, question).sqlstate == "PD011"
            assert alice.execute(QUESTION).fetchone()
            assert alice.execute("select dp_count(*) from place").fetchone() == (5,)
        assert spent(nodes) > before


def test_a_unit_in_two_shards_is_cut_off_once(servers: Any) -> None:
    """Citus takes it that a unit is in one shard if it is distributed by it; a worker may err."""
    with shop(*servers) as nodes:
        nodes.distribute("client", "purchase")
        nodes.allow("client", "purchase")
        for worker, shard in nodes.shards("purchase"):
            worker.sql(
                "set citus.override_table_visibility = off; set citus.enable_manual_changes_to_shards = on;"
                f" set session_replication_role = replica; insert into {shard} values (7, 1, 1)"
            )
        number = 200 + len(nodes.shards("purchase"))
        with silent(nodes.near, "purchase", UNCUT) as session:
            assert session.execute(QUESTION).fetchone() == (number,)
        with silent(nodes.near, "purchase", UNCUT.replace("10**9", "6")) as session:
            # five of each, and of one more than six
            assert session.execute(QUESTION).fetchone() == (201,)


def test_analysts_read_no_shard(nodes: Nodes, alice: Any) -> None:
    alice.execute("set citus.override_table_visibility = off")
    assert state(alice, "select * from purchase") == "42501"
    shown = nodes.near.sql(
        "set citus.override_table_visibility = off; set citus.enable_manual_changes_to_shards = on;"
        " select relname from pg_class where relname ~ '^place_[0-9]+$'"
    )
    assert len(shown) == 1  # reference tables are on the coordinator, too
    assert state(alice, f"select * from {shown[0][0]}") == "42501"
    assert state(alice, f"select dp_count(*) from {shown[0][0]}") is not None
    told(alice)
    rows = alice.execute(
        "select success from run_command_on_shards('purchase', 'select count(*) from %s')"
    ).fetchall()
    assert rows
    assert not any(success for (success,) in rows)


def test_intermediate_results_are_not_the_analysts(nodes: Nodes, alice: Any) -> None:
    """They are kept until the transaction ends, by the role that read."""
    alice.autocommit = False
    alice.execute(QUESTION)
    for plan in range(1, 60):
        for step in range(1, 5):
            found = alice.execute(
                f"select * from read_intermediate_result('{plan}_{step}', 'text') as t(a text, b text)"
            )
            assert found.fetchall() == []
    alice.rollback()


def test_lockdown_withholds_what_asks_the_workers(servers: Any) -> None:
    with shop(*servers) as nodes:
        nodes.distribute(*ALL)
        nodes.allow(*ALL)
        calls = (
            "run_command_on_workers('select 1')",
            "run_command_on_shards('purchase', 'select reltuples from pg_class')",
            "citus_total_relation_size('purchase')",
            "citus_shard_sizes()",
            "citus_stat_activity()",
            "citus_locks()",
        )
        holes = "select count(*) from dp.check_lockdown() where object like '%run_command_on%'"
        nodes.near.sql("select count(*) from dp.lockdown()")
        with nodes.near.connect("alice") as alice:
            for call in calls:
                assert state(alice, f"select * from {call}") == "42501", call
            assert alice.execute(QUESTION).fetchone()  # dp_executor still may
        assert nodes.near.sql(holes) == [(0,)]
        nodes.near.sql("select count(*) from dp.unlock()")


def test_settings_of_the_caller_change_nothing(nodes: Nodes) -> None:
    with silent(nodes.near, "purchase", UNCUT) as session:
        heard = told(session)
        for name, value in (
            ("max_intermediate_result_size", "1kB"),
            ("limit_clause_row_fetch_count", "1"),
            ("enable_repartition_joins", "off"),
            ("coordinator_aggregation_strategy", "disabled"),
            ("subquery_pushdown", "on"),
            ("log_remote_commands", "on"),
            ("propagate_set_commands", "local"),
        ):
            session.execute(f"set citus.{name} = '{value}'")
        heard.clear()
        for question, before in zip(QUESTIONS, answers(nodes.near), strict=True):
            assert session.execute(question).fetchall() == before, question
        assert not [said for said in heard if "purchase_" in said or "client_" in said]
        assert session.execute("show citus.subquery_pushdown").fetchone() == ("on",)


def test_a_worker_that_is_down_is_named_and_nothing_charged(nodes: Nodes, alice: Any) -> None:
    assert alice.execute(QUESTION).fetchone()
    before = spent(nodes)
    nodes.workers[0].stop("immediate")
    try:
        error = refused(alice, QUESTION)
        assert error.sqlstate == "PD052"
        assert str(nodes.workers[0].socket) in str(error)
        assert spent(nodes) == before
    finally:
        nodes.workers[0].start()
    assert alice.execute(QUESTION).fetchone()


def test_a_worker_that_reads_sql_otherwise_is_refused(nodes: Nodes) -> None:
    """A constant with a backslash would end elsewhere there."""
    worker = nodes.far[1]
    role = "set citus.enable_ddl_propagation = off; alter role dp_executor"
    worker.sql(f"{role} set standard_conforming_strings = off")
    end_readers(nodes)
    try:
        with nodes.near.connect("alice") as alice:
            alice.execute("set dp.fresh = on")
            error = refused(alice, QUESTION)
            assert error.sqlstate == "PD052"
            assert "in another way" in str(error)
    finally:
        worker.sql(f"{role} reset standard_conforming_strings")
        end_readers(nodes)


def end_readers(nodes: Nodes) -> None:
    """End the connections that Citus keeps, so that new ones have the role's settings."""
    for worker in nodes.far:
        worker.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'dp_executor'"
        )


def held(nodes: Nodes) -> Any:
    """Lock a shard on a worker, so that whoever reads it waits."""
    worker, shard = nodes.shards("purchase")[0]
    holder = worker.connect(autocommit=False)
    holder.execute("set citus.override_table_visibility = off")
    holder.execute("set citus.enable_manual_changes_to_shards = on")
    holder.execute(f"lock table {shard} in access exclusive mode")
    return holder


def reading(nodes: Nodes) -> bool:
    """Tell whether a worker's reader waits for a lock."""
    waits = (
        "select 1 from pg_stat_activity where usename = 'dp_executor' and wait_event_type = 'Lock'"
    )
    return any(worker.sql(waits) for worker in nodes.far)


def test_a_worker_that_fails_in_the_middle_gives_no_answer(nodes: Nodes, alice: Any) -> None:
    before = spent(nodes)
    holder = held(nodes)
    failed: list[psycopg.Error] = []

    def ask() -> None:
        try:
            alice.execute(QUESTION)
        except psycopg.Error as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    broken = next(w for w in nodes.workers if str(w.socket) == holder.info.host)
    try:
        wait_until(lambda: reading(nodes))
        broken.stop("immediate")
        asking.join(60)
    finally:
        holder.close()
        broken.start()
    assert failed
    assert failed[0].sqlstate in ("PD900", "PD902")
    assert "purchase_" not in f"{failed[0]} {failed[0].diag.message_detail}"
    charged = spent(nodes)
    assert charged > before
    with nodes.near.connect("alice") as again:
        again.execute("set dp.epsilon = 50; set dp.fresh = on")
        assert again.execute(QUESTION).fetchone()
    assert spent(nodes) > charged


def test_a_slow_worker_obeys_statement_timeout(nodes: Nodes, alice: Any) -> None:
    before = spent(nodes)
    holder = held(nodes)
    try:
        alice.execute("set statement_timeout = '2s'")
        assert state(alice, QUESTION) == "57014"
    finally:
        holder.close()
    assert spent(nodes) > before
    alice.execute("reset statement_timeout")
    wait_until(lambda: not reading(nodes))
    assert alice.execute(QUESTION).fetchone()


def test_distributing_and_taking_back_ends_what_was_declared(servers: Any) -> None:
    with (
        shop(*servers) as nodes,
        nodes.near.connect("alice") as alice,
        nodes.near.connect() as admin,
    ):
        alice.execute("set dp.epsilon = 1")
        alice.execute(QUESTION)
        token = "select dp.fingerprint_text(array['purchase'::regclass::oid])"
        before = nodes.near.sql(token)
        admin.execute("select create_distributed_table('client', 'c_id')")
        admin.execute("select create_distributed_table('purchase', 'p_client')")
        assert nodes.near.sql(token) != before
        # stored, and yet not given out
        assert "Citus" in str(refused(alice, QUESTION).diag.message_detail)
        admin.execute("select undistribute_table('client', cascade_via_foreign_keys => true)")
        # another relation has the rows now
        assert "neither protected nor public" in str(refused(alice, QUESTION))


def test_the_owner_can_declare_before_protecting(servers: Any) -> None:
    with shop(*servers, more="") as nodes:
        nodes.distribute(*ALL)
        with nodes.near.connect("owner1") as owner:
            assert "Citus" in str(refused(owner, "select dp.protect('purchase')"))
        nodes.allow(*ALL)
        nodes.near.sql(PROTECT, user="owner1")
        assert answers(nodes.near)[0] == [(200,)]
        test_nothing_of_dpsql_is_on_the_workers(nodes)
