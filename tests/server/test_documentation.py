"""What README.md and docs/*.md show is run, against the demo databases, as the roles that they say.

Numbers are compared within ``SLACK`` times the error that the page tells.  Of Laplace noise whose
95th percentile is written there, one is beyond with probability exp(-30).  A bound that is drawn is
now and then far too large (its odds fall as its square, docs/proofs/truncation.md, claim 1), so that
a statement is beyond with a probability of some percent: such an answer is asked for anew, and all
of ``ATTEMPTS`` must be beyond for an alarm, 0.03**8 < 1e-12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.documentation import PAGES, ROOT, Block, Statement, blocks, statements
from tests.documentation import ROLES as SPEAKERS

SLACK = 10
ATTEMPTS = 8
EXAMPLES = {
    str(page.relative_to(ROOT)): found
    for page in PAGES
    if (found := [block for block in blocks(page) if block.mark == "example"])
}
NUMBER = re.compile(r"^(-?[\d.]+(?:e-?\d+)?)(?: ± ([\d.]+))?$")
ROWS = re.compile(r"^(?:(\d+) )?rows?(?: \((.*)\))?$")


@pytest.fixture(scope="module")
def originals(server: Any) -> Iterator[Callable[[str], str]]:
    """The demo databases, of one size, each made when a page asks for it; pages get copies.

    ``own`` has the tables and nothing declared.
    """
    from dpsql.client import demo
    from dpsql.client.layout import Layout

    layout, cluster, made = Layout.discover(), server.cluster, set[str]()

    def original(name: str) -> str:
        if name not in made and name == "own":
            demo._recreate(cluster, name)
            with psycopg.connect(cluster.conninfo(dbname=name)) as connection:
                demo._fill(layout, connection, name, demo.CUSTOMERS)
        elif name not in made:
            with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
                connection.execute(f"create database {name} template {original('own')}")
                connection.execute(f"comment on database {name} is '{demo.CUSTOMERS} | tables'")
            demo._load_database(layout, cluster, name, demo.CUSTOMERS, "and declarations")
            with psycopg.connect(cluster.conninfo(dbname=name, user="steward")) as connection:
                connection.execute("select dp.grant_budget('alice', 10000, 1e-3)")
        made.add(name)
        return name

    demo._make_roles(cluster)
    yield original
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        for name in made:
            connection.execute(f"drop database {name} with (force)")
        connection.execute("drop role steward")


@pytest.fixture(scope="module")
def asked(server: Any, originals: Callable[[str], str]) -> Iterator[Callable[[str], Any]]:
    """Copies for the pages on which alice asks and nobody declares anything."""
    shared: dict[str, Any] = {}

    def copy(name: str) -> Any:
        if name not in shared:
            shared[name] = _copy(server, originals, name)
        return shared[name]

    yield copy
    for database in shared.values():
        server.drop_database(database)


def _copy(server: Any, originals: Callable[[str], str], name: str) -> Any:
    database = server.create_database(originals(name), acknowledge=name != "own")
    with psycopg.connect(server.cluster.conninfo(), autocommit=True) as connection:
        connection.execute(f"alter database {database.name} owner to steward")
    return database


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_do_what_the_page_says(
    page: str, server: Any, originals: Any, asked: Callable[[str], Any]
) -> None:
    found = [(block, *block.says.split()) for block in EXAMPLES[page]]
    only_asks = {
        statement.role
        for block, _, role in found
        for statement in statements(block, SPEAKERS[role])
    } == {"alice"}
    wrong: list[str] = []
    own: dict[str, Any] = {}
    roles = _roles(server)
    try:
        for block, name, role in found:
            if not only_asks and name not in own:
                own[name] = _copy(server, originals, name)
            wrong += run(block, asked(name) if only_asks else own[name], SPEAKERS[role])
    finally:
        for database in own.values():
            server.drop_database(database)
        for role in _roles(server) - roles:
            with psycopg.connect(server.cluster.conninfo(), autocommit=True) as connection:
                connection.execute(f'drop role "{role}"')
    assert not wrong, "\n".join(["", *wrong])


def _roles(server: Any) -> set[str]:
    with psycopg.connect(server.cluster.conninfo()) as connection:
        return {row[0] for row in connection.execute("select rolname from pg_roles")}


def run(block: Block, database: Any, role: str) -> list[str]:
    """Run a block, each role in a session of its own; return what is not as the page says."""
    wrong: list[str] = []
    sessions: dict[str, Any] = {}
    for statement in statements(block, role):
        if statement.role not in sessions:
            sessions[statement.role] = database.connect(user=statement.role)
        where = f"{block.name.partition(':')[0]}:{statement.line} ({statement.role})"
        wrong += [f"{where}: {what}" for what in check(sessions[statement.role], statement)]
    return wrong


def check(session: Any, statement: Statement) -> list[str]:
    """Run one statement and compare."""
    notices: list[str] = []

    def note(diagnostic: Any) -> None:
        notices.append(f"{diagnostic.severity_nonlocalized} {diagnostic.message_primary}")

    session.add_notice_handler(note)
    try:
        cursor = session.execute(statement.text)
        error = None
    except psycopg.Error as raised:
        error = raised
    finally:
        session.remove_notice_handler(note)
    if statement.output is not None:
        return list(compare_printed(session, cursor if error is None else error, statement.output))
    told = [line for line in statement.expected if re.match("ERROR|WARNING|NOTICE", line)]
    answers = [line for line in statement.expected if line not in told]
    if error is not None:
        heard = [f"ERROR {error.sqlstate} {error.diag.message_primary}"]
        silent = [line for line in told if not heard[0].startswith(line)]
        return [] if told and not silent else [f"{heard[0]}, not {told or 'an answer'}"]
    wrong = [
        f"no {line!r} among {notices}"
        for line in told
        if not any(heard.startswith(line) for heard in notices)
    ]
    if cursor.description is None:
        return wrong
    rows = cursor.fetchall()
    if not answers and not told and re.match(r"(?is)(select|with)(?!\s+dp\.)", statement.text):
        return [*wrong, f"the page does not say what it answers: {rows[:3]}"]
    for answer in answers:
        wrong += compare_noised(session, statement, cursor, rows, answer)
    return wrong


def compare_noised(
    session: Any, statement: Statement, cursor: Any, rows: list[Any], answer: str
) -> list[str]:
    """Compare; where numbers have errors, ask anew before they are called wrong."""
    wrong = list(compare_rows(session, cursor, rows, answer))
    for _ in range(ATTEMPTS - 1 if "±" in answer else 0):
        if not wrong:
            break
        session.execute("set dp.fresh = on")
        cursor = session.execute(statement.text)
        wrong = list(compare_rows(session, cursor, cursor.fetchall(), answer))
        session.execute("reset dp.fresh")
    return wrong


def columns(session: Any, cursor: Any) -> list[tuple[str, str]]:
    """Return names and types of an answer's columns."""
    return [
        (
            column.name,
            session.execute("select format_type(%s, null)", [column.type_code]).fetchone()[0],
        )
        for column in cursor.description
    ]


