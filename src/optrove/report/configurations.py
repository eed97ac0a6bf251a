"""A case of a list with the executions that the list counts, and who they are by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.report.runs_text import board_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.trove import CaseRow, ExecutionRow


@dataclass(frozen=True, slots=True)
class Configuration:
    """One Case of a list: its place in the list, and the executions that the list counts."""

    number: int
    row: CaseRow
    executions: tuple[ExecutionRow, ...]


def model_label(execution: ExecutionRow) -> str:
    """Return the model, or the source where no model is known."""
    return execution.model or execution.source


def calls_of(executions: Iterable[ExecutionRow]) -> Counter[tuple[str, str]]:
    """Return how many calls each model made on each board."""
    calls: Counter[tuple[str, str]] = Counter()
    for each in executions:
        calls[model_label(each), board_text(each.board, each.machine)] += each.count
    return calls


def ranked_models(calls: Counter[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the models, most calls first, each with its boards."""
    totals: Counter[str] = Counter()
    for (label, _), count in calls.items():
        totals[label] += count
    order = sorted(totals, key=lambda label: (-totals[label], label))
    return tuple(
        (label, tuple(sorted(board for name, board in calls if name == label and board)))
        for label in order
    )
