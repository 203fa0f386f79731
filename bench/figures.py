"""Figures of the sensitivity benchmark, as SVG; needs matplotlib (extra ``bench``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_RATED = ("Q1", "Q4")

STYLE = {
    "elastic": ("#7f7f7f", "s"),
    "elastic_stored": ("#c7c7c7", "s"),
    "residual": ("#1f77b4", "o"),
    "residual_keys": ("#aec7e8", "o"),
    "sampling": ("#2ca02c", "^"),
    "sampling_published": ("#ff7f0e", "v"),
    "sampling_published_filtered": ("#d62728", "1"),
    "sampling_estimate": ("#bcbd22", "<"),
    "sampling_estimate_filtered": ("#17becf", ">"),
    "sketch": ("#9467bd", "D"),
    "sketch_keys": ("#c5b0d5", "D"),
    "sketch_published": ("#e377c2", "d"),
}


def draw(rows: list[Row], folder: Path) -> None:
    """Draw what the rows hold, one file a figure."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "dpsql", "svg.fonttype": "none", "font.size": 9, "axes.grid": True}
    )
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["part"]].append(row)
    for mechanism in ("laplace", "cauchy", "calibrated"):
        chosen = [r for r in parts["epsilon"] if r["mechanism"] == mechanism]
        _panels(chosen, "epsilon", folder / f"noise-{mechanism}.svg", "epsilon", "median error")
    _panels(
        [r for r in parts["epsilon"] if r["method"] == "residual"],
        "epsilon",
        folder / "laplace-published.svg",
        "epsilon",
        "noise scale",
        value="noise_scale",
        series="mechanism",
    )
    _bars(parts["time"], folder / "time.svg")
    for mechanism in ("laplace", "cauchy"):
        chosen = [r for r in parts["rate"] if r["mechanism"] == mechanism and r["query"] in _RATED]
        _panels(chosen, "rate", folder / f"rate-{mechanism}.svg", "sampling rate", "median error")
    chosen = [r for r in parts["rate"] if r["mechanism"] == "laplace"]
    name = folder / "rate-sensitivity.svg"
    _panels(chosen, "rate", name, "sampling rate", "sensitivity", value="sensitivity")
    name = folder / "rate-group.svg"
    _panels(parts["group"], "rate", name, "sampling rate", "largest group", value="sensitivity")
    scaled = [r | {"scale": float(r["data"].split()[-1])} for r in parts["scale"]]
    _panels(scaled, "scale", folder / "scale.svg", "scale factor", "median error")
    _panels(
        scaled,
        "scale",
        folder / "scale-time.svg",
        "scale factor",
        "ms of the sensitivity",
        value="ms",
    )


def _panels(
    rows: list[Row],
    x: str,
    path: Path,
    x_label: str,
    y_label: str,
    *,
    value: str = "median_error",
    series: str = "method",
) -> None:
    """Draw one panel a query, one line a series, the true answer as a shaded area."""
    import matplotlib.pyplot as plt

    queries = sorted({row["query"] for row in rows})
    if not queries:
        return
    across = min(len(queries), 4)
    down = -(-len(queries) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(2.6 * across + 1.5, 2.6 * down + 0.9), squeeze=False
    )
    for axis in axes.flat[len(queries) :]:
        axis.set_visible(False)
    for axis, query in zip(axes.flat, queries, strict=False):
        mine = [row for row in rows if row["query"] == query]
        if value == "median_error" and mine[0].get("truth"):
            truth = sorted({(row[x], row["truth"]) for row in mine})
            shade = {"color": "#dddddd", "zorder": 0, "label": "true answer"}
            axis.fill_between([at for at, _ in truth], [n for _, n in truth], 0.5, **shade)
        for name in dict.fromkeys(row[series] for row in mine):
            colour, marker = STYLE.get(name, (None, "."))
            points = [(row[x], row[value]) for row in mine if row[series] == name]
            points = [(at, y) for at, y in points if y is not None]
            flat = [y for at, y in points if at is None]
            if flat:
                axis.axhline(flat[0], color=colour, linestyle="--", label=name)
            elif points:
                axis.plot(*zip(*points, strict=True), color=colour, marker=marker, label=name, ms=4)
        axis.set(title=query, xlabel=x_label, xscale="log", yscale="log")
    for row in axes:
        row[0].set_ylabel(y_label)
    _finish(figure, axes.flat, path)


def _bars(rows: list[Row], path: Path) -> None:
    """Draw the time of each method, query by query."""
    import matplotlib.pyplot as plt

    queries = sorted({row["query"] for row in rows})
    if not queries:
        return
    figure, axis = plt.subplots(figsize=(9, 3.2))
    methods = list(STYLE)
    for n, method in enumerate(methods):
        ms = {row["query"]: row["ms"] for row in rows if row["method"] == method}
        at = [i + (n - len(methods) / 2) * 0.08 for i, q in enumerate(queries) if ms.get(q)]
        heights = [ms[q] for q in queries if ms.get(q)]
        axis.bar(at, heights, width=0.07, color=STYLE[method][0], label=method)
    axis.set(yscale="log", ylabel="ms of the sensitivity")
    axis.set_xticks(range(len(queries)), queries)
    _finish(figure, [axis], path)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    legend: Callable[..., Any] = figure.legend
    columns = max(1, int(figure.get_size_inches()[0] // 2.2))
    room = (0.25 + 0.2 * -(-len(handles) // columns)) / figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0, 1, 1 - room))
    legend(handles.values(), handles.keys(), loc="upper center", ncols=columns, frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
