"""A copy of tables of many attributes, whose rows are nearly all of different types.

Children agree with their parents on each of eight attributes: types that told them all apart would
make more pairs than are optimised, so that links are learnt by slices and moves of rows.  Noise is
drawn for real, and so small that the bounds are met but for less than 1e-9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsql.synthesis.types import MOST_TYPES
from tests.server.copying import run

PARENTS, CHILDREN, ATTRIBUTES, LEVELS = 2000, 2, 8, 4
NAMES = [f"k{i}" for i in range(ATTRIBUTES)]
_SAME = ", ".join(
    f"case when random() < 0.35 then {k} else (4 * random())::int % 4 end" for k in NAMES
)
WIDE = f"""
create table public.guest (g_id int primary key, {", ".join(f"{k} int not null" for k in NAMES)});
create table public.visit (v_id int primary key, v_guest int not null references public.guest,
  {", ".join(f"{k} int not null" for k in NAMES)});
select setseed(0.4);
insert into public.guest select i, {", ".join(["(4 * random())::int % 4"] * ATTRIBUTES)}
  from generate_series(1, {PARENTS}) i;
insert into public.visit select {CHILDREN} * g_id + i, g_id, {_SAME}
  from public.guest cross join generate_series(1, {CHILDREN}) i;
select dp.protect('guest', privacy_unit => 'g_id');
{"".join(f"select dp.set_domain('{t}', '{k}', 0, 3);" for t in ("guest", "visit") for k in NAMES)}
select dp.set_root_cap('guest', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-5);
create schema syn authorization alice;
"""


def joined(database: Any, schema: str) -> tuple[Any, Any]:
    rows = database.sql(
        f"select {', '.join(f'g.{k}' for k in NAMES)}, {', '.join(f'v.{k}' for k in NAMES)}"
        f" from {schema}.visit as v join {schema}.guest as g on g_id = v_guest"
    )
    found = np.array(rows, dtype=np.int64)
    return found[:, :ATTRIBUTES], found[:, ATTRIBUTES:]


def types(rows: Any) -> int:
    return len(np.unique(rows, axis=0))


def apart(one: tuple[Any, Any], other: tuple[Any, Any], k: int) -> float:
    shares = []
    for left, right in (one, other):
        code = left[:, k] * LEVELS + right[:, k]
        shares.append(np.bincount(code, minlength=LEVELS**2) / len(code))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def test_links_of_many_attributes_are_learnt(database: Any) -> None:
    run(database, WIDE)
    with database.connect(user="alice", autocommit=True) as alice:
        alice.execute(
            "call dp.synthesize('syn', array['guest', 'visit']::regclass[], epsilon => 20,"
            " delta => 1e-6, d_max => '{\"visit\": 2}')"
        )
    real, copy = joined(database, "public"), joined(database, "syn")
    assert types(copy[0]) * types(copy[1]) > MOST_TYPES
    mixed = (copy[0], np.random.default_rng(1).permutation(copy[1]))
    off = [apart(real, copy, k) for k in range(ATTRIBUTES)]
    random = [apart(real, mixed, k) for k in range(ATTRIBUTES)]
    print(np.round(off, 3), np.round(random, 3))  # noqa: T201
    assert min(random) > 0.2
    assert max(off) < 0.1
