"""A network whose joins are sketched, and what the engine does with a sketch."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import psycopg

from tests.server import asking

NETWORK = """
create table public.e (a int, b int);
create table public.f (b int not null, c text);
insert into public.e select i % 7, i % 11 from generate_series(1, 300) i;
insert into public.e values (null, 1), (1, null), (null, null);
insert into public.f select i % 11, 'node ' || i % 5 from generate_series(1, 200) i;
alter table public.e owner to owner1;
alter table public.f owner to owner1;
grant dp_owner to owner1;
"""
PROTECT = "select dp.protect('public.e'), dp.protect('public.f'), dp.grant_budget('alice', 10)"
PATH = "select dp_count(*) from e join f using (b)"
COLLECT = "select dp.collect_statistics('e'), dp.collect_statistics('f')"
CYCLE = "select dp_count(*) from e, f, e as g where e.b = f.b and f.c = 'node 1' and f.b = g.b and g.a = e.a"

# What the engine does with a sketch, for tests only.
LOOK = """
create function public.look(query text, estimator text, beta float8) returns text
language plpython3u as $$
import json, time
from fractions import Fraction
from dpsql.core.sketching import bound, promise
from dpsql.engine.prepare import prepare
from dpsql.errors import DpsqlError
from dpsql.server.session import Session
from dpsql.statistics.sketch_parts import hopeless
from dpsql.statistics.sketches import load
services = Session().services(plpy)
asked = prepare(query, None, services).question.aggregates[0]
shape, reason, times = asked.shape(), hopeless(asked, estimator), []
try:
    for _ in range(20):
        start = time.process_time()
        stored = load(asked, services.database)
        sketch = stored.sketch
        promised = promise(shape, estimator, sketch.estimators, sketch.rows)
        found = bound(shape, sketch, beta, promised)
        times.append(1000 * (time.process_time() - start))
except DpsqlError as error:
    return json.dumps({"error": [error.sqlstate, error.message, error.detail, error.hint]})
return json.dumps({"bound": found.value, "label": promised.label, "ms": min(times), "hopeless": reason,
                   "whole": sketch.moments is not None})
$$
"""


def looking(database: Any) -> Callable[..., dict[str, Any]]:
    """Return what a sketch gives, or why there is none, asked by the superuser."""
    admin = database.connect()
    admin.execute("select * from dp.explain('select dp_count(*) from e')")  # imports the package
    admin.execute(LOOK)

    def ask(query: str, estimator: str = "exact_norm", beta: float = 1.0) -> dict[str, Any]:
        row = admin.execute(
            "select public.look(dp.deparse(%s), %s, %s)", (query, estimator, beta)
        ).fetchone()
        found: dict[str, Any] = json.loads(row[0])
        return found

    return ask


def refused(database: Any, user: str, statement: str, *before: str) -> psycopg.Error:
    connection = database.connect(user)
    for text in before:
        connection.execute(text)
    return asking.refused(connection, statement)


def create(query: str, *arguments: object) -> str:
    return f"select dp.create_sketch($q${query}$q${''.join(f', {a}' for a in arguments)})"


def stored_counters(database: Any) -> dict[str, list[int]]:
    rows = database.sql("select relation::text || occurrence, counters from dp.sketch_counter")
    return {name: list(struct.unpack(f"<{len(raw) // 8}q", raw)) for name, raw in rows}
