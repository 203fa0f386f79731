"""The extension in a fresh database: installs, agrees on its version, uninstalls."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from dpsql import __version__
from dpsql.client.layout import Layout, site_packages
from tests.conftest import Database

ROOT = Path(__file__).resolve().parents[2]


def test_versions_of_control_file_catalogue_and_package_agree(database):
    control = (ROOT / "sql/dpsql.control").read_text()
    assert re.search(r"default_version = '(.*)'", control)[1] == __version__
    rows = database.sql("select extversion from pg_extension where extname = 'dpsql'")
    assert rows == [(__version__,)]


def test_package_and_its_compiled_dependencies_import_in_a_backend(database):
    paths = [str(Layout.discover().packages), str(site_packages())]
    database.sql(
        f"""
        create function public.modules() returns text[] language plpython3u as $$
            import sys
            sys.path[:0] = {paths!r}
            import numpy, psycopg, dpsql
            return [dpsql.__version__, psycopg.pq.__impl__]
        $$"""
    )
    assert database.sql("select public.modules()") == [([__version__, "binary"],)]


def test_backend_runs_the_system_python_with_single_threaded_numerics(database):
    database.sql(
        """
        create function public.runtime() returns text[] language plpython3u as $$
            import os, sys
            return [sys.base_prefix, os.environ.get("OPENBLAS_NUM_THREADS")]
        $$"""
    )
    assert database.sql("select public.runtime()") == [(["/usr", "1"],)]


def test_drop_extension_leaves_no_object(database):
    before = "select count(*) from pg_depend d join pg_extension e on d.refobjid = e.oid"
    database.sql("drop extension dpsql")
    left = database.sql(
        "select nspname from pg_namespace where nspname in ('dp', 'dpv') union all "
        "select proname from pg_proc where proname like 'dp\\_%'"
    )
    assert left == []
    assert database.sql(f"{before} where e.extname = 'dpsql'") == [(0,)]
    database.sql("create extension dpsql")


def test_a_database_that_takes_any_bytes_as_text_is_refused(server):
    name = "any_bytes"
    Database(server.cluster, "postgres").sql(
        f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0"
    )
    database = Database(server.cluster, name)
    try:
        with pytest.raises(psycopg.Error) as caught:
            database.sql("create extension dpsql cascade")
        assert caught.value.sqlstate == "PD040"
        assert "SQL_ASCII" in caught.value.diag.message_primary
        assert "fail" in caught.value.diag.message_detail
        assert "UTF8" in caught.value.diag.message_hint
        assert database.sql("select count(*) from pg_namespace where nspname = 'dp'") == [(0,)]
    finally:
        server.drop_database(database)
