"""Write a bundle that Apache Superset imports: datasets, charts, a dashboard.

The files in it are JSON, which is YAML. Their ids are made from the place of the trove and their
own names: a bundle that is imported again replaces what it made before, and that of another trove
stands beside it. Passwords are never written: Superset asks for one where the place had one.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from optrove.errors import UnusableResults
from optrove.model.trove import ColumnKind
from optrove.trove.opening import located, writing
from optrove.trove.place import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from optrove.model.trove import SqlView
    from optrove.trove.opening import Recovered
    from optrove.trove.place import Place


TITLE: Final = "optrove"


@dataclass(frozen=True, slots=True)
class ViewMetric:
    """A number that is computed of a view, and how it is written."""

    name: str
    label: str
    expression: str
    format: str = ",d"


@dataclass(frozen=True, slots=True)
class DashboardChart:
    """A chart of one view; ``kind`` is Superset's name of it, ``width`` is of twelve columns.

    A chart with ``columns`` lists rows as they are, the others show ``metrics`` for each of
    ``groups``, over ``time`` where it is given. The first metric orders them; ``least`` turns that.
    """

    name: str
    view: str
    kind: str
    width: int
    metrics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    time: str | None = None
    columns: tuple[str, ...] = ()
    order: str | None = None
    least: bool = False
    limit: int = 1000


_SHARE_OF_RAN: Final = "SUM(1.0 * good) / NULLIF(SUM(ran), 0)"
METRICS: Final = {
    "v_runs": (
        ViewMetric("runs", "runs", "COUNT(*)"),
        ViewMetric("all_calls", "calls", "SUM(calls)"),
    ),
    "v_ops": (
        ViewMetric("ops", "ops", "COUNT(*)"),
        ViewMetric("all_cases", "cases", "SUM(cases)"),
        ViewMetric("all_calls", "calls", "SUM(outermost_calls)"),
    ),
    "v_cases": (
        ViewMetric("all_cases", "cases", "COUNT(*)"),
        ViewMetric("replayable_share", "recorded completely", "AVG(1.0 * replayable)", ".1%"),
    ),
    "v_tensors": (ViewMetric("all_calls", "calls", "SUM(calls)"),),
    "v_executions": (
        ViewMetric("all_calls", "calls", "SUM(calls)"),
        ViewMetric("all_ms", "ms", "SUM(total_ms)", ",.1f"),
    ),
    "v_tests": (
        ViewMetric("tests", "tests", "COUNT(*)"),
        ViewMetric("pass_share", "passed of those that ran", _SHARE_OF_RAN, ".1%"),
    ),
    "v_attempts": (
        ViewMetric("attempts", "attempts", "COUNT(*)"),
        ViewMetric("pass_share", "passed of those that ran", _SHARE_OF_RAN, ".1%"),
        ViewMetric("mean_ms", "mean ms", "AVG(duration_ms)", ",.2f"),
    ),
    "v_failures": (ViewMetric("failures", "failures", "COUNT(*)"),),
    "v_pcc": (
        ViewMetric("lowest_pcc", "lowest PCC", "MIN(pcc)", ",.5f"),
        ViewMetric("mean_pcc", "mean PCC", "AVG(pcc)", ",.5f"),
        ViewMetric("measured", "measured", "COUNT(pcc)"),
    ),
}

CHARTS: Final = (
    DashboardChart("Cases", "v_cases", "big_number_total", 3, ("all_cases",)),
    DashboardChart("Calls", "v_ops", "big_number_total", 3, ("all_calls",)),
    DashboardChart(
        "Passed, of the attempts that ran", "v_attempts", "big_number_total", 3, ("pass_share",)
    ),
    DashboardChart("Lowest PCC", "v_pcc", "big_number_total", 3, ("lowest_pcc",)),
    DashboardChart(
        *("Ops by calls", "v_ops", "table", 6, ("all_calls", "all_cases"), ("op",)),
        limit=100,
    ),
    DashboardChart("Outcomes of attempts", "v_attempts", "pie", 6, ("attempts",), ("outcome",)),
    DashboardChart(
        *("Outcomes by day", "v_attempts", "echarts_timeseries_bar", 6),
        *(("attempts",), ("outcome",), "started"),
    ),
    DashboardChart(
        *("Lowest PCC by day", "v_pcc", "echarts_timeseries_line", 6),
        *(("lowest_pcc",), ("board",), "started"),
    ),
    DashboardChart(
        *("Failures by cause", "v_failures", "table", 12, ("failures",)),
        ("op", "outcome", "board", "cause"),
        limit=200,
    ),
    DashboardChart(
        *("Least exact ops", "v_pcc", "table", 6, ("lowest_pcc", "mean_pcc", "measured"), ("op",)),
        *(None, (), None),
        least=True,
        limit=100,
    ),
    DashboardChart("Calls by dtype", "v_tensors", "pie", 6, ("all_calls",), ("dtype",), limit=20),
    DashboardChart(
        *("Tests", "v_tests", "table", 12),
        columns=("run_started", "model", "board", "test_id", "outcome", "duration_ms", "error"),
        order="duration_ms",
    ),
    DashboardChart(
        *("Runs", "v_runs", "table", 12),
        columns=(
            *("run_started", "run_kind", "model", "board", "ttnn_version", "calls", "tests"),
            *("tests_passed", "attempts_ran", "attempts_passed", "run_id"),
        ),
        order="run_started",
    ),
)


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


def write_bundle(uri: str, name: str, views: Sequence[SqlView]) -> bytes:
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

    def __init__(self, uri: str, name: str, views: Sequence[SqlView]) -> None:
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

    def _dataset(self, view: SqlView) -> dict[str, Any]:
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

    def _chart(self, chart: DashboardChart) -> dict[str, Any]:
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
            "description": "Operation calls of models, and the results of executing them",
            "uuid": self._id("dashboard"),
            "position": self._position(),
            "metadata": {"refresh_frequency": 0},
            "published": True,
            "version": _VERSION,
        }

    def _position(self) -> dict[str, Any]:
        """Return where the charts stand: in rows of twelve columns, in their order."""
        rows: list[list[DashboardChart]] = []
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

    def _placed(self, chart: DashboardChart) -> dict[str, Any]:
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


def _params(chart: DashboardChart) -> dict[str, Any]:
    """Return the settings of a chart's form."""
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


