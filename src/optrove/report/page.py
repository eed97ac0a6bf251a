"""The parts of the HTML report, and how they are drawn as one file.

All text is escaped by the templates. The page also forbids its reader to run any script but its
own, by the script's hash, and to load anything at all; so whatever a trove holds, it stays text.
"""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

from optrove.report.results import took
from optrove.report.tables import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import DeviceParameters, Environment, Measurement, Run
    from optrove.report.results import Result


GOOD: Final = "good"
BAD: Final = "bad"
ODD: Final = "odd"
IDLE: Final = "idle"
"""What kind of thing is counted: well, failed, worth a look, or not known; each has a colour."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that is shown large, with what it counts."""

    label: str
    value: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, for a bar of several; ``start`` and ``size`` are percent of it."""

    label: str
    count: int
    kind: str
    start: float = 0.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar chart: how many, and how many of these are bad."""

    label: str
    good: int
    bad: int = 0

    @property
    def count(self) -> int:
        """How many in all."""
        return self.good + self.bad


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart; ``most`` is what the longest bar counts."""

    title: str
    note: str
    bars: tuple[Bar, ...]

    @property
    def most(self) -> int:
        """What the longest bar counts."""
        return max((bar.count for bar in self.bars), default=1) or 1


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; ``key`` is what it is sorted by, ``shares`` are drawn as a bar."""

    text: str
    key: float | str | None = None
    code: bool = False
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that can be sorted, and searched if so wanted; ``right`` are columns of numbers."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()
    note: str = ""
    search: bool = False


