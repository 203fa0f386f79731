"""Values in steps, as the server or arrays compute them, are those of decimal arithmetic."""

from __future__ import annotations

import base64
import json
import pickle
import random
from typing import Any

import numpy as np
import psycopg
import pytest

from dpsql.query.ir import render
from dpsql.statistics.amounts import Amounts
from dpsql.statistics.arrays import Memory, NotInArrays
from dpsql.steps import Steps
from tests.server.asking import silent
from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server

SETUP = """
create schema s;
create table s.t (id int primary key, a numeric(7,2) not null, b numeric(7,2), c numeric(4,0),
    d smallint not null, e int, f numeric, g double precision, h numeric(15,4) not null,
    i bigint not null, j numeric(3,-2),
    k numeric(5,1) not null);
select dp.protect('s.t');
select dp.set_domain('s.t', 'b', -300.5, 400.25), dp.set_domain('s.t', 'g', -1, 1),
    dp.set_domain('s.t', 'h', -1000.0001, 1000000), dp.set_domain('s.t', 'k', -20, 5.5);
select dp.grant_budget('postgres', 1e6)
"""
#: Keeps the weights that are made, instead of answering.
WATCH = in_service("""
import base64, pickle
from dpsql.query import emit
from dpsql.query.ir import render
emit.seen, unwatched = [], emit._Emitter.weight
def weight(self, value, written):
    made = unwatched(self, value, written)
    steps = base64.b64encode(pickle.dumps(made.steps)).decode()
    sql = render(made.expression)
    emit.seen.append((render(written), made.digits, sql, made.in_steps, steps))
    return made
emit._Emitter.weight = weight
""")
TAKE = function_in_service(
    "pg_temp.weights",
    "text",
    """
import json
from dpsql.query import emit
found, emit.seen[:] = json.dumps(emit.seen), []
return found
""",
)
#: Arguments that are looked at in any case, and until all kinds were.  The rarest is one of fourteen:
#: none of 1200 with probability below 1e-20.
ARGUMENTS, MOST = 400, 1200
COLUMNS, NEVER_NULL = "abcdefghijk", "dhk"
NUMBERS = ["0", "1", "-1", "2", "0.5", "100", "-0.001", "1e-7", "1000000000", "12345.678", "1e12"]


def expression(source: random.Random, depth: int, columns: str) -> str:
    """Write an argument."""
    kind = source.randrange(12) if depth else source.randrange(3)
    one = expression(source, depth - 1, columns) if kind > 2 else ""
    match kind:
        case 0 | 1:
            return source.choice(columns)
        case 2:
            return source.choice(NUMBERS)
        case 3:
            return f"(- {one})"
        case 4:
            return f"coalesce({one}, {source.choice(NUMBERS)})"
        case 5:
            return f"(case when d > 0 then {one} else {expression(source, depth - 1, columns)} end)"
        case 6:
            return f"({one})::numeric"
        case _:
            return f"({one} {source.choice('+-*')} {expression(source, depth - 1, columns)})"


def values(source: random.Random) -> str:
    """Write a row with extreme values among its ordinary ones."""

    def pick(*texts: str) -> str:
        return source.choice([*texts, str(source.randint(-50, 50))])

    return ", ".join(
        (
            pick("0.25", "99999.99", "-99999.99", "'NaN'"),
            pick("null", "1.5", "'NaN'", "99999.99", "-99999.99"),
            pick("null", "9999", "'NaN'"),
            pick("32767", "-32768"),
            pick("null", "2147483647", "-2147483648"),
            pick("null", "'NaN'", "'Infinity'", "'-Infinity'", "1e150", "-1e150", "1e-80"),
            pick("null", "'NaN'", "'Infinity'", "1e300", "0.1", "-1e-300"),
            pick("99999999999.9999", "-99999999999.9999", "0.0001", "'NaN'"),
            pick("9223372036854775807", "-9223372036854775808"),
            pick("null", "99900", "'NaN'"),
            pick("9999.9", "-0.1", "'NaN'"),
        )
    )


def test_values_in_steps_are_those_of_decimals(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    database = server.create_database()
    with database.connect() as owner:
        owner.execute(SETUP)
        for number in range(30):
            owner.execute(f"insert into s.t values ({number}, {values(source)})")
        seen = dict.fromkeys(("computed", "several leaves", "in steps", "beyond"), 0)
        with silent(database, "s.t", WATCH, TAKE) as session:
            for number in range(MOST):
                if number >= ARGUMENTS and min(seen.values()) > 0:
                    break
                columns, depth = source.choice(((COLUMNS, 0), (NEVER_NULL, 2)))
                text = expression(source, source.randrange(depth, 5), columns)
                bounds = source.choice(["", ", -100, 100", ", 0, 1e6", ", -0.5, 0.25"])
                try:
                    session.execute(f"select dp_sum({text}{bounds}) from s.t")
                except psycopg.Error as error:
                    assert str(error.sqlstate)[:2] == "PD", (text, bounds, error)  # noqa: PT017
                found = json.loads(session.execute("select pg_temp.weights()").fetchone()[0])
                for weight in found:
                    compare(owner, weight, seen, f"{text}{bounds}")
        print(seen)  # noqa: T201
        assert min(seen.values()) > 0, seen
    server.drop_database(database)


def compare(owner: Any, weight: list[Any], seen: dict[str, int], text: str) -> None:
    """Compare what the server and arrays make of a value with its decimals."""
    written, digits, sql, in_steps, pickled = weight
    steps: Steps | None = pickle.loads(base64.b64decode(pickled))
    if steps is None:
        return  # as decimals need more than eight bytes
    asked = f"select (({written})::numeric * '1e{digits}'::numeric)::text::numeric from s.t as r0"
    expected = [int(v) for (v,) in owner.execute(f"{asked} order by id").fetchall()]
    computed = numbers(owner, [render(steps.expression)])
    if computed is None:
        seen["beyond"] += 1
        assert not steps.fits, text
    else:
        assert computed[0] == expected, text
    if in_steps:
        seen["in steps"] += 1
        assert sql == render(steps.expression)
        assert computed is not None
    leaves = list(dict.fromkeys(steps.leaves()))
    columns = numbers(owner, [*map(render, leaves)])
    if columns is None:
        return
    read = {leaf: np.array(c, np.int64) for leaf, c in zip(leaves, columns, strict=True)}
    try:
        made = Amounts(read, Memory(2**30)).column(steps)
    except NotInArrays:
        assert not steps.fits, text
        return
    assert np.broadcast_to(made, len(expected)).tolist() == expected, text
    seen["computed"] += 1
    seen["several leaves"] += len(leaves) > 1


def numbers(owner: Any, leaves: list[str]) -> list[list[int]] | None:
    """Read columns, none of which may have a NULL; ``None`` beyond eight bytes."""
    if not leaves:
        return []
    try:
        rows = owner.execute(f"select {', '.join(leaves)} from s.t as r0 order by id").fetchall()
    except psycopg.errors.NumericValueOutOfRange:
        return None
    assert all(None not in row for row in rows), leaves
    return [list(column) for column in zip(*rows, strict=True)]
