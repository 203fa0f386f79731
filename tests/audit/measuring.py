"""Draws from a mechanism on both neighbours, and what they establish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        if not patch:
            require_noise(audited, sides[-1])
    first, second = vectors(*sides)
    assert len(first) == len(second) == statements * audited.copies
    return lower_bound(first, second, audited.delta, alarm, np.random.default_rng(1))


def require_noise(audited: Audited, draws: Sequence[Sequence[Any]]) -> None:
    """Refuse draws that are all the same: nothing was drawn.

    A threshold may show no group at all, of all but `Audited.delta` of its draws.
    """
    if len({str(values) for values in draws}) < 2 and (draws[0] or not audited.delta):
        raise AssertionError(f"all draws of {audited.name!r} are the same: {draws[0]}")
