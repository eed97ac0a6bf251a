"""Write a bundle that Apache Superset imports: a database, datasets, charts and a dashboard.

The files in it are JSON, which is YAML. Their ids are made from the place of the trove and their
own names: a bundle that is imported again replaces what it made before, and that of another trove
stands beside it. Passwords are never written: Superset asks for one where the place had one.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, uuid5

from optrove.interop.superset_charts import CHARTS, METRICS, TITLE
from optrove.model.views import ColumnKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.interop.superset_charts import Chart
    from optrove.model.views import View

FOLDER: Final = "optrove"
_VERSION: Final = "1.0.0"
_MOMENT: Final = (2026, 1, 1, 0, 0, 0)
"""Every file of a bundle has it, so that equal bundles are equal."""
_HEIGHTS: Final = {"big_number_total": 20}
_HEIGHT: Final = 50
_COLUMNS: Final = 12
_TYPES: Final = {
    ColumnKind.TEXT: "VARCHAR",
    ColumnKind.NUMBER: "DOUBLE PRECISION",
    ColumnKind.FLAG: "INTEGER",
    ColumnKind.TIME: "TIMESTAMP",
}


def write_bundle(uri: str, name: str, views: Sequence[View]) -> bytes:
    """Return the zip file for the trove that SQLAlchemy finds at ``uri``, called ``name``."""
    bundle = _Bundle(uri, name, views)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for path, document in bundle.documents():
            entry = zipfile.ZipInfo(f"{FOLDER}/{path}", _MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, json.dumps(document, indent=2) + "\n")
    return stream.getvalue()


class _Bundle:
    """The documents of one bundle, which refer to one another."""

    def __init__(self, uri: str, name: str, views: Sequence[View]) -> None:
        self._uri = uri
        self._name = name
        self._views = views

    def documents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all files: their paths and what they hold."""
        yield (
            "metadata.yaml",
            {
                "version": _VERSION,
                "type": "Dashboard",
                "timestamp": "2026-01-01T00:00:00+00:00",
            },
        )
        yield "databases/optrove.yaml", self._database()
        for view in self._views:
            yield f"datasets/optrove/{view.name}.yaml", self._dataset(view)
        for chart in CHARTS:
            yield f"charts/{chart.name.replace(' ', '_')}.yaml", self._chart(chart)
        yield "dashboards/optrove.yaml", self._dashboard()

    def _id(self, kind: str, name: str = "") -> str:
        return str(uuid5(NAMESPACE_URL, f"optrove {kind} {name} {self._uri}"))

    def _database(self) -> dict[str, Any]:
        return {
            "database_name": self._name,
            "sqlalchemy_uri": self._uri,
            "expose_in_sqllab": True,
            "allow_run_async": False,
            "allow_ctas": False,
            "allow_cvas": False,
            "allow_dml": False,
            "allow_csv_upload": False,
            "extra": {},
            "uuid": self._id("database"),
            "version": _VERSION,
        }

    def _dataset(self, view: View) -> dict[str, Any]:
        times = [each.name for each in view.columns if each.kind is ColumnKind.TIME]
        return {
            "table_name": view.name,
            # When it began itself, else when its run did.
            "main_dttm_col": "started" if "started" in times else next(iter(times), None),
            "description": view.row,
            "schema": None,
            "sql": None,
            "filter_select_enabled": True,
            "uuid": self._id("dataset", view.name),
            "metrics": [
                {
                    "metric_name": each.name,
                    "verbose_name": each.label,
                    "expression": each.expression,
                    "d3format": each.format,
                }
                for each in METRICS[view.name]
            ],
            "columns": [
                {
                    "column_name": each.name,
                    "is_dttm": each.kind is ColumnKind.TIME,
                    "is_active": True,
                    "type": _TYPES[each.kind],
                    "groupby": True,
                    "filterable": True,
                    "description": each.meaning,
                }
                for each in view.columns
            ],
            "version": _VERSION,
            "database_uuid": self._id("database"),
        }

    def _chart(self, chart: Chart) -> dict[str, Any]:
        return {
            "slice_name": chart.name,
            "viz_type": chart.kind,
            "params": _params(chart),
            "query_context": json.dumps(_query_context(chart)),
            "uuid": self._id("chart", chart.name),
            "version": _VERSION,
            "dataset_uuid": self._id("dataset", chart.view),
        }

    def _dashboard(self) -> dict[str, Any]:
        return {
            "dashboard_title": f"{TITLE}: {self._name}",
            "description": "Operation calls of models, and what came of executing them",
            "uuid": self._id("dashboard"),
            "position": self._position(),
            "metadata": {"refresh_frequency": 0},
            "published": True,
            "version": _VERSION,
        }

    def _position(self) -> dict[str, Any]:
        """Return where the charts stand: in rows of twelve columns, in their order."""
        rows: list[list[Chart]] = []
        for chart in CHARTS:
            if not rows or sum(each.width for each in rows[-1]) + chart.width > _COLUMNS:
                rows.append([])
            rows[-1].append(chart)
        names = [f"ROW-{place}" for place, _ in enumerate(rows)]
        found: dict[str, Any] = {
            "DASHBOARD_VERSION_KEY": "v2",
            "ROOT_ID": {"type": "ROOT", "id": "ROOT_ID", "children": ["GRID_ID"]},
            "HEADER_ID": {"type": "HEADER", "id": "HEADER_ID", "meta": {"text": TITLE}},
            "GRID_ID": _node("GRID", "GRID_ID", names, ["ROOT_ID"]),
        }
        for name, row in zip(names, rows, strict=True):
            charts = [f"CHART-{each.name.replace(' ', '-')}" for each in row]
            above = ["ROOT_ID", "GRID_ID"]
            found[name] = _node("ROW", name, charts, above, background="BACKGROUND_TRANSPARENT")
            for key, chart in zip(charts, row, strict=True):
                found[key] = _node("CHART", key, [], [*above, name], **self._placed(chart))
        return found

    def _placed(self, chart: Chart) -> dict[str, Any]:
        return {
            "uuid": self._id("chart", chart.name),
            "sliceName": chart.name,
            "width": chart.width,
            "height": _HEIGHTS.get(chart.kind, _HEIGHT),
            # Superset puts its own number here.
            "chartId": CHARTS.index(chart) + 1,
        }


