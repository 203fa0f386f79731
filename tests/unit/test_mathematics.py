"""The documentation names tests that exist; each theorem has a proof and a test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
THEOREMS = (DOCS / "mathematics.md").read_text()
NAMED = re.compile(r"\b(tests/[\w/]+\.py)(?:::(test_\w+))?")


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )


def test_named_tests_exist() -> None:
    gone = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for file, name in NAMED.findall(page.read_text()):
            if not (ROOT / file).exists() or (name and name not in functions(ROOT / file)):
                gone.append(f"{page.relative_to(ROOT)}: {file}::{name}")
    assert not gone, "\n".join(gone)


def test_every_theorem_has_a_proof_and_a_test() -> None:
    theorems = re.split(r"^### ", THEOREMS, flags=re.MULTILINE)[1:]
    assert len(theorems) > 20
    for theorem in theorems:
        title, _, body = theorem.partition("\n")
        assert "*Proof.*" in body, title
        tests = body.partition("*Tests.*")[2]
        assert any(name for _, name in NAMED.findall(tests)), f"{title}: no test is named"


def test_every_proof_is_of_a_theorem() -> None:
    proofs = {f"proofs/{page.name}" for page in (DOCS / "proofs").glob("*.md")}
    assert proofs <= set(re.findall(r"\]\((proofs/\w+\.md)", THEOREMS))


def test_formulas_can_be_drawn() -> None:
    from latex2mathml.converter import convert

    formulas = re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", THEOREMS, re.DOTALL)
    assert len(formulas) > 50
    for formula in formulas:
        assert "<math" in convert("".join(formula))
