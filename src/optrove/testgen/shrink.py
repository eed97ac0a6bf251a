"""Shrink a failing case to the simplest call that fails in the same way.

A tensor's padded shape follows its shape, and its shards are made smaller with it where whole
tiles remain. Sizes that stand in lists and shapes among the arguments change with those of tensors.

A reduction never adds anything: arguments only go, dimensions only shrink, configurations only
become plain. So applying reductions as long as they change a case always ends.

Reductions are tried in rounds. Those of a round are executed together, each in isolation; then as
many of the successful ones as still fail together are applied, and the next round begins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import NotReplayable
from optrove.frameworks.kept_tensors import smaller_capsule
from optrove.frameworks.ttnn.board.devices import ALONE
from optrove.model.case import Case, renamed, rewrite
from optrove.model.causes import without_numbers
from optrove.model.records import Attempt, Outcome
from optrove.model.ttnn_classes import INTERLEAVED_DRAM, TILE
from optrove.model.values import (
    DeviceRef,
    Int,
    List,
    Struct,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    walk,
)
from optrove.replay.runner import run_jobs
from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.describe import argument_fields
from optrove.report.document import Field, Fields, Paragraph, Section, paragraphs
from optrove.report.wording import SHORT_ID, clipped, plural
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.model.capsules import Capsule
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.replay.runner import Workers
    from optrove.report.document import Node
    from optrove.serializer.text import Json


PLAIN_MEMORY: Final = INTERLEAVED_DRAM.struct()

Retensor = Callable[[TensorSpec], TensorSpec]


def with_tensors(case: Case, change: Retensor) -> Case:
    """Return a case with each of its tensors as ``change`` returns it."""

    def changed(part: Value) -> Value:
        return change(part) if isinstance(part, TensorSpec) else part

    return case.changed(changed)


def plainly_kept(spec: TensorSpec) -> TensorSpec:
    """Return the tensor in interleaved DRAM, if it is on a device."""
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement) or placement.storage != "device":
        return spec
    return replace(spec, placement=replace(placement, memory=PLAIN_MEMORY))


def alone(case: Case) -> Case:
    """Return a case whose tensors and devices are on one chip."""

    def changed(part: Value) -> Value:
        match part:
            case TensorSpec(placement=TtnnPlacement(mesh_shape=(_, *_)) as placement):
                placement = replace(placement, mesh_shape=ALONE, mesh=None)
                return replace(part, placement=placement)
            case DeviceRef():
                return replace(part, mesh_shape=ALONE)
        return part

    return case.changed(changed)


def resized(size: int, less: int, *, batches_only: bool = False) -> Callable[[Case], Case]:
    """Return a function that reduces a size everywhere: in tensors, lists and shapes.

    With ``batches_only`` the last two dimensions of tensors keep it. A vector of that size may be
    in rows of 32, as the weights of norms are.
    """
    rows = (size // TILE, TILE) if size % TILE == 0 and less % TILE == 0 else None

    def tensor(spec: TensorSpec) -> TensorSpec:
        if rows == spec.shape[-2:] and prod(spec.shape[:-2]) == 1 and not batches_only:
            return reshaped(spec, (*spec.shape[:-2], less // TILE, TILE))
        kept = len(spec.shape) - 2 if batches_only else len(spec.shape)
        shape = tuple(
            less if own == size and place < kept else own for place, own in enumerate(spec.shape)
        )
        return reshaped(spec, shape)

    def change(case: Case) -> Case:
        if not any(size in spec.shape for spec in case.tensors()):
            return case
        smaller = with_tensors(case, tensor)
        if smaller == case:
            return case
        given = tuple((name, _listed(value, size, less)) for name, value in smaller.arguments)
        return Case(case.op, given)

    return change


def _listed(value: Value, size: int, less: int) -> Value:
    """Return an argument that is a list of sizes, or a shape, with the smaller size."""

    def numbers(items: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(Int(less) if item == Int(size) else item for item in items)

    match value:
        case List(items):
            return List(numbers(items))
        case Tuple(items):
            return Tuple(numbers(items))
        case Struct("ttnn.Shape", ((name, List(items)),)):
            return Struct("ttnn.Shape", ((name, List(numbers(items))),))
    return value


def _reduced(place: int, less: int) -> Retensor:
    """Return a function that reduces one dimension of a tensor."""

    def change(spec: TensorSpec) -> TensorSpec:
        if place >= len(spec.shape) or spec.shape[place] <= less:
            return spec
        return reshaped(spec, (*spec.shape[:place], less, *spec.shape[place + 1 :]))

    return change


def _flattened(spec: TensorSpec) -> TensorSpec:
    """Return a tensor without dimensions of size 1 before the last two."""
    rest = tuple(size for size in spec.shape[:-2] if size != 1)
    return reshaped(spec, (*rest, *spec.shape[-2:]))


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Return a tensor of another shape, laid out as it was; arrays and sparse ones stay."""
    if shape == spec.shape:
        return spec
    placement = spec.placement
    if isinstance(placement, TorchPlacement) and placement.layout == "strided":
        strides = _strides(spec.shape, placement.strides, shape)
        return replace(spec, shape=shape, placement=replace(placement, strides=strides, offset=0))
    if not isinstance(placement, TtnnPlacement):
        return spec
    memory = placement.memory
    if memory is not None:
        memory = _resharded(memory, _plane(spec.shape), _plane(shape))
    mesh = placement.mesh
    if len(shape) != len(spec.shape):
        # The numbers of dimensions change, so that the split over the mesh is unknown.
        mesh = None
    placement = replace(placement, padded_shape=_padded(placement, shape), memory=memory, mesh=mesh)
    return replace(spec, shape=shape, placement=placement)


