"""Shapes: twenty-step ways to use up resources of a session, without any privilege.

A shape has statements to send before the question, and a statement to wrap it into.  Each also has a
check that the last step was reached: a count of what the session holds, or a statement that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.server.waiting import wait_until, worked

STEPS = 20


def _nothing(step: float) -> list[str]:
    return []


def _bare(text: str, step: float) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to use up one resource; its step runs from 0 to `STEPS`, where most is used up.

    Attributes
    ----------
    before : callable
        Statements that use up the resource.
    wrap : callable
        Returns the statement to send in place of another; its step is a number of levels.
    outside : callable or None
        Acts on the backend from outside: ``outside(database, pid, step)`` returns a function that
        undoes it.
    holds, least : str, int
        A query of the spy that counts what the session holds, and the least count at the last step.
    beyond, fails : str
        A statement that succeeds at the first step and fails at the last; the SQLSTATE of its failure.
    transaction : bool
        Whether it opens a transaction and ends with it: each question is asked in a savepoint.
    shared : bool
        Whether all sessions of the server share the resource, so that the twins must take turns.
    """

    name: str
    before: Callable[[float], Sequence[str]] = _nothing
    wrap: Callable[[str, float], str] = _bare
    outside: Callable[[Any, int, float], Callable[[], None]] | None = None
    holds: str = ""
    least: int = 0
    beyond: str = ""
    fails: str = ""
    transaction: bool = False
    shared: bool = False


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- the stack ----------------------------------------------------------------------------------

#: The innermost statement.  It raises rows as notices, since a DO block returns none.
_BOTTOM = """if question not like 'select%' then execute question; else
  for found in execute question loop raise notice 'row %', row_to_json(found); end loop; end if;"""
_DECLARE = (
    "declare found record; question text := current_setting('hostile.question');"
    " level int := current_setting('hostile.level')::int;"
)
_DOWN = "perform set_config('hostile.level', (level - 1)::text, false);"
_BLOCK = f"""do $block$ {_DECLARE} begin
 if level > 0 then {_DOWN} execute current_setting('hostile.block'); return; end if;
 {_BOTTOM} end $block$"""
_GUARDED = f"""do $block$ {_DECLARE} begin
 if level > 0 then {_DOWN} begin execute current_setting('hostile.block');
   exception when division_by_zero then null; end; return; end if;
 {_BOTTOM} end $block$"""
_FUNCTION = f"""create or replace function pg_temp.down(level int) returns void language plpgsql as $f$
 declare found record; question text := current_setting('hostile.question'); begin
 if level > 0 then perform pg_temp.down(level - 1); return; end if;
 {_BOTTOM} end $f$"""


def _set(name: str, value: str) -> str:
    return f"select from set_config('hostile.{name}', {quoted(value)}, false)"


def _by_block(text: str, levels: float) -> str:
    return (
        f"{_set('question', text)}; {_set('level', str(round(levels)))};"
        " do $top$ begin execute current_setting('hostile.block'); end $top$"
    )


def _by_function(text: str, levels: float) -> str:
    return f"{_set('question', text)}; select pg_temp.down({round(levels)})"


#: Their steps are levels; `trying.deepest` finds how many there can be.
STACKS = (
    Shape("blocks that execute themselves", lambda _: [_set("block", _BLOCK)], _by_block),
    Shape("blocks with subtransactions", lambda _: [_set("block", _GUARDED)], _by_block),
    Shape("a function that calls itself", lambda _: [_FUNCTION], _by_function),
)

# --- memory and files ---------------------------------------------------------------------------


def _least(step: float) -> list[str]:
    share = 1 - step / STEPS
    return [
        f"set work_mem = {64 + round(4032 * share)}",
        f"set temp_buffers = {100 + round(900 * share)}",
        f"set maintenance_work_mem = {1024 + round(60000 * share)}",
        "set hash_mem_multiplier = 1",
        "set logical_decoding_work_mem = 64",
    ]


LEAST_MEMORY = Shape(
    "the least memory",
    _least,
    holds="select 4096 - setting::int from pg_settings where name = 'work_mem'",
    least=4032,
)


def _kept(cursor: str, blocks: int) -> list[str]:
    """Keep a cursor's rows in a temporary file of so many blocks."""
    rows = f"select repeat('x', 8000) from generate_series(1, {blocks})"
    return ["begin", f"declare {cursor} cursor with hold for {rows}", "commit"]


#: Blocks of 8 kB that fill the limit of 8 MB.
FILE_BLOCKS = 1000
FILES = Shape(
    "temporary files near their limit",
    lambda step: [
        "set work_mem = 64",
        *_kept("kept", max(1, round(step * FILE_BLOCKS / STEPS))),
    ],
    beyond="; ".join(_kept("more", 100)),
    fails="53400",
)


