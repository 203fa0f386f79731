"""Who may do what with each object of the extension, against a reviewed list.

``DPSQL_REWRITE=1`` writes the list anew; the difference is for review.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).with_name("privileges.txt")
ROOT = Path(__file__).parents[2]
FUNCTIONS = ROOT / "sql" / "functions"
DOCUMENTATION = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

# "stranger" stands for everyone: a role that is a member of nothing.
MATRIX = """
with role(name) as (
    values ('stranger'), ('dp_analyst'), ('dp_owner'), ('dp_executor'), ('dp_ledger')),
member(classid, objid) as (
    select d.classid, d.objid
      from pg_depend d join pg_extension e on e.oid = d.refobjid
     where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e' and e.extname = 'dpsql'),
held(object, role, privilege) as (
    select 'schema ' || n.nspname, r.name, p.name
      from pg_namespace n join member m on m.objid = n.oid and m.classid = 'pg_namespace'::regclass,
           role r, unnest(array['USAGE', 'CREATE']) p(name)
     where has_schema_privilege(r.name, n.oid, p.name)
    union all
    select case c.relkind when 'v' then 'view ' else 'table ' end || c.oid::regclass, r.name, p.name
      from pg_class c join member m on m.objid = c.oid and m.classid = 'pg_class'::regclass,
           role r,
           unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                        'TRIGGER']) p(name)
     where c.relkind in ('r', 'v') and has_table_privilege(r.name, c.oid, p.name)
    union all
    select 'sequence ' || c.oid::regclass, r.name, p.name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace,
           role r, unnest(array['SELECT', 'USAGE', 'UPDATE']) p(name)
     where c.relkind = 'S' and n.nspname in ('dp', 'dpv')
       and has_sequence_privilege(r.name, c.oid, p.name)
    union all
    select 'function ' || f.oid::regprocedure, r.name, 'EXECUTE'
      from pg_proc f join member m on m.objid = f.oid and m.classid = 'pg_proc'::regclass, role r
     where has_function_privilege(r.name, f.oid, 'EXECUTE'))
select object || ': ' || role || ' ' || string_agg(privilege, ',' order by privilege)
  from held group by object, role
 order by object collate "C", role collate "C"
