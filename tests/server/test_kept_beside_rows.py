"""Everything that the library stores is listed, with its kind and who can see it (PRIVACY.md section 11).

``kept.txt`` names the kind of every column of the extension's tables.  These tests fail for a new column, for a new
statement in the sources that makes an object, and for an unlisted object in a database in which the library was used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_uninstall import bare, use

__all__ = ["bare"]

ROOT = Path(__file__).parents[2]
KEPT = dict(
    line.split(": ") for line in Path(__file__).with_name("kept.txt").read_text().splitlines()
)
KINDS = ("declared", "asked", "noised", "exact", "secret")
PAGE = (ROOT / "docs/PRIVACY.md").read_text().partition("## 11. ")[2]
COLUMNS = """
select format('%s.%s', c.oid::regclass, a.attname)
  from pg_class c join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
  join pg_extension e on e.oid = d.refobjid and e.extname = 'dpsql'
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where c.relkind in ('r', 'p', 'm', 'f')
"""
HIDDEN = """
select r.name, has_column_privilege(r.name, %s::regclass, %s, 'select')
  from unnest(array['stranger', 'dp_analyst', 'dp_owner', 'dp_ledger']) as r(name)
"""
#: The kinds of objects that statements outside of the schema's files make, by file.
MADE = {
    "sql/functions/expose.sql": {"view"},
    "sql/functions/interval.sql": {"function"},
    "sql/functions/hook_dp_sum.sql": {"function"},
    "sql/functions/let_new_members_be_read.sql": {"event trigger"},
    "sql/functions/limit_account.sql": {"trigger"},
    "sql/functions/remember_dropped.sql": {"event trigger"},
    "sql/functions/remember_names.sql": {"event trigger"},
    "sql/functions/set_degree_bound.sql": {"table", "column", "check", "unique", "trigger", "function"},
    "sql/functions/show_refusing.sql": {"view"},
    "sql/functions/show_synthetic.sql": {"view"},
    "sql/functions/statistics_collect.sql": {"trigger"},
    "sql/functions/statistics_distrust.sql": {"event trigger"},
    "sql/functions/tell_dropped.sql": {"event trigger"},
    "sql/functions/tell_sessions.sql": {"trigger"},
    "sql/functions/unit_columns.sql": {"event trigger"},
    "sql/functions/unit_parts.sql": {"event trigger"},
    "dpsql/engine/ddl.py": {"table", "sequence", "constraint", "index", "schema"},
}  # fmt: skip
_MAKES = re.compile(
    r"\b(?:create(?: or replace)?(?: (?:unlogged|temp|temporary|unique|constraint|materialized|foreign))*"
    r" (table|(?:event )?trigger|view|sequence|index|function|schema|statistics|type|rule|policy|publication)"
    r"|add (column|constraint|check|unique|primary))\b",
    re.I,
)
#: What somebody types, or is told to.
_HINTS = re.compile(
    r"^\s*--|\bhint\b|^create or replace (function|procedure|view)|^\s*#|then format\(",
    re.I,
)
#: What a database has afterwards outside of the schema dp, by the names that section 11 has.
OUTSIDE = {
    r"(column|constraint|index|trigger|table|function|type|default|unique).*dp_slot_": "`dp_slot_",
    r"trigger dpsql_(insert|update|truncate) on table": "`dpsql_insert`",
    r"(trigger|event trigger) dpsql_": "event triggers",
    r"(view|column|rule|type|function|sequence|index|constraint|table|default).*\bdpv\.": "`dpv`",
    r"\bcopy\.|schema copy": "synthetic tables",
    r"function (public\.)?dp_|aggregate|view (public\.)?asked|rule _RETURN on view (public\.)?asked|view asked|column n of view asked|type asked": "",
    r"\bdp\.|schema dpv?$|extension dpsql|dpsql_|schema dp\b": "",
}  # fmt: skip


def test_every_column_is_one_that_somebody_thought_about(database: Any) -> None:
    found = {name for (name,) in database.sql(COLUMNS)}
    assert found == KEPT.keys(), sorted(found ^ KEPT.keys())
    assert set(KEPT.values()) == set(KINDS)
    for kind in KINDS:
        assert f"| *{kind}* |" in PAGE, kind


def test_nobody_reads_what_is_exact_or_secret(database: Any) -> None:
    database.sql("create role stranger")
    try:
        for name, kind in KEPT.items():
            if kind not in ("exact", "secret") or name == "dp.ledger_incarnation.token":
                continue
            table, _, column = name.rpartition(".")
            readers = [role for role, may in database.sql(HIDDEN, table, column) if may]
            assert not readers, (name, readers)
    finally:
        database.sql("drop role stranger")


def made() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    files = [*(ROOT / "sql/functions").glob("*.sql"), *(ROOT / "plpython").glob("*.sql")]
    files += [*(ROOT / "dpsql").rglob("*.py")]
    for path in files:
        if path.is_relative_to(ROOT / "dpsql/client"):
            continue  # the command line, run by administrators
        for line in path.read_text().splitlines():
            if _HINTS.search(line):
                continue
            for words in _MAKES.findall(line.partition("when tag in")[0]):
                found.setdefault(str(path.relative_to(ROOT)), set()).add("".join(words).lower())
    return found


def test_every_statement_that_makes_an_object_is_listed() -> None:
    found = made()
    different = {p: (found.get(p), MADE.get(p)) for p in found.keys() | MADE.keys()}
    assert not {p: both for p, both in different.items() if both[0] != both[1]}


@pytest.mark.usefixtures("installation")
def test_every_object_of_a_used_database_is_listed(bare: Any) -> None:
    listed = "select pg_describe_object(classid, oid, 0) from ({}) as t(classid, oid)".format(
        " union all ".join(
            f"select '{catalogue}'::regclass::oid, oid from {catalogue}"
            for catalogue in (
                *(
                    "pg_class",
                    "pg_trigger",
                    "pg_constraint",
                    "pg_proc",
                    "pg_event_trigger",
                    "pg_policy",
                ),
                *("pg_rewrite", "pg_namespace", "pg_attrdef", "pg_statistic_ext", "pg_type"),
            )
        )
    )
    columns = (
        "select format('column %s of table %s', a.attname, a.attrelid::regclass) from pg_attribute a"
        " join pg_class c on c.oid = a.attrelid where a.attnum > 0 and c.relnamespace ="
        " 'public'::regnamespace and c.relkind = 'r' and not a.attisdropped"
    )
    before = {name for (name,) in bare.sql(f"{listed} union {columns}")}
    use(bare)
    new = {name for (name,) in bare.sql(f"{listed} union {columns}")} - before
    assert len(new) > 400
    unknown = {name for name in new if "toast" not in name}
    for pattern, word in OUTSIDE.items():
        there = {name for name in unknown if re.search(pattern, name)}
        assert there, pattern
        assert word in PAGE, word
        unknown -= there
    assert not unknown, sorted(unknown)
