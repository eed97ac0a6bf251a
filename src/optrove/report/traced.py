"""What was called in a traced or imported run, and what its tests said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optrove.model.records import TestResult
    from optrove.model.trove import OpRow, RunRow


@dataclass(frozen=True, slots=True)
class Traced:
    """A run in which models called ops: its totals, its ops with most calls first, its tests."""

    row: RunRow
    ops: tuple[OpRow, ...]
    tests: tuple[TestResult, ...] = ()
