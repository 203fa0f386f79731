"""From the payload of a synthesis to the rows of its tables: deterministic, and free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpsql.engine.synthesis_payload import generated, load

if TYPE_CHECKING:
    from dpsql.synthesis.generated import Generated
    from dpsql.synthesis.schema import Plan


def generate(
    plan: Plan, payload: bytes, seed: int, tick: Callable[[], None]
) -> list[Generated | None]:
    """Generate the tables of a plan; None for public ones.

    Parameters
    ----------
    plan : Plan
        As it was when the payload was measured.
    payload : bytes
        Of `dpsql.engine.synthesis_payload.dump`.
    seed : int
        Equal seeds give equal rows.
    tick : callable
        Called now and then; may raise to cancel.
    """
    return generated(plan, load(payload), seed, tick)
