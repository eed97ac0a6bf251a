"""Compare what came of cases in two runs, and remember it: runs that ended do not change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.report.judged_runs import JudgedRun, compared_runs
from optrove.report.results import TIME
from optrove.store import browsing_runs

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

    from optrove.store.source import Source

Kinds: TypeAlias = "Mapping[str, array[int]]"
"""The keys of cases by how they have changed, the least first."""

_MOST_ROWS: Final = 2_000_000
_MOST_KEPT: Final = 1_000_000
"""How many attempts are remembered, of all runs together; a million take some 60 megabytes."""
_MOST_PAIRS: Final = 16
_MOST_COUNTS: Final = 10_000


class Comparisons:
    """Runs that were compared; safe to be used by several threads.

    Whoever asks says how many attempts a run has: if these are others than before, it is read anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, tuple[int, JudgedRun]] = OrderedDict()
        self._calls: dict[tuple[int, int], Mapping[str, int]] = {}
        self._pairs: OrderedDict[tuple[object, ...], Kinds] = OrderedDict()

    def read(self, source: Source, run: tuple[int, int]) -> None:
        """Read a run, given by key and number of attempts, so that it need not be read later."""
        with self._lock:
            self._run(source, *run)

    def compared(
        self, source: Source, a: tuple[int, int], b: tuple[int, int], *, timed: bool
    ) -> Kinds:
        """Return what has changed between two runs, given by key and number of attempts.

        ``timed`` is whether it matters how long cases took.
        """
        with self._lock:
            key = (a, b, timed)
            found = self._pairs.pop(key, None)
            if found is None:
                found = compared_runs(self._run(source, *a), self._run(source, *b), timed=timed)
            self._pairs[key] = found
            while len(self._pairs) > _MOST_PAIRS:
                self._pairs.popitem(last=False)
            return found

    def counted(self, source: Source, a: int, b: int) -> Mapping[str, int]:
        """Return how many cases two runs call alike, more or less often, or only one of them."""
        found = self._calls.get((a, b))
        if found is None:
            found = browsing_runs.call_counts(source, a, b)
            if len(self._calls) < _MOST_COUNTS:
                self._calls[a, b] = found
        return found

    def _run(self, source: Source, run_key: int, attempts: int) -> JudgedRun:
        known, run = self._runs.pop(run_key, (-1, None))
        if run is None or known != attempts:
            rows = browsing_runs.judged(source, run_key, TIME, _MOST_ROWS)
            run = JudgedRun(rows)
        self._runs[run_key] = attempts, run
        while (
            len(self._runs) > 1 and sum(len(each) for _, each in self._runs.values()) > _MOST_KEPT
        ):
            self._runs.popitem(last=False)
        return run
