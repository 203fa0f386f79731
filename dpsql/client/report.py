"""``dpsql report``: a page to look at instead of views to read."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from dpsql.client.layout import SetupError
from dpsql.client.report_data import EXTRAS, SECTIONS, collect
from dpsql.client.session import Dsn, Json, require_extension, session
from dpsql.client.shown import print_json

Section = Enum("Section", {name: name for name in SECTIONS}, type=str)  # type: ignore[misc]
Extra = Enum("Extra", {name: name for name in EXTRAS}, type=str)  # type: ignore[misc]


def report(
    html: Annotated[
        Path | None,
        typer.Option(help="the file that is written, for its owner alone to read", dir_okay=False),
    ] = None,
    without: Annotated[
        list[Section] | None, typer.Option(help="leave out a section; may be repeated")
    ] = None,
    extras: Annotated[
        list[Extra] | None,
        typer.Option(
            "--with",
            help="texts of the most expensive questions; how many rows changed since statistics",
        ),
    ] = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Write one HTML page about budgets, releases, refusals and holes that the role may see."""
    if html is None and not as_json:
        raise typer.BadParameter(
            "say where the page goes with --html, or take the numbers with --json"
        )
    with session(dsn, as_json) as connection:
        require_extension(connection)
        found = collect(
            connection,
            without={one.value for one in without or ()},
            extras={one.value for one in extras or ()},
        )
    if html is not None:
        _write(html, _page(found))
    if as_json:
        print_json(found)
    elif html is not None:
        print(f"dpsql: wrote {html}")


def _page(found: dict[str, object]) -> str:
    try:
        from dpsql.client.report_page import page
    except ImportError as error:
        raise SetupError(
            f"a page needs {error.name}, which is not installed\npip install 'dpsql[report]'"
        ) from None
    return page(found)


def _write(path: Path, text: str) -> None:
    """Write the whole file or none; what it says is not for everybody."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SetupError(f"cannot write {path}: {error.strerror}") from None


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="\b\nExample:\n  dpsql report --html shop.html --dsn 'dbname=shop user=steward'"
    )(report)
