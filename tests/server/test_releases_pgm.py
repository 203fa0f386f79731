"""Graphical models in releases: post-processing on request, AIM+PGM, and servers without mbi."""

from __future__ import annotations

import sys
import time
from itertools import combinations
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, state
from tests.server.waiting import wait_until

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11"),
]

CUBE = (
    "select c_kind, c_region, width_bucket(c_id, 1, 201, 4) as q, dp_count(*) from client"
    " group by grouping sets ((1, 2), (1, 3), (2, 3), (1, 2, 3), (1))"
)
TERMS = "epsilon => 20, delta => 1e-6"
HIDE = """do $$
import sys
for name in [n for n in sys.modules if n.split('.')[0] in ('mbi', 'jax')]: del sys.modules[name]
sys.modules['mbi'] = None
$$ language plpython3u"""


@pytest.fixture
def alice(shop: Any) -> Any:
    shop.sql("select dp.set_domain('public.client', 'c_region', 1, 4)", user="owner1")
    shop.sql("grant usage on schema public to alice")
    with shop.connect("alice") as connection:
        yield connection


def rows(alice: Any, query: str) -> list[Any]:
    found: list[Any] = alice.execute(query).fetchall()
    return found


def spent(alice: Any) -> Any:
    return alice.execute("select epsilon_spent from dp.budgets").fetchone()[0]


@pytest.mark.parametrize(
    "terms",
    [
        f"{TERMS}, mechanism => 'aim_pgm'",
        f"{TERMS}, mechanism => 'pairs', postprocess => 'pgm'",
        f"{TERMS}, postprocess => 'pgm'",
        "epsilon => 5, delta => 0, mechanism => 'identity', postprocess => 'pgm'",
    ],
)
def test_tables_of_a_model_are_not_negative_and_agree(alice: Any, terms: str) -> None:
    alice.execute(f"select dp.release('fit', $$ {CUBE} $$, {terms})")
    paid = spent(alice)
    assert paid > 0
    found = rows(alice, 'select "grouping", sum(value), min(value) from dpv.fit group by 1')
    assert len(found) == 5
    assert all(least >= 0 for _, _, least in found)
    total = found[0][1]
    assert all(abs(other - total) < 1e-6 for _, other, _ in found)
    # noise of a cell is below 5 and there are few cells: far within 40 of the 133 with a kind
    assert abs(total - 133) < 40
    kinds = 'select c_kind, sum(value) from dpv.fit where "grouping" = {} group by 1 order by 1'
    for place in (0, 1, 2):
        pairs = zip(rows(alice, kinds.format(place)), rows(alice, kinds.format(3)), strict=True)
        assert all(a == b and abs(x - y) < 1e-6 for (a, x), (b, y) in pairs)
    alice.execute(f"select dp.release('again', $$ {CUBE} $$, {terms})")
    assert spent(alice) == paid  # found again, for nothing
    differ = rows(
        alice,
        'select count(*) from dpv.fit join dpv.again using ("grouping", c_kind, c_region, q)'
        " where abs(fit.value - again.value) > 1e-6",
    )
    assert differ == [(0,)]


def test_aim_pgm_tells_no_error_and_is_listed(alice: Any) -> None:
    alice.execute(f"select dp.release('fit', $$ {CUBE} $$, {TERMS}, mechanism => 'aim_pgm')")
    assert rows(alice, "select bool_and(standard_error is null) from dpv.fit") == [(True,)]
    assert rows(alice, "select mechanism, noise, expected_error from dp.releases") == [
        ("aim_pgm", "gaussian", None)
    ]


@pytest.mark.parametrize(
    "terms", ["mechanism => 'aim_pgm'", "mechanism => 'pairs', postprocess => 'pgm'"]
)
def test_without_mbi_nothing_is_charged_and_it_is_said_what_to_install(
    alice: Any, shop: Any, terms: str
) -> None:
    """The library is hidden from the Python of one session, as if it were not installed."""
    before = spent(alice)
    with shop.connect() as session:
        session.execute("create extension if not exists plpython3u")
        session.execute(HIDE)
        session.execute("set session authorization alice")
        error = refused(session, f"select dp.release('fit', $$ {CUBE} $$, {TERMS}, {terms})")
    told = f"{error.diag.message_primary} {error.diag.message_detail} {error.diag.message_hint}"
    assert "make extras" in told
    assert spent(alice) == before


def test_models_too_large_are_refused_before_anything_is_charged(alice: Any, shop: Any) -> None:
    before = spent(alice)
    wide = ", ".join(f"width_bucket(c_id, 1, 201, {n}) as k{n}" for n in (199, 198, 197))
    query = (
        f"select {wide}, dp_count(*) from client group by grouping sets ((1, 2), (1, 3), (2, 3))"
    )
    error = refused(
        alice,
        f"select dp.release('fit', $$ {query} $$, {TERMS}, mechanism => 'pairs', postprocess => 'pgm')",
    )
    assert "MB" in str(error.diag.message_primary)
    assert spent(alice) == before


def test_measurements_that_are_no_marginals_are_refused(alice: Any) -> None:
    before = spent(alice)
    query = "select dp.prefix(c_region) as r, dp_count(*) from client group by 1"
    terms = f"{TERMS}, mechanism => 'opt_0', postprocess => 'pgm'"
    error = refused(alice, f"select dp.release('fit', $$ {query} $$, {terms})")
    assert "no marginals" in str(error.diag.message_primary)
    assert spent(alice) == before


def test_a_fit_is_cancelled_and_the_session_and_the_server_live_on(alice: Any, shop: Any) -> None:
    """Cancelled while it compiles or descends; its session works on and ends without a crash."""
    keys = ", ".join(f"width_bucket(c_id, 1, 201, {n}) as k{n}" for n in range(3, 11))
    sets = ", ".join(map(str, combinations(range(1, 9), 3)))
    query = f"select {keys}, dp_count(*) from client group by grouping sets ({sets})"
    terms = "epsilon => 5, delta => 1e-9"
    # a session that ends by a signal takes this one with it
    with shop.connect() as watching:
        with shop.connect("alice") as session:
            session.execute("set statement_timeout = '4s'")
            begin = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                session.execute(
                    f"select dp.release('slow', $$ {query} $$, {terms}, mechanism => 'aim_pgm')"
                )
            assert time.monotonic() - begin < 300
            wait_until(lambda: state(session, "set statement_timeout = 0") is None)
            session.execute(
                f"select dp.release('fit', $$ {CUBE} $$, {terms}, postprocess => 'pgm')"
            )
            (ended,) = session.execute("select pg_backend_pid()").fetchone()
        alive = f"select count(*) from pg_stat_activity where pid = {ended}"
        while watching.execute(alive).fetchone()[0]:
            time.sleep(0.05)
        time.sleep(0.5)
        assert watching.execute("select 1").fetchone() == (1,)


def test_a_plan_names_aim_pgm_when_it_is_asked_for(alice: Any) -> None:
    plan = "select rmse, chosen from dp.plan_release($$ {} $$, 1, {}, 'aim_pgm') where mechanism = 'aim_pgm'"
    assert rows(alice, plan.format(CUBE, "1e-9")) == [(None, True)]
    assert rows(alice, plan.format(CUBE, "0")) == [(None, False)]
