"""What the engine is given: ports, never drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dpsql.engine.facts import Facts
from dpsql.errors import ChangedWhileRead, LedgerUnavailable
from dpsql.ledger.model import Charged, Ledger
from dpsql.ports import Database, NoiseSource

if TYPE_CHECKING:
    from dpsql.engine.catalog import Catalog
    from dpsql.engine.prepare import Prepared


class Measured(NamedTuple):
    """What another session measured, now or before, with its charge and time."""

    spend: int
    payload: str
    taken_at: datetime | None
    charged: bool


class Elsewhere(Protocol):
    """Has another session charge and, where there is anything to measure, measure.

    Parameters
    ----------
    handler : str
        What it shall do: ``measure_release``, ``measure_synthesis`` or ``share_release``.
    query : str
        The statement.
    arguments : mapping
        What else was said, for JSON.
    """

    def __call__(  # noqa: D102
        self, handler: str, query: str, arguments: Mapping[str, Any]
    ) -> Measured: ...


@dataclass(slots=True)
class Services:
    """The ports of one call.

    ``refusals`` is what `dpsql.engine.refused` keeps between calls.  ``warn`` shows the caller a
    message, a detail and a hint, ``note`` a message, and these where there are any: public facts.
    ``is_public`` tells whether an error's cause is public: time, an administrator, the catalogue.
    ``strategies`` is what `dpsql.workload.kept.Kept` keeps between calls, ``facts`` what
    follows from the catalogue alone.  ``apart`` runs a function that writes nothing, and then
    releases the locks that it took.  ``moved``: the ledger's charge ended the transaction in which
    the question was priced, and rows are read in the next one.  ``elsewhere`` has another session
    do what reads protected rows; ``None``: this one does.
    """

    database: Database
    catalog: Catalog
    ledger: Ledger
    noise: NoiseSource
    warn: Callable[[str, str, str], None]
    note: Callable[..., None]
    plans: dict[Any, Prepared] = field(default_factory=dict)
    refusals: dict[Any, Any] = field(default_factory=dict)
    strategies: dict[bytes, Any] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    is_public: Callable[[BaseException], bool] = lambda _: False
    apart: Callable[[Callable[[], Any]], Any] = lambda work: work()
    moved: bool = False
    elsewhere: Elsewhere | None = None

    def store(self, charged: Charged, write: Callable[[], str]) -> datetime | None:
        """Store what ``write`` returns as the answer; if that fails, call `give_up`.

        Raises
        ------
        LedgerUnavailable
            When the ledger went away; the answer can still be given.
        """
        try:
            return self.ledger.finish(charged, write())
        except LedgerUnavailable:
            raise
        except BaseException as error:
            self.give_up(charged, error)
            raise

    def give_up(self, charged: Charged, error: BaseException, *, read: bool = True) -> None:
        """Record that a charge has no answer; it counts as a failure if rows may have caused it.

        They have not if no protected row was ``read`` yet.  Cancels and timeouts depend on time
        only, and changes of declarations and of the catalogue are public.
        """
        counts = read and not (isinstance(error, ChangedWhileRead) or self.is_public(error))
        self.ledger.fail(charged, counts=counts)
