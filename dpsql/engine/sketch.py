"""Build sketches of the relations of a statement, and build them anew with new seeds.

Counters are functions of protected rows without noise: they stay in tables that nobody but the
server reads, and only owners decide when they are taken (PRIVACY.md sections 2 and 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpsql.engine.prepare import Prepared, prepare, require_built_in, require_rows
from dpsql.engine.progress import Command, Phase, Progress
from dpsql.engine.refresh import unchanged
from dpsql.engine.request import Role
from dpsql.errors import DeclarationsChanged, MissingDeclaration, NotAnswerable, PermissionDenied

if TYPE_CHECKING:
    from dpsql.engine.services import Services

Secret = Callable[[int], bytes]


def create(
    text: str, role: Role, services: Services, secret: Secret, *, estimators: int, rows: int
) -> None:
    """Build the sketch of every counting query of a statement, in place of an older one.

    Raises
    ------
    PermissionDenied
        When the role does not own all relations.
    """
    from dpsql.statistics.sketches import compact

    prepared = prepare(text, None, services)
    _require_owner(prepared, role, services)
    require_rows(prepared.question, "a sketch")
    require_built_in(services.catalog.types_among(prepared.relations), "a sketch of a question")
    _build(prepared, text, services, secret, estimators, rows)
    compact(services.database)
    _warn_if_uncounted(_uncounted(prepared, services), services)
    _warn_if_hopeless(prepared, services)


def _warn_if_hopeless(prepared: Prepared, services: Services) -> None:
    """Tell the owner what ``dp.explain`` will tell of the sketch; public facts."""
    from dpsql.statistics.sketch_parts import hopeless

    for query in prepared.question.aggregates:
        reason = hopeless(query)
        if reason is not None:
            services.warn(
                "the sketch is hopeless",
                f"In this join {reason}.",
                "Use dp.method = auto for such questions; dp.drop_sketch deletes the sketch.",
            )
            return


def _require_owner(prepared: Prepared, role: Role, services: Services) -> None:
    """Refuse a role that does not own every relation, public ones too: it may drop the sketch."""
    used = {o.relation.oid for q in prepared.question.aggregates for o in q.occurrences}
    if not services.catalog.owns(role.oid, sorted(used)):
        raise PermissionDenied(
            "must be owner of all relations of the statement",
            detail="Sketches are made of the rows of relations and kept in the database.",
            hint="Ask the owner of the relations to build the sketch.",
        )


def _build(
    prepared: Prepared, text: str, services: Services, secret: Secret, estimators: int, rows: int
) -> None:
    from dpsql.statistics.sketch_build import build
    from dpsql.statistics.sketch_parts import identity

    # several counts of one statement differ in their filters, which a sketch ignores
    queries = {identity(q.plain): q.plain for q in prepared.question.aggregates}
    for query in queries.values():
        if len(query.occurrences) < 2:
            raise NotAnswerable(
                "a sketch needs a join",
                detail="The sensitivity of a count over one relation is 1.",
                hint="Name a statement that joins relations.",
            )
        progress = Progress.of(services.database, Command.SKETCH, query)
        progress.phase(Phase.SKETCHING)
        with unchanged(prepared.relations, services, prepared.fingerprint):
            build(
                query,
                text,
                services.database,
                estimators=estimators,
                rows=rows,
                secret=secret,
                tell=progress.rounds,
            )
        progress.end()


def rotate(role: Role, services: Services, secret: Secret) -> int:
    """Build all sketches of the role's relations with new seeds; return of how many statements.

    What cannot be built, because a relation was renamed, say, answers nothing any more and is kept
    with a warning: a later rotation may build it.  What is of a dropped relation is deleted.
    """
    from dpsql.statistics.sketches import begin, compact, delete, disable, listed

    begin(services.database)
    done: set[str] = set()
    uncounted: set[str] = set()
    for sketch in listed(services.database):
        if not services.catalog.owns(role.oid, sketch.relations):
            continue
        if sketch.query in done:
            delete(sketch.number, services.database)
            continue
        try:
            prepared = prepare(sketch.query, None, services)
            _require_owner(prepared, role, services)
            _build(prepared, sketch.query, services, secret, sketch.estimators, sketch.rows)
        except DeclarationsChanged:  # what was built is of nobody knows what
            raise
        except (NotAnswerable, MissingDeclaration, PermissionDenied) as error:
            # its old seeds answer nothing, even if all is altered back
            disable(sketch.number, services.database)
            services.warn(
                f"sketch {sketch.number} could not be built anew",
                f"{error.message[:1].upper()}{error.message[1:]}. The sketch is of: {sketch.query}",
                "It answers nothing until a rotation builds it; dp.drop_sketch deletes it, as does"
                " dropping one of its relations.",
            )
            continue
        delete(sketch.number, services.database)  # unless what was built took its place
        done.add(sketch.query)
        uncounted |= _uncounted(prepared, services)
    compact(services.database)
    _warn_if_uncounted(uncounted, services)
    return len(done)


def _uncounted(prepared: Prepared, services: Services) -> set[str]:
    """Name the relations whose changes are not counted: public facts."""
    from dpsql.statistics.sketches import uncounted

    used = {
        o.relation.oid: o.relation.shown
        for q in prepared.question.aggregates
        for o in q.occurrences
    }
    return {used[oid] for oid in uncounted(sorted(used), services.database)}


def _warn_if_uncounted(names: set[str], services: Services) -> None:
    """Tell the owner that what was built answers nothing."""
    if not names:
        return
    relations = f"relation{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"
    services.warn(
        f"no question can use the sketch while changes of {relations} are not counted",
        "Nobody would know by how many rows the data differs from it.",
        "SELECT dp.collect_statistics('<relation>') for each, then build the sketch again.",
    )
