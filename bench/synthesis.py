"""Synthetic databases: how near their marginals are, within tables and across keys.

``python -m bench.synthesis [--data berka,movielens,stats,airbnb,adult,tpch] [--folder DIR]
[--epsilon 1] [--delta 1e-6] [--scale 0.1] [--d-max '{"orders": 20}'] [--bins 8]
[--method pairs] [--noise-free]``, on the cluster that ``make up`` started.  Each database is
loaded when it is missing and copied once by ``CALL dp.synthesize``.  ``tvd_*`` are means, over all
marginals of declared attributes and bins, of half the L1 distance between the shares of the cells;
*cross* joins a table to what its foreign keys refer to;
``independent_*`` are those of the same synthetic rows with the links of each key permuted
at random, so that degrees stay as they are.  ``floor_*`` are those of the best links for such rows
and degrees, with the copy's sums and what both ends of the original have in common, ``unrelated_*``
those of the original's sums with nothing in common.  ``reached`` counts the cross pairs whose
distance is at most half of the independent one, where that is above 0.1.  ``degrees`` is the
distance of the shares of parents that have 0, 1, ... children.  ``peak_mb`` is the backend's
``VmHWM``, shared buffers included.  Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from bench.data import superuser
from bench.synthesis_data import ALL, Data, prepare
from dpsql.engine.synthesis_bins import edges

Connection = psycopg.Connection[Any]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Row = dict[str, Any]
COPY = "synthetic"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(ALL))
    parser.add_argument("--folder", type=Path, default=Path("../shared/data"))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--d-max")
    parser.add_argument("--bins", type=int)
    parser.add_argument("--method", default="pairs")
    parser.add_argument("--pairs", action="store_true", help="print the distance of every pair")
    parser.add_argument("--noise-free", action="store_true", help="copy without noise")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.data.split(","):
        data = ALL[name]
        if arguments.d_max:
            data = replace(data, d_max=json.loads(arguments.d_max))
        if arguments.bins:
            data = replace(data, bins=arguments.bins)
        where = prepare(superuser(), name, data, arguments.folder, arguments.scale)
        if arguments.noise_free:
            from tests.noise_free import copied

            seconds = copied(where, data, COPY, arguments.method)
            row = {"d_max": data.d_max, "bins": data.bins, "method": arguments.method}
            row |= {"noise": "none", "seconds": round(seconds, 1)}
        else:
            row = synthesized(
                where, data, arguments.epsilon, arguments.delta or data.delta, arguments.method
            )
        label = f"tpch sf {arguments.scale:g}" if name == "tpch" else name
        row = {"data": label} | ({} if "noise" in row else {"epsilon": arguments.epsilon}) | row
        with psycopg.connect(where, autocommit=True) as connection:
            row |= compared(connection, data, pairs=arguments.pairs)
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        rows.append(row)
    print(json.dumps({"bench": "synthesis", "rows": rows}))


def synthesized(where: str, data: Data, epsilon: float, delta: float, method: str) -> Row:
    """Copy a database; what it took."""
    with psycopg.connect(where, user="alice", autocommit=True) as alice:
        alice.execute("set dp.fresh = on")
        arguments = [COPY, list(data.relations), epsilon, delta, json.dumps(data.d_max)]
        arguments += [data.bins, data.placeholders, method]
        start = time.perf_counter()
        alice.execute(
            "call dp.synthesize(%s, %s::regclass[], %s::numeric, %s::numeric, d_max => %s::jsonb,"
            " bins => %s::integer, placeholders => %s, method => %s, replace => true)",
            arguments,
        )
        seconds = time.perf_counter() - start
        status = Path(f"/proc/{alice.info.backend_pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    return {
        "delta": delta,
        "d_max": data.d_max,
        "bins": data.bins,
        "method": method,
        "seconds": round(seconds, 1),
        "peak_mb": round(int(peak[1]) / 1024) if peak else None,
    }


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key of one column, or the first of those that say the same."""

    table: str
    column: str
    parent: str
    parent_column: str


@dataclass(slots=True)
class Attribute:
    """A column with an expression for its codes, from 0."""

    column: str
    code: sql.Composed
    size: int


