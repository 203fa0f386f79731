"""What the command line prints is JSON that everybody reads, and moves nobody's cursor."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest

from dpsql.client.shown import cell, plain, print_facts, print_table


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (Decimal("3"), 3),
        (Decimal("1E-7"), 1e-7),
        (Decimal("Infinity"), "Infinity"),
        (float("nan"), "nan"),
        (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00+00:00"),
        (timedelta(hours=1), 3600),
        ({"a": (Decimal("0.5"), None)}, {"a": [0.5, None]}),
        (True, True),
    ],
)
def test_values_are_plain_json(value: object, document: object) -> None:
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == document


def test_cells_are_printable() -> None:
    assert (
        cell("a\x1b[2J\nb\u202e")
        == "a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    )
    assert cell(Decimal("0.000000060000")) == "6e-08"
    assert cell([None, True, 2]) == "-, yes, 2"


def test_long_lists_have_a_line_for_each_member(capsys: pytest.CaptureFixture[str]) -> None:
    note = "a note that is rather long, as notes of a synthesis are"
    print_facts({"id": 7, "reads": ["a", "b"], "notes": [note, note]})
    assert capsys.readouterr().out.splitlines() == [
        "id     7",
        "reads  a, b",
        f"notes  {note}",
        f"       {note}",
    ]


def test_tables_have_no_blanks_at_their_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"a": "x", "b": None}, {"a": "y", "b": "long"}], ["a", "b"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["a  b", "x  -", "y  long"]
