"""Every example is run or says why not; what compares examples finds differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation import DATABASES, PAGES, ROLES, blocks, statements

SAMPLE = """
```sql
SELECT unmarked;
```
<!-- example: customers alice -->
```sql
SELECT dp.set_domain('a', 'b', array['x;y']); SELECT 1;  -- steward, who owns it
-- alice
SELECT $$ a; -- steward
$$;  --> 1, 2
--> WARNING no
```
<!-- no example: a reason -->
```psql
bob=> SELECT 1,
bob->   2;
 a | b
---+---
 1 | 2
(1 row)
alice=> SELECT 3;
```
```
alice=> SELECT 4;
```
"""


def test_every_example_is_run_or_says_why_not() -> None:
    wrong = []
    for block in (block for page in PAGES for block in blocks(page) if block.is_sql):
        if block.mark is None:
            wrong.append(
                f"{block.name}: put <!-- example: DATABASE ROLE --> or "
                "<!-- no example: REASON --> on the line before (docs/extending.md, A page)"
            )
        elif block.mark == "example":
            database, _, role = block.says.partition(" ")
            if database not in DATABASES or role not in ROLES:
                wrong.append(f"{block.name}: no database and role: {block.says}")
            elif not statements(block, ROLES[role]):
                wrong.append(f"{block.name}: no statement")
        elif len(block.says) < 15:
            wrong.append(f"{block.name}: that is no reason: {block.says}")
    assert not wrong, "\n".join(["", *wrong])


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(SAMPLE)
    return page


def test_blocks_and_their_marks_are_found(sample: Path) -> None:
    found = blocks(sample)
    assert [block.mark for block in found] == [None, "example", "no example", None]
    assert [block.is_sql for block in found] == [True] * 4
    assert found[2].says == "a reason"


def test_comments_say_who_speaks_and_what_is_answered(sample: Path) -> None:
    first, second, third = statements(blocks(sample)[1], "alice")
    assert (first.role, second.role, third.role) == ("steward", "steward", "alice")
    assert first.text == "SELECT dp.set_domain('a', 'b', array['x;y'])"
    assert third.text.startswith("SELECT $$ a; -- steward")
    assert third.expected == ["1, 2", "WARNING no"]


def test_sessions_are_split_at_prompts(sample: Path) -> None:
    first, second = statements(blocks(sample)[2], "alice")
    assert (first.text, first.role) == ("SELECT 1,\n  2;", "bob")
    assert first.output == [" a | b", "---+---", " 1 | 2", "(1 row)"]
    assert (second.text, second.output) == ("SELECT 3;", [])
