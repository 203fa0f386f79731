"""Tell ``dp.progress`` what a long command is doing.

Only functions of public facts and of what was perturbed and paid for are told, never how many rows
were read (PRIVACY.md section 2); ``sql/functions/running_commands.sql`` says who sees what.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.model import JoinQuery
    from dpsql.ports import Database


class Command(IntEnum):
    """Kinds of long commands, numbered as in ``dp.running_commands``."""

    REFRESH = 1
    SKETCH = 2
    RELEASE = 3
    PLAN = 4
    SYNTHESIS = 5


class Phase(IntEnum):
    """What they do, in this order; ``dp.refresh_statistics`` itself tells the first and fourth."""

    FREQUENCIES = 2
    BOUNDARIES = 3
    SKETCHING = 5
    SELECTING = 6
    MEASURING = 7
    POSTPROCESSING = 8
    PUBLISHING = 9


class Progress:
    """What one command shows of itself.

    Parameters
    ----------
    database : Database
        Of the session that runs it.
    command : Command
        Its kind.
    relations : sequence of int
        OIDs of what it reads, protected relations first.
    protected : int
        How many of them are protected.
    """

    def __init__(
        self, database: Database, command: Command, relations: Sequence[int], protected: int
    ) -> None:
        self._database = database
        self._command = command
        self._relations = list(relations)
        self._protected = protected

    @classmethod
    def of(cls, database: Database, command: Command, query: JoinQuery) -> Progress:
        """Return the progress of a command that reads the relations of a query."""
        private = {o.relation.oid for o in query.occurrences if o.relation.private}
        public = {o.relation.oid for o in query.occurrences} - private
        return cls(database, command, [*sorted(private), *sorted(public)], len(private))

    def phase(self, phase: Phase, total: int | None = None) -> None:
        """Enter a phase, of so many rounds if their number is known."""
        self._database.execute(
            "select dp.show_phase($1, $2, $3, $4) is null as shown",
            [
                ("int4", int(self._command)),
                ("int4", int(phase)),
                ("oid[]", self._relations),
                ("int4", self._protected),
            ],
        )
        if total is not None:
            self.rounds(0, total)

    def rounds(
        self, done: int | None, total: int | None = None, expected: int | None = None
    ) -> None:
        """Tell how many rounds of the phase are done, of how many, or how many may be left."""
        self._rounds(done, total, expected)

    def budget(
        self,
        used: Fraction,
        whole: Fraction,
        order: int,
        *,
        done: int | None = None,
        total: int | None = None,
        expected: int | None = None,
    ) -> None:
        """Tell what rounds have used of a budget: of epsilon (order 1) or rho (order 2)."""
        self._rounds(done, total, expected, float(used), float(whole), order)

    def _rounds(
        self,
        done: int | None,
        total: int | None,
        expected: int | None,
        used: float | None = None,
        budget: float | None = None,
        order: int | None = None,
    ) -> None:
        self._database.execute(
            "select dp.show_rounds($1, $2, $3, $4, $5, $6) is null as shown",
            [
                ("int8", done),
                ("int8", total),
                ("int8", expected),
                ("float8", used),
                ("float8", budget),
                ("int4", order),
            ],
        )

    def pass_on(self) -> None:
        """Show nothing while another session goes on with the command."""
        self._database.execute("select dp.end_progress() is null as ended")

    def end(self) -> None:
        """Tell that the command ended well; an error, a cancel, a rollback end it anyway."""
        self._database.execute("select dp.end_progress() is null as ended")
