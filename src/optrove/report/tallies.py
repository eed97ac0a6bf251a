"""Add up what came of attempts, one after another: by run, and by op and run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Attempts at one op in one run: how many, how long, and how exact their results were."""

    board: str | None = None
    tried: int = 0
    passed: int = 0
    timed: int = 0
    total_ns: int = 0
    outputs: int = 0
    total_pcc: float = 0.0
    least_pcc: float | None = None
    most_pcc: float | None = None

    @property
    def mean_ns(self) -> float | None:
        """How long one took."""
        return self.total_ns / self.timed if self.timed else None

    @property
    def mean_pcc(self) -> float | None:
        """How exact an output was."""
        return self.total_pcc / self.outputs if self.outputs else None

    def add(self, outcome: str, duration_ns: int | None, pcc: list[float]) -> None:
        """Take in an attempt, with the PCC of its outputs."""
        self.tried += 1
        self.passed += outcome == "passed"
        if duration_ns is not None:
            self.timed += 1
            self.total_ns += duration_ns
        for value in pcc:
            self.outputs += 1
            self.total_pcc += value
            self.least_pcc = value if self.least_pcc is None else min(self.least_pcc, value)
            self.most_pcc = value if self.most_pcc is None else max(self.most_pcc, value)


class Tallies:
    """All attempts that were seen, added up; runs are known by their keys."""

    def __init__(self) -> None:
        self._by_op: dict[str, dict[int, Tally]] = {}
        self._by_run: dict[int, Counter[str]] = {}

    def of(self, op: str, run_key: int, board: str | None) -> Tally:
        """Return what is known of an op in a run, to be added to; the first board is kept."""
        runs = self._by_op.setdefault(op, {})
        if run_key not in runs:
            runs[run_key] = Tally(board)
        return runs[run_key]

    def count(self, run_key: int, outcome: str, attempts: int = 1) -> None:
        """Count attempts of a run that ended so."""
        self._by_run.setdefault(run_key, Counter())[outcome] += attempts

    def of_op(self, op: str) -> dict[int, Tally]:
        """Return what came of an op, by run."""
        return dict(self._by_op.get(op, {}))

    def outcomes(self, run_key: int) -> dict[str, int]:
        """Return how many attempts of a run ended how."""
        return dict(self._by_run.get(run_key, {}))
