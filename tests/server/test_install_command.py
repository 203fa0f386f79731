"""``dpsql install`` puts everything into a server that knows nothing of dpsql."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from dpsql.client.authentication import BEGIN, hba_block, with_block
from dpsql.client.cluster import Cluster
from dpsql.client.install import create_extension_in, install_into_server
from dpsql.client.layout import Layout, SetupError, make_tree


@pytest.fixture(scope="module")
def foreign():
    """Start a cluster of a second tree, configured by somebody else."""
    folder = Path(tempfile.mkdtemp(prefix="dpsql-", dir="/tmp"))
    folder.chmod(0o755)
    layout = replace(Layout.discover(), home=folder)
    make_tree(layout)
    settings = {"shared_preload_libraries": "''", "fsync": "off"}
    cluster = Cluster(layout.bin, folder / "data", folder / "run", folder / "log" / "log", settings)
    try:
        cluster.create(sync=False)
        cluster.configure()
        (cluster.data / "pg_hba.conf").write_text("local all all trust\n")
        (cluster.data / "pg_ident.conf").write_text("# theirs\n")
        cluster.launch()
        with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
            connection.execute("alter system set shared_preload_libraries = 'auto_explain'")
        yield layout, cluster
    finally:
        cluster.stop("immediate")
        shutil.rmtree(folder)


def install(foreign, **options) -> list[str]:
    layout, cluster = foreign
    done: list[str] = []
    install_into_server(
        layout,
        layout.bin / "pg_config",
        cluster.conninfo(),
        venv=Path(sys.prefix),
        report=done.append,
        **options,
    )
    return done


def test_install_configures_an_existing_server_once(foreign):
    _, cluster = foreign
    with pytest.raises(SetupError, match="the server has not loaded dpsql"):
        create_extension_in(cluster.conninfo())
    done = install(foreign, restart=True)
    assert "restarted the server" in done
    assert any("pg_hba.conf" in line for line in done)
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        libraries = connection.execute("show shared_preload_libraries").fetchone()[0]
        assert libraries.replace(" ", "") == "auto_explain,dpsql"
    assert create_extension_in(cluster.conninfo()) == "created the extension in postgres"
    assert create_extension_in(cluster.conninfo()) == "found the extension in postgres"

    hba = (cluster.data / "pg_hba.conf").read_text()
    assert hba.startswith(BEGIN)
    assert hba.endswith("local all all trust\n")
    again = install(foreign, restart=True)
    assert not any("wrote" in line or "added" in line or "restarted" in line for line in again)
    assert (cluster.data / "pg_hba.conf").read_text() == hba


def test_only_the_servers_os_user_can_be_the_role_of_service_sessions(foreign):
    _, cluster = foreign
    role = "dp_executor"
    install(foreign, restart=True)
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        found = connection.execute("select 1 from pg_roles where rolname = %s", [role])
        if not found.fetchone():
            connection.execute(f"create role {role} login")
    as_role = [cluster.bin / "psql", "-Atqc", "select 1", cluster.conninfo(user=role)]
    if (owner := cluster.data.owner()) == "postgres":
        refused = subprocess.run(as_role, capture_output=True, text=True)
        assert "authentication failed" in refused.stderr
        as_role = ["runuser", "-u", owner, "--", *as_role]
    assert subprocess.run(as_role, capture_output=True, text=True, cwd="/").stdout == "1\n"


def test_unsupported_server_is_told_what_to_do(foreign, tmp_path):
    layout, cluster = foreign
    old = tmp_path / "pg_config"
    old.write_text("#!/bin/sh\necho PostgreSQL 13.4\n")
    old.chmod(0o755)
    with pytest.raises(SetupError, match="supports PostgreSQL 15 to 18"):
        install_into_server(layout, old, cluster.conninfo(), venv=Path(sys.prefix))


def test_a_block_replaces_its_former_self_and_comes_first():
    theirs = "# comment\nlocal all all trust\n"
    once = with_block(theirs, hba_block())
    assert once == hba_block() + theirs
    assert with_block("# new first line\n" + once, hba_block()) == hba_block() + (
        "# new first line\n" + theirs
    )


def test_a_block_of_the_ledger_alone_becomes_one_of_both_roles(foreign):
    """As an earlier version wrote it: service sessions log in as dp_executor."""
    _, cluster = foreign
    install(foreign, restart=True)
    paths = [cluster.data / name for name in ("pg_hba.conf", "pg_ident.conf")]
    wanted = [path.read_text() for path in paths]
    for path, text in zip(paths, wanted, strict=True):
        former = [line for line in text.splitlines(keepends=True) if "dp_executor" not in line]
        assert len(former) < len(text.splitlines())
        path.write_text("".join(former))
    done = install(foreign)
    assert [path.read_text() for path in paths] == wanted
    for path in paths:
        assert any(line.endswith(str(path)) for line in done)


def test_the_tree_follows_extensions_that_come_and_go(foreign):
    layout, _ = foreign
    folder = layout.home / "pg/share/postgresql" / str(layout.major) / "extension"
    own = folder / "dpsql.control"
    had = own.exists()
    came, gone = folder / "plpgsql.control", folder / "gone.control"
    came.unlink()
    gone.symlink_to("/usr/share/postgresql/gone.control")
    make_tree(layout)
    assert came.exists()
    assert not gone.is_symlink()
    assert own.exists() == had
