"""Sketching sensitivity (paper equations 28-31; PRIVACY.md section 4; docs/proofs/sketch.md).

Nothing here reads a join: every bound is made of numbers that belong to single relations
(``Sketch``), so that its cost does not depend on the data.  Three *estimators* of ``T_E``:

``exact_norm``  product of the norms ``||f_j||`` of the frequencies of each occurrence of ``E``, a
                norm being taken over one value of what ``E`` shares with the rest: proved
``norm``        the same from AGMS counters, over all values: proved but for probability ``eta``
``mean``        the paper's: the mean of the products ``|sk|`` of AGMS counters, median over rows;
                proved where the counters suffice for the shape, else ``heuristic``

What is proved but for ``eta`` is proved of one question that does not depend on the seeds; of many
questions to the same counters it is not, unless ``eta`` is paid at the building (section 5).

All are exactly smooth for fixed seeds: a row moves a norm and a counter by at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise

from dpsql.core.chase import determined
from dpsql.core.polynomial import Polynomial, Powers, add_term
from dpsql.core.residual import subsets
from dpsql.core.smooth import SmoothBound, smooth_maximum
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Shape

ESTIMATORS = ("exact_norm", "norm", "mean")

PROVED, HEURISTIC = "proved", "heuristic"

#: Products of counters are kept for every set of occurrences, so only for so many of them.
MAX_OCCURRENCES = 8

#: Norms are rounded up to multiples of 1 / ``_STEP``, which keeps coefficients whole.
_STEP = 1024

#: The largest relative error that is allowed for; where more is needed nothing is proved, and
#: the error is taken to be ``_ASSUMED``.
_MOST = Fraction(1, 2)
_ASSUMED = Fraction(1, 10)

_BETWEEN_TICKS = 16

Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Family:
    """An independent family of signs: it joins exactly two occurrences on one attribute."""

    number: int
    attribute: int
    occurrences: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sketch:
    """What was measured of the relations of a query, without any filter.

    Attributes
    ----------
    estimators, rows : int
        ``rows`` independent groups of ``estimators`` counters; public.
    totals : tuple of int
        For each occurrence the number of its counters; public.
    norms : tuple of mapping
        For each occurrence and each set of its attributes that is held fixed the largest sum of
        squared frequencies over its other attributes; secret, like all that follows.
    squares : tuple of int
        For each occurrence the sum of its squared counters, all of them.
    moments : tuple of tuple of int, or None
        For each row, by the bits of a set of occurrences, the sum over the row's estimators of
        the product of their ``|sk|``; ``None`` where the counters of the occurrences are not
        of one building.
    """

    estimators: int
    rows: int
    totals: tuple[int, ...]
    norms: tuple[Mapping[frozenset[int], int], ...]
    squares: tuple[int, ...]
    moments: tuple[tuple[int, ...], ...] | None


@dataclass(frozen=True, slots=True)
class Promise:
    """What an estimator promises, from public facts: ``T_E`` is bounded but for ``eta``.

    ``tau`` is the relative error that is divided out, ``1 - tau`` of what the counters say;
    ``eta`` is added to delta.  Under the label ``heuristic`` nothing is promised.
    """

    estimator: str
    label: str
    tau: Fraction
    eta: Fraction


def joining(shape: Shape) -> tuple[frozenset[int], ...]:
    """Give the attributes of each occurrence that others have too; the rest is summed over."""
    return tuple(
        frozenset(
            a for a in own if any(a in other for j, other in enumerate(shape.attributes) if j != i)
        )
        for i, own in enumerate(shape.attributes)
    )


def families(shape: Shape) -> tuple[Family, ...]:
    """List the families of signs: a spanning path of the occurrences of every attribute.

    One family shared by three occurrences would estimate zero (PRIVACY.md section 4).
    """
    found: list[Family] = []
    for attribute in sorted(frozenset().union(*shape.attributes)):
        users = [i for i, own in enumerate(shape.attributes) if attribute in own]
        for pair in pairwise(users):
            found.append(Family(len(found), attribute, pair))
    return tuple(found)


def incident(shape: Shape, occurrence: int) -> tuple[Family, ...]:
    """List the families whose signs the counters of an occurrence multiply."""
    return tuple(f for f in families(shape) if occurrence in f.occurrences)


def promise(
    shape: Shape, estimator: str, estimators: int, rows: int, eta: Fraction = Fraction(1, 10**9)
) -> Promise:
    """Tell from public facts what an estimator promises for a shape.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    estimator : {'exact_norm', 'norm', 'mean'}
        Which bound.
    estimators, rows : int
        Those of the sketch.
    eta : Fraction
        Probability over the secret seeds with which the bound may fail; part of delta.
    """
    _check(estimator)
    if estimator == "exact_norm":
        return Promise(estimator, PROVED, Fraction(0), Fraction(0))
    if not 0 < eta < 1:
        raise InvalidParameter("eta must be between 0 and 1", detail=f"Got {float(eta)}.")
    tau = _norm_error if estimator == "norm" else _mean_error
    error = tau(shape, estimators, rows, eta)
    if error > _MOST:
        return Promise(estimator, HEURISTIC, _ASSUMED, eta)
    return Promise(estimator, PROVED, error, eta)


def _norm_error(shape: Shape, estimators: int, rows: int, eta: Fraction) -> Fraction:
    """Allow for ``P(mean sk^2 < (1 - tau) F2) <= exp(-n tau^2 / (2 3^d))``, all occurrences."""
    degrees = [len(incident(shape, i)) for i in range(len(shape.attributes))]
    share = math.log(len(degrees) / float(eta))
    return _round_up(2.0 * 3.0 ** max(degrees) * share / (estimators * rows))


def _mean_error(shape: Shape, estimators: int, rows: int, eta: Fraction) -> Fraction:
    """Allow for ``P(mean |X| < (1 - tau) E|X|) <= exp(-n tau^2 (E|X|)^2 / (2 E X^2))``.

    ``E X^2 <= 2^b e^(4i) (E|X|)^2`` where ``b`` families have one end in ``E`` and ``i`` both.
    The upper median is too small only if so many rows are, each for one set or another of the
    relation whose part is largest: the union over the sets is inside the power.
    """
    if len(shape.attributes) > MAX_OCCURRENCES:
        return Fraction(1)
    changes = [_changed(shape, r) for r in range(shape.private_count)]
    sets = max(map(len, changes), default=1)
    failing = rows // 2 + 1
    each = math.log(float(eta) / math.comb(rows, failing)) / failing - math.log(sets)
    spread = 0.0
    for changed in chain.from_iterable(changes):
        ends = [sum(i not in changed for i in f.occurrences) for f in families(shape)]
        spread = max(spread, 2.0 ** ends.count(1) * math.exp(4.0 * ends.count(2)))
    return _round_up(-2.0 * spread * each / estimators)


def _round_up(square: float) -> Fraction:
    """Return a number of six decimals above the root, whose own rounding is far smaller."""
    return Fraction(math.ceil(math.sqrt(min(square, 1.0)) * 10**6) + 1, 10**6)


def _changed(shape: Shape, relation: int) -> list[frozenset[int]]:
    """List the sets of occurrences in which one row of a private relation may take part."""
    return subsets(i for i, p in enumerate(shape.physical) if p == relation)[1:]


def bound(
    shape: Shape,
    sketch: Sketch,
    beta: float,
    promised: Promise,
    *,
    shifts: Sequence[int] | None = None,
    use_keys: bool = True,
    tick: Tick = lambda: None,
) -> SmoothBound:
    """Bound the sensitivity smoothly from a sketch.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    sketch : Sketch
        Of the query's relations.
    beta : float
        Smoothness.
    promised : Promise
        Of the estimator to use.
    shifts : sequence of int, optional
        For each occurrence by how many rows its relation may have moved away from the sketch
        (PRIVACY.md, stale statistics); public relations too.
    use_keys : bool
        Whether trusted keys may sharpen ``exact_norm``.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    size = shape.private_count
    moved = tuple(shifts) if shifts is not None else (0,) * len(shape.attributes)
    if promised.estimator == "mean":
        if sketch.moments is None:
            raise InternalError("the counters of this sketch are not of one building")
        scale = Fraction(1) / (sketch.estimators * (1 - promised.tau))
        found = []
        for row in sketch.moments:
            polynomials = _mean_polynomials(shape, row, moved, tick)
            found.append(_maximum(polynomials, beta, size, scale, tick))
        return sorted(found, key=lambda b: b.exact)[len(found) // 2]
    polynomials = _norm_polynomials(shape, sketch, promised, moved, use_keys, tick)
    scale = Fraction(1, _STEP ** max(0, len(shape.attributes) - 1))
    return _maximum(polynomials, beta, size, scale, tick)


def _maximum(
    polynomials: Sequence[Polynomial], beta: float, size: int, scale: Fraction, tick: Tick
) -> SmoothBound:
    settled = [_settled(polynomial, beta) for polynomial in polynomials]
    found = smooth_maximum(settled, beta, size, tick)
    return SmoothBound(found.exact * scale, found.at, found.k)


def _settled(polynomial: Polynomial, beta: float) -> Polynomial:
    """Keep the constant alone of a polynomial that is largest at distance 0: saves the search.

    ``exp(-beta s_i) P(s)`` falls everywhere if no coefficient of ``dP/ds_i`` is above that of
    ``beta P``.
    """
    whole, part = Fraction(beta).as_integer_ratio()
    for powers, coefficient in polynomial.items():
        for i, a in enumerate(powers):
            lower = (*powers[:i], a - 1, *powers[i + 1 :])
            if a and a * coefficient * part > whole * polynomial.get(lower, 0):
                return polynomial
    return {powers: c for powers, c in polynomial.items() if not any(powers)}


def _norm_polynomials(
    shape: Shape,
    sketch: Sketch,
    promised: Promise,
    moved: Sequence[int],
    use_keys: bool,
    tick: Tick,
) -> list[Polynomial]:
    """Multiply norms, scaled by ``_STEP`` for every occurrence but one."""
    result: list[Polynomial] = []
    for relation in range(shape.private_count):
        total: dict[Powers, int] = {}
        for changed in _changed(shape, relation):
            tick()
            product: dict[Powers, int] = {(0,) * shape.private_count: _STEP ** (len(changed) - 1)}
            for j, fixed in _fixed(shape, changed, use_keys).items():
                factor, slope = (_STEP, 0)
                if fixed is not None:
                    factor, slope = _norm(sketch, promised, j, fixed)
                product = _times(product, factor + slope * moved[j], slope, shape.physical[j])
            for powers, coefficient in product.items():
                add_term(total, powers, coefficient)
        result.append(total)
    return result


def _fixed(
    shape: Shape, changed: frozenset[int], use_keys: bool
) -> dict[int, frozenset[int] | None]:
    """Tell for each other occurrence which of its attributes a row of ``changed`` fixes.

    ``None``: keys leave it one row at most, for ever; what it says of others is fixed as well.
    """
    known = frozenset[int]().union(*(shape.attributes[i] for i in changed))
    rest = frozenset(range(len(shape.attributes))) - changed
    sure = determined(shape, rest, known) if use_keys else frozenset[int]()
    known = known.union(*(shape.attributes[i] for i in sure))
    shared = joining(shape)
    return {j: None if j in sure else shared[j] & known for j in sorted(rest)}


def summed(shape: Shape, estimator: str) -> tuple[frozenset[int], ...]:
    """Give the attributes of each occurrence over whose values an estimator sums squares."""
    _check(estimator)
    shared = joining(shape)
    if estimator == "mean":
        return shared
    found = [frozenset[int]()] * len(shared)
    for relation in range(shape.private_count):
        for changed in _changed(shape, relation):
            for j, fixed in _fixed(shape, changed, True).items():
                if fixed is not None:
                    found[j] |= shared[j] - (fixed if estimator == "exact_norm" else frozenset())
    return tuple(found)


def _norm(
    sketch: Sketch, promised: Promise, occurrence: int, fixed: frozenset[int]
) -> tuple[int, int]:
    """Return an upper bound of a norm and what a row adds to it, both times ``_STEP``.

    The first moves by at most the second with every row: ``ceil(x + n) = ceil(x) + n``.
    """
    if promised.estimator == "exact_norm":
        square = sketch.norms[occurrence][fixed]
        return _root(Fraction(square * _STEP**2)), _STEP
    slope = _root(_STEP**2 / (1 - promised.tau))
    # ceil(slope * root) >= ceil(root * _STEP / sqrt(1 - tau))
    return _root(Fraction(sketch.squares[occurrence] * slope**2, sketch.totals[occurrence])), slope


def _root(square: Fraction) -> int:
    """Return the least integer whose square is at least that."""
    whole = -(-square.numerator // square.denominator)
    root = math.isqrt(whole)
    return root if root * root == whole else root + 1


def _times(
    product: Mapping[Powers, int], constant: int, slope: int, variable: int | None
) -> dict[Powers, int]:
    """Multiply by ``constant + slope * s`` (public relations: by the constant)."""
    result: dict[Powers, int] = {}
    for powers, coefficient in product.items():
        add_term(result, powers, coefficient * constant)
        if variable is not None:
            raised = list(powers)
            raised[variable] += 1
            add_term(result, tuple(raised), coefficient * slope)
    return result


def _mean_polynomials(
    shape: Shape, moments: Sequence[int], moved: Sequence[int], tick: Tick
) -> list[Polynomial]:
    """Expand ``sum over s of the product over E of |sk_s(j)| + shift_j + k_j``."""
    everything = frozenset(range(len(shape.attributes)))
    result: list[Polynomial] = []
    for relation in range(shape.private_count):
        total: dict[Powers, int] = {}
        for changed in _changed(shape, relation):
            rest = everything - changed
            for number, counted in enumerate(subsets(rest)):
                if number % _BETWEEN_TICKS == 0:
                    tick()
                product = {(0,) * shape.private_count: moments[sum(1 << j for j in counted)]}
                for j in rest - counted:
                    product = _times(product, moved[j], 1, shape.physical[j])
                for powers, coefficient in product.items():
                    add_term(total, powers, coefficient)
        result.append(total)
    return result


def _check(estimator: str) -> None:
    if estimator not in ESTIMATORS:
        raise InvalidParameter(
            "unknown estimator of a sketch", hint=f"Use one of {', '.join(ESTIMATORS)}."
        )
