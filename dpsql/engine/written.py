"""Refuse questions over public relations that the asker may write.

The service session reads pages of a public relation because protected rows join them.  PostgreSQL
removes dead rows from a page when somebody reads the page, so that the place (``ctid``) of the
next row written tells whoever wrote it which pages were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import PermissionDenied

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def require_unwritten(relations: Sequence[int], services: Services) -> None:
    """Raise where one of the public relations can be written by the role that asks."""
    written = services.catalog.written(relations)
    if not written:
        return
    names, role = ", ".join(name for name, _ in written), written[0][1]
    raise PermissionDenied(
        f"role {role} may write the public relation {written[0][0]}, which the question reads",
        detail="Where new rows are placed tells who writes them which pages a question has read.",
        hint=f"Its owner can take that: REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {names} FROM"
        f" {role}, PUBLIC; dp.check_lockdown() lists groups that pass it on. Or ask as a role that"
        " writes nothing there.",
    )
