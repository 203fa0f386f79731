"""`make audit` on one mechanism of each kind: what it draws, acquits and catches.

A claim that holds is refuted with probability `ALARM`; of each mutant nearly every draw shows it.  The
noise is the operating system's, so that there is no seed to print.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.audit.bounds import lower_bound
from tests.audit.cases import Audited, every, vectors

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


def measured(server: Any, audited: Audited, patch: str, statements: int) -> float:
    sides = []
    for with_more in (True, False):
        database = server.create_database()
        audited.prepare(database, with_more)
        sides.append(audited.draw(database, patch, statements))
        server.drop_database(database)
        assert len({str(values) for values in sides[-1]}) > 1 or patch, "all draws are the same"
    first, second = vectors(*sides)
    assert len(first) == len(second) == statements * audited.copies
    rng = np.random.default_rng(1)
    return lower_bound(first, second, audited.delta, ALARM, rng).epsilon


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_that_holds_is_not_refuted_and_its_mutant_is(server: Any, name: str) -> None:
    audited = CASES[name]
    statements = 300 // audited.copies
    assert measured(server, audited, "", 60 // audited.copies) <= audited.claim
    assert measured(server, audited, audited.mutant, statements) > audited.claim
