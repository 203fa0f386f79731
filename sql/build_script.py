"""Put the extension's install script together; standard library only.

Order: run-once schema files, functions, PL/Python functions, views, and the grants last.  Sources
say ``create or replace`` so that an upgrade can run them again; the install script says ``create``,
so that nobody can prepare an object for the extension to adopt.  The marker line ``#!boot`` in a
PL/Python body becomes the lines of ``plpython/boot.in``, the line ``#!settings`` before a body the
settings of ``plpython/settings.in`` that every answering function pins.  ``--header`` writes
``plpython/preload.in`` as the C header of the library that imports the package at server start,
``--hints`` that of the hints that are constant, which is what may be kept of a refusal.

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


class BuildError(Exception):
    """A source that must not be installed."""


def sources() -> list[Path]:
    """Return the parts in the order in which they run."""
    schema = sorted((ROOT / "sql/schema").glob("*.sql"))
    return [
        *(path for path in schema if path.name != GRANTS),
        *sorted((ROOT / "sql/functions").glob("*.sql")),
        *sorted((ROOT / "plpython").glob("*.sql")),
        *sorted((ROOT / "sql/views").glob("*.sql")),
        *(path for path in schema if path.name == GRANTS),
    ]


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
    if len(_PINNED.findall(text)) < len(bodies):
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


def hints_header() -> str:
    """Return the hints as a C header."""
    lines = [f"\t{json.dumps(hint)}," for hint in hints()]
    return "static const char *const hints[] = {\n" + "\n".join(lines) + "\n};\n"


def build(version: str, paths: list[str]) -> str:
    """Return the whole install script."""
    written = re.search(r'__version__ = "([^"]+)"', (ROOT / "dpsql/_version.py").read_text())
    if written is None or written.group(1) != version:
        raise BuildError(f"sql/dpsql.control says {version}, dpsql/_version.py does not")
    known = handlers()
    prelude = boot(version, paths)
    settings = (ROOT / "plpython/settings.in").read_text().rstrip("\n")
    parts = [GUARD]
    for path in sources():
        text = path.read_text()
        if path.parent.name == "plpython":
            text = re.sub(r"^#!settings$", lambda _: settings, text, flags=re.M)
            check_plpython(path.relative_to(ROOT), text, known)
            text = re.sub(r"^#!boot$", lambda _: prelude, text, flags=re.M)
        text = _OR_REPLACE.sub("create", text)
        parts.append(f"-- {path.relative_to(ROOT)}\n{text.rstrip()}\n")
    return "\n".join(parts)


def main() -> int:
    """Write the script that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--package-dir", required=True, help="folder that holds the package")
    parser.add_argument("--site-packages", required=True, help="folder of its dependencies")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--header", action="store_true", help="write the library's header instead")
    parser.add_argument("--hints", action="store_true", help="write the header of hints instead")
    arguments = parser.parse_args()
    if not arguments.package_dir or not arguments.site_packages:
        sys.exit("build_script: PACKAGE_DIR and SITE_PACKAGES must be set")
    paths = [arguments.package_dir, arguments.site_packages]
    try:
        if arguments.hints:
            text = hints_header()
        elif arguments.header:
            text = header(paths)
        else:
            text = build(arguments.version, paths)
    except BuildError as error:
        sys.exit(f"build_script: {error}")
    arguments.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
