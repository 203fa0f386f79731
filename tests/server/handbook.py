"""What the pages of docs/ tell to type."""

from __future__ import annotations

import re
from pathlib import Path


def block(page: Path, mark: str, language: str = "sql") -> str:
    """Return the one code block of a page that contains a text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)
    (wanted,) = [text for text in found if mark in text]
    return str(wanted)
