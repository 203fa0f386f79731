"""A reload that swaps names goes on with the account of the rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import state

pytestmark = pytest.mark.server

WORLD = """
create table visit (id int primary key, house int not null);
insert into visit select i, i % 3 from generate_series(1, 100) as i;
grant usage on schema public to alice;
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-3);
"""
COPY = "create table {0} (like {1} including all); insert into {0} select * from {1}"
PROTECT = {
    "rows": "select dp.protect('visit', epsilon => 2)",
    "units": "select dp.protect('visit', privacy_unit => 'id', epsilon => 2)",
}
SWAP = (
    f"{COPY.format('visit_new', 'visit')}; alter table visit rename to visit_old;"
    " alter table visit_new rename to visit"
)


@pytest.fixture(params=list(PROTECT))
def protect(request: Any) -> str:
    return PROTECT[request.param]


@pytest.fixture
def spent(database: Any, protect: str) -> Any:
    """A relation whose cap is used up."""
    database.sql(WORLD)
    database.sql(protect)
    assert ask(database) is None
    assert ask(database) == "PD001"
    return database


def ask(database: Any, relation: str = "visit") -> str | None:
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 2; set dp.fresh = on")
        return state(alice, f"select dp_count(*) from {relation}")


@pytest.mark.parametrize(
    "swap",
    [
        f"{SWAP}; drop table visit_old",
        f"{SWAP}; alter table visit_old rename to older; drop table older",
        "create schema aside; alter table visit set schema aside;"
        " create table visit (like aside.visit including all);"
        " insert into visit select * from aside.visit; drop table aside.visit",
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["one transaction", "several"])
def test_the_account_goes_on(spent: Any, protect: str, swap: str, at_once: bool) -> None:
    with spent.connect(autocommit=not at_once) as owner:
        heard: list[str] = []
        owner.add_notice_handler(lambda d: heard.append(str(d.message_primary)))
        for statement in (*swap.split(";"), protect):
            owner.execute(statement)
        owner.commit()
    assert any("goes on with relation public.visit" in message for message in heard), heard
    assert ask(spent) == "PD001"
    assert spent.sql("select count(*) from dp.root")[0][0] == 1


def test_the_account_goes_on_where_the_schema_was_swapped(database: Any) -> None:
    made = f"create schema s; {WORLD.replace('visit', 's.visit').replace('public', 's')}"
    protect = "select dp.protect('s.visit', epsilon => 2)"
    with database.connect(autocommit=True) as owner:
        owner.execute(f"{made}; {protect}")
        assert ask(database, "s.visit") is None
        owner.execute(
            f"alter schema s rename to aside; create schema s; grant usage on schema s to alice;"
            f" {COPY.format('s.visit', 'aside.visit')}; drop table aside.visit"
        )
        owner.execute(protect)
        assert ask(database, "s.visit") == "PD001"


def test_while_the_old_one_is_there_a_new_account_is_refused(spent: Any, protect: str) -> None:
    """Followed word for word, both hints work."""
    with spent.connect(autocommit=True) as owner:
        owner.execute(SWAP)
        with pytest.raises(psycopg.Error) as refused:
            owner.execute(protect)
        assert refused.value.sqlstate == "PD040"
        hint = str(refused.value.diag.message_hint)
        assert "DROP TABLE public.visit_old; SELECT dp.protect('public.visit'" in hint
        owner.execute("alter table visit rename to other")
        owner.execute(protect.replace("'visit'", "'other'"))
        owner.execute("alter table other rename to visit")
        assert ask(spent) is None


def test_the_first_hint_goes_on_with_the_account(spent: Any, protect: str) -> None:
    with spent.connect(autocommit=True) as owner:
        owner.execute(SWAP)
        with pytest.raises(psycopg.Error) as refused:
            owner.execute(protect)
        hint = str(refused.value.diag.message_hint)
        owner.execute(hint.removeprefix("If they do: ").partition(" and the account")[0])
    assert ask(spent) == "PD001"


def test_a_name_without_losses_is_free(database: Any) -> None:
    database.sql(WORLD)
    database.sql("select dp.protect('visit')")
    database.sql(f"{SWAP}; select dp.protect('visit')")
    assert ask(database) is None
    assert database.sql("select count(*) from dp.root")[0][0] == 2


def test_of_two_accounts_that_of_the_last_name_goes_on(spent: Any, protect: str) -> None:
    """Another relation had the name before, and lost nothing since."""
    with spent.connect(autocommit=True) as owner:
        owner.execute("create table early (id int primary key, house int not null)")
        owner.execute("select dp.protect('early')")
        owner.execute("alter table early rename to late")
        owner.execute("drop table late; alter table visit rename to early; drop table early")
        owner.execute("create table early (id int primary key, house int not null)")
        owner.execute(protect.replace("'visit'", "'early'"))
        found = owner.execute(
            "select r.earlier_names from dp.root as r join dp.policy as p on p.root = r.id"
        ).fetchall()
    assert found == [(["public.visit"],)]
