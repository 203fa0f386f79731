"""Tables of refused statements: how they are written, and the check that each one is exact.

A table is a file in ``refusals/``.  Lines start with one sign and a blank::

    # a comment
    u role             who asks from here on; alice at first
    ! SQLSTATE message
    d detail
    h hint
    > a statement that is refused so
    $ a statement that runs before it, in a transaction that is rolled back
    % text             stands for %s in the message
    ^ text             the error's position is where this text of the statement starts
    & text             the same in a statement inside the statement (of dp.query, say)

``!`` starts a new refusal; ``d`` and ``h`` belong to all statements below it, the others to the
one above.  ``DPSQL_REWRITE=1`` writes what is told into the files, to be reviewed as a difference.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

REWRITE = "DPSQL_REWRITE" in os.environ
FOLDER = Path(__file__).with_suffix("")
# What differs between the messages of one kind.
VARIABLE = re.compile(
    r"(?s)(?P<before>relation )?(?P<text>.*?)(?P<after> is not allowed .*| is neither .*)"
)

# Objects beside the shop that refused statements name.
EXTRA = """
create schema shut;
create table shut.raw (a int);
create table hidden (h_id int, h_text text);
create view bare as select c_id from client;
create view totals as select c_region, c_id::bigint as n from client;
create view pairs as select c_id, p_id from client join purchase on p_client = c_id;
create view arms as select c_id as a from client;
create materialized view frozen as select c_id from client;
create table guarded (g_id int);
create sequence seq;
create function one() returns int language sql immutable as 'select 1';
create function vol(a int) returns int language sql volatile as 'select a';
create function rec(a int) returns boolean language plpgsql immutable as 'begin return true; end';
create type pair as (a int);
create collation weak (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create domain small as int check (value < 10);
alter schema shut owner to owner1;
alter table hidden owner to owner1;
alter view bare owner to owner1;
alter view totals owner to owner1;
alter view pairs owner to owner1;
alter view arms owner to owner1;
alter materialized view frozen owner to owner1;
alter table guarded owner to owner1;
alter sequence seq owner to owner1;
create table wide (a int, b int);
alter table wide owner to owner1;
grant create on schema public to owner1;
grant dp_analyst to mallory;
set role owner1;
select dp.declare_view('totals'), dp.declare_view('pairs'), dp.declare_view('arms');
-- what dp.declare_view would refuse
create or replace view totals as select c_region, count(*) as n from client group by c_region;
create or replace view pairs as select c_id, p_id from client left join purchase on p_client = c_id;
create or replace view arms as select c_id as a from client union all select p_client from purchase;
select dp.protect('guarded');
select dp.protect('wide'), dp.set_domain('wide', 'a', 1, 2000), dp.set_domain('wide', 'b', 1, 2000);
select dp.grant_budget('bob', 1);
select dp.revoke_budget('bob');
alter table guarded enable row level security;
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a refused statement must be told; positions are given by the text that starts there."""

    state: str
    message: str
    detail: str | None = None
    hint: str | None = None
    sql: str = ""
    position: str | None = None
    inner: str | None = None
    user: str = "alice"
    before: tuple[str, ...] = ()


_TOLD: dict[Refusal, Refusal] = {}
_TABLES: dict[str, list[Refusal | str]] = {}


def read_table(name: str) -> list[Any]:
    """Return the rows of a table as pytest parameters, named by their statements."""
    items: list[Refusal | str] = []
    head = Refusal("", "")
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        sign, _, rest = line.partition(" ")
        if sign == "!":
            state, _, message = rest.partition(" ")
            head = Refusal(state, message, user=head.user)
        elif sign == "u":
            head = Refusal("", "", user=rest)
        elif sign == "d":
            head = replace(head, detail=rest)
        elif sign == "h":
            head = replace(head, hint=rest)
        elif sign == ">":
            items.append(replace(head, sql=rest))
        elif sign in ("#", ""):
            items.append(line)
        else:
            items[-1] = _more(items[-1], sign, rest)
    _TABLES[name] = items
    return [pytest.param(item, id=item.sql[:70]) for item in items if isinstance(item, Refusal)]


def _more(item: Refusal | str, sign: str, rest: str) -> Refusal:
    assert isinstance(item, Refusal), rest
    if sign == "$":
        return replace(item, before=(*item.before, rest))
    if sign == "%":
        return replace(item, message=item.message.replace("%s", rest))
    if sign == "^":
        return replace(item, position=rest)
    assert sign == "&", sign
    return replace(item, inner=rest)


def rewrite_tables() -> None:
    """Write what was told into the tables, where that is asked for."""
    if not REWRITE:
        return
    for name, items in _TABLES.items():
        if any(item in _TOLD for item in items):
            lines = _written([_TOLD.get(i, i) if isinstance(i, Refusal) else i for i in items])
            (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")


def _written(items: list[Refusal | str]) -> list[str]:
    lines: list[str] = []
    head: list[str] = []
    user = "alice"
    for item in items:
        if isinstance(item, str):
            lines.append(item)
            head = []
            continue
        if item.user != user:
            user = item.user
            lines.append(f"u {user}")
        message, text = item.message, None
        if found := VARIABLE.fullmatch(message):
            text = found["text"]
            message = f"{found['before'] or ''}%s{found['after']}"
        new = [f"! {item.state} {message}"]
        new += [f"{s} {v}" for s, v in (("d", item.detail), ("h", item.hint)) if v is not None]
        if new != head:
            head = new
            lines += head
        lines.append(f"> {item.sql}")
        lines += [f"$ {statement}" for statement in item.before]
        rest = (("%", text), ("^", item.position), ("&", item.inner))
        lines += [f"{sign} {value}" for sign, value in rest if value is not None]
    return lines


def books(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """Return what every charge changes; the connection is an administrator's."""
    row = connection.execute(
        "select (select row(count(*), sum(epsilon), sum(delta)) from dp.spend)::text,"
        " (select row(sum(epsilon), sum(delta), sum(spends)) from dp.role_total)::text,"
        " (select row(sum(epsilon), sum(delta), sum(spends)) from dp.root_total)::text,"
        " (select count(*) from dp.answer where pending_spend is not null)"
    ).fetchone()
    assert row is not None
    return row


def _there(text: str | None, position: str | None) -> str | None:
    """Return the beginning of what stands at a position."""
    if text is None or position is None:
        return None
    return text[int(position) - 1 :].split("\n")[0][:25].strip()


def check(asker: psycopg.Connection[Any], admin: psycopg.Connection[Any], refusal: Refusal) -> None:
    """Run the statement, compare all that is told, and see that nothing was charged."""
    known = books(admin)
    if refusal.before:
        asker.execute("begin")
        for statement in refusal.before:
            asker.execute(statement)  # type: ignore[arg-type]
    try:
        with pytest.raises(psycopg.Error) as caught:
            asker.execute(refusal.sql)  # type: ignore[arg-type]
    finally:
        asker.rollback()
    error = caught.value.diag
    told = replace(
        refusal,
        state=error.sqlstate,
        message=error.message_primary,
        detail=error.message_detail,
        hint=error.message_hint,
        position=_there(refusal.sql, error.statement_position),
        inner=_there(error.internal_query, error.internal_position),
    )
    if REWRITE:
        _TOLD[refusal] = told
    else:
        assert told == refusal
    assert books(admin) == known
