"""Put the extension's install script together; standard library only.

Order: run-once schema files, functions, PL/Python functions, views, and the grants last.  Sources
say ``create or replace`` so that an upgrade can run them again; the install script says ``create``,
so that nobody can prepare an object for the extension to adopt.  The marker line ``#!boot`` in a
PL/Python body becomes the lines of ``plpython/boot.in``, the line ``#!settings`` before a body the
settings of ``plpython/settings.in`` that every answering function pins.  ``--header`` writes
``plpython/preload.in`` as the C header of the library that imports the package at server start,
``--hints`` that of the hints that are constant, which is what may be kept of a refusal.

An update script leads from an older version straight to this one: what the steps of ``sql/updates``
do to tables, in their order, around the same functions and views as an installation has, which are
replaced; functions and views that this version has no longer are dropped (sql/updates/README.md).

The build refuses a PL/Python file whose body has more than six lines or no marker, that pins no
``search_path``, or that names a handler which ``dpsql/server/handlers.py`` does not define.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUARD = '\\echo Use "CREATE EXTENSION dpsql CASCADE" to load this file. \\quit\n'
UPDATE_GUARD = '\\echo Use "ALTER EXTENSION dpsql UPDATE" to load this file. \\quit\n'
CHECK = "00-guard.sql"
CODE_MARK = "#!code"
GRANTS = "99-grants.sql"
BODY_LINES = 6

_BODY = re.compile(r"\blanguage\s+plpython3u\b.*?\bas\s+(\$\w*\$)(.*?)\1", re.I | re.S)
_HANDLER = re.compile(r"""GD\["dpsql"\]\.call\(\s*plpy\s*,\s*GD\s*,\s*"(\w+)\"""")
_OR_REPLACE = re.compile(r"^create\s+or\s+replace\b", re.I | re.M)
_PINNED = re.compile(r"\bset\s+search_path\b", re.I)
_SENTENCE = re.compile(r"[A-Z][^\n{}]{8,}[.;)]")
_C_HINT = re.compile(r'\berrhint\(((?:\s*"(?:[^"\\]|\\.)*")+)\s*\)')
_C_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SQL_HINT = re.compile(r"\bhint = '((?:[^']|'')*)'\s*[,;]")
_STATE = re.compile(r"\('(PD\d{3})', '")


class BuildError(Exception):
    """A source that must not be installed."""


def code() -> list[Path]:
    """Return functions and views, which an update runs again, in their order."""
    return [
        *sorted((ROOT / "sql/functions").glob("*.sql")),
        *sorted((ROOT / "plpython").glob("*.sql")),
        *sorted((ROOT / "sql/views").glob("*.sql")),
    ]


def sources() -> list[Path]:
    """Return the parts of an installation in the order in which they run."""
    schema = sorted((ROOT / "sql/schema").glob("*.sql"))
    return [
        *(path for path in schema if path.name != GRANTS),
        *code(),
        *(path for path in schema if path.name == GRANTS),
    ]


def steps() -> dict[str, tuple[str, Path]]:
    """Return what each older version is led to by a step of ``sql/updates``, and the step."""
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted((ROOT / "sql/updates").glob("*.sql")):
        old, separator, new = path.stem.partition("--")
        if not separator or not old or not new or old in found:
            raise BuildError(f"{path}: a step is named <old>--<new>.sql, one for each old version")
        found[old] = (new, path)
    return found


def way(old: str, version: str) -> list[Path]:
    """Return the steps from an older version to this one."""
    known, taken = steps(), []
    while old != version:
        if old not in known or known[old][1] in taken:
            raise BuildError(f"sql/updates leads from {old} nowhere, not to {version}")
        old, path = known[old]
        taken.append(path)
    return taken


def handlers() -> set[str]:
    """Return the names of the public functions in ``dpsql/server/handlers.py``."""
    path = ROOT / "dpsql/server/handlers.py"
    if not path.exists():
        return set()
    functions = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef))
    return {function.name for function in functions if not function.name.startswith("_")}


def check_plpython(path: Path, text: str, known: set[str]) -> None:
    """Refuse a PL/Python file that breaks the calling convention (plpython/README.md)."""
    bodies = _BODY.findall(text)
    if not bodies:
        raise BuildError(f"{path}: no function in language plpython3u with a dollar-quoted body")
    # a procedure that commits cannot pin anything: its session does
    if "replace procedure" not in text and len(_PINNED.findall(text)) < len(bodies):
        raise BuildError(f"{path}: a function does not say set search_path")
    for _, body in bodies:
        lines = [line for line in body.splitlines() if line.strip()]
        if "#!boot" not in lines:
            raise BuildError(f"{path}: the body lacks the line #!boot")
        if len(lines) > BODY_LINES:
            raise BuildError(f"{path}: {len(lines)} lines in the body, at most {BODY_LINES} may be")
        called = _HANDLER.findall(body)
        if len(called) != 1:
            raise BuildError(f'{path}: the body must call GD["dpsql"].call(plpy, GD, "...") once')
        if called[0] not in known:
            raise BuildError(f"{path}: dpsql/server/handlers.py defines no {called[0]}")


def boot(version: str, paths: list[str]) -> str:
    """Return the lines that stand for the marker."""
    template = (ROOT / "plpython/boot.in").read_text().rstrip("\n")
    return template.replace("@PATHS@", repr(paths)).replace("@VERSION@", repr(version))