def _strides(
    old: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the strides of a smaller tensor: dense, its dimensions in the same order in memory."""
    places = range(len(shape))
    expanded = {at for at in places if len(old) == len(shape) and strides[at] == 0}
    order = sorted(places, key=lambda at: -strides[at]) if len(old) == len(shape) else [*places]
    found = [0] * len(shape)
    step = 1
    for at in reversed([at for at in order if at not in expanded]):
        found[at] = step
        step *= max(1, shape[at])
    return tuple(found)


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns that shards divide a tensor into."""
    return prod(shape[:-1]), shape[-1] if shape else 1


def _padded(placement: TtnnPlacement, shape: tuple[int, ...]) -> tuple[int, ...]:
    if placement.tile is None:
        return shape
    tile = placement.tile.shape[-len(shape) :]
    pairs = zip(shape[-2:], tile, strict=False)
    last = [-(-size // unit) * unit if unit else size for size, unit in pairs]
    return (*shape[:-2], *last)


def _resharded(memory: Struct, old: tuple[int, int], new: tuple[int, int]) -> Struct:
    """Return the memory of a smaller tensor, with smaller shards on the same cores."""

    def changed(part: Value) -> Value:
        match part:
            case Struct("ttnn.ShardSpec", fields):
                return Struct(part.type, tuple(_smaller(field, old, new) for field in fields))
        return part

    found = rewrite(memory, changed)
    return found if isinstance(found, Struct) else memory


def _smaller(
    field: tuple[str, Value], old: tuple[int, int], new: tuple[int, int]
) -> tuple[str, Value]:
    name, value = field
    match value:
        case List((Int(rows), Int(columns))) if name == "shape":
            sizes = (_scaled(rows, old[0], new[0]), _scaled(columns, old[1], new[1]))
            return name, List(tuple(map(Int, sizes)))
    return field


def _scaled(size: int, old: int, new: int) -> int:
    """Return the part of a shard that remains, in whole tiles if it had some."""
    if new >= old or old == 0:
        return size
    part, rest = divmod(size * new, old)
    whole = rest == 0 and part > 0 and (size % TILE != 0 or part % TILE == 0)
    return part if whole else size


PLACE: Final = re.compile(r"arg\d+")
"""The names of arguments whose position alone is known."""

OPERAND: Final = re.compile(
    r"arg\d+|self|device|mesh_device|(.*_)?(in|out)puts?(_.*)?|tensors?|[qkv]|.*cache.*|grad_.*"
)
"""The names of tensors and devices that every operation needs."""

Change: TypeAlias = Callable[[Case], Case]

_PLAIN_DTYPE: Final = "ttnn.bfloat16"
_FLOATS: Final = ("ttnn.bfloat8_b", "ttnn.bfloat4_b", "ttnn.float32")


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to make a case simpler; ``words`` says which."""

    words: str
    change: Change

    def apply(self, case: Case) -> Case:
        """Return the simpler case; the same one where there is nothing to make simpler."""
        changed = self.change(case)
        return case if changed == case else renamed(changed, {})


def reductions(case: Case) -> list[Reduction]:
    """Return the reductions that make a case simpler, the boldest first."""
    offered = (
        *_without_several(case),
        Reduction("all tensors in interleaved DRAM", partial(with_tensors, change=plainly_kept)),
        Reduction("on one chip", _on_one_chip),
        *_sizes(case, _smallest),
        Reduction("without batches", _without_batches),
        *_without_each(case),
        *_plain_arguments(case),
        *_plain_tensors(case),
        *_sizes(case, _half),
        *_single_sizes(case),
        Reduction("without dimensions of size 1", _flat),
        Reduction("all in bfloat16", _in_bfloat16),
    )
    seen = {case}
    found = []
    for each in offered:
        simpler = each.apply(case)
        if simpler not in seen:
            seen.add(simpler)
            found.append(each)
    return found


def argument_reductions(case: Case) -> list[Reduction]:
    """Return the reductions that leave the tensors of a case as they are, the boldest first.

    All arguments that may be optional go at once, or single configurations.
    """
    optional = [(name, value) for name, value in case.arguments if _is_optional(name, value)]
    configurations = [name for name, value in optional if isinstance(value, Struct)]
    several = [_dropping(name for name, _ in optional)] if len(optional) > 1 else []
    return [*several, *(_dropping([name]) for name in configurations), *_plain_arguments(case)]


def _dropping(names: Iterable[str]) -> Reduction:
    gone = frozenset(names)

    def change(case: Case) -> Case:
        return Case(case.op, tuple(each for each in case.arguments if each[0] not in gone))

    return Reduction(f"without {', '.join(sorted(gone))}", change)


def _without_several(case: Case) -> Iterator[Reduction]:
    """Yield reductions that drop all arguments except tensors and devices, or half of them."""
    names = [name for name, value in case.arguments if _is_optional(name, value)]
    middle = len(names) // 2
    for several in (names, names[:middle], names[middle:]):
        if len(several) > 1:
            yield _dropping(several)


def _without_each(case: Case) -> Iterator[Reduction]:
    """Yield reductions that drop one argument, also a tensor that is not an operand."""
    places = [name for name, _ in case.arguments if PLACE.fullmatch(name)]
    last = max(places, key=lambda name: int(name[3:]), default=None)
    for name, value in case.arguments:
        droppable = not OPERAND.fullmatch(name) if _needs_device(value) else name == last
        if droppable or _is_optional(name, value):
            yield _dropping([name])


def _is_optional(name: str, value: Value) -> bool:
    """Return whether an argument may be one that is left to its default."""
    return not PLACE.fullmatch(name) and not _needs_device(value)


def _needs_device(value: Value) -> bool:
    return any(isinstance(part, (TensorSpec, DeviceRef)) for _, part in walk(value))


def _plain_arguments(case: Case) -> Iterator[Reduction]:
    """Yield reductions that make one memory configuration among the arguments plain."""
    for name, value in case.arguments:
        if isinstance(value, Struct) and value.type == PLAIN_MEMORY.type and value != PLAIN_MEMORY:
            yield Reduction(f"{name} is interleaved DRAM", partial(_with_plain_memory, name=name))


def _with_plain_memory(case: Case, name: str) -> Case:
    named = ((own, PLAIN_MEMORY if own == name else old) for own, old in case.arguments)
    return Case(case.op, tuple(named))


def _plain_tensors(case: Case) -> Iterator[Reduction]:
    for number, names in _tensors(case):
        yield Reduction(f"{names} in interleaved DRAM", _of_one(number, plainly_kept))


def _tensors(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the tensors of a case, with the arguments that hold them."""
    names: dict[int, list[str]] = {}
    for name, part in case.parts():
        if isinstance(part, TensorSpec):
            names.setdefault(part.identity, []).append(name)
    for number, holders in names.items():
        yield number, ", ".join(dict.fromkeys(holders))


def _of_one(number: int, change: Retensor) -> Change:
    def only(spec: TensorSpec) -> TensorSpec:
        return change(spec) if spec.identity == number else spec

    return lambda case: with_tensors(case, only)


def _tile(case: Case) -> int:
    """Return the unit of sizes; torch has no tiles."""
    return 1 if case.op.startswith("torch.") else TILE


def _sizes(case: Case, smaller: Callable[[int, int], int]) -> Iterator[Reduction]:
    """Yield reductions that make a size smaller everywhere, the largest first."""
    sizes = {size for spec in case.tensors() for size in spec.shape}
    for size in sorted(sizes, reverse=True):
        less = smaller(size, _tile(case))
        if less < size:
            yield Reduction(f"{size} becomes {less}", resized(size, less))


def _smallest(size: int, tile: int) -> int:
    return min(size, tile) if size % tile == 0 else 1


def _half(size: int, tile: int) -> int:
    """Return half of a size, in whole tiles if it has some."""
    if size % tile == 0:
        return max(tile, -(-size // 2 // tile) * tile)
    return max(1, size // 2)


def _single_sizes(case: Case) -> Iterator[Reduction]:
    """Yield reductions that halve one dimension of one tensor."""
    known = {spec.identity: spec for spec in case.tensors()}
    for number, names in _tensors(case):
        for place, size in enumerate(known[number].shape):
            less = _half(size, _tile(case))
            if less < size:
                words = f"dimension {place} of {names}: {size} becomes {less}"
                yield Reduction(words, _of_one(number, _reduced(place, less)))


def _without_batches(case: Case) -> Case:
    for spec in case.tensors():
        for size in spec.shape[:-2]:
            if size > 1:
                case = resized(size, 1, batches_only=True)(case)
    return case


def _flat(case: Case) -> Case:
    without_batches = all(prod(spec.shape[:-2]) == 1 for spec in case.tensors())
    return with_tensors(case, _flattened) if without_batches else case


def _on_one_chip(case: Case) -> Case:
    spread = {
        spec.placement.mesh_shape
        for spec in case.tensors()
        if isinstance(spec.placement, TtnnPlacement)
    }
    return alone(case) if spread - {None, ALONE} else case


def _in_bfloat16(case: Case) -> Case:
    def plain(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=_PLAIN_DTYPE) if spec.dtype in _FLOATS else spec

    return with_tensors(case, plain)


_MAX_CAUSE_CHARS: Final = 300
_ROW: Final = re.compile(r"N(?:(?:,\s*|x)N)+")

Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a case fails; equal ones fail in the same way, with any numbers."""

    outcome: Outcome
    text: str


def failure_of(attempt: Attempt) -> Failure:
    """Return how an execution failed, without the numbers and shapes in it."""
    cause = attempt.cause or ""
    return Failure(attempt.outcome, _ROW.sub("N", without_numbers(cause)))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried: executions in all, and seconds in all."""

    trials: int = 200
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The result of shrinking a failing case: ``steps`` are the reductions that led to it.

    ``finished`` says that nothing simpler fails in the same way; else a limit was reached.
    """

    original: Case
    case: Case
    attempt: Attempt
    steps: tuple[str, ...]
    trials: int
    finished: bool
    capsules: tuple[Capsule, ...] = ()


def shrink(
    planned: PlannedJob,
    where: TargetDevice,
    limits: Limits,
    log: Log = lambda _: None,
    workers: int | Workers = 1,
    *,
    directory: Path | None = None,
) -> Shrunk:
    """Return the simplest case that fails like a given one.

    A case with capsules fails with the values of one of them; those of smaller tensors are written
    to ``directory``. NotReplayable if it does not fail, or not because of the operation.
    """
    if planned.job.capsules:
        planned = _with_failing_values(planned, where, log)
    search = _Search(planned, where, limits, workers, log, directory)
    first = search.execute([planned.job.case])[planned.job.case]
    _check(planned, first, where)
    return search.run(first)


def _with_failing_values(planned: PlannedJob, where: TargetDevice, log: Log) -> PlannedJob:
    """Return the case with the first capsule with which it does not pass; else with the first."""
    job = replace(planned.job, device_kind=where.device_kind)
    jobs = [replace(job, capsules=(each,)) for each in job.capsules]
    found = jobs[0]
    # One worker answers in the order of the Jobs.
    attempts = run_jobs(jobs, board=where.board, workers=1)
    for each, attempt in zip(jobs, attempts, strict=True):
        if attempt.outcome is not Outcome.PASSED:
            found = each
            break
    _stop(attempts)
    (capsule,) = found.capsules
    log(f"with the values of call {capsule.op_index} of run {capsule.run_id[:SHORT_ID]}")
    return replace(planned, job=replace(planned.job, capsules=(capsule,)))


def _check(planned: PlannedJob, attempt: Attempt, where: TargetDevice) -> None:
    """Raise NotReplayable for a case without a failure that can be shrunk."""
    name = f"case {planned.case_id[:SHORT_ID]} of {planned.op}"
    cause = attempt.cause or "no reason is recorded"
    if attempt.outcome is Outcome.PASSED:
        raise NotReplayable(
            f"{name} passes on {where}: there is no failure to shrink; name the board or the kind "
            f"of device on which it fails, with --board and --device"
        )
    if attempt.outcome is Outcome.NOT_RUN:
        raise NotReplayable(f"{name} could not be run on {where}: {cause}")
    if attempt.outcome is Outcome.WRONG_SPEC:
        raise NotReplayable(
            f"{name} returns another output than recorded on {where}: {cause}; it cannot be "
            f"shrunk, because the output of a smaller call was not recorded"
        )


@dataclass(slots=True)
class _Search:
    """One search, with the number of cases that it tried."""

    planned: PlannedJob
    where: TargetDevice
    limits: Limits
    workers: int | Workers
    log: Log
    directory: Path | None = None
    trials: int = 0
    known: dict[Case, Attempt] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, first: Attempt) -> Shrunk:
        """Reduce the case until nothing simpler fails in the same way."""
        wanted = failure_of(first)
        original = case = self.planned.job.case
        attempt = first
        steps: list[str] = []
        finished = False
        while not self._is_over():
            good = self._successful(case, wanted)
            if not good:
                finished = not self._is_over()
                break
            applied, case, attempt = self._together(case, good, wanted)
            steps += [each.words for each in applied]
            self.log(f"{self.trials:,} tried, {plural(len(steps), 'step')}: {steps[-1]}")
        capsules = self._capsules(case) or ()
        return Shrunk(original, case, attempt, tuple(steps), self.trials, finished, capsules)

    def _successful(self, case: Case, wanted: Failure) -> list[tuple[Reduction, Attempt]]:
        """Return the reductions of a case that leave it failing in the same way."""
        offered = {each.apply(case): each for each in reductions(case)}
        attempts = self.execute(list(offered))
        return [
            (each, attempts[simpler])
            for simpler, each in offered.items()
            if simpler in attempts and failure_of(attempts[simpler]) == wanted
        ]

    def _together(
        self, case: Case, good: Sequence[tuple[Reduction, Attempt]], wanted: Failure
    ) -> tuple[list[Reduction], Case, Attempt]:
        """Apply as many reductions as still fail together: all, three quarters, ..., or one."""
        chains: dict[Case, list[Reduction]] = {}
        for share in (4, 3, 2, 1):
            count = max(1, len(good) * share // 4)
            simpler, applied = _applied(case, [each for each, _ in good[:count]])
            chains.setdefault(simpler, applied)
        alone, known = good[0]
        attempts = self.execute([each for each in chains if each != alone.apply(case)])
        for simpler, applied in chains.items():
            attempt = attempts.get(simpler)
            if attempt is not None and failure_of(attempt) == wanted:
                return applied, simpler, attempt
        return [alone], alone.apply(case), known

    def execute(self, cases: Sequence[Case]) -> dict[Case, Attempt]:
        """Execute cases, each once in a search, as far as the limits allow."""
        room = max(0, self.limits.trials - self.trials)
        found = {case: self.known[case] for case in cases if case in self.known}
        new = [case for case in cases if case not in found]
        by_id = {placement_hash(case): case for case in new[:room]}
        # The outputs of a smaller call were not recorded.
        pattern = replace(self.planned.job, device_kind=self.where.device_kind, outputs=None)
        own = self.planned.job.case
        jobs = [
            replace(
                pattern,
                case=case,
                outputs=self.planned.job.outputs if case == own else None,
                capsules=capsules,
            )
            for case in by_id.values()
            if (capsules := self._capsules(case)) is not None
        ]
        if not jobs:
            return found
        attempts = run_jobs(jobs, board=self.where.board, workers=self.workers)
        for attempt in attempts:
            self.trials += 1
            found[by_id[attempt.case_id]] = self.known[by_id[attempt.case_id]] = attempt
            if self._is_late():
                break
        _stop(attempts)
        return found

    def _capsules(self, case: Case) -> tuple[Capsule, ...] | None:
        """Return the values of a case, as far as they were kept; None if it cannot have them."""
        own = self.planned.job
        if not own.capsules or case == own.case:
            return own.capsules
        if self.directory is None:
            raise ValueError("the values of smaller tensors need a directory")
        smaller = smaller_capsule(own.capsules[0], own.case, case, self.directory)
        return None if smaller is None else (smaller,)

    def _is_over(self) -> bool:
        return self.trials >= self.limits.trials or self._is_late()

    def _is_late(self) -> bool:
        seconds = self.limits.seconds
        return seconds is not None and time.monotonic() - self.began > seconds


def _stop(attempts: Iterator[Attempt]) -> None:
    """Let workers end before all Jobs are done."""
    close = getattr(attempts, "close", None)
    if close is not None:
        close()


def _applied(case: Case, several: Sequence[Reduction]) -> tuple[Case, list[Reduction]]:
    """Return a case after several reductions, and those that did something."""
    applied = []
    for each in several:
        simpler = each.apply(case)
        if simpler != case:
            applied.append(each)
            case = simpler
    return case, applied


def shrunk_document(shrunk: Shrunk, file: Path | None) -> Iterator[Node]:
    """Yield the original case, the shrunk one, and the steps between them."""
    cause = clipped(shrunk.attempt.cause or UNSAID, _MAX_CAUSE_CHARS)
    yield Fields(
        (
            Field("Operation", shrunk.original.op),
            Field("Fails", f"{VERDICTS[shrunk.attempt.outcome]}: {cause}"),
        )
    )
    yield _case_section("Original", shrunk.original)
    if shrunk.steps:
        yield _case_section("Shrunk", shrunk.case)
        steps = plural(len(shrunk.steps), "step")
        yield Section(f"{steps} that mattered", paragraphs(shrunk.steps))
    else:
        yield Paragraph("Nothing simpler fails in the same way.")
    if shrunk.capsules:
        yield Paragraph(f"with values of call {shrunk.capsules[0].op_index}, as recorded")
    limit = "; a limit was reached, more may be possible (--trials, --timeout)"
    yield Paragraph(f"{plural(shrunk.trials, 'call')} tried{'' if shrunk.finished else limit}")
    if file is None:
        yield Paragraph("write it as a standalone test: the same command with -o DIR or FILE.zip")
    else:
        yield Paragraph(f"reproducer: {file}")


def _case_section(title: str, case: Case) -> Section:
    return Section(f"{title}: case {placement_hash(case)[:SHORT_ID]}", (argument_fields(case),))


def shrunk_data(shrunk: Shrunk, file: Path | None) -> dict[str, Json]:
    """Return a shrunk case; ``docs/command-line.md`` describes the keys."""
    return {
        "op": shrunk.original.op,
        "case_id": placement_hash(shrunk.original),
        "outcome": shrunk.attempt.outcome.value,
        "cause": shrunk.attempt.cause,
        "steps": list(shrunk.steps),
        "original": _case_data(shrunk.original),
        "shrunk": _case_data(shrunk.case),
        "trials": shrunk.trials,
        "finished": shrunk.finished,
        "values": "capsule" if shrunk.capsules else "seed",
        "file": None if file is None else str(file),
    }


def _case_data(case: Case) -> dict[str, Json]:
    return {
        "case_id": placement_hash(case),
        "arguments": {name: encode(value) for name, value in case.arguments},
    }
