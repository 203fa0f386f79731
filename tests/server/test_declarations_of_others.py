"""Declarations count where a question reads them: of what it reads they stop it, of others never."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused, state
from tests.server.in_service import everywhere

pytestmark = pytest.mark.server

SET_UP = """
create table home (h_id int primary key, h_kind text not null);
create table buy (b_id int primary key, b_home int not null references home, b_kind text not null,
  b_place int not null, b_old int not null references home);
create table place (p_id int primary key);
create view bought as select b_kind, b_place from buy;
create table far (f_id int primary key, f_kind text not null);
create table trip (t_id int primary key, t_far int not null references far, t_kind text not null,
  t_place int not null, t_other int not null);
create table lone (l_id int primary key, l_kind text not null);
create table spot (s_id int primary key);
create view tripped as select t_kind from trip;
create view others as select l_kind from lone;
insert into home select i, 'a' from generate_series(1, 20) i;
insert into buy select i, 1 + i % 20, 'a', 1, 1 + i % 20 from generate_series(1, 60) i;
insert into place values (1), (2);
insert into far select i, 'a' from generate_series(1, 20) i;
insert into trip select i, 1 + i % 20, 'a', 1, 1 from generate_series(1, 60) i;
insert into spot values (1), (2);
select dp.protect('home', privacy_unit => 'h_id'), dp.protect('far', privacy_unit => 'f_id');
select dp.link('buy', 'home', array['b_old'], follow => false);
select dp.declare_public('place'), dp.declare_public('spot'), dp.protect('lone');
select dp.set_domain('buy', 'b_kind', array['a', 'b']), dp.set_domain('trip', 't_kind', array['a', 'b']);
select dp.set_domain('buy', 'b_place', 'place'::regclass, 'p_id'), dp.set_domain('trip', 't_place', 'spot'::regclass, 's_id');
select dp.declare_view('bought'), dp.declare_view('tripped');
select dp.grant_budget('alice', 1000, 1e-3);
"""
#: What a question about ``bought`` hangs on.
RELATED = (
    "select dp.set_domain('buy', 'b_kind', array['a'])",
    "select dp.drop_domain('buy', 'b_kind')",
    "select dp.drop_domain('buy', 'b_kind'), dp.set_domain('buy', 'b_kind', array['a', 'b'])",
    "select dp.set_domain('buy', 'b_id', 1, 9)",
    "select dp.drop_domain('buy', 'b_place'); select dp.undeclare_public('place')",
    "select dp.undeclare_public('place')",
    "select dp.undeclare_public('place'), dp.declare_public('place')",
    "select dp.unprotect('home')",
    "select dp.unprotect('home'), dp.protect('home', privacy_unit => 'h_id')",
    "select dp.allow_heuristic('home')",
    "select dp.unlink('buy', 'home', array['b_old'])",
    "select dp.link('buy', 'far', array['b_place'])",
    "select dp.protect('place', privacy_unit => 'p_id') from dp.undeclare_public('place')",
    "select dp.undeclare_view('bought')",
    "select dp.undeclare_view('bought'), dp.declare_view('bought')",
    "alter table buy drop constraint buy_b_home_fkey",
    "alter table buy add foreign key (b_place) references far",
    "alter table buy alter b_home drop not null",
    "alter table home rename h_id to h_no",
    "create index on buy (b_kind)",
    "create or replace view bought as select b_kind, b_place from buy where b_id > 1",
    "revoke select on buy from dp_executor",
)
#: What it does not.
UNRELATED = (
    "select dp.set_domain('trip', 't_kind', array['a'])",
    "select dp.drop_domain('trip', 't_kind')",
    "select dp.drop_domain('trip', 't_place'); select dp.undeclare_public('spot')",
    "select dp.set_domain('far', 'f_kind', array['a'])",
    "select dp.unprotect('far')",
    "select dp.unprotect('lone')",
    "select dp.protect('lone', privacy_unit => 'l_id')",
    "select dp.allow_heuristic('far')",
    "select dp.link('trip', 'lone', array['t_other'])",
    "select dp.link('trip', 'far', array['t_other'], follow => false)",
    "select dp.undeclare_public('spot'), dp.declare_public('spot')",
    "select dp.undeclare_view('tripped')",
    "select dp.declare_view('others')",
    "alter table trip drop constraint trip_t_far_fkey",
    "create index on trip (t_kind)",
    "create table more (a int primary key); select dp.protect('more')",
    "select dp.grant_budget('bob', 1)",
    "select dp.set_root_cap('home', 500)",
    "select dp.set_answer_lifetime('home', '1 year')",
    "select dp.record_loss('alice', 'home', 0.1, 0, 'told')",
)
QUESTION = "select b_kind, b_place, dp_count(*) from bought group by 1, 2"
TOKEN = "select dp.fingerprint_text(array['bought'::regclass::oid, 'buy'::regclass])"

#: Changes something by another session where rows are about to be read.
WHILE_IT_IS_READ = everywhere("""
import dpsql.engine.{module} as module
real = module.{name}
def changed(*given, **named):
    import psycopg
    with psycopg.connect({dsn!r}, autocommit=True) as other:
        other.execute({change!r})
    return real(*given, **named)