@dataclass(slots=True)
class Loaded:
    """Codes of one table, and numbers that stand for keys."""

    codes: dict[str, Integers]
    keys: dict[str, Integers]
    rows: int


def compared(connection: Connection, data: Data, *, pairs: bool = False) -> Row:
    """Compare a database with its copy."""
    attributes = {t: _attributes(connection, t, data.bins) for t in data.relations}
    references = _references(connection, data.relations)
    public = {
        str(name)
        for (name,) in connection.execute(
            "select relation_name from dp.relations where kind = 'public'"
        )
    }
    true = {t: _load(connection, "public", t, attributes[t], references) for t in data.relations}
    made = {
        t: true[t] if t in public else _load(connection, COPY, t, attributes[t], references)
        for t in data.relations
    }
    within: list[float] = []
    one_way: list[float] = []
    three: list[float] = []
    for t in data.relations:
        if t in public:
            continue
        sizes = {a.column: a.size for a in attributes[t]}
        for k, found in ((1, one_way), (2, within), (3, three)):
            for columns in itertools.combinations(sizes, k):
                if pairs and k == 1:
                    print(f"  {t}.{columns[0]}", *_shown(true, made, t, columns[0], sizes))
                found.append(
                    distance(
                        [true[t].codes[c] for c in columns],
                        [made[t].codes[c] for c in columns],
                        [sizes[c] for c in columns],
                    )
                )
    rng = np.random.default_rng(1)
    links = [
        _across(reference, attributes, true, made, rng, pairs=pairs) for reference in references
    ]
    across = [pair for link in links for pair in link["pairs"]]
    wider = [value for link in links for value in link["three"]]
    bounds = [value for link in links for value in link["bounds"]]
    far = [pair for pair in across if pair[3] > 0.1]
    return {
        "tables": len(data.relations),
        "rows": sum(made[t].rows for t in data.relations if t not in public),
        "true_rows": sum(true[t].rows for t in data.relations if t not in public),
        "tvd_within_1way": _mean(one_way),
        "tvd_within_2way": _mean(within),
        "tvd_within_3way": _mean(three),
        "tvd_cross_2way": _mean([pair[2] for pair in across]),
        "tvd_cross_3way": _mean(wider),
        "independent_cross_2way": _mean([pair[3] for pair in across]),
        "floor_cross_2way": _mean([found[0] for found in bounds]),
        "unrelated_cross_2way": _mean([found[1] for found in bounds]),
        "reached": f"{sum(pair[2] <= pair[3] / 2 for pair in far)} of {len(far)}",
        "orphans": sum(link["orphans"] for link in links),
        "links": [
            {
                "key": link["key"],
                "tvd_cross_2way": _mean([pair[2] for pair in link["pairs"]]),
                "independent_cross_2way": _mean([pair[3] for pair in link["pairs"]]),
                "degrees": link["degrees"],
                "links": link["links"],
                "true_links": link["true_links"],
            }
            for link in links
        ],
    }


