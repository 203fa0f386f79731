"""A report as one HTML page: no server, no network, and no script that it could not do without."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from importlib import resources
from math import isfinite, nan
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dpsql.client import report_charts as charts
from dpsql.client.report_data import DRAWN, SHOWN
from dpsql.client.shown import plain

#: Rows of dp.burn that the page lists.
STEPS = 500


def page(data: Mapping[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    data : mapping
        Of `dpsql.client.report_data.collect`.
    """
    script = _part("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"number": number, "time": time, "age": age, "share": share}
    return environment.from_string(_part("report.html")).render(
        **data,
        drawings=drawings(data),
        style=Markup(_part("report.css")),
        script=Markup(script),
        digest=digest,
        data=plain({key: value for key, value in data.items() if value is not None}),
        colours=charts.COLOURS,
        most=SHOWN,
        steps=STEPS,
    )


def _part(name: str) -> str:
    return resources.files("dpsql.client").joinpath(name).read_text(encoding="utf-8")


def drawings(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the charts that there is something to draw for, each with the names of its series."""
    found = {}
    now = data["about"]["made_at"]
    if data["budgets"]:
        for account, title in (
            ("role", "Epsilon spent by each role over time"),
            ("relation", "Epsilon spent on each protected relation over time"),
        ):
            drawn = _spent(data["budgets"], account, title, now)
            if drawn:
                found[f"spent_{account}"] = drawn
    if data["releases"]:
        points = [
            (place, float(row["epsilon"]), float(row["expected_error"]))
            for place, row in enumerate(data["releases"]["rows"], 1)
            if row["expected_error"] and row["epsilon"] and isfinite(row["expected_error"])
        ]
        if points:
            title = "Expected error of releases against the epsilon that they cost"
            found["errors"] = {
                "svg": charts.errors_by_budget("errors", title, points),
                "names": [],
                "more": 0,
            }
    if data["refusals"] and data["refusals"]["over_time"]:
        found["refused"] = _refused(data["refusals"])
    return found


def _spent(
    budgets: Mapping[str, Any], account: str, title: str, now: datetime
) -> dict[str, Any] | None:
    lines: dict[str, list[tuple[datetime, float]]] = {}
    for row in budgets["burn"]:
        if row["account"] == account:
            # what is infinite has no place
            height = float(row["epsilon_spent"]) if row["epsilon_spent"].is_finite() else nan
            lines.setdefault(row["name"], []).append((row["step_start"], height))
    if not lines:
        return None
    names = sorted(lines, key=lambda name: -lines[name][-1][1])
    (number,) = {row["accounts"] for row in budgets["burn"] if row["account"] == account}
    # a limit of each window is no limit of what is drawn
    limits = {
        row["name"]: float(row["epsilon_limit"])
        for row in budgets[account]["rows"]
        if row["epsilon_limit"] and not row["budget_window"]
    }
    svg = charts.spent_over_time(
        f"spent_{account}", title, [lines[n] for n in names], [limits.get(n) for n in names], now
    )
    return {"svg": svg, "names": names, "more": number - len(names)}


def _refused(refusals: Mapping[str, Any]) -> dict[str, Any]:
    rows = refusals["over_time"]
    step = timedelta(seconds=rows[0]["seconds"])
    first, last = rows[0]["step_start"], rows[-1]["step_start"]
    starts = [first + step * i for i in range(round((last - first) / step) + 1)]
    place = {at: i for i, at in enumerate(starts)}
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["sqlstate"]] += row["refused"]
    names = [name for name, _ in totals.most_common(DRAWN - 1)]
    heights = {name: [0] * len(starts) for name in (*names, "others")}
    for row in rows:
        name = row["sqlstate"] if row["sqlstate"] in names else "others"
        heights[name][place[row["step_start"]]] += row["refused"]
    if len(totals) > len(names):
        names.append("others")
    svg = charts.amounts_over_time(
        "refused",
        "Refused statements over time, by reason",
        starts,
        step,
        [heights[n] for n in names],
    )
    return {"svg": svg, "names": names, "more": 0}


def number(value: Decimal | float | None) -> str:
    """Return a number for people; none is a dash."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.4g}"


def time(value: datetime | None) -> str:
    """Return a time to the minute, in UTC."""
    if value is None:
        return "\N{EN DASH}"
    return value.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M")


def age(value: timedelta | None) -> str:
    """Return a length of time in its largest unit."""
    if value is None:
        return "\N{EN DASH}"
    for unit, seconds in (("days", 86400), ("hours", 3600)):
        if value.total_seconds() >= 2 * seconds:
            return f"{value.total_seconds() / seconds:.0f} {unit}"
    return f"{value.total_seconds() / 60:.0f} minutes"


def share(value: float | None) -> float | None:
    """Return a share in per cent, between 0 and 100."""
    return None if value is None else min(max(100 * value, 0.0), 100.0)
