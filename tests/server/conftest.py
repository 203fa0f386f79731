"""A small shop that most server tests query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.conftest import start_server
from tests.server import asking, exposing
from tests.server.collecting import Collector
from tests.server.hostile import world
from tests.server.refusals import EXTRA, rewrite_tables
from tests.server.sketching import NETWORK, PROTECT, looking
from tests.server.unit_shop import SET_UP

SHOP = """
create table public.region (r_id int primary key, r_name text not null);
create table public.client (c_id int primary key, c_region int not null references public.region,
                            c_born date, c_kind text);
create table public.purchase (p_id bigint primary key, p_client int not null references public.client,
                              p_amount numeric(12,2), p_day date not null, p_flag boolean);
insert into public.region select i, 'region ' || i from generate_series(1, 4) i;
insert into public.client select i, 1 + i % 4, date '1960-01-01' + i, (array['a','b',null])[1 + i % 3]
  from generate_series(1, 200) i;
insert into public.purchase select i, 1 + (i * i) % 200, i / 7.0, date '2024-01-01' + i % 100, i % 2 = 0
  from generate_series(1, 2000) i;
alter table public.region owner to owner1;
alter table public.client owner to owner1;
alter table public.purchase owner to owner1;
grant dp_owner to owner1;
"""

DECLARE = """
select dp.protect('public.client');
select dp.protect('public.purchase');
select dp.declare_public('public.region');
select dp.set_domain('public.client', 'c_kind', array['a', 'b', 'c']);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""


@pytest.fixture
def shop(database: Any) -> Any:
    """A database with protected clients and purchases and a public region."""
    return declare(database)


def declare(database: Any) -> Any:
    """Make the shop in a database and declare it as its owner does."""
    database.sql(SHOP)
    with database.connect(user="owner1") as connection:
        for statement in DECLARE.strip().split("\n"):
            connection.execute(statement)
    return database


@pytest.fixture
def unit_shop(database: Any) -> Any:
    """Customers as privacy units, with orders and items."""
    database.sql(SET_UP)
    return database


@pytest.fixture
def unit_asker(unit_shop: Any) -> Iterator[Any]:
    """Alice, who asks about them with little noise.

    A bound t times as large as needed is drawn with a probability of about 1/t^2, whatever the
    epsilon; nobody here has more than 14 results, and noise at the limit has a scale of 1.7.
    """
    with unit_shop.connect("alice") as connection:
        connection.execute("set dp.epsilon = 50; set dp.max_contribution = 64")
        yield connection


@pytest.fixture
def stats(shop: Any) -> Collector:
    """What collects statistics of the shop and reads them."""
    return Collector(shop)


@pytest.fixture
def network(database: Any) -> Any:
    """Relations whose joins can be sketched."""
    database.sql(NETWORK)
    database.sql(PROTECT, user="owner1")
    return database


@pytest.fixture
def look(network: Any) -> Callable[..., dict[str, Any]]:
    """What a sketch of the network gives."""
    return looking(network)


@pytest.fixture(scope="session", autouse=True)
def tables() -> Iterator[None]:
    """Write the tables of refusals again after the tests, where that is asked for."""
    yield
    rewrite_tables()


@pytest.fixture(scope="module")
def trials(server: Any) -> Iterator[Any]:
    """A shop that a whole module of refused statements shares."""
    database = declare(server.create_database())
    database.sql(EXTRA)
    yield database
    server.drop_database(database)


@pytest.fixture(scope="module")
def ask_as(trials: Any) -> Callable[[str], Any]:
    """One session on the trials for each role; alice's has little to lose by a mistake."""

    @cache
    def connect(role: str) -> Any:
        connection = trials.connect(user=role)
        if role == "alice":
            connection.execute("set dp.epsilon = 0.001")
        return connection

    return connect


@pytest.fixture(scope="module")
def asker(ask_as: Callable[[str], Any]) -> Any:
    """The analyst's session on the trials."""
    return ask_as("alice")


@pytest.fixture(scope="module")
def admin(trials: Any) -> Any:
    """The administrator's session on the trials."""
    return trials.connect()


@pytest.fixture
def chained(database: Any) -> Any:
    """Five linked tables; owner1 may copy them."""
    from tests.server.chained import CHAIN

    database.sql(CHAIN.format(database=database.name))
    return database


@pytest.fixture(scope="module")
def views(server: Any) -> Iterator[Any]:
    """A shop with exposed views that a module's tests share."""
    yield from asking.made(server, exposing.SET_UP + exposing.EXPOSE)


@pytest.fixture(scope="module")
def silent(views: Any) -> Iterator[Any]:
    """A session on it whose answers have no noise."""
    with asking.silent(views, "customer") as session:
        session.execute("set client_min_messages = error; set dp.epsilon = 1")
        yield session


@pytest.fixture(scope="module")
def small(installation: None) -> Iterator[Any]:
    """A server of small limits, for hostile sessions."""
    server = start_server(**world.LIMITS)
    yield server
    server.remove()
