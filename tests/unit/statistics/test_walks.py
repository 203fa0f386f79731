"""Orders of walks, what they serve, and what is asked of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dpsql.core.residual import required
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.query.decomposition import Sizes
from dpsql.relation import Column, Relation
from dpsql.statistics.chains import (
    from_groups,
    from_one_side,
    make_chain,
    plan_chains,
    walkable,
)
from dpsql.statistics.walk_exact import forward_sql
from dpsql.statistics.walk_sql import walk_parameters, walk_sql
from dpsql.statistics.walks import LEAST_WALKS, MOST_WALKS, Runner, estimate
from tests.expressions import parsed


def edges(pairs: Sequence[tuple[int, ...]]) -> JoinQuery:
    relation = Relation(
        1, "s", "e", True, 1, tuple(Column(c, 23, "integer", True) for c in ("c0", "c1"))
    )
    occurrences = tuple(
        Occurrence(
            i,
            relation,
            tuple(AttributeUse(a, parsed(f"r{i}.c{k}"), f"c{k}") for k, a in enumerate(pair)),
        )
        for i, pair in enumerate(pairs)
    )
    number = 1 + max(a for pair in pairs for a in pair)
    return JoinQuery(occurrences, tuple(Attribute(a, "integer", True) for a in range(number)))


PATH = edges([(0,), (0, 1), (1, 2), (2, 3), (3,)])
CYCLE = edges([(0, 1), (1, 2), (2, 3), (3, 0)])


def boundary(query: JoinQuery, *occurrences: int) -> Boundary:
    inside = frozenset(occurrences)
    return Boundary(inside, query.shape().boundary(inside))


def test_one_path_serves_every_boundary_that_it_passes() -> None:
    """Figure 3: from 0 to 3, and from every later start to the end of the order."""
    wanted = [boundary(PATH, *range(a, b)) for a in range(4) for b in range(a + 2, 5)]
    chain = make_chain(PATH, (0, 1, 2, 3), (), wanted)
    served = {s.boundary: (s.fixed, s.rest) for s in chain.stretches}
    assert served[boundary(PATH, 0, 1, 2, 3)] == ((), (3,))
    assert served[boundary(PATH, 1, 2, 3)] == ((0,), (3,))
    assert served[boundary(PATH, 2, 3)] == ((1,), (3,))
    assert set(served) == set(wanted)


def test_a_stretch_that_saw_something_else_serves_nothing() -> None:
    """In a cycle the last edge is chosen to close it: that is not in its own boundary."""
    wanted = [boundary(CYCLE, 2, 3), boundary(CYCLE, 0, 3), boundary(CYCLE, 0, 1, 2)]
    chain = make_chain(CYCLE, (0, 1, 2, 3), (), wanted)
    assert {s.boundary for s in chain.stretches} == {wanted[0], wanted[2]}
    inner = Boundary(frozenset({2, 3}), frozenset({2}))
    assert not make_chain(CYCLE, (0, 1, 2, 3), (), [inner]).stretches


def test_closing_steps_match_everything_that_is_fixed() -> None:
    chain = make_chain(CYCLE, (0, 1, 2, 3), (), [])
    assert chain.steps[3].fixed == (0, 3)
    whole = from_groups(CYCLE, chain, chain_stretch(CYCLE, 1, 2, 3), [])
    assert [step.fixed for step in whole.steps] == [(1,), (2,), (0, 3)]


def chain_stretch(query: JoinQuery, *order: int):  # type: ignore[no-untyped-def]
    chain = make_chain(query, (0, *order), (), [boundary(query, *order)])
    return chain.stretches[0]


@pytest.mark.parametrize("query", [PATH, CYCLE])
def test_a_plan_serves_whatever_can_be_walked(query: JoinQuery) -> None:
    wanted = required(query.shape())
    sizes = Sizes.guess(query)
    chains = plan_chains(query, wanted, sizes)
    served = {s.boundary for c in chains for s in c.stretches}
    assert served == {b for b in wanted if walkable(query, b)}
    assert len(chains) < len(served)
    for b in served:
        assert from_one_side(query, b, sizes).stretches[0].boundary == b


def test_what_cannot_be_walked() -> None:
    assert not walkable(PATH, boundary(PATH, 1))
    assert not walkable(PATH, Boundary(frozenset({0, 1}), frozenset()))
    assert not walkable(PATH, boundary(PATH, 0, 3))
    assert walkable(PATH, boundary(PATH, 0, 1))


def test_values_are_parameters_and_the_text_is_one_statement() -> None:
    """Neither groups nor degrees are written into text that plans are kept by."""
    b = boundary(CYCLE, 0, 1, 2)
    chain = make_chain(CYCLE, (0, 1, 2), (0,), [b])
    text = walk_sql(CYCLE, chain)
    assert text.count("$") == 4
    assert text.startswith("WITH p AS MATERIALIZED")
    assert ";" not in text
    arguments = walk_parameters(
        chain, key=bytes(16), first=9, walks=3, most=5, largest=[7, 8, 9], groups=[("1",), ("2",)]
    )
    assert [kind for kind, _ in arguments] == ["bytea", "bigint[]", "float8[]", "text[]"]
    assert [value for _, value in arguments][1:] == [[9, 3, 5], [7.0, 8.0, 9.0], ["1", "2"]]
    assert forward_sql(CYCLE, chain).count("$") == 1


class Recorder:
    """A database without rows of interest that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence[tuple[str, object]]] = []

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        self.asked.append(parameters)
        return []

    def before_reading(self, relations: Sequence[int]) -> None:
        """Nothing to lock."""

    def reads_shards(self, relations: Sequence[int]) -> bool:
        """Everything is here."""
        return False

    def meet(
        self,
        relations: Sequence[int],
        check: object,
        *,
        named: Sequence[int] = (),
        by_steps: bool = False,
        charged: bool = False,
    ) -> None:
        """Everything is here."""

    def at_one_moment(self, relations: Sequence[int], work: Callable[[], object]) -> object:
        """Read what there is."""
        return work()

    def tick(self) -> None:
        """Nothing to cancel."""


