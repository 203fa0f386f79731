"""Choose how an aggregate's sensitivity is bounded, from settings and public facts only."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine.methods.bounds import CountedBound, SensitivityBound
from dpsql.engine.methods.estimated import (
    LiveNormsBound,
    SampledBound,
    SketchedBound,
    StoredBound,
)
from dpsql.errors import InvalidParameter, MissingDeclaration, NotAnswerable
from dpsql.model import JoinQuery, Shape
from dpsql.query.places import any_cut, is_far

if TYPE_CHECKING:
    from dpsql.engine.request import Settings
    from dpsql.ports import Database
    from dpsql.statistics.sketches import Stored

SAMPLING = ("sampling", "sampling_published", "sampling_estimate")
SKETCHES = {"sketch": "exact_norm", "sketch_published": "mean"}
MAX_RESIDUAL_OCCURRENCES = 8


def choose_method(method: str, shape: Shape) -> str:
    """Resolve ``auto``: residual, or elastic if the join has too many boundaries.

    Residual sensitivity needs up to ``2**n`` boundaries, elastic about ``n**2`` frequencies.
    """
    if method != "auto":
        return method
    return "elastic" if len(shape.attributes) > MAX_RESIDUAL_OCCURRENCES else "residual"


def choose_bound(
    query: JoinQuery,
    settings: Settings,
    delta: Fraction,
    database: Database,
    *,
    use_keys: bool = True,
) -> SensitivityBound:
    """Choose how to bound one aggregate.

    Parameters
    ----------
    query : JoinQuery
        The aggregate.
    settings : Settings
        The settings of the question, such as ``method`` and ``statistics``.
    delta : Fraction
        The aggregate's part of delta; a bound that may fail takes its ``eta`` from it.
    database : Database
        Tells whether statistics are stored and valid, which is public.
    use_keys : bool
        Whether trusted keys may sharpen the bound.

    Raises
    ------
    InvalidParameter
        When the method needs a larger delta.
    MissingDeclaration
        When the method needs statistics or a sketch that nobody stored.
    """
    from dpsql.core.sensitivity import is_public, required

    tick = database.tick
    shape = query.shape()
    if settings.method == "truncation":
        raise InvalidParameter(
            "the method truncation is for privacy units",
            detail="The relations of this question are protected row by row.",
            hint="Use SET dp.method = auto.",
        )
    method = choose_method(settings.method, shape)
    counted = method if method in ("residual", "elastic") else "residual"
    if is_public(shape, counted, use_keys, tick):
        return CountedBound(counted, use_keys, True, required(shape, counted, use_keys, tick))
    if method in SKETCHES:
        return _sketched(query, method, database, use_keys)
    if method in SAMPLING:
        wanted = required(shape, counted, use_keys, tick)
        eta = Fraction(0) if method != "sampling" else _failure(delta, method)
        return SampledBound(
            method, use_keys, settings.sampling_rate, settings.sampling_filter, wanted, eta
        )
    if settings.statistics != "live":
        stored = _stored(query, method, database, use_keys)
        if stored is not None:
            return stored
        if settings.statistics == "stored":
            raise MissingDeclaration(
                "no valid statistics are stored for this question",
                detail="They may never have been taken, or a relation was altered since.",
                hint="Use SET dp.statistics = auto, or let the owner of the data call"
                " dp.keep_statistics with the question and dp.refresh_statistics.",
            )
    return CountedBound(method, use_keys, False, required(shape, method, use_keys, tick))


def _failure(delta: Fraction, method: str) -> Fraction:
    if delta == 0:
        raise InvalidParameter(
            f"the method {method} needs a delta greater than 0",
            detail="It may miss the largest group, with a small probability.",
            hint="Set dp.delta, for example to 1e-8, or use another dp.method.",
        )
    return delta / 2


def _stored(
    query: JoinQuery, method: str, database: Database, use_keys: bool
) -> StoredBound | None:
    from dpsql.core.stale import numbering, required
    from dpsql.statistics.stored import load

    wanted = required(query.shape(), numbering(query), method, use_keys, database.tick)
    find = partial(load, query, wanted)
    return None if find(database) is None else StoredBound(method, use_keys, find)


def _sketched(
    query: JoinQuery, method: str, database: Database, use_keys: bool
) -> SketchedBound | LiveNormsBound:
    from dpsql.core.sketching import promise
    from dpsql.statistics.sketch_parts import hopeless
    from dpsql.statistics.sketches import load

    estimator = SKETCHES[method]
    if any_cut(query):
        return _live_norms(query, method, estimator, use_keys)
    try:
        load(query, database)
    except MissingDeclaration as error:
        reason = hopeless(query, estimator)
        if reason is not None:  # the hint must not advise to build a useless sketch
            error.hint = f"A sketch would be hopeless: {reason}. Use another dp.method."
        raise
    find = partial(_sketch_and_changes, query)
    stored, _ = find(database)
    if stored.sketch.moments is None and estimator == "mean":
        raise MissingDeclaration(
            f"the method {method} needs a sketch of this very join",
            hint="Its owner builds one: SELECT dp.create_sketch('<statement>').",
        )
    size = (stored.sketch.estimators, stored.sketch.rows)
    promised = promise(query.shape(), estimator, *size)
    return SketchedBound(method, use_keys, promised, size, find)


def _sketch_and_changes(query: JoinQuery, database: Database) -> tuple[Stored, tuple[int, ...]]:
    """Read the sketch of a query's relations, and by how many rows each may have grown since."""
    from dpsql.statistics.sketches import load, shifts

    stored = load(query, database)
    gained = shifts(stored, query, database)
    if gained is None:
        raise MissingDeclaration(
            "the changes of a sketched relation are not counted",
            detail="Nobody would know by how many rows it differs from its sketch by now.",
            hint="Let the owner of the data call dp.collect_statistics on each relation of the"
            " question, then dp.create_sketch again.",
        )
    return stored, gained


def _live_norms(query: JoinQuery, method: str, estimator: str, use_keys: bool) -> LiveNormsBound:
    """Use norms that are counted with the answer, or refuse; what can be counted is public."""
    from dpsql.core.sketching import joining
    from dpsql.statistics.norms import MAX_COLUMNS, too_many

    if estimator != "exact_norm":
        far = next(o.relation.shown for o in query.occurrences if is_far(o))
        raise NotAnswerable(
            f"the method {method} needs a sketch that is kept",
            detail=f"Relation {far} has rows on other servers, where changes are not counted.",
            hint="Use SET dp.method = sketch, which counts what it needs, or auto.",
        )
    for index, attributes in enumerate(joining(query.shape())):
        if len(attributes) > MAX_COLUMNS:
            raise too_many(query, index, len(attributes))
    return LiveNormsBound(method, use_keys)
