"""Turn the rows of answers into what readers return."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from optrove.model.counted import Counted, OpCalls, add_up
from optrove.model.records import CallOutcome, DeviceKind, Phase
from optrove.model.trove import CaseRow, ExecutionRow, Machine, PlannedCase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.counted import Counting
    from optrove.model.records import Attempt, Counts, Run, Sweep, TestResult

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield ``items`` in lists of this size; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def case_row(row: tuple[Any, ...], calls: int) -> CaseRow:
    """Return a Case from a row of CASES."""
    _, case_id, semantic_id, family_id, op, replayable, content = row
    return CaseRow(case_id, semantic_id, family_id, op, bool(replayable), calls, content)


def execution_row(row: tuple[Any, ...]) -> ExecutionRow:
    """Return an execution from a row of EXECUTIONS."""
    case_id, run_id, source, model, machine, board, *rest = row
    test_id, phase, module, mode, outermost, outcome, calls, total_ns, raised, ending, device = rest
    return ExecutionRow(
        case_id=case_id,
        run_id=run_id,
        source=source,
        model=model,
        machine=machine_from(machine),
        board=board,
        test_id=test_id,
        phase=None if phase is None else Phase(phase),
        module=module,
        mode=mode,
        outermost=bool(outermost),
        outcome=CallOutcome(outcome),
        count=int(calls),
        total_ns=None if total_ns is None else int(total_ns),
        outputs=None if ending is None or raised else ending,
        error=json.loads(ending) if raised else None,
        device=device,
    )


@lru_cache(maxsize=256)
def machine_from(text: str) -> Machine:
    """Return the machine that a Run's row tells."""
    told: dict[str, Any] = json.loads(text)
    for name in ("mesh_device_shape", "device_ids"):
        if name in told:
            told[name] = tuple(told[name])
    return Machine(**told)


def counted_calls(
    rows: Iterable[tuple[Any, ...]], counting: Counting | None
) -> defaultdict[Any, Counted]:
    """Count what was called, by what rows begin with; they go on with an op and its counts."""
    found: defaultdict[Any, list[OpCalls]] = defaultdict(list)
    for key, op, *numbers in rows:
        found[key].append(OpCalls(op, *map(int, numbers)))
    return defaultdict(Counted, {key: add_up(ops, counting) for key, ops in found.items()})


def planned_case(row: tuple[Any, ...]) -> PlannedCase:
    """Return a Case of a plan from a row of PLANNED."""
    case_id, device_kind, board, suite = row
    return PlannedCase(case_id, DeviceKind(device_kind), board, suite)


def counted(rows: Iterable[tuple[Any, ...]]) -> dict[int, Counts]:
    """Return how often a Run has had what, most often first, from (key, what, count)."""
    found: dict[int, list[tuple[str, int]]] = {}
    for key, what, count in rows:
        found.setdefault(key, []).append((what, int(count)))
    order = {key: sorted(each, key=lambda item: (-item[1], item[0])) for key, each in found.items()}
    return {key: tuple(each) for key, each in order.items()}


# cattrs, which reads records, takes long to import; most questions do without.


def run_from(content: str, environment: str) -> Run:
    """Return a Run from its row and that of its environment."""
    from optrove.codec.records import record_from_builtins
    from optrove.model.records import Run

    return record_from_builtins(
        {**json.loads(content), "environment": json.loads(environment)}, Run
    )


def test_from(content: str) -> TestResult:
    """Return the result of a test from its row."""
    from optrove.codec.records import record_from_builtins
    from optrove.model.records import TestResult

    return record_from_builtins(json.loads(content), TestResult)


def attempt_from(content: str) -> Attempt:
    """Return an Attempt from its row."""
    from optrove.codec.records import record_from_builtins
    from optrove.model.records import Attempt

    return record_from_builtins(json.loads(content), Attempt)


def sweep_from(content: str) -> Sweep:
    """Return what a sweep was asked for from its row."""
    from optrove.codec.records import record_from_builtins
    from optrove.model.records import Sweep

    return record_from_builtins(json.loads(content), Sweep)