def _across(
    reference: Reference,
    attributes: dict[str, list[Attribute]],
    true: dict[str, Loaded],
    made: dict[str, Loaded],
    rng: np.random.Generator,
    *,
    pairs: bool,
) -> Row:
    child, parent = reference.table, reference.parent
    one, _ = _joined(reference, true)
    other, orphans = _joined(reference, made)
    linked = np.flatnonzero(other >= 0)
    alone = other.copy()
    alone[linked] = rng.permutation(other[linked])
    sizes = [("child", a.column, a.size) for a in attributes[child]]
    sizes += [("parent", a.column, a.size) for a in attributes[parent]]

    def columns(found: dict[str, Loaded], at: Integers) -> dict[tuple[str, str], Integers]:
        rows = np.flatnonzero(at >= 0)
        result = {("child", c): codes[rows] for c, codes in found[child].codes.items()}
        return result | {("parent", c): v[at[rows]] for c, v in found[parent].codes.items()}

    real, copy, mixed = columns(true, one), columns(made, other), columns(made, alone)
    two, three, bounds = [], [], []
    for k in (2, 3):
        for chosen in itertools.combinations(sizes, k):
            ends = [(end, column) for end, column, _ in chosen]
            if len({end for end, _ in ends}) == 1:
                continue
            shape = [size for _, _, size in chosen]
            found = distance([real[e] for e in ends], [copy[e] for e in ends], shape)
            if k == 3:
                three.append(found)
                continue
            plain = distance([real[e] for e in ends], [mixed[e] for e in ends], shape)
            two.append((ends[0][1], ends[1][1], found, plain))
            bounds.append(limits(*(_table(rows, ends[0], ends[1], shape) for rows in (real, copy))))
            if pairs:
                print(f"  {child}.{ends[0][1]} {parent}.{ends[1][1]} {found:.3f} {plain:.3f}")
    degrees = [
        np.bincount(np.bincount(at[at >= 0], minlength=found[parent].rows))
        for at, found in ((one, true), (other, made))
    ]
    width = max(d.size for d in degrees)
    shares = [np.pad(d, (0, width - d.size)) / max(d.sum(), 1) for d in degrees]
    return {
        "key": f"{child}.{reference.column}",
        "pairs": two,
        "three": three,
        "bounds": bounds,
        "orphans": orphans,
        "degrees": round(float(np.abs(shares[0] - shares[1]).sum() / 2), 4),
        "links": int((other >= 0).sum()),
        "true_links": int((one >= 0).sum()),
    }


def distance(one: list[Integers], other: list[Integers], sizes: list[int]) -> float:
    """Return half the L1 distance between the shares of cells."""
    shares = []
    for columns in (one, other):
        code = np.zeros(columns[0].size, dtype=np.int64)
        for column, size in zip(columns, sizes, strict=True):
            code = code * size + column
        counts = np.bincount(code, minlength=int(np.prod(sizes)))
        shares.append(counts / max(counts.sum(), 1))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def limits(real: Floats, copy: Floats) -> tuple[float, float]:
    """Return how far from a table are: its interactions with another one's sums; its sums alone."""
    best = real + 1e-12
    for _ in range(50):
        for axis in (0, 1):
            sums = best.sum(axis=axis, keepdims=True)
            best *= copy.sum(axis=axis, keepdims=True) / np.maximum(sums, 1e-300)
    apart = np.multiply.outer(real.sum(axis=1), real.sum(axis=0))
    return float(np.abs(real - best).sum() / 2), float(np.abs(real - apart).sum() / 2)


def _table(
    rows: dict[tuple[str, str], Integers],
    one: tuple[str, str],
    other: tuple[str, str],
    shape: list[int],
) -> Floats:
    counts = np.bincount(rows[one] * shape[1] + rows[other], minlength=math.prod(shape))
    return np.asarray(counts.reshape(shape) / max(counts.sum(), 1))


def _joined(reference: Reference, found: dict[str, Loaded]) -> tuple[Integers, int]:
    """Return the parent's place of each row, -1 for none, and how many keys lead nowhere."""
    keys = found[reference.parent].keys[reference.parent_column]
    mine = found[reference.table].keys[reference.column]
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], mine), max(keys.size - 1, 0))
    places = order[at] if keys.size else np.full(mine.size, -1)
    right = (keys[places] == mine) if keys.size else np.zeros(mine.size, dtype=bool)
    there = mine != _NONE
    return np.where(right & there, places, -1), int((there & ~right).sum())


_NONE = -(2**62)


def _shown(
    true: dict[str, Loaded], made: dict[str, Loaded], t: str, column: str, sizes: dict[str, int]
) -> list[Any]:
    return [
        np.bincount(found[t].codes[column], minlength=sizes[column]).tolist()
        for found in (true, made)
    ]


def _references(connection: Connection, relations: tuple[str, ...]) -> list[Reference]:
    found = connection.execute(
        "select c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text, p.attname"
        " from pg_constraint as c"
        " join pg_attribute as a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]"
        " join pg_attribute as p on p.attrelid = c.confrelid and p.attnum = c.confkey[1]"
        " where c.contype = 'f' and cardinality(c.conkey) = 1"
        " and c.connamespace = 'public'::regnamespace order by 1, 2"
    ).fetchall()
    return [Reference(*row) for row in found if row[0] in relations and row[2] in relations]


