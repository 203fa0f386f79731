"""The command line: ``python -m dpsql.client.cli`` in a clone, ``dpsql`` where it is installed."""

from __future__ import annotations

import sys
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


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def up() -> None:
    """Build what changed and start the clone's private cluster."""
    from dpsql.client.private import private_cluster, start

    layout = Layout.discover()
    start(layout)
    print(f"dpsql: running; make -s dsn prints {private_cluster(layout).conninfo()}")


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
        raise SetupError("the private cluster does not run; `make up` starts it")
    print(cluster.conninfo(dbname=db, user=user))


def main() -> None:
    """Run the command line; a step that cannot work ends with its message and status 1."""
    try:
        app()
    except SetupError as error:
        print(f"dpsql: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
