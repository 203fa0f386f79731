"""Figures of a few marginals, the original beside its synthetic copy; needs matplotlib.

``python -m bench.synthesis_figures [--data adult,tpch] [--folder DIR] [--epsilon 1] [--scale 0.1]
[--method pairs]`` copies as ``bench.synthesis`` does, reads the marginals of both, draws
``docs/figures/synthesis-*.svg`` and prints, last, one JSON line; ``--draw FILE`` draws such a kept
line again.  Needs the cluster that ``make up`` started, for TPC-H at scale 0.1 some minutes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.data import superuser
from bench.synthesis import COPY, synthesized
from bench.synthesis_data import ALL, prepare

Row = dict[str, Any]

FIGURES = Path("docs/figures")
COLOURS = {"original": "#7f7f7f", "synthetic": "#1f77b4"}


def _count(source: str, *keys: str) -> str:
    """Write a marginal: ``{0}`` stands for the schema."""
    places = ", ".join(str(n + 1) for n in range(len(keys)))
    return f"select {', '.join(keys)}, count(*) from {source} group by {places}"


def _children(parent: str, child: str, key: str, foreign: str) -> str:
    """Write how many parents have how many children, at most 40 being told apart."""
    joined = f"{{0}}.{parent} left join {{0}}.{child} on {foreign} = {key} group by {key}"
    return _count(f"(select count({foreign}) as n from {joined}) as d", "least(n, 40)::int")


_ORDERED, _SHIPPED = "extract(year from o_orderdate)::int", "extract(year from l_shipdate)::int"
_STATUS = "o_orderstatus::text"
_AGE = "age (years from 17)"

#: By data: rows of panels, each a title, names of one or two axes, and the marginal of a schema.
PANELS: dict[str, list[list[tuple[str, tuple[str, ...], str]]]] = {
    "adult": [
        [
            ("age", (_AGE,), _count("{0}.adult", "age / 5 * 5")),
            ("education", ("education_num",), _count("{0}.adult", "education_num")),
            (
                "marital status and relationship",
                ("marital_status", "relationship"),
                _count("{0}.adult", "marital_status", "relationship"),
            ),
        ],
        [
            ("hours", ("hours_per_week",), _count("{0}.adult", "hours_per_week / 5 * 5")),
            ("occupation", ("occupation",), _count("{0}.adult", "occupation")),
            (
                "age and marital status",
                (_AGE, "marital_status"),
                _count("{0}.adult", "age / 10 * 10", "marital_status"),
            ),
        ],
    ],
    "tpch": [
        [
            (
                "orders, price",
                ("o_totalprice (1000)",),
                _count("{0}.orders", "(o_totalprice::int / 25000 * 25)::int"),
            ),
            ("orders, status", ("o_orderstatus",), _count("{0}.orders", _STATUS)),
            (
                "within orders: year and status",
                ("year of o_orderdate", "o_orderstatus"),
                _count("{0}.orders", _ORDERED, _STATUS),
            ),
        ],
        [
            (
                "orders of a customer",
                ("number of orders",),
                _children("customer", "orders", "c_custkey", "o_custkey"),
            ),
            (
                "lines of an order",
                ("number of lines",),
                _children("orders", "lineitem", "o_orderkey", "l_orderkey"),
            ),
            (
                "across orders and lines",
                ("year of o_orderdate", "year of l_shipdate"),
                _count(
                    "{0}.lineitem join {0}.orders on o_orderkey = l_orderkey", _ORDERED, _SHIPPED
                ),
            ),
        ],
    ],
}


def main() -> None:
    """Copy, read and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(PANELS))
    parser.add_argument("--folder", type=Path, default=Path("../shared/data"))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--method", default="pairs")
    parser.add_argument("--draw", type=Path)
    arguments = parser.parse_args()
    if arguments.draw:
        rows = json.loads(arguments.draw.read_text().splitlines()[-1])["rows"]
    else:
        rows = []
        for name in arguments.data.split(","):
            data = ALL[name]
            where = prepare(superuser(), name, data, arguments.folder, arguments.scale)
            made = synthesized(where, data, arguments.epsilon, data.delta, arguments.method)
            with psycopg.connect(where, autocommit=True) as connection:
                found = [[read(connection, panel[2]) for panel in line] for line in PANELS[name]]
            rows.append({"data": name, "epsilon": arguments.epsilon} | made | {"panels": found})
    print(json.dumps({"bench": "synthesis_figures", "rows": rows}))
    draw(rows, FIGURES)


