"""Every error of class PD that the sources raise, and the page that lists them.

``…`` stands for what is put in when the error is raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dpsql import errors
from dpsql.query.refusals import CONSTRUCTS

ROOT = Path(__file__).parents[1]
ERRORS = ROOT / "docs" / "errors.md"
MESSAGES = ROOT / "docs" / "messages.md"
BEGIN = """# Every message

Generated from the sources (`tests/unit/test_errors.py`): what dpsql raises on purpose, by [family](errors.md#families), with SQLSTATE and hint. `…` stands for a name, a value or a list.
"""

CLASSES = {
    name: kind.sqlstate
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.DpsqlError)
}
RAISED = re.compile(r"raise exception using\s(.*?);\n", re.DOTALL | re.IGNORECASE)
REPORTED = re.compile(r"ereport\((?:ERROR|FATAL),\s*(.*?)\)\);\n", re.DOTALL)
STATE = re.compile(r"define (ERRCODE_DPSQL_\w+)\s+MAKE_SQLSTATE\(([^)]*)\)")
CODE = re.compile(r"errcode = '(PD\w{3})'", re.IGNORECASE)


class Raised(NamedTuple):
    """One place that raises an error."""

    sqlstate: str
    message: str
    hint: str
    source: str


@cache
def raised() -> list[Raised]:
    """Return what the sources raise, in a stable order."""
    found = {*_python(), *_sql(), *_library()}
    return sorted(found)


def _python() -> Iterator[Raised]:
    for path in sorted((ROOT / "dpsql").rglob("*.py")):
        source = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name not in CLASSES or source == "dpsql/errors.py":
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            message = node.args[0] if node.args else given.get("message")
            text = _words(message) if message else ""
            if text.strip("… "):
                yield Raised(CLASSES[name], text, _words(given.get("hint")), source)
    for message, hint in CONSTRUCTS.values():
        yield Raised("PD011", message, hint, "dpsql/query/refusals.py")


def _words(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _words(part) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + _words(node.right)
    if isinstance(node, ast.IfExp):
        return " / ".join(part for part in (_words(node.body), _words(node.orelse)) if part)
    return "" if node is None else "…"


def _sql() -> Iterator[Raised]:
    for path in sorted((ROOT / "sql").rglob("*.sql")):
        for match in RAISED.finditer(path.read_text()):
            code = CODE.search(match[1])
            if code and (message := _literal(match[1], "message")):
                hint = _literal(match[1], "hint")
                yield Raised(code[1], message, hint, str(path.relative_to(ROOT)))


def _literal(body: str, key: str) -> str:
    """Join the texts of one option of RAISE; formats keep places for what is put in."""
    option = re.search(
        rf"\b{key} = (.*?)(?=,\s+(?:errcode|message|detail|hint) = |\Z)", body, re.DOTALL
    )
    texts = re.findall(r"'((?:[^']|'')+)'", option[1]) if option else []
    kept = [text.replace("''", "'") for text in texts if " " in text]
    return re.sub(r"%\d*\$?[ILs]", "…", " / ".join(kept))


def _library() -> Iterator[Raised]:
    folder = ROOT / "sql" / "hook"
    header = (folder / "dpsql.h").read_text()
    states = {name: "".join(re.findall(r"'(.)'", parts)) for name, parts in STATE.findall(header)}
    for path in sorted(folder.glob("*.c")):
        for match in REPORTED.finditer(path.read_text()):
            code = re.search(r"errcode\((\w+)\)", match[1])
            if code and code[1] in states and (message := _quoted(match[1], "errmsg")):
                hint = _quoted(match[1], "errhint")
                source = str(path.relative_to(ROOT))
                yield Raised(states[code[1]], message, hint, source)


def _quoted(body: str, call: str) -> str:
    start = re.search(rf'{call}\(((?:\s*"(?:[^"\\]|\\.)*")+)', body)
    texts = re.findall(r'"((?:[^"\\]|\\.)*)"', start[1]) if start else []
    text = re.sub(r"%[a-z]+", "…", "".join(texts).replace('\\"', '"'))
    return text if text.strip("… ") else ""


def families() -> dict[str, list[str]]:
    """Return the families of errors.md with the sources that they name."""
    found = re.findall(r"^### (.*)\n\n<!-- sources: (.*) -->$", ERRORS.read_text(), re.MULTILINE)
    return {title: sources.split() for title, sources in found}


def family_of(source: str, known: dict[str, list[str]]) -> str | None:
    """Return the family that names the source by its longest beginning."""
    fits = [
        (len(s), title) for title, sources in known.items() for s in sources if source.startswith(s)
    ]
    return max(fits)[1] if fits else None


def page() -> str:
    """Write the list of all messages."""
    known = families()
    parts = [BEGIN]
    for title in known:
        rows = sorted(
            {
                (r.sqlstate, r.message, r.hint)
                for r in raised()
                if family_of(r.source, known) == title
            }
        )
        parts += [f"## {title}\n", "| SQLSTATE | message | hint |", "|---|---|---|"]
        parts += [
            f"| {state} | {_cell(message)} | {_cell(hint)} |" for state, message, hint in rows
        ]
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"([|*_<`$\[\]])", r"\\\1", text)