def _query_context(chart: DashboardChart) -> dict[str, Any]:
    """Return the query of a chart, so that it can run before anyone opens the chart."""
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


BUNDLE: Final = "optrove-superset.zip"
SQL: Final = "views.sql"

_HEAD: Final = """\
-- The views of an optrove trove on {dialect}, for any BI tool; docs/sharing.md lists their columns.
-- Run it again after an upgrade: it replaces views that are there.
"""


@dataclass(frozen=True, slots=True)
class BiExport:
    """The files that were written, and whether the trove has the views now."""

    sql: Path
    bundle: Path
    installed: bool


def export_bi(
    store: str | None, directory: str, on_recovered: Callable[[Recovered], object], *, install: bool
) -> BiExport:
    """Write the views and the bundle to a directory; with ``install``, make the views, too.

    NoTrove if the trove does not exist. Without ``install`` nothing in it is changed.
    """
    from optrove.trove.reader import open_reader
    from optrove.trove.views import VIEWS, view_statements

    place = located(store)
    open_reader(place).close()
    if install:
        with writing(store, on_recovered, create=False) as trove:
            trove.make_views()
    dialect = "sqlite" if place.url is None else "postgresql"
    statements = "".join(f"{statement.strip()};\n" for statement in view_statements(dialect))
    files = {
        SQL: (_HEAD.format(dialect=dialect) + f"BEGIN;\n{statements}COMMIT;\n").encode(),
        BUNDLE: write_bundle(superset_uri(place), _name(place), VIEWS),
    }
    sql, bundle = _written(Path(directory), files)
    return BiExport(sql, bundle, installed=install)


def superset_uri(place: Place) -> str:
    """Return how Superset finds a trove, with the mask that it has for passwords."""
    if place.path is not None:
        return f"sqlite:///{quote(str(place.path.absolute()), safe=' +/')}"
    return str(place).replace(HIDDEN, "X" * 10)


def _name(place: Place) -> str:
    if place.path is not None:
        path = place.path.absolute()
        # The usual file name says nothing; the name of its directory does.
        return path.parent.parent.name if path.parent.name == ".optrove" else path.stem
    return str(place.url).partition("?")[0].rpartition("/")[2]


def _written(directory: Path, files: dict[str, bytes]) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_bytes(content)
    except OSError as error:
        raise UnusableResults(
            f"{directory} cannot be written: {error}; choose another directory"
        ) from error
    return [directory / name for name in files]
