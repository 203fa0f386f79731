"""One connection of the command line: who asks, what the server says beside, how it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import psycopg
import typer
from psycopg import sql
from psycopg.rows import dict_row

from dpsql.client.layout import SetupError

WHERE_TO = (
    "--dsn, or the variable DPSQL_DSN, says which server, database and role; what it lacks comes"
    " from PGHOST, PGPORT, PGDATABASE and PGUSER."
)

Connection = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]

Dsn = Annotated[
    str,
    typer.Option(
        envvar="DPSQL_DSN",
        help="connection string or URI; what it lacks comes from PG* variables, as for psql",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on standard output")]


@contextmanager
def session(dsn: str, as_json: bool) -> Iterator[Connection]:
    """Connect, in autocommit mode; notices go to standard error, and a refusal ends the command.

    Parameters
    ----------
    dsn : str
        Connection string; empty: environment and defaults of libpq.
    as_json : bool
        Whether errors and notices are JSON documents, one a line.

    Raises
    ------
    typer.Exit
        With code 1 after an error of the server, which has been told.
    """
    try:
        connected = psycopg.connect(
            dsn, autocommit=True, row_factory=dict_row, fallback_application_name="dpsql"
        )
    except psycopg.Error as error:
        refuse(error, as_json, hint=WHERE_TO)
    try:
        with connected as connection:
            connection.add_notice_handler(lambda said: _tell(_facts(said), as_json))
            yield connection
    except psycopg.Error as error:
        refuse(error, as_json)


def refuse(error: psycopg.Error, as_json: bool, hint: str | None = None) -> NoReturn:
    """Tell an error of the server, or of the way there, and end with code 1."""
    facts = _facts(error.diag)
    if not facts["message"]:
        message = str(error).strip().removeprefix("connection is bad: ")
        facts |= {"severity": "ERROR", "message": message, "hint": hint}
    _tell(facts, as_json)
    raise typer.Exit(1) from None


def _facts(said: Any) -> dict[str, str | None]:
    return {
        "severity": said.severity_nonlocalized or said.severity,
        "sqlstate": said.sqlstate,
        "message": said.message_primary,
        "detail": said.message_detail,
        "hint": said.message_hint,
    }


def _tell(facts: Mapping[str, str | None], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), file=sys.stderr, flush=True)
        return
    state = f" ({facts['sqlstate']})" if facts["severity"] == "ERROR" and facts["sqlstate"] else ""
    lines = [f"dpsql: {facts['severity']}: {facts['message']}{state}"]
    lines += [f"{name.upper()}: {facts[name]}" for name in ("detail", "hint") if facts[name]]
    print("\n".join(lines), file=sys.stderr, flush=True)


def require_extension(connection: Connection) -> str:
    """Return the version of the extension in this database.

    Raises
    ------
    SetupError
        If it is not there.
    """
    row = connection.execute(
        "select extversion from pg_catalog.pg_extension where extname = 'dpsql'"
    ).fetchone()
    if row is None:
        raise SetupError(
            f'database "{connection.info.dbname}" has no extension dpsql\n'
            "CREATE EXTENSION dpsql CASCADE, as a superuser; "
            "`dpsql install` first, where the server lacks it"
        )
    return str(row["extversion"])


def call(
    name: str, arguments: Mapping[str, tuple[str, object]], verb: str = "select"
) -> sql.Composed:
    """Compose a call of a function of ``dp`` with those arguments that are given.

    Parameters
    ----------
    name : str
        The function's.
    arguments : mapping of str to (str, object)
        For each parameter the type and the value; those that are None are left out.
    verb : {"select", "call"}
        How it is called.
    """
    given = [
        sql.SQL("{} => {}::{}").format(sql.Identifier(key), sql.Placeholder(key), sql.SQL(kind))
        for key, (kind, value) in arguments.items()
        if value is not None
    ]
    return sql.SQL("{} dp.{}({})").format(
        sql.SQL(verb), sql.Identifier(name), sql.SQL(", ").join(given)
    )


def values(arguments: Mapping[str, tuple[str, object]]) -> dict[str, object]:
    """Return the values of `call`."""
    return {key: value for key, (_, value) in arguments.items() if value is not None}


def rows(connection: Connection, query: str, **parameters: object) -> list[Row]:
    """Run a query of our own and return its rows.

    Names in it are PostgreSQL's and ours, whatever else is on the path of who asks: an owner must
    not run what somebody named like a function that it calls.
    """
    with connection.transaction():
        connection.execute("set local search_path = pg_catalog, pg_temp")
        return connection.execute(query, parameters or None).fetchall()
