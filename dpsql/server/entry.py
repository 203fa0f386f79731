"""The one door from PL/Python: dispatch, error mapping, cancellation, versions.

Every PL/Python body is its boot lines and one call of `call`.  Whatever goes wrong
below comes out in one of three ways:

- our own errors (`DpsqlError`) with their SQLSTATE of class PD, detail and hint;
- cancellation, lock timeouts, serialization failures, deadlocks and shutdown, unchanged;
- anything else as PD900, without its text: the text of an error inside a query over
  protected rows can hold their values (PRIVACY.md section 2; STYLE.md 5.5).  The server
  log gets the kind of the error and the place in our code, never its message.

The C function in front (``sql/hook/door.c``) raises the first two kinds once more, without
PL/Python's frames.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any

from dpsql._version import __version__
from dpsql.errors import (
    BY_SQLSTATE,
    DpsqlError,
    InternalError,
    InvalidParameter,
    ReleaseFailed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.server.session import Session

__all__ = ["__version__", "call"]

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# query_canceled, lock_not_available, serialization_failure, deadlock_detected, admin_shutdown,
# crash_shutdown
_PASS = frozenset({"57014", "55P03", "40001", "40P01", "57P01", "57P02"})
# What stands for the words of another server, which chooses its codes as it likes.
_FOREIGN = {
    "57014": "canceling statement due to user request",
    "55P03": "canceling statement due to lock timeout",
    "40001": "could not serialize access",
    "40P01": "deadlock detected",
    "57P01": "terminating connection due to administrator command",
    "57P02": "terminating connection because of crash of another server process",
}
_TIMED_OUT = "canceling statement due to statement timeout"


def call(plpy: Any, gd: dict[str, Any], handler: str, /, **arguments: Any) -> Any:
    """Run the handler of that name and map its errors.

    Parameters
    ----------
    plpy : module
        PL/Python's server interface; passed in so that tests can give a fake.
    gd : dict
        PL/Python's session dictionary; our state is under ``"dpsql_session"``.
    handler : str
        Name of a function in `dpsql.server.handlers`.
    arguments
        The SQL function's arguments.
    """
    from dpsql.server import handlers
    from dpsql.server.session import Session
    from dpsql.server.spi import sqlstate

    session = gd.get("dpsql_session")
    if session is None:
        session = gd["dpsql_session"] = Session()
    try:
        _require_plain(arguments.values())
        return getattr(handlers, handler)(plpy, session, **arguments)
    except DpsqlError as error:
        if isinstance(error, ReleaseFailed):
            _log(plpy, error.__cause__ or error, error_text=False)
            _tell_charge(error, charged=session.charged)
        raised = _as_plpy_error(plpy, error)
    except Exception as error:  # noqa: BLE001 - the one door
        state = sqlstate(error)
        if state in _PASS:
            raise _plain(plpy, _said_here(session, error, state), state) from None
        if state in BY_SQLSTATE and not session.touched:
            # the library's own refusal of a statement, which is about names and types only
            raise _plain(plpy, error, state) from None
        _log(plpy, error, error_text=not session.touched)
        raised = _as_plpy_error(plpy, _unexpected(session))
    raise raised from None


def _said_here(session: Session, error: Exception, state: str) -> Exception:
    """Return an error without what another server may have put into its text (section 2)."""
    if session.database is None or not session.database.shards.read_any:
        return error
    return error if str(error) == _TIMED_OUT else DpsqlError(_FOREIGN[state])


def _require_plain(arguments: Iterable[Any]) -> None:
    """Refuse arrays of arrays: no function of ours takes one."""
    for value in arguments:
        if isinstance(value, tuple):
            _require_plain(value)
        elif isinstance(value, list) and any(isinstance(part, list) for part in value):
            raise InvalidParameter(
                "an array that is an argument must have one dimension",
                hint="Give single values: array['open', '7'].",
            )


def _unexpected(session: Session) -> DpsqlError:
    """Return the error that stands for one whose text nobody may see."""
    if not session.touched:
        return InternalError(
            "dpsql failed before reading protected data",
            hint="Nothing was charged. The server log names the place.",
        )
    # what owners do with their own rows (sketches, statistics) costs nothing and answers nothing
    error = ReleaseFailed(
        "the answer could not be computed"
        if session.charged
        else "the protected rows could not be counted"
    )
    _tell_charge(error, charged=session.charged)
    return error


def _tell_charge(error: ReleaseFailed, *, charged: bool) -> None:
    """Put before the hint whether the call cost anything."""
    cost = "The cost was charged." if charged else "Nothing was charged."
    error.hint = f"{cost} {error.hint}"


def _plain(plpy: Any, error: Exception, state: str) -> Exception:
    """Repeat a cancel, a timeout or a serialization failure without its frames.

    They would tell the caller which way the computation went.
    """
    from dpsql.server.spi import diagnostics

    detail, hint = diagnostics(error) if state in BY_SQLSTATE else (None, None)
    # what a call of ours below raised is dressed already
    message = str(error).removeprefix("dpsql: ")
    return _as_plpy_error(plpy, DpsqlError(message, detail=detail, hint=hint), state)


def _as_plpy_error(plpy: Any, error: DpsqlError, state: str | None = None) -> Exception:
    """Dress an error of ours so that PL/Python reports all of it.

    PL/Python writes ``<class name>: <message>``; a class named ``dpsql`` in ``builtins``
    gives ``dpsql: <message>``, which ``sql/hook/door.c`` strips together with the frames.
    Of an ``SPIError`` it also takes the statement and the position in it, which the door
    turns into a cursor in the caller's own text.
    """
    kind = type("dpsql", (plpy.SPIError,), {"__module__": "builtins"})
    dressed: Exception = kind(error.message)
    number = sum(
        ((ord(c) - ord("0")) & 0x3F) << (6 * i) for i, c in enumerate(state or error.sqlstate)
    )
    place = (error.query, error.position) if error.query and error.position else (None, 0)
    rest = (None,) * 5  # schema, table, column, data type, constraint
    dressed.spidata = (number, error.detail, error.hint, *place, *rest)  # type: ignore[attr-defined]
    return dressed


def _log(plpy: Any, error: BaseException, *, error_text: bool) -> None:
    """Write kind and place of an unexpected error to the server log only.

    Its text only while no protected row can have been read.
    """
    from dpsql.server.spi import sqlstate

    frames = traceback.extract_tb(error.__traceback__)
    place = " <- ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frames[-8:]))
    state = sqlstate(error)
    text = f": {error}" if error_text else ""
    line = f"{type(error).__name__} {state} at {place}{text}"
    plpy.execute(plpy.prepare("select dp.server_log($1)", ["text"]), [line])
