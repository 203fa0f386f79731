"""Where the parts of a clone live, and the private PostgreSQL tree.

A clone's *home* is the folder ``.dpsql``; ``scripts/bootstrap.sh home`` makes it, as a link when
the server's OS user cannot reach the clone.  It holds

``pg/``      a PostgreSQL tree of our own: copies of the server's programs, links to its libraries
``python/``  the package as the server imports it, one folder a version
``build/``   products of ``sql/Makefile``
``data/``, ``run/``, ``log``  the private cluster
``venv/``    the virtual environment

PostgreSQL finds its libraries and extensions relative to its own program file.  A copied program
therefore looks into ``pg/``, where an extension can be installed without touching the system, and
several clones do not meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from dpsql._version import __version__

SUN_PATH_MAX = 107
_SERVER_USER = "postgres"


class SetupError(Exception):
    """A step that cannot work here; the message says what to do."""


def run(
    command: list[str | Path], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a command, return its output.

    Raises
    ------
    SetupError
        If it fails; the message holds what it printed.
    """
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, text=True, capture_output=True, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise SetupError(f"{error.filename} is missing; run `make packages`") from error
    if done.returncode != 0:
        shown = " ".join(str(word) for word in command)
        raise SetupError(f"failed: {shown}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one clone.

    Attributes
    ----------
    clone : Path
        The folder with ``sql/`` and ``dpsql/``.
    home : Path
        The real path of ``.dpsql``.
    major : int
        The PostgreSQL major that is used.
    """

    clone: Path
    home: Path
    major: int

    @classmethod
    def discover(cls) -> Layout:
        """Find the clone that this package is imported from.

        Raises
        ------
        SetupError
            If the package is not part of a clone.
        """
        clone = Path(__file__).resolve().parents[2]
        bootstrap = clone / "scripts/bootstrap.sh"
        if not bootstrap.exists():
            raise SetupError(
                f"{clone} is not a clone of dpsql: it has no scripts/bootstrap.sh\n"
                "run this from a clone"
            )
        home = Path(run([bootstrap, "home"]).strip())
        return cls(clone, home, int(run([bootstrap, "major"]).strip()))

    @property
    def bin(self) -> Path:
        """Programs of the private tree."""
        return self.home / "pg" / "lib" / "postgresql" / str(self.major) / "bin"

    @property
    def packages(self) -> Path:
        """The versioned folder that holds the package as the server imports it."""
        return self.home / "python" / __version__

    @property
    def data(self) -> Path:
        """The private cluster's data directory."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The private cluster's log."""
        return self.home / "log" / "postgresql.log"

    @property
    def socket(self) -> Path:
        """The private cluster's socket directory, short enough for a socket address."""
        preferred = self.home / "run"
        if len(bytes(preferred / ".s.PGSQL.5432.lock")) <= SUN_PATH_MAX:
            return preferred
        digest = hashlib.sha256(bytes(self.home)).hexdigest()[:12]
        return Path("/tmp") / f"dpsql-{os.getuid()}-{digest}"


def server_user() -> str | None:
    """Return the OS user that servers must run as, or ``None`` for the current one.

    PostgreSQL refuses to run as root; Debian's packages bring the user ``postgres``.
    """
    return _SERVER_USER if os.getuid() == 0 else None


def own(path: Path, mode: int = 0o700) -> None:
    """Make a folder, if it is missing, for the server's OS user alone.

    Raises
    ------
    SetupError
        If the folder is there and somebody else's, or a link.
    """
    user = server_user()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        trusted = {os.getuid()} if user is None else {os.getuid(), _uid(user)}
        if path.is_symlink() or path.lstat().st_uid not in trusted:
            raise SetupError(f"{path} belongs to somebody else; remove it") from None
    if user is not None:
        shutil.chown(path, user, user)
    path.chmod(mode)


def _uid(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_uid


def make_tree(layout: Layout) -> None:
    """Make or refresh the private PostgreSQL tree.

    Extensions that were installed since it was made are linked, those that are gone are not.

    Raises
    ------
    SetupError
        If the server's programs are not installed.
    """
    version = str(layout.major)
    system = {
        "lib": Path("/usr/lib/postgresql") / version / "lib",
        "bin": Path("/usr/lib/postgresql") / version / "bin",
        "share": Path("/usr/share/postgresql") / version,
        "include": Path("/usr/include/postgresql"),
    }
    for path in (system["bin"] / "postgres", system["lib"] / "plpython3.so"):
        if not path.exists():
            raise SetupError(f"{path} is missing; run `make packages`")
    release = run([system["bin"] / "postgres", "--version"])
    stamp = layout.home / "pg" / "release"
    tree = layout.home / "pg"
    if stamp.exists() and stamp.read_text() == release and layout.bin.exists():
        _link_files(system["lib"], tree / "lib/postgresql" / version / "lib")
        _link_files(system["share"], tree / "share/postgresql" / version)
        return
    new = layout.home / f"pg.{os.getpid()}"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(system["bin"], new / "lib/postgresql" / version / "bin")
    _link_files(system["lib"], new / "lib/postgresql" / version / "lib")
    _link_files(system["share"], new / "share/postgresql" / version)
    (new / "include").mkdir()
    (new / "include/postgresql").symlink_to(system["include"])
    (new / "release").write_text(release)
    if tree.exists():
        shutil.rmtree(tree)
    new.rename(tree)


def _link_files(source: Path, target: Path) -> None:
    """Repeat a folder tree as real folders with links to its files, without dpsql's own.

    What is there stays, but for links to files that are gone.
    """
    for folder, _, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        for name in files:
            if not name.startswith("dpsql"):
                with contextlib.suppress(FileExistsError):
                    (here / name).symlink_to(Path(folder) / name)
    for link in target.rglob("*"):
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)


def site_packages() -> Path:
    """Return the folder of third-party packages of the running interpreter.

    Its real path: the server's OS user may not be able to follow the clone's link to it.
    """
    return Path(sysconfig.get_path("purelib")).resolve()
