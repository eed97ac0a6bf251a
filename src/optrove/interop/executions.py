"""Executions as files have them: summed up by source, model and machine, in one order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from optrove.codec.text import write
from optrove.interop.machines import machine_data
from optrove.interop.runs import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.trove import ExecutionRow


def summed(rows: Iterable[ExecutionRow]) -> list[tuple[Source, int]]:
    """Return how often each source executed something, sorted by what the source says."""
    counts: Counter[Source] = Counter()
    for row in rows:
        counts[Source(row.source, row.model, row.machine)] += row.count
    return sorted(counts.items(), key=lambda item: _order(item[0]))


def _order(source: Source) -> tuple[str, str, str]:
    return source.name, source.model or "", write(machine_data(source.machine))
