"""Plan a sweep: which cases and vectors run, in which order, on which device.

``*``, which is also the default, stands for the ops that compute, and for the cases that models
call themselves. Other ops and cases are left out unless they are asked for. Vectors that modules
have left in a trove are not recorded cases.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, NotFound
from optrove.model.ops import ANY, is_vector
from optrove.model.records import DeviceKind, Sweep
from optrove.model.values import Text
from optrove.replay.device_choice import check_device, group_by_device, resolve_device
from optrove.replay.planning import planned_cases
from optrove.replay.sweep_module import module_name
from optrove.sweep.vector_files import EXPORT, vectors_from_file
from optrove.sweep.vectors import (
    SweepPlan,
    VectorRequest,
    joined,
    module_device,
    module_file,
    module_vectors,
    shuffled,
)
from optrove.trove.query import CaseFilters, query_of, select_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from optrove.model.records import Counts, Query
    from optrove.replay.planning import PlannedJob
    from optrove.trove.reader import TroveReader

FILE: Final = "file"

LOCAL: Final = "local"
RAY: Final = "ray"
IN_PROCESS: Final = "here"
"""Engines: worker processes, the nodes of a Ray cluster, and this process."""

VECTOR_ID: Final = "vector_id"
LIMIT: Final = "limit"
"""The filters of a sweep that apply to any cases: a single vector, and at most so many cases."""

BEYOND: Final = "beyond --limit"

MOVING: Final = "that only move data (--all-ops adds them)"
NESTED: Final = "called by other ops only (--nested adds them)"
MOVING_AND_NESTED: Final = "that only move data (--all-ops --nested adds them)"
"""The reason in place of MOVING if only other ops call some of these cases."""

_NS: Final = 1e9

_FASTEST: Final = 200
_MIN_CASES: Final = 1000
"""How many vectors of a module are planned for a second of a budget, and at least: more than any
machine executes. The others are not even made."""


def filters_of(
    asked: CaseFilters, vector_id: str | None = None, limit: int | None = None
) -> tuple[tuple[str, str], ...]:
    """Return filters as a Sweep has them: by name, as text."""
    found = [(name, getattr(asked, name)) for name in CaseFilters.__slots__ if name != "name"]
    return tuple(
        (name, "x".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for name, value in (*found, (VECTOR_ID, vector_id), (LIMIT, limit))
        if value not in (None, False)
    )


def plan_sweep(
    sweep: Sweep, asked: CaseFilters, reading: Callable[[], TroveReader], store: str | None = None
) -> SweepPlan:
    """Return the plan of a sweep; NotFound or BadTarget if it has no cases.

    ``asked`` are the filters of recorded cases; ``reading`` opens the trove, and is called only if
    recorded cases are wanted. ``store`` is the trove of modules' loaders.
    """
    filters = dict(sweep.filters)
    if sweep.source in (EXPORT, FILE):
        parts = list(_file_parts(sweep, store))
    else:
        parts = list(_target_parts(sweep, asked, reading, store))
    if LIMIT in filters:
        parts = limited(parts, int(filters[LIMIT]), sweep.order_seed or 0)
    plan = _only(_placed(joined(parts), sweep), filters.get(VECTOR_ID))
    if sweep.order_seed is None and sweep.budget_ns is not None:
        # The vectors of a module count alike: any of them, not the first ones.
        plan = shuffled(plan, 0) if plan.modules else plan
        most_called_first = sorted(plan.vectors, key=lambda each: -(each.calls or 0))
        return replace(plan, vectors=tuple(most_called_first))
    return shuffled(plan, sweep.order_seed)


def limited(parts: Sequence[SweepPlan], limit: int, seed: int) -> list[SweepPlan]:
    """Return the parts with at most so many vectors in all, divided evenly.

    Of modules and files it is a sample; of ops it is the most called cases.
    """
    found: dict[int, SweepPlan] = {}
    for number, place in enumerate(sorted(range(len(parts)), key=lambda n: len(parts[n].vectors))):
        part = parts[place]
        share = -(-limit // (len(parts) - number))
        count = min(share, len(part.vectors))
        chosen = list(range(count))
        if any(each.suite is not None for each in part.vectors):
            generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
            chosen = sorted(generator.sample(range(len(part.vectors)), count))
        left = len(part.vectors) - count
        left_out = dict(part.left_out)
        if left:
            left_out[BEYOND] = left_out.get(BEYOND, 0) + left
        vectors = tuple(part.vectors[each] for each in chosen)
        found[place] = replace(part, vectors=vectors, left_out=tuple(left_out.items()))
        limit -= count
    return [found[place] for place in range(len(parts))]


def sample_size(sweep: Sweep) -> int | None:
    """Return how many vectors of a module a sweep needs at most; None for all."""
    limit = dict(sweep.filters).get(LIMIT)
    if limit is not None:
        return int(limit)
    if sweep.budget_ns is None or VECTOR_ID in dict(sweep.filters):
        return None
    return max(_MIN_CASES, round(_FASTEST * sweep.budget_ns / _NS))


def _file_parts(sweep: Sweep, store: str | None) -> Iterator[SweepPlan]:
    """Yield the vectors of files, for each target if there are any."""
    if sweep.source == FILE and sweep.file is None:
        raise BadTarget("--vector-source file needs the file: add --file-path FILE")
    for target in sweep.targets or (None,):
        module = None if target is None else module_file(target)
        name = target if module is None else module_name(module)
        request = VectorRequest(store=store)
        yield vectors_from_file(Path(sweep.file or EXPORT), sweep, name, module, request)


def _target_parts(
    sweep: Sweep, asked: CaseFilters, reading: Callable[[], TroveReader], store: str | None
) -> Iterator[SweepPlan]:
    """Yield the vectors of each module, then the cases of ops."""
    files = {target: module_file(target) for target in sweep.targets}
    ops = [target for target, file in files.items() if file is None]
    modules = [file for file in files.values() if file is not None]
    filters = [name for name, _ in sweep.filters if name not in (VECTOR_ID, LIMIT)]
    if ops and sweep.suite is not None:
        raise BadTarget(f"{ops[0]!r} is an op, which has no suites; leave out --suite-name")
    if modules and filters:
        raise BadTarget(
            f"{modules[0]} is a module, whose vectors have no {filters[0]}; filters are for ops"
        )
    request = VectorRequest(store=store, limit=sample_size(sweep), seed=sweep.order_seed or 0)
    for file in modules:
        yield module_vectors(file, sweep, request)
    if ops or not modules:
        yield recorded_cases(reading(), ops, asked, seed=sweep.seed, timeout_ns=sweep.timeout_ns)


def recorded_cases(
    reader: TroveReader,
    ops: Sequence[str],
    asked: CaseFilters,
    *,
    seed: int = 0,
    timeout_ns: int | None = None,
) -> SweepPlan:
    """Return the cases of ops, by default of ``*``; NotFound without any.

    The filters ``asked`` also apply to the counts of cases left out.
    """
    names = ops or (ANY,)
    queries = [query for name in names for query in _queries(reader, name, asked)]
    vectors = tuple(
        each
        for query in queries
        for each in planned_cases(reader, query, seed=seed, timeout_ns=timeout_ns)
    )
    left_out = _left_out(reader, names, asked)
    if not vectors:
        others = "".join(f"; left out: {count:,} {reason}" for reason, count in left_out)
        raise NotFound(f"the trove has no such case{others}; list the ops with: optrove ops")
    return SweepPlan(vectors, left_out)


def _queries(reader: TroveReader, name: str, asked: CaseFilters) -> Iterator[Query]:
    if name == ANY:
        # One query for all ops: the most called case of all comes first.
        yield replace(query_of(reader, asked), vectors=False)
        return
    for answer in select_recorded(reader, replace(asked, name=name)):
        yield answer.query


def _left_out(reader: TroveReader, names: Sequence[str], asked: CaseFilters) -> Counts:
    def cases(*, all_ops: bool = asked.all_ops, nested: bool = asked.nested) -> int:
        return _count(reader, names, replace(asked, all_ops=all_ops, nested=nested))

    chosen = cases()
    moving, nested = cases(all_ops=True) - chosen, cases(nested=True) - chosen
    both = cases(all_ops=True, nested=True) - chosen - moving - nested
    counts = ((MOVING_AND_NESTED if both else MOVING, moving + both), (NESTED, nested))
    return tuple((reason, count) for reason, count in counts if count)


def _count(reader: TroveReader, names: Iterable[str], asked: CaseFilters) -> int:
    """Return how many cases the names mean; an op that several names mean counts once."""
    found: dict[str, int] = {}
    for name in names:
        for query in _queries(reader, name, asked):
            if query.op is not None:
                counts = [(query.op, reader.count(query))]
            else:
                counts = [(row.op, row.cases) for row in reader.ops(query)]
            for op, cases in counts:
                found[op] = max(cases, found.get(op, 0))
    return sum(found.values())


def _placed(plan: SweepPlan, sweep: Sweep) -> SweepPlan:
    """Return a plan with a device for each case; the vectors of modules come first."""
    where = dict(plan.where)
    vectors = [each for each in plan.vectors if is_vector(each.op)]
    others = [each for each in plan.vectors if not is_vector(each.op)]
    # The torch of a cluster is on its nodes, and need not be the one here.
    torch = None if sweep.engine == RAY else sweep.torch
    check_device(plan.vectors, sweep.device_kind, sweep.board, torch)
    missing = [each.case_id for each in vectors if each.case_id not in where]
    if missing:
        where |= dict.fromkeys(missing, module_device(sweep.device_kind, sweep.board))
    if sweep.engine == RAY and sweep.device_kind is DeviceKind.HARDWARE:
        # The boards are on the nodes of the cluster, and need not be here.
        groups = group_by_device(others, DeviceKind.HARDWARE, None, sweep.torch)
    else:
        device = resolve_device(sweep.device_kind, sweep.board)
        groups = group_by_device(others, *device, sweep.torch)
    for place, some in groups.items():
        where |= {each.case_id: place for each in some}
    return replace(plan, vectors=(*vectors, *others), where=where)


def _only(plan: SweepPlan, vector_id: str | None) -> SweepPlan:
    """Return the one case whose id begins with ``vector_id``; the whole plan without it.

    The id of a traced vector may also be its ``config_hash``, which tt-metal's files call it by.
    """
    if vector_id is None:
        return plan
    prefix = vector_id.lower()
    found = [
        each
        for each in plan.vectors
        if each.case_id.startswith(prefix) or _config_hash(each).startswith(prefix)
    ]
    if len(found) > 1:
        raise NotFound(
            f"{len(found)} of the {len(plan.vectors):,} vectors begin with {vector_id!r}; give "
            f"more of the id"
        )
    if not found:
        raise NotFound(
            f"none of the {len(plan.vectors):,} vectors begins with {vector_id!r}; list them with: "
            f"optrove sweep --dry-run --json"
        )
    return replace(plan, vectors=tuple(found), left_out=())


def _config_hash(vector: PlannedJob) -> str:
    value = None if vector.suite is None else dict(vector.job.case.arguments).get("config_hash")
    return value.value if isinstance(value, Text) else ""
