"""What looks like a hole to dp.check_lockdown and is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import declare
from tests.server.test_lockdown_holes import holes

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def here(server: Any) -> Iterator[Any]:
    """A shop that is locked down; its administrator's session."""
    database = declare(server.create_database())
    database.sql("select * from dp.lockdown()")
    yield database.connect()
    server.drop_database(database)


def test_a_key_of_a_column_that_nobody_writes_is_no_hole(here: Any) -> None:
    before = holes(here)
    here.execute(
        "begin; create table reply (client int references client, said text); grant insert (said), select, delete on reply to mallory;"
        "grant insert, select on region to mallory"
    )
    try:
        assert holes(here).keys() == before.keys()
    finally:
        here.execute("rollback")


def test_views_of_private_questions_show_no_rows_and_stay_readable(here: Any) -> None:
    """They remember the relation; one that reads it besides is a hole as ever, and one over that, too."""
    before = holes(here)
    here.execute(
        "begin; select dp.expose('purchase'); create view asked as select dp_count(*) as n from purchase join client on c_id = p_client;"
        "create view asked_over as select count(*) as n, 1 as k from dpv.purchase; create view further as select n from asked_over;"
        "create view both_ways as select n, p_id from asked, purchase;"
        "create view besides as select (select dp_count(*) from purchase) as n, (select count(*) from purchase) as all_rows;"
        "create view behind as select n from besides;"
        "grant select on asked, asked_over, further, both_ways, besides, behind to alice"
    )
    try:
        found = {found[1] for found in holes(here).keys() - before.keys()}
        assert found == {"public.both_ways", "public.besides", "public.behind"}
        here.execute("select * from dp.lockdown()")
        readable = here.execute(
            "select relname from pg_class where relname in ('asked', 'asked_over', 'further', 'both_ways', 'besides', 'behind')"
            " and has_table_privilege('alice', oid, 'select') order by 1"
        )
        assert [name for (name,) in readable.fetchall()] == ["asked", "asked_over", "further"]
    finally:
        here.execute("rollback")
