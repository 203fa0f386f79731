"""What the engine is given: ports, never drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpsql.ledger.model import Charge, Charged, Hit
from dpsql.ports import Database, NoiseSource


class Ledger(Protocol):
    """Budgets and stored answers (``dpsql.ledger``)."""

    def open(self, charge: Charge) -> Hit | Charged:
        """Charge durably, or return the stored answer of the same question."""
        ...

    def finish(self, charged: Charged, payload: str) -> None:
        """Store the answer for repeats."""
        ...

    def fail(self, charged: Charged) -> None:
        """Note that the computation failed; the charge is kept."""
        ...


class ServerCatalog(Protocol):
    """The catalogue as one snapshot shows it (``dpsql.server.catalog``)."""

    def analyze(self, text: str) -> Mapping[str, Any]:
        """Let the server analyse a statement; returns what ``dp.analyze`` reports."""
        ...

    def fingerprint(self, oids: Sequence[int]) -> str:
        """A token that changes with any declaration, and with any change to these relations."""
        ...


@dataclass(slots=True)
class Services:
    """The ports of one call."""

    database: Database
    catalog: Any
    ledger: Ledger
    noise: NoiseSource
    plans: dict[str, Any] = field(default_factory=dict)
