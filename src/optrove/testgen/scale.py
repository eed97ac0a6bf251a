"""Scale recorded cases down, for devices that are too slow for the shapes of models.

A scaled case calls the same op with the same arguments, dtypes, layouts, kinds of memory and kinds
of program configurations, at smaller shapes. Trials on a mock board show what ttnn accepts:
sizes shrink as long as it accepts the call, first to one tile or 1, then by halves, together with
the shards, core grids and block counts that depend on them. A case of several chips is moved to one
chip unless the op communicates between chips.

A scaled case is another case: its hash differs, it has no recorded outputs, and ttnn may choose
another kernel for it. Its notes say what was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.board.devices import ALONE
from optrove.model.case import Case, rewrite
from optrove.model.records import Attempt, DeviceKind, DeviceParameters, Outcome
from optrove.model.ttnn_classes import TILE
from optrove.model.values import (
    Int,
    List,
    Null,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Value,
    walk,
)
from optrove.replay.check_board import BETWEEN_CHIPS
from optrove.replay.device_choice import device_parameters
from optrove.replay.messages import JobWriter
from optrove.replay.runner import attempt_from_reply, tasks_of
from optrove.replay.workers import WorkerProcess
from optrove.report.wording import SHORT_ID
from optrove.serializer.hashes import placement_hash
from optrove.testgen.shrink import Log, Reduction, alone, reshaped, resized, with_tensors

if TYPE_CHECKING:
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob

TRIALS: Final = 150
"""How many calls are tried for one case; most cases need fewer than ten."""

_GROUPS: Final = (
    ("per_core_M", "out_block_h", "out_subblock_h"),
    ("per_core_N", "out_block_w", "out_subblock_w"),
    ("in0_block_w",),
    ("block_h", "subblock_h"),
    ("block_w", "subblock_w"),
    ("per_core_M", "per_core_N", "out_block_h", "out_block_w", "out_subblock_h", "out_subblock_w"),
)
"""Counts of tiles in program configurations that depend on the same dimension."""

Accepts = Callable[[Case], bool]


def scale_cases(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]], log: Log = lambda _: None
) -> dict[TargetDevice, list[PlannedJob]]:
    """Return the cases by device, scaled down; equal scaled cases are one.

    A case that ttnn does not accept on the mock board, or that cannot be smaller, stays as it was
    recorded. Cases without a board are not scaled.
    """
    scaled: dict[TargetDevice, list[PlannedJob]] = {}
    for target, cases in groups.items():
        if target.board is None:
            scaled[target] = list(cases)
            continue
        with _Trials(target.board) as trials:
            found: dict[str, PlannedJob] = {}
            for number, planned in enumerate(cases, start=1):
                small = _scaled(planned, trials)
                known = found.get(small.case_id)
                found[small.case_id] = small if known is None else _merged(known, small)
                if number % 20 == 0:
                    log(f"{number:,} of {len(cases):,} cases scaled")
        scaled[target] = list(found.values())
    return scaled


def _merged(one: PlannedJob, other: PlannedJob) -> PlannedJob:
    """Return the scaled form of two recorded cases."""
    calls = None if one.calls is None or other.calls is None else one.calls + other.calls
    return replace(one, calls=calls, scaled_from=(*one.scaled_from, *other.scaled_from))


class _Trials:
    """Processes with a mock board in which calls are tried one after another."""

    def __init__(self, board: str) -> None:
        self._board = board
        self._writer = JobWriter()
        self._processes: dict[DeviceKind, WorkerProcess] = {}

    def __enter__(self) -> _Trials:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.end()

    def attempt(self, planned: PlannedJob, kind: DeviceKind = DeviceKind.MOCK) -> Attempt:
        """Return the Attempt at a case on the mock board."""
        job = replace(planned.job, device_kind=kind, outputs=None)
        (task,) = tasks_of([job], self._board, "trial")
        if kind not in self._processes:
            self._processes[kind] = WorkerProcess(task.setup)
        message = self._writer.message(task.job)
        self._processes[kind].send(message)
        return attempt_from_reply(task, message.case_id, self._processes[kind].receive())


def _scaled(planned: PlannedJob, trials: _Trials) -> PlannedJob:
    begun = _on_one_chip(planned)
    first = trials.attempt(begun)
    if first.outcome is not Outcome.PASSED:
        cause = first.cause or first.outcome.value
        note = f"not scaled, since ttnn does not accept it on a mock board: {cause}"
        return replace(planned, notes=(*planned.notes, note))

    def attempted(case: Case, kind: DeviceKind) -> Attempt:
        return trials.attempt(replace(begun, job=replace(begun.job, case=case)), kind)

    def is_computed(case: Case) -> bool:
        attempt = attempted(case, DeviceKind.SHADOW)
        return attempt.outcome is Outcome.PASSED and bool(attempt.measurements)

    def is_accepted(case: Case) -> bool:
        return attempted(case, DeviceKind.MOCK).outcome is Outcome.PASSED

    # ttnn accepts shapes that do not belong together, such as a norm of 32 columns with 512
    # weights; golden functions do not. Ops whose golden function never answers have none of use.
    case, steps = smallest(begun.job.case, is_computed)
    if case == begun.job.case:
        case, steps = smallest(begun.job.case, is_accepted)
    if case == planned.job.case:
        return planned
    moved = [f"one chip instead of {_sizes(_mesh(planned))}"] if begun is not planned else []
    changes = "; ".join((*moved, *steps))
    note = f"scaled down from case {planned.case_id[:SHORT_ID]}: {changes}"
    return replace(
        begun,
        # The recorded outputs are not those of another case.
        job=replace(begun.job, case=case, outputs=None),
        case_id=placement_hash(case),
        notes=(note,),
        raised=None,
        scaled_from=(planned.case_id,),
    )


def _mesh(planned: PlannedJob) -> tuple[int, ...]:
    return device_parameters(planned.job).mesh_shape or ALONE


def _sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _on_one_chip(planned: PlannedJob) -> PlannedJob:
    """Return a case of several chips on one of them, with the part that each chip had."""
    case, job = planned.job.case, planned.job
    names = {name for name, _ in case.arguments}
    if prod(_mesh(planned)) == 1 or names & BETWEEN_CHIPS:
        return planned
    device = replace(job.device or DeviceParameters(), mesh_shape=ALONE, fabric_config=None)
    # Tensors on the host have no mesh shape, and may have parts for several chips.
    changed = with_tensors(alone(case), _unspread)
    new = replace(job, case=changed, device=device, outputs=None)
    return replace(planned, job=new, case_id=placement_hash(changed))


def _unspread(spec: TensorSpec) -> TensorSpec:
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement) or placement.mesh is None:
        return spec
    return replace(spec, placement=replace(placement, mesh=None))


def smallest(case: Case, accepts: Accepts, limit: int = TRIALS) -> tuple[Case, tuple[str, ...]]:
    """Return the smallest form of a case that is accepted, and the steps that led to it."""
    steps: list[str] = []
    tried = {case}
    while True:
        before = case
        for step in scalings(case):
            smaller = _with_memory_of_tensors(case, step.apply(case))
            if smaller in tried or _elements(smaller) >= _elements(case):
                continue
            if not _keeps_cores_busy(case, smaller):
                continue
            if len(tried) > limit:
                return case, tuple(steps)
            tried.add(smaller)
            if accepts(smaller):
                case = smaller
                steps.append(step.words)
        if case == before:
            return case, tuple(steps)


def _keeps_cores_busy(case: Case, smaller: Case) -> bool:
    """Return whether the cores of each sharded tensor still have a shard, if they had one.

    ttnn accepts cores without a shard, and some kernels then divide by zero.
    """
    pairs = zip(case.tensors(), smaller.tensors(), strict=True)
    return all(_busy_cores(new) >= _busy_cores(old) for old, new in pairs)


def _busy_cores(spec: TensorSpec) -> float:
    """Return the share of a tensor's cores that have a shard of it."""
    memory = spec.placement.memory if isinstance(spec.placement, TtnnPlacement) else None
    for _, part in walk(memory or Null()):
        match part:
            case Struct("ttnn.ShardSpec", fields):
                match dict(fields)["shape"]:
                    case List((Int(rows), Int(columns))) if rows and columns:
                        height, width = prod(spec.shape[:-1]), spec.shape[-1]
                        shards = -(-height // rows) * -(-width // columns)
                        return min(1.0, shards / max(1, _cores(dict(fields)["grid"])))
    return 1.0


def _cores(grid: Value) -> int:
    """Return how many cores a set of ranges has."""
    count = 0
    for _, part in walk(grid):
        match part:
            case Struct("ttnn.CoreRange", fields):
                ends = dict(fields)
                start, end = (
                    {axis: at.value for axis, at in corner.fields if isinstance(at, Int)}
                    for corner in (ends["start"], ends["end"])
                    if isinstance(corner, Struct)
                )
                count += prod(end[axis] - start[axis] + 1 for axis in start)
    return count


def _with_memory_of_tensors(case: Case, smaller: Case) -> Case:
    """Return a scaled case whose memory arguments change like the tensors that had the same.

    ttnn accepts an output in other shards than the input, and computes nonsense.
    """
    pairs = zip(case.tensors(), smaller.tensors(), strict=True)
    memories = {
        old.placement.memory: new.placement.memory
        for old, new in pairs
        if isinstance(old.placement, TtnnPlacement) and isinstance(new.placement, TtnnPlacement)
    }
    given = dict(case.arguments)
    arguments = tuple(
        (name, memories.get(value, value) or value)
        if isinstance(value, Struct) and value == given.get(name)
        else (name, value)
        for name, value in smaller.arguments
    )
    return Case(smaller.op, arguments)


def scalings(case: Case) -> Iterator[Reduction]:
    """Yield the steps that make a case smaller, the boldest first."""
    sizes = sorted({size for spec in case.tensors() for size in spec.shape}, reverse=True)
    tiled = [size for size in sizes if size > TILE and size % TILE == 0]
    if len(tiled) > 1:
        all_smallest = _then(*(resized(size, TILE) for size in tiled))
        yield Reduction(f"{_listing(tiled)} become {TILE}", all_smallest)
    for size in sizes:
        less = TILE if size % TILE == 0 else 1
        if less < size:
            yield Reduction(f"{size} becomes {less}", resized(size, less))
            batches = resized(size, 1, batches_only=True)
            yield Reduction(f"{size} becomes 1 in batches", batches)
    for size in sizes:
        less = size // 2
        if less == 0 or size % 2 or (size % TILE == 0 and less % TILE):
            continue
        yield Reduction(f"{size} becomes {less}", resized(size, less))
        yield from _with_dependents(case, size, less)


def _with_dependents(case: Case, size: int, less: int) -> Iterator[Reduction]:
    """Yield the halving of a size with the shards, cores and blocks that may depend on it."""
    shrunk = resized(size, less)
    words = f"{size} becomes {less}"
    for group in _GROUPS:
        if _has_fields(case, group):
            names = "/".join(name for name in group if _has_fields(case, (name,)))
            yield Reduction(f"{words}, {names} halved", _then(shrunk, _halved(group)))
    if not any(_is_a(part, "ttnn.ShardSpec") for _, part in case.parts()):
        return
    for place, name in enumerate(("rows", "columns")):
        shards = _then(shrunk, _argument_shards(place))
        yield Reduction(f"{words}, {name} of shards halved", shards)
        for group in _GROUPS:
            if _has_fields(case, group):
                both = _then(shards, _halved(group))
                yield Reduction(f"{words}, {name} of shards and blocks halved", both)
    for axis in ("x", "y"):
        fewer = _then(_resized_only(size, less), _fewer_cores(axis))
        yield Reduction(f"{words} on half of the cores in {axis}", fewer)


def _then(*changes: Callable[[Case], Case]) -> Callable[[Case], Case]:
    def change(case: Case) -> Case:
        for each in changes:
            case = each(case)
        return case

    return change


def _listing(sizes: Sequence[int]) -> str:
    *rest, last = map(str, sizes)
    return f"{', '.join(rest)} and {last}"


def _halved(names: Sequence[str]) -> Callable[[Case], Case]:
    """Return the change that halves these counts in program configurations; 1 stays."""

    def changed(part: Value) -> Value:
        if not isinstance(part, Struct) or "ProgramConfig" not in part.type:
            return part
        return replace(part, fields=tuple(_half_if(field, names) for field in part.fields))

    return lambda case: case.changed(changed)


def _half_if(field: tuple[str, Value], names: Sequence[str]) -> tuple[str, Value]:
    name, value = field
    if name in names and isinstance(value, Int) and value.value > 1:
        return name, Int(max(1, value.value // 2))
    return field


def _argument_shards(place: int) -> Callable[[Case], Case]:
    """Return the change that halves the rows or columns of shards in arguments' memory."""

    def changed(part: Value) -> Value:
        match part:
            case Struct("ttnn.ShardSpec", fields):
                return replace(part, fields=tuple(_half_shape(field, place) for field in fields))
        return part

    def change(case: Case) -> Case:
        given = tuple(
            (name, rewrite(value, changed) if _is_a(value, "ttnn.MemoryConfig") else value)
            for name, value in case.arguments
        )
        return Case(case.op, given)

    return change


def _half_shape(field: tuple[str, Value], place: int) -> tuple[str, Value]:
    name, value = field
    match value:
        case List((Int(_), Int(_)) as sizes) if name == "shape":
            halves = [each.value if isinstance(each, Int) else 0 for each in sizes]
            halves[place] = max(1, halves[place] // 2)
            return name, List(tuple(map(Int, halves)))
    return field


def _resized_only(size: int, less: int) -> Callable[[Case], Case]:
    """Return the change that makes a size of tensors smaller, and leaves their shards."""

    def tensor(spec: TensorSpec) -> TensorSpec:
        changed = reshaped(spec, tuple(less if own == size else own for own in spec.shape))
        match spec.placement, changed.placement:
            case TtnnPlacement(memory=memory), TtnnPlacement() as placement:
                return replace(changed, placement=replace(placement, memory=memory))
        return changed

    return lambda case: with_tensors(case, tensor)


def _fewer_cores(axis: str) -> Callable[[Case], Case]:
    """Return the change that halves the grids of shards and of program configurations."""

    def memory(part: Value) -> Value:
        if _is_a(part, "ttnn.ShardSpec"):
            return rewrite(part, lambda each: _half_range(each, axis))
        return part

    def argument(part: Value) -> Value:
        if isinstance(part, Struct) and "ProgramConfig" in part.type:
            fields = tuple((name, _half_extent(value, axis)) for name, value in part.fields)
            return replace(part, fields=fields)
        return memory(part)

    def tensor(spec: TensorSpec) -> TensorSpec:
        match spec.placement:
            case TtnnPlacement(memory=Struct() as own) as placement:
                new = rewrite(own, memory)
                if isinstance(new, Struct):
                    return replace(spec, placement=replace(placement, memory=new))
        return spec

    return lambda case: with_tensors(case.changed(argument), tensor)


def _half_range(part: Value, axis: str) -> Value:
    """Return a range of cores with half as many along an axis; others as they are."""
    match part:
        case Struct("ttnn.CoreRange", (("end", Struct() as end), ("start", Struct() as start))):
            corner = dict(end.fields)
            match dict(start.fields).get(axis), corner.get(axis):
                case Int(first), Int(last) if last > first:
                    corner[axis] = Int(first + (last - first + 1) // 2 - 1)
                    new = replace(end, fields=tuple(corner.items()))
                    return replace(part, fields=(("end", new), ("start", start)))
    return part


def _half_extent(value: Value, axis: str) -> Value:
    """Return a grid with half as many cores along an axis; other values as they are."""
    match value:
        case Struct("ttnn.CoreCoord", fields):
            match dict(fields).get(axis):
                case Int(count) if count > 1:
                    new = {**dict(fields), axis: Int(count // 2)}
                    return replace(value, fields=tuple(new.items()))
    return value


def _has_fields(case: Case, names: Sequence[str]) -> bool:
    return any(
        name in names and isinstance(value, Int) and value.value > 1
        for _, part in case.parts()
        if isinstance(part, Struct) and "ProgramConfig" in part.type
        for name, value in part.fields
    )


def _is_a(part: Value, name: str) -> bool:
    return isinstance(part, Struct) and part.type == name


def _elements(case: Case) -> int:
    return sum(prod(spec.shape) for spec in case.tensors())