def _attributes(connection: Connection, table: str, bins: int) -> list[Attribute]:
    """List the attributes of a relation: declared columns, or those of public ones with few."""
    declared = connection.execute(
        "select d.column_name, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, null),"
        " d.members, d.lower, d.upper from dp.domains as d join pg_attribute as a"
        " on a.attrelid = %s::regclass and a.attname = d.column_name"
        " where d.relation_name = %s order by a.attnum",
        [table, table],
    ).fetchall()
    result = []
    for column, exact, plain, members, lower, upper in declared:
        if members is not None:
            code = sql.SQL("coalesce(array_position({}::{}[], {}), 0)").format(
                sql.Literal(list(members)), sql.SQL(plain), sql.Identifier(column)
            )
            result.append(Attribute(column, code, len(members) + 1))
            continue
        cut = edges(exact, lower, upper, bins)[1:-1]
        code = sql.SQL("coalesce(width_bucket({}, {}::{}[]) + 1, 0)").format(
            sql.Identifier(column), sql.Literal(list(cut)), sql.SQL(plain)
        )
        result.append(Attribute(column, code, len(cut) + 2))
    public = connection.execute(
        "select from dp.relations where relation_name = %s and kind = 'public'", [table]
    ).fetchone()
    return result if public is None else _public(connection, table, bins)


def _public(connection: Connection, table: str, bins: int) -> list[Attribute]:
    columns = connection.execute(
        "select a.attname from pg_attribute as a where a.attrelid = %s::regclass and a.attnum > 0"
        " and not exists (select from pg_constraint as c where c.conrelid = a.attrelid"
        " and c.contype in ('p', 'f', 'u') and a.attnum = any (c.conkey)) order by a.attnum",
        [table],
    ).fetchall()
    result = []
    for (column,) in columns:
        listed = sql.SQL("select array_agg(distinct {0}::text) from {1} where {0} is not null")
        found = connection.execute(
            listed.format(sql.Identifier(column), sql.Identifier(table))
        ).fetchone()
        values = found[0] if found else None
        if values and len(values) <= bins:
            code = sql.SQL("coalesce(array_position({}, {}::text), 0)").format(
                sql.Literal(values), sql.Identifier(column)
            )
            result.append(Attribute(column, code, len(values) + 1))
    return result


def _load(
    connection: Connection,
    schema: str,
    table: str,
    attributes: list[Attribute],
    references: list[Reference],
) -> Loaded:
    """Read codes and keys of a table; text keys as 60 bits of a hash."""
    keys = {r.column for r in references if r.table == table}
    keys |= {r.parent_column for r in references if r.parent == table}
    types = dict(
        connection.execute(
            "select attname, format_type(atttypid, null) from pg_attribute"
            " where attrelid = %s::regclass",
            [table],
        ).fetchall()
    )
    hashed = sql.SQL("('x' || substr(md5({}::text), 1, 15))::bit(60)::bigint")
    shown = [
        sql.SQL("coalesce({}, {})").format(
            sql.Identifier(k)
            if types[k] in ("integer", "bigint", "smallint")
            else hashed.format(sql.Identifier(k)),
            sql.Literal(_NONE),
        )
        for k in sorted(keys)
    ]
    shown += [a.code for a in attributes]
    names = [*sorted(keys), *(a.column for a in attributes)]
    statement = sql.SQL("copy (select {} from {}) to stdout (delimiter ' ')").format(
        sql.SQL(", ").join(shown or [sql.Literal(0)]), sql.Identifier(schema, table)
    )
    with connection.cursor().copy(statement) as source:
        text = b"".join(bytes(block) for block in source)
    flat = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, max(len(names), 1))
    columns = {name: np.ascontiguousarray(flat[:, i]) for i, name in enumerate(names)}
    start = len(keys)
    return Loaded(
        {name: columns[name] for name in names[start:]},
        {name: columns[name] for name in names[:start]},
        int(flat.shape[0]),
    )


def _mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


if __name__ == "__main__":
    main()
