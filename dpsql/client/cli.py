"""The command line: ``python -m dpsql.client.cli`` in a clone, ``dpsql`` where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpsql._version import __version__
from dpsql.client.layout import Layout, SetupError

app = typer.Typer(
    help="dpsql: differential privacy inside PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScaleFactor = Annotated[
    float | None,
    typer.Option(min=0.001, help="TPC-H scale factor; by default what is loaded, else 0.1"),
]


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def build() -> None:
    """Build extension and hook and install them into the clone's private tree."""
    from dpsql.client.build import prepare

    prepare(Layout.discover())


@app.command()
def up(sf: ScaleFactor = None) -> None:
    """Start the clone's private cluster with the demo databases; build and load what changed."""
    from dpsql.client import demo as demonstration
    from dpsql.client.private import start

    layout = Layout.discover()
    cluster = start(layout)
    demonstration.load(layout, cluster, sf)
    print(f"dpsql: running; connect with psql '{cluster.conninfo()}'")


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
def down() -> None:
    """Stop the clone's private cluster."""
    from dpsql.client.private import private_cluster

    private_cluster(Layout.discover()).stop()


@app.command()
def dsn(
    db: Annotated[str, typer.Option(help="database")] = "postgres",
    user: Annotated[str, typer.Option(help="role")] = "postgres",
) -> None:
    """Print a connection string for the clone's private cluster."""
    from dpsql.client.private import private_cluster

    cluster = private_cluster(Layout.discover())
    if not cluster.running:
        # An empty string would send psql to another server of this machine.
        print("host=/the-private-cluster-does-not-run/try-make-up")
        raise SetupError("the private cluster does not run; `make up` starts it")
    print(cluster.conninfo(dbname=db, user=user))


@app.command()
def install(
    dsn: Annotated[str, typer.Option(help="connection string of a superuser")],
    pg_config: Annotated[Path, typer.Option(help="the server's pg_config")] = Path("pg_config"),
    prefix: Annotated[
        Path | None, typer.Option(help="folder for the package; below pkglibdir by default")
    ] = None,
    venv: Annotated[
        Path | None, typer.Option(help="virtual environment that has the dependencies already")
    ] = None,
    restart: Annotated[bool, typer.Option(help="restart the server if it must be")] = False,
) -> None:
    """Put extension, hook and package into an existing server on this machine."""
    from dpsql.client.install import install_into_server

    install_into_server(
        Layout.discover(), pg_config, dsn, prefix=prefix, venv=venv, restart=restart
    )


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
