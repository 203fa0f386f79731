"""Which sensitivity method answers a question: a choice from public facts only."""

from __future__ import annotations

from dpsql.model import Shape

MAX_RESIDUAL_OCCURRENCES = 8


def choose_method(method: str, shape: Shape) -> str:
    """Resolve ``auto``: residual, unless the join is so wide that its boundaries are too many.

    Residual sensitivity needs up to ``2**n`` boundaries, elastic about ``n**2`` frequencies.
    """
    if method != "auto":
        return method
    return "elastic" if len(shape.attributes) > MAX_RESIDUAL_OCCURRENCES else "residual"
