"""Who may read a release, what it costs them, what they are told, and how a release is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timezone
from typing import Any

import pytest

from tests.server.asking import refused, state
from tests.server.in_service import everywhere
from tests.server.releasing import declare, release, rows, spent
from tests.server.waiting import wait_until, waits

pytestmark = pytest.mark.server

CUBE = "select s_state, s_place, dp_count(*) from sale group by cube (s_state, s_place)"
ONE = "select s_place, dp_count(*) from sale group by s_place"
LIVE = "select s_place, dp_count(*) from sale where s_place between 1 and 5 group by s_place"


@pytest.fixture
def sales(database: Any) -> Any:
    declare(database)
    database.sql("select dp.grant_budget('bob', 10, 1e-5)", user="owner1")
    return database


@pytest.fixture
def alice(sales: Any) -> Iterator[Any]:
    with sales.connect("alice") as session:
        yield session


@pytest.fixture
def bob(sales: Any) -> Iterator[Any]:
    with sales.connect("bob") as session:
        yield session


@pytest.fixture
def owner(sales: Any) -> Iterator[Any]:
    with sales.connect("owner1") as session:
        yield session


def hear(session: Any) -> list[str]:
    told: list[str] = []
    session.add_notice_handler(
        lambda n: told.append(f"{n.message_primary} | {n.message_detail} | {n.message_hint}")
    )
    return told


def test_two_tables_of_one_measurement_are_shared_for_one_charge(
    sales: Any, alice: Any, bob: Any, owner: Any
) -> None:
    numbers = release(alice, "one", CUBE, epsilon=1)
    assert release(alice, "two", CUBE, epsilon=1) == numbers
    other = release(alice, "other", CUBE, epsilon=0.5)
    told = hear(owner)
    owner.execute("select dp.share_release('one', 'bob')")
    assert told == []
    owner.execute("select dp.share_release('two', 'bob')")
    assert len(told) == 1
    assert "has paid for these numbers already" in told[0]
    assert spent(sales, "bob") == (1, 1)
    assert rows(bob, "one") == rows(bob, "two") == numbers
    # another measurement of the same workload is another one
    owner.execute("select dp.share_release('other', 'bob')")
    assert spent(sales, "bob")[0] == 2
    assert rows(bob, "other") == other
    # nor does it matter in which way bob comes to the same numbers
    assert release(bob, "mine", CUBE, epsilon=1) == numbers
    assert spent(sales, "bob")[0] == 2


def test_a_release_that_is_replaced_while_it_is_shared_is_charged_as_it_is_then(
    sales: Any, alice: Any, bob: Any, owner: Any
) -> None:
    """On a busy machine the call may end before the other transaction: it waits two seconds only."""
    alice.execute("set dp.fresh = on")
    outcomes: list[str | None] = []
    for attempt in range(20):
        epsilon = 0.5 + attempt / 100
        release(alice, "r", ONE, epsilon=0.01)
        alice.execute("begin; select dp.drop_release('r')")
        numbers = release(alice, "r", ONE, epsilon=epsilon)
        sharing = threading.Thread(
            target=lambda: outcomes.append(state(owner, "select dp.share_release('r', 'bob')"))
        )
        sharing.start()
        wait_until(lambda: waits(sales) or len(outcomes) > attempt)  # noqa: B023
        alice.execute("commit")
        sharing.join()
        if outcomes[-1] is None:
            break
        alice.execute("select dp.drop_release('r')")
    assert outcomes[-1] is None, outcomes
    assert rows(bob, "r") == numbers
    assert [float(part) for part in spent(sales, "bob")] == [1, epsilon]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_no_transaction_that_sees_old_releases_shares_one(
    alice: Any, owner: Any, level: str
) -> None:
    release(alice, "r", ONE, epsilon=0.01)
    owner.execute(f"begin isolation level {level}; select 1")
    error = refused(owner, "select dp.share_release('r', 'bob')")
    owner.execute("rollback")
    assert error.sqlstate == "PD011"
    owner.execute("begin isolation level read committed")
    owner.execute("select dp.share_release('r', 'bob')")
    owner.execute("commit")


def test_who_released_the_same_is_shown_it_for_nothing(
    sales: Any, alice: Any, bob: Any, owner: Any
) -> None:
    numbers = release(alice, "one", CUBE, epsilon=1)
    assert release(bob, "mine", CUBE, epsilon=1) == numbers
    before = spent(sales, "bob")
    owner.execute("select dp.share_release('one', 'bob')")
    assert rows(bob, "one") == numbers
    assert spent(sales, "bob") == before
    # what is measured anew is not
    alice.execute("select dp.refresh_release('one')")
    owner.execute("select dp.share_release('one', 'bob')")
    assert spent(sales, "bob")[0] == before[0] + 1


def test_dropping_tells_who_could_read_it(sales: Any, alice: Any, owner: Any) -> None:
    told = hear(alice)
    release(alice, "alone", ONE, epsilon=1)
    told.clear()
    alice.execute("select dp.drop_release('alone')")
    assert told == []
    release(alice, "one", ONE, epsilon=1)
    owner.execute("select dp.share_release('one', 'bob')")
    told.clear()
    alice.execute("select dp.drop_release('one')")
    assert len(told) == 1
    assert told[0].startswith("bob could read dpv.one and cannot any more | ")
    assert spent(sales, "bob")[0] == 1


def test_a_budget_that_is_revoked_leaves_what_may_be_read_and_says_so(
    sales: Any, alice: Any, bob: Any, owner: Any
) -> None:
    numbers = release(alice, "one", ONE, epsilon=1)
    told = hear(owner)
    owner.execute("select dp.revoke_budget('bob')")
    assert told == []
    owner.execute("select dp.grant_budget('bob', 10, 1e-5)")
    owner.execute("select dp.share_release('one', 'bob')")
    told.clear()
    owner.execute("select dp.revoke_budget('bob')")
    assert len(told) == 1
    assert "role bob can still read a release" in told[0]
    assert "dpv.one" in told[0]
    assert rows(bob, "one") == numbers
    # a question that it answers is free, and another one is refused
    live = dict(bob.execute(LIVE).fetchall())
    assert live == {row["s_place"]: round(row["value"]) for row in numbers}
    assert state(bob, "select dp_count(*) from sale") == "PD002"
    # until the owner takes the right away, by the statement that the notice has
    statement = told[0][told[0].index("SELECT dp.unshare") :]
    assert state(alice, statement) == "PD070"
    assert state(bob, statement) in ("PD040", "PD070")
    owner.execute(statement)
    assert state(bob, "select * from dpv.one") == "42501"
    assert state(bob, LIVE) == "PD002"
    assert bob.execute("select count(*) from dp.releases").fetchone() == (0,)
    assert state(owner, statement) == "PD040"
    # what was paid stays paid
    before = spent(sales, "bob")
    owner.execute("select dp.grant_budget('bob', 10, 1e-5)")
    owner.execute("select dp.share_release('one', 'bob')")
    assert spent(sales, "bob") == before
    assert rows(bob, "one") == numbers


def test_no_live_question_is_answered_from_a_table_that_one_may_not_read(
    sales: Any, alice: Any, bob: Any, owner: Any
) -> None:
    release(alice, "one", ONE, epsilon=1)
    before = spent(sales)
    alice.execute(LIVE)
    assert spent(sales) == before
    told = hear(bob)
    bob.execute(LIVE)
    assert spent(sales, "bob")[0] == 1
    assert not any("from the release" in line for line in told)
    owner.execute("select dp.unshare_release('one', 'alice')")
    assert state(alice, "select * from dpv.one") == "42501"
    alice.execute("set dp.fresh = off")
    alice.execute(LIVE)
    assert spent(sales)[0] == before[0] + 1


@pytest.mark.parametrize(
    ("given", "name"),
    [("dpv.sales", "sales"), ("dpv.\"it''s\"", "it''s"), ("dpvx", "dpvx")],
)
def test_the_schema_may_stand_before_the_name(
    sales: Any, alice: Any, owner: Any, given: str, name: str
) -> None:
    alice.execute(f"select dp.release('{given}', $${ONE}$$, epsilon => 1)")
    named = "select name::text from dp.releases"
    assert alice.execute(named).fetchall() == [(name.replace("''", "'"),)]
    alice.execute(f"select dp.refresh_release('{given}')")
    owner.execute(f"select dp.share_release('{given}', 'bob')")
    owner.execute(f"select dp.unshare_release('{given}', 'bob')")
    error = refused(alice, f"select dp.release('{given}', $${ONE}$$, epsilon => 1)")
    assert "already" in str(error)
    alice.execute(f"select dp.drop_release('{given}')")
    assert alice.execute(named).fetchall() == []
    assert state(alice, "select dp.drop_release(null)") == "PD040"
    for other in ("dpv.", "dpv.dpv.x"):
        assert state(alice, f"select dp.release('{other}', $${ONE}$$)") == "PD040"


def test_no_lock_that_any_role_can_take_blocks_a_name(sales: Any, alice: Any) -> None:
    with sales.connect("mallory", autocommit=False) as mallory:
        mallory.execute(
            "select pg_advisory_lock(hashtextextended('dpsql release ' || n, 0))"
            " from unnest(array['one', 'two']) n"
        )
        for statement in (
            "lock table dp.release_held in access exclusive mode",
            "insert into dp.release_held values ('one')",
            "select * from dp.release_held for update",
            "lock table dp.stored_release in share mode",
        ):
            mallory.execute("savepoint s")
            assert state(mallory, statement) == "42501"
            mallory.execute("rollback to s")
        alice.execute("set lock_timeout = '5s'")
        release(alice, "one", ONE, epsilon=1)
        alice.execute("select dp.refresh_release('one')")
    assert sales.sql("select count(*) from dp.release_held") == [(0,)]


def test_a_refused_release_frees_its_name_at_once(sales: Any, alice: Any, bob: Any) -> None:
    with sales.connect("alice", autocommit=False) as first:
        first.execute("savepoint s")
        assert state(first, "select dp.release('r', $$ select 1 $$)") is not None
        first.execute("rollback to s")
        bob.execute("set lock_timeout = '5s'")
        release(bob, "r", ONE, epsilon=1)
        # and one that was made and rolled back as well
        first.execute("savepoint s")
        release(first, "q", ONE, epsilon=1)
        assert state(bob, f"select dp.release('q', $${CUBE}$$, epsilon => 1)") == "PD040"
        first.execute("rollback to s")
        release(bob, "q", CUBE, epsilon=1)
    assert spent(sales, "bob") == (2, 2)


def test_an_argument_wins_over_the_setting_that_is_above_the_cap(sales: Any, alice: Any) -> None:
    alice.execute("set dp.epsilon = 5; set dp.max_epsilon_per_query = 1")
    release(alice, "one", ONE, epsilon=0.5)
    planned = f"select epsilon from dp.plan_release($${ONE}$$, 0.5) where chosen"
    assert alice.execute(planned).fetchone() == (0.5,)
    assert spent(sales)[0] == 1
    for call in (f"release('two', $${ONE}$$)", f"release('two', $${ONE}$$, epsilon => 2)"):
        error = refused(alice, f"select dp.{call}")
        assert error.sqlstate == "PD040"
        assert "dp.max_epsilon_per_query" in str(error)
    assert "dp.max_epsilon_per_query" in str(refused(alice, "select dp_count(*) from sale"))
    # what is measured again costs what it cost
    alice.execute("select dp.refresh_release('one')")
    assert spent(sales)[0] == 2


def test_a_release_says_when_it_was_measured(sales: Any, alice: Any, bob: Any) -> None:
    release(alice, "one", ONE, epsilon=1)
    # in hours: days have 23 or 25 of them where clocks are changed
    sales.sql("update dp.answer set taken_at = taken_at - interval '9600 hours'")
    release(alice, "two", ONE, epsilon=1)
    times = "select measured_at, released_at from dp.releases where name = %s"
    one, two = (alice.execute(times, (name,)).fetchone() for name in ("one", "two"))
    assert one[0] <= one[1] < two[1]
    assert (one[0] - two[0]).days == 400
    told = dict(alice.execute("select * from dp.explain('select * from dpv.two')").fetchall())
    assert f"dpv.two of {two[0].year}-" in told["release"]
    comment = alice.execute("select obj_description('dpv.two'::regclass)").fetchone()[0]
    assert f"release of {two[0].astimezone(timezone.utc).year}-" in comment


def test_explaining_what_one_may_not_read_says_so(sales: Any, alice: Any, bob: Any) -> None:
    release(alice, "one", ONE, epsilon=1)
    for statement in ("select * from dpv.one", "select value from dpv.one o join sale on true"):
        error = refused(bob, f"select * from dp.explain('{statement}')")
        assert error.sqlstate == "PD070"
        assert "permission denied for table dpv.one" in str(error)
        assert "dp.share_release('one', 'bob')" in str(error.diag.message_hint)
    assert state(alice, "select * from dp.explain('select * from dpv.one')") is None


def test_an_undeclared_domain_names_who_may_declare_it(sales: Any, alice: Any, owner: Any) -> None:
    asked = "$$select s_price, dp_count(*) from sale group by s_price$$"
    statement = "SELECT dp.set_domain('public.sale', 's_price', "
    for call in (f"dp.release('r', {asked})", f"count(*) from dp.plan_release({asked})"):
        hint = str(refused(alice, f"select {call}").diag.message_hint)
        assert hint.startswith(f"The owner (owner1) can declare it: {statement}")
    sales.sql("select dp.grant_budget('owner1', 1)")
    hint = str(refused(owner, f"select dp.release('r', {asked})").diag.message_hint)
    assert hint.startswith(statement)


def test_who_may_declare_is_said_of_relations_of_any_name(sales: Any, alice: Any) -> None:
    name = "public.\"O'Neil\\s 'sale'\""
    sales.sql(f"create table {name} (kind text); alter table {name} owner to owner1")
    sales.sql(f"select dp.protect($${name}$$)", user="owner1")
    asked = f"$$select kind, dp_count(*) from {name} group by kind$$"
    hint = str(refused(alice, f"select dp.release('r', {asked})").diag.message_hint)
    assert hint.startswith("The owner (owner1) can declare it: SELECT dp.set_domain(E'public.")


def test_a_plan_says_what_can_be_post_processed(sales: Any, alice: Any) -> None:
    plan = "select mechanism, rmse, chosen, note from dp.plan_release($${}$$, 1, 1e-9{})"
    plain = alice.execute(plan.format(CUBE, "")).fetchall()
    assert not any("postprocess" in row[3] for row in plain)
    made = alice.execute(plan.format(CUBE, ", postprocess => 'non_negative'")).fetchall()
    assert [row[:3] for row in made] == [row[:3] for row in plain]
    for row in made:
        if row[1] is not None:
            assert row[3].endswith("; rmse is before postprocess => 'non_negative', which is free")
    # prefixes are no marginals, of which a graphical model could be made
    ranges = "select dp.prefix(s_day), dp_count(*) from sale group by 1"
    found = alice.execute(plan.format(ranges, ", postprocess => 'pgm'")).fetchall()
    assert any("no postprocess => 'pgm': " in row[3] for row in found)
    for row in found:
        assert not (row[2] and "no postprocess" in row[3])
    error = refused(alice, f"select * from dp.plan_release($${ONE}$$, postprocess => 'odd')")
    assert 'parameter "postprocess" must be one of' in str(error)


BAD_TABLES = {
    "no numbers": "\"grouping\" text, k text, value float8, standard_error float8",
    "short numbers": "\"grouping\" int2, k text, value float8, standard_error float8",
    "a text for the value": "\"grouping\" int, k text, value text, standard_error float8",
    "single precision": "\"grouping\" int, k text, value float8, standard_error float4",
    "numeric": "\"grouping\" int, k text, value numeric, standard_error float8",
    "a default": "\"grouping\" int, k text default 'x', value float8, standard_error float8",
    "generated": "\"grouping\" int, k int generated always as (1) stored, value float8, standard_error float8",
    "checked": "\"grouping\" int, k text, value float8 check (value > 0), standard_error float8",
    "too few": "\"grouping\" int, value float8, standard_error float8",
}  # fmt: skip


@pytest.mark.parametrize("how", ["good", "dropped", "constant", *BAD_TABLES])
def test_the_writer_of_cells_looks_at_the_columns_it_writes(database: Any, how: str) -> None:
    good = '"grouping" int, k text, value float8, standard_error float8'
    with database.connect() as session:
        session.execute(
            f"set role dp_executor; create table dpv.w ({BAD_TABLES.get(how, good)});"
            + ("alter table dpv.w drop column k" if how == "dropped" else "")
        )
        number = "1" if how == "constant" else "null"
        written = (
            f"select dp.write_cells('dpv.w'::regclass, {number}, 7, float8send(0) || float8send(0),"
            " null, 1.5, '{2}', '{0}', '{2}', '{a,b}')"
        )
        if how == "good":
            assert session.execute(written).fetchone() == (2,)
            assert session.execute("select * from dpv.w").fetchall() == [
                (7, "a", 0.0, 1.5),
                (7, "b", 0.0, 1.5),
            ]
        else:
            error = refused(session, written)
            assert error.sqlstate == "XX000"
            assert "dp.write_cells" in str(error)
        assert session.execute("select 1").fetchone() == (1,)


def test_who_refreshes_a_release_of_a_role_hears_that_the_role_lost_it(
    sales: Any, alice: Any, bob: Any
) -> None:
    sales.sql("grant alice to bob")
    try:
        release(alice, "one", ONE, epsilon=1)
        told = hear(bob)
        bob.execute("select dp.refresh_release('one')")
        assert len(told) == 1
        assert told[0].startswith("alice cannot read dpv.one any more | ")
        assert "SELECT dp.share_release('one', 'alice');" in told[0]
        assert state(alice, "select * from dpv.one") == "42501"
    finally:
        sales.sql("revoke alice from bob")


def test_a_name_is_written_with_one_schema(sales: Any, alice: Any, owner: Any) -> None:
    release(alice, "one", ONE, epsilon=1)
    for name in ("dpv.dpv.one", 'dpv."dpv.one"'):
        assert state(owner, f"select dp.share_release('{name}', 'bob')") == "PD040"
        assert state(alice, f"select dp.refresh_release('{name}')") == "PD040"


def test_the_role_that_paid_reads_whatever_its_name_is_by_now(sales: Any) -> None:
    """Somebody else has its name when the table is made."""
    sales.sql(
        "create role payer login; create role stranger login; grant dp_analyst to payer, stranger"
    )
    sales.sql("grant select on sale to payer; select dp.grant_budget('payer', 10, 1e-5)")
    swap = "alter role payer rename to paid; alter role stranger rename to payer"
    try:
        with sales.connect() as session:
            session.execute(
                everywhere(
                    f"""
                    import psycopg
                    from dpsql.engine import publish
                    written = publish._written
                    def late(*given):
                        with psycopg.connect({sales.conninfo()!r}, autocommit=True) as other:
                            other.execute({swap!r})
                        return written(*given)
                    publish._written = late
                    """
                )
            )
            session.execute("set session authorization payer")
            session.execute("select dp.release('bought', %s)", (ONE,))
        readers = (
            "select r, has_table_privilege(r, 'dpv.bought', 'select')"
            " from unnest(array['paid', 'payer']::name[]) as r order by 1"
        )
        assert sales.sql(readers) == [("paid", True), ("payer", False)]
    finally:
        for role in ("payer", "paid", "stranger"):
            sales.sql(
                f"do $$ begin if to_regrole('{role}') is not null then"
                f" execute 'drop owned by {role}; drop role {role}'; end if; end $$"
            )


@pytest.mark.parametrize(
    "uses",
    [
        "create table theirs.d (x dpv.sold)",
        "create table theirs.d (x dpv.sold[])",
        "create function theirs.f(dpv.sold[]) returns int language sql as 'select 1'",
        "create domain theirs.d as dpv.sold[]",
    ],
)
def test_what_uses_a_release_keeps_it_from_being_replaced_before_the_charge(
    sales: Any, alice: Any, uses: str
) -> None:
    release(alice, "sold", ONE)
    sales.sql("create schema theirs authorization bob")
    sales.sql(uses, user="bob")
    before = spent(sales)
    error = refused(alice, "select dp.refresh_release('sold')")
    assert error.sqlstate == "PD040"
    assert spent(sales) == before
