"""Figure of ``bench.aim``: error against time, one panel a budget; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, Any]

COLOURS = {
    "independent": "#7f7f7f",
    "pairs": "#d62728",
    "AIM+GReM": "#1f77b4",
    "AIM+PGM": "#9467bd",
    "ResidualPlanner": "#2ca02c",
}
MARKERS = {"none": "x", "clip": "v", "simplex": "^", "mixture": "o", "rows": "s", "pgm": "D"}


def draw(rows: list[Row], folder: Path) -> None:
    """Draw each data set's rows into a file of its own."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "dpsql", "svg.fonttype": "none", "font.size": 9, "axes.grid": True}
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(row["data"] for row in rows):
        _draw([row for row in rows if row["data"] == name], folder / f"aim-{name}.svg")


def _draw(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    mine = [row for row in rows if row["part"] == "mechanisms"]
    budgets = sorted({row["epsilon"] for row in mine})
    if not budgets:
        return
    size = (3.2 * len(budgets) + 1.0, 3.9)
    figure, axes = plt.subplots(
        1, len(budgets), figsize=size, squeeze=False, sharey=True, sharex=True
    )
    for axis, epsilon in zip(axes.flat, budgets, strict=True):
        for row in mine:
            if row["epsilon"] == epsilon:
                colour, marker = COLOURS[row["mechanism"]], MARKERS[row["postprocess"]]
                at = [row["seconds"]], [row["error"]]
                axis.plot(*at, marker=marker, color=colour, ls="", ms=5)
        for row in rows:
            if row["part"] != "reference":
                continue
            if "seconds" not in row:
                axis.axhline(row["error"], color="k", ls=":", lw=0.8, label=row["mechanism"])
            elif epsilon == 1:
                at = [row["seconds"]], [row["error"]]
                axis.plot(*at, marker="*", color="k", ls="", ms=7)
                name = row["mechanism"].split(",")[0]
                axis.annotate(name, (row["seconds"], row["error"] * 1.3), fontsize=6, ha="right")
        axis.set(title=f"epsilon = {epsilon:g}", xlabel="seconds", xscale="log", yscale="log")
    axes.flat[0].set_ylabel("mean L1 error / N, 3-way marginals")
    keys = [Line2D([], [], color=c, marker="s", ls="", label=name) for name, c in COLOURS.items()]
    keys += [
        Line2D([], [], color="k", marker=m, ls="", mfc="none", label=name)
        for name, m in MARKERS.items()
    ]
    keys += axes.flat[0].get_legend_handles_labels()[0]
    figure.tight_layout(rect=(0, 0, 1, 0.86))
    figure.legend(handles=keys, loc="upper center", ncols=5, frameon=False, fontsize=7)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