def header(paths: list[str]) -> str:
    """Return the C header with the Python text that imports the package at server start."""
    text = (ROOT / "plpython/preload.in").read_text().replace("@PATHS@", ascii(paths))
    lines = [f"\t{json.dumps(line + chr(10))}" for line in text.splitlines()]
    return "#define DPSQL_PYTHON_IMPORTS \\\n" + " \\\n".join(lines) + "\n"


def hints() -> list[str]:
    """Return the hints of errors, and other sentences, that no part of a statement can be in."""
    found: set[str] = set()
    for path in (ROOT / "dpsql").rglob("*.py"):
        tree = ast.parse(path.read_text())
        outside = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr | ast.JoinedStr)  # docstrings, and pieces of texts
            for part in ast.iter_child_nodes(node)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in outside
                and _SENTENCE.fullmatch(node.value)
            ):
                found.add(node.value)
    for path in (ROOT / "sql/hook").glob("*.c"):
        for words in _C_HINT.findall(path.read_text()):
            if "%" not in words:
                found.add("".join(json.loads(f'"{part}"') for part in _C_STRING.findall(words)))
    for path in (ROOT / "sql").rglob("*.sql"):
        found |= {words.replace("''", "'") for words in _SQL_HINT.findall(path.read_text())}
    return sorted(found - {""})


def states() -> list[str]:
    """Return the SQLSTATEs of refusals: those of which dp.refusals knows a reason."""
    return sorted(set(_STATE.findall((ROOT / "sql/functions/refusals.sql").read_text())))


def hints_header() -> str:
    """Return the hints and the SQLSTATEs of refusals as a C header."""
    return "".join(
        f"static const char *const {name}[] = {{\n"
        + "\n".join(f"\t{json.dumps(text)}," for text in texts)
        + "\n};\n"
        for name, texts in (("hints", hints()), ("states", states()))
    )


def require_version(version: str) -> None:
    """Refuse to build where control file and package name different versions."""
    written = re.search(r'__version__ = "([^"]+)"', (ROOT / "dpsql/_version.py").read_text())
    if written is None or written.group(1) != version:
        raise BuildError(f"sql/dpsql.control says {version}, dpsql/_version.py does not")


def assemble(paths: list[Path], version: str, places: list[str]) -> list[str]:
    """Return sources as a script has them, markers replaced."""
    known = handlers()
    prelude = boot(version, places)
    settings = (ROOT / "plpython/settings.in").read_text().rstrip("\n")
    parts = []
    for path in paths:
        text = path.read_text()
        if path.parent.name == "plpython":
            text = re.sub(r"^#!settings$", lambda _: settings, text, flags=re.M)
            check_plpython(path.relative_to(ROOT), text, known)
            text = re.sub(r"^#!boot$", lambda _: prelude, text, flags=re.M)
        parts.append(f"-- {path.relative_to(ROOT)}\n{text.rstrip()}\n")
    return parts


def build(version: str, paths: list[str]) -> str:
    """Return the whole install script."""
    require_version(version)
    parts = assemble(sources(), version, paths)
    return "\n".join([GUARD, *(_OR_REPLACE.sub("create", part) for part in parts)])


def build_update(old: str, version: str, paths: list[str]) -> str:
    """Return the script that makes this version of an older one."""
    require_version(version)
    before, after = [], []
    for path in way(old, version):
        first, mark, second = path.read_text().partition(f"\n{CODE_MARK}\n")
        if not mark or CODE_MARK in second:
            raise BuildError(f"{path}: the line {CODE_MARK} must be there once")
        before.append(f"-- {path.relative_to(ROOT)}\n{first.rstrip()}\n")
        after.append(f"-- {path.relative_to(ROOT)}, afterwards\n{second.rstrip()}\n")
    replaced = ROOT / "sql/updates/replaced"
    opening, closing = ((replaced / f"{name}.in").read_text() for name in ("before", "after"))
    return "\n".join(
        [
            UPDATE_GUARD,
            *assemble([ROOT / "sql/schema" / CHECK], version, paths),
            opening.replace("@VERSION@", version),
            *before,
            *assemble(code(), version, paths),
            closing,
            *after,
            *assemble([ROOT / "sql/schema" / GRANTS], version, paths),
        ]
    )


def main() -> int:
    """Write the script that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--package-dir", help="folder that holds the package")
    parser.add_argument("--site-packages", help="folder of its dependencies")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--header", action="store_true", help="write the library's header instead")
    parser.add_argument("--update-from", metavar="OLD", help="write the script that updates OLD")
    parser.add_argument("--list-updates", action="store_true", help="print names of such scripts")
    parser.add_argument("--hints", action="store_true", help="write the header of hints instead")
    arguments = parser.parse_args()
    if arguments.list_updates:
        names = (f"dpsql--{old}--{arguments.version}.sql\n" for old in steps())
        sys.stdout.writelines(names)
        return 0
    if not arguments.output:
        parser.error("--output must be given")
    if not arguments.package_dir or not arguments.site_packages:
        sys.exit("build_script: PACKAGE_DIR and SITE_PACKAGES must be set")
    paths = [arguments.package_dir, arguments.site_packages]
    try:
        if arguments.header:
            text = header(paths)
        elif arguments.update_from:
            text = build_update(arguments.update_from, arguments.version, paths)
        elif arguments.hints:
            text = hints_header()
        else:
            text = build(arguments.version, paths)
    except BuildError as error:
        sys.exit(f"build_script: {error}")
    arguments.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