def test_no_number_of_a_walk_comes_twice() -> None:
    database = Recorder()
    runner = Runner(CYCLE, database, bytes(16), Sizes.guess(CYCLE), lambda: None)
    chain = make_chain(CYCLE, (0, 1, 2), (0,), [boundary(CYCLE, 0, 1, 2)])
    runner.largest = {step.degree: 1 for step in chain.steps}
    runner.walk(chain, 5, [("1",), ("2",)])
    runner.walk(chain, 7, [("1",)])
    whole = runner.whole(chain)
    runner.largest |= {step.degree: 1 for step in whole.steps}
    runner.walk(whole, 11)
    runner.walk(whole, 1)
    assert [dict(p)["bigint[]"][0] for p in database.asked] == [0, 10, 17, 28]  # type: ignore[index]


def test_allowances() -> None:
    runner = Runner(CYCLE, Recorder(), bytes(16), Sizes.guess(CYCLE), lambda: None)
    assert runner.allowance(1e-9, 10.0) == LEAST_WALKS
    assert runner.allowance(1e-9, 10.0, least=1) == 1
    assert runner.allowance(1.0, 1e30) == MOST_WALKS
    assert runner.allowance(1e-3, 5e6) == 5000


def test_bad_arguments_are_refused_before_anything_is_read() -> None:
    database = Recorder()
    for bad in ({"rate": 0.0}, {"rate": 2.0}, {"eta": 0.0}, {"eta": 1.0}):
        arguments = {"rate": 0.1, "eta": 0.1} | bad
        with pytest.raises(InvalidParameter):
            estimate(CYCLE, [], database, key=bytes(16), **arguments)
    with pytest.raises(InternalError):
        estimate(CYCLE, [], database, key=b"short", rate=0.1, eta=0.1)
    assert not database.asked
