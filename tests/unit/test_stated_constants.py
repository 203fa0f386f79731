"""Constants that the contract and its summary state are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.core.mechanisms.truncation import BASE, race
from dpsql.core.stale import FACTOR

DOCS = Path(__file__).parents[2] / "docs"
STATED = {
    "PRIVACY.md": (f"at most {FACTOR}β: compute with β/{FACTOR}.", f"`τ_j = {BASE}^j`"),
    "mathematics.md": (
        f"at most ${FACTOR}\\beta'$, for which $\\beta' = \\beta/{FACTOR}$ pays.",
        f"$\\tau_j = {BASE}^j$",
    ),
}


@pytest.mark.parametrize("page", STATED)
def test_pages_state_the_constants_of_the_code(page: str) -> None:
    text = (DOCS / page).read_text()
    assert [stated for stated in STATED[page] if stated not in text] == []


@pytest.mark.parametrize("largest", [2, 4, 5, 16, 17, 1000, 2**20])
def test_the_stated_number_of_bounds_is_that_of_the_code(largest: int) -> None:
    """``L`` is the least integer with ``4^L >= GS``."""
    rounds = next(n for n in range(1, 99) if BASE**n >= largest)
    assert race(largest) == (*(BASE**j for j in range(1, rounds)), largest)
