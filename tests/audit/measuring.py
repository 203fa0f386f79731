"""Draws from a mechanism on both neighbours, and what they establish."""

from __future__ import annotations

import numpy as np

from tests.audit.bounds import Bound, lower_bound
from tests.audit.cases import Audited, vectors
from tests.conftest import Server


def measure(server: Server, audited: Audited, patch: str, statements: int, alarm: float) -> Bound:
    """Draw on fresh neighbours and bound epsilon from below.

    Parameters
    ----------
    patch : str
        Python that changes the mechanism before it is drawn from; empty for the code as it is.
    statements : int
        How many on each neighbour; each draws `Audited.copies` times.
    alarm : float
        The probability with which the bound may be above a claim that holds.
    """
    sides = []
    for with_more in (True, False):
        database = server.create_database()
        try:
            audited.prepare(database, with_more)
            sides.append(audited.draw(database, patch, statements))
        finally:
            server.drop_database(database)
        if not patch and len({str(values) for values in sides[-1]}) < 2:
            raise AssertionError("all draws are the same")
    first, second = vectors(*sides)
    assert len(first) == len(second) == statements * audited.copies
    return lower_bound(first, second, audited.delta, alarm, np.random.default_rng(1))
