"""The command line: ``python -m dpsql.client.cli`` in a clone, ``dpsql`` where it is installed.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from dpsql._version import __version__
from dpsql.client import asking, budgets
from dpsql.client import report as page
from dpsql.client.layout import Layout, SetupError
from dpsql.client.session import Json
from dpsql.client.shown import print_json

app = typer.Typer(
    help="dpsql: differential privacy inside PostgreSQL.",
    epilog="Commands that ask a database take --dsn, DPSQL_DSN or PG* variables, and --json."
    " Exit codes: 0 done, 1 refused or failed, 2 wrong usage.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
asking.add_to(app)
app.add_typer(budgets.app, name="budgets")
page.add_to(app)

ScaleFactor = Annotated[
    float | None,
    typer.Option(min=0.001, help="TPC-H scale factor; by default what is loaded, else 0.1"),
]


@contextmanager
def _talk_aside(as_json: bool) -> Iterator[None]:
    """Leave standard output to the JSON document."""
    if as_json:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        print(__version__)


@app.command()
def build(as_json: Json = False) -> None:
    """Build extension and hook and install them into the clone's private tree."""
    from dpsql.client.build import prepare

    layout = Layout.discover()
    with _talk_aside(as_json):
        prepare(layout)
    if as_json:
        print_json({"home": str(layout.home), "major": layout.major})


@app.command()
def up(sf: ScaleFactor = None, as_json: Json = False) -> None:
    """Start the clone's private cluster with the demo databases; build and load what changed."""
    from dpsql.client import demo as demonstration
    from dpsql.client.private import start

    layout = Layout.discover()
    with _talk_aside(as_json):
        cluster = start(layout)
        demonstration.load(layout, cluster, sf)
        print(f"dpsql: running; connect with psql '{cluster.conninfo()}'")
    if as_json:
        print_json({"dsn": cluster.conninfo(), "databases": list(demonstration.NAMES)})


@app.command()
def demo(sf: ScaleFactor = None) -> None:
    """Load the demo databases and show an analyst's session in each."""
    from dpsql.client import demo as demonstration
    from dpsql.client.private import start

    layout = Layout.discover()
    cluster = start(layout)
    demonstration.load(layout, cluster, sf)
    demonstration.show(layout, cluster)


@app.command()
def down(as_json: Json = False) -> None:
    """Stop the clone's private cluster."""
    from dpsql.client.private import private_cluster

    private_cluster(Layout.discover()).stop()
    if as_json:
        print_json({"running": False})


@app.command()
def dsn(
    db: Annotated[str, typer.Option(help="database")] = "postgres",
    user: Annotated[str, typer.Option(help="role")] = "postgres",
    as_json: Json = False,
) -> None:
    """Print a connection string for the clone's private cluster."""
    from dpsql.client.private import private_cluster

    cluster = private_cluster(Layout.discover())
    if not cluster.running:
        if not as_json:
            # An empty string would send psql to another server of this machine.
            print("host=/the-private-cluster-does-not-run/try-make-up")
        raise SetupError("the private cluster does not run; `make up` starts it")
    found = cluster.conninfo(dbname=db, user=user)
    if as_json:
        print_json({"dsn": found})
    else:
        print(found)


@app.command(
    epilog="\b\nExample:\n"
    "  dpsql install --dsn 'host=/var/run/postgresql user=postgres dbname=shop' \\\n"
    "    --pg-config /usr/lib/postgresql/15/bin/pg_config --restart --create-extension"
)
def install(
    dsn: Annotated[str, typer.Option(envvar="DPSQL_DSN", help="connection string of a superuser")],
    pg_config: Annotated[Path, typer.Option(help="the server's pg_config")] = Path("pg_config"),
    prefix: Annotated[
        Path | None, typer.Option(help="folder for the package; below pkglibdir by default")
    ] = None,
    venv: Annotated[
        Path | None, typer.Option(help="virtual environment that has the dependencies already")
    ] = None,
    restart: Annotated[bool, typer.Option(help="restart the server if it must be")] = False,
    create_extension: Annotated[
        bool, typer.Option("--create-extension", help="and create it in the database of --dsn")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put extension, hook and package into an existing server on this machine."""
    from dpsql.client.install import create_extension_in, install_into_server

    done: list[str] = []

    def report(line: str) -> None:
        done.append(line)
        print(line)

    with _talk_aside(as_json):
        install_into_server(
            Layout.discover(),
            pg_config,
            dsn,
            prefix=prefix,
            venv=venv,
            restart=restart,
            report=report,
        )
        if create_extension:
            report(create_extension_in(dsn))
    if as_json:
        print_json({"done": done})


def main() -> None:
    """Run the command line; a step that cannot work ends with its message and status 1."""
    import psycopg

    try:
        app()
    except (SetupError, psycopg.Error) as error:
        print(f"dpsql: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
