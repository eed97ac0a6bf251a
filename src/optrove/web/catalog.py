"""An in-memory index of all cases, with cached comparisons of runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.model.ops import is_hidden
from optrove.report.facets import NONE, Cases, FamilyOrder, LastTried, Origin, Tallies, Tensor
from optrove.report.releases import JudgedRun, compared_runs
from optrove.report.results import TIME
from optrove.trove import browsing, browsing_runs

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping

    from optrove.report.facets import Ground
    from optrove.trove.browsing import RunFact
    from optrove.trove.database import Connection


Kinds: TypeAlias = "Mapping[str, array[int]]"
"""The keys of cases by how they have changed, the least first."""

_MOST_ROWS: Final = 2_000_000
_MOST_KEPT: Final = 1_000_000
"""How many attempts are remembered, of all runs together; a million take some 60 megabytes."""
_MOST_PAIRS: Final = 16
_MOST_COUNTS: Final = 10_000


class Comparisons:
    """A cache of compared runs; thread-safe.

    The caller passes the number of attempts of a run; if it has changed, the run is read again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, tuple[int, JudgedRun]] = OrderedDict()
        self._calls: dict[tuple[int, int], Mapping[str, int]] = {}
        self._pairs: OrderedDict[tuple[object, ...], Kinds] = OrderedDict()

    def read(self, source: Connection, run: tuple[int, int]) -> None:
        """Read a run, given by key and number of attempts, so that it need not be read later."""
        with self._lock:
            self._run(source, *run)

    def compared(
        self, source: Connection, a: tuple[int, int], b: tuple[int, int], *, timed: bool
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

    def counted(self, source: Connection, a: int, b: int) -> Mapping[str, int]:
        """Return how many cases two runs call alike, more or less often, or only one of them."""
        found = self._calls.get((a, b))
        if found is None:
            found = browsing_runs.call_counts(source, a, b)
            if len(self._calls) < _MOST_COUNTS:
                self._calls[a, b] = found
        return found

    def _run(self, source: Connection, run_key: int, attempts: int) -> JudgedRun:
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


VECTORS: Final = "sweep."
"""How the ops begin that stand for the vectors of sweep modules."""
_NO_ATTEMPT: Final = 2**63
"""Greater than the key of any attempt."""


def is_left_out(op: str) -> bool:
    """Tell whether lists leave an op out unless asked for."""
    return is_hidden(op) or op.startswith(VECTORS)


@dataclass(slots=True)
class Op:
    """One op: its cases and their last outcomes."""

    name: str
    cases: Cases
    last: LastTried
    families: FamilyOrder
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Calls, and how long they took in all, by the keys of runs."""

    @property
    def hidden(self) -> bool:
        """Whether lists leave it out unless asked for."""
        return is_left_out(self.name)


@dataclass(slots=True)
class Index:
    """All ops of a trove, and where each case is among those of its op."""

    harvest: tuple[int, ...]
    ops: dict[str, Op]
    numbers: dict[int, int]
    op_of: dict[int, Op]
    seen: int = 0
    attempts: int = 0
    version: int = 0
    grounds: set[Ground] = field(default_factory=set)
    runs: dict[int, RunFact] = field(default_factory=dict)
    plans: tuple[int, ...] = ()
    tallies: Tallies = field(default_factory=Tallies)
    comparisons: Comparisons = field(default_factory=Comparisons)
    totals: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What was called, planned and tested in runs, of those that were asked for."""
    whole: bool = True
    """Whether cases and ops are in it; what runs have tried is, always."""

    def shown(self, *, all_ops: bool) -> Iterator[Op]:
        """Yield the ops that lists show."""
        return (op for op in self.ops.values() if all_ops or not op.hidden)


class Catalog:
    """The index of a trove that may change; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: Index | None = None
        self._state: str | None = None

    @property
    def made(self) -> bool:
        """Whether there is an index, be it of now or of before."""
        return self._index is not None

    def is_current(self, state: str) -> bool:
        """Tell whether the index is that of a state of the trove."""
        return state == self._state

    def current(self, source: Connection, state: str) -> Index:
        """Return the index as of now; one that is just being renewed by another thread as it was.

        ``state`` is what the source has called its state: an equal one needs no work.
        """
        index = self._index
        if index is not None and state == self._state:
            return index
        if not self._lock.acquire(blocking=index is None):
            return self._index or self.current(source, state)
        try:
            self._index = _renewed(source, self._index)
            self._state = state
            return self._index
        finally:
            self._lock.release()


def early_index(source: Connection) -> Index:
    """Return what is known at once: runs, and the outcomes of their attempts."""
    index = Index((), {}, {}, {}, whole=False)
    for run_key, outcome, attempts in browsing.outcome_counts(source):
        index.tallies.count(run_key, outcome, attempts)
        index.attempts += attempts
    index.runs = browsing.run_facts(source)
    return index


def _renewed(source: Connection, index: Index | None) -> Index:
    harvest = browsing.harvest(source)
    last, count = browsing.last_tried(source)
    if index is None or harvest != index.harvest or last < index.seen:
        index = _built(source, harvest, 0 if index is None else index.version)
    _try_on(source, index)
    if index.attempts != count:
        # Some were removed in between.
        index = _built(source, harvest, index.version)
        _try_on(source, index)
    index.version += 1
    index.runs = browsing.run_facts(source)
    plans = browsing.plans(source)
    if plans != index.plans:
        index.plans, index.totals = plans, {}
    return index


def _built(source: Connection, harvest: tuple[int, ...], version: int) -> Index:
    index = Index(harvest, {}, {}, {}, version=version)
    _read_cases(source, index)
    tensors = _tensors(source, index)
    calls = _calls(source, index)
    for name, op in index.ops.items():
        op.cases.fill(tensors.get(name, {}), calls.get(name, {}))
        op.families = FamilyOrder(op.cases.families, op.cases.calls)
    for name, run_key, count, total_ns in browsing.op_times(source):
        if name in index.ops:
            index.ops[name].times[run_key] = (count, total_ns)
    return index


def _read_cases(source: Connection, index: Index) -> None:
    op: Op | None = None
    families: dict[str, int] = {}
    outermost: list[int] = []
    replayable: list[int] = []
    for fact in browsing.case_facts(source):
        if op is None or op.name != fact.op:
            _finish(op, outermost, replayable)
            op = index.ops[fact.op] = Op(fact.op, Cases(), LastTried(0), FamilyOrder((), ()))
            families, outermost, replayable = {}, [], []
        cases = op.cases
        number = len(cases.keys)
        index.numbers[fact.key] = number
        index.op_of[fact.key] = op
        cases.keys.append(fact.key)
        cases.calls.append(fact.calls)
        cases.families.append(families.setdefault(fact.family_id, len(families)))
        if fact.calls or fact.op.startswith(VECTORS):
            outermost.append(number)
        if fact.replayable:
            replayable.append(number)
    _finish(op, outermost, replayable)


def _finish(op: Op | None, outermost: list[int], replayable: list[int]) -> None:
    if op is None:
        return
    size = len(op.cases)
    op.last = LastTried(size)
    op.cases.outermost = _set(outermost, size)
    op.cases.replayable = _set(replayable, size)


def _set(numbers: list[int], size: int) -> int:
    bits = bytearray(size // 8 + 1)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def _tensors(source: Connection, index: Index) -> dict[str, dict[Tensor, bytearray]]:
    found: dict[str, dict[Tensor, bytearray]] = {}
    op_of, numbers = index.op_of, index.numbers
    for key, dtype, layout, memory, mesh in browsing.tensor_facts(source):
        op = op_of.get(key)
        if op is None:
            continue
        own = found.setdefault(op.name, {})
        kind = (dtype, layout, memory, mesh or NONE)
        bits = own.get(kind)
        if bits is None:
            bits = own[kind] = bytearray(len(op.cases) // 8 + 1)
        number = numbers[key]
        bits[number >> 3] |= 1 << (number & 7)
    return found


def _calls(source: Connection, index: Index) -> dict[str, dict[Origin, dict[int, int]]]:
    found: dict[str, dict[Origin, dict[int, int]]] = {}
    named = browsing.origins(source)
    labels = {key: (model, board or NONE) for key, (model, board) in named.items()}
    op_of, numbers = index.op_of, index.numbers
    for run_key, case_key, calls in browsing.uses(source):
        op, origin = op_of.get(case_key), labels.get(run_key)
        if op is None or origin is None:
            continue
        own = found.setdefault(op.name, {}).setdefault(origin, {})
        number = numbers[case_key]
        own[number] = own.get(number, 0) + calls
    return found


def _try_on(source: Connection, index: Index) -> None:
    """Take in the attempts that are new."""
    changed: dict[str, Op] = {}
    measured = chain(browsing.pcc_since(source, index.seen), ((_NO_ATTEMPT, 0.0),))
    following, value = next(measured)
    for tried in browsing.tried_since(source, index.seen):
        pcc = []
        while following <= tried.key:
            pcc.append(value)
            following, value = next(measured)
        op = index.op_of.get(tried.case_key)
        index.seen, index.attempts = tried.key, index.attempts + 1
        index.tallies.count(tried.run_key, tried.outcome)
        if op is not None:
            ground = tried.board or NONE, tried.device
            index.grounds.add(ground)
            op.last.add(index.numbers[tried.case_key], ground, tried.outcome, tried.key)
            tally = index.tallies.of(op.name, tried.run_key, tried.board)
            tally.add(tried.outcome, tried.duration_ns, pcc)
            changed[op.name] = op
    for op in changed.values():
        op.cases.outcomes = op.last.outcomes()
