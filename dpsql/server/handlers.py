"""One short function per SQL function: build the ports, call the engine, shape rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from typing import TYPE_CHECKING, Any

from dpsql.errors import (
    InternalError,
    InvalidParameter,
    MissingDeclaration,
    NotAnswerable,
    PermissionDenied,
    SyntaxInvalid,
    UndeclaredRelation,
)
from dpsql.server import settings as read_settings
from dpsql.server.session import Session

if TYPE_CHECKING:
    from dpsql.engine.request import Role, Settings
    from dpsql.engine.services import Services

#: The rows of an answer, as texts.
Rows = list[list[str | None]]


def _of_committed_relations(handler: Callable[..., Rows]) -> Callable[..., Rows]:
    """Say in a refusal of an asker whose transaction wrote what is not seen of that."""

    @wraps(handler)
    def called(*arguments: Any, wrote: bool, **named: Any) -> Rows:
        try:
            return handler(*arguments, wrote=wrote, **named)
        except (UndeclaredRelation, SyntaxInvalid, MissingDeclaration) as error:
            if wrote:
                hint = "If this transaction made or declared it, COMMIT first."
                error.hint = f"{hint} {error.hint}" if error.hint else hint
            raise

    return called


@_of_committed_relations
def serve(
    plpy: Any,
    session: Session,
    *,
    wanted: str,
    query: str | None,
    parameters: Sequence[str | None] | None,
    arguments: str | None,
    asker: int,
    wrote: bool,
    settings: str,
) -> Rows:
    """``dp.serve``: what a service session does for the backend that asks."""
    import json

    services = session.services(plpy, asker=asker, wrote=wrote)
    text, given = _text(query), json.loads(arguments or "null")
    if wanted == "purge_answers":
        return [[str(services.ledger.purge()), None, None, "False"]]
    if wanted == "share_release":
        from dpsql.engine.publish import charge_share

        spend = charge_share(given, services)
        return [[str(spend), None, None, str(session.charged)]]
    if wanted in ("measure_release", "measure_synthesis"):
        # the asking backend has told what there was to tell before the charge
        services.warn = session.once_charged(services.warn)
        services.note = session.once_charged(services.note)
        role, own = read_settings.said(services.database, given["settings"])  # type: ignore[arg-type]
        if wanted == "measure_release":
            measured = _measure_release(text, given, role, own, services)
        else:
            measured = _measure_synthesis(given, role, own, services)
        return [[*measured, str(session.charged)]]
    role, own = read_settings.given(services.database, settings)  # type: ignore[arg-type]
    if wanted == "run":
        return _run(text, parameters, role, own, services)
    if wanted == "run_json":
        return _run_json(text, given, role, own, services)
    if wanted == "explain_query":
        return _explain(text, role, own, services)
    if wanted == "estimate_query":
        return _estimate(text, role, own, services)
    raise InternalError(f"a service session does not {wanted}")


def _run(
    text: str,
    parameters: Sequence[str | None] | None,
    role: Role,
    settings: Settings,
    services: Services,
) -> Rows:
    """``dp.run``: rows in the order and number of the statement's columns."""
    from dpsql.engine.answer import answer

    return _as_texts(answer(text, parameters, role, settings, services)[1])


def _run_json(
    text: str, level: str | None, role: Role, settings: Settings, services: Services
) -> Rows:
    """``dp.run_json``: one JSON object per row, with intervals of that level unless it is NULL."""
    import json

    from dpsql.engine.answer import answer

    if level is not None:
        settings = settings.with_intervals(level)
    prepared, rows = answer(text, None, role, settings, services, intervals=level is not None)
    names = _distinct([column.name for column in prepared.question.columns])
    return [[json.dumps(dict(zip(names, row, strict=True)), default=str)] for row in rows]


def _explain(text: str, role: Role, settings: Settings, services: Services) -> Rows:
    """``dp.explain_query``: (item, value) rows; charges nothing, reads no protected row."""
    from dpsql.engine.explain import explain

    return _as_texts(explain(text, role, settings, services))


def _estimate(text: str, role: Role, settings: Settings, services: Services) -> Rows:
    """``dp.estimate_query``: cost and error of each aggregate; charges nothing."""
    from dpsql.engine.estimate import estimate

    return _as_texts(line.row() for line in estimate(text, role, settings, services))


def _measure_release(
    text: str, given: Mapping[str, Any], role: Role, settings: Settings, services: Services
) -> list[str | None]:
    """``dp.release``: charge and measure; returns the charge, the time and what was measured."""
    from dpsql.engine.release import release
    from dpsql.engine.release_measure import dump
    from dpsql.engine.release_terms import Terms

    terms, key = Terms.of(*given["terms"]), given["key"]
    found = release(text, terms, role, settings, services, _at_once, key=key)
    when = None if found.measured_at is None else found.measured_at.isoformat()
    return [str(found.spend), when, dump(found.measured, whole=True)]


