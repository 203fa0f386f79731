"""The install script: order, OR REPLACE, the boot lines, and what the build refuses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]

BODY = """create or replace function dp.f() returns int
language plpython3u set search_path = pg_catalog, pg_temp
as $$
#!boot
return GD["dpsql"].call(plpy, GD, "f")
$$;
"""


@pytest.fixture
def build():
    spec = importlib.util.spec_from_file_location("build_script", ROOT / "sql/build_script.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    for path, text in {
        "dpsql/_version.py": '__version__ = "1.0"\n',
        "dpsql/server/handlers.py": "def f(plpy, session):\n    return 1\n",
        "plpython/boot.in": (ROOT / "plpython/boot.in").read_text(),
        "plpython/settings.in": (ROOT / "plpython/settings.in").read_text(),
        "plpython/f.sql": BODY,
        "sql/schema/10-a.sql": "create schema dp;\n",
        "sql/schema/99-grants.sql": "grant usage on schema dp to public;\n",
        "sql/functions/g.sql": "create or replace function dp.g() ...\n  'create or replace view'",
        "sql/views/v.sql": "CREATE OR REPLACE VIEW dp.v as select 1;\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_parts_come_in_order_with_grants_last(build, tree):
    text = build.build("1.0", ["/p"])
    places = [text.index(s) for s in ("\\echo", "create schema", "dp.g", "dp.f", "dp.v", "grant")]
    assert places == sorted(places)


def test_pinned_settings_stand_for_their_marker(build, tree):
    pinned = BODY.replace("set search_path = pg_catalog, pg_temp", "\n#!settings")
    (tree / "plpython/f.sql").write_text(pinned)
    text = build.build("1.0", ["/p"])
    assert "#!settings" not in text
    assert "set search_path = pg_catalog, pg_temp" in text
    assert "set standard_conforming_strings = on" in text


def test_or_replace_is_stripped_from_statements_only(build, tree):
    text = build.build("1.0", ["/p"])
    assert "create function dp.g()" in text
    assert "create VIEW dp.v" in text
    assert "'create or replace view'" in text


def test_two_versions_are_refused(build, tree):
    with pytest.raises(build.BuildError, match=r"_version\.py"):
        build.build("1.1", ["/p"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#!boot\n", "", "lacks the line #!boot"),
        ("set search_path = pg_catalog, pg_temp", "", "search_path"),
        ('"f")', '"unknown")', "defines no unknown"),
        ("return GD", "x = 1\n" * 6 + "return GD", "lines in the body"),
        ("plpython3u", "plpgsql", "no function in language plpython3u"),
    ],
)
def test_bodies_that_break_the_convention_are_refused(build, tree, old, new, message):
    (tree / "plpython/f.sql").write_text(BODY.replace(old, new))
    with pytest.raises(build.BuildError, match=message):
        build.build("1.0", ["/p"])


def test_boot_lines_ask_for_a_new_session_when_versions_differ(build):
    class PlpyError(Exception):
        pass

    code = compile(build.boot("1.0", ["/p"]), "boot", "exec")
    plpy = SimpleNamespace(Error=PlpyError)
    exec(code, {"plpy": plpy, "GD": {"dpsql": SimpleNamespace(__version__="1.0")}})
    with pytest.raises(PlpyError) as caught:
        exec(code, {"plpy": plpy, "GD": {"dpsql": SimpleNamespace(__version__="0.9")}})
    assert caught.value.sqlstate == "PD030"
    assert caught.value.hint.startswith("Start a new session;")
    assert "ALTER EXTENSION dpsql UPDATE" in caught.value.hint
    assert "1.0" in caught.value.detail
    assert "0.9" in caught.value.detail


def test_boot_lines_replace_a_package_of_another_folder(build, tmp_path, monkeypatch):
    """A server that was started with one version serves the next one to new sessions."""
    folders = [tmp_path / "1.0", tmp_path / "2.0"]
    for folder in folders:
        server = folder / "dpsql" / "server"
        server.mkdir(parents=True)
        (folder / "dpsql/__init__.py").write_text("")
        (server / "__init__.py").write_text("")
        (server / "entry.py").write_text(f"__version__ = {folder.name!r}\n")
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "dpsql"}
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        for name in kept:
            del sys.modules[name]
        for folder in folders:
            gd: dict[str, object] = {}
            exec(build.boot(folder.name, [str(folder)]), {"plpy": None, "GD": gd})
            assert gd["dpsql"].__version__ == folder.name
            assert gd["dpsql"].__file__.startswith(str(folder))
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "dpsql"]:
            del sys.modules[name]
        sys.modules.update(kept)


def test_boot_lines_say_that_the_package_is_missing(build, tmp_path, monkeypatch):
    class PlpyError(Exception):
        pass

    package = tmp_path / "dpsql"
    package.mkdir()
    (package / "__init__.py").write_text("")
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "dpsql"}
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    try:
        for name in kept:
            del sys.modules[name]
        with pytest.raises(PlpyError) as caught:
            exec(
                build.boot("1.0", [str(tmp_path)]),
                {"plpy": SimpleNamespace(Error=PlpyError), "GD": {}},
            )
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "dpsql"]:
            del sys.modules[name]
        sys.modules.update(kept)
    assert caught.value.sqlstate == "PD030"
    assert "1.0" in caught.value.detail
    assert str(tmp_path) not in str(vars(caught.value)) + str(caught.value)
    assert "ALTER EXTENSION dpsql UPDATE" in caught.value.hint


@pytest.fixture
def updates(tree):
    """Two steps, from 0.1 over 0.2 to 1.0."""
    (tree / "sql/updates/replaced").mkdir(parents=True)
    for name in ("before", "after"):
        shown = (ROOT / f"sql/updates/replaced/{name}.in").read_text()
        (tree / f"sql/updates/replaced/{name}.in").write_text(f"-- {name}\n{shown}")
    (tree / "sql/schema/00-guard.sql").write_text("do 'guard';\n")
    (tree / "sql/updates/0.1--0.2.sql").write_text("alter first;\n#!code\nfill first;\n")
    (tree / "sql/updates/0.2--1.0.sql").write_text("alter second;\n#!code\nfill second;\n")
    return tree


def test_an_update_leads_straight_to_the_present_version(build, updates):
    text = build.build_update("0.1", "1.0", ["/p"])
    order = ("\\echo", "'guard'", "-- before", "alter first", "alter second", "function dp.g",
             "function dp.f", "VIEW dp.v", "-- after", "fill first", "fill second", "grant usage")  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "create or replace function dp.f" in text.lower()
    assert "create schema" not in text
    assert "'/p'" in text
    assert "@" not in text.replace("@@", "")
    assert "alter first" not in build.build_update("0.2", "1.0", ["/p"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("0.3--0.1.sql", "#!code\n", "leads from 0.3 nowhere"),
        ("0.3.sql", "\n#!code\n", "is named"),
        ("0.3--1.0.sql", "alter third;\n", "must be there once"),
        ("0.3--1.0.sql", "\n#!code\n\n#!code\n", "must be there once"),
    ],
)
def test_steps_that_lead_nowhere_are_refused(build, updates, name, text, message):
    (updates / "sql/updates" / name).write_text(text)
    (updates / "sql/updates/0.2--1.0.sql").write_text("\n#!code\n")
    if "nowhere" in message:
        (updates / "sql/updates/0.1--0.2.sql").write_text("\n#!code\n")
        (updates / "sql/updates/0.2--1.0.sql").rename(updates / "sql/updates/0.2--0.3.sql")
    with pytest.raises(build.BuildError, match=message):
        build.build_update("0.3", "1.0", ["/p"])


def test_the_header_is_one_c_string_whatever_the_path(build, tmp_path):
    path = '/a "b"/\\u00e9\n'
    header = build.header([path])
    assert header.isascii()
    source = tmp_path / "print.c"
    source.write_text(
        header + "#include <stdio.h>\nint main(void) { fputs(DPSQL_PYTHON_IMPORTS, stdout); }\n"
    )
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", tmp_path / "print", source], check=True)
    text = subprocess.run([tmp_path / "print"], check=True, capture_output=True, text=True).stdout
    assert ascii(path) in text
    compile(text, "imports", "exec")


def test_hints_that_may_be_kept_have_no_place_for_a_name(build):
    found = build.hints()
    assert len(found) > 300
    assert found == sorted(set(found))
    assert [hint for hint in found if re.search(r"%s|%d|%I|%L|\{", hint)] == []
    # one of Python, of C and of SQL
    for words in (
        "The documentation lists the allowed ones",
        "Add dpsql to shared_preload_libraries",
        "Ask a superuser for GRANT",
    ):
        assert any(hint.startswith(words) for hint in found)
