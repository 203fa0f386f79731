"""A PostgreSQL cluster of our own on a unix socket: make, start, stop.

Who may connect: the socket's folder has mode 0700 and belongs to the server's OS user, so only
that user and root reach it; inside, every role is trusted, which lets one person play owner and
analyst.  The ledger's role is the exception and authenticates as it does in production: by the OS
user of the server's own processes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.client.authentication import hba_block, ident_block
from dpsql.client.layout import SetupError, own, run, server_user

SUPERUSER = "postgres"
LIBRARY = "dpsql"

# Backends must stay single-threaded and cancellable; libpython looks for "python3" on PATH to
# find its standard library, so PATH must lead it to the system's.
SERVER_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONNOUSERSITE": "1",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster.

    Attributes
    ----------
    bin : Path
        Programs of the PostgreSQL tree that it runs from.
    data, socket, log : Path
        Data directory, socket directory, server log.
    settings : dict of str to str
        Settings beyond the defaults of this module, as ``postgresql.conf`` writes them.
    """

    bin: Path
    data: Path
    socket: Path
    log: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether the server accepts connections or is about to."""
        return self._status() == 0

    @property
    def started(self) -> float:
        """When the running server was started, in seconds since the epoch."""
        return float((self.data / "postmaster.pid").read_text().splitlines()[2])

    def conninfo(self, **parameters: str) -> str:
        """Return a libpq connection string; superuser and database ``postgres`` by default."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            "",
            **{"host": str(self.socket), "port": "5432", "user": SUPERUSER, "dbname": "postgres"}
            | parameters,
        )

    def create(self, *, sync: bool = True) -> None:
        """Initialise the data directory unless it is there."""
        own(self.socket)
        own(self.log.parent)
        if (self.data / "PG_VERSION").exists():
            return
        own(self.data)
        self._as_server(
            self.bin / "initdb",
            *("-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"),
            *("--locale=C.UTF-8", "--no-instructions", *(() if sync else ("--no-sync",))),
        )

    def configure(self) -> None:
        """Write settings and authentication; they count from the next start or reload."""
        defaults = {
            "listen_addresses": "''",
            "port": "5432",
            "unix_socket_directories": _quote(f'"{self.socket}"'),
            "unix_socket_permissions": "0700",
            "jit": "off",
            "max_connections": "100",
            "logging_collector": "off",
            "log_line_prefix": "'%m [%p] %q%u@%d '",
            "shared_preload_libraries": f"'{LIBRARY}'",
        }
        lines = [f"{name} = {value}" for name, value in (defaults | self.settings).items()]
        self._write("dpsql.conf", "\n".join([*lines, ""]))
        main = self.data / "postgresql.conf"
        include = "include 'dpsql.conf'\n"
        if include not in main.read_text():
            with main.open("a") as stream:
                stream.write(f"\n{include}")
        user = server_user() or _current_user()
        self._write("pg_ident.conf", ident_block(user))
        self._write(
            "pg_hba.conf", hba_block() + "local all all trust\nlocal replication all trust\n"
        )

    def start(self) -> None:
        """Create, configure and launch the server unless it runs."""
        if self.running:
            return
        self.create()
        self.configure()
        self.launch()

    def launch(self) -> None:
        """Start the server with the configuration that is there.

        Raises
        ------
        SetupError
            If it does not start; the message ends with its log.
        """
        try:
            self._as_server(
                self.bin / "pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "60", "start"
            )
        except SetupError as error:
            tail = self.log.read_text().splitlines()[-20:] if self.log.exists() else []
            raise SetupError("\n".join([str(error), *tail])) from None

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs."""
        if self.data.exists() and self.running:
            self._as_server(self.bin / "pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.stop("immediate")
        for path in (self.data, self.socket, self.log.parent):
            shutil.rmtree(path, ignore_errors=True)

    def _status(self) -> int:
        try:
            self._as_server(self.bin / "pg_ctl", "-D", self.data, "status")
        except SetupError:
            return 1
        return 0

    def _as_server(self, *command: str | Path) -> str:
        user = server_user()
        prefix: list[str | Path] = [] if user is None else ["runuser", "-u", user, "--"]
        return run([*prefix, *command], env=SERVER_ENVIRONMENT, cwd=Path("/"))

    def _write(self, name: str, text: str) -> None:
        path = self.data / name
        path.write_text(text)
        user = server_user()
        if user is not None:
            shutil.chown(path, user, user)
        path.chmod(0o600)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _current_user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
