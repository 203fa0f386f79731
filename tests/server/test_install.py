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


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "WIN1252", "EUC_JP"])
def test_a_database_whose_text_may_have_no_unicode_is_refused(server, encoding):
    """A value of a group passes through Unicode: the answer would fail with one such row."""
    name = "any_bytes"
    Database(server.cluster, "postgres").sql(
        f"create database {name} encoding '{encoding}' locale 'C' template template0"
    )
    database = Database(server.cluster, name)
    try:
        with pytest.raises(psycopg.Error) as caught:
            database.sql("create extension dpsql cascade")
        assert caught.value.sqlstate == "PD040"
        assert encoding in caught.value.diag.message_primary
        assert "fail" in caught.value.diag.message_detail
        assert "UTF8" in caught.value.diag.message_hint
        assert database.sql("select count(*) from pg_namespace where nspname = 'dp'") == [(0,)]
    finally:
        server.drop_database(database)


def test_every_text_of_an_accepted_encoding_has_unicode(database):
    guard = (ROOT / "sql/schema/00-guard.sql").read_text()
    listed = re.search(r"getdatabaseencoding\(\) not in\s*\(([^)]*)\)", guard)
    encodings = re.findall(r"'(\w+)'", listed[1])
    assert "UTF8" in encodings
    update = (ROOT / "sql/updates/0.0.1--0.1.0.sql").read_text()
    assert listed[0] in update
    for encoding in set(encodings) - {"UTF8"}:
        database.sql(
            "select convert_from(decode(lpad(to_hex(byte), 2, '0'), 'hex'), %s)"
            " from generate_series(1, 255) as byte",
            encoding,
        )
        # one byte a character, so that no others can be written
        assert database.sql("select pg_encoding_max_length(pg_char_to_encoding(%s))", encoding) == [
            (1,)
        ]


@pytest.mark.parametrize("encoding", ["LATIN1", "KOI8R"])
def test_one_row_of_any_bytes_makes_no_answer_fail(server, encoding):
    name = "all_bytes"
    Database(server.cluster, "postgres").sql(
        f"create database {name} encoding '{encoding}' locale 'C' template template0"
    )
    database = Database(server.cluster, name)
    try:
        database.sql(
            "create extension dpsql cascade;"
            "create table person (id int primary key, kind text);"
            "insert into person select i, convert_from(decode(lpad(to_hex(1 + i % 255), 2, '0'), 'hex'),"
            " current_setting('server_encoding')) from generate_series(1, 510) as i;"
            "select dp.protect('person'), dp.grant_budget('alice', 10)"
        )
        with database.connect(user="alice") as alice:
            alice.execute("select kind, dp_count(*) from person group by kind").fetchall()
    finally:
        server.drop_database(database)
