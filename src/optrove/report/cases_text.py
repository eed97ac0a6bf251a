"""Draw the configurations of an op, one readable block each, and as data for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.codec.text import read
from optrove.model.case import obstacles
from optrove.report.configurations import calls_of, model_label, ranked_models
from optrove.report.describe import drawn_arguments, folded
from optrove.report.runs_text import SHORT_ID, machine_data
from optrove.report.tables import plural

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow
    from optrove.report.configurations import Configuration

WIDTH: Final = 80
_INDENT: Final = "  "
_MOST_MODELS: Final = 6


def heading_lines(op: str, *, cases: int, every: int) -> list[str]:
    """Return the lines above the configurations of an op, ``cases`` out of ``every``."""
    of_all = "" if cases == every else f" of {every:,}"
    return [f"Operation: {op}", f"Configurations: {cases:,}{of_all}"]


def configuration_lines(configuration: Configuration) -> list[str]:
    """Return one configuration as a block of lines, after an empty one."""
    row = configuration.row
    case = case_of(row.content)
    name = f"Configuration {configuration.number:,}"
    return [
        "",
        f"{name}: case {row.case_id[:SHORT_ID]}, {plural(row.calls, 'call')}",
        *used_by_lines(ranked_models(calls_of(configuration.executions))),
        *(_INDENT + line for line in _missing_lines(case)),
        *(_INDENT + line for line in drawn_arguments(case, WIDTH - len(_INDENT))),
    ]


def _missing_lines(case: Case) -> list[str]:
    found = [
        f"not recorded completely: {each.type} at {each.path}, {each.reason}"
        for each in obstacles(case)
    ]
    return [*found, "a replay supplies such parts where it can, and notes it"] if found else []


def configuration_data(configuration: Configuration) -> Json:
    """Return one configuration for machines; see ``optrove.cli_query`` for the keys."""
    row = configuration.row
    return {
        "op": row.op,
        "number": configuration.number,
        "case_id": row.case_id,
        "semantic_id": row.semantic_id,
        "family_id": row.family_id,
        "replayable": row.replayable,
        "calls": row.calls,
        "models": sorted({model_label(each) for each in configuration.executions}),
        "arguments": read(row.content)["arguments"],
        "executions": [_execution_data(each) for each in configuration.executions],
    }


def used_by_lines(models: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    """Return who uses something, with boards; what is too much is counted."""
    if not models:
        return []
    shown = [f"{label} ({', '.join(boards)})" if boards else label for label, boards in models]
    rest = len(shown) - _MOST_MODELS
    more = [f"{rest:,} more (optrove who tells all)"] if rest > 0 else []
    return folded(f"{_INDENT}used by ", ", ".join([*shown[:_MOST_MODELS], *more]), WIDTH)


def _execution_data(execution: ExecutionRow) -> Json:
    phase, outputs = execution.phase, execution.outputs
    return {
        "run_id": execution.run_id,
        "source": execution.source,
        "model": execution.model,
        "board": execution.board,
        "machine_info": machine_data(execution.machine),
        "test": execution.test_id,
        "phase": None if phase is None else phase.value,
        "module": execution.module,
        "mode": execution.mode,
        "outermost": execution.outermost,
        "outcome": execution.outcome.value,
        "count": execution.count,
        "total_ns": execution.total_ns,
        "outputs": None if outputs is None else read(outputs),
        "error": execution.error,
    }
