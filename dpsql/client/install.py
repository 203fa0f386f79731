"""``dpsql install``: extension, hook and package for a server that is there already."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from dpsql._version import __version__
from dpsql.client.authentication import hba_block, ident_block, put_block, replace_text
from dpsql.client.build import Target
from dpsql.client.build import install as build_and_install
from dpsql.client.cluster import LIBRARY, SERVER_ENVIRONMENT
from dpsql.client.layout import Layout, SetupError, run

SUPPORTED = range(15, 19)
SYSTEM_PYTHON = Path("/usr/bin/python3")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Server:
    """What the installation needs to know of a running server.

    Attributes
    ----------
    data, config, hba, ident : Path
        Data directory and configuration files.
    os_user : str
        Owner of the data directory: the user that backends run as.
    preloaded : tuple of str
        ``shared_preload_libraries`` of the running server.
    configured : tuple of str
        The same as the configuration files say, for the next start.
    """

    data: Path
    config: Path
    hba: Path
    ident: Path
    os_user: str
    preloaded: tuple[str, ...]
    configured: tuple[str, ...]


def install_into_server(
    layout: Layout,
    pg_config: Path,
    dsn: str,
    *,
    prefix: Path | None = None,
    venv: Path | None = None,
    restart: bool = False,
    report: Callable[[str], None] = print,
) -> None:
    """Install into an existing server; every step that is done already is left alone.

    Parameters
    ----------
    pg_config : Path
        The ``pg_config`` of the server's installation.
    dsn : str
        A superuser's connection string, over which settings are read and written.
    prefix : Path, optional
        Folder for package and dependencies; ``<pkglibdir>/dpsql/<version>`` by default.
    venv : Path, optional
        An existing virtual environment with the dependencies; one is made by default.
    restart : bool
        Restart the server if the library is not loaded yet.
    report : callable
        Told, in one line, of each thing that was done.

    Raises
    ------
    SetupError
        If a step cannot work here; the message says what to do.
    """
    major, pkglibdir = _inspect_installation(pg_config)
    with _connect(dsn) as connection:
        server = _inspect_server(connection, major)
    prefix = prefix or pkglibdir / "dpsql" / __version__
    _require_writable(prefix, pkglibdir)

    library = pkglibdir / f"{LIBRARY}.so"
    with _world_readable():
        environment = venv or _make_environment(prefix / "venv", report)
        site_packages = _purelib(environment)
        target = Target(pg_config, prefix / "package", site_packages, prefix / "build")
        changed = build_and_install(layout.clone, target)
    report(f"installed the extension and {library}")
    report(f"installed the package into {target.package_dir}")

    with _connect(dsn) as connection:
        _authenticate_services(connection, server, report)
        _preload(connection, server, report)
    if LIBRARY in server.preloaded and not changed:
        report("nothing to restart: library and package are loaded and as they were")
    elif restart:
        _restart(pg_config, major, server)
        report("restarted the server")
    else:
        report("restart the server to load library and package, or repeat this with --restart")
    report("then, in each database: CREATE EXTENSION dpsql CASCADE")


def create_extension_in(dsn: str) -> str:
    """Create the extension in the database of ``dsn`` unless it is there; return what was done.

    Raises
    ------
    SetupError
        If the server has not loaded the library, without which nothing would be answered.
    """
    with _connect(dsn) as connection:
        loaded = connection.execute("show shared_preload_libraries").fetchone()
        if LIBRARY not in _split(loaded[0] if loaded else ""):
            raise SetupError(
                "the server has not loaded dpsql\nrestart it, or repeat this with --restart"
            )
        there = connection.execute("select from pg_extension where extname = 'dpsql'").fetchone()
        if there is None:
            connection.execute("create extension dpsql cascade")
        return (
            f"{'created' if there is None else 'found'} the extension in {connection.info.dbname}"
        )


def _connect(dsn: str) -> Connection:
    """Connect; as root, where the server trusts OS users only, as the OS user of the role's name.

    Debian's default lets the OS user postgres, and nobody else, be the role postgres, while root
    is needed to install.
    """
    try:
        return psycopg.connect(dsn, autocommit=True, client_encoding="utf8")
    except psycopg.OperationalError as error:
        failed = re.search(r'[Pp]eer authentication failed for user "([^"]+)"', str(error))
        if failed is None:
            raise SetupError(f"cannot connect to the server: {error}".rstrip()) from None
        try:
            user = pwd.getpwnam(failed[1]).pw_uid
            os.seteuid(user)
        except (KeyError, PermissionError):
            raise SetupError(
                f"{error}".rstrip() + f"\nrun this as root, or name in --dsn a superuser that the"
                f" OS user {pwd.getpwuid(os.geteuid()).pw_name} may be"
            ) from None
        try:
            return psycopg.connect(dsn, autocommit=True, client_encoding="utf8")
        finally:
            os.seteuid(os.getuid())


def _inspect_installation(pg_config: Path) -> tuple[int, Path]:
    """Return (major, pkglibdir) after checking that extensions can be built for it."""
    version = run([pg_config, "--version"])
    found = re.search(r"PostgreSQL (\d+)", version)
    major = int(found.group(1)) if found else 0
    if major not in SUPPORTED:
        raise SetupError(
            f"{pg_config} belongs to {version.strip()}; dpsql supports PostgreSQL "
            f"{SUPPORTED.start} to {SUPPORTED.stop - 1}\nname another one with --pg-config"
        )
    pkglibdir = Path(run([pg_config, "--pkglibdir"]).strip())
    headers = Path(run([pg_config, "--includedir-server"]).strip())
    for path, package in (
        (pkglibdir / "plpython3.so", f"postgresql-plpython3-{major}"),
        (headers / "postgres.h", f"postgresql-server-dev-{major}"),
    ):
        if not path.exists():
            raise SetupError(f"{path} is missing\ninstall the package {package}")
    return major, pkglibdir


def _inspect_server(connection: Connection, major: int) -> Server:
    if connection.info.server_version // 10000 != major:
        raise SetupError(
            f"the server is of major {connection.info.server_version // 10000}, pg_config of "
            f"{major}\nname the server's own with --pg-config"
        )
    settings = dict(
        connection.execute(
            "select name, setting from pg_settings where name in ('data_directory', 'hba_file', "
            "'ident_file', 'config_file', 'unix_socket_directories', "
            "'shared_preload_libraries')"
        ).fetchall()
    )
    if connection.info.parameter_status("is_superuser") != "on":
        raise SetupError("the connection of --dsn is not a superuser's\nname a superuser in --dsn")
    if not settings["unix_socket_directories"]:
        raise SetupError(
            "the server has no unix socket, which service sessions need\n"
            "set unix_socket_directories and restart the server"
        )
    data = Path(settings["data_directory"])
    try:
        os_user = pwd.getpwuid(data.stat().st_uid).pw_name
    except OSError as error:
        raise SetupError(
            f"cannot see the server's data directory {data}\n"
            "run this as root on the machine that the server runs on"
        ) from error
    row = connection.execute(
        "select setting from pg_file_settings where name = 'shared_preload_libraries' "
        "order by seqno desc limit 1"
    ).fetchone()
    preloaded = settings["shared_preload_libraries"]
    return Server(
        data=data,
        config=Path(settings["config_file"]),
        hba=Path(settings["hba_file"]),
        ident=Path(settings["ident_file"]),
        os_user=os_user,
        preloaded=_split(preloaded),
        configured=_split(row[0] if row else preloaded),
    )


def _split(libraries: str) -> tuple[str, ...]:
    names = (name.strip().strip('"') for name in libraries.split(","))
    return tuple(name for name in names if name)


def _require_writable(*folders: Path) -> None:
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(existing, os.W_OK):
            raise SetupError(f"cannot write to {existing}\nrun this as root")


@contextmanager
def _world_readable() -> Iterator[None]:
    """Backends, which run as another user, must be able to read what is installed."""
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)


def _make_environment(folder: Path, report: Callable[[str], None]) -> Path:
    """Make a virtual environment of the system's Python with the package's dependencies."""
    requirements = [r for r in metadata.requires("dpsql") or [] if "extra ==" not in r]
    stamp = folder / "requirements"
    wanted = "\n".join(sorted(requirements))
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    print(f"installing the dependencies into {folder} (minutes)", file=sys.stderr, flush=True)
    run([SYSTEM_PYTHON, "-m", "venv", folder])
    run([folder / "bin/python", "-m", "pip", "install", "-qq", *requirements])
    stamp.write_text(wanted)
    report(f"installed the dependencies into {folder}")
    return folder


def _purelib(environment: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run([environment / "bin/python", "-c", code]).strip()).resolve()


def _authenticate_services(
    connection: Connection, server: Server, report: Callable[[str], None]
) -> None:
    """Write the lines of `dpsql.client.authentication`; take them back if the server objects."""
    before = {path: path.read_text() for path in (server.hba, server.ident)}
    changed = [
        path
        for path, block in ((server.ident, ident_block(server.os_user)), (server.hba, hba_block()))
        if put_block(path, block)
    ]
    if not changed:
        return
    errors = connection.execute(
        "select error from pg_hba_file_rules where error is not null union all "
        "select error from pg_ident_file_mappings where error is not null"
    ).fetchall()
    if errors:
        for path in changed:
            replace_text(path, before[path])
        raise SetupError(
            f"the server cannot read its authentication files: {errors[0][0]}\n"
            f"correct {server.hba} and {server.ident}; they are as they were"
        )
    connection.execute("select pg_reload_conf()")
    for path in changed:
        report(f"wrote the lines of service sessions into {path}")


def _preload(connection: Connection, server: Server, report: Callable[[str], None]) -> None:
    if LIBRARY in server.configured:
        return
    libraries = sql.SQL(", ").join(sql.Literal(name) for name in (*server.configured, LIBRARY))
    connection.execute(sql.SQL("alter system set shared_preload_libraries = {}").format(libraries))
    report(f"added {LIBRARY} to shared_preload_libraries")


def _restart(pg_config: Path, major: int, server: Server) -> None:
    """Restart through Debian's cluster commands where they manage it, else by pg_ctl."""
    debian = Path("/etc/postgresql") / str(major)
    if server.config.parent.parent == debian:
        run(["pg_ctlcluster", str(major), server.config.parent.name, "restart"])
        return
    pg_ctl = Path(run([pg_config, "--bindir"]).strip()) / "pg_ctl"
    command: list[str | Path] = [pg_ctl, "-D", server.data, "-m", "fast", "-w", "restart"]
    log = server.data / "dpsql-restart.log"
    command += ["-l", log]
    if os.getuid() == 0:
        command = ["runuser", "-u", server.os_user, "--", *command]
    run(command, env=SERVER_ENVIRONMENT, cwd=Path("/"))
