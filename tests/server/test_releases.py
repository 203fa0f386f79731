"""Releases answer what SQL's GROUP BY answers: every construct against the plain statement.

Without noise, so that answers are exact; what noise adds is said by the standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.in_service import everywhere
from tests.server.releasing import counts, declare, release, rows, values

pytestmark = pytest.mark.server

#: The rows that the domains of kind and place have, as the tests need them.
KINDS = "(s_kind in ('a', 'b', 'c') or s_kind is null)"


@pytest.fixture(scope="module")
def sales(server: Any) -> Iterator[Any]:
    database = declare(server.create_database())
    yield database
    server.drop_database(database)


@pytest.fixture(scope="module")
def exact(sales: Any) -> Iterator[Any]:
    """A session without noise."""
    with asking.silent(sales, "public.sale") as session:
        yield session


def equal(found: dict[Any, float], expected: dict[Any, float], levels: int) -> None:
    """Compare with what occurs; every other level has 0."""
    assert len(found) == levels
    assert found == pytest.approx(dict.fromkeys(found, 0.0) | expected, abs=1e-6)


def test_the_example_of_the_documentation(sales: Any) -> None:
    query = "select s_state, s_big, dp_count(*) from sale group by cube (s_state, s_big)"
    with sales.connect("alice") as alice:
        found = release(alice, "sales_cube", query, epsilon=1, delta=1e-9, mechanism="auto")
        planned = alice.execute(
            "select rmse, cells, epsilon from dp.plan_release($$" + query + "$$, 1, 1e-9)"
            " where chosen"
        ).fetchone()
        assert alice.execute(
            "select count(*) from dpv.sales_cube where s_state = 'open'"
        ).fetchone() == (3 + 1,)  # booleans may be NULL
    # 4 states (one of them NULL) and 3 values of the flag, and their margins
    assert len(found) == 4 * 3 + 4 + 3 + 1
    truth = {
        (0,): "select s_state, s_big, count(*) n from sale group by 1, 2",
        (1,): "select s_state, null::bool b, count(*) n from sale group by 1",
        (2,): "select null::text b, s_big, count(*) n from sale group by 2",
        (3,): "select null::text a, null::bool b, count(*) n from sale",
    }
    seen = values(found, "grouping", "s_state", "s_big")
    for (grouping,), plain in truth.items():
        expected = counts(sales.connect(), plain)
        own = {key[1:]: value for key, value in seen.items() if key[0] == grouping}
        for key, value in own.items():
            error = next(r["standard_error"] for r in found if r["grouping"] == grouping)
            # Laplace noise in a sum of at most 12: beyond 45 deviations with less than 1e-9
            assert abs(value - expected.get(key, 0.0)) < 45 * error
    for (grouping,), (place, other) in {(1,): (0, 1), (2,): (1, 0)}.items():
        for key in {k[1 + place] for k in seen if k[0] == grouping}:
            parts = [v for k, v in seen.items() if k[0] == 0 and k[1 + place] == key]
            total = [v for k, v in seen.items() if k[0] == grouping and k[1 + place] == key]
            assert total == pytest.approx([math.fsum(parts)]), other
    squares = [r["standard_error"] ** 2 for r in found]
    assert planned is not None
    assert planned[0] == pytest.approx(math.sqrt(math.fsum(squares) / len(squares)), rel=1e-4)
    assert planned[1:] == (len(found), 1.0)


def test_grouping_is_that_of_sql(exact: Any) -> None:
    sets = "grouping sets ((s_state, s_big), (s_big), rollup (s_place), ())"
    found = release(
        exact, "bits", f"select s_state, s_big, s_place, dp_count(*) from sale group by {sets}"
    )
    plain = f"""select grouping(s_state, s_big, s_place) g, s_state, s_big, s_place, count(*) n
                from sale group by distinct {sets}"""
    equal(
        values(found, "grouping", "s_state", "s_big", "s_place"),
        counts(exact, plain),
        4 * 3 + 3 + 5 + 1,
    )


@pytest.mark.parametrize(
    ("name", "sets", "size"),
    [
        ("rolled", "rollup (s_state, s_place)", 20 + 4 + 1),
        ("nested", "grouping sets (cube (s_state, s_place), (s_place))", 20 + 4 + 5 + 1),
        ("twice", "cube (s_state, s_place), cube (s_place)", 20 + 5 + 4 + 1),
        ("composite", "rollup ((s_state, s_place))", 20 + 1),
        ("crossed", "s_state, grouping sets ((s_place), ())", 20 + 4),
    ],
)
def test_sets_of_all_forms(exact: Any, name: str, sets: str, size: int) -> None:
    found = release(exact, name, f"select s_state, s_place, dp_count(*) from sale group by {sets}")
    plain = f"select grouping(s_state, s_place) g, s_state, s_place, count(*) n from sale group by distinct {sets}"
    equal(values(found, "grouping", "s_state", "s_place"), counts(exact, plain), size)


def test_null_is_a_level_and_told_from_all(exact: Any) -> None:
    found = release(exact, "nulls", "select s_kind, dp_count(*) from sale group by rollup (s_kind)")
    plain = f"select grouping(s_kind) g, s_kind, count(*) n from sale where {KINDS} group by rollup (s_kind)"
    equal(values(found, "grouping", "s_kind"), counts(exact, plain), 4 + 1)
    assert values(found, "grouping", "s_kind")[0, "c"] == 0


def test_values_outside_of_the_domain_are_in_no_count(exact: Any) -> None:
    found = release(exact, "far", "select s_day, dp_count(*) from sale group by rollup (s_day)")
    inside = "s_day between date '2024-01-01' and date '2024-01-04'"
    plain = f"select s_day, count(*) n from sale where {inside} group by rollup (s_day)"
    equal(values(found, "s_day"), counts(exact, plain), 4 + 1)
    assert values(found, "s_day")[(None,)] == 200


def test_an_other_level_takes_what_is_left(exact: Any) -> None:
    other = "case s_price when 0.5 then 'half' when 1.5 then 'more' else 'rest' end"
    query = "select {} as kind, {}(*) n from sale group by rollup (1)"
    found = release(exact, "others", query.format(other, "dp_count"))
    equal(values(found, "kind"), counts(exact, query.format(other, "count")), 3 + 1)
    assert values(found, "kind")[(None,)] == 300


PREFIX = """select k.day, (select count(*) from sale where s_day <= k.day and s_day >= date '2024-01-01') n
  from (select date '2024-01-01' + i as day from generate_series(0, 3) i) k"""
ALL_RANGES = """select a.p low, b.p high, (select count(*) from sale where s_pieces between a.p and b.p) n
  from generate_series(0, 6) a(p), generate_series(0, 6) b(p) where a.p <= b.p"""
WIDTH = """select a.p low, a.p + 2 as high, (select count(*) from sale where s_pieces between a.p and a.p + 2) n
  from generate_series(0, 4) a(p)"""


def test_prefixes_and_ranges(exact: Any) -> None:
    found = release(exact, "upto", "select dp.prefix(s_day) d, dp_count(*) from sale group by 1")
    equal(values(found, "d"), counts(exact, PREFIX), 4)
    found = release(
        exact, "allr", "select dp.all_ranges(s_pieces) p, dp_count(*) from sale group by 1"
    )
    equal(values(found, "p_low", "p_high"), counts(exact, ALL_RANGES), 28)
    found = release(
        exact, "wide", "select dp.ranges(s_pieces, 3) p, dp_count(*) from sale group by 1"
    )
    equal(values(found, "p_low", "p_high"), counts(exact, WIDTH), 5)


def test_ranges_beside_other_keys_and_null(exact: Any) -> None:
    """NULL is in no range; levels are in the order of their type."""
    query = (
        "select dp.prefix(s_state) s, s_place, dp_count(*) from sale group by rollup (s_place, 1)"
    )
    found = release(exact, "enum_upto", query.replace("rollup (s_place, 1)", "s_place, 1"))
    plain = """select k.s, p.p, (select count(*) from sale where s_state <= k.s and s_place = p.p) n
      from unnest(enum_range(null::state)) k(s), generate_series(1, 5) p(p)"""
    equal(values(found, "s", "s_place"), counts(exact, plain), 15)


def test_queries_of_a_union_with_conditions_and_labels(exact: Any) -> None:
    query = """select s_state, s_place, 'by both' as what, dp_count(*) from sale
                 where s_price < 4 and s_place in (1, 2, 3, 9) group by 1, 2
       union all select null, s_place, 'big', dp_count(*) from sale where s_big and s_price < 4 group by s_place
       union all select null, null, 'either', dp_count(*) from sale
                 where (s_big or s_state = 'open') and s_price < 4
       union all select null, null, 'both', dp_count(*) from sale
                 where (s_big and s_state = 'open' or not s_big and s_state = 'shipped') and s_price < 4"""
    found = release(exact, "united", query)
    plain = f"select r.what, r.s_state, r.s_place, r.n from ({query.replace('dp_count', 'count').replace('count(*)', 'count(*) as n')}) r"
    assert {row["query"] for row in found} == {1, 2, 3, 4}
    seen = values(found, "what", "s_state", "s_place")
    equal(seen, counts(exact, plain), 4 * 5 + 5 + 1 + 1)
    either = next(row for row in found if row["what"] == "either")
    assert either["grouping"] == 3
    assert either["value"] > 0


def test_places_that_a_condition_excludes_are_zero_for_certain(exact: Any) -> None:
    query = """select s_place, dp_count(*) from sale where s_place <= 2 group by 1
       union all select s_place, dp_count(*) from sale group by 1"""
    found = release(exact, "certain", query)
    sure = [r["s_place"] for r in found if r["query"] == 1 and r["standard_error"] == 0]
    assert sure == [3, 4, 5]


def test_weights_move_the_error(sales: Any) -> None:
    query = """select s_place, null::int as pieces, dp_count(*) from sale group by 1
       union all select null, s_pieces, dp_count(*) from sale group by s_pieces"""

    def error(alice: Any, name: str, weights: list[int], place: int) -> float:
        terms = {"epsilon": 0.1, "delta": 1e-9, "mechanism": "residual_planner"}
        found = release(alice, name, query, weights=weights, **terms)
        return next(r["standard_error"] for r in found if r["query"] == place)

    with sales.connect("alice") as alice:
        first = [error(alice, f"w{w}", [w, 1], 1) for w in (1, 10)]
        second = [error(alice, f"v{w}", [w, 1], 2) for w in (1, 10)]
    assert first[1] < first[0]
    assert second[1] > second[0]


def test_a_protected_relation_joined_to_a_public_one(exact: Any) -> None:
    query = """select p_name, p_big, s_big, dp_count(*) from sale join place on s_place = p_id
               group by grouping sets ((p_name, s_big), (p_big))"""
    found = release(exact, "joined", query)
    plain = query.replace("dp_count(*)", "count(*) n")
    columns = ("p_name", "p_big", "s_big")
    equal(values(found, *columns), counts(exact, plain), 5 * 3 + 2)
    view = """select p_name, s_kind, dp_count(*) from sold where not p_big
              group by rollup (p_name, s_kind)"""
    found = release(exact, "viewed", view)
    plain = f"""select grouping(p_name, s_kind) g, p_name, s_kind, count(*) n from sold
                where not p_big and {KINDS} group by rollup (p_name, s_kind)"""
    known = {k: v for k, v in values(found, "grouping", "p_name", "s_kind").items() if v}
    assert known == pytest.approx(counts(exact, plain))


def test_an_empty_relation(exact: Any) -> None:
    found = release(
        exact, "empty", "select n_kind, n_flag, dp_count(*) from nobody group by cube (1, 2)"
    )
    assert {row["value"] for row in found} == {0.0}
    assert {row["n_kind"] for row in found} == {"x", "y'z", "ü:1v2", None}


def test_an_attribute_with_one_level(exact: Any) -> None:
    query = "select s_kind, s_big, dp_count(*) from sale where s_kind = 'a' group by cube (1, 2)"
    found = release(exact, "onelevel", query)
    plain = "select grouping(s_kind, s_big) g, s_kind, s_big, count(*) n from sale where s_kind = 'a' group by cube (s_kind, s_big)"
    equal(values(found, "grouping", "s_kind", "s_big"), counts(exact, plain), 3 + 1 + 3 + 1)


@pytest.mark.parametrize("delta", [0, 1e-9])
@pytest.mark.parametrize(
    "mechanism", ["identity", "workload", "opt_kron", "opt_plus", "opt_m", "residual_planner"]
)
def test_every_mechanism(sales: Any, exact: Any, mechanism: str, delta: float) -> None:
    if mechanism == "residual_planner" and not delta:
        return
    name = f"{mechanism}_{int(bool(delta))}"
    sets = "s_state, s_place" if mechanism == "workload" else "cube (s_state, s_place)"
    query = f"select s_state, s_place, dp_count(*) from sale group by {sets}"
    found = release(exact, name, query, mechanism=mechanism, delta=delta, epsilon=1)
    plain = f"select grouping(s_state, s_place) g, s_state, s_place, count(*) n from sale group by {sets}"
    known = {k: v for k, v in values(found, "grouping", "s_state", "s_place").items() if v}
    assert {k: round(v, 6) for k, v in known.items() if abs(v) > 1e-6} == counts(exact, plain)
    told = exact.execute(
        "select mechanism, noise, delta = 0 from dp.releases where name = %s", (name,)
    ).fetchone()
    assert told[0] == mechanism
    assert told[2] == (delta == 0)
    if not delta:
        assert told[1] == "laplace"


def test_the_table_is_what_the_catalogue_says(sales: Any) -> None:
    with sales.connect("alice") as alice:
        query = "select s_kind, dp.prefix(s_pieces) p, dp_count(*) from sale group by 1, 2"
        found = release(alice, "told", query, epsilon=2)
        row = alice.execute(
            """select cells, domain, released_by, rows_of_a_unit, postprocess, relation::text,
                      expected_error, epsilon, delta < 1e-9 from dp.releases where name = 'told'"""
        ).fetchone()
    assert row[0] == len(found) == 4 * 7
    assert row[1] == [
        {"keys": ["s_kind"], "levels": 4, "values": ["a", "b", "c", None]},
        {"keys": ["p"], "levels": 7, "values": [str(i) for i in range(7)]},
    ]
    assert row[2:6] == ("alice", 1, "none", "dpv.told")
    squares = [r["standard_error"] ** 2 for r in found]
    assert row[6] == pytest.approx(math.sqrt(math.fsum(squares) / len(squares)))
    assert row[7:] == (2, True)
    assert rows(sales.connect(), "told") == found


def test_a_large_epsilon_gets_laplace_noise_that_is_drawn_exactly(sales: Any) -> None:
    """Tables of noise would add more than delta there; so few numbers are drawn one by one."""
    query = "select s_state, dp_count(*) from sale group by 1"
    with sales.connect("alice") as alice:
        for n, (epsilon, delta) in enumerate([(100, None), (100, 1e-9), (60, 1e-9), (1, 1e-38)]):
            terms = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
            release(alice, f"large{n}", query, **terms)
            told = alice.execute(
                "select noise, delta, epsilon from dp.releases where name = %s", (f"large{n}",)
            ).fetchone()
            assert told[:2] == ("laplace", 0)
            assert 0.99 * epsilon < told[2] <= epsilon
        plan = "select mechanism, noise, note from dp.plan_release(%s, 40, 1e-9)"
        planned = {(m, noise): note for m, noise, note in alice.execute(plan, (query,))}
        assert "epsilon of at most 33" in planned["residual_planner", "gaussian"]
        assert ("residual_planner", "laplace") not in planned
        release(alice, "largest", query, epsilon=33, delta=1e-9, mechanism="residual_planner")


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_a_plan_names_the_mechanism_that_is_asked_for(sales: Any, mechanism: str) -> None:
    query = "select s_state, s_big, s_place, dp_count(*) from sale group by cube (1, 2, 3)"
    plan = "select rmse, ratio, chosen, note from dp.plan_release(%s, 1, %s::numeric, %s)"
    with sales.connect("alice") as alice:
        found = alice.execute(plan, (query, 1e-9, mechanism)).fetchall()
        assert found[-1][:3] == (None, None, True)
        assert "depends on the data" in found[-1][3]
        assert [row[2] for row in found].count(True) == 1
        assert len(found) > 3
        assert found[0][1] == 1
        found = alice.execute(
            "select note, chosen from dp.plan_release(%s, 1, 0, %s) where mechanism = %s",
            (query, mechanism, mechanism),
        ).fetchall()
        assert [row[1] for row in found] == [False]
        assert "needs Gaussian noise" in found[0][0]


#: Optimisers that break down as numerical libraries do, or come out with nonsense.
BROKEN = everywhere("""
import numpy, dpsql.workload.candidates as c
def singular(*given, **more):
    raise numpy.linalg.LinAlgError("Singular matrix")
