"""The array kernel with all its sizes made tiny, and at the edge of 64 bits, against tensors.

With tiny blocks, accumulators and bitmaps every way of working that large data would take is taken
by a few hundred rows.  The yardstick is ``numpy.einsum`` over dense tensors of counts, which shares
nothing with elimination.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql.statistics
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.query.elimination import make_plan
from dpsql.relation import Column, Relation
from dpsql.statistics import kernel
from dpsql.statistics.arrays import Memory, NotInArrays
from tests.expressions import parsed

sys.path.insert(0, str(Path(__file__).parent))
from joins import QUERIES, Query

SIZES = {
    "BLOCK": (1, 7, 64),
    "_CELLS": (4, 32),
    "MOST_CELLS": (4, 32, 256),
    "_BITMAP": (4, 64),
    "BITMAP": (4, 64),
    "BUDGET": (1, 32),
    "ROOM": (1, 16),
    "SLOTS": (2, 16),
}
MODULES = [
    importlib.import_module(f"dpsql.statistics.{module.name}")
    for module in pkgutil.iter_modules(dpsql.statistics.__path__)
]
Data = list[dict[int, Any]]


def join_query(query: Query, groups: tuple[int, ...] = ()) -> JoinQuery:
    """Write a query of the sensitivity tests as the kernel's model, groups included."""
    uses: dict[int, int] = {}
    for _, columns in query.occurrences:
        for a in columns:
            uses[a] = uses.get(a, 0) + 1
    wanted = {a for a in uses if uses[a] > 1} | set(groups)
    number = {a: n for n, a in enumerate(sorted(wanted))}
    roots = {name: n for n, name in enumerate(query.relations(), 1)}
    occurrences = []
    for i, (name, columns) in enumerate(query.occurrences):
        relation = Relation(
            oid=roots[name],
            schema="public",
            name=name,
            private=name not in query.public,
            root=roots[name],
            columns=tuple(Column(f"c{k}", 20, "bigint", True) for k in range(len(columns))),
        )
        used = tuple(
            AttributeUse(number[a], parsed(f"r{i}.c{k}"), f"c{k}")
            for k, a in enumerate(columns)
            if a in number
        )
        occurrences.append(Occurrence(i, relation, used))
    attributes = tuple(Attribute(number[a], "bigint", uses[a] > 1) for a in sorted(wanted))
    return JoinQuery(tuple(occurrences), attributes, (), tuple(number[a] for a in groups))


def boundaries(query: JoinQuery) -> list[Boundary]:
    shape = query.shape()
    everyone = range(len(query.occurrences))
    return [
        Boundary(frozenset(chosen), shape.boundary(frozenset(chosen)))
        for k in range(1, len(query.occurrences) + 1)
        for chosen in itertools.combinations(everyone, k)
    ]


def tensors(query: JoinQuery, data: Data, domain: int) -> list[Any]:
    """Count the rows of each occurrence in a dense tensor over its attributes."""
    found = []
    for occurrence, columns in zip(query.occurrences, data, strict=True):
        shape = (domain,) * len(occurrence.uses)
        tensor = np.zeros(shape, dtype=object)
        rows = len(next(iter(columns.values()))) if columns else 0
        for r in range(rows):
            tensor[tuple(int(columns[u.attribute][r]) for u in occurrence.uses)] += 1
        found.append(tensor)
    return found


def contract(
    query: JoinQuery, counted: list[Any], inside: frozenset[int], output: list[int]
) -> Any:
    operands: list[Any] = []
    for i in sorted(inside):
        operands += [counted[i], [u.attribute for u in query.occurrences[i].uses]]
    return np.einsum(*operands, output, optimize=False)


def evaluate(query: JoinQuery, wanted: list[Boundary], data: Data, names: Any) -> Any:
    """Run the kernel on the data, every code replaced by the value that it stands for."""
    tables = {
        i: (
            {a: names[codes] for a, codes in columns.items()},
            len(next(iter(columns.values()))) if columns else 0,
        )
        for i, columns in enumerate(data)
    }
    memory = Memory(1 << 30)
    memory.hold(sum(c.nbytes for columns, _ in tables.values() for c in columns.values()))
    return kernel.evaluate(make_plan(query, frozenset(wanted)), tables, memory, lambda: None)


