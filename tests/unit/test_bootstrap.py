"""scripts/bootstrap.sh asks pip only for what is not there yet."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = '#!/bin/sh\necho "$@" >>"$(dirname "$0")/calls"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a clone whose virtual environment writes down how it is called."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/bootstrap.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("one\n")
    python = tmp_path / ".dpsql/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE)
    python.chmod(0o755)
    return tmp_path


def installed(clone: Path, *extras: str) -> list[str]:
    """Ask for extras; which ones pip is called for."""
    calls = clone / ".dpsql/venv/bin/calls"
    calls.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "DPSQL_VENV"}
    subprocess.run(
        [clone / "scripts/bootstrap.sh", "venv", *extras], check=True, timeout=60, env=environment
    )
    said = calls.read_text() if calls.exists() else ""
    return re.findall(r"pip install .*\[(.*)\]", said)


def test_pip_is_asked_once_for_what_is_there(clone: Path) -> None:
    assert installed(clone, "test", "demo", "lint") == ["demo,lint,test"]
    assert installed(clone, "test", "demo", "lint") == []
    assert installed(clone, "lint", "test") == []


def test_more_is_added_to_what_is_there(clone: Path) -> None:
    installed(clone, "demo", "test")
    assert installed(clone, "docs") == ["demo,docs,test"]
    assert installed(clone, "demo", "test") == []


def test_other_dependencies_are_installed_anew(clone: Path) -> None:
    installed(clone, "demo")
    (clone / "pyproject.toml").write_text("two\n")
    assert installed(clone, "demo") == ["demo"]


def test_what_failed_is_tried_again(clone: Path) -> None:
    python = clone / ".dpsql/venv/bin/python"
    python.write_text(FAKE + 'case "$*" in *install*) exit 1 ;; esac\n')
    with pytest.raises(subprocess.CalledProcessError):
        installed(clone, "demo")
    python.write_text(FAKE)
    assert installed(clone, "demo") == ["demo"]


def test_the_whole_suite_asks_pip_once() -> None:
    told = subprocess.run(
        ["make", "-n", "test"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    ).stdout
    asked = [set(extras.split()) for extras in re.findall(r"bootstrap\.sh venv (.*)", told)]
    assert asked
    assert all(extras <= asked[0] for extras in asked)