def _measure_synthesis(
    given: Mapping[str, Any], role: Role, settings: Settings, services: Services
) -> list[str | None]:
    """``dp.synthesize``: charge and measure; returns as `_measure_release` does."""
    from dpsql.engine.synthesize import Wish, measured

    asked: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given["wish"].items()
    }
    found = measured(Wish(**asked), role, settings, services, _at_once, given["key"])
    return [str(found.spend), None, found.dump()]


def _at_once(work: Callable[[], Any]) -> Any:
    """Read in the transaction's one snapshot, as all of a service session's that read do."""
    return work()


def _as_texts(rows: Iterable[Sequence[object]]) -> list[list[str | None]]:
    """Write rows as PL/Python makes one array of texts of them."""
    return [[_as_text(value) for value in row] for row in rows]


def _as_text(value: object) -> str | None:
    """Write a value so that its type's input function reads it back under any setting."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, (bool, int, float, Decimal)):
        return str(value)
    if isinstance(value, list):
        return "{" + ",".join(_element(part) for part in value) + "}"
    raise InternalError(f"a result column is a {type(value).__name__}")


def _element(value: object) -> str:
    """Write an element of an array."""
    text = _as_text(value)
    if text is None or isinstance(value, list):
        return text or "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _distinct(names: list[str]) -> list[str]:
    """Make names distinct by numbers, so that no value is lost in a JSON object."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def sensitivity(
    plpy: Any,
    session: Session,
    *,
    query: str,
    method: str,
    beta: float,
    use_keys: bool,
) -> float:
    """``dp.sensitivity_of``: the smooth sensitivity itself, for owners only."""
    from dpsql.engine.inspect import sensitivity as inspect_sensitivity

    services = session.services(plpy)
    role, settings = read_settings.read(services.database)  # type: ignore[arg-type]
    session.touched = True
    return inspect_sensitivity(
        _text(query), role, settings, services, method=method, beta=beta, use_keys=use_keys
    )


def purge_answers(plpy: Any, session: Session) -> int:
    """``dp.purge_answers``: delete stored answers that have expired, for administrators."""
    services = session.services(plpy)
    if not services.database.execute("select dp.caller_administers() as administers")[0][0]:
        raise PermissionDenied(
            "permission denied",
            detail="Only members of dp_owner may delete stored answers.",
            hint="Ask a superuser for GRANT dp_owner TO <role>.",
        )
    return session.elsewhere("purge_answers", "", {}).spend


def create_sketch(plpy: Any, session: Session, *, query: str, estimators: int, rows: int) -> None:
    """``dp.create_sketch_of``: sketches of the relations of a query, for owners only."""
    from dpsql.core.rng import secret
    from dpsql.engine.sketch import create

    services = session.services(plpy)
    role, _ = read_settings.read(services.database)  # type: ignore[arg-type]
    session.touched = True
    create(_text(query), role, services, secret, estimators=estimators, rows=rows)


def rotate_sketch_seeds(plpy: Any, session: Session) -> int:
    """``dp.rotate_sketch_seeds``: the caller's sketches anew, with new seeds."""
    from dpsql.core.rng import secret
    from dpsql.engine.sketch import rotate

    services = session.services(plpy)
    role, _ = read_settings.read(services.database)  # type: ignore[arg-type]
    session.touched = True
    return rotate(role, services, secret)


def measure_statistics(plpy: Any, session: Session, *, relation: int, questions: str) -> str:
    """``dp.measure_statistics``: what one refresh counts, as JSON; its caller checked who asks."""
    import json

    from dpsql.engine.refresh import measure

    services = session.services(plpy)
    session.touched = True
    return json.dumps(measure(int(relation), json.loads(questions), services))


def question_relations(plpy: Any, session: Session, *, query: str) -> list[int]:
    """``dp.question_relations``: the relations of a question that is to be kept."""
    from dpsql.engine.refresh import relations

    services = session.services(plpy)
    role, _ = read_settings.read(services.database)  # type: ignore[arg-type]
    return relations(_text(query), role, services)


def require_flat(plpy: Any, session: Session, *, query: str) -> None:
    """``dp.require_flat``: refuse what no question can read."""
    from dpsql.query.pipeline import require_flat as require

    require(query, session.services(plpy).catalog)


def release(
    plpy: Any, session: Session, *, name: str | None, query: str, terms: Sequence[Any]
) -> str:
    """``dp.release_query``: measure a workload, publish it, return the table's name."""
    from dpsql.engine.publish import publish
    from dpsql.engine.release_terms import Terms

    services = session.services(plpy)
    role, settings = read_settings.read(services.database, capped=False)  # type: ignore[arg-type]
    named = _text(name, "name")
    return publish(
        named, _text(query), Terms.of(*terms), role, settings, services, session.in_snapshot
    )


