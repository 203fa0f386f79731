"""A copy from marginals without noise: what the method itself leaves, whatever the budget.

The engine's own steps in this process, by a superuser of a benchmark's database, with noise that is
none and choices that are the best.  A source of no noise exists in the tests alone (PRIVACY.md
section 3): nothing in the server can do that, and what it measures must not be published.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.synthesis_data import Data
from dpsql.core.mechanisms import exponential
from dpsql.engine.facts import Facts
from dpsql.engine.request import Role, Settings
from dpsql.engine.services import Services
from dpsql.engine.synthesis_call import Call
from dpsql.engine.synthesis_measure import Measuring
from dpsql.engine.synthesis_payload import dump
from dpsql.engine.synthesis_schema import read_schema
from dpsql.engine.synthesis_shares import Task
from dpsql.engine.synthesis_units import units_of
from dpsql.engine.synthesize import Wish, _stored
from dpsql.server.catalog import SpiCatalog
from dpsql.synthesis.planning import planned
from tests.direct import Direct

#: A budget of which nothing is too noisy.
_RHO = Fraction(10**9)


class _Silent:
    """Noise that is none."""

    def gaussians(self, variance: Fraction, count: int, tick: Any = None) -> Iterator[Any]:
        del variance, tick
        yield np.zeros(count, dtype=np.int64)


class _Quiet:
    """Takes what a command tells."""

    def budget(self, *args: object, **named: object) -> None:
        """Take it."""


def _best(scores: Sequence[int], rate: Fraction, noise: object) -> int:
    del rate, noise
    return max(range(len(scores)), key=lambda i: scores[i])


def copied(where: str, data: Data, target: str, method: str) -> float:
    """Copy a benchmark's database, of published data, without noise; returns seconds."""
    if not conninfo_to_dict(where)["dbname"].startswith("bench_"):
        raise ValueError("only databases of benchmarks are copied without noise")
    start = time.perf_counter()
    exponential.choose = _best  # type: ignore[assignment]
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog, pg_temp")
        database = Direct(connection)
        services = Services(
            database=database,  # type: ignore[arg-type]
            catalog=SpiCatalog(database, Facts()),  # type: ignore[arg-type]
            ledger=None,  # type: ignore[arg-type]
            noise=_Silent(),  # type: ignore[arg-type]
            warn=lambda *_: None,
            note=lambda _: None,
        )
        named = [f"public.{name}" for name in data.relations]
        (oids,) = database.execute("select $1::regclass[]::oid[]::int8[] as o", [("text[]", named)])
        listed = tuple(int(str(oid)) for oid in oids[0])  # type: ignore[attr-defined]
        wish = Wish(
            target,
            listed,
            "1",
            "1e-6",
            method,
            json.dumps(data.d_max),
            bins=data.bins,
            placeholders=data.placeholders,
            replace=True,
        )
        plan = planned(read_schema(listed, services, bins=data.bins), placeholders=True)
        units = units_of([p.table for p in plan.tables], services)
        call = Call(wish, plan, units, wish.settings(Settings()), services)
        call.rho = _RHO
        call.measured = call._measured()
        task = Task(plan, call.parts, call.rho, call.measured, call.seed)
        connection.execute("begin isolation level repeatable read")
        connection.execute("set local role dp_executor")
        payload = dump(Measuring(task, services, _Quiet()).run())  # type: ignore[arg-type]
        connection.execute("commit")
        ((oid,),) = database.execute("select 'alice'::regrole::oid::int8 as o")
        job = _stored(call, payload, 0, Role(int(str(oid)), "alice"), services)
    with psycopg.connect(where, user="alice", autocommit=True) as alice:
        alice.execute("call dp.write_synthesis(%s)", [job])
    return time.perf_counter() - start
