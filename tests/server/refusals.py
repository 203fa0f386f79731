"""Tables of refused statements: how they are written, and the check that each one is exact.

A table is a text.  Lines start with one sign and a blank::

    # a comment
    u role             who asks from here on; alice at first
    ! SQLSTATE message
    d detail
    h hint
    > a statement that is refused so
    $ a statement that runs before it, in a transaction that is rolled back
    % text             stands for %s in the message
    @ number text      the detail goes on: At character <number> of the analysed statement: <text>
    ^ text             PostgreSQL's own position points at this text of the statement

``!`` starts a new refusal; ``d`` and ``h`` belong to all statements below it, ``$`` to the one above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

# Objects beside the shop that refused statements name.
EXTRA = """
create schema shut;
create table shut.raw (a int);
create table hidden (h_id int, h_text text);
create view bare as select c_id from client;
create view totals as select c_region, count(*) as n from client group by c_region;
create view pairs as select c_id, p_id from client left join purchase on p_client = c_id;
create view arms as select c_id as a from client union all select p_client from purchase;
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
select dp.protect('guarded');
select dp.protect('wide'), dp.set_domain('wide', 'a', 1, 2000), dp.set_domain('wide', 'b', 1, 2000);
select dp.grant_budget('bob', 1);
select dp.revoke_budget('bob');
alter table guarded enable row level security;
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a refused statement must be told."""

    state: str
    message: str
    detail: str | None = None
    hint: str | None = None
    sql: str = ""
    position: str | None = None
    user: str = "alice"
    before: tuple[str, ...] = ()


def read_table(text: str) -> list[Any]:
    """Return the rows of a table as pytest parameters, named by their statements."""
    found: list[Refusal] = []
    head = Refusal("", "")
    for line in text.strip().splitlines():
        sign, _, rest = line.partition(" ")
        if sign == "!":
            state, _, message = rest.partition(" ")
            head = Refusal(state, message, user=head.user)
        elif sign == "d":
            head = replace(head, detail=rest)
        elif sign == "h":
            head = replace(head, hint=rest)
        elif sign == ">":
            found.append(replace(head, sql=rest))
        elif sign == "u":
            head = Refusal("", "", user=rest)
        elif sign == "$":
            found[-1] = replace(found[-1], before=(*found[-1].before, rest))
        elif sign == "%":
            found[-1] = replace(found[-1], message=found[-1].message.replace("%s", rest))
        elif sign == "@":
            number, _, there = rest.partition(" ")
            place = f"At character {number} of the analysed statement: {there}"
            detail = f"{head.detail} {place}" if head.detail else place
            found[-1] = replace(found[-1], detail=detail)
        elif sign == "^":
            found[-1] = replace(found[-1], position=rest)
        else:
            assert sign in ("#", ""), line
    return [pytest.param(refusal, id=refusal.sql[:70]) for refusal in found]


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
    )
    assert told == refusal
    if refusal.position is not None:
        assert refusal.sql[int(str(error.statement_position)) - 1 :].startswith(refusal.position)
    assert books(admin) == known
