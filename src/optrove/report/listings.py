"""The ops, runs and models of a trove, as documents and as data."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from optrove.model.ops import Amount, LeftOut, is_listed
from optrove.model.records import DeviceKind, Outcome, RunKind
from optrove.model.trove import board_text
from optrove.report.document import Column, Paragraph, paragraphs, table
from optrove.report.wording import SHORT_ID, moment, percent, place_text, plural, progress_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.pass_rates import PassRate
    from optrove.model.trove import Machine, ModelRow, OpRow, RunRow
    from optrove.report.document import Node
    from optrove.serializer.text import Json

_OPS: Final = (
    Column("op", flexible=True),
    Column("cases", right=True),
    Column("calls", right=True),
    Column("complete", right=True),
    Column("models", flexible=True),
)
_RUNS: Final = (
    Column("run"),
    Column("started (UTC)", optional=True),
    Column("board", optional=True),
    Column("calls", right=True, optional=True),
    Column("cases", right=True, optional=True),
    Column("passed", right=True, optional=True),
    Column("state", optional=True),
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


def left_out_texts(left: LeftOut, *, options: bool = True) -> list[str]:
    """Return a sentence for each kind of call that is left out.

    ``options`` names the options that count them, where the command has these.
    """
    texts = []
    if left.moving.calls:
        ops = f"{left.moving.ops:,} ops" if left.moving.ops else "ops"
        ops = "1 op that only moves data" if left.moving.ops == 1 else f"{ops} that only move data"
        hint = " (--all-ops counts them)" if options else ""
        texts.append(f"left out: {_amount(left.moving)} of {ops}{hint}")
    if left.nested.calls:
        # Where ops that only move data are left out, calls of them may be among the nested ones.
        names = "--all-ops --nested" if left.moving.calls else "--nested"
        hint = f" ({names} counts them)" if options else ""
        texts.append(f"left out: {_amount(left.nested)} made by other ops{hint}")
    return texts


def left_out_data(left: LeftOut) -> dict[str, Json]:
    """Return the counts of calls that are left out."""
    return {
        name: {"ops": amount.ops, "cases": amount.cases, "calls": amount.calls}
        for name, amount in (("data_movement", left.moving), ("nested", left.nested))
    }


def _amount(amount: Amount) -> str:
    cases = f", {plural(amount.cases, 'case')}" if amount.cases else ""
    return f"{plural(amount.calls, 'call')}{cases}"


def _left_out_of(rows: Sequence[RunRow] | Sequence[ModelRow]) -> list[str]:
    """Return the calls that are left out; runs and models may share cases and ops."""
    moving = sum(row.left.moving.calls for row in rows)
    nested = sum(row.left.nested.calls for row in rows)
    return left_out_texts(LeftOut(Amount(0, 0, moving), Amount(0, 0, nested)))


def ops_document(rows: Sequence[OpRow], left: LeftOut, *, all_ops: bool) -> Iterator[Node]:
    """Yield a table of the ops, their totals, and the calls that are left out."""
    shown = [row for row in rows if all_ops or is_listed(row.op)]
    if shown:
        yield table(
            _OPS,
            [
                (row.op, row.cases, row.calls, percent(row.replayable, 0), _models(row.models))
                for row in shown
            ],
        )
    cases, calls = sum(row.cases for row in shown), sum(row.calls for row in shown)
    models = {model for row in shown for model in row.models}
    counts = (plural(len(shown), "op"), plural(cases, "case"), plural(calls, "call"))
    yield Paragraph(f"{', '.join(counts)} from {plural(len(models), 'model')}")
    yield from paragraphs(left_out_texts(left))


def _models(models: tuple[str, ...]) -> str:
    return models[0] if len(models) == 1 else plural(len(models), "model")


def ops_data(rows: Sequence[OpRow], *, all_ops: bool) -> list[Json]:
    """Return the ops; ``models`` are names, ``replayable`` is a share from 0 to 1."""
    return [
        {
            "op": row.op,
            "cases": row.cases,
            "calls": row.calls,
            "models": list(row.models),
            "replayable": row.replayable,
        }
        for row in rows
        if all_ops or is_listed(row.op)
    ]


def _board(row: RunRow) -> str:
    """Return the board of a run; for torch where its cases ran, if that was named."""
    environment = row.run.environment
    if environment.device_kind is DeviceKind.HOST and environment.board is not None:
        return place_text(environment.device_kind.value, environment.board)
    return board_text(environment.board, row.machine)


def runs_document(rows: Sequence[RunRow]) -> Iterator[Node]:
    """Yield a table of the runs, their number, and the calls that are left out."""
    yield table(
        _RUNS,
        [
            (
                row.run.id[:SHORT_ID],
                moment(row.run.started_at),
                _board(row),
                "" if _executed(row) else row.calls,
                _cases(row),
                _passed(row.pass_rate),
                _state(row),
                row.run.model or row.run.source,
            )
            for row in rows
        ],
    )
    yield from paragraphs((plural(len(rows), "run"), *_left_out_of(rows)))


def models_document(rows: Sequence[ModelRow]) -> Iterator[Node]:
    """Yield a table of the models, their number, and the calls that are left out."""
    yield table(
        _MODELS,
        [
            (
                row.model,
                row.runs,
                row.ops,
                row.cases,
                row.calls,
                "" if row.last_run_at is None else row.last_run_at[:_DAY],
                " ".join(row.boards),
            )
            for row in rows
        ],
    )
    yield from paragraphs((plural(len(rows), "model"), *_left_out_of(rows)))


def runs_data(rows: Sequence[RunRow]) -> list[Json]:
    """Return the runs; ``docs/command-line.md`` describes the keys."""
    return [_run_data(row) for row in rows]


def models_data(rows: Sequence[ModelRow]) -> list[Json]:
    """Return the models; ``docs/command-line.md`` describes the keys."""
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
    """Return a machine with the keys of tt-metal's master files."""
    names = ("board_type", "device_series", "card_count", "device_count")
    return dict.fromkeys((*names, "mesh_device_shape", "device_ids")) | machine.data()