def _pin(number: int) -> str:
    """Pin a page of a temporary table in a local buffer by a cursor on it."""
    rows = f"select i from pinned where i > {number * 226} and ctid is not null"
    return f"declare pin{number} cursor for {rows}; fetch 1 from pin{number}"


PINNED = Shape(
    "local buffers that are kept",
    lambda step: [
        "set temp_buffers = 100",
        "create temp table pinned as select i from generate_series(1, 30000) as i",
        "begin",
        *(_pin(number) for number in range(round(step * 98 / STEPS))),
    ],
    holds="select count(*) from pg_cursors",
    least=98,
    beyond="; ".join(_pin(number) for number in range(100, 104)),
    fails="53000",
    transaction=True,
)

# --- objects of a session -----------------------------------------------------------------------


def _many(most: int, each: str) -> Callable[[float], list[str]]:
    """Run a statement up to ``most`` times, with a number in it."""

    def before(step: float) -> list[str]:
        loop = f"for i in 1 .. {round(step * most / STEPS)} loop execute format({quoted(each)}, i); end loop"
        return [f"do $many$ begin {loop}; end $many$"]

    return before


PREPARED = Shape(
    "thousands of prepared statements",
    _many(5000, "prepare many%s as select 1"),
    holds="select count(*) from pg_prepared_statements",
    least=5000,
)
CURSORS = Shape(
    "thousands of cursors",
    lambda step: ["begin", *_many(3000, "declare many%s cursor for select 1")(step)],
    holds="select count(*) from pg_cursors",
    least=3000,
    transaction=True,
)
TEMP_TABLES = Shape(
    "hundreds of temporary tables",
    _many(400, "create temp table many%s (i int)"),
    holds="select count(*) from pg_class where relname like 'many%' and relpersistence = 't'",
    least=400,
)
REPORTED = "current_setting('server_version_num')::int >= 180000"
SETTINGS = Shape(
    "long settings",
    lambda step: [
        f"select from set_config('hostile.long', repeat('x', {round(step * 100_000)}), false)",
        # From 18 on the server reports search_path, and libpq ends a connection at a report above 30,000 bytes.
        f"select from set_config('search_path', repeat('nowhere, ', least({round(step * 500)},"
        f" case when {REPORTED} then 3000 end)) || 'public', false)",
        f"select from set_config('application_name', repeat('x', {round(step * 1000)}), false)",
        f"select from set_config('DateStyle', repeat('ISO, ', {round(step * 50)}) || 'DMY', false)",
    ],
    holds="select length(current_setting('hostile.long')) + length(current_setting('search_path'))",
    least=2_020_000,
)
SAVEPOINTS = Shape(
    "thousands of subtransactions",
    lambda step: [
        "create temp table written (i int)",
        "begin",
        "do $many$ begin for i in 1 .. "
        f"{round(step * 3000 / STEPS)} loop begin insert into written values (i);"
        " exception when others then null; end; end loop; end $many$",
        *(f"savepoint s{i}" for i in range(round(step * 10))),
    ],
    holds="select count(distinct xmin::text) from written",
    least=3000,
    transaction=True,
)

# --- shared by all sessions ---------------------------------------------------------------------

#: How many locks a session's first temporary object takes depends on whether an earlier session has
#: made the schema of its backend's number, so that the session makes that before locks run out.
LOCKS = Shape(
    "locks near exhaustion",
    lambda step: [
        "create temp table first (i int)",
        "drop table first",
        "do $all$ declare i int := 0; begin"
        " begin loop i := i + 1; perform pg_advisory_lock(i); end loop;"
        " exception when out_of_memory then null; end;"
        f" for k in 1 .. {round((STEPS - step) * 5)} loop perform pg_advisory_unlock(k); end loop; end $all$",
    ],
    beyond="do $more$ begin for i in 1 .. 40 loop perform pg_advisory_lock(-i); end loop; end $more$",
    fails="53200",
    shared=True,
)


def gone(pid: int) -> None:
    """Wait until a backend has released its resources."""
    wait_until(lambda: worked(pid) is None)


def _connect(database: Any, pid: int, step: float) -> Callable[[], None]:
    """Open connections until only those are free that the step leaves."""
    import psycopg

    held = []
    while True:
        try:
            held.append(database.connect(user="mallory"))
        except psycopg.OperationalError:
            break
    for _ in range(min(len(held), round((STEPS - step) / 4))):
        held.pop().close()

    def give_back() -> None:
        for one in held:
            ended = one.info.backend_pid
            one.close()
            gone(ended)

    return give_back


CONNECTIONS = Shape("connections near exhaustion", outside=_connect, shared=True)


#: All shapes but those of the stack, whose steps are levels.
SHAPES = (
    LEAST_MEMORY,
    FILES,
    PINNED,
    PREPARED,
    CURSORS,
    TEMP_TABLES,
    SETTINGS,
    SAVEPOINTS,
    LOCKS,
    CONNECTIONS,
)
