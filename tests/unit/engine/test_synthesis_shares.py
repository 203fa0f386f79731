"""Shares of a synthesis' budget: what is given up goes to what is not measured yet."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpsql.engine.synthesis_shares import Shares


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=12),
)
def test_shares_never_add_up_to_more_than_all_and_spent_ones_stay(weights, steps):
    shares = Shares([Fraction(w, sum(weights)) for w in weights])
    spent = {}
    for given_up, part in steps:
        if part >= len(weights) or not shares.open(part):
            continue
        before = list(shares.shares)
        if given_up:
            shares.give_up(part)
            assert shares.shares[part] == 0
        else:
            shares.spend(part)
            spent[part] = before[part]
        assert sum(shares.shares) <= 1
        assert all(shares.shares[i] == share for i, share in spent.items())
        still = [i for i in range(len(weights)) if shares.open(i)]
        assert all(shares.shares[i] >= before[i] for i in still)
        if still:
            assert sum(shares.shares) > 1 - Fraction(len(weights) ** 2, 1 << 40)


def test_a_share_is_spread_as_the_others_are():
    shares = Shares([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)])
    shares.give_up(0)
    found = [float(share) for share in shares.shares]
    assert [round(share, 9) for share in found] == [0, round(2 / 3, 9), round(1 / 3, 9)]
