"""Plan ``check-board``: every case as recorded, then failing ones adapted to the board.

Three properties of a case follow from the board alone, and only these are adapted:

- DRAM shards, of tensors and of memory configs that are arguments, move to the banks that the
  board has, where the recording had more;
- ``num_links`` is at most the number of ethernet links between neighboring chips;
- a case of more chips than the board has runs on one chip, with the part that each chip had, unless
  the operation communicates between chips.

An adapted case is another case, with another hash, and may compute something else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.frameworks.ttnn.board.devices import ALONE
from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.case import Case, rewrite
from optrove.model.records import DeviceKind, DeviceParameters, Outcome
from optrove.model.ttnn_classes import TILE, CoreGrid, Memory, Shards
from optrove.model.values import (
    DeviceRef,
    Int,
    MeshPlacement,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Value,
    tensors_in,
)
from optrove.replay.device_choice import device_parameters, group_by_device
from optrove.replay.planning import planned_cases
from optrove.report.attempts import attempted_data, causes, counts_of
from optrove.report.document import Item, Items, Paragraph, Section
from optrove.report.replays import ANSWERS, cause_sections
from optrove.report.wording import ops_text, plural
from optrove.serializer.hashes import placement_hash
from optrove.trove.query import query_of, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.frameworks.ttnn.board.table import Board
    from optrove.model.records import AttemptedCase, Counts
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader


LINKS: Final = "num_links"
BETWEEN_CHIPS: Final = frozenset(
    {"cluster_axis", LINKS, "multi_device_global_semaphore", "barrier_semaphore", "topology"}
)
"""Parameters of operations that communicate between chips."""

NOTHING_TO_ADAPT: Final = "nothing in it follows from the DRAM banks, links or chips of a board"

_SHARDED: Final = ("WIDTH_SHARDED", "HEIGHT_SHARDED")


@dataclass(frozen=True, slots=True)
class Adaptation:
    """An adapted case, the changes, and the recorded cases that become it."""

    planned: PlannedJob
    changes: tuple[str, ...]
    recorded: tuple[str, ...]


def adaptations(cases: Iterable[PlannedJob], board: Board) -> tuple[Adaptation, ...]:
    """Return the adapted form of all cases that can be adapted to a board, each once."""
    found: dict[str, Adaptation] = {}
    for planned in cases:
        result = adapted(planned, board)
        if result is not None:
            new, changes = result
            known = found.get(new.case_id)
            before = () if known is None else known.recorded
            found[new.case_id] = Adaptation(new, changes, (*before, planned.case_id))
    return tuple(found.values())


def adapted(planned: PlannedJob, board: Board) -> tuple[PlannedJob, tuple[str, ...]] | None:
    """Return a case adapted to a board, and the changes; None if there is nothing to adapt."""
    case, job = planned.job.case, planned.job
    alone = _chips(planned) > board.chips and _can_be_alone(planned)
    adapter = _Adapter(board, alone=alone, shapes=_shapes_by_memory(job.outputs or ()))
    arguments = tuple(
        (name, adapter.argument(name, rewrite(value, adapter.part)))
        for name, value in case.arguments
    )
    if not adapter.changes:
        return None
    changed = Case(case.op, arguments)
    device = job.device
    if adapter.alone:
        device = replace(device or DeviceParameters(), mesh_shape=ALONE, fabric_config=None)
    # The recorded outputs are not those of another case.
    new = replace(job, case=changed, device=device, outputs=None)
    return replace(planned, job=new, case_id=placement_hash(changed)), tuple(adapter.changes)


def chips_document(cases: Iterable[PlannedJob], name: str) -> Iterator[Paragraph]:
    """Yield a sentence about cases that need more chips than a board has, and what helps."""
    board = find_board(name)
    large = [each for each in cases if _chips(each) > board.chips]
    alone = sum(_can_be_alone(each) for each in large)
    if large:
        more = f"{plural(len(large), 'case')} {'needs' if len(large) == 1 else 'need'} more"
        some = f"--adapt tries {f'{alone:,} of them' if alone < len(large) else 'them'} on one chip"
        remedy = some if alone else "none of them can run on one chip"
        yield Paragraph(f"{name} has {plural(board.chips, 'chip')}, {more}; {remedy}")


def _chips(planned: PlannedJob) -> int:
    return prod(device_parameters(planned.job).mesh_shape or ALONE)


def _can_be_alone(planned: PlannedJob) -> bool:
    """Return whether the op of a case does not communicate between chips."""
    return BETWEEN_CHIPS.isdisjoint(name for name, _ in planned.job.case.arguments)


def why_not_adapted(planned: PlannedJob, board: Board) -> str:
    """Return why a case has nothing to adapt."""
    chips = _chips(planned)
    if chips > board.chips and not _can_be_alone(planned):
        has = plural(board.chips, "chip")
        return f"the op communicates between {chips:,} chips, and the board has {has}"
    return NOTHING_TO_ADAPT


def _shapes_by_memory(outputs: Iterable[Value]) -> dict[Struct, tuple[int, ...]]:
    """Return the padded shapes of outputs by their memory configs."""
    placements = (spec.placement for value in outputs for spec in tensors_in(value))
    return {
        each.memory: each.padded_shape
        for each in placements
        if isinstance(each, TtnnPlacement) and each.memory is not None
    }


def links_between(board: Board) -> int | None:
    """Return the least number of ethernet links between two neighboring chips; None without."""
    pairs = Counter(frozenset((link.chip, link.other_chip)) for link in board.links)
    return min(pairs.values(), default=None)


@dataclass(slots=True)
class _Adapter:
    """Changes the parts of one case, and records the changes.

    ``shapes`` are those of tensors that have a memory config, where that is known.
    """

    board: Board
    alone: bool
    shapes: dict[Struct, tuple[int, ...]] = field(default_factory=dict)
    changes: dict[str, None] = field(default_factory=dict)

    def argument(self, name: str, value: Value) -> Value:
        links = links_between(self.board)
        if name == LINKS and isinstance(value, Int) and links is not None and value.value > links:
            self._say(f"{LINKS} {links} instead of {value.value}")
            return Int(links)
        return value

    def part(self, value: Value) -> Value:
        match value:
            case TensorSpec(placement=TtnnPlacement(storage="device") as placement):
                return replace(value, placement=self._placement(placement))
            case Struct(type="ttnn.MemoryConfig"):
                return self._memory(value, self.shapes.get(value))
            case DeviceRef(mesh_shape=shape) if self.alone and prod(shape) > 1:
                self._say_alone(shape)
                return replace(value, mesh_shape=ALONE)
        return value

    def _placement(self, placement: TtnnPlacement) -> TtnnPlacement:
        shape = placement.mesh_shape
        if self.alone and shape is not None and prod(shape) > 1:
            self._say_alone(shape)
            mesh = MeshPlacement(ALONE, (None, None), ((0, 0),))
            placement = replace(placement, mesh_shape=ALONE, mesh=mesh)
        memory = placement.memory
        if memory is None:
            return placement
        return replace(placement, memory=self._memory(memory, placement.padded_shape))

    def _memory(self, recorded: Struct, padded_shape: tuple[int, ...] | None) -> Struct:
        memory = Memory.of(recorded)
        if memory is None or memory.buffer != "DRAM" or memory.layout not in _SHARDED:
            return recorded
        shards = memory.shards
        if shards is None or shards.strategy is not None or not self._is_too_wide(shards):
            return recorded
        banks = prod(self.board.dram_grid)
        by_height = memory.layout == "HEIGHT_SHARDED"
        shape_held = padded_shape or _held(shards, by_height=by_height)
        if not shape_held:
            return recorded
        rows, columns = prod(shape_held[:-1]), shape_held[-1]
        height, width = rows, _shard(columns, banks)
        if by_height:
            height, width = _shard(rows, banks), columns
        self._say(f"DRAM shards on {banks} banks instead of {shards.grid.count}")
        grid = CoreGrid((((0, 0), (banks - 1, 0)),))
        new = replace(shards, shape=(height, width), grid=grid)
        fields = {**dict(recorded.fields), "shard_spec": new.struct()}
        return Struct(recorded.type, tuple(fields.items()))

    def _is_too_wide(self, shards: Shards) -> bool:
        return any(x >= self.board.dram_grid[0] or y for _, (x, y) in shards.grid.ranges)

    def _say_alone(self, shape: tuple[int, ...]) -> None:
        self._say(f"one chip instead of {'x'.join(map(str, shape))}")

    def _say(self, text: str) -> None:
        self.changes[text] = None


def _shard(size: int, banks: int) -> int:
    """Return the size of each shard on some banks, in whole tiles."""
    return -(-size // (banks * TILE)) * TILE


def _held(shards: Shards, *, by_height: bool) -> tuple[int, ...]:
    """Return the shape of the largest tensor that shards hold; empty if they are no matrices."""
    if len(shards.shape) != 2:  # noqa: PLR2004 - a matrix
        return ()
    (height, width), cores = shards.shape, shards.grid.count
    return (height * cores, width) if by_height else (height, width * cores)


NEED_NO_BOARD = "cases of other frameworks, which need no board"


def plan_for_board(
    reader: TroveReader,
    asked: CaseFilters,
    board: str,
    device_kind: DeviceKind | None = DeviceKind.MOCK,
    *,
    seed: int = 0,
    timeout_ns: int | None = None,
) -> tuple[dict[TargetDevice, list[PlannedJob]], Counts]:
    """Return all cases of ttnn that are meant, on a board, and counts of those left out.

    Calls made by other ops count, and so do ops that only move data. NotFound without any case.
    """
    asked = replace(asked, nested=True, all_ops=True)
    queries = (
        (query_of(reader, asked),)
        if asked.name is None
        else tuple(answer.query for answer in select(reader, asked))
    )
    cases = [
        planned
        for query in queries
        for planned in planned_cases(
            reader, replace(query, vectors=False), seed=seed, timeout_ns=timeout_ns
        )
    ]
    if not cases:
        raise NotFound("the trove has no such case; list its ops with: optrove ops")
    groups = group_by_device(cases, device_kind, board)
    others = sum(len(groups.pop(target)) for target in list(groups) if target.board is None)
    if not groups:
        raise NotFound(
            f"none of the {others:,} selected cases is a call of ttnn; only ttnn's ops need a board"
        )
    return groups, ((NEED_NO_BOARD, others),) if others else ()


@dataclass(frozen=True, slots=True)
class AdaptedPlan:
    """Adapted cases, their adaptations, and how many had nothing to adapt, by op and by reason."""

    groups: dict[TargetDevice, list[PlannedJob]]
    adaptations: tuple[Adaptation, ...]
    unadapted: Counts
    reasons: Counts = ()


def plan_adapted(
    failed: Iterable[PlannedJob], board: str, device_kind: DeviceKind = DeviceKind.MOCK
) -> AdaptedPlan:
    """Return the cases that failed on a board, adapted to it where possible."""
    cases = tuple(failed)
    known_board = find_board(board)
    found = adaptations(cases, known_board)
    groups = group_by_device((each.planned for each in found), device_kind, board)
    known = {case_id for each in found for case_id in each.recorded}
    rest = [each for each in cases if each.case_id not in known]
    ops = Counter(each.op for each in rest)
    reasons = Counter(why_not_adapted(each, known_board) for each in rest)
    return AdaptedPlan(groups, found, tuple(ops.most_common()), tuple(reasons.most_common()))


def adapted_document(attempts: Sequence[AttemptedCase], plan: AdaptedPlan) -> Iterator[Node]:
    """Yield the results of adapted cases.

    All counts are of recorded cases: adaptation may turn several into one.
    """
    recorded = {each.planned.case_id: len(each.recorded) for each in plan.adaptations}
    outcomes: Counter[Outcome] = Counter()
    for one in attempts:
        outcomes[one.attempt.outcome] += recorded[one.attempt.case_id]
    parts = [f"{outcomes[one]:,} {ANSWERS[one]}" for one in Outcome if outcomes[one]]
    rest = sum(count for _, count in plan.unadapted)
    if rest:
        parts.append(f"{rest:,} cannot be adapted ({ops_text(plan.unadapted)})")
    planned = outcomes.total() + rest
    title = f"of {plural(planned, 'case')} not accepted, after adaptation: {', '.join(parts)}"
    if not planned:
        title = "after adaptation: no case to try, all were accepted"
    changes: Counter[str] = Counter()
    for each in plan.adaptations:
        for change in each.changes:
            changes[change] += len(each.recorded)
    lines = [
        *changes.most_common(),
        *((f"cannot be adapted: {reason}", n) for reason, n in plan.reasons),
    ]
    yield Section(title, (Items(tuple(Item(n, text) for text, n in lines)),))
    yield from cause_sections(causes(attempts), lambda _: None)


def adapted_data(attempts: Sequence[AttemptedCase], plan: AdaptedPlan) -> dict[str, Json]:
    """Return the results of adapted cases; ``docs/command-line.md`` describes the keys."""
    adaptations = {each.planned.case_id: each for each in plan.adaptations}
    cases = []
    for one in attempts:
        each = adaptations[one.attempt.case_id]
        more = {"adaptations": list(each.changes), "recorded_case_ids": list(each.recorded)}
        cases.append({**attempted_data(one), **more})
    return {
        "planned": len(attempts),
        "counts": counts_of(one.attempt for one in attempts),
        "unadapted": sum(count for _, count in plan.unadapted),
        "unadapted_reasons": dict(plan.reasons),
        "cases": cases,
    }
