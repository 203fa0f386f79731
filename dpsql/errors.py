"""One tree of errors; every class carries an SQLSTATE of class ``PD``.

Messages follow PostgreSQL's rules: the *message* is lower case without a full
stop and says what is wrong; *detail* holds facts in full sentences; *hint*
says what to do.  No error ever interpolates a value read from a protected
relation, a count, a group key or a noise draw (PRIVACY.md section 2): only
what the caller sent and public metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

BY_SQLSTATE: dict[str, type[DpsqlError]] = {}


class DpsqlError(Exception):
    """Root of all errors that dpsql raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong: lower case, no full stop.
    detail : str, optional
        Facts, full sentences.
    hint : str, optional
        What to do, a full sentence.
    position : int, optional
        1-based character offset into the analysed statement that the error points at.
    declares : sequence of str, optional
        Relations of which the hint declares domains, as the hint names them.

    Attributes
    ----------
    query : str or None
        The analysed statement, where somebody knows it.
    """

    sqlstate = "PD000"
    default_hint: str | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "sqlstate" in cls.__dict__:
            BY_SQLSTATE[cls.sqlstate] = cls

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        declares: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint if hint is not None else self.default_hint
        self.position = position
        self.declares = tuple(declares)
        self.query: str | None = None


class BudgetExceeded(DpsqlError):
    """The debit was refused; the ledger is unchanged."""

    sqlstate = "PD001"


class NoBudget(DpsqlError):
    """The role has no budget in this database."""

    sqlstate = "PD002"
    default_hint = "Ask the owner of the data for SELECT dp.grant_budget('<role>', epsilon => ...)."


class TooManyFailures(DpsqlError):
    """Too many charged questions ended without an answer; nothing was spent."""

    sqlstate = "PD003"


class NotAnswerable(DpsqlError):
    """The query is outside what can be answered privately; nothing was spent."""

    sqlstate = "PD010"


class UnsupportedConstruct(NotAnswerable):
    """A construct that cannot be answered privately; names it and its position."""

    sqlstate = "PD011"


class UndeclaredRelation(NotAnswerable):
    """A relation that is neither protected nor public."""

    sqlstate = "PD012"


class UnreadableRelation(UndeclaredRelation):
    """A declared relation that something forbids reading now; its owner may mend that."""


class FunctionNotAllowed(NotAnswerable):
    """A function, operator, cast or type outside the allow-list."""

    sqlstate = "PD013"


class SyntaxInvalid(NotAnswerable):
    """The text is not one SELECT statement."""

    sqlstate = "PD014"


class DeclarationsChanged(NotAnswerable):
    """The transaction's snapshot is older than a change to what the question reads."""

    sqlstate = "PD015"
    default_hint = "Ask again in a new transaction."


class MissingDeclaration(DpsqlError):
    """A needed domain, bound or privacy unit is not declared."""

    sqlstate = "PD020"


class InvalidParameter(DpsqlError):
    """An argument or a setting is out of range."""

    sqlstate = "PD040"


class AnswerOutOfRange(DpsqlError):
    """A released (already perturbed) value does not fit the result's type."""

    sqlstate = "PD041"


class LedgerUnavailable(DpsqlError):
    """The ledger could not be reached in time; nothing was spent by this call."""

    sqlstate = "PD050"


class LedgerRestored(DpsqlError):
    """The ledger came from a backup or a promoted standby and nobody acknowledged it."""

    sqlstate = "PD051"


class ShardUnavailable(DpsqlError):
    """A server that holds parts of a relation cannot be read; nothing was spent."""

    sqlstate = "PD052"


class PermissionDenied(DpsqlError):
    """The caller may not do this."""

    sqlstate = "PD070"


class ReleaseFailed(DpsqlError):
    """Anything unexpected after protected data was touched; no detail for the caller.

    The door puts before the hint whether anything was charged.
    """

    sqlstate = "PD900"
    default_hint = "The server log names the cause for the administrator."


class ChangedWhileRead(ReleaseFailed):
    """A relation's declarations changed while it was read; this depends on public facts alone."""


class ShardFailed(ReleaseFailed):
    """A server that holds parts of a relation failed after it was read from."""

    sqlstate = "PD902"
    default_hint = "Ask again when it answers: the same question costs the same again."


class InternalError(DpsqlError):
    """A bug in dpsql before protected data was touched."""

    sqlstate = "PD901"
