"""Run a trial (a hostile session and its questions) on both twins, and compare what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.server.fuzzing.running import Outcome, Session
from tests.server.hostile.questions import Question
from tests.server.hostile.shapes import Shape, gone
from tests.server.hostile.ways import PLAIN, Way
from tests.server.hostile.world import LOCK, SPY
from tests.server.in_service import everywhere
from tests.server.spying import NUMBER

#: Settings of every session: each question is paid and reads rows, and no group of one row is shown.
FIRST = ("set dp.epsilon = 0.001", "set dp.fresh = on", "set dp.delta = 1e-12")
#: The name of a session's temporary schema contains a number.
TEMP = re.compile(r"\bpg_temp_\d+")
#: Resets the settings of one question before the next.
AFTER = "set dp.fresh = on; reset dp.method; reset role"
SPENT = """
select id, epsilon::text, delta::text, mechanism, method, label, state, role_name from dp.spend where id > %s order by id
"""
REFUSED = "select role, sqlstate, reason, sum(refused)::int from dp.refusals group by 1, 2, 3"


@dataclass(frozen=True, slots=True)
class Trial:
    """Shapes with their steps, a way, and questions that are asked one after the other in one session."""

    shapes: tuple[tuple[Shape, float], ...]
    questions: tuple[Question, ...]
    way: Way = PLAIN
    patch: str = ""

    @property
    def shared(self) -> bool:
        return any(shape.shared for shape, _ in self.shapes)

    def begun(self) -> list[str]:
        """Return what is sent before the first question."""
        ordered = sorted(self.shapes, key=lambda pair: pair[0].transaction)
        return [*FIRST, *(text for shape, step in ordered for text in shape.before(step))]

    def asked(self, number: int, run: int) -> tuple[list[str], str]:
        """Return what is sent for one question, and the asking statement."""
        question, way = self.questions[number], self.way
        text = question.text.replace("{n}", f"{run}_{number}")
        if not text.startswith(("select", "(select")) and not way.any:
            way = PLAIN
        before = [*question.settings, *(way.of(each, text, number) for each in way.before)]
        statement = way.of(way.ask, text, number)
        for shape, step in self.shapes:
            statement = shape.wrap(statement, step)
        return before, statement

    @property
    def name(self) -> str:
        hostile = " + ".join(f"{shape.name} {step:g}" for shape, step in self.shapes)
        return (
            f"{hostile or 'as it is'}; {self.way.name}; {', '.join(q.name for q in self.questions)}"
        )


@dataclass(frozen=True, slots=True)
class Told:
    """All that one statement shows to the spy, with the numbers of answers masked."""

    statement: str
    state: str
    words: tuple[tuple[str, str], ...] = ()
    columns: tuple[Any, ...] = ()
    said: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, statement: str, found: Outcome, name: str) -> Told:
        def masked(lines: Sequence[str]) -> tuple[str, ...]:
            return tuple(NUMBER.sub("#", line.replace(name, "here")) for line in lines)

        words = {
            key: TEMP.sub("pg_temp", text.replace(name, "here"))
            for key, text in found.words.items()
        }
        return cls(
            statement,
            "lost" if found.lost else found.state,
            tuple(sorted(words.items())),
            tuple(tuple(part) for part in found.columns),
            masked(found.said),
            masked(found.notices),
        )

    def short(self) -> str:
        words = dict(self.words)
        message = " ".join([self.state, words.get("message", ""), words.get("detail", "")]).strip()
        told = message or f"{len(self.said)} rows, {' | '.join(self.said)[:100]}"
        return told + (
            f", notices {' | '.join(n[:100] for n in self.notices[:3])}" * bool(self.notices)
        )


@dataclass(slots=True)
class Seen:
    """All that one twin showed, charged and refused."""

    told: list[Told] = field(default_factory=list)
    asked: list[Told] = field(default_factory=list)
    charged: list[Any] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)

    #: The number that the last statement returned; used for `Shape.holds`.
    number: int = 0

    def states(self) -> list[str]:
        return [each.state for each in self.asked]


@dataclass(slots=True)
class Difference:
    """A difference between the twins."""

    trial: Trial
    what: str
    statements: list[str]

    def __str__(self) -> str:
        lines = [f"{text[:2000]};" for text in self.statements]
        return "\n".join([self.trial.name, self.what, *("    " + line for line in lines)])


class Pair:
    """The twins, with a connection to each that reads its ledger."""

    def __init__(self, twins: tuple[Any, Any]) -> None:
        self.twins = twins
        self.admins = [database.connect() for database in twins]
        self.both = ThreadPoolExecutor(2)
        self.runs = 0
        self.levels: dict[str, int] = {}
        self.locked = False

    def lock(self, locked: bool = True) -> None:
        """Call `dp.lockdown()` in both databases, or undo it."""
        if locked == self.locked:
            return
        for database, admin in zip(self.twins, self.admins, strict=True):
            admin.execute(LOCK.format(database.name) if locked else "select dp.unlock()")
        self.locked = locked

    def close(self) -> None:
        self.both.shutdown()
        for admin in self.admins:
            admin.close()

    def run(self, trial: Trial) -> tuple[Seen, Seen]:
        """Run a trial on both twins, concurrently unless it uses up what they share."""
        self.runs += 1
        if trial.shared:
            first, second = (self._one(place, trial) for place in (0, 1))
        else:
            first, second = self.both.map(lambda place: self._one(place, trial), (0, 1))
        return first, second

    def alone(self, trial: Trial) -> Seen:
        """Run a trial on the twin without the planted rows."""
        self.runs += 1
        return self._one(0, trial)

    def _one(self, place: int, trial: Trial) -> Seen:
        database, admin = self.twins[place], self.admins[place]
        (last,) = admin.execute("select coalesce(max(id), 0) from dp.spend").fetchone()
        refused = dict(self._refusals(admin))
        seen, undo = Seen(), ExitStack()
        session = opened(database, trial.patch)

        def send(statement: str) -> Told:
            outcome = session.send(statement, settle=False)
            if outcome.said and outcome.said[0].isdecimal():
                seen.number = int(outcome.said[0])
            found = Told.of(statement, outcome, database.name)
            seen.told.append(found)
            return found

        try:
            for statement in trial.begun():
                send(statement)
            for shape, step in trial.shapes:
                if shape.outside:
                    undo.callback(
                        shape.outside(database, session.connection.info.backend_pid, step)
                    )
            for number in range(len(trial.questions)):
                before, statement = trial.asked(number, self.runs)
                inside = session.connection.pgconn.transaction_status == 2
                if inside:
                    send(
                        "savepoint asking"
                    )  # a statement that fails ends the transaction otherwise
                for text in before:
                    send(text)
                seen.asked.append(send(statement))
                if seen.asked[-1].state == "lost":
                    break
                send("rollback to asking; release asking" if inside else "rollback")
                send(AFTER)
        finally:
            pid = session.connection.info.backend_pid
            session.connection.close()
            undo.close()
            if trial.shared:
                gone(pid)  # after its service session
        database._open.remove(session.connection)
        seen.charged = [row[1:] for row in admin.execute(SPENT, [last]).fetchall()]
        after = dict(self._refusals(admin))
        seen.refused = sorted(
            (*key, n - refused.get(key, 0)) for key, n in after.items() if n != refused.get(key, 0)
        )
        return seen

    @staticmethod
    def _refusals(admin: Any) -> Iterator[tuple[Any, int]]:
        for *key, number in admin.execute(REFUSED).fetchall():
            yield tuple(key), number


def opened(database: Any, patch: str) -> Session:
    """Open the spy's session; ``patch`` is Python code that it and its service run first."""
    if not patch:
        return Session(database, SPY)
    session = Session(database, "postgres")
    session.connection.execute(everywhere(patch))
    session.connection.execute(f"set session authorization {SPY}")
    session.role = SPY
    return session


