"""Execute a stretch of recorded calls as one program, in one worker process.

Tensors flow between the calls as recorded: an output is passed on as the same object, and dropped
where the program dropped it. Inputs from outside the stretch have the values of a capsule of their
call, if there is one, or are made from the seed.

Each call is judged as it ends. Where numbers are computed on a board, a result is compared with
that of the golden functions of all calls so far, so that a call which damages the memory of others
is noticed when these are used.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound, NotReplayable
from optrove.journal.flow import UNKNOWN_PLACE
from optrove.model.flow import Outside, Step
from optrove.model.records import Attempt, CallOutcome, DeviceKind, Job, Outcome
from optrove.model.values import tensors_in
from optrove.replay.capsules import CAPSULE, SEED
from optrove.replay.device_choice import (
    check_device,
    device_key,
    device_parameters,
    group_by_device,
)
from optrove.replay.judge import RAN
from optrove.replay.messages import JobWriter, WorkerSetup
from optrove.replay.planning import PlannedJob
from optrove.replay.residency import BALLAST, alive_before, ballast
from optrove.replay.runner import Task, attempt_from_reply
from optrove.replay.workers import COMMAND, WorkerProcess
from optrove.report.memory import recorded_flow
from optrove.trove.capsules import capsules_of, local_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.model.case import Case
    from optrove.model.flow import Flow
    from optrove.model.records import Call, DeviceParameters, Run
    from optrove.replay.device_choice import TargetDevice
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader

NOT_REACHED: Final = "the sequence ended before it, with call {op_index}"
AS_RECORDED: Final = "it raised an error in the recording, too"
WITH_VALUES: Final = "optrove trace --flow --capsule all"
"""The command that records sequences with their values."""


@dataclass(frozen=True, slots=True)
class CallChoice:
    """Which calls of a run: from op_index ``first`` up to ``end``, of a test, or the last ones."""

    first: int | None = None
    end: int | None = None
    test: str | None = None
    last: int | None = None

    def of(self, calls: Sequence[Call]) -> list[Call]:
        """Return the chosen ones of the outermost calls of a process."""
        found = [
            call
            for call in calls
            if (self.first is None or call.op_index >= self.first)
            and (self.end is None or call.op_index < self.end)
            and (self.test is None or call.test_id == self.test)
        ]
        return found if self.last is None else found[-self.last :]

    def __str__(self) -> str:
        if self.test is not None:
            return f"test {self.test}"
        if self.last is not None:
            return f"the last {self.last:,} calls"
        first, end = ("" if each is None else each for each in (self.first, self.end))
        return f"calls {first}:{end}"


@dataclass(frozen=True, slots=True)
class SequenceCall:
    """One call of a sequence, and the Job that executes it."""

    call: Call
    planned: PlannedJob

    @property
    def op(self) -> str:
        """The operation."""
        return self.planned.op

    @property
    def step(self) -> Step:
        """The step that its Job is."""
        step = self.planned.job.flow
        assert step is not None  # noqa: S101 - every Job of a sequence has one
        return step

    def with_step(self, step: Step) -> SequenceCall:
        """Return the call as another step."""
        job = replace(self.planned.job, flow=step)
        return replace(self, planned=replace(self.planned, job=job))


@dataclass(frozen=True, slots=True)
class CallSequence:
    """A stretch of outermost calls of one process of a run, in their order."""

    run: Run
    process: int
    calls: tuple[SequenceCall, ...]

    def beside(self, others: Iterable[Outside]) -> CallSequence:
        """Return the sequence with other tensors in memory before its first call."""
        first = self.calls[0]
        every = sorted((*first.step.outside, *others), key=lambda each: each.number)
        first = first.with_step(replace(first.step, outside=tuple(every)))
        return replace(self, calls=(first, *self.calls[1:]))

    def only(self, wanted: Iterable[int]) -> CallSequence:
        """Return the sequence with only the calls of these op_indices.

        Tensors that a removed call returned come from outside then: they are made where it was, if
        a later call uses them. Those that were dropped after it are dropped after the call before.
        """
        kept = set(wanted)
        users = first_users(each for each in self.calls if each.call.op_index in kept)
        found: list[SequenceCall] = []
        coming: list[Outside] = []
        for each in self.calls:
            step = each.step
            if each.call.op_index in kept:
                every = (*coming, *step.outside)
                outside = [
                    users.get(one.number, one)
                    for one in every
                    if one.number in users or one.argument == BALLAST
                ]
                found.append(
                    each.with_step(replace(step, place=len(found), outside=tuple(outside)))
                )
                coming = []
                continue
            known = {one.number for one in (*coming, *step.outside)}
            numbers = [number for _, number in step.outputs if number not in known]
            coming += [*step.outside, *(users[number] for number in numbers if number in users)]
            coming = [one for one in coming if one.number not in step.freed]
            if found:
                before = found[-1].step
                found[-1] = found[-1].with_step(replace(before, freed=(*before.freed, *step.freed)))
        return replace(self, calls=tuple(found))


def plan_sequence(
    reader: TroveReader,
    name: str,
    choice: CallChoice,
    *,
    seed: int = 0,
    timeout_ns: int | None = None,
    residency: bool = False,
) -> CallSequence:
    """Return the chosen calls of a run; NotFound without calls or without their flow.

    With ``residency``, the other tensors that were in memory before them are there, too.
    """
    recorded = recorded_flow(reader, name)
    run_id = recorded.run_id
    (row,) = reader.runs(run_id)
    every = [call for call in recorded.calls if call.depth == 0]
    calls = choice.of(every)
    if not calls:
        span = f"{every[0].op_index} to {every[-1].op_index}" if every else "none"
        raise NotFound(
            f"run {run_id[:12]} has no {choice}; its calls are {span}"
            + (", of " + ", ".join(_tests(every)) if choice.test is not None else "")
        )
    steps = _steps(recorded.flow, every, calls)
    cases = recorded.cases
    device = row.run.environment.device or _usual_device(calls, cases)
    found = []
    for place, (call, step) in enumerate(zip(calls, steps, strict=True)):
        opened = call.device or device
        job = Job(
            case=cases[call.case_id],
            device_kind=DeviceKind.HOST,
            seed=seed + place,
            device=None if opened is None else replace(opened, device_ids=None),
            timeout_ns=timeout_ns,
            outputs=call.outputs if call.outcome is CallOutcome.RETURNED else None,
            recorded_on=row.run.environment.board,
            flow=step,
        )
        board = row.run.environment.board
        found.append(SequenceCall(call, PlannedJob(job, call.case_id, board=board)))
    sequence = CallSequence(row.run, recorded.process, _with_outside(found))
    if not residency:
        return sequence
    alive = alive_before(recorded, calls[0].op_index)
    others = ballast(alive, recorded.flow, first_users(found))
    return sequence.beside(others)


def first_users(calls: Iterable[SequenceCall]) -> dict[int, Outside]:
    """Return all inputs of calls as tensors from outside, for the call that uses them first."""
    found: dict[int, Outside] = {}
    for each in calls:
        numbers = dict(each.step.inputs)
        job = each.planned.job
        for name, value in job.case.arguments:
            for spec in tensors_in(value):
                number = numbers.get(spec.identity)
                if number is not None and number not in found:
                    found[number] = Outside(number, name, spec, job.capsules)
    return found


def _with_outside(calls: Sequence[SequenceCall]) -> tuple[SequenceCall, ...]:
    """Return calls of which the first has the tensors that no earlier call returned."""
    before: set[int] = set()
    returned: set[int] = set()
    for each in calls:
        before |= {number for _, number in each.step.inputs if number not in returned}
        returned |= {number for _, number in each.step.outputs}
    users = first_users(calls)
    first = calls[0]
    others = [each for each in first.step.outside if each.argument == BALLAST]
    wanted = [each for number, each in users.items() if number in before]
    # In the order in which the program made them.
    outside = tuple(sorted((*others, *wanted), key=lambda each: each.number))
    return (first.with_step(replace(first.step, outside=outside)), *calls[1:])


def _tests(calls: Iterable[Call]) -> list[str]:
    return [name for name in dict.fromkeys(call.test_id for call in calls) if name is not None]


def _usual_device(calls: Iterable[Call], cases: Mapping[str, Case]) -> DeviceParameters | None:
    """Return the first device of calls, of which a case may show the mesh alone; None if none."""
    for call in calls:
        job = Job(cases[call.case_id], DeviceKind.HOST, device=call.device)
        if call.device is not None or device_parameters(job).mesh_shape is not None:
            return device_parameters(job)
    return None


def _steps(flow: Flow, every: Sequence[Call], calls: Sequence[Call]) -> list[Step]:
    """Return the steps of calls, each with the tensors that were freed before the next one."""
    starts = [call.op_index for call in every]
    freed: dict[int, list[int]] = {}
    place = 0
    for op_index, numbers in sorted(flow.freed.items()):
        while place + 1 < len(starts) and starts[place + 1] <= op_index:
            place += 1
        freed.setdefault(starts[place] if starts else op_index, []).extend(numbers)
    sharing: dict[int, list[int]] = {}
    for number, buffer in flow.buffers.items():
        sharing.setdefault(buffer, []).append(number)
    found = []
    for place, call in enumerate(calls):
        tensors = flow.call(call.op_index)
        inputs = tuple((i, number) for i, number in tensors.inputs.items() if i != UNKNOWN_PLACE)
        buffers = {flow.buffers[number] for _, number in inputs if number in flow.buffers}
        shared = [
            (number, buffer)
            for buffer in sorted(buffers)
            for number in sharing[buffer]
            if len(sharing[buffer]) > 1
        ]
        found.append(
            Step(
                place,
                inputs,
                tuple(tensors.outputs.items()),
                tuple(shared),
                tuple(freed.get(call.op_index, ())),
            )
        )
    return found


@contextmanager
def with_recorded_values(
    place: Place, sequence: CallSequence, values: str | None
) -> Iterator[CallSequence]:
    """Yield the sequence with the capsules of its calls, where there are some.

    ``values`` is SEED to use no capsules, CAPSULE to raise NotFound without any, or None.
    """
    ids = {each.planned.case_id for each in sequence.calls}
    found = {} if values == SEED else capsules_of(place, ids)
    by_call = {
        capsule.op_index: capsule
        for capsules in found.values()
        for capsule in capsules
        if (capsule.run_id, capsule.process) == (sequence.run.id, sequence.process)
    }
    if values == CAPSULE and not by_call:
        raise NotFound(
            f"run {sequence.run.id[:12]} has no capsule of these calls; record their values with "
            f"{WITH_VALUES}, or leave out --values"
        )
    with local_tensors(place, by_call.values()) as directory:
        calls = []
        for each in sequence.calls:
            capsule = by_call.get(each.call.op_index)
            if capsule is None:
                calls.append(each)
                continue
            capsules = (replace(capsule, directory=str(directory)),)
            job = replace(each.planned.job, capsules=capsules)
            calls.append(replace(each, planned=replace(each.planned, job=job)))
        yield replace(sequence, calls=_with_outside(calls))


def run_sequence(
    sequence: CallSequence,
    target: TargetDevice,
    setup: WorkerSetup,
    *,
    command: Sequence[str] = COMMAND,
) -> Generator[Attempt, None, None]:
    """Execute all calls in one new process, and yield an Attempt at each in their order.

    After a call that does not return, the others are NOT_RUN, unless the recorded one had raised,
    too. A call that cannot be rebuilt is left out; its results come from outside.
    """
    worker = WorkerProcess(setup, command)
    writer = JobWriter()
    ended: int | None = None
    try:
        for each in sequence.calls:
            job = replace(each.planned.job, device_kind=target.device_kind)
            if ended is not None:
                detail = NOT_REACHED.format(op_index=ended)
                yield setup.not_run(job, each.planned.case_id, detail)
                continue
            message = writer.message(job)
            worker.send(message)
            reply = worker.receive()
            task = Task(job, setup, device_key(job, setup.board))
            attempt = attempt_from_reply(task, message.case_id, reply)
            returned = attempt.outcome in RAN or attempt.outcome is Outcome.NOT_RUN
            if not isinstance(reply, Attempt):
                ended = each.call.op_index
            elif not returned and each.call.outcome is CallOutcome.RAISED:
                attempt = replace(attempt, notes=(*attempt.notes, AS_RECORDED))
            elif not returned:
                ended = each.call.op_index
            yield attempt
    finally:
        worker.end()


@dataclass(frozen=True, slots=True)
class ReplayedSequence:
    """The results of a sequence, one Attempt per call."""

    sequence: CallSequence
    target: TargetDevice
    attempts: tuple[Attempt, ...]

    @property
    def pairs(self) -> Iterator[tuple[SequenceCall, Attempt]]:
        """The calls with their Attempts."""
        return zip(self.sequence.calls, self.attempts, strict=True)

    @property
    def failure(self) -> tuple[SequenceCall, Attempt] | None:
        """The first call that failed, with its Attempt; None if none did."""
        return next((pair for pair in self.pairs if _is_failure(pair[1])), None)

    @property
    def ran(self) -> bool:
        """Whether any call ran."""
        return any(each.outcome is not Outcome.NOT_RUN for each in self.attempts)

    @property
    def same_cases(self) -> bool:
        """Whether all calls, as traced while they ran, had the recorded hashes in their order."""
        return all(each.replayed_case_id == each.case_id for each in self.attempts)

    @property
    def passed(self) -> bool:
        """Whether all calls ran as recorded, and none failed."""
        return self.failure is None and self.same_cases


def target_of(
    sequence: CallSequence, asked: tuple[DeviceKind | None, str | None, str | None]
) -> TargetDevice:
    """Return the device of a sequence that was asked for, as ``group_by_device`` takes it.

    NotReplayable if its calls need different devices, or none of them the one of ttnn.
    """
    check_device((each.planned for each in sequence.calls), *asked)
    groups = group_by_device((each.planned for each in sequence.calls), *asked)
    if len(groups) > 1:
        names = ", ".join(map(str, groups))
        raise NotReplayable(f"the calls need several devices at once: {names}; choose fewer calls")
    (target,) = groups
    return target


def _is_failure(attempt: Attempt) -> bool:
    harmless = (Outcome.PASSED, Outcome.NOT_RUN)
    return attempt.outcome not in harmless and AS_RECORDED not in attempt.notes


def replay_sequence(
    sequence: CallSequence,
    asked: tuple[DeviceKind | None, str | None, str | None],
    log: Callable[[str], object] = lambda _: None,
    *,
    to_failure: bool = False,
    command: Sequence[str] = COMMAND,
) -> ReplayedSequence:
    """Execute a sequence on the device that was asked for; NotReplayable as for ``target_of``.

    With ``to_failure``, it ends with the first call that fails.
    """
    target = target_of(sequence, asked)
    reason = "" if target.reason is None else f": {target.reason}"
    log(f"on {target}{reason}")
    setup = WorkerSetup(sequence.run.id, target.device_kind, target.board)
    attempts: list[Attempt] = []
    with closing(run_sequence(sequence, target, setup, command=command)) as running:
        for attempt in running:
            attempts.append(attempt)
            if to_failure and _is_failure(attempt):
                break
    executed = replace(sequence, calls=sequence.calls[: len(attempts)])
    return ReplayedSequence(executed, target, tuple(attempts))
