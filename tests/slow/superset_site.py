"""Apache Superset in a process of its own: one folder holds all it writes."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until

USER = "visitor"
#: What docs/superset.md tells to set, and no cache: each look asks the server.
CONFIGURATION = """
SECRET_KEY = {secret!r}
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
TALISMAN_ENABLED = False
CACHE_CONFIG = DATA_CACHE_CONFIG = {{"CACHE_TYPE": "NullCache"}}
FEATURE_FLAGS = {{"ESTIMATE_QUERY_COST": True}}
{documented}
"""


@dataclass
class Site:
    """A Superset on a free port of this machine.

    Attributes
    ----------
    programs : Path
        Of the virtual environment that has it.
    folder : Path
        Its metadata, configuration and log.
    documented : str
        Settings that its documentation, not this class, chooses.
    """

    programs: Path
    folder: Path
    documented: str = ""
    port: int = 0
    password: str = ""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Make the metadata database and one user, and serve."""
        self.password = secrets.token_urlsafe(12)
        configuration = CONFIGURATION.format(
            secret=secrets.token_urlsafe(42), folder=self.folder, documented=self.documented
        )
        (self.folder / "superset_config.py").write_text(configuration)
        self._run("db", "upgrade")
        self._run(
            *("fab", "create-admin", "--username", USER, "--password", self.password),
            *("--firstname", "Vera", "--lastname", "Visitor", "--email", "vera@example.org"),
        )
        self._run("init")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [self.programs / "superset", "run", "-h", "127.0.0.1", "-p", str(self.port), "--with-threads"],
            env=self._environment(),
            cwd=self.folder,
            stdout=self._log(),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        wait_until(self._answers, 180)

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "superset.log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(self.address + "/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "FLASK_APP": "superset.app:create_app()",
            "SUPERSET_HOME": str(self.folder),
            "SUPERSET_CONFIG_PATH": str(self.folder / "superset_config.py"),
        }

    def _log(self) -> int:
        return os.open(self.folder / "superset.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [self.programs / "superset", *command],
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, (command[:2], done.stdout[-2000:], done.stderr[-4000:])
