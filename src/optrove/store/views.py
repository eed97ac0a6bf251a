"""The views of a trove for BI tools: a promise that stays when tables change.

Columns are added, never removed or given another meaning. Flags are 0 or 1, durations are
milliseconds, moments without a zone are UTC. They are in a trove only where somebody has asked for
them, and cost nothing until they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect

from optrove.model.views import ColumnKind, View, ViewColumn
from optrove.store.view_texts import view_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

_TEXT, _NUMBER, _FLAG, _TIME = ColumnKind.TEXT, ColumnKind.NUMBER, ColumnKind.FLAG, ColumnKind.TIME

_RUN: Final = (
    ("run_id", _TEXT, "the run"),
    ("run_kind", _TEXT, "trace, replay, sweep or import"),
    ("model", _TEXT, "its model, or what was run where no model is known"),
    ("board", _TEXT, "its board"),
    ("ttnn_version", _TEXT, "version of ttnn"),
    ("run_started", _TIME, "when the run began"),
)
_CASE: Final = (
    ("case_id", _TEXT, "the case"),
    ("op", _TEXT, "its operation"),
)


def _view(name: str, row: str, *columns: tuple[str, ColumnKind, str]) -> View:
    return View(name, row, tuple(ViewColumn(*column) for column in columns))


VIEWS: Final = (
    _view(
        *("v_runs", "A run: something traced, replayed, swept or imported."),
        *_RUN,
        ("source", _TEXT, "what was run"),
        ("arch", _TEXT, "architecture of its chips"),
        ("device_kind", _TEXT, "hw, mock, shadow or host"),
        ("torch_version", _TEXT, "version of torch"),
        ("git_sha", _TEXT, "commit of what was run"),
        ("run_finished", _TIME, "when it ended; none: interrupted, or going on"),
        ("cases", _NUMBER, "different cases that it has called"),
        ("calls", _NUMBER, "its calls, those made by other ops included"),
        ("tests", _NUMBER, "its tests"),
        ("tests_passed", _NUMBER, "its tests that passed"),
        ("attempts", _NUMBER, "executions of cases by it"),
        ("attempts_passed", _NUMBER, "those that passed"),
    ),
    _view(
        *("v_ops", "An operation of which there are cases."),
        ("op", _TEXT, "its name"),
        ("cases", _NUMBER, "different cases"),
        ("replayable_cases", _NUMBER, "those whose recording holds all that a replay needs"),
        ("calls", _NUMBER, "calls, those made by other ops included"),
        ("outermost_calls", _NUMBER, "calls that no other op made"),
        ("runs", _NUMBER, "runs that called it"),
        ("models", _NUMBER, "models that called it"),
        ("attempts", _NUMBER, "executions of its cases by replays and sweeps"),
        ("attempts_passed", _NUMBER, "those that passed"),
    ),
    _view(
        *("v_cases", "A case: an operation with its arguments."),
        *_CASE,
        ("semantic_id", _TEXT, "equal for cases that compute the same, wherever"),
        ("family_id", _TEXT, "equal for cases that differ in scalar arguments only"),
        ("replayable", _FLAG, "whether the recording holds all that a replay needs"),
        ("calls", _NUMBER, "calls, those made by other ops included"),
        ("outermost_calls", _NUMBER, "calls that no other op made"),
        ("runs", _NUMBER, "runs that called it"),
        ("attempts", _NUMBER, "executions by replays and sweeps"),
        ("attempts_passed", _NUMBER, "those that passed"),
    ),
    _view(
        *("v_tensors", "A tensor among the arguments of a case."),
        *_CASE,
        ("place", _NUMBER, "number among the tensors of the case, from 0"),
        ("argument", _TEXT, "name of the parameter that holds it"),
        ("shape", _TEXT, "1x1x32x64"),
        ("dtype", _TEXT, "bfloat16, bfloat8_b, float32, ..."),
        ("layout", _TEXT, "TILE, ROW_MAJOR, strided, ..."),
        ("memory", _TEXT, "DRAM_INTERLEAVED, L1_WIDTH_SHARDED, HOST, ..."),
        ("mesh", _TEXT, "shape of the mesh that it is spread over, such as 2x4"),
        ("calls", _NUMBER, "calls of the case"),
    ),
    _view(
        *("v_executions", "Calls of a case in a run that agree in all but their time."),
        *_RUN,
        *_CASE,
        ("process", _NUMBER, "number of the process within the run"),
        ("test_id", _TEXT, "pytest's node id"),
        ("phase", _TEXT, "setup, call or teardown"),
        ("module", _TEXT, "path of the module of the model"),
        ("mode", _TEXT, "prefill or decode"),
        ("outcome", _TEXT, "returned, raised or unfinished"),
        ("outermost", _FLAG, "whether no other op made them"),
        ("calls", _NUMBER, "how many they are"),
        ("total_ms", _NUMBER, "how long they took together; none: not known"),
        ("shortest_ms", _NUMBER, "how long the shortest took"),
        ("longest_ms", _NUMBER, "how long the longest took"),
    ),
    _view(
        *("v_tests", "A test of a run."),
        *_RUN,
        ("test_id", _TEXT, "pytest's node id"),
        ("outcome", _TEXT, "passed, failed, skipped, xfailed, xpassed, error or unfinished"),
        ("passed", _FLAG, "whether it passed"),
        ("duration_ms", _NUMBER, "how long its function took"),
        ("error", _TEXT, "first line of what went wrong"),
    ),
    _view(
        *("v_attempts", "An execution of a case by a replay or a sweep."),
        ("attempt_id", _TEXT, "the execution"),
        *_RUN,
        *_CASE,
        ("outcome", _TEXT, "passed, numerics, wrong_spec, rejected, ..., not_run"),
        ("passed", _FLAG, "whether it passed"),
        ("device_kind", _TEXT, "hw, mock, shadow or host"),
        ("seed", _TEXT, "seed of the inputs"),
        ("started", _TIME, "when it began"),
        ("duration_ms", _NUMBER, "how long it took"),
        ("pcc", _NUMBER, "the lowest PCC of its outputs; none: not measured, or no number"),
        ("true_replay", _FLAG, "whether the call was traced as the recorded case"),
        ("detail", _TEXT, "the operation's or the machine's own words"),
        ("notes", _TEXT, "what the replay itself has to say"),
    ),
    _view(
        *("v_failures", "An execution of a case that the operation did not pass."),
        ("attempt_id", _TEXT, "the execution"),
        *_RUN,
        *_CASE,
        ("outcome", _TEXT, "numerics, wrong_spec, rejected, out_of_memory, raised, hung, crashed"),
        ("device_kind", _TEXT, "hw, mock or shadow"),
        ("started", _TIME, "when it began"),
        ("cause", _TEXT, "first line of the operation's or the machine's own words"),
        ("detail", _TEXT, "all of them"),
    ),
    _view(
        *("v_pcc", "A PCC that was measured."),
        ("attempt_id", _TEXT, "the execution"),
        *_RUN,
        *_CASE,
        ("device_kind", _TEXT, "hw, shadow or host"),
        ("started", _TIME, "when it began"),
        ("output", _NUMBER, "index of the result"),
        ("pcc", _NUMBER, "the number; none where it is not a number"),
        ("threshold", _NUMBER, "the bound that it was held against"),
        ("passed", _FLAG, "whether it kept the bound"),
    ),
)
"""In the order in which they can be made."""


def view_statements(dialect: str) -> tuple[str, ...]:
    """Return the SQL that makes the views, or makes them anew: ``sqlite`` or ``postgresql``."""
    made = (f"CREATE VIEW {each.name} AS{view_text(each.name, dialect)}" for each in VIEWS)
    return (*_drops(), *made)


def drop_views(connection: Connection) -> bool:
    """Remove the views, within the transaction of the caller; tell whether there were any."""
    if not {each.name for each in VIEWS} & set(inspect(connection).get_view_names()):
        return False
    for statement in _drops():
        connection.exec_driver_sql(statement)
    return True


def make_views(connection: Connection) -> None:
    """Make the views, or make them anew, within the transaction of the caller."""
    for statement in view_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def _drops() -> tuple[str, ...]:
    return tuple(f"DROP VIEW IF EXISTS {each.name}" for each in reversed(VIEWS))
