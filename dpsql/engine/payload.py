"""The released answer as it is stored in the ledger's cache: perturbed values only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from dpsql.model import Key


@dataclass(frozen=True, slots=True)
class Payload:
    """Groups and perturbed counts.

    Attributes
    ----------
    groups : list of tuple, length d
        Group keys as texts, ``[()]`` without GROUP BY.
    values : list of list, shape (p, d)
        Perturbed counts, and sums in steps of their last decimal, per aggregate.
    scales : list, length p
        Public noise scale as an exact fraction text, ``None`` when it is secret.
    errors : list of float, length d, optional
        Standard errors of the only aggregate, whose noise is Gaussian: of an answer from a release.
    """

    groups: list[Key]
    values: list[list[int | None]]
    scales: list[str | None]
    mechanism: str
    method: str
    label: str
    errors: list[float] | None = None

    def dump(self) -> str:
        """Write as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Payload:
        """Read what `dump` wrote."""
        raw = json.loads(text)
        raw["groups"] = [tuple(key) for key in raw["groups"]]
        return cls(**raw)
