"""`make audit` on one mechanism of each kind: what it draws, acquits and catches.

A claim that holds is refuted with probability `ALARM`; of each mutant nearly every draw shows it, so
that it is missed with probability below 1e-9 (the release's, whose draws show it but for one of 400, with
1e-10).  The noise is the operating system's, so that there is no seed to print.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.cases import every
from tests.audit.measuring import measure

pytestmark = [pytest.mark.server, pytest.mark.stat]

ALARM = 1e-11
CASES = {audited.name: audited for audited in every()}
NAMES = [
    "dp_count(*) from visit: not cut",
    "dp_sum(v, 0, 1000) from pay: sum, not clamped",
    "release by identity: exact Laplace",
]


def test_all_names_are_different() -> None:
    assert len(CASES) == len(every())


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_that_holds_is_not_refuted_and_its_mutant_is(server: Any, name: str) -> None:
    audited = CASES[name]
    statements = 300 // audited.copies
    assert measure(server, audited, "", 60 // audited.copies, ALARM).epsilon <= audited.claim
    mutant = measure(server, audited, audited.mutant, statements, ALARM)
    assert mutant.epsilon > audited.claim
