"""Questions in the span of a release, post-processing, AIM, and what is shown of a release."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

# c_kind is 'a', 'b' or NULL in turn, c_region 2, 3, 4, 1; noise of scale 1/100 is 0 but for a
# probability below 1e-40
EXACT = "epsilon => 100, delta => 0"
CUBE = "select c_kind, c_region, dp_count(*) from client group by cube (c_kind, c_region)"


@pytest.fixture
def alice(shop: Any) -> Any:
    shop.sql("select dp.set_domain('public.client', 'c_region', 1, 4)", user="owner1")
    shop.sql("grant usage on schema public to alice")
    with shop.connect("alice") as connection:
        yield connection


def release(alice: Any, name: str, query: str = CUBE, terms: str = EXACT) -> None:
    alice.execute(f"select dp.release('{name}', $$ {query} $$, {terms})")


def spent(alice: Any) -> Any:
    return alice.execute("select epsilon_spent from dp.budgets").fetchone()[0]


def rows(alice: Any, query: str) -> list[Any]:
    found: list[Any] = alice.execute(query).fetchall()
    return found


def test_sums_of_cells_are_answered_for_nothing(alice: Any, shop: Any) -> None:
    release(alice, "kinds")
    before = spent(alice)
    notices: list[str] = []
    alice.add_notice_handler(lambda n: notices.append(n.message_primary))
    for question in (
        "select dp_count(*) from client where c_kind = 'a' and c_region in (1, 2)",
        "select c_region, dp_count(*) as n from client where c_kind in ('a', 'b') group by 1"
        " having dp_count(*) > 32 order by 2 desc, 1 limit 3",
        "select c_kind, c_region, dp_count(*) from client where c_kind = 'b' and c_region < 3"
        " group by 1, 2 order by 1, 2",
    ):
        assert rows(alice, question) == shop.sql(question.replace("dp_count", "count"))
    assert spent(alice) == before
    assert all("answered from the release dpv.kinds" in n for n in notices)
    assert len(notices) == 3
    assert all("standard error at most" in n for n in notices)
    both = "select c_kind, c_region, dp_count(*) from client group by 1, 2"
    explained = dict(rows(alice, f"select * from dp.explain('{both}')"))
    assert "dpv.kinds" in explained["release"]


@pytest.mark.parametrize(
    "question",
    [
        "select dp_count(*) from client where c_born > '1960-02-01'",
        "select c_region, dp_count(*) from client join region on r_id = c_region group by 1",
        "select dp_count(distinct c_id) from client",
        "select dp_count(*) + dp_count(*) filter (where c_kind = 'a') from client",
        "select dp_count(*), dp_interval_low(dp_count(*)) from client",
        "select c_kind is null, dp_count(*) from client group by 1",
        # rows outside of a declared domain are in no cell
        "select dp_count(*) from client",
        "select c_kind, dp_count(*) from client group by 1",
        "select c_region, dp_count(*) from client where c_kind <> 'a' group by 1",
        "select c_region, dp_count(*) from client where c_kind = 'z' group by 1",
        "select c_region, dp_count(*) from client where c_kind in ('a', 'z') group by 1",
    ],
)
def test_what_is_no_sum_of_cells_is_asked_and_paid(alice: Any, question: str) -> None:
    release(alice, "kinds")
    before = spent(alice)
    alice.execute(question)
    assert spent(alice) > before


def test_a_release_with_conditions_answers_only_questions_with_them(alice: Any, shop: Any) -> None:
    release(alice, "old", f"{CUBE.split(' group')[0]} where c_born < '1960-04-11' group by 1, 2")
    before = spent(alice)
    old = (
        "select c_region, dp_count(*) from client where c_born < '1960-04-11' and c_kind = 'a'"
        " group by 1 order by 1"
    )
    assert rows(alice, old) == shop.sql(old.replace("dp_count", "count"))
    assert spent(alice) == before
    alice.execute(old.replace("c_born < '1960-04-11' and", ""))
    assert spent(alice) > before


def test_nobody_else_is_answered_from_a_release(alice: Any, shop: Any) -> None:
    shop.sql("select dp.grant_budget('bob', 10, 1e-6); grant usage on schema public to bob")
    release(alice, "kinds")
    with shop.connect("bob") as bob:
        assert rows(bob, "select name from dp.releases") == []
        bob.execute("select c_kind, c_region, dp_count(*) from client group by 1, 2")
        assert spent(bob) == 1
        assert "permission denied" in str(refused(bob, "select * from dpv.kinds"))


def test_fresh_questions_are_asked(alice: Any) -> None:
    release(alice, "kinds")
    before = spent(alice)
    alice.execute("set dp.fresh = on")
    alice.execute("select dp_count(*) from client where c_kind = 'a' and c_region = 1")
    assert spent(alice) > before


def test_the_most_exact_release_answers(alice: Any) -> None:
    release(alice, "exact")
    release(alice, "rough", terms="epsilon => 0.001, delta => 0")
    notices: list[str] = []
    alice.add_notice_handler(lambda n: notices.append(n.message_primary))
    alice.execute("select dp_count(*) from client where c_kind = 'a' and c_region = 1")
    assert "dpv.exact" in notices[0]


@pytest.mark.parametrize("mechanism", ["identity", "opt_kron", "opt_plus", "opt_m", "opt_0"])
def test_whole_counts_agree_over_all_sets(alice: Any, mechanism: str) -> None:
    release(
        alice,
        "whole",
        terms=f"epsilon => 0.05, delta => 0, mechanism => '{mechanism}', postprocess => 'integral'",
    )
    found = rows(
        alice,
        'select "grouping", min(value), sum(value), bool_and(value = round(value)) from dpv.whole'
        " group by 1",
    )
    assert len(found) == 4
    assert all(least >= 0 and whole for _, least, _, whole in found)
    assert len({total for _, _, total, _ in found}) == 1
    other = rows(alice, "select sum(value) from dpv.whole where c_kind = 'a' and c_region is null")
    cells = rows(alice, "select sum(value) from dpv.whole where c_kind = 'a' and c_region > 0")
    assert other == cells


def test_aim_measures_marginals_and_tells_no_error(alice: Any) -> None:
    release(alice, "aim", terms="epsilon => 20, delta => 1e-6, mechanism => 'aim'")
    found = rows(
        alice, 'select c_kind, value, standard_error from dpv.aim where "grouping" = 1 order by 1'
    )
    assert [kind for kind, _, _ in found] == ["a", "b", "c"]
    assert all(error is None for _, _, error in found)
    # rho is above 4 and there are few cells: far within 20 of the truth
    assert all(abs(v - t) < 20 for (_, v, _), t in zip(found, (66, 67, 0), strict=True))
    assert rows(alice, "select mechanism, noise, expected_error from dp.releases") == [
        ("aim", "gaussian", None)
    ]
    text = "select dp.release('more', $$ select dp.prefix(c_region) as r, dp_count(*) from client"
    error = refused(alice, f"{text} group by 1 $$, 1, 1e-6, 'aim')")
    assert "aim answers grouping sets" in str(error.diag.message_detail)


@pytest.mark.parametrize("mechanism", ["pairs", "aim"])
def test_tables_of_a_fitted_mixture_are_whole_and_agree(alice: Any, mechanism: str) -> None:
    """Pairs of three keys are published; each single key's counts agree in both its tables."""
    alice.execute(
        "select dp.release('fit', $$ select c_kind, c_region, width_bucket(c_id, 1, 201, 4) as q,"
        " dp_count(*) from client group by grouping sets ((1, 2), (1, 3), (2, 3), (1, 2, 3)) $$,"
        f" epsilon => 20, delta => 1e-6, mechanism => '{mechanism}', postprocess => 'integral')"
    )
    found = rows(
        alice,
        'select "grouping", sum(value), bool_and(value >= 0 and value = round(value)) from dpv.fit'
        " group by 1",
    )
    assert len(found) == 4
    assert all(whole for _, _, whole in found)
    totals = {total for _, total, _ in found}
    assert len(totals) == 1
    # rho is above 4 and there are few cells: far within 30 of the 133 that have a kind
    assert abs(totals.pop() - 133) < 30
    kinds = 'select c_kind, sum(value) from dpv.fit where "grouping" = {} group by 1 order by 1'
    assert rows(alice, kinds.format(1)) == rows(alice, kinds.format(2))


def test_pairs_tell_errors_of_pairs_only(alice: Any) -> None:
    text = "select c_kind, c_region, c_born < '1960-05-01' as old, dp_count(*) from client"
    alice.execute(
        f"select dp.release('raw', $$ {text} group by cube (1, 2, 3) $$, 20, 1e-6, 'pairs')"
    )
    found = rows(
        alice, 'select "grouping" = 0, bool_and(standard_error is null) from dpv.raw group by 1'
    )
    assert sorted(found) == [(False, False), (True, True)]


def test_the_forms_of_keys_are_for_releases_only(alice: Any) -> None:
    for form in ("dp.prefix(1)", "dp.all_ranges(1)", "dp.ranges(1, 2)"):
        assert "statement of a release only" in str(refused(alice, f"select {form}"))
