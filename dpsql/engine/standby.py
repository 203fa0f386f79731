"""What must be charged is refused where nothing can be (PRIVACY.md section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.ledger.refusals import standby

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def refuse_standby(services: Services) -> None:
    """Say of a read-only transaction that no other one would do, where that is so.

    Raises
    ------
    LedgerUnavailable
        If this server is a standby.
    """
    if services.database.execute("select pg_is_in_recovery() as standby")[0][0]:
        raise standby()
