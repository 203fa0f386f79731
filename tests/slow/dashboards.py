"""Charts and dashboards as Superset's API takes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


def metric(sql: str, label: str = "") -> dict[str, Any]:
    """Return a metric that is written in SQL."""
    label = label or sql
    return {
        "expressionType": "SQL",
        "sqlExpression": sql,
        "label": label,
        "optionName": f"metric_{label}",
        "hasCustomLabel": True,
    }


def simple(aggregate: str, column: str) -> dict[str, Any]:
    """Return a metric that is chosen from lists."""
    return {
        "expressionType": "SIMPLE",
        "aggregate": aggregate,
        "column": {"column_name": column},
        "label": f"{aggregate}({column})",
        "optionName": f"metric_{aggregate}_{column}",
    }


def where(column: str, operator: str, value: Any) -> dict[str, Any]:
    """Return a filter of one chart."""
    return {
        "expressionType": "SIMPLE",
        "clause": "WHERE",
        "subject": column,
        "operator": operator,
        "comparator": value,
        "filterOptionName": f"filter_{column}_{operator}",
    }


def within(span: str) -> dict[str, Any]:
    """Return a filter by the time of orders."""
    return where("o_orderdate", "TEMPORAL_RANGE", span)


def written(clause: str, text: str) -> dict[str, Any]:
    """Return a filter that is written in SQL."""
    return {
        "expressionType": "SQL",
        "clause": clause,
        "sqlExpression": text,
        "filterOptionName": f"filter_{clause}",
    }


@dataclass(frozen=True)
class Chart:
    """One chart: what it shows of which dataset, and how large.

    Attributes
    ----------
    width, height : int
        In columns, of which there are 12, and units of 8 pixels.
    """

    name: str
    kind: str
    parameters: dict[str, Any] = field(default_factory=dict)
    width: int = 6
    height: int = 40

    def body(self, dataset: int, dashboards: list[int]) -> dict[str, Any]:
        """Return what creates it."""
        parameters = {
            "datasource": f"{dataset}__table",
            "viz_type": self.kind,
            "adhoc_filters": [],
            "row_limit": 1000,
        }
        return {
            "slice_name": self.name,
            "viz_type": self.kind,
            "datasource_id": dataset,
            "datasource_type": "table",
            "dashboards": dashboards,
            "params": json.dumps(parameters | self.parameters),
        }


def choice(name: str, dataset: int, column: str) -> dict[str, Any]:
    """Return a native filter: a box to choose values of a column in, for all charts."""
    return {
        "id": f"NATIVE_FILTER-{column}",
        "name": name,
        "filterType": "filter_select",
        "type": "NATIVE_FILTER",
        "targets": [{"datasetId": dataset, "column": {"name": column}}],
        "defaultDataMask": {"extraFormData": {}, "filterState": {}, "ownState": {}},
        "controlValues": {
            "enableEmptyFilter": False,
            "defaultToFirstItem": False,
            "multiSelect": True,
            "searchAllOptions": False,
            "inverseSelection": False,
        },
        "cascadeParentIds": [],
        "scope": {"rootPath": ["ROOT_ID"], "excluded": []},
        "description": "",
    }


def layout(title: str, charts: list[tuple[int, Chart]], rows: list[list[int]]) -> dict[str, Any]:
    """Return the places of charts: rows of positions in the list of (id, chart)."""
    parts: dict[str, Any] = {
        "DASHBOARD_VERSION_KEY": "v2",
        "ROOT_ID": {"type": "ROOT", "id": "ROOT_ID", "children": ["GRID_ID"]},
        "GRID_ID": {
            "type": "GRID",
            "id": "GRID_ID",
            "children": [f"ROW-{i}" for i in range(len(rows))],
            "parents": ["ROOT_ID"],
        },
        "HEADER_ID": {"type": "HEADER", "id": "HEADER_ID", "meta": {"text": title}},
    }
    for i, row in enumerate(rows):
        parts[f"ROW-{i}"] = {
            "type": "ROW",
            "id": f"ROW-{i}",
            "children": [f"CHART-{charts[j][0]}" for j in row],
            "meta": {"background": "BACKGROUND_TRANSPARENT"},
            "parents": ["ROOT_ID", "GRID_ID"],
        }
        for number, chart in (charts[j] for j in row):
            parts[f"CHART-{number}"] = {
                "type": "CHART",
                "id": f"CHART-{number}",
                "children": [],
                "meta": {
                    "chartId": number,
                    "width": chart.width,
                    "height": chart.height,
                    "sliceName": chart.name,
                },
                "parents": ["ROOT_ID", "GRID_ID", f"ROW-{i}"],
            }
    return parts


def create(
    browser: Any,
    title: str,
    dataset: int,
    charts: list[Chart],
    rows: list[list[int]],
    filters: list[dict[str, Any]] | None = None,
) -> int:
    """Make a dashboard of charts as its author's browser does; return its id."""
    made = browser.api("POST", "dashboard/", {"dashboard_title": title, "published": True})
    dashboard = int(made["id"])
    numbers = [
        int(browser.api("POST", "chart/", chart.body(dataset, [dashboard]))["id"])
        for chart in charts
    ]
    placed = layout(title, list(zip(numbers, charts, strict=True)), rows)
    metadata = {
        "native_filter_configuration": filters or [],
        "chart_configuration": {},
        "positions": placed,
        "filter_bar_orientation": "HORIZONTAL",
        "cross_filters_enabled": False,
    }
    browser.api(
        "PUT",
        f"dashboard/{dashboard}",
        {"json_metadata": json.dumps(metadata), "position_json": json.dumps(placed)},
    )
    return dashboard
