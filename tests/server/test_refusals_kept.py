"""A refused text is refused again without another analysis, as long as nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.in_service import in_service, value_in_service
from tests.server.vacuuming import without_autovacuum

pytestmark = pytest.mark.server

LEFT = (
    "select c_kind, dp_count(*) from purchase left join client on c_id = p_client group by c_kind"
)
KEY = "alter table purchase {} constraint purchase_p_client_fkey"


def refusal(connection: Any, question: str) -> tuple[Any, ...]:
    """Return all that is said."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(question)
    diag = caught.value.diag
    return (
        *(diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint),
        *(diag.statement_position, diag.internal_query, diag.context),
    )


COUNT = """
from dpsql.server.spi import SpiDatabase
def counting(self, sql, parameters=()):
    GD["looks"] = GD.get("looks", 0) + ("dp.analyze(" in sql)
    return execute(self, sql, parameters)
execute, SpiDatabase.execute = SpiDatabase.execute, counting
"""


class Watched:
    """Alice's session, and how often its service analysed a statement."""

    def __init__(self, database: Any) -> None:
        self.connection = database.connect()
        self.connection.execute(in_service(COUNT))
        self.connection.execute("set session authorization alice")

    def looks(self) -> int:
        value = value_in_service("return GD.get('looks', 0)")
        return int(self.connection.execute(f"select {value}").fetchone()[0])

    def looked(self, question: str) -> tuple[bool, tuple[Any, ...]]:
        """Refuse a question."""
        before = self.looks()
        said = refusal(self.connection, question)
        return self.looks() > before, said


@pytest.fixture(scope="module", autouse=True)
def still(server: Any) -> Iterator[None]:
    """Keep autovacuum away, of which each table that it analyses is a change."""
    with without_autovacuum(server):
        yield


@pytest.fixture
def watched(shop: Any) -> Watched:
    return Watched(shop)


@pytest.mark.parametrize(
    "question",
    [
        "select dp_count(*) from client left join purchase on p_client = c_id",
        "select dp_count(*) from client where c_id > random()",
        "select c_kind, dp_count(*) from client group by c_kind having max(c_id) > 1",
        "select dp_count(*) from client, pg_class",
    ],
)
def test_it_is_kept_with_all_its_words(shop: Any, watched: Watched, question: str) -> None:
    counted = "select coalesce(sum(refused), 0)::int from dp.refusals"
    before = shop.sql(counted)[0][0]
    looked, first = watched.looked(question)
    assert looked
    looked, second = watched.looked(question)
    assert not looked
    assert second == first
    assert refusal(watched.connection, question) == first
    assert shop.sql(counted)[0][0] == before + 3
    # another place in another text
    moved = refusal(watched.connection, f"/* later */ {question}")
    assert moved[:4] == first[:4]
    if first[4] is not None:
        assert int(moved[4]) == int(first[4]) + len("/* later */ ")


@pytest.mark.parametrize(
    ("question", "harm", "mend"),
    [
        (
            LEFT,
            KEY.format("drop"),
            KEY.format("add") + " foreign key (p_client) references client",
        ),
        (
            "select dp_count(*) from client",
            "alter table client enable row level security",
            "alter table client disable row level security",
        ),
        (
            "select dp_count(*) from client",
            "revoke select on client from dp_executor",
            "grant select on client to dp_executor",
        ),
        (
            "select dp_count(*) from client",
            "select dp.unprotect('client')",
            "select dp.protect('client')",
        ),
        (
            "select dp_count(*) from client, extra",
            "create table extra (a int)",
            "select dp.declare_public('extra')",
        ),
    ],
)
def test_it_ends_with_a_change(shop: Any, question: str, harm: str, mend: str) -> None:
    with shop.connect(user="alice") as alice:
        shop.sql(harm)
        first = refusal(alice, question)
        assert refusal(alice, question) == first
        shop.sql(mend)
        alice.execute(question)
        alice.execute(question)
        if harm.startswith("create"):
            return
        shop.sql(harm)
        assert refusal(alice, question) == first


def test_it_is_told_to_who_it_was_told(shop: Any) -> None:
    """What a role may not use is no fact about others."""
    shop.sql(
        "create schema inner_circle; create table inner_circle.t (a int);"
        " select dp.protect('inner_circle.t'); grant usage on schema inner_circle to bob;"
        " select dp.grant_budget('bob', 10)"
    )
    question = "select dp.query('select dp_count(*) from inner_circle.t')"
    with shop.connect() as session:
        for _ in range(2):
            session.execute("set session authorization alice")
            refusal(session, question)
            session.execute("set session authorization bob")
            session.execute(question)
        shop.sql("grant bob to alice")
        session.execute("set session authorization alice")
        session.execute(question)


@pytest.mark.parametrize(
    "question",
    [
        # today's and tomorrow's analysis are not one
        "select dp_count(*) from client left join purchase on p_client = c_id and p_day < current_date",
        "select dp_count(*) from client left join purchase on p_client = c_id and p_day < now()",
        # a type that somebody made, whose checks are code
        "select dp_count(*) from client left join purchase on p_client = c_id and '1'::mine > 0",
    ],
)
def test_what_hangs_on_more_than_the_catalogue_is_not_kept(
    shop: Any, watched: Watched, question: str
) -> None:
    shop.sql("create domain mine as int")
    first = watched.looked(question)
    assert first[0]
    assert watched.looked(question) == first


def test_rows_of_a_public_relation_are_not_kept(shop: Any, watched: Watched) -> None:
    shop.sql(
        "create table kinds (k text primary key); insert into kinds values ('a');"
        " select dp.declare_public('kinds')"
    )
    shop.sql(
        "select dp.set_domain('client', 'c_kind', reference => 'kinds', reference_column => 'k')"
    )
    question = "select dp_count(*) from client left join purchase on p_client = c_id"
    first = watched.looked(question)
    assert first[0]
    assert watched.looked(question) == first


def test_a_kept_refusal_ends_in_an_old_snapshot_too(shop: Any) -> None:
    question = "select dp_count(*) from client, extra"
    with shop.connect(user="alice") as alice:
        shop.sql("create table extra (a int)")
        alice.execute("begin isolation level repeatable read; select 1")
        for _ in range(2):
            alice.execute("savepoint s")
            refusal(alice, question)
            alice.execute("rollback to s")
        shop.sql("select dp.declare_public('extra')")
        alice.execute(question)
        alice.execute("rollback")
        alice.execute(question)
