"""What a spy tries to keep the server, the disk or other people's statements busy for next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import spying
from tests.server.asking import refused

LONGEST = 1_000_000
COUNTS = "select kind, public.dp_count(*) from public.person group by kind"
#: A few characters, and more digits than can be written out; no cancel would be seen meanwhile.
MANY_DIGITS = ["1e30000000", "-1e30000000", "1e-30000000", "0." + "3" * 2000]
CALLS = [
    f"select dp.release_query('r', '{COUNTS}', '{{}}', '0', 'auto', 'none', null, 'x')",
    f"select dp.release_query('r', '{COUNTS}', '1', '{{}}', 'auto', 'none', null, 'x')",
    f"select dp.plan_release_query('{COUNTS}', '{{}}', '0', 'auto', null, 'none', 'x')",
    "select dp.synthesize_query('lab', array['person'::regclass::oid], '{}', '0', 'auto', '{{}}', '{{}}', null, 10, false, false)",
]


@pytest.fixture(scope="module")
def here(server: Any) -> Iterator[Any]:
    with spying.spies(server):
        database = server.create_database()
        database.sql(spying.SET_UP)
        database.sql("select dp.grant_budget('spy_one', 1e6, 1e-3)")
        yield database
        server.drop_database(database)


@pytest.fixture
def spy(here: Any) -> Iterator[Any]:
    with here.connect(user="spy_one") as session:
        session.execute("set statement_timeout = '60s'")
        yield session


@pytest.mark.parametrize("number", MANY_DIGITS)
@pytest.mark.parametrize("call", CALLS)
def test_an_amount_of_many_digits_is_refused_at_once(spy: Any, call: str, number: str) -> None:
    error = refused(spy, call.format(number))
    assert error.sqlstate == "PD040"
    assert "must have at most 1000 digits" in str(error.diag.message_primary)
    assert len(str(error.diag.message_detail)) < 100


@pytest.mark.parametrize(
    "call", ["dp.release('r', '{0}', 1e100000)", "dp.plan_release('{0}', 1e100000)"]
)
def test_a_large_amount_is_named(spy: Any, call: str) -> None:
    error = refused(spy, f"select {call.format(COUNTS)}")
    assert error.sqlstate == "PD040"
    assert 'parameter "epsilon"' in str(error.diag.message_primary)


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "select * from dp.explain($q${}$q$)",
        "select dp.query($q${}$q$)",
        "select dp.release('r', $q${}$q$)",
        "create temp view long as {}; table long",
    ],
)
def test_a_statement_that_is_too_long_is_refused(here: Any, spy: Any, form: str) -> None:
    (before,) = here.sql("select count(*) from dp.spend")
    question = f"select dp_count(*) from person where note <> '{'x' * LONGEST}'"
    error = refused(spy, form.format(question))
    assert error.sqlstate == "PD011"
    assert error.diag.message_primary == "the statement is too long"
    assert here.sql("select count(*) from dp.spend") == [before]


def test_parameters_count_as_well(spy: Any) -> None:
    with pytest.raises(Exception, match="the statement is too long"):
        spy.execute("select dp_count(*) from person where note <> %s", ["x" * LONGEST])
    spy.execute("select dp_count(*) from person where note <> %s", ["x" * 1000])


def test_the_ledger_keeps_the_beginning_of_a_long_question(spy: Any) -> None:
    question = (
        f"select dp_count(*) from person where note not in ('{{}}', '{'x' * (LONGEST // 2)}')"
    )
    spy.execute("set dp.epsilon = 0.000001")
    answers = [spy.execute(question.format(name)).fetchone() for name in "aab"]
    assert answers[0] == answers[1]
    kept = spy.execute("select question from dp.ledger order by id desc limit 2").fetchall()
    for (text,) in kept:
        assert len(text) < 10_100
        assert text.endswith(" characters)")
        assert "FROM public.person" in text


@pytest.fixture
def bounded(here: Any) -> Iterator[Any]:
    here.sql(
        "create table rating (movie int not null, stars int); grant create on schema public to owner1; alter table rating owner to owner1"
    )
    here.sql("alter default privileges grant all on tables to public", user="owner1")
    try:
        here.sql("select dp.set_degree_bound('rating', array['movie'], 3)", user="owner1")
        yield here
    finally:
        here.sql("alter default privileges revoke all on tables from public", user="owner1")
        here.sql(
            "select dp.drop_degree_bound('rating', array['movie']); drop table rating",
            user="owner1",
        )


def test_strangers_cannot_hold_what_writers_wait_for(bounded: Any) -> None:
    """Nor tell by trying who writes which values: an advisory lock is anybody's."""
    with bounded.connect(user="owner1", autocommit=False) as writer:
        writer.execute("insert into rating values (777, 5)")
        pid = writer.info.backend_pid
        held = bounded.sql(
            "select locktype, relation::regclass::text from pg_locks where pid = %s", pid
        )
        writer.rollback()
    kinds = {kind for kind, _ in held}
    assert kinds <= {"relation", "transactionid", "virtualxid"}, held
    turns = {
        name
        for _, name in held
        if name and name.startswith("rating_dp_slot") and "pkey" not in name
    }
    assert len(turns) == 1
    ((readers,),) = bounded.sql(
        "select count(*) from pg_class as c, aclexplode(c.relacl) as a"
        " where c.oid = %s::regclass and a.grantee <> c.relowner",
        turns.pop(),
    )
    assert readers == 0


def test_bounded_rows_of_many_values_are_written_at_once(bounded: Any) -> None:
    """A lock in memory for each value would use up what all sessions of the server share."""
    bounded.sql("insert into rating select i, 1 from generate_series(1, 30000) as i", user="owner1")
    assert bounded.sql("select count(*), max(dp_slot_movie) from rating") == [(30000, 1)]
    assert bounded.sql("select count(*) from rating_dp_slot_movie") == [(16384,)]


def test_nothing_is_told_while_others_wait_for_the_answer(here: Any) -> None:
    """Who does not read keeps the server waiting in the middle of what it tells."""
    here.sql("select dp.allow_heuristic('person'), dp.allow_heuristic('visit')", user="owner1")
    here.sql("select dp.grant_budget('spy_two', 0.5)")
    told: list[str] = []
    with here.connect(user="spy_two") as poor:
        poor.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        poor.execute("set dp.method = sampling_published")
        question = (
            "select dp_count(*) from person join visit on person.id = visit.person where age < 71"
        )
        assert refused(poor, question).sqlstate == "PD001"
        assert [text.partition(":")[0] for text in told] == ["heuristic"]
        poor.execute("set dp.epsilon = 0.5")
        poor.execute(question)
        poor.execute(question)
    assert [text.partition(",")[0].partition(":")[0] for text in told[1:]] == [
        "heuristic",
        "stored answer",
        "heuristic",
    ]
