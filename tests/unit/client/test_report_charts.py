"""Charts are parts of a page: no name, no colour of their own, ids that differ."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from math import nan
from xml.etree import ElementTree

import pytest

from dpsql.client import report_charts as charts

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def ids(svg: str) -> set[str]:
    # the page is HTML, where the prefix needs no declaration
    ElementTree.fromstring(str.replace(svg, "<svg ", '<svg xmlns:xlink="x" ', 1))
    return set(re.findall(r'id="([^"]*)"', svg))


def test_lines_have_ids_and_limits_theirs() -> None:
    lines = [[(START, 1.0), (START + timedelta(days=3), 4.0)], [(START, 2.0)], [(START, nan)]]
    svg = charts.spent_over_time("a", "Spent & <b>", lines, [9.0, None, None], START)
    assert {"a-0", "a-0-limit", "a-1", "a-2"} <= ids(svg)
    assert "a-1-limit" not in ids(svg)
    assert 'aria-label="Spent &amp; &lt;b&gt;"' in svg
    assert "var(--ink)" in svg
    assert not ids(svg) & ids(charts.spent_over_time("b", "B", lines[:1], [9.0], START))


def test_one_moment_and_one_point_can_be_drawn() -> None:
    hour = timedelta(hours=1)
    assert "r-1" in ids(charts.amounts_over_time("r", "R", [START], hour, [[3], [1]]))
    for step in (timedelta(minutes=5), timedelta(days=7), timedelta(days=364)):
        starts = [START + step * i for i in range(90)]
        assert "r-0" in ids(charts.amounts_over_time("r", "R", starts, step, [[1] * 90]))
    svg = charts.errors_by_budget("e", "E", [(1, 0.2, 3.0), (2, 1.0, 0.001)])
    assert ">2</text>" in svg


@pytest.mark.parametrize("heights", [[1], [3], [19], [250]])
def test_numbers_of_refusals_are_whole(heights: list[int]) -> None:
    svg = charts.amounts_over_time("r", "R", [START], timedelta(hours=1), [heights])
    shown = re.findall(r">([0-9.]+)</text>", svg[svg.index("matplotlib.axis_2") :])
    assert len(shown) >= 2
    assert not any("." in text for text in shown)
