"""The documentation builds as a site that loads nothing from a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?([^"'\s>]+)""")


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", source / "mkdocs.yml", "-d", target],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small site of the same configuration, to break."""
    folder = tmp_path / "source"
    (folder / "docs").mkdir(parents=True)
    (folder / "bench").mkdir()
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "bench" / "README.md").write_text("# Measured\n")
    (folder / "docs" / "index.md").write_text("# Start\n\nA list:\n- one\n- two\n")
    (folder / "docs" / "analyst.md").write_text("# For analysts\n\n## Aggregates\n")
    return folder


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ("[gone](nowhere.md)", True),
        ("[gone](analyst.md#no-such-heading)", True),
        ("[gone](../bench/nothing.md)", True),
        ("[there](../bench/README.md), [and there](analyst.md#aggregates)", False),
    ],
)
def test_links_that_lead_nowhere_end_it(source: Path, said: str, broken: bool) -> None:
    (source / "docs" / "added.md").write_text(f"# A page that nobody named\n\n{said}\n")
    done = build(source, source / "site")
    assert (done.returncode != 0) == broken, done.stderr
    if not broken:
        assert "A page that nobody named" in (source / "site" / "index.html").read_text()
        assert "bench/README.md" in (source / "site" / "added.html").read_text()


def test_pages_that_do_not_exist_are_left_out(source: Path) -> None:
    assert build(source, source / "site").returncode == 0
    start = (source / "site" / "index.html").read_text()
    assert "superset.html" not in start
    assert "<li>one</li>" in start
    (source / "docs" / "superset.md").write_text("# Superset\n")
    assert build(source, source / "site").returncode == 0
    assert "superset.html" in (source / "site" / "index.html").read_text()
