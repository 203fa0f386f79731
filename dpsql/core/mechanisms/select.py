"""Choose a mechanism from public facts."""

from __future__ import annotations

from fractions import Fraction

from dpsql.core.mechanisms import calibrated, cauchy, laplace, threshold
from dpsql.core.mechanisms.base import RowMechanism, check_budget
from dpsql.errors import InvalidParameter

MECHANISMS = ("auto", "laplace", "cauchy", "calibrated")


def choose(
    mechanism: str,
    epsilon: Fraction,
    delta: Fraction,
    groups: int,
    domain_known: bool,
    constant: bool,
    private_relations: int,
    want_interval: bool = False,
    least: int = 0,
) -> RowMechanism:
    """Plan one release of a vector of counts.

    Parameters
    ----------
    mechanism : {"auto", "laplace", "cauchy", "calibrated"}
        The setting ``dp.mechanism``.
    epsilon, delta : Fraction
        The budget of this vector; several aggregates split theirs before.
    groups : int
        Number of groups if their domain is public, else 0; 1 without GROUP BY.
    domain_known : bool
        Whether all groups are public.
    constant : bool
        Whether the sensitivity is a public constant (``sensitivity.is_public``).
    private_relations : int
        Number of distinct private relations.
    want_interval : bool
        Whether the scale has to be public.
    least : int
        Groups that are not public are not shown if their noisy count is below.
    """
    check_budget(epsilon, delta)
    if mechanism in ("quantile", "r2t"):
        raise InvalidParameter(
            f"the {mechanism} mechanism is for privacy units",
            hint="Use dp.mechanism = 'auto' where relations are protected row by row.",
        )
    if mechanism not in MECHANISMS:
        raise InvalidParameter("unknown mechanism", hint=f"Use one of {', '.join(MECHANISMS)}.")
    degree = max(private_relations - 1, 0)
    if not domain_known:
        if mechanism not in ("auto", "calibrated"):
            raise InvalidParameter(
                f"the {mechanism} mechanism needs groups with a public domain",
                hint="Declare the domain with dp.set_domain, or use dp.mechanism = 'auto'.",
            )
        return threshold.plan(epsilon, delta, degree, constant, least)
    if constant and mechanism in ("auto", "laplace", "calibrated"):
        return laplace.plan_global(epsilon)
    if mechanism == "auto":
        mechanism = _automatic(delta, groups, want_interval)
    if want_interval and mechanism != "calibrated":
        raise InvalidParameter(
            f"the {mechanism} mechanism has no public interval on this query",
            hint="Use dp.mechanism = 'calibrated'.",
        )
    if mechanism == "cauchy":
        if groups != 1:
            raise InvalidParameter(
                "the cauchy mechanism releases a single value",
                hint="Use dp.mechanism = 'calibrated' for GROUP BY.",
            )
        return cauchy.plan(epsilon)
    if mechanism == "laplace":
        return laplace.plan_smooth(epsilon, delta, max(groups, 1))
    return calibrated.plan(epsilon, delta, degree)


def _automatic(delta: Fraction, groups: int, want_interval: bool) -> str:
    if want_interval or groups != 1:
        return "calibrated"
    return "laplace" if delta else "cauchy"
