"""The epsilon that a refused charge's hint names fits what is left, and is nearly the largest."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pytest

from dpsql.core.composition import rho_of
from dpsql.ledger.model import Account, Charge
from dpsql.ledger.refusals import refusal


def hint(composition: str, left: Fraction, epsilon: Fraction) -> str:
    """Return what is told to a role that asks a question of epsilon with so much left."""
    spent = Fraction(7, 3)
    charge = Charge(
        role=1, role_name="alice", roots=(), epsilon=epsilon, delta=Fraction(0), rho=rho_of(epsilon),
        rho_delta=Fraction(0), mechanism="laplace", method="residual", label="proved", question="",
        key=b"", fresh=False, text_key=None,
    )  # fmt: skip
    account = Account(composition, left + spent, Fraction(1), spent, Fraction(0))
    return str(refusal("exceeded_role", charge, account).hint)


def named(text: str) -> Fraction | None:
    found = re.search(r"at most dp\.epsilon = ([0-9.]*[0-9])", text)
    return None if found is None else Fraction(found[1])


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_it_fits_and_little_more_would_not(composition: str) -> None:
    draw = random.Random(7)
    for _ in range(300):
        left = Fraction(10 ** draw.uniform(-9, 0)).limit_denominator(10**14)
        price = rho_of if composition == "zcdp" else Fraction
        fitting = named(hint(composition, left, Fraction(100)))
        if fitting is None:
            assert left < Fraction(1, 10**5)
            continue
        assert price(fitting) <= left
        # a question that is one whole draw costs a little less than epsilon^2/2
        assert price(fitting * Fraction(13, 10)) > left


def test_the_root_is_rounded_down() -> None:
    assert named(hint("zcdp", Fraction(1, 12), Fraction(1))) == Fraction(408, 1000)
    assert named(hint("zcdp", Fraction(1, 8), Fraction(1))) == Fraction(1, 2)
    assert named(hint("basic", Fraction(1, 3), Fraction(1))) == Fraction(333, 1000)


def test_nothing_is_named_where_epsilon_is_not_the_reason() -> None:
    assert named(hint("basic", Fraction(2), Fraction(1))) is None
    assert named(hint("zcdp", Fraction(0), Fraction(1))) is None
    assert named(hint("zcdp", Fraction(1, 10**30), Fraction(1))) is None
    assert "stay free" in hint("zcdp", Fraction(1, 12), Fraction(1))
