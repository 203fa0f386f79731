"""Shifted bounds: exact substitution, public relations that changed, agreement with fresh ones."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from dpsql.core import sensitivity, stale
from dpsql.core.polynomial import CAPPED, evaluate
from dpsql.core.stale import _substitute
from dpsql.errors import InternalError
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence, Shape
from dpsql.relation import Column, Relation
from tests.expressions import parsed

E = frozenset
PATH = Shape((E({0}), E({0, 1}), E({1})), (0, None, 1))
NUMBERS = (0, 2, 1)


def test_substitution_is_exact_at_every_point() -> None:
    generator = random.Random(5)
    for _ in range(200):
        polynomial = {
            tuple(generator.choice((CAPPED, 0, 1, 2)) for _ in range(3)): generator.randrange(1, 99)
            for _ in range(5)
        }
        shifts = [generator.choice((0, 0, 1, 7)) for _ in range(3)]
        found = _substitute(polynomial, shifts, 2)
        for k in ((0, 0), (1, 0), (3, 5)):
            moved = [a + b for a, b in zip((*k, 0), shifts, strict=True)]
            assert evaluate(found, k) == evaluate(polynomial, moved)


@pytest.mark.parametrize("method", ["residual", "elastic"])
def test_without_changes_the_bound_is_the_fresh_one_at_a_share_of_beta(method: str) -> None:
    values = {b: 3 + len(b.attributes) for b in stale.required(PATH, NUMBERS, method)}
    old = stale.bound(PATH, NUMBERS, values, (0, 0, 0), 0.6, method)
    new = sensitivity.bound(PATH, values, 0.6 / stale.FACTOR, method)
    assert old.exact == pytest.approx(float(new.exact), rel=1e-8)


@pytest.mark.parametrize("method", ["residual", "elastic"])
def test_every_relation_s_shift_counts_public_ones_as_well(method: str) -> None:
    values = dict.fromkeys(stale.required(PATH, NUMBERS, method), 4)
    before = stale.bound(PATH, NUMBERS, values, (0, 0, 0), 5.0, method).exact
    for i in range(3):
        shifts = [9 if j == i else 0 for j in range(3)]
        assert stale.bound(PATH, NUMBERS, values, shifts, 5.0, method).exact > before


def test_residuals_without_public_occurrences_are_required() -> None:
    needed = stale.required(PATH, NUMBERS)
    assert Boundary(E({2}), E({1})) in needed
    assert Boundary(E({2}), E({1})) not in sensitivity.required(
        Shape((E({0}), E({0, 1}), E({1})), (0, None, None))
    )


def test_the_share_of_beta_never_exceeds_it() -> None:
    for n in range(1, 400):
        beta = n / 97
        share = math.nextafter(beta / stale.FACTOR, 0)
        assert Fraction(share) * stale.FACTOR <= Fraction(beta)


def test_what_does_not_fit_is_refused() -> None:
    values = dict.fromkeys(stale.required(PATH, NUMBERS), 4)
    for beta, shifts in ((0.0, (0, 0, 0)), (0.5, (0, 0)), (0.5, (0, 0, -1))):
        with pytest.raises(InternalError):
            stale.bound(PATH, NUMBERS, values, shifts, beta)


def test_public_relations_are_numbered_after_the_private_ones() -> None:
    column = (Column("x", 23, "integer", True),)
    a, b, c = (
        Relation(oid, "public", f"t{oid}", private, root, column)
        for oid, private, root in ((7, False, 0), (8, True, 3), (9, False, 0))
    )
    use = (AttributeUse(0, parsed("r.x"), "x"),)
    query = JoinQuery(
        tuple(Occurrence(i, r, use) for i, r in enumerate((a, b, c, a))),
        (Attribute(0, "integer", True),),
    )
    assert stale.numbering(query) == (1, 0, 2, 1)