def measure_release(plpy: Any, session: Session) -> bool:
    """``dp.measure_release``: what `Session.in_snapshot` was given, in the caller's snapshot."""
    del plpy
    session.run_pending()
    return True


def read_together(plpy: Any, session: Session) -> bool:
    """``dp.read_together``: what waits, in the snapshots of one moment on several servers."""
    del plpy
    session.run_pending()
    return True


def read_as_owner(plpy: Any, session: Session) -> bool:
    """``dp.read_as_owner``: what `Session.as_owner` was given, with the rights of an owner."""
    del plpy
    session.run_pending()
    return True


def refresh_release(plpy: Any, session: Session, *, name: str | None) -> str:
    """``dp.refresh_release_query``: measure again, pay again, replace the table."""
    from dpsql.engine.publish import refresh

    services = session.services(plpy)
    role, settings = read_settings.read(services.database, capped=False)  # type: ignore[arg-type]
    return refresh(_text(name, "name"), role, settings, services, session.in_snapshot)


def share_release(plpy: Any, session: Session, *, name: str | None, role: int | None) -> None:
    """``dp.share_release_with``: let a role read a release, and charge it."""
    from dpsql.engine.publish import share

    share(_text(name, "name"), int(_text(role, "role")), session.services(plpy))


def plan_release(
    plpy: Any, session: Session, *, query: str, terms: Sequence[Any]
) -> list[list[str | None]]:
    """``dp.plan_release_query``: cost and error of every mechanism; charges nothing."""
    from dpsql.engine.release_plan import plan
    from dpsql.engine.release_terms import Terms

    services = session.services(plpy)
    _, settings = read_settings.read(services.database, capped=False)  # type: ignore[arg-type]
    return _as_texts(plan(_text(query), Terms.of(*terms), settings, services))


def synthesize(
    plpy: Any,
    session: Session,
    *,
    target: str | None,
    relations: Sequence[int | None] | None,
    budget: Sequence[str | None],
    method: str | None,
    numbers: Sequence[str | None],
    without: Sequence[str | None] | None,
    bins: int | None,
    placeholders: bool | None,
    replace: bool | None,
) -> int:
    """``dp.synthesize_query``: measure what synthetic tables are made of; the job's number."""
    from dpsql.engine.synthesize import Wish, synthesize

    services = session.services(plpy)
    role, settings = read_settings.read(services.database, capped=False)  # type: ignore[arg-type]
    wish = Wish(
        _text(target, "target"),
        tuple(int(_text(oid, "relations")) for oid in _text(relations, "relations")),
        budget[0],
        budget[1],
        _text(method, "method").lower(),
        numbers[0],
        numbers[1],
        tuple(_text(name, "without") for name in without or ()),
        int(_text(bins, "bins")),
        bool(placeholders),
        bool(replace),
    )
    return synthesize(wish, role, settings, services, session.in_snapshot)


def synthesis_step(plpy: Any, session: Session, *, job: int | None) -> bool:
    """``dp.synthesis_step``: the next part of a synthesis, with the caller's rights."""
    from dpsql.engine.synthesis_write import step
    from dpsql.server.spi import sqlstate

    services = session.services(plpy)
    number = int(_text(job, "job"))
    try:
        return step(number, services, session.syntheses)
    except plpy.SPIError as error:
        state = sqlstate(error)
        if state[:2] in ("PD", "40", "57"):
            raise
        # nothing but noisy numbers and public facts was read
        raise NotAnswerable(
            "the synthetic tables could not be written",
            detail=f"{error}.",
            hint=f"What was measured is kept: CALL dp.write_synthesis({number}); goes on once the"
            " cause is gone.",
        ) from None


def synthesis_report(
    plpy: Any, session: Session, *, target: str | None, true_data: bool | None
) -> list[list[str | None]]:
    """``dp.synthesis_report``: how good a synthetic copy is, with the caller's rights."""
    from dpsql.engine.synthesis_copies import read_copies
    from dpsql.engine.synthesis_report import report
    from dpsql.relation import show_name
    from dpsql.server.spi import sqlstate

    services = session.services(plpy)
    schema, exact = _text(target, "target"), bool(_text(true_data, "true_data"))
    try:
        copies = read_copies(schema, exact, services)
        session.touched = session.touched or exact
        found = report(copies, services, true_data=exact, as_owner=session.as_owner)
        return _as_texts(line.row() for line in found)
    except plpy.SPIError as error:
        if session.touched or sqlstate(error)[:2] in ("PD", "40", "57"):
            raise
        raise NotAnswerable(
            "the synthetic tables could not be read",
            detail=f"{error}.",
            hint="They are read with your rights: whoever made them can GRANT USAGE ON SCHEMA"
            f" {show_name(schema)} and GRANT SELECT ON ALL TABLES IN SCHEMA {show_name(schema)}.",
        ) from None


def _text(query: Any, parameter: str = "query") -> Any:
    if query is None:
        raise InvalidParameter(f'parameter "{parameter}" must not be null')
    return query