"""


def test_privileges_are_the_reviewed_ones(database: Any) -> None:
    database.sql("create role stranger")
    try:
        found = [row[0] for row in database.sql(MATRIX)]
    finally:
        database.sql("drop role stranger")
    if os.environ.get("DPSQL_REWRITE"):
        EXPECTED.write_text("\n".join([*found, ""]))
    assert found == EXPECTED.read_text().splitlines()


def test_only_the_ledgers_role_owns_its_tables_and_what_writes_them(database: Any) -> None:
    rows = database.sql(
        "select c.relname::text from pg_class c where c.relkind in ('r', 'v', 'm')"
        " and pg_get_userbyid(c.relowner) = 'dp_ledger' order by 1"
    )
    assert [row[0] for row in rows] == [
        "answer",
        "answer_text",
        "covered",
        "failure",
        "role_total",
        "root_total",
        "spend",
    ]
    rows = database.sql(
        "select proname::text, prosecdef from pg_proc"
        " where pg_get_userbyid(proowner) = 'dp_ledger' order by 1"
    )
    # what service sessions write the ledger with, and what these call (privileges.txt: by whom)
    assert rows == [
        ("ledger_end", True),
        ("ledger_exhausted", True),
        ("ledger_fail", True),
        ("ledger_finish", True),
        ("ledger_open", True),
        ("ledger_outlook", True),
        ("ledger_peek", True),
        ("ledger_purge", True),
        ("ledger_take_from_failures", True),
    ]


def reasons(text: str) -> set[str]:
    """Tell which functions of a file say why they do not pin their search_path: each, or all at once."""
    head = re.match(r"(--.*\n)*", text)
    all_of_them = head is not None and "-- None is pinned on purpose: " in head[0]
    defined = re.finditer(
        r"((?:^--.*\n)*)^ *'?create or replace (?:function|procedure) dp\.(\w+)", text, re.M
    )
    return {d[2] for d in defined if all_of_them or re.search(r"\bNot pinned on purpose: ", d[1])}


def test_functions_pin_their_search_path_or_say_why_not(database: Any) -> None:
    """An aggregate cannot; a definer always does."""
    rows = database.sql(
        """
        select p.proname::text, p.prosecdef
          from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid
          join pg_extension e on e.oid = d.refobjid and e.extname = 'dpsql' and d.deptype = 'e'
         where p.prokind <> 'a'
           and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
         order by 1
        """
    )
    assert not any(definer for _, definer in rows)
    # one for each type of result
    names = {re.sub("^not_intercepted_.*", "not_intercepted", name) for name, _ in rows}
    files = (FUNCTIONS.glob("*.sql"), FUNCTIONS.parents[1].glob("plpython/*.sql"))
    stated = set().union(*(reasons(path.read_text()) for paths in files for path in paths))
    assert names == stated


def test_a_reason_covers_its_function_alone() -> None:
    one = "-- Not pinned on purpose: it adds.\ncreate or replace function dp.one()\n"
    two = "-- It adds.\ncreate or replace function dp.two()\n"
    assert reasons(one + two) == {"one"}
    assert reasons("-- None is pinned on purpose: they add.\n\n" + two) == {"two"}
    assert reasons(two + "-- None is pinned on purpose: they add.\n\n" + two) == set()


def test_every_object_has_a_comment(database: Any) -> None:
    rows = database.sql(
        """
        select p.oid::regprocedure::text from pg_proc p join pg_language l on l.oid = p.prolang
         where p.pronamespace = 'dp'::regnamespace and l.lanname <> 'c'
           and obj_description(p.oid, 'pg_proc') is null
        union all
        select c.oid::regclass::text from pg_class c
         where c.relnamespace = 'dp'::regnamespace and c.relkind in ('r', 'v')
           and obj_description(c.oid, 'pg_class') is null
        """
    )
    assert rows == []


def test_each_role_sees_its_own_part(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table t (id integer)")
    admin.execute("select dp.protect('t'), dp.grant_budget('alice', 3), dp.grant_budget('bob', 4)")
    admin.execute(
        "select dp.record_loss('alice', 't', 1, 0, 'one'), dp.record_loss('bob', 't', 2, 0, 'two')"
    )
    own = "select role::text, epsilon_spent from dp.budgets"
    assert database.sql(own, user="alice") == [("alice", 1)]
    assert database.sql(own, user="bob") == [("bob", 2)]
    assert database.sql("select question from dp.ledger", user="alice") == [("one",)]
    assert database.sql("select relation_name::text from dp.relations", user="alice") == [("t",)]
    admin.execute("grant dp_owner to owner1")
    try:
        assert len(database.sql(own, user="owner1")) == 3
        assert len(database.sql("select * from dp.ledger", user="owner1")) == 2
    finally:
        admin.execute("revoke dp_owner from owner1")


def test_functions_lists_what_the_reader_may_call_and_documentation_tells(database: Any) -> None:
    admin = database.connect()
    admin.execute("create role stranger")

    def of(role: str) -> dict[str, str]:
        admin.execute(f"set role {role}")
        found = dict(admin.execute("select name, call from dp.functions").fetchall())
        admin.execute("reset role")
        return found

    try:
        stranger, analyst, owner, every = map(
            of, ("stranger", "dp_analyst", "dp_owner", "postgres")
        )
    finally:
        admin.execute("drop role stranger")
    assert "explain" not in stranger
    assert {"explain", "release", "synthesize"} <= set(analyst)
    assert not set(analyst) & {"protect", "grant_budget", "set_domain"}
    assert {"protect", "grant_budget", "set_domain", "estimate"} <= set(owner) <= set(every)
    assert owner["synthesize"].startswith("CALL dp.synthesize(IN target ")
    assert owner["estimate"].startswith("SELECT * FROM dp.estimate(query text, VARIADIC ")
    assert owner["protect"].startswith("SELECT dp.protect(relation regclass, ")
    told = "\n".join(page.read_text() for page in DOCUMENTATION)
    assert [name for name in every if not re.search(rf"\bdp\.{name}\b", told)] == []


def test_views_do_not_leak_through_cheap_functions(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table t (id integer)")
    admin.execute("select dp.protect('t'), dp.grant_budget('alice', 3), dp.grant_budget('bob', 4)")
    admin.execute("select dp.record_loss('bob', 't', 2, 0, 'of bob')")
    admin.execute("grant create on schema public to alice")
    alice = database.connect("alice")
    seen: list[str] = []
    alice.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
    alice.execute(
        "create function public.peep(text) returns boolean language plpgsql cost 0.0000001"
        " as $$ begin raise notice '%', $1; return true; end $$"
    )
    alice.execute("select * from dp.ledger where public.peep(question)")
    alice.execute("select * from dp.budgets where public.peep(role::text)")
    assert seen == ["alice"]
