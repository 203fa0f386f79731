"""What commands print: tables for people, one JSON document for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

WIDE = 100_000
LONG = 100


def plain(value: Any) -> Any:
    """Return what JSON has for a value: numbers, texts, and times as ISO 8601."""
    if isinstance(value, Decimal | float) and not isfinite(value):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def print_json(document: Any) -> None:
    """Print one document; its keys are part of the interface (docs/command-line.md)."""
    print(json.dumps(plain(document), indent=2, allow_nan=False))


def cell(value: Any) -> str:
    """Return a value for people; nothing in a name can move the cursor of their terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal | float):
        return f"{float(value):.6g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list | tuple):
        return ", ".join(cell(one) for one in value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print these columns of rows; lines are cut at no width unless people read them."""
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = any(isinstance(row[name], int | float | Decimal) for row in rows)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row[name]) for name in columns))
    width = None if sys.stdout.isatty() else WIDE
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        print(line.rstrip())


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one a line; of a long list each member."""
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [cell(value)]
        if isinstance(value, list | tuple) and len(lines[0]) > LONG:
            lines = [cell(one) for one in value]
        for line in lines:
            print(f"{name:<{width}}  {line}")
            name = ""
