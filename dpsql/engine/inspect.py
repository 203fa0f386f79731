"""Look at the smooth sensitivity itself: secret, so for owners only (tests and tuning)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine.prepare import prepare
from dpsql.engine.request import Role
from dpsql.errors import InvalidParameter, PermissionDenied

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def sensitivity(
    text: str,
    role: Role,
    services: Services,
    *,
    method: str = "residual",
    beta: float = 0.02,
    use_keys: bool = True,
) -> float:
    """Return the smooth sensitivity of the statement's (largest) count at ``beta``.

    It is a function of protected rows without noise: only a role that owns every private
    relation of the statement may see it (PRIVACY.md section 2).

    Raises
    ------
    PermissionDenied
        When the role does not own all of them.
    InvalidParameter
        When ``method`` or ``beta`` is out of range.
    """
    if method not in ("residual", "elastic"):
        raise InvalidParameter(
            'parameter "method" must be residual or elastic', detail=f"Got {method!r}."
        )
    if beta is None or not 1e-4 <= beta <= 100:
        raise InvalidParameter(
            'parameter "beta" must be between 0.0001 and 100', detail=f"Got {beta}."
        )
    prepared = prepare(text, None, services, use_keys=use_keys)
    require_owner(prepared.question.relations, role, services)
    from dpsql.core.sensitivity import bound, required
    from dpsql.statistics.counts import count

    found = 0.0
    for query in prepared.question.aggregates:
        shape = query.shape()
        if shape.private_count == 0:
            continue
        tick = services.database.tick
        needed = required(shape, method, use_keys, tick)
        counts = count(query, needed, services.database, answer=False)
        smooth = bound(shape, counts.boundaries, beta, method, use_keys, tick)
        found = max(found, smooth.value)
    services.catalog.confirm(prepared.relations, prepared.fingerprint)
    return found


def require_owner(oids: tuple[int, ...], role: Role, services: Services) -> None:
    """Refuse a role that does not own every private relation among ``oids``."""
    if not services.catalog.owns(role.oid, oids):
        raise PermissionDenied(
            "only the owner of the protected relations may see this",
            hint="Use dp.explain for what an analyst may know.",
        )
