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
    """A copy of what the site is made of, to break."""
    folder = tmp_path / "source"
    for part in ("docs", "scripts", "bench"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("results"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


def test_it_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) >= len([*(ROOT / "docs").rglob("*.md")])
    for page in pages:
        text = page.read_text()
        away = [url for url in LOADED.findall(text) if re.match(r"(https?:)?//", url)]
        assert not away, (page.name, away)
        assert 'class="arithmatex"' not in text, page.name
    assert "<math" in (tmp_path / "site" / "mathematics.html").read_text()
    for sheet in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\"' ]*(?:https?:)?//", sheet.read_text()), sheet


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
    (source / "docs" / "views.md").write_text(
        "# How it works\n\n## For owners\n\n## In the schema\n"
    )
    done = build(source, source / "site")
    assert (done.returncode != 0) == broken, done.stderr
    if not broken:
        assert "A page that nobody named" in (source / "site" / "index.html").read_text()
        assert "bench/README.md" in (source / "site" / "added.html").read_text()


def test_pages_that_do_not_exist_yet_are_left_out(source: Path) -> None:
    (source / "docs" / "superset.md").unlink(missing_ok=True)
    done = build(source, source / "site")
    assert done.returncode == 0, done.stderr
    assert "superset.html" not in (source / "site" / "index.html").read_text()
    (source / "docs" / "superset.md").write_text("# Superset\n")
    assert build(source, source / "site").returncode == 0
    assert "superset.html" in (source / "site" / "index.html").read_text()
