"""asyncpg: prepared statements and binary codecs only, and its own queries of the catalogue."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from datetime import date
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from tests.server.clients.conftest import EPSILON

Talk = Callable[[Any], Awaitable[None]]


def talk(shop: Any, conversation: Talk) -> None:
    """Run a conversation on a connection of its own."""

    async def run() -> None:
        cluster = shop.database.cluster
        session = await asyncpg.connect(
            host=str(cluster.socket), user="alice", database=shop.database.name,
            server_settings={"dp.epsilon": EPSILON},
        )  # fmt: skip
        try:
            await conversation(session)
        finally:
            await session.close()

    asyncio.run(run())


def test_answers_come_in_binary_and_once(shop: Any) -> None:
    question = 'select o_day, o_status, count(*) as n, sum(o_amount) as total from dpv."Orders" where o_day < $1 and o_status = any($2) group by 1, 2'

    async def ask(session: Any) -> None:
        prepared = await session.prepare(question)
        assert [str(p.name) for p in prepared.get_parameters()] == ["date", "text[]"]
        assert [(a.name, a.type.name) for a in prepared.get_attributes()] == [
            ("o_day", "date"), ("o_status", "text"), ("n", "int8"), ("total", "numeric"),
        ]  # fmt: skip
        given = date(2024, 1, 3), ["open", "sent"]
        rows = await prepared.fetch(*given)
        assert rows
        assert {tuple(map(type, row.values())) for row in rows} == {(date, str, int, Decimal)}
        assert await prepared.fetch(*given) == rows
        assert await session.fetch(question, *given) == rows
        async with session.transaction(readonly=True, isolation="repeatable_read"):
            assert [row async for row in session.cursor(question, *given, prefetch=2)] == rows
        copied = io.BytesIO()
        await session.copy_from_query(question, *given, output=copied, format="csv")
        assert len(copied.getvalue().splitlines()) == len(rows)

    # counts and sums are two questions of one statement
    with shop.costs(1):
        talk(shop, ask)


def test_the_catalogue_is_introspected(shop: Any) -> None:
    async def ask(session: Any) -> None:
        # a type that it does not know makes it ask what the type is
        rows = await session.fetch("select $1::channel as c, array[$1::channel] as cs", "web")
        assert [tuple(row) for row in rows] == [("web", ["web"])]
        await session.set_type_codec("channel", encoder=str, decoder=str.upper, format="text")
        assert await session.fetchval("select 'web'::channel") == "WEB"
        asked = 'select o_channel, count(*) from dpv."Orders" where o_channel = $1 group by 1'
        assert [row[0] for row in await session.fetch(asked, "web")] == ["web"]
        await session.reload_schema_state()
        probe = await session.prepare('select * from dpv."Orders" limit 0')
        assert [a.type.name for a in probe.get_attributes()][:4] == [
            "int8",
            "int4",
            "text",
            "numeric",
        ]
        assert await probe.fetch() == []

    with shop.costs(1):
        talk(shop, ask)


def test_errors_are_told_and_the_session_goes_on(shop: Any) -> None:
    async def ask(session: Any) -> None:
        for statement, state, told in (
            ("select * from dpv.customer", "PD010", "SELECT count(*) FROM dpv.customer"),
            ("select array_agg(c_id) from dpv.customer", "PD011", "Use count"),
        ):
            with pytest.raises(asyncpg.PostgresError) as caught:
                await session.fetch(statement)
            assert caught.value.sqlstate == state
            assert told in caught.value.hint
        async with session.transaction():
            with pytest.raises(asyncpg.PostgresError):
                async with session.transaction():
                    await session.fetch("select * from dpv.customer")
            assert await session.fetchval("select 1") == 1

    with shop.costs(0):
        talk(shop, ask)


def test_listeners_hear_beside_questions(shop: Any) -> None:
    async def ask(session: Any) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        await session.add_listener("news", lambda *given: heard.put_nowait(given[-1]))
        await session.fetchval("select count(*) from dpv.customer")
        await session.execute("select pg_notify('news', 'asked')")
        assert await asyncio.wait_for(heard.get(), 30) == "asked"

    talk(shop, ask)


def test_a_pool_gives_sessions_back_as_they_were(shop: Any) -> None:
    async def run() -> None:
        pool = await asyncpg.create_pool(
            host=str(shop.database.cluster.socket), user="alice", database=shop.database.name,
            server_settings={"dp.epsilon": EPSILON}, min_size=1, max_size=2,
        )  # fmt: skip
        async with pool:
            found = []
            for _ in range(3):
                async with pool.acquire() as session:
                    found.append(
                        await session.fetchval("select count(*) from dpv.customer where c_id < 44")
                    )
                    await session.execute("set dp.epsilon = 0.125")
            assert len(set(found)) == 1
            question = "select count(*) from dpv.customer where c_id < 44"
            assert {await pool.fetchval(question) for _ in range(2)} == set(found)

    with shop.costs(1):
        asyncio.run(run())


def test_a_question_that_takes_too_long_is_given_up(shop: Any) -> None:
    long = 'select count(*) from dpv."Orders" as a, dpv."Orders" as b, dpv."Orders" as c where a.o_id + b.o_id > c.o_id + 1'

    async def ask(session: Any) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await session.fetch(long, timeout=1)
        assert await session.fetchval("select 1") == 1

    talk(shop, ask)