def compare_rows(session: Any, cursor: Any, rows: list[Any], answer: str) -> Iterator[str]:
    """Compare with ``N rows (name type, ...)`` or with values, ``a, 1 ± 2; b, 3 ± 2``."""
    if shape := ROWS.match(answer):
        if len(rows) != int(shape[1] or len(rows) or 1):
            yield f"{len(rows)} rows, not {shape[1] or 'some'}"
        has = columns(session, cursor)
        for said, (name, kind) in zip(shape[2].split(", ") if shape[2] else [], has, strict=False):
            if said not in (name, f"{name} {kind}"):
                yield f"a column {name} {kind}, not {said}"
        if shape[2] and len(shape[2].split(", ")) != len(has):
            yield f"the columns are {', '.join(f'{name} {kind}' for name, kind in has)}"
        return
    expected = [line.split(", ") for line in answer.removesuffix("; ...").split("; ")]
    found = [[show(value) for value in flat(row)] for row in rows]
    if len(found) < len(expected) or (len(found) > len(expected) and not answer.endswith("; ...")):
        yield f"{len(found)} rows, not {len(expected)}: {found}"
        return
    for said, has in zip(expected, found, strict=False):
        if len(said) != len(has) or not all(map(agrees, said, has)):
            yield f"{', '.join(has)}, not {', '.join(said)}"


def flat(row: Any) -> list[Any]:
    return [part for value in row for part in (value if isinstance(value, list) else [value])]


def show(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, date | datetime):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return str(value).rstrip()


def agrees(said: str, has: str) -> bool:
    """Compare one value: exactly, to the digits written, or within ``SLACK`` times ``± error``."""
    number = NUMBER.match(said)
    if said == "..." or not number or not NUMBER.match(has):
        return said in ("...", has)
    value, written = Decimal(has), Decimal(number[1])
    if number[2]:
        return abs(value - written) <= SLACK * Decimal(number[2])
    return round(value, -int(written.as_tuple().exponent)) == written