CASES = [
    (query, groups)
    for query in QUERIES
    for groups in ((), (query.occurrences[0][1][0],), (query.occurrences[-1][1][-1],))
]


@pytest.mark.parametrize(("query", "groups"), CASES, ids=lambda v: getattr(v, "name", str(v)))
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32 - 1), domain=st.integers(1, 7), rows=st.integers(0, 250))
def test_tiny_sizes_change_no_count(
    query: Query, groups: tuple[int, ...], seed: int, domain: int, rows: int
) -> None:
    choice = random.Random(seed)
    draws = np.random.default_rng(seed)
    asked = join_query(query, groups)
    relations = {
        name: draws.integers(0, domain, (choice.randrange(rows + 1), query.arity(name)))
        for name in query.relations()
    }
    data = [
        {use.attribute: relations[o.relation.name][:, int(str(use.column)[1:])] for use in o.uses}
        for o in asked.occurrences
    ]
    spread = choice.choice([1, 2, 1000, 2**40, 2**57])
    names = np.sort(draws.integers(-spread, spread, 4 * domain, endpoint=True))
    names = np.unique(np.concatenate([names, np.arange(domain) + spread]))
    names = draws.permutation(names)[:domain]
    wanted = boundaries(asked)
    counted = tensors(asked, data, domain)
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in SIZES.items():
            size = choice.choice(sizes)
            for module in MODULES:
                if hasattr(module, name):
                    patch.setattr(module, name, size)
        found = evaluate(asked, wanted, data, names)
    for boundary in wanted:
        values = contract(asked, counted, boundary.occurrences, sorted(boundary.attributes))
        assert found.boundaries[boundary] == np.max(values), boundary
    everyone = frozenset(range(len(asked.occurrences)))
    answer = contract(asked, counted, everyone, list(asked.groups))
    expected = {
        tuple(str(names[i]) for i in place): n
        for place, n in np.ndenumerate(answer)
        if n or not groups
    }
    assert found.groups == expected


def test_the_sizes_are_there_to_be_made_tiny() -> None:
    assert sum(hasattr(m, name) for m in MODULES for name in SIZES) >= 3


# Rows of four relations with the values 0, 1, ...: the join has sum of products results.
EDGES = {
    2**62 - 1: [
        (2**15 - 1, 2**15, 2**16, 2**16),
        (1, 2**15, 2**16, 2**16 - 1),
        (1, 1, 2**15, 2**16 - 1),
        (1, 1, 1, 2**15 - 1),
    ],
    2**62: [(2**15, 2**15, 2**16, 2**16)],
    2**62 + 1: [(2**15, 2**15, 2**16, 2**16), (1, 1, 1, 1)],
    2**63 - 1: [
        (2**15, 2**15, 2**16, 2**16),
        (2**15 - 1, 2**15, 2**16, 2**16),
        (1, 2**15, 2**16, 2**16 - 1),
        (1, 1, 2**15, 2**16 - 1),
        (1, 1, 1, 2**15 - 1),
    ],
    2**64: [(2**16, 2**16, 2**16, 2**16)],
}


def star(sizes: list[tuple[int, ...]]) -> tuple[JoinQuery, Data]:
    query = join_query(Query("star", tuple((name, (0,)) for name in "rstu")))
    return query, [
        {0: np.repeat(np.arange(len(sizes)), [size[i] for size in sizes])} for i in range(4)
    ]


@pytest.mark.parametrize(("count", "sizes"), EDGES.items(), ids=lambda v: str(v)[:20])
def test_counts_at_the_edge_of_64_bits_are_exact_or_refused(
    count: int, sizes: list[tuple[int, ...]]
) -> None:
    query, data = star(sizes)
    assert sum(int(np.prod([int(n) for n in size], dtype=object)) for size in sizes) == count
    everything = Boundary(frozenset(range(4)), frozenset())
    try:
        found = evaluate(query, [everything], data, np.arange(len(sizes)))
    except NotInArrays:
        assert count >= 2**62 - 1, "refused although it fits"
    else:
        assert found.groups == {(): count}
        assert found.boundaries == {everything: count}


def test_a_count_that_fits_is_not_refused() -> None:
    query, data = star([(2**14, 2**15, 2**15, 2**15)])
    assert evaluate(query, [], data, np.arange(1)).groups == {(): 2**59}
