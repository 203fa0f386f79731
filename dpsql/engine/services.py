"""What the engine is given: ports, never drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.ledger.model import Ledger
from dpsql.ports import Database, NoiseSource

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared


class ServerCatalog(Protocol):
    """The catalogue as one snapshot shows it (``dpsql.server.catalog``)."""

    def analyze(self, text: str, parameters: Sequence[str | None] | None) -> Mapping[str, Any]:
        """Let the server analyse a statement; returns what ``dp.analyze`` reports."""
        ...

    def fingerprint(self, oids: Sequence[int]) -> str:
        """Return a token that changes with any declaration or change to these relations."""
        ...

    def may_name(self, oids: Sequence[int]) -> bool:
        """Tell whether the role in effect may use the schemas of these relations."""
        ...


@dataclass(slots=True)
class Services:
    """The ports of one call."""

    database: Database
    catalog: Any
    ledger: Ledger
    noise: NoiseSource
    plans: dict[Any, Prepared] = field(default_factory=dict)
