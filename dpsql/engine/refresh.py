"""Take statistics: maximum frequencies of a relation, boundaries of kept questions.

Everything is counted in the one snapshot of the calling statement and is as secret as the rows;
it is only stored, for answers to come (PRIVACY.md section 4, "Stale statistics").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpsql.engine.methods.choose import choose_method
from dpsql.engine.prepare import require_built_in
from dpsql.engine.progress import Command, Phase, Progress
from dpsql.errors import DpsqlError, InternalError, PermissionDenied, UnsupportedConstruct
from dpsql.model import Boundary, JoinQuery, Question
from dpsql.relation import Relation

if TYPE_CHECKING:
    from dpsql.engine.request import Role
    from dpsql.engine.services import Services


def measure(
    relation: int, questions: Sequence[dict[str, Any]], services: Services
) -> list[dict[str, Any]]:
    """Count all statistics of a refresh.

    Parameters
    ----------
    relation : int
        OID of a declared relation.
    questions : sequence of dict
        Kept questions that read it: ``id``, ``relations`` and ``role``, who keeps it and with
        whose rights the text is analysed.
    services : Services
        The ports.

    Returns
    -------
    list of dict
        ``kept`` (the question's id, ``None`` for frequencies), ``kind``, ``identity``, ``value``.
        A question that cannot be analysed any more has none.

    Raises
    ------
    DeclarationsChanged
        When one of the relations or its declaration changed meanwhile.
    """
    progress = Progress(services.database, Command.REFRESH, [relation], 1)
    progress.phase(Phase.FREQUENCIES)
    schema, name = _name(relation, services)
    found = services.catalog.relation(schema, name)
    if found is None:
        raise InternalError("a relation that is refreshed is not declared")
    oids = {relation, *(int(oid) for question in questions for oid in question["relations"])}
    with unchanged(sorted(oids), services):
        return _measure(relation, found, questions, services, progress)


@contextmanager
def unchanged(oids: Sequence[int], services: Services, token: str | None = None) -> Iterator[None]:
    """Refuse what was counted if anything was swapped under a name meanwhile, as for answers.

    ``token`` is the fingerprint of ``oids`` when their names were looked up, by default the one
    of this statement's snapshot.  A name that led nowhere while counting is the same refusal.

    Raises
    ------
    DeclarationsChanged
        When a relation or a declaration has changed.
    """
    token = services.catalog.fingerprint(oids) if token is None else token
    services.catalog.confirm(oids, token)
    try:
        yield
    except DpsqlError:
        raise
    except Exception:
        services.catalog.confirm(oids, token)
        raise
    services.catalog.confirm(oids, token)


def _measure(
    relation: int,
    found: Relation,
    questions: Sequence[dict[str, Any]],
    services: Services,
    progress: Progress,
) -> list[dict[str, Any]]:
    from dpsql.statistics.frequencies import frequencies

    services.database.before_reading([relation])
    rows: list[dict[str, Any]] = [
        {"kept": None, "kind": "frequency", "identity": identity, "value": str(value)}
        for identity, value in frequencies(found, services.database, progress.rounds).items()
    ]
    progress.phase(Phase.BOUNDARIES, len(questions))
    for done, question in enumerate(questions, 1):
        for identity, value in _boundaries(question, services).items():
            kept = int(question["id"])
            rows.append(
                {"kept": kept, "kind": "boundary", "identity": identity, "value": str(value)}
            )
        progress.rounds(done)
    return rows


def relations(text: str, role: Role, services: Services) -> list[int]:
    """Return the relations of a question whose boundaries can be kept.

    Raises
    ------
    PermissionDenied
        When the role does not own all of them.
    UnsupportedConstruct
        When the question reads nothing private, or joins on expressions.
    """
    from dpsql.statistics.stored import identity

    analysis = services.catalog.analyze(text)
    require_built_in(analysis["types"], "statistics cannot be kept of a question")
    question = _question(analysis, services)
    queries = _private(question)
    if not queries:
        raise UnsupportedConstruct(
            "the question reads no protected relation",
            hint="Statistics are kept of questions with dp_count over protected relations.",
        )
    oids = sorted({o.relation.oid for query in queries for o in query.occurrences})
    if not services.catalog.owns(role.oid, oids):
        raise PermissionDenied(
            "only the owner of all relations of a question may keep its statistics",
            hint="Let their owners grant you their role, or keep statistics of fewer relations.",
        )
    for query in queries:
        if any(identity(query, b) is None for b in _wanted(query, services)):
            raise UnsupportedConstruct(
                "statistics cannot be kept of joins on expressions",
                hint="Join on plain columns.",
            )
    return oids


def _boundaries(question: dict[str, Any], services: Services) -> dict[str, int]:
    """Count the boundaries of one kept question, without its filters."""
    from dpsql.statistics.counts import count
    from dpsql.statistics.stored import identity, unfiltered

    try:
        analysed = _question(services.catalog.analyze_kept(int(question["id"])), services)
    except DpsqlError:  # a relation was renamed, say: its question has no statistics until then
        return {}
    # a name can have passed to another relation: what is counted is what was kept, by an owner
    oids = sorted({o.relation.oid for q in _private(analysed) for o in q.occurrences})
    keeper = int(question["role"])
    if oids != sorted(question["relations"]) or not services.catalog.owns(keeper, oids):
        return {}
    found: dict[str, int] = {}
    for query in _private(analysed):
        services.database.before_reading(sorted({o.relation.oid for o in query.occurrences}))
        bare = unfiltered(query)
        boundaries = _wanted(bare, services)
        counts = count(bare, boundaries, services.database, answer=False).boundaries
        for boundary in boundaries:
            name = identity(bare, boundary)
            if name is not None:
                found[name] = counts[boundary]
    return found


def _question(analysis: Mapping[str, Any], services: Services) -> Question:
    from dpsql.query.pipeline import analyse

    return analyse(analysis, services.catalog)


def _wanted(query: JoinQuery, services: Services) -> frozenset[Boundary]:
    """List the boundaries of elastic sensitivity and, unless too many, of residual."""
    from dpsql.statistics.stored import wanted

    methods = {"elastic", choose_method("auto", query.shape())}
    return wanted(query, sorted(methods), services.database.tick)


def _private(question: Question) -> list[JoinQuery]:
    plain = dict.fromkeys(query.plain for query in question.aggregates)
    return [query for query in plain if query.shape().private_count]


def _name(relation: int, services: Services) -> tuple[str, str]:
    rows = services.database.execute(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.oid = $1",
        (("oid", relation),),
    )
    if not rows:
        raise InternalError("a relation that is refreshed does not exist")
    return str(rows[0][0]), str(rows[0][1])