def compare_printed(session: Any, outcome: Any, output: list[str]) -> Iterator[str]:
    """Compare with what psql printed: columns, kinds of values, number of rows; words of errors.

    Where lines are left out (``...``) noise may decide how many: those that are shown must be
    there, in this order, as far as their first column tells.
    """
    if isinstance(outcome, psycopg.Error):
        diagnostic = outcome.diag
        heard = [f"ERROR:  {diagnostic.message_primary}"]
        heard += [f"DETAIL:  {diagnostic.message_detail}"] if diagnostic.message_detail else []
        heard += [f"HINT:  {diagnostic.message_hint}"] if diagnostic.message_hint else []
        if heard != output:
            yield f"{heard}, not {output}"
        return
    if not output:
        return
    rows = outcome.fetchall()
    footer = re.match(r"\((\d+) rows?\)$", output[-1])
    body = output[:-1] if footer else output
    if re.fullmatch(r"[-+]+", body[1] if len(body) > 1 else ""):
        names = [name.strip() for name in body[0].split("|")]
        if names != (has := [column.name for column in outcome.description]):
            yield f"columns {has}, not {names}"
            return
        body = body[2:]
    if "..." in body:
        firsts = iter([show(row[0]) for row in rows])
        for line in body:
            first = line.partition("|")[0].strip()
            if first != "..." and first not in firsts:
                yield f"no row for {line.strip()}"
        return
    if len(rows) != (int(footer[1]) if footer else len(body)):
        yield f"{len(rows)} rows, not those that are shown"
    for line, row in zip(body, rows, strict=False):
        cells = [cell.strip() for cell in line.split("|")]
        for cell, value in zip(cells, row, strict=True):
            if value is not None and cell and bool(NUMBER.match(cell)) != _is_number(value):
                yield f"{value!r} where the page has {cell}"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(NUMBER.match(value))
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


COMPARED = [
    ("select 7509  --> 7500 ± 1", False),
    ("select 7511  --> 7500 ± 1", True),
    ("select 0.846  --> 0.85", False),
    ("select 0.86  --> 0.85", True),
    ("select 'a', 1  --> a, 1", False),
    ("select 'b', 1  --> a, 1", True),
    ("select 1 union all select 2  --> 1", True),
    ("select 1 union all select 2  --> 1; ...", False),
    ("select 1 as n  --> 1 row (n integer)", False),
    ("select 1 as n  --> 1 row (n bigint)", True),
    ("select 1 as n  --> 1 row (n, m)", True),
    ("select 1 where false  --> rows", True),
    ("select 1", True),
    ("select 1 / 0  --> ERROR 22012 division", False),
    ("select 1 / 0  --> ERROR 22012 overflow", True),
    ("select 1 / 0  --> 1", True),
    ("select 1  --> ERROR 22012", True),
    ("do $$ begin raise warning 'no'; end $$  --> WARNING no", False),
    ("do $$ begin end $$  --> WARNING no", True),
]


def test_differences_are_found(database: Any) -> None:
    session = database.connect()
    for text, wrong in COMPARED:
        statement, *expected = text.split("  --> ")
        found = check(session, Statement(statement, "postgres", 1, expected))
        assert bool(found) == wrong, (text, found)


def test_differences_of_printed_tables_are_found(database: Any) -> None:
    printed = [" a | b", "---+---", " 1 | x", "(1 row)"]
    for text, wrong in [
        ("select 2 as a, 'y' as b", False),
        ("select 2 as a, 'y' as c", True),
        ("select 'z' as a, 'y' as b", True),
        ("select 2 as a, 'y' as b limit 0", True),
        ("select 1 / 0", True),
    ]:
        statement = Statement(text, "postgres", 1, output=printed)
        assert bool(check(database.connect(), statement)) == wrong, text


def test_lines_that_are_left_out_may_be_any(database: Any) -> None:
    printed = [" a | b", "---+---", " x | 1", " x | 2", "...", " z | 3", "..."]
    for values, wrong in [
        ("('x', 1), ('y', 5), ('x', 5), ('z', 5)", False),
        ("('x', 1), ('x', 5), ('z', 5), ('z', 5)", False),
        ("('x', 1), ('z', 5)", True),
        ("('x', 1), ('z', 5), ('x', 5)", True),
        ("('x', 1), ('x', 5)", True),
    ]:
        text = f"select a, b from (values {values}) as v(a, b)"
        statement = Statement(text, "postgres", 1, output=printed)
        assert bool(check(database.connect(), statement)) == wrong, values
