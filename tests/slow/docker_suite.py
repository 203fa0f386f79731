"""The image: `make test-docker`.  Needs a Docker engine, and fails where none answers.

``DPSQL_DOCKER_NETWORK=host`` builds and runs on the host's network, for engines whose bridge reaches
no network; compose always has a bridge of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "dpsql-test"
NETWORK = os.environ.get("DPSQL_DOCKER_NETWORK", "")
PASSWORD = secrets.token_hex(8)
QUESTION = "select dp_count(*) from purchase where pieces = 3"

pytestmark = pytest.mark.server


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], text=True, capture_output=True)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def image() -> str:
    try:
        docker("info", "--format", "{{.ServerVersion}}")
    except (AssertionError, FileNotFoundError) as error:
        pytest.fail(f"no Docker engine answers (DOCKER_HOST names another one): {error}")
    network = ["--network", NETWORK] if NETWORK else []
    docker("build", *network, "-f", str(ROOT / "docker/Dockerfile"), "-t", IMAGE, str(ROOT))
    return IMAGE


class Running:
    """A container of the image with the demonstration's database on a volume."""

    def __init__(self, image: str) -> None:
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import DockerContainer

        # what removes containers of tests that were killed would have to be pulled
        testcontainers_config.ryuk_disabled = True
        self.volume = f"dpsql-test-{secrets.token_hex(4)}"
        self.port = _free_port() if NETWORK == "host" else 5432
        self.container: Any = (
            DockerContainer(image)
            .with_env("POSTGRES_DB", "shop")
            .with_env("POSTGRES_PASSWORD", PASSWORD)
            .with_env("PGPORT", str(self.port))
            .with_volume_mapping(self.volume, "/var/lib/postgresql/data", "rw")
            .with_volume_mapping(str(ROOT / "docker/demo"), "/docker-entrypoint-initdb.d", "ro")
        )
        if NETWORK == "host":
            self.container.with_kwargs(network_mode="host")
        else:
            self.container.with_exposed_ports(self.port)

    def start(self) -> None:
        self.container.start()
        end = time.monotonic() + 180
        while self.health() != "healthy":
            assert time.monotonic() < end, self.logs()
            time.sleep(1)

    def health(self) -> str:
        self.container.get_wrapped_container().reload()
        return str(self.container.get_wrapped_container().attrs["State"]["Health"]["Status"])

    def logs(self) -> str:
        return b"".join(self.container.get_logs()).decode()[-4000:]

    def run(self, *command: str) -> tuple[int, str]:
        code, output = self.container.exec(list(command))
        return code, output.decode()

    def connect(self, user: str, password: str) -> psycopg.Connection[Any]:
        host = NETWORK == "host"
        return psycopg.connect(
            host="127.0.0.1" if host else self.container.get_container_host_ip(),
            port=self.port if host else self.container.get_exposed_port(self.port),
            dbname="shop",
            user=user,
            password=password,
            autocommit=True,
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="session")
def running(image: str) -> Iterator[Running]:
    running = Running(image)
    running.start()
    yield running
    running.container.stop()
    docker("volume", "rm", running.volume)


def test_an_analyst_asks(running: Running) -> None:
    with running.connect("alice", "alice") as alice:
        first = alice.execute(QUESTION).fetchall()
        assert alice.execute(QUESTION).fetchall() == first
        assert alice.execute("select count(*) from dpv.purchases").fetchone()
        with pytest.raises(psycopg.Error, match="permission denied"):
            alice.execute("select * from purchase")


def test_versions_agree_and_jobs_can_be_scheduled(running: Running) -> None:
    with running.connect("postgres", PASSWORD) as admin:
        rows = admin.execute(
            "select extname, extversion = dp.library_version() from pg_extension"
            " where extname in ('dpsql', 'pg_cron') order by 1"
        ).fetchall()
        assert [name for name, _ in rows] == ["dpsql", "pg_cron"]
        assert rows[0][1] is True
    with running.connect("steward", "steward") as steward:
        assert steward.execute("select status from dp.ledger_status").fetchone() == ("ok",)


def test_nothing_runs_as_root(running: Running) -> None:
    assert running.run("id", "-un")[1].strip() == "postgres"
    owners = running.run("sh", "-c", "stat -c %U /proc/[0-9]* | sort -u")[1].split()
    assert owners == ["postgres"]
    assert (
        running.run("sh", "-c", 'touch "$(dirname "$(command -v postgres)")/../lib/dpsql.so"')[0]
        != 0
    )


@pytest.mark.parametrize("user", ["dp_executor", "alice"])
def test_nobody_gets_in_without_a_password(running: Running, user: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        running.connect(user, "guess")


def test_a_ledger_outlives_its_container(running: Running) -> None:
    with running.connect("alice", "alice") as alice:
        answer = alice.execute(QUESTION).fetchall()
        spent = alice.execute("select epsilon_spent from dp.budgets").fetchall()
    running.container.stop()
    running.container._container = None
    running.start()
    with running.connect("alice", "alice") as alice:
        assert alice.execute(QUESTION).fetchall() == answer
        assert alice.execute("select epsilon_spent from dp.budgets").fetchall() == spent


def test_a_new_server_needs_a_password(image: str) -> None:
    done = subprocess.run(["docker", "run", "--rm", image], text=True, capture_output=True)
    assert done.returncode == 1
    assert "POSTGRES_PASSWORD" in done.stderr


def compose_command() -> list[str]:
    """Find compose: a plugin of docker, or the older program."""
    plugin = ["docker", "compose"]
    if subprocess.run([*plugin, "version"], capture_output=True).returncode == 0:
        return plugin
    program = shutil.which("docker-compose")
    assert program, "neither docker compose nor docker-compose is installed"
    return [program]


def test_compose_starts_the_demonstration(image: str) -> None:
    port = _free_port()
    project = f"dpsql-test-{secrets.token_hex(4)}"
    command = [*compose_command(), "-p", project, "-f", str(ROOT / "docker/compose.yaml")]
    environment = os.environ | {"DPSQL_IMAGE": image, "DPSQL_PORT": str(port)}

    def compose(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments], env=environment, text=True, capture_output=True, timeout=300
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-3000:]
        return done.stdout

    try:
        compose("up", "-d", "--no-build", "db")
        end = time.monotonic() + 180
        while True:
            try:
                alice = psycopg.connect(
                    f"host=127.0.0.1 port={port} user=alice password=alice dbname=shop"
                )
                break
            except psycopg.OperationalError:
                assert time.monotonic() < end, compose("logs", "db")
                time.sleep(1)
        with alice:
            rows = alice.execute("select kind, dp_count(*) from customer group by kind").fetchall()
        assert sorted(kind for kind, _ in rows) == ["club", "single"]
    finally:
        compose("down", "-v")
