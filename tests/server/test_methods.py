"""Answers by every sensitivity method, through the server, and who may use which."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

TRIANGLE = "select dp_count(*) from e1, e2, e3 where e1.b = e2.a and e2.b = e3.a and e3.b = e1.a"
SET_UP = """
create table e1 (a int, b int); create table e2 (a int, b int); create table e3 (a int, b int);
insert into e1 select i % 40, (i * 7 + i / 40) % 40 from generate_series(1, 600) i;
insert into e2 select i % 40, (i * 11 + i / 40) % 40 from generate_series(1, 600) i;
insert into e3 select i % 40, (i * 3 + i / 40) % 40 from generate_series(1, 600) i;
analyze e1; analyze e2; analyze e3;
select dp.protect(r) from (values ('e1'::regclass), ('e2'), ('e3')) as v(r);
select dp.grant_budget('alice', 1000, 1e-3);
"""
OPEN = "select dp.allow_heuristic(r) from (values ('e1'::regclass), ('e2'), ('e3')) as v(r)"
COLLECT = "select dp.collect_statistics(r) from (values ('e1'::regclass), ('e2'), ('e3')) as v(r)"


@pytest.fixture
def shop(database: Any) -> Any:
    """Three protected relations that form triangles."""
    database.sql(SET_UP)
    return database


def smooth(database: Any, method: str, beta: float = 0.1, **settings: str) -> float:
    """Return the smooth sensitivity as its owner sees it."""
    with database.connect() as admin:
        for name, value in settings.items():
            admin.execute(f"set dp.{name} = {value}")
        call = "select dp.sensitivity(%s, %s, %s)"
        row = admin.execute(call, (TRIANGLE, method, beta)).fetchone()
    assert row is not None
    return float(row[0])


def test_certified_sampling_finds_what_counting_finds(shop: Any) -> None:
    exact = smooth(shop, "residual")
    assert smooth(shop, "sampling", sampling_rate="0.1") == pytest.approx(exact, rel=1e-9)
    assert smooth(shop, "sampling_published", sampling_rate="1") > 0


def test_an_answer_by_sampling_is_charged_and_labelled(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.method = sampling")
        alice.execute(TRIANGLE)
        row = alice.execute("select method, label, epsilon, delta from dp.ledger").fetchone()
        assert row is not None
        assert row[:2] == ("sampling", "proved")
        # the failure of walks is paid for inside what was asked
        assert (float(row[2]), float(row[3])) == (1.0, 1e-8)
        alice.execute("set dp.delta = 0")
        error = refused(alice, TRIANGLE + " and e1.a > 0")
        assert error.sqlstate == "PD040"
        assert "delta greater than 0" in str(error)
        alice.execute("reset dp.delta")
        told = dict(alice.execute("select * from dp.explain(%s)", (TRIANGLE,)))
        assert told["method"] == "sampling: as dp.method says; dp.method = auto is usually faster"


@pytest.mark.parametrize("method", ["sampling_published", "sketch_published"])
def test_a_method_without_proof_needs_every_owner(shop: Any, method: str) -> None:
    shop.sql(COLLECT)
    with shop.connect() as admin:
        admin.execute("select dp.create_sketch(%s, 100)", (TRIANGLE,))
    with shop.connect(user="alice") as alice:
        said: list[str] = []
        alice.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        alice.execute(f"set dp.method = {method}")
        for allowed in ("", "e1", "e2"):
            if allowed:
                shop.sql(f"select dp.allow_heuristic('{allowed}')")
            error = refused(alice, TRIANGLE)
            assert error.sqlstate == "PD070"
            assert "public.e3" in str(error.diag.message_detail)
            assert "dp.allow_heuristic" in str(error.diag.message_hint)
        assert shop.sql("select count(*) from dp.spend") == [(0,)]
        shop.sql("select dp.allow_heuristic('e3')")
        first = alice.execute(TRIANGLE).fetchone()
        assert alice.execute(TRIANGLE).fetchone() == first
        assert sum("heuristic" in one for one in said) == 2, said
        assert alice.execute("select method, label from dp.ledger").fetchall() == [
            (method, "heuristic")
        ]
        rows = dict(alice.execute("select * from dp.explain(%s)", (TRIANGLE,)).fetchall())
        assert "(heuristic)" in rows["guarantee"]
        shop.sql("select dp.allow_heuristic('e2', false)")
        assert refused(alice, TRIANGLE).sqlstate == "PD070"


def test_only_the_owner_allows_heuristics(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        assert refused(alice, "select dp.allow_heuristic('e1')").sqlstate in ("42501", "PD070")


def test_a_sketch_follows_changes_or_is_refused(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.method = sketch")
        assert refused(alice, TRIANGLE).sqlstate == "PD020"
        with shop.connect() as admin:
            admin.execute("select dp.create_sketch(%s, 100)", (TRIANGLE,))
        error = refused(alice, TRIANGLE)
        assert "changes of a sketched relation are not counted" in str(error)
        shop.sql(COLLECT)
        assert refused(alice, TRIANGLE).sqlstate == "PD020"  # taken before counting began
        with shop.connect() as admin:
            admin.execute("select dp.create_sketch(%s, 100)", (TRIANGLE,))
        alice.execute(TRIANGLE)
        row = alice.execute("select method, label from dp.ledger").fetchone()
        assert row == ("sketch", "proved")
    before = smooth(shop, "sketch")
    assert before >= smooth(shop, "residual")
    shop.sql("insert into e1 select i, i from generate_series(1, 50) i")
    after = smooth(shop, "sketch")
    assert after > before
    shop.sql("delete from e1")
    assert smooth(shop, "sketch") == after, "rows that left are not known to the sketch"
    shop.sql("alter table e1 disable trigger dpsql_insert")
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.method = sketch")
        assert refused(alice, TRIANGLE + " and e1.a > 0").sqlstate == "PD020"


def test_sketches_and_refreshes_do_not_lose_each_others_changes(shop: Any) -> None:
    shop.sql(COLLECT)
    with shop.connect() as admin:
        admin.execute("select dp.create_sketch(%s, 100)", (TRIANGLE,))
    before = smooth(shop, "sketch")
    shop.sql("insert into e1 select i, i from generate_series(1, 50) i")
    grown = smooth(shop, "sketch")
    shop.sql("select dp.refresh_statistics('e1')")
    assert smooth(shop, "sketch") == grown > before


@pytest.mark.parametrize("method", ["residual", "elastic"])
def test_stored_statistics_answer_without_reading(shop: Any, method: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(f"set dp.statistics = stored; set dp.method = {method}")
        error = refused(alice, TRIANGLE)
        assert error.sqlstate == "PD020"
        assert "dp.refresh_statistics" in str(error.diag.message_hint)
        alice.execute("set dp.statistics = auto")
        alice.execute(TRIANGLE)
    shop.sql(COLLECT)
    with shop.connect() as admin:
        admin.execute("select dp.keep_statistics(%s)", (TRIANGLE,))
        for relation in ("e1", "e2", "e3"):
            admin.execute(f"select dp.refresh_statistics('{relation}')")
    fresh = smooth(shop, method, beta=0.2)
    stored = smooth(shop, method, beta=0.4, statistics="stored")
    assert stored == pytest.approx(fresh, rel=1e-6), "the same data at half of beta"
    shop.sql("insert into e2 select i, i from generate_series(1, 20) i")
    assert smooth(shop, method, beta=0.4, statistics="stored") > stored
    filtered = TRIANGLE + " and e1.a > 3"
    with shop.connect(user="alice") as alice:
        alice.execute(f"set dp.statistics = stored; set dp.method = {method}")
        alice.execute(filtered)
        rows = dict(alice.execute("select * from dp.explain(%s)", (filtered,)).fetchall())
        assert "from stored statistics" in rows["method"]
    shop.sql("truncate e3")
    with shop.connect(user="alice") as alice:
        alice.execute(f"set dp.statistics = stored; set dp.method = {method}")
        assert refused(alice, TRIANGLE + " and e1.a > 4").sqlstate == "PD020"


def test_live_and_stored_answers_are_different_questions(shop: Any) -> None:
    shop.sql(COLLECT)
    with shop.connect() as admin:
        admin.execute("select dp.keep_statistics(%s)", (TRIANGLE,))
        admin.execute("select dp.refresh_statistics('e1')")
    with shop.connect(user="alice") as alice:
        alice.execute(TRIANGLE)
        alice.execute("set dp.statistics = stored")
        alice.execute(TRIANGLE)
        alice.execute(TRIANGLE)
        assert alice.execute("select count(*) from dp.ledger").fetchone() == (2,)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "NaN"])
def test_a_rate_outside_its_range(shop: Any, value: str) -> None:
    with shop.connect(user="alice") as alice:
        assert refused(alice, f"set dp.sampling_rate = '{value}'").sqlstate in ("PD040", "22023")