def nonsense(*given, **more):
    found = kept(*given, **more)
    found.error = float("nan")
    return found
kept = c.kronecker
c.kronecker, c.identity, c.opt0 = nonsense, singular, singular
""")


def test_an_optimiser_that_fails_leaves_the_next_strategy_and_a_notice(sales: Any) -> None:
    query = "select s_state, s_place, dp_count(*) from sale group by cube (s_state, s_place)"
    told: list[str] = []
    with asking.silent(sales, "public.sale", BROKEN) as session:
        session.add_notice_handler(lambda n: told.append(str(n.message_primary)))
        found = release(session, "robust", query, epsilon=1, delta=0)
        plain = f"select grouping(s_state, s_place) g, s_state, s_place, count(*) n {query[query.index('from') :]}"
        equal(
            values(found, "grouping", "s_state", "s_place"), counts(session, plain), 20 + 4 + 5 + 1
        )
        for name in ("identity", "opt_kron", "opt_0"):
            assert f"the optimisation of {name} failed; opt_m is used" in told
        error = asking.refused(
            session, f"select dp.release('no', $${query}$$, mechanism => 'opt_kron')"
        )
        assert "the optimisation of opt_kron failed" in str(error.diag.message_detail)
        planned = session.execute(
            f"select note from dp.plan_release($${query}$$) where mechanism = 'identity'"
        ).fetchall()
        assert {"the optimisation of identity failed" in row[0] for row in planned} == {True}


@pytest.mark.parametrize("delta", [0, 1e-9])
def test_levels_that_no_query_tells_apart(exact: Any, delta: float) -> None:
    """A workload whose matrix has neither full row nor full column rank."""
    query = """select s_big, null::int as pieces, dp_count(*) from sale group by rollup (s_big)
      union all select null, null, dp_count(*) from sale where s_pieces in (1, 2)
      union all select null, null, dp_count(*) from sale where s_pieces not in (1, 2)
      union all select null, null, dp_count(*) from sale"""
    found = release(exact, f"rank{int(delta > 0)}", query, delta=delta, epsilon=1)
    plain = f"""select row_number() over () as q, x.n from ({query.replace("dp_count(*)", "count(*) as n")}) x"""
    assert sorted(row["value"] for row in found if row["value"] > 1e-6) == pytest.approx(
        sorted(row[1] for row in exact.execute(plain).fetchall())
    )
