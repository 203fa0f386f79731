"""What a client sent, from the server's log."""

from __future__ import annotations

import re
from typing import Any

LINE = re.compile(
    r"^\d{4}-\d\d-\d\d [^\[]*\[\d+\] (\S*) ?(LOG|ERROR|DETAIL|HINT|STATEMENT|WARNING|NOTICE|CONTEXT):  (.*)$",
    re.S,
)
#: What drivers do around every statement.
BESIDE = re.compile(r"^\s*(BEGIN|COMMIT|ROLLBACK|)\s*;?\s*$", re.I)


def statements_sent(database: Any, role: str) -> list[str]:
    """Return the different statements that a role sent, in their order.

    OIDs of relations are written as the names of these, so that they mean the same elsewhere.
    """
    entries: list[str] = []
    for line in database.cluster.log.read_text().splitlines():
        if re.match(r"\d{4}-\d\d-\d\d \d\d:", line):
            entries.append(line)
        elif entries:
            entries[-1] += "\n" + line.removeprefix("\t")
    oids = database.sql(
        "select c.oid::text, format('%I.%I', nspname, relname) from pg_class as c join pg_namespace as n on n.oid = relnamespace"
        " where nspname in ('public', 'dpv')"
    )
    found: dict[str, None] = {}
    for entry in entries:
        parts = LINE.match(entry)
        if parts is None or parts[1] != f"{role}@{database.name}" or parts[2] != "LOG":
            continue
        text = parts[3].removeprefix("statement: ")
        if text == parts[3] or BESIDE.match(text):
            continue
        for oid, name in oids:
            text = re.sub(rf"(?<![\d.']){oid}(?![\d.'])", f"'{name}'::regclass::oid", text)
        found[text.strip().rstrip(";").strip()] = None
    return list(found)