def source_text(source: str) -> str:
    """Return a source in words: ``path, model NAME`` for ``path [HF_MODEL:NAME]``."""
    return _MODEL_IN_SOURCE.sub(r", model \1", source)


def _executed(row: RunRow) -> bool:
    """Return whether a run executed recorded cases, rather than recorded or imported some."""
    return row.run.kind in (RunKind.REPLAY, RunKind.SWEEP)


def _cases(row: RunRow) -> int:
    if not _executed(row):
        return row.cases
    return sum(count for _, count in row.attempts) if row.planned is None else row.planned


def _passed(rate: PassRate) -> str:
    """Return the pass rate of a run as a fraction."""
    return f"{rate.passed:,}/{rate.ran:,}" if rate.ran else ""


def _state(row: RunRow) -> str:
    if not row.complete:
        return progress_text(row.progress)
    idle = dict(row.attempts).get(Outcome.NOT_RUN.value, 0)
    if idle:
        return f"{idle:,} not run"
    # The column of passed cases shows failures.
    usual = (None, 0, _SOME_FAILED) if _executed(row) else (None, 0)
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
        "state": row.progress.state.value,
        "alive_at": row.progress.alive_at,
        "calls": row.calls,
        "cases": row.cases,
        "left_out": left_out_data(row.left),
        "tests": dict(row.tests),
        "attempts": dict(row.attempts),
        "good": row.pass_rate.passed,
        "ran": row.pass_rate.ran,
        "pass_share": row.pass_rate.share,
        "planned": row.planned,
        "host": environment.host,
        "command_line": list(environment.command_line),
        "provenance": {name: json.loads(text) for name, text in run.provenance},
        "git_sha": environment.git_sha,
        "git_dirty": environment.git_dirty,
        "optrove_version": environment.optrove_version,
        "python_version": environment.python_version,
        "ttnn_version": environment.ttnn_version,
        "torch_version": environment.torch_version,
    }
