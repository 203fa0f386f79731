"""Release a workload: pay once, publish a table that costs nothing to read.

`release` reads: admit, look for a stored answer, choose a strategy, debit, measure in one snapshot,
keep what was measured, publish.  The strategy is a function of the workload and of public levels
(PRIVACY.md section 8); the charge is durable before any protected row is read (section 7); what is
published is a function of the noisy measurements (section 2).
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from dpsql._version import __version__
from dpsql.engine.methods.base import PROVED
from dpsql.engine.prepare import (
    DEFAULT_COLLATION,
    check_collations,
    confirm_read,
    meet,
    meet_again,
    names_of,
)
from dpsql.engine.progress import Command, Phase, Progress
from dpsql.engine.release_domain import Released, build
from dpsql.engine.release_price import Priced, choose, told
from dpsql.engine.release_terms import Terms
from dpsql.engine.request import Role, Settings
from dpsql.engine.whose import address
from dpsql.errors import (
    DeclarationsChanged,
    DpsqlError,
    InvalidParameter,
    LedgerUnavailable,
    NotAnswerable,
)
from dpsql.ledger.model import Charge, Hit
from dpsql.relation import base

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from dpsql.engine.services import Services
    from dpsql.model import JoinQuery
    from dpsql.query.asked import WorkloadQuestion
    from dpsql.relation import UnitPath
    from dpsql.workload.matrix import Floats

_TEXTS = ("text", "character varying", "character", "bpchar", "name", "varchar", "char")
#: Which relations are protected or public, and since when they are as they are.
_POLICIES = """
select string_agg(concat_ws(' ', p.relation::oid, p.kind, p.root,
                            extract(epoch from p.declared_at)),
                  ', ' order by p.relation::oid) as policies
  from dp.policy as p where p.relation::oid = any ($1) or p.root = any ($2)
"""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A statement that can be released, over public levels."""

    text: str
    released: Released
    relations: tuple[int, ...]
    fingerprint: str
    policies: str
    rows: int

    @property
    def question(self) -> WorkloadQuestion:
        """What is asked."""
        return self.released.question


def admit(
    text: str,
    terms: Terms,
    settings: Settings,
    services: Services,
    ways: Sequence[UnitPath] = (),
) -> Admitted:
    """Validate a statement and read its public levels; touches no protected row.

    ``ways`` are those of `dpsql.query.units.attribute_units`.
    """
    from dpsql.query.workloads import analyse_workload

    analysis = services.catalog.analyze(text)
    try:
        question = analyse_workload(analysis, services.catalog, ways)
    except DpsqlError as error:
        address(error, services)
        if isinstance(error, NotAnswerable):
            error.query = str(analysis["sql"])
        raise
    if set(analysis["collations"]) - {0, DEFAULT_COLLATION}:
        check_collations([question.counted], services)
        _require_own_collation(question)
    _, relations = names_of(analysis, services)
    fingerprint = services.catalog.fingerprint(relations)
    policies = services.database.execute(
        _POLICIES, [("oid[]", list(relations)), ("int4[]", list(question.roots))]
    )
    rows = _rows_of_a_unit(question, settings)
    released = build(question, terms.weights, services.database)
    services.catalog.confirm(relations, fingerprint)
    told = str(policies[0][0])
    return Admitted(str(analysis["sql"]), released, relations, fingerprint, told, rows)


def cuts_off(query: JoinQuery) -> bool:
    """Tell whether a privacy unit can have more results than one, of which some count."""
    return query.unit is not None and not query.one_per_unit


def _require_own_collation(question: WorkloadQuestion) -> None:
    """Refuse what depends on an order of texts that levels, which are constants, do not have."""
    asked = {p.key for s in question.sets for p in s.parts if p.form.kind != "levels"}
    read = {k for s in question.sets for p in s.where for c in p.either for k in c.keys}
    for n in sorted(asked | read):
        key = question.keys[n]
        if base(key.type_name) in _TEXTS:
            raise NotAnswerable(
                f"the release looks at {key.name} in an order of texts of its own",
                detail="A relation of the statement has texts with a collation that is not the"
                " database's; prefixes, ranges and conditions of one query of several would"
                " count by the database's.",
                hint="Group by it level by level, and put conditions into a release of their own.",
            )


