"""Plan a sweep: which cases and vectors run, in which order, on what.

The rule is that of lists: ``*``, which is also meant where nothing is named, stands for the ops
that compute and for the cases that models have called themselves. Whatever else there is, is left
out unless it is asked for. Vectors that modules have left in a trove are not recorded cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, NotFound
from optrove.model.ops import ANY, VECTORS
from optrove.model.records import DeviceKind, Sweep, SweepModule
from optrove.model.trove import PlannedCase
from optrove.replay.device_choice import Choice, Where, grouped, settled
from optrove.replay.planning import How, Planned, planned_cases, timeout_ns
from optrove.replay.sweep_module import module_name
from optrove.sweep.grouping import most_called_first, shuffled
from optrove.sweep.vector_files import EXPORT, FileRequest, vectors_from_file
from optrove.sweep.vectors import ModuleRequest, module_file, place_for_module, vectors_of
from optrove.trove.query import Asked, query_of, select_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from optrove.model.records import Counts, Query
    from optrove.sweep.vectors import VectorSet
    from optrove.trove.reader import TroveReader


MOVING: Final = "of data-movement ops (--all-ops adds them)"
NESTED: Final = "called by other ops only (--nested adds them)"
MOVING_AND_NESTED: Final = "of data-movement ops (--all-ops --nested adds them)"
"""The reason in place of MOVING where some of these are called by other ops only."""


@dataclass(frozen=True, slots=True)
class RecordedCases:
    """The recorded cases of a sweep, and how many are not among them, by the reason."""

    cases: tuple[Planned, ...]
    left_out: Counts = ()


def recorded_cases(
    reader: TroveReader, names: Sequence[str], asked: Asked, how: How
) -> RecordedCases:
    """Return the cases of the ops that are named, of ``*`` if none is; NotFound if there are none.

    ``asked`` are the filters, which hold for what is left out, too.
    """
    wanted = names or (ANY,)
    queries = [query for name in wanted for query in _queries(reader, name, asked)]
    found = tuple(each for query in queries for each in planned_cases(reader, query, how))
    left_out = _left_out(reader, wanted, asked)
    if not found:
        others = "".join(f"; there are {count:,} {reason}" for reason, count in left_out)
        raise NotFound(
            f"the trove holds no such case{others}; list what there is with: optrove ops"
        )
    return RecordedCases(found, left_out)


def _queries(reader: TroveReader, name: str, asked: Asked) -> Iterator[Query]:
    if name == ANY:
        # One question for all ops: the most called case of all comes first.
        yield replace(query_of(reader, asked), vectors=False)
        return
    for answer in select_recorded(reader, replace(asked, name=name)):
        yield answer.query


def _left_out(reader: TroveReader, names: Sequence[str], asked: Asked) -> Counts:
    def cases(*, all_ops: bool = asked.all_ops, nested: bool = asked.nested) -> int:
        return _count(reader, names, replace(asked, all_ops=all_ops, nested=nested))

    chosen = cases()
    moving, nested = cases(all_ops=True) - chosen, cases(nested=True) - chosen
    both = cases(all_ops=True, nested=True) - chosen - moving - nested
    counts = ((MOVING_AND_NESTED if both else MOVING, moving + both), (NESTED, nested))
    return tuple((reason, count) for reason, count in counts if count)


def _count(reader: TroveReader, names: Iterable[str], asked: Asked) -> int:
    """Return how many cases are meant; those of an op that several names mean count once."""
    found: dict[str, int] = {}
    for name in names:
        for op, cases in _by_op(reader, name, asked):
            found[op] = max(cases, found.get(op, 0))
    return sum(found.values())


def _by_op(reader: TroveReader, name: str, asked: Asked) -> Iterator[tuple[str, int]]:
    for query in _queries(reader, name, asked):
        if query.op is not None:
            yield query.op, reader.count(query)
        else:
            yield from ((row.op, row.cases) for row in reader.ops(query))


TROVE: Final = "trove"
FILE: Final = "file"
SOURCES: Final = (TROVE, EXPORT, FILE)

LOCAL: Final = "local"
RAY: Final = "ray"
HERE: Final = "here"
"""Engines: worker processes, the nodes of a Ray cluster, and this very process."""

VECTOR_ID: Final = "vector_id"
"""What a sweep of a single vector is known by among the filters."""

_TWICE: Final = "the same as another"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which cases are wanted, as a person writes it; ``asked`` are the filters of recorded cases.

    ``file`` is a file of vectors or a directory of such, ``vector_id`` the beginning of an id.
    """

    targets: tuple[str, ...] = ()
    asked: Asked = field(default_factory=Asked)
    suite: str | None = None
    source: str | None = None
    file: Path | None = None
    vector_id: str | None = None
    randomize: int | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """On what a sweep runs and what is measured; ``budget`` is in seconds, as is the timeout."""

    device: str | None = None
    board: str | None = None
    engine: str = LOCAL
    how: How = field(default_factory=How)
    budget: float | None = None
    measured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A planned case, and on what it is executed."""

    where: Where
    planned: Planned


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is executed in this order; ``left_out`` says what is not, and why."""

    cases: tuple[Placed, ...]
    left_out: Counts = ()
    modules: tuple[SweepModule, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[PlannedCase]:
        """The plan as it is kept in a trove."""
        return [
            PlannedCase(
                each.planned.case_id, each.where.device_kind, each.where.board, each.planned.suite
            )
            for each in self.cases
        ]


def plan_sweep(
    wanted: Wanted, means: Means, reading: Callable[[], TroveReader], store: str | None
) -> SweepPlan:
    """Return what a sweep executes; NotFound or BadTarget when that is nothing.

    ``reading`` gives a reader of the trove, and is asked only if recorded cases are wanted.
    """
    planner = _Planner(wanted, means, store)
    if wanted.source in (EXPORT, FILE):
        plan = planner.of_files()
    elif wanted.targets:
        plan = planner.of_targets(reading)
    else:
        plan = planner.of_ops(reading(), ())
    return _ordered(_only(plan, wanted.vector_id), wanted, means)


def sweep_of(wanted: Wanted, means: Means, plan: SweepPlan) -> Sweep:
    """Return what was asked for as it is kept."""
    choice = means.device
    return Sweep(
        targets=wanted.targets,
        filters=filters_of(wanted),
        suite=wanted.suite,
        source=wanted.source,
        file=None if wanted.file is None else str(wanted.file),
        modules=plan.modules,
        engine=means.engine,
        device_kind=None if choice is None else DeviceKind(choice),
        board=means.board,
        seed=means.how.seed,
        order_seed=wanted.randomize,
        timeout_ns=timeout_ns(means.how),
        budget_ns=timeout_ns(How(timeout=means.budget)),
        measured=means.measured,
        left_out=plan.left_out,
    )


def filters_of(wanted: Wanted) -> tuple[tuple[str, str], ...]:
    """Return the filters by their names, as text."""
    names = [name for name in Asked.__slots__ if name != "name"]
    found = [(name, getattr(wanted.asked, name)) for name in names]
    given = [(name, _text(value)) for name, value in found if value not in (None, False)]
    return (*given, *([] if wanted.vector_id is None else [(VECTOR_ID, wanted.vector_id)]))


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Finds the cases of one request."""

    wanted: Wanted
    means: Means
    store: str | None

    def of_ops(self, reader: TroveReader, names: Sequence[str]) -> SweepPlan:
        """Return the recorded cases of ops that the filters leave; of all ops if none is named."""
        found = recorded_cases(reader, names, self.wanted.asked, self.means.how)
        return SweepPlan(self._placed(found.cases), found.left_out)

    def of_targets(self, reading: Callable[[], TroveReader]) -> SweepPlan:
        """Return the vectors of modules and the cases of ops, target by target."""
        files = [(target, module_file(target)) for target in self.wanted.targets]
        ops = [target for target, file in files if file is None]
        modules = [file for _, file in files if file is not None]
        if ops and self.wanted.suite is not None:
            raise BadTarget(f"{ops[0]!r} is an op, which has no suites; leave out --suite-name")
        filters = [name for name, _ in filters_of(self.wanted) if name != VECTOR_ID]
        if modules and filters:
            raise BadTarget(
                f"{modules[0]} is a module, whose vectors have no {filters[0]}; filters are for ops"
            )
        parts = [self._of_module(file) for file in modules]
        if ops:
            parts.append(self.of_ops(reading(), ops))
        return _joined(parts)

    def of_files(self) -> SweepPlan:
        """Return the vectors of files, for the targets that are named if any are."""
        wanted = self.wanted
        path = wanted.file or Path(EXPORT)
        if wanted.source == FILE and wanted.file is None:
            raise BadTarget("--vector-source file needs the file: add --file-path FILE")
        parts = []
        for target in wanted.targets or (None,):
            module = None if target is None else module_file(target)
            name = target if module is None else module_name(module)
            request = FileRequest(path, self.means.how, name, wanted.suite, module)
            parts.append(self._of_vectors(vectors_from_file(request)))
        return _joined(parts)

    def _of_module(self, file: Path) -> SweepPlan:
        means = self.means
        request = ModuleRequest(
            file=file,
            suite=self.wanted.suite,
            device=means.device,
            board=means.board,
            store=self.store,
            how=means.how,
        )
        return self._of_vectors(vectors_of(request))

    def _of_vectors(self, found: VectorSet) -> SweepPlan:
        vectors = [each for each in found.planned if each.op.startswith(VECTORS)]
        others = [each for each in found.planned if not each.op.startswith(VECTORS)]
        placed: list[Placed] = []
        if vectors:
            where = found.where or place_for_module(self.means.device, self.means.board)
            placed += [Placed(where, each) for each in vectors]
        modules = () if found.module is None else (_with_timeout(found.module, vectors),)
        return SweepPlan(
            (*placed, *self._placed(others)), found.left_out, modules, tuple(found.notes)
        )

    def _placed(self, cases: Iterable[Planned]) -> tuple[Placed, ...]:
        """Return cases with what they run on, in the order in which they came."""
        every = list(cases)
        groups = grouped(every, self._choice())
        places = {each.case_id: where for where, some in groups.items() for each in some}
        return tuple(Placed(places[each.case_id], each) for each in every)

    def _choice(self) -> Choice:
        means = self.means
        if means.engine == RAY and means.device == DeviceKind.HARDWARE.value:
            # The boards are on the nodes of the cluster, and need not be here.
            return Choice(DeviceKind.HARDWARE)
        return settled(means.device, means.board)


def _with_timeout(module: SweepModule, vectors: Iterable[Planned]) -> SweepModule:
    told = next((each.job.timeout_ns for each in vectors), None)
    return replace(module, timeout_ns=told)


def _joined(parts: Iterable[SweepPlan]) -> SweepPlan:
    """Return several plans as one, in which every case is once."""
    every = list(parts)
    cases: dict[str, Placed] = {}
    counts: dict[str, int] = {}
    for part in every:
        for placed in part.cases:
            if cases.setdefault(placed.planned.case_id, placed) is not placed:
                counts[_TWICE] = counts.get(_TWICE, 0) + 1
        for reason, count in part.left_out:
            counts[reason] = counts.get(reason, 0) + count
    return SweepPlan(
        tuple(cases.values()),
        tuple(counts.items()),
        tuple(dict.fromkeys(module for part in every for module in part.modules)),
        tuple(note for part in every for note in part.notes),
    )


def _only(plan: SweepPlan, vector_id: str | None) -> SweepPlan:
    """Return the one case whose id begins so; all of them if none is named."""
    if vector_id is None:
        return plan
    found = [each for each in plan.cases if each.planned.case_id.startswith(vector_id.lower())]
    if len(found) != 1:
        many = f"{len(found)} of the {len(plan.cases):,} vectors that are meant"
        raise NotFound(
            f"{many} begin with {vector_id!r}; give more of the id"
            if found
            else f"none of the {len(plan.cases):,} vectors that are meant begins with "
            f"{vector_id!r}; list them with: optrove sweep --dry-run --json"
        )
    return replace(plan, cases=tuple(found), left_out=())


def _ordered(plan: SweepPlan, wanted: Wanted, means: Means) -> SweepPlan:
    cases = list(plan.cases)
    if wanted.randomize is not None:
        cases = shuffled(cases, wanted.randomize)
    elif means.budget is not None:
        cases = most_called_first(cases, lambda each: each.planned.calls)
    return replace(plan, cases=tuple(cases))
