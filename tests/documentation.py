"""The examples of README.md and docs/*.md, as blocks, statements and what they are said to answer.

The line before a block of SQL says where it runs (docs/extending.md, "A page"):
``<!-- example: DATABASE ROLE -->``, or ``<!-- no example: REASON -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DATABASES = {"customers", "tpch", "own"}
ROLES = {"steward": "steward", "alice": "alice", "bob": "bob", "superuser": "postgres"}

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w-]*)\s*$")
MARK = re.compile(r"^\s*<!-- (example|no example): (.*) -->\s*$")
SPEAKER = re.compile(r"^(?:a )?(steward|alice|bob|superuser)\b")
PROMPT = re.compile(r"^(\w+)(=[>#]|-[>#]) ?(.*)$")
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|(\$\w*\$).*?\1|;|[^-/'\"$;]+|.", re.DOTALL
)


@dataclass
class Block:
    """One fenced block and the line before it."""

    page: Path
    line: int
    language: str
    text: str
    mark: str | None = None
    says: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_sql(self) -> bool:
        """Whether a person would type it at the server, whatever the block is called."""
        if self.language in ("sql", "psql", "psql-session", "pgsql", "plpgsql"):
            return True
        if self.language not in ("", "text", "console"):
            return False
        return bool(re.search(r"^(\w+=[>#] |(SELECT|WITH|CALL|CREATE) .*\S)", self.text, re.M))


@dataclass
class Statement:
    """One statement, who says it, and what is told of its answer."""

    text: str
    role: str
    line: int
    expected: list[str] = field(default_factory=list)
    output: list[str] | None = None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = page.read_text().split("\n")
    number = 0
    while number < len(lines):
        if opening := FENCE.match(lines[number]):
            last = number + 1
            while lines[last].strip() != opening[2]:
                last += 1
            body = "\n".join(line.removeprefix(opening[1]) for line in lines[number + 1 : last])
            block = Block(page, number + 1, opening[3], body)
            if number and (mark := MARK.match(lines[number - 1])):
                block.mark, block.says = mark[1], mark[2].strip()
            found.append(block)
            number = last
        number += 1
    return found


def statements(block: Block, role: str) -> list[Statement]:
    """Return the statements of a block; comments say who speaks next, and what is answered."""
    if PROMPT.match(block.text.partition("\n")[0]):
        return list(_typed(block))
    return _written(block, role)


def _written(block: Block, role: str) -> list[Statement]:
    """Split SQL; what a comment at the end of a line says is about the statements that end there."""
    done: list[Statement] = []
    text, line = "", block.line + 1
    for token in TOKEN.finditer(block.text):
        if token[0].startswith("-->"):
            done[-1].expected.append(token[0][3:].strip())
        elif token[0].startswith("--"):
            if speaker := SPEAKER.match(token[0][2:].strip()):
                role = ROLES[speaker[1]]
                for statement in done:
                    if statement.line == line:
                        statement.role = role
        elif token[0] == ";":
            done.append(Statement(text.strip(), role, line))
            text = ""
        else:
            text += token[0]
        line += token[0].count("\n")
    if text.strip():
        raise ValueError(f"{block.name}: the last statement has no end: {text.strip()}")
    return done


def _typed(block: Block) -> Iterator[Statement]:
    """Split a session of psql: prompts with statements, and what was printed after each."""
    current: Statement | None = None
    for number, line in enumerate(block.text.split("\n"), block.line + 1):
        prompt = PROMPT.match(line)
        if prompt and prompt[2][0] == "=":
            if current:
                yield current
            current = Statement(prompt[3], ROLES.get(prompt[1], prompt[1]), number, output=[])
        elif current and prompt:
            current.text += "\n" + prompt[3]
        elif current and current.output is not None and line.strip():
            current.output.append(line)
    if current:
        yield current