def filled(grid: Grid) -> Grid:
    """Return a table without the columns in which nothing is shown."""
    kept = [
        place
        for place in range(len(grid.columns))
        if any(row[place].text or row[place].shares for row in grid.rows)
    ]
    return replace(
        grid,
        columns=tuple(grid.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in grid.rows),
        right=frozenset(new for new, place in enumerate(kept) if place in grid.right),
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """Cases that failed for one cause, with an example."""

    count: int
    verdict: str
    kind: str
    text: str
    ops: tuple[tuple[str, int], ...]
    calls: int
    example: str
    command: str
    words: str = ""
    backtrace: str = ""
    arguments: str = ""
    cases: tuple[str, ...] = ()
    more_cases: int = 0
    pictures: tuple[tuple[str, str], ...] = ()
    """Names of arguments, and how they lie on the cores, as SVG."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Cases that changed in the same way since the compared run."""

    kind: str
    title: str
    entries: tuple[tuple[int, str, str, tuple[str, ...]], ...]
    """How many cases, of which op, what has changed, and some of their ids."""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Since:
    """What has changed since the compared run."""

    before: str
    after: str
    tiles: tuple[Tile, ...]
    changes: tuple[Changes, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str
    heading: str
    subtitle: str
    tiles: tuple[Tile, ...]
    shares: tuple[Share, ...] = ()
    sums: tuple[str, ...] = ()
    since: Since | None = None
    failures: tuple[Failure, ...] = ()
    more_failures: int = 0
    charts: tuple[Chart, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[tuple[str, int], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    made: str = ""


def shares(parts: Sequence[tuple[str, int, str]]) -> tuple[Share, ...]:
    """Return parts as shares of their sum, one after the other; empty ones are left out."""
    whole = sum(count for _, count, _ in parts) or 1
    found: list[Share] = []
    start = 0.0
    for label, count, kind in parts:
        if count:
            size = 100 * count / whole
            found.append(Share(label, count, kind, start, size))
            start += size
    return tuple(found)


_EDGES: Final = (0.0, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.99999)
"""Where PCC is cut: what matters are its distance from 1 and the usual thresholds."""
_FASTEST: Final = 10_000


def pcc_chart(measurements: Iterable[Measurement]) -> Chart | None:
    """Return how PCC is spread; bad is what missed its threshold. None where none was measured."""
    found = [each for each in measurements if each.name == "pcc"]
    if not found:
        return None
    labels = ["not a number", "below 0", *map(_from_to, _EDGES, (*_EDGES[1:], None))]
    bars = {label: [0, 0] for label in labels}
    for each in found:
        bars[labels[_place(each.value)]][each.passed is False] += 1
    shown = _trimmed([Bar(label, *counts) for label, counts in bars.items()])
    missed = sum(bar.bad for bar in shown)
    note = f"{plural(len(found), 'result')} compared with golden functions"
    return Chart("PCC", f"{note}, {missed:,} below the threshold" if missed else note, shown)


def _place(value: float) -> int:
    if math.isnan(value):
        return 0
    return 1 + sum(value >= edge for edge in _EDGES)


def _from_to(low: float, high: float | None) -> str:
    return f"{low:g} to {'1' if high is None else f'{high:g}'}"


def time_chart(results: Iterable[Result]) -> Chart | None:
    """Return how long cases took; bad are those that did not pass. None where none is known."""
    found = [
        (ns, each.passed) for each in results if each.ran and (ns := took(each.attempt)) is not None
    ]
    if not found:
        return None
    edges = [_FASTEST]
    while edges[-1] <= max(ns for ns, _ in found):
        edges.append(edges[-1] * 10)
    bars = {edge: [0, 0] for edge in edges}
    for ns, passed in found:
        bars[next(edge for edge in edges if ns < edge)][not passed] += 1
    shown = _trimmed([Bar(f"under {duration(edge)}", *counts) for edge, counts in bars.items()])
    return Chart("Duration", f"{plural(len(found), 'case')}, each as long as its call took", shown)


def _trimmed(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """Return the bars from the first to the last that count something."""
    filled = [place for place, bar in enumerate(bars) if bar.count]
    return tuple(bars[filled[0] : filled[-1] + 1]) if filled else ()


def environment_rows(run: Run) -> tuple[tuple[str, str], ...]:
    """Return what is known, each with what it is; what is not known is left out."""
    environment = run.environment
    rows = {
        "run": run.id,
        "kind": run.kind.value,
        "model": run.model,
        "started": run.started_at,
        "finished": run.finished_at or "not finished",
        "exit code": None if run.exit_code is None else str(run.exit_code),
        "command": shlex.join(environment.command_line),
        "device": environment.device_kind.value,
        "board": environment.board,
        "architecture": environment.arch,
        "chips": None if environment.device_count is None else str(environment.device_count),
        "opened with": _device(environment.device),
        "ttnn": environment.ttnn_version,
        "torch": environment.torch_version,
        "optrove": environment.optrove_version,
        "Python": environment.python_version,
        "platform": environment.platform,
        "host": environment.host,
        "commit": _commit(environment),
    }
    return tuple((name, text) for name, text in rows.items() if text)


def _commit(environment: Environment) -> str | None:
    if environment.git_sha is None:
        return None
    return f"{environment.git_sha}{' with changes' if environment.git_dirty else ''}"


def _device(device: DeviceParameters | None) -> str | None:
    if device is None:
        return None
    mesh = None if device.mesh_shape is None else "x".join(map(str, device.mesh_shape))
    facts = {
        "mesh": mesh,
        "fabric": device.fabric_config,
        "dispatch axis": device.dispatch_axis,
        "l1_small_size": device.l1_small_size,
        "trace_region_size": device.trace_region_size,
        "worker_l1_size": device.worker_l1_size,
        "command queues": device.command_queues,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


TEMPLATES: Final = Path(__file__).parent / "templates"


_MARK: Final = b'<meta name="generator" content="optrove">'


def is_report(beginning: bytes) -> bool:
    """Tell by its first few hundred bytes whether a file is a report of ours."""
    return _MARK in beginning


def html(page: Page) -> str:
    """Return a report as the text of an HTML file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (TEMPLATES / "report.js").read_text()
    style = (TEMPLATES / "report.css").read_text()
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}"
    template = environment.get_template("report.html.jinja")
    return template.render(page=page, script=script, style=style, policy=policy)


def _digest(text: str) -> str:
    """Return how a content security policy names a text that is allowed."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"
