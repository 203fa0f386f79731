"""Charts of a report as SVG that takes its colours from the page.

No name is drawn: matplotlib reads ``$`` in texts as formulas.  Legends are part of the page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from dpsql.client.layout import SetupError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: As many as accounts are drawn; told apart with most kinds of colour vision, on white and dark.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#b59a1f", "#3aa6c9", "#aa3377", "#888888")

# Stand for the page's own colours.
_INK, _FAINT = "#010203", "#040506"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dpsql",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.use_mathtext": False,
    "grid.color": _FAINT,
    "grid.alpha": 0.25,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
}


class Drawing:
    """One chart: axes to draw on, then SVG.

    Parameters
    ----------
    name : str
        Unique on the page; the legend's i-th entry switches what is drawn with ``gid=part(i)``.
    title : str
        Read aloud in place of the picture.
    """

    def __init__(self, name: str, title: str) -> None:
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError:
            raise SetupError(
                "charts need matplotlib, which is not installed\npip install 'dpsql[report]'"
            ) from None
        self.name, self.title = name, title
        self._context = matplotlib.rc_context
        with self._context(_SETTINGS):
            self.figure: Figure = Figure(figsize=(8, 3.2), layout="constrained")
            # the stubs of matplotlib know neither dates nor functions as formatters
            self.axes: Any = self.figure.subplots()

    def part(self, number: int) -> str:
        """Return the id of a series."""
        return f"{self.name}-{number}"

    def svg(self) -> Markup:
        """Return the picture as a part of the page."""
        written = io.StringIO()
        with self._context(_SETTINGS):
            self.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
        text = written.getvalue()
        text = (
            text[text.index("<svg") :].replace(_INK, "var(--ink)").replace(_FAINT, "var(--faint)")
        )
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
        # ids of clip paths and glyphs: those of different charts must differ
        ours = rf'(id="|url\(#|href="#)(?!{self.name}-\d)'
        text = re.sub(ours, rf"\g<1>{self.name}_", text)
        head = f'<svg role="img" aria-label="{escape(self.title)}" '
        text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf"{head}\1>", text, count=1)
        return Markup(text.strip())


def spent_over_time(
    name: str,
    title: str,
    series: Sequence[Sequence[tuple[datetime, float]]],
    limits: Sequence[float | None],
    end: datetime,
) -> Markup:
    """Draw what was spent, a step line each, and its limit, dashed."""
    drawing = Drawing(name, title)
    axes = drawing.axes
    for number, (points, limit) in enumerate(zip(series, limits, strict=True)):
        colour, part = COLOURS[number], drawing.part(number)
        times = [points[0][0], *(at for at, _ in points), max(end, points[-1][0])]
        heights = [0.0, *(height for _, height in points), points[-1][1]]
        axes.plot(times, heights, color=colour, drawstyle="steps-post", linewidth=2, gid=part)
        if limit is not None:
            axes.axhline(limit, color=colour, linestyle="--", linewidth=1, gid=f"{part}-limit")
    axes.set_ylabel("epsilon spent")
    axes.set_ylim(bottom=0)
    _dates(axes)
    return drawing.svg()


def amounts_over_time(
    name: str,
    title: str,
    starts: Sequence[datetime],
    step: timedelta,
    series: Sequence[Sequence[int]],
) -> Markup:
    """Draw numbers of each step on top of each other."""
    drawing = Drawing(name, title)
    axes = drawing.axes
    edges = [*starts, starts[-1] + step]
    low = [0.0] * len(edges)
    for number, heights in enumerate(series):
        high = [a + b for a, b in zip(low, [*heights, heights[-1]], strict=True)]
        axes.fill_between(
            edges,
            low,
            high,
            step="post",
            color=COLOURS[number],
            linewidth=0,
            gid=drawing.part(number),
        )
        low = high
    axes.set_ylabel("refused")
    axes.set_ylim(bottom=0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    _dates(axes)
    return drawing.svg()


def errors_by_budget(name: str, title: str, points: Sequence[tuple[int, float, float]]) -> Markup:
    """Draw numbered points of (number, epsilon, expected error), both axes logarithmic."""
    drawing = Drawing(name, title)
    axes = drawing.axes
    axes.scatter([x for _, x, _ in points], [y for _, _, y in points], color=COLOURS[0], zorder=3)
    for number, x, y in points:
        axes.annotate(str(number), (x, y), xytext=(5, 4), textcoords="offset points", color=_INK)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.15)
    axes.set_xlabel("epsilon paid")
    axes.set_ylabel("expected error of a number")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    return drawing.svg()


def _dates(axes: Any) -> None:
    import matplotlib.dates

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
