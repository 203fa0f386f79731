"""What a call of ``dp.release`` says beside the statement, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsql.engine.request import Settings, exact
from dpsql.errors import InvalidParameter
from dpsql.ledger.amounts import amount_text
from dpsql.workload.names import MECHANISMS

POSTPROCESS = ("none", "non_negative", "integral", "pgm")
#: Weights of queries.  Errors count by their squares, of which double precision keeps 16 digits.
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-4, 1e4


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call of ``dp.release`` says beside the statement.

    ``epsilon`` and ``delta`` are ``None`` where the session's settings hold.
    """

    epsilon: str | None = None
    delta: str | None = None
    mechanism: str = "auto"
    postprocess: str = "none"
    weights: tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        epsilon: str | None,
        delta: str | None,
        mechanism: str | None,
        postprocess: str | None,
        weights: Sequence[float | None] | None,
    ) -> Terms:
        """Read the parameters of a call; NULL is what is not said."""
        if weights is not None and None in weights:
            raise InvalidParameter('parameter "weights" must not hold NULL')
        if weights is not None and any(isinstance(w, list) for w in weights):
            raise InvalidParameter('parameter "weights" must be an array of one dimension')
        return cls(
            epsilon,
            delta,
            "auto" if mechanism is None else mechanism.lower(),
            "none" if postprocess is None else postprocess.lower(),
            None if weights is None else tuple(float(w) for w in weights if w is not None),
        )

    def settings(self, own: Settings) -> Settings:
        """Return the session's settings with what the call says in their place, checked.

        Raises
        ------
        InvalidParameter
            Names the parameter that is out of range.
        """
        changed: dict[str, Any] = {}
        if self.epsilon is not None:
            changed["epsilon"] = exact("epsilon", self.epsilon)
        if self.delta is not None:
            changed["delta"] = exact("delta", self.delta)
        found = replace(own, **changed)
        found.check(said=changed)
        if self.mechanism not in MECHANISMS:
            raise InvalidParameter(
                f'parameter "mechanism" must be one of {", ".join(MECHANISMS)}',
                detail=f"Got {self.mechanism}.",
            )
        if self.postprocess not in POSTPROCESS:
            raise InvalidParameter(
                f'parameter "postprocess" must be one of {", ".join(POSTPROCESS)}',
                detail=f"Got {self.postprocess}.",
            )
        for weight in self.weights or ():
            if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
                raise InvalidParameter(
                    f'parameter "weights" must hold positive numbers, from {LEAST_WEIGHT:g} to'
                    f" {LARGEST_WEIGHT:g}",
                    detail=f"Got {weight:g}.",
                    hint="Only their ratios matter: divide all of them by the same number.",
                )
        return found

    def settled(self, settings: Settings) -> Terms:
        """Return the terms with the budget that holds in place of one that is not said."""
        return replace(
            self, epsilon=amount_text(settings.epsilon), delta=amount_text(settings.delta)
        )
