"""A server of an older, frozen version, and the same data directory under the present one."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from dpsql.client.build import Target, copy_package
from dpsql.client.cluster import Cluster
from dpsql.client.layout import Layout, make_tree, run, site_packages
from tests.conftest import ROLES, Database

FROZEN = Path(__file__).parents[1] / "update"


def build_frozen(version: str, folder: Path) -> Path:
    """Build and install a frozen version into a tree of its own; return that tree's programs."""
    clone = folder / "clone"
    with tarfile.open(FROZEN / f"{version}.tar.xz") as archive:
        # Python before 3.11.4 has no filters; what is unpacked is ours, and its hash is tested
        archive.extractall(clone, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    layout = replace(Layout.discover(), clone=clone, home=folder / "home")
    make_tree(layout)
    # what 15 has in postgres.h
    headers = "" if layout.major < 16 else "-include postgres.h -include varatt.h"
    package = layout.home / "python" / version
    target = Target(layout.bin / "pg_config", package, site_packages(), layout.home / "build")
    run(
        [
            *("make", "-s", "-j2", "-C", clone / "sql", f"COPT=-O0 -g0 {headers}"),
            *(f"BUILD={target.build_dir}", f"PG_CONFIG={target.pg_config}"),
            *(f"PACKAGE_DIR={package}", f"SITE_PACKAGES={target.site_packages}", "install"),
        ],
    )
    copy_package(clone, package)
    return layout.bin


class OldServer:
    """A cluster that begins under a frozen version and goes on under the present one."""

    def __init__(self, version: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dpsql-", dir="/tmp"))
        self.folder.chmod(0o755)
        try:
            old = build_frozen(version, self.folder)
            self.cluster = Cluster(
                bin=old,
                data=self.folder / "data",
                socket=self.folder / "run",
                log=self.folder / "log" / "postgresql.log",
                settings={"shared_buffers": "128MB", "fsync": "off", "full_page_writes": "off"},
            )
            self.cluster.create(sync=False)
            self.cluster.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def create_database(self, name: str) -> Database:
        """Make a database with the extension of whatever version runs."""
        postgres = Database(self.cluster, "postgres")
        postgres.sql(f"create database {name}")
        database = Database(self.cluster, name)
        for role in ROLES:
            if not postgres.sql(f"select 1 from pg_roles where rolname = '{role}'"):
                postgres.sql(f"create role {role} login")
        database.sql("create extension dpsql cascade")
        return database

    def install_present(self) -> None:
        """Stop the server and start the present version's on the same data."""
        self.cluster.stop()
        self.cluster = replace(self.cluster, bin=Layout.discover().bin)
        self.cluster.start()

    def remove(self) -> None:
        """Stop the server and delete all of it."""
        self.cluster.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
