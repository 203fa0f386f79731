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
        session.execute("set statement_timeout = '8s'")
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