def _node(
    kind: str, name: str, children: list[str], parents: list[str], **meta: Any
) -> dict[str, Any]:
    return {"type": kind, "id": name, "children": children, "parents": parents, "meta": meta}


def _params(chart: Chart) -> dict[str, Any]:
    """Return what the form of a chart says."""
    params: dict[str, Any] = {
        "viz_type": chart.kind,
        "adhoc_filters": [],
        "row_limit": chart.limit,
        "time_range": "No filter",
        "groupby": list(chart.groups),
    }
    if chart.columns:
        order = [json.dumps([chart.order, False])] if chart.order else []
        listed = {"query_mode": "raw", "all_columns": list(chart.columns), "order_by_cols": order}
        return {**params, **listed}
    if chart.kind in ("big_number_total", "pie"):
        return {**params, "metric": chart.metrics[0], "show_legend": True}
    params |= {"metrics": list(chart.metrics), "order_desc": not chart.least}
    if chart.kind == "table":
        ordered = {"query_mode": "aggregate", "timeseries_limit_metric": chart.metrics[0]}
        return {**params, **ordered}
    stacked = {"stack": "Stack"} if chart.kind == "echarts_timeseries_bar" else {}
    shown = {"x_axis": chart.time, "time_grain_sqla": "P1D", "show_legend": True}
    return {**params, **shown, "rich_tooltip": True, **stacked}


def _query_context(chart: Chart) -> dict[str, Any]:
    """Return what a chart asks for, so that it can be asked before anybody has looked at it."""
    query: dict[str, Any] = {
        "columns": [*chart.columns, *chart.groups],
        "metrics": None if chart.columns else list(chart.metrics),
        "orderby": [],
        "row_limit": chart.limit,
        "time_range": "No filter",
        "filters": [],
        "extras": {},
    }
    if chart.order:
        query["orderby"] = [[chart.order, False]]
    elif chart.groups:
        query["orderby"] = [[chart.metrics[0], chart.least]]
    if chart.time:
        axis = {
            "columnType": "BASE_AXIS",
            "expressionType": "SQL",
            "label": chart.time,
            "sqlExpression": chart.time,
            "timeGrain": "P1D",
        }
        query["columns"] = [axis, *chart.groups]
    return {
        "datasource": {"id": 0, "type": "table"},
        "force": False,
        "queries": [query],
        "form_data": _params(chart),
        "result_format": "json",
        "result_type": "full",
    }