def _rows_of_a_unit(question: WorkloadQuestion, settings: Settings) -> int:
    """Bound what one neighbour more or less changes: rows, or results of a privacy unit."""
    if not cuts_off(question.counted):
        return 1
    chosen = int(settings.max_rows_contributed)
    if not chosen:
        raise InvalidParameter(
            "a privacy unit can have any number of rows in this release",
            detail="Noise must hide all of them, so that their number has to be bounded.",
            hint="SET dp.max_rows_contributed = 10, for example: of each unit as many rows count.",
        )
    return chosen


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured, with all that the published table is made of."""

    admitted: Admitted
    priced: Priced
    measured: list[Floats]
    spend: int
    terms: Terms
    progress: Progress
    measured_at: datetime | None

    @property
    def postprocess(self) -> str:
        """What is made of the numbers that were measured."""
        return self.terms.postprocess


def release(
    text: str,
    terms: Terms,
    role: Role,
    own: Settings,
    services: Services,
    in_snapshot: Callable[[Callable[[], Any]], Any],
    ready: Callable[[Released], None] = lambda _: None,
    key: str | None = None,
) -> Outcome:
    """Measure a workload privately, or find it measured.

    Parameters
    ----------
    text : str
        The statement, as ``dp.deparse`` printed it.
    terms : Terms
        Budget and mechanism.
    role : Role
        Who pays.
    own : Settings
        The session's.
    services : Services
        The ports.
    in_snapshot : callable
        Runs a function whose reads all see one snapshot.
    ready : callable
        May refuse to publish such a workload, before anything is charged.
    key : str, optional
        The key of the charge, if another session has planned the release.

    Raises
    ------
    DpsqlError
        Nothing is spent unless it is `ReleaseFailed` or says so.
    """
    when: datetime | None
    settings = terms.settings(own)
    settled = terms.settled(settings)
    admitted = _admitted(lambda: admit(text, terms, settings, services), in_snapshot)
    ready(admitted.released)
    progress = Progress.of(services.database, Command.RELEASE, admitted.question.counted)
    found, refused = choose(admitted, terms, settings, services, progress)
    if not found:
        raise NotAnswerable(
            "no mechanism can answer this workload",
            detail=told(refused),
            hint="SELECT * FROM dp.plan_release('...') says what each mechanism can do.",
        )
    priced = found[0]
    priced.mechanism.tick = services.database.tick
    if terms.postprocess != "none":
        from dpsql.workload.postprocessed import require_postprocessing

        require_postprocessing(priced.mechanism, terms.postprocess)
    from dpsql.engine.release_measure import dump, load, measure

    if services.elsewhere is not None:
        progress.pass_on()
        key = _key(admitted, priced).hex()
        wanted = {"terms": astuple(settled), "settings": own.texts(), "key": key}
        found_there = services.elsewhere("measure_release", text, wanted)
        progress.phase(Phase.PUBLISHING)
        measured = load(found_there.payload, priced.mechanism)
        if found_there.charged:
            mechanism = priced.mechanism
            progress.budget(mechanism.loss, mechanism.loss, mechanism.budget.order)
        spend, when = found_there.spend, found_there.taken_at
        return Outcome(admitted, priced, measured, spend, settled, progress, when)
    relations = sorted({o.relation.oid for o in admitted.question.counted.occurrences})
    met = (relations, admitted.relations, admitted.fingerprint, services)
    meet(*met)
    charge = _charge(admitted, priced, role, settings)
    require_same(key, charge)
    opened = services.ledger.open(charge)
    if isinstance(opened, Hit):
        measured = load(opened.payload, priced.mechanism)
        when = opened.taken_at
        return Outcome(admitted, priced, measured, opened.spend, settled, progress, when)
    read = False
    try:
        meet_again(*met)
        read = True
        progress.phase(Phase.MEASURING)
        measured = in_snapshot(lambda: measure(admitted, priced, services, progress))
        confirm_read(admitted.relations, admitted.fingerprint, services)
        progress.phase(Phase.PUBLISHING)
    except BaseException as error:
        services.give_up(opened, error, read=read)
        raise
    when = None
    try:
        when = services.store(opened, lambda: dump(measured))
    except LedgerUnavailable:
        services.warn(
            "what was measured could not be stored",
            "The release was charged and is published; the ledger went away meanwhile.",
            "Keep the table: releasing the same again is charged again.",
        )
    return Outcome(admitted, priced, measured, opened.spend, settled, progress, when)


def require_same(key: str | None, charge: Charge) -> None:
    """Refuse to measure what another session, of an older snapshot, has planned otherwise."""
    if key is not None and charge.key.hex() != key:
        raise DeclarationsChanged(
            "a relation or a declaration has changed meanwhile",
            detail="It is measured as it is now, not as this transaction sees it.",
        )


def _admitted(
    work: Callable[[], Admitted], in_snapshot: Callable[[Callable[[], Any]], Any]
) -> Admitted:
    """Admit in one snapshot: what is declared and the fingerprint are of one state."""

    def kept() -> Admitted | DpsqlError:
        try:
            return work()
        except DpsqlError as error:  # which would lose its place in the text on its way out
            return error

    found = in_snapshot(kept)
    if isinstance(found, DpsqlError):
        raise found
    admitted: Admitted = found
    return admitted


def _charge(admitted: Admitted, priced: Priced, role: Role, settings: Settings) -> Charge:
    return Charge(
        role=role.oid,
        role_name=role.name,
        roots=admitted.question.roots,
        epsilon=priced.epsilon,
        delta=priced.delta,
        rho=priced.rho,
        rho_delta=priced.rho_delta,
        mechanism=priced.noise,
        method=priced.mechanism.name,
        label=PROVED,
        question=admitted.text,
        key=_key(admitted, priced),
        fresh=settings.fresh,
        what="release",
        objects=admitted.relations,
        token=hashlib.sha256(_read(admitted).encode()).digest(),
    )


def _read(admitted: Admitted) -> str:
    """Return what of the fingerprint outlives domains that are not read, and rows."""
    return admitted.fingerprint.rpartition("#")[0].partition("|")[2]


def _key(admitted: Admitted, priced: Priced) -> bytes:
    """Return what determines the law of the measurements, of what they cost, and of their form.

    Of domains only the levels that are read take part: the fingerprint's first part, which tells
    of all of a relation, does not (PRIVACY.md section 7: policy and domain versions).
    """
    mechanism = priced.mechanism
    parts = (
        "release",
        __version__,
        _read(admitted),
        admitted.policies,
        admitted.question.block,
        repr([level.lookups for level in admitted.released.attributes]),
        mechanism.name,
        repr(mechanism.budget),
        repr(mechanism.measurements),
        mechanism.identity,
        repr(admitted.question.roots),
        str(priced.epsilon),
        str(priced.delta),
    )
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
