"""Look at the smooth sensitivity itself: secret, so for owners only (tests and tuning)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine.methods.choose import choose_bound
from dpsql.engine.prepare import meet, prepare, require_rows
from dpsql.engine.request import METHODS, Role, Settings
from dpsql.errors import InvalidParameter, PermissionDenied

if TYPE_CHECKING:
    from dpsql.engine.methods.bounds import SensitivityBound
    from dpsql.engine.services import Services
    from dpsql.model import JoinQuery


def sensitivity(
    text: str,
    role: Role,
    settings: Settings,
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
    methods = [*(m for m in METHODS if m not in ("auto", "truncation")), "sampling_estimate"]
    if method not in methods:
        raise InvalidParameter(
            f'parameter "method" must be one of {", ".join(methods)}',
            detail=f"Got {'NULL' if method is None else repr(method)}.",
        )
    if beta is None or not 1e-4 <= beta <= 100:
        raise InvalidParameter(
            'parameter "beta" must be between 0.0001 and 100',
            detail=f"Got {'NULL' if beta is None else beta}.",
        )
    asked = replace(settings, method=method)
    prepared = prepare(text, None, services, use_keys=use_keys)
    require_owner(prepared.question.relations, role, services)
    require_rows(prepared.question, "dp.sensitivity")
    found = 0.0
    for aggregate in prepared.question.aggregates:
        query = aggregate.plain
        each = Fraction(
            aggregate.weights[0].bound if aggregate.weights else 1, 10**aggregate.digits
        )
        if query.shape().private_count == 0:
            continue
        bound = choose_bound(query, asked, settings.delta, services.database, use_keys=use_keys)
        relations = sorted({o.relation.oid for o in query.occurrences})
        meet(relations, prepared.relations, prepared.fingerprint, services)

        smooth = partial(_smooth, query, bound, beta, services)
        found = max(found, services.database.at_one_moment(relations, smooth) * float(each))
    services.catalog.confirm(prepared.relations, prepared.fingerprint)
    return found


def _smooth(query: JoinQuery, bound: SensitivityBound, beta: float, services: Services) -> float:
    from dpsql.statistics.counts import count

    counts = count(query, bound.boundaries, services.database, answer=False)
    return bound.smooth(query, counts, beta, services).value


def require_owner(oids: tuple[int, ...], role: Role, services: Services) -> None:
    """Refuse a role that does not own every private relation among ``oids``."""
    if not services.catalog.owns(role.oid, oids):
        raise PermissionDenied(
            "only the owner of the protected relations may see this",
            hint="Use dp.explain for what an analyst may know.",
        )
