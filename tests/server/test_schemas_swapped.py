"""A service session reads the relations that it locked, whatever their names mean by then."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.in_service import in_service

pytestmark = pytest.mark.server


def test_what_took_the_name_of_a_relation_is_not_read(shop: Any) -> None:
    shop.sql("create table public.other as select 1 as k; grant select on other to dp_executor")
    with shop.connect() as session:
        session.execute(
            in_service(
                """
                import dpsql.engine.answer as answer
                compute = answer.compute
                def swapped(quote, services):
                    read = services.database.execute
                    assert read("select count(*) as n from public.client") == [(200,)]
                    read("select count(*) as n from public.other")
                    return compute(quote, services)
                answer.compute = swapped
                """
            )
        )
        told: list[str] = []
        session.add_notice_handler(lambda d: told.append(str(d.message_primary)))
        session.execute("set session authorization alice")
        with pytest.raises(psycopg.Error) as caught:
            session.execute("select dp_count(*) from client")
    assert caught.value.sqlstate == "PD900"
    assert shop.sql("select state from dp.spend") == [("failed",)]
    assert shop.sql("select * from dp.failures where failures > 0") == []
