"""Draw the runs and the models of a trove as tables, and as data for machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.model.ops import LeftOut
from optrove.model.records import RunKind
from optrove.model.trove import board_text
from optrove.report.ops import left_out_calls_lines, left_out_data
from optrove.report.tables import Column, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.records import Counts
    from optrove.model.trove import Machine, ModelRow, RunRow
    from optrove.serializer.text import Json

SHORT_ID: Final = 12
"""How many digits of an id are shown; commands take any beginning that is unique."""

_RUNS: Final = (
    Column("run"),
    Column("started (UTC)"),
    Column("board"),
    Column("calls", right=True),
    Column("cases", right=True),
    Column("passed", right=True),
    Column("state"),
    Column("model or source", flexible=True, whole=True),
)
_MODELS: Final = (
    Column("model", flexible=True),
    Column("runs", right=True),
    Column("ops", right=True),
    Column("cases", right=True),
    Column("calls", right=True),
    Column("last run"),
    Column("boards", flexible=True),
)
_MODEL_IN_SOURCE: Final = re.compile(r" \[HF_MODEL:(.+)\]\Z")
_SOME_FAILED: Final = 1
_DAY: Final = len("2026-01-02")
_MINUTE: Final = len("2026-01-02T03:04")


def runs_lines(rows: Sequence[RunRow], width: int | None = None) -> list[str]:
    """Return a table of the runs, as they come, their number, and what calls are left out."""
    cells = [
        (
            row.run.id[:SHORT_ID],
            moment(row.run.started_at),
            board_text(row.run.environment.board, row.machine),
            "" if _is_tried(row) else f"{row.calls:,}",
            f"{_cases(row):,}",
            _passed(row.attempts if _is_tried(row) else row.tests),
            _state(row),
            row.run.model or row.run.source,
        )
        for row in rows
    ]
    table = table_lines(*_told(_RUNS, cells), width)
    return [*table, "", plural(len(rows), "run"), *_left_out(rows)]


def models_lines(rows: Sequence[ModelRow], width: int | None = None) -> list[str]:
    """Return a table of the models, as they come, their number, and what calls are left out."""
    cells = [
        (
            row.model,
            f"{row.runs:,}",
            f"{row.ops:,}",
            f"{row.cases:,}",
            f"{row.calls:,}",
            "" if row.last_run_at is None else row.last_run_at[:_DAY],
            " ".join(row.boards),
        )
        for row in rows
    ]
    return [*table_lines(_MODELS, cells, width), "", plural(len(rows), "model"), *_left_out(rows)]


def runs_data(rows: Sequence[RunRow]) -> list[Json]:
    """Return the runs for machines; see ``optrove.cli.ask`` for the keys."""
    return [_run_data(row) for row in rows]


def models_data(rows: Sequence[ModelRow]) -> list[Json]:
    """Return the models for machines; see ``optrove.cli.ask`` for the keys."""
    return [
        {
            "model": row.model,
            "runs": row.runs,
            "ops": row.ops,
            "cases": row.cases,
            "calls": row.calls,
            "left_out": left_out_data(row.left),
            "boards": list(row.boards),
            "last_run_at": row.last_run_at,
        }
        for row in rows
    ]


def machine_data(machine: Machine) -> Json:
    """Return a machine for machines, in the words of tt-metal's master files."""
    mesh, ids = machine.mesh_device_shape, machine.device_ids
    return {
        "board_type": machine.board_type,
        "device_series": machine.device_series,
        "card_count": machine.card_count,
        "device_count": machine.device_count,
        "mesh_device_shape": None if mesh is None else list(mesh),
        "device_ids": None if ids is None else list(ids),
    }


def source_text(source: str) -> str:
    """Return what was run as people read it: ``path, model NAME`` for ``path [HF_MODEL:NAME]``."""
    return _MODEL_IN_SOURCE.sub(r", model \1", source)


def moment(text: str) -> str:
    """Return a moment of a record to the minute."""
    return text[:_MINUTE].replace("T", " ")


def _told(
    columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[list[Column], list[list[str]]]:
    """Return a table without its empty columns; the first and the last one always stay."""
    last = len(columns) - 1
    shown = [place for place in range(last) if not place or any(row[place] for row in rows)]
    shown.append(last)
    return [columns[place] for place in shown], [[row[place] for place in shown] for row in rows]


def _left_out(rows: Sequence[RunRow] | Sequence[ModelRow]) -> list[str]:
    return left_out_calls_lines(sum((row.left for row in rows), start=LeftOut()))


def _is_tried(row: RunRow) -> bool:
    """Tell whether a run has executed recorded cases, rather than called or imported some."""
    return row.run.kind in (RunKind.REPLAY, RunKind.SWEEP)


def _cases(row: RunRow) -> int:
    if not _is_tried(row):
        return row.cases
    return sum(count for _, count in row.attempts) if row.planned is None else row.planned


def _passed(counts: Counts) -> str:
    passed = sum(count for outcome, count in counts if outcome == "passed")
    return f"{passed:,}/{sum(count for _, count in counts):,}" if counts else ""


def _state(row: RunRow) -> str:
    if not row.complete:
        return "incomplete"
    # That some cases did not pass is in a column of its own.
    usual = (None, 0, _SOME_FAILED) if _is_tried(row) else (None, 0)
    return "" if row.run.exit_code in usual else f"exit {row.run.exit_code}"


def _run_data(row: RunRow) -> Json:
    run, environment = row.run, row.run.environment
    return {
        "run_id": run.id,
        "kind": run.kind.value,
        "source": run.source,
        "model": run.model,
        "board": environment.board,
        "device": environment.device_kind.value,
        "machine": machine_data(row.machine),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "exit_code": run.exit_code,
        "complete": row.complete,
        "calls": row.calls,
        "cases": row.cases,
        "left_out": left_out_data(row.left),
        "tests": dict(row.tests),
        "attempts": dict(row.attempts),
        "planned": row.planned,
        "host": environment.host,
        "command_line": list(environment.command_line),
        "git_sha": environment.git_sha,
        "git_dirty": environment.git_dirty,
        "optrove_version": environment.optrove_version,
        "python_version": environment.python_version,
        "ttnn_version": environment.ttnn_version,
        "torch_version": environment.torch_version,
    }