def compare(trial: Trial, first: Seen, second: Seen) -> Difference | None:
    """Return the first difference between the twins, or None."""
    sent = [each.statement for each in first.told]
    for here, there in zip(first.told, second.told, strict=False):
        if here != there:
            at = first.told.index(here) + 1
            return Difference(trial, _unlike(here, there), sent[:at])
    for name in ("charged", "refused"):
        if getattr(first, name) != getattr(second, name):
            return Difference(trial, f"{name}: {getattr(first, name)}  WITH THE ROW  {getattr(second, name)}", sent)  # fmt: skip
    if len(first.told) != len(second.told):
        return Difference(trial, "a session ended", sent)
    return None


def _unlike(here: Told, there: Told) -> str:
    """Show both outcomes; if their short forms are equal, the field that differs."""
    if here.short() != there.short():
        return f"{here.short()}  WITH THE ROW  {there.short()}"
    names = ("statement", "words", "columns", "said", "notices")
    (name, *_) = (n for n in names if getattr(here, n) != getattr(there, n))
    return f"{name}: {getattr(here, name)}  WITH THE ROW  {getattr(there, name)}"


def difference(pair: Pair, trial: Trial, repeats: int = 2) -> Difference | None:
    """Return a difference between the twins that appears in each of several runs.

    The same statements bring a session to the same state each time.  A difference that appears only
    once was therefore caused by other activity of the machine.
    """
    found = compare(trial, *pair.run(trial))
    for _ in range(repeats):
        if found is None:
            return None
        found = compare(trial, *pair.run(trial))
    return found


def deepest(pair: Pair, shape: Shape) -> int:
    """Return the largest level at which a statement that does nothing succeeds."""
    if shape.name in pair.levels:
        return pair.levels[shape.name]
    least, most = 0, 1 << 11
    nothing = Question("nothing", ("select 1",), reads=False)
    while most - least > 1:
        level = (least + most) // 2
        (state,) = pair.alone(Trial(((shape, level),), (nothing,))).states()
        least, most = (level, most) if not state else (least, level)
    pair.levels[shape.name] = least
    return least


def boundary(
    pair: Pair, at: Callable[[int], Trial], least: int, most: int
) -> tuple[int, Difference | None]:
    """Bisect the first step at which the outcome changes, and compare the twins before and at it."""
    first = pair.alone(at(least)).states()
    if pair.alone(at(most)).states() == first:
        return most, difference(pair, at(most))
    while most - least > 1:
        step = (least + most) // 2
        least, most = (step, most) if pair.alone(at(step)).states() == first else (least, step)
    return most, difference(pair, at(least)) or difference(pair, at(most))
