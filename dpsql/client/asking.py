"""``dpsql status``, ``protect``, ``release``, ``synthesize``: each calls a function of ``dp``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsql._version import __version__
from dpsql.client.amounts import Delta, Epsilon
from dpsql.client.layout import SetupError
from dpsql.client.session import (
    Connection,
    Dsn,
    Json,
    call,
    require_extension,
    rows,
    session,
    values,
)
from dpsql.client.shown import print_facts, print_json, print_table
from dpsql.client.waiting import shown_progress

_RELATIONS = """
select format('%I.%I', schema_name, relation_name) as relation, kind, neighbours, privacy_unit,
       problem
  from dp.relations order by 1
"""
_REFUSED = """
select coalesce(sum(refused), 0)::bigint as refused
  from dp.refusals where hour > now() - interval '24 hours'
"""
_RUNNING = """
select pid, command, relation::text, phase, rounds_done, rounds_total, started_at,
       time_left::text
  from dp.progress
"""
_STOPPED = """
select coalesce(role::text, 'all roles') as role, relation, failures, failure_limit
  from dp.failures where stopped order by 1, 2
"""
_HOLES = "select severity, count(*) as holes from dp.check_lockdown() group by 1 order by 1"
_RELEASE = """
select name, mechanism, noise, epsilon, delta, expected_error, cells, reads, measured_at,
       relation::text
  from dp.releases where relation = %(relation)s::regclass
"""
_SYNTHESIS = """
select id, target, state, epsilon, delta, tables, rows, reads, notes, finished_at
  from dp.syntheses where target = %(target)s and id = coalesce(%(job)s, id)
 order by id desc limit 1
"""


def status(dsn: Dsn = "", as_json: Json = False) -> None:
    """Show what is declared in a database, and whether questions are answered."""
    with session(dsn, as_json) as connection:
        facts = _status(connection)
    if as_json:
        print_json(facts)
        return
    relations = facts.pop("relations")
    running = facts.pop("running")
    stopped = facts.pop("stopped")
    holes = facts.pop("lockdown_holes")
    if holes is not None:
        facts["lockdown_holes"] = [f"{count} {severity}" for severity, count in holes.items()]
    print_facts(facts)
    for title, found, columns in (
        ("Relations", relations, ("relation", "kind", "privacy_unit", "problem")),
        ("Refused after failures", stopped, ("role", "relation", "failures", "failure_limit")),
        ("Running", running, ("pid", "command", "relation", "phase", "time_left")),
    ):
        if found:
            print(f"\n{title}")
            print_table(found, columns)


def _status(connection: Connection) -> dict[str, Any]:
    version = require_extension(connection)
    (may,) = rows(
        connection,
        "select pg_catalog.pg_has_role('dp_owner', 'usage') as owner,"
        " pg_catalog.has_table_privilege('dp.relations', 'select') as analyst",
    )
    facts: dict[str, Any] = {
        "database": connection.info.dbname,
        "role": connection.info.user,
        "server_version": connection.info.parameter_status("server_version"),
        "extension_version": version,
        "client_version": __version__,
        "owner": may["owner"],
    }
    if not (may["owner"] or may["analyst"]):
        none = {"ledger": None, "refusals_today": None, "refusals_since": None}
        return (
            facts | none | {"lockdown_holes": None, "relations": [], "running": [], "stopped": []}
        )
    ledger = rows(connection, "select status, advice from dp.ledger_status") if may["owner"] else []
    (since,) = rows(connection, "select dp.refusals_since() as since")
    facts["ledger"] = ledger[0]["status"] if ledger else None
    if ledger and ledger[0]["advice"]:
        facts["advice"] = ledger[0]["advice"]
    facts["refusals_today"] = rows(connection, _REFUSED)[0]["refused"]
    facts["refusals_since"] = since["since"]
    facts["lockdown_holes"] = (
        {row["severity"]: row["holes"] for row in rows(connection, _HOLES)}
        if may["owner"]
        else None
    )
    facts["relations"] = rows(connection, _RELATIONS)
    facts["running"] = rows(connection, _RUNNING)
    facts["stopped"] = rows(connection, _STOPPED)
    return facts


def protect(
    relation: Annotated[str, typer.Argument(help="a table, as SQL names it")],
    unit: Annotated[
        str | None,
        typer.Option(help="the column that names a privacy unit; without it rows are protected"),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Protect a relation; --epsilon and --delta cap what all roles together may spend on it."""
    arguments: dict[str, tuple[str, object]] = {
        "relation": ("regclass", relation),
        "privacy_unit": ("text", unit),
        "epsilon": ("numeric", epsilon),
        "delta": ("numeric", delta),
    }
    with session(dsn, as_json) as connection:
        require_extension(connection)
        connection.execute(call("protect", arguments), values(arguments))
        declared = rows(connection, _RELATIONS)
    if as_json:
        print_json(declared)
    else:
        print_table(declared, ("relation", "kind", "privacy_unit", "problem"))


