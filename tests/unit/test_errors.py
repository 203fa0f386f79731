"""docs/errors.md explains every SQLSTATE and family; docs/messages.md lists every message.

``DPSQL_REWRITE=1`` writes the list anew; the difference is for review.
"""

from __future__ import annotations

import os
import re

from dpsql.errors import BY_SQLSTATE
from tests.messages import ERRORS, MESSAGES, ROOT, families, family_of, page, raised


def sqlstates() -> set[str]:
    """Return the codes of class PD anywhere in the sources."""
    found = set(BY_SQLSTATE)
    header = (ROOT / "sql" / "hook" / "dpsql.h").read_text()
    for parts in re.findall(r"MAKE_SQLSTATE\(([^)]*)\)", header):
        found.add("".join(re.findall(r"'(.)'", parts)))
    for path in (ROOT / "sql").rglob("*.sql"):
        found |= set(re.findall(r"errcode = '(PD\w{3})'", path.read_text(), re.IGNORECASE))
    return found - {"PD000"}


def test_every_sqlstate_has_a_section() -> None:
    sections = re.findall(r"^### (PD\w{3})\b", ERRORS.read_text(), re.MULTILINE)
    assert len(sections) == len(set(sections))
    assert set(sections) == sqlstates()


def test_every_source_of_errors_is_in_a_family() -> None:
    known = families()
    assert len(known) > 5
    lost = {error.source for error in raised() if family_of(error.source, known) is None}
    assert not lost, f"name {sorted(lost)} among the sources of a family in docs/errors.md"
    sources = {source for named in known.values() for source in named}
    gone = {source for source in sources if not [*ROOT.glob(source.rstrip("/") + "*")]}
    assert not gone, f"docs/errors.md names sources that are gone: {sorted(gone)}"


def test_the_list_of_messages_is_the_one_of_the_sources() -> None:
    found = raised()
    assert len(found) > 400
    assert {error.source.partition("/")[0] for error in found} == {"dpsql", "sql"}
    if os.environ.get("DPSQL_REWRITE"):
        MESSAGES.write_text(page())
    listed = MESSAGES.read_text()
    new = set(page().splitlines()) - set(listed.splitlines())
    assert not new, "explain in docs/errors.md, then DPSQL_REWRITE=1:\n" + "\n".join(sorted(new))
    assert listed == page()
