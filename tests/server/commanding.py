"""Run the command line in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dpsql.client import cli


@dataclass
class Done:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> list[Any]:
        """Notices and errors under --json."""
        return [json.loads(line) for line in self.err.splitlines()]


Command = Callable[..., Done]


def commander(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return what runs ``dpsql`` with arguments and tells how it ended."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["dpsql", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else int(code is not None), out, err)

    return run
