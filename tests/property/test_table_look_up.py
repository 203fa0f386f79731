"""The look-up of any table equals counting thresholds, ties and equal thresholds included."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.core import tables
from dpsql.core.tabulate import Cumulative


@st.composite
def cases(draw):
    head_bits = draw(st.integers(1, 63))
    tail_bits = draw(st.integers(0, 128))
    bits = head_bits + tail_bits
    values = sorted(draw(st.lists(st.integers(0, (1 << bits) - 1), max_size=60)))
    near = [v + d for v in values for d in (-1, 0, 1)]
    near = [u for u in near if 0 <= u < 1 << bits]
    one = st.integers(0, (1 << bits) - 1)
    us = draw(st.lists(st.sampled_from(near) | one if near else one, min_size=1, max_size=20))
    return head_bits, tail_bits, values, us, draw(st.integers(0, 1))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_look_up_counts_the_thresholds_at_or_below(case) -> None:
    head_bits, tail_bits, values, us, sign = case
    law = Cumulative(values, head_bits + tail_bits, Fraction(0))
    table = tables.build("any", Fraction(1), law, head_bits)
    for u in us:
        word = (u >> tail_bits) << (64 - head_bits) | sign
        tail = ((u & ((1 << tail_bits) - 1)) << (128 - tail_bits)).to_bytes(16, "little")
        drawn = table.look_up(np.array([word], dtype=np.uint64), lambda size, tail=tail: tail)
        magnitude = sum(value <= u for value in values)
        assert drawn.tolist() == [-magnitude if sign else magnitude]