def read(connection: psycopg.Connection[Any], statement: str) -> dict[str, list[list[Any]]]:
    """Read one marginal of the original and of the copy."""
    return {
        which: sorted(
            list(row)
            for row in connection.execute(sql.SQL(statement).format(sql.Identifier(schema)))  # type: ignore[arg-type]
        )
        for which, schema in (("original", "public"), ("synthetic", COPY))
    }


def draw(rows: list[Row], folder: Path) -> None:
    """Draw one file for each data set."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "dpsql", "svg.fonttype": "none", "font.size": 8})
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        _draw(row, folder / f"synthesis-{row['data']}.svg")


def _draw(row: Row, path: Path) -> None:
    import matplotlib.pyplot as plt

    lines = PANELS[row["data"]]
    figure, axes = plt.subplots(len(lines), 4, figsize=(10.5, 2.4 * len(lines) + 0.4))
    for line, across, found in zip(lines, axes, row["panels"], strict=True):
        place = 0
        for (title, names, _), marginal in zip(line, found, strict=True):
            if len(names) == 1:
                _bars(across[place], title, names[0], marginal)
                place += 1
            else:
                _heat(across[place : place + 2], title, names, marginal)
                place += 2
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / (2.4 * len(lines) + 0.4)))
    figure.legend(handles, labels, loc="upper left", ncols=2, frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _shares(marginal: dict[str, list[list[Any]]], which: str) -> dict[Any, float]:
    """Shares of the cells; the last of a row is its count."""
    cells = marginal[which]
    total = sum(cell[-1] for cell in cells)
    return {tuple(cell[:-1]): cell[-1] / total for cell in cells}


def _bars(axis: Any, title: str, name: str, marginal: dict[str, list[list[Any]]]) -> None:
    """Draw shares of levels beside each other."""
    found = {which: _shares(marginal, which) for which in COLOURS}
    levels = sorted({level for shares in found.values() for (level,) in shares})
    for n, (which, colour) in enumerate(COLOURS.items()):
        at = [i + (n - 0.5) * 0.42 for i in range(len(levels))]
        heights = [found[which].get((level,), 0.0) for level in levels]
        axis.bar(at, heights, width=0.42, color=colour, label=which)
    every = max(1, -(-len(levels) // 8))
    axis.set_xticks(range(0, len(levels), every), [str(level) for level in levels[::every]])
    axis.set_title(title)
    axis.set_xlabel(name)
    axis.set_ylabel("share")


def _heat(
    axes: Any, title: str, names: tuple[str, ...], marginal: dict[str, list[list[Any]]]
) -> None:
    """Draw shares of pairs of levels, the original at the left; one scale for both."""
    found = {which: _shares(marginal, which) for which in COLOURS}
    left, right = (sorted({key[k] for shares in found.values() for key in shares}) for k in (0, 1))
    top = max(max(shares.values()) for shares in found.values())
    for axis, (which, shares) in zip(axes, found.items(), strict=True):
        table = [[shares.get((x, y), 0.0) for x in left] for y in right]
        axis.imshow(table, cmap="Blues", vmin=0, vmax=top, aspect="auto", origin="lower")
        axis.set_xticks(range(len(left)), [str(x) for x in left], rotation=45)
        axis.set_yticks(range(len(right)), [str(y) for y in right])
        axis.set_xlabel(names[0])
        axis.set_ylabel(names[1])
        axis.set_title(f"{title}\n{which}")


if __name__ == "__main__":
    main()