def release(
    name: Annotated[str, typer.Argument(help="of the table dpv.<name>")],
    query: Annotated[
        str | None, typer.Argument(help="the statement; '-' reads it from standard input")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="the statement's file", dir_okay=False, exists=True),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    mechanism: Annotated[str | None, typer.Option(help="as in dp.plan_release")] = None,
    postprocess: Annotated[
        str | None, typer.Option(help="none, non_negative, integral or pgm")
    ] = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Measure a workload once and publish it as the table dpv.<name>, free to read."""
    arguments: dict[str, tuple[str, object]] = {
        "name": ("text", name),
        "query": ("text", _statement(query, file)),
        "epsilon": ("numeric", epsilon),
        "delta": ("numeric", delta),
        "mechanism": ("text", mechanism),
        "postprocess": ("text", postprocess),
    }
    with session(dsn, as_json) as connection:
        require_extension(connection)
        with shown_progress(dsn, connection):
            done = connection.execute(call("release", arguments), values(arguments)).fetchone()
        (made,) = rows(connection, _RELEASE, relation=done and done["release"])
    _show(made, as_json)


def _statement(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise typer.BadParameter("give the statement, or a file that has it with --file")
    if file is not None:
        return file.read_text()
    return sys.stdin.read() if query == "-" else str(query)


def synthesize(
    target: Annotated[str, typer.Argument(help="the schema that is written")],
    relations: Annotated[
        list[str] | None, typer.Argument(help="the tables that are copied")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    method: Annotated[str | None, typer.Option(help="pairs, aim, mst, ...")] = None,
    d_max: Annotated[
        str | None, typer.Option(help="JSON: so many rows of each unit, by table", metavar="JSON")
    ] = None,
    row_counts: Annotated[
        str | None, typer.Option(help="JSON: numbers of rows that are no secret", metavar="JSON")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="a column that is left out; may be repeated")
    ] = None,
    bins: Annotated[int | None, typer.Option(help="for columns of many values")] = None,
    placeholders: Annotated[
        bool, typer.Option("--placeholders", help="made-up values for columns not learnt")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="an earlier copy in that schema goes")
    ] = False,
    resume: Annotated[
        int | None,
        typer.Option(help="go on with the synthesis of that id; costs nothing", metavar="ID"),
    ] = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Write a synthetic copy of tables into a schema; measured and paid for once."""
    if (resume is None) == (not relations):
        raise typer.BadParameter("give the tables, or --resume with the id of a synthesis")
    name = "synthesize" if resume is None else "write_synthesis"
    arguments: dict[str, tuple[str, object]] = {"job": ("bigint", resume)}
    if resume is None:
        arguments = {
            "target": ("text", target),
            "relations": ("regclass[]", relations),
            "epsilon": ("numeric", epsilon),
            "delta": ("numeric", delta),
            "method": ("text", method),
            "d_max": ("jsonb", d_max),
            "row_counts": ("jsonb", row_counts),
            "without": ("text[]", without or None),
            "bins": ("integer", bins),
            "placeholders": ("boolean", placeholders or None),
            "replace": ("boolean", replace or None),
        }
    with session(dsn, as_json) as connection:
        require_extension(connection)
        with shown_progress(dsn, connection, target=target):
            connection.execute(call(name, arguments, "call"), values(arguments))
        made = rows(connection, _SYNTHESIS, target=target, job=resume)
    if not made:
        raise SetupError(f'synthesis {resume} wrote another schema than "{target}"')
    _show(made[0], as_json)


def _show(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(made)
    else:
        print_facts(made)


def add_to(app: typer.Typer) -> None:
    """Add the commands, each with an example."""
    app.command(epilog="\b\nExample:\n  dpsql status --dsn 'dbname=shop user=steward'")(status)
    app.command(epilog="\b\nExample:\n  dpsql protect customer --unit c_custkey --epsilon 50")(
        protect
    )
    app.command(
        epilog="\b\nExample:\n  dpsql release by_status --epsilon 1 --delta 1e-9 \\\n"
        "    'SELECT o_orderstatus, dp_count(*) FROM orders GROUP BY 1'"
    )(release)
    app.command(
        epilog="\b\nExample:\n  dpsql synthesize first customer orders --epsilon 2 --delta 1e-7"
        """ --d-max '{"orders": 40}'"""
    )(synthesize)