module.{name} = changed
""")


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


@pytest.mark.parametrize("change", RELATED)
def test_what_is_declared_of_what_is_read_ends_the_answer(shop: Any, change: str) -> None:
    before = shop.sql(TOKEN)
    shop.sql(change)
    assert shop.sql(TOKEN) != before


@pytest.mark.parametrize("change", UNRELATED)
def test_what_is_declared_of_others_does_not(shop: Any, change: str) -> None:
    with shop.connect(user="alice") as alice:
        first = alice.execute(QUESTION).fetchall()
        before = shop.sql(TOKEN)
        shop.sql(change)
        assert shop.sql(TOKEN) == before
        # nor does purging delete the answer, which is found again for nothing
        shop.sql("select dp.purge_answers()")
        assert alice.execute(QUESTION).fetchall() == first
    assert shop.sql("select count(*) from dp.ledger where state = 'answered'") == [(1,)]


def test_each_kind_is_tried_while_a_question_is_read(shop: Any) -> None:
    """A change of what is read comes out as an error after the charge; one of others is not seen."""
    for n, (change, found) in enumerate(
        [
            ("select dp.set_domain('buy', 'b_kind', array['a'])", "PD900"),
            ("select dp.allow_heuristic('home')", "PD900"),
            ("select dp.set_domain('trip', 't_kind', array['c'])", None),
            ("create table {m}{n} (a int primary key); select dp.protect('{m}{n}')", None),
            ("select dp.protect('lone', privacy_unit => 'l_id')", None),
        ]
    ):
        for module, name, asked in (
            ("answer", "compute", QUESTION),
            (
                "release_measure",
                "measure",
                f"select dp.release('r{n}', $${QUESTION}$$)",
            ),
        ):
            with shop.connect() as session:
                session.execute("select dp.grant_budget('postgres', 1000, 1e-3)")
                session.execute("set dp.fresh = on; set dp.max_rows_contributed = 3")
                session.execute("select * from dp.explain('select dp_count(*) from bought')")
                session.execute(
                    WHILE_IT_IS_READ.format(
                        module=module,
                        name=name,
                        dsn=shop.conninfo(),
                        change=change.format(m=module, n=n),
                    )
                )
                assert state(session, asked) == found, (change, asked)
                if found is not None:
                    shop.sql("select dp.set_domain('buy', 'b_kind', array['a', 'b'])")
                    shop.sql("select dp.allow_heuristic('home', false)")


def test_what_a_release_reads_is_of_one_state(shop: Any) -> None:
    """A relation that changes between analysis and fingerprint is not released by the old rules."""
    shop.sql("select dp.grant_budget('postgres', 1000, 1e-3)")
    with shop.connect() as session:
        session.execute("select * from dp.explain('select dp_count(*) from bought')")
        session.execute(
            WHILE_IT_IS_READ.format(
                module="release",
                name="names_of",
                dsn=shop.conninfo(),
                change="select dp.protect('lone', privacy_unit => 'l_id')",
            )
        )
        error = refused(
            session,
            "select dp.release('r', $$ select l_id > 3, dp_count(*) from lone group by 1 $$)",
        )
        assert error.sqlstate == "PD015", error
    assert shop.sql("select count(*) from dp.ledger") == [(0,)]


def test_purge_deletes_what_no_question_finds_any_more(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(QUESTION)
        alice.execute("select dp_count(*) from trip")
        shop.sql("select dp.set_domain('buy', 'b_id', 1, 9)")
        assert shop.sql("select stored_answers, expired_answers from dp.ledger_status") == [(2, 1)]
        assert shop.sql("select dp.purge_answers()") == [(1,)]
        assert shop.sql("select dp.purge_answers()") == [(0,)]
        alice.execute("select dp_count(*) from trip")
    assert shop.sql("select count(*) from dp.ledger") == [(2,)]


def test_another_value_for_all_others_ends_the_answer_within_a_transaction(shop: Any) -> None:
    """Where rows of the catalogue are told apart by what they say alone."""
    with shop.connect() as session:
        session.execute("begin")
        tokens = []
        for other in ("one", "two"):
            session.execute(
                f"select dp.set_domain('buy', 'b_kind', array['a'], other => '{other}')"
            )
            tokens += session.execute(TOKEN).fetchall()
        assert tokens[0] != tokens[1]
        session.execute("rollback")
