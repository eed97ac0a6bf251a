"""The commands that execute recorded cases, and compare the results of releases.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from dataclasses import replace as changed
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from optrove.cli.options import (
    call_choice,
    case_filters,
    device_options,
    fail_on_option,
    inputs_option,
    json_option,
    log,
    log_recovered,
    model_option,
    nanoseconds,
    numerics_option,
    op_option,
    residency_option,
    resume_option,
    run_option,
    running_options,
    scale_option,
    sequence_options,
    show,
    store_option,
    take_device,
    values_if_any_option,
)
from optrove.cli.progress import case_progress
from optrove.model.exit_codes import COULD_NOT, FAIL_ON, FAILED, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from optrove.model.case import Case
    from optrove.model.exit_codes import Reason
    from optrove.model.records import AttemptedCase, Counts, DeviceKind, Sweep
    from optrove.model.trove import RunProgress
    from optrove.replay.check_board import AdaptedPlan
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.environments import Environments, Release
    from optrove.replay.planning import PlannedJob
    from optrove.replay.sequence import CallChoice
    from optrove.report.document import Node
    from optrove.sweep.sweeping import Engine, SweepRun
    from optrove.trove.place import Place

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(slots=True)
class ReplaySession:
    """Cases by device, and the attempts at them; ``place`` is the trove that stores them.

    ``begun`` is the Run in the trove if it was resumed; ``done`` are then its earlier attempts.
    """

    groups: Mapping[TargetDevice, Sequence[PlannedJob]]
    source: str
    place: Place | None = None
    store: str | None = None
    request: Sweep | None = None
    begun: SweepRun | None = None
    left_out: Counts = ()
    fail_on: frozenset[Reason] = FAIL_ON
    done: list[AttemptedCase] = field(default_factory=list)
    interrupted: bool = False
    progress: RunProgress | None = None

    @property
    def planned(self) -> list[PlannedJob]:
        """All cases on all devices."""
        return [planned for cases in self.groups.values() for planned in cases]

    @property
    def runs(self) -> list[str]:
        """The ids of the runs in the trove."""
        return [] if self.begun is None else [self.begun.run.id]

    @property
    def first_case(self) -> Case:
        """The case of the first attempt."""
        from optrove.serializer.described import case_of

        first = self.done[0]
        jobs = (each.job for each in self.planned if each.case_id == first.attempt.case_id)
        return next((job.case for job in jobs), None) or case_of(first.content)

    @property
    def exit(self) -> Exit:
        """How the command ends."""
        whole = self.progress is not None and self.progress.complete
        return Exit.of(
            self.done, fail_on=self.fail_on, complete=whole, interrupted=self.interrupted
        )

    def execute(
        self, jobs: int | None, what: str, begin: str = "", engine: Engine | None = None
    ) -> None:
        """Execute all cases and show the progress; an interrupt leaves the rest as not run.

        The lines that name the devices begin with ``begin``. The default ``engine`` are processes
        of this machine.
        """
        from optrove.model.trove import RunProgress, RunState
        from optrove.replay.replay import unattempted
        from optrove.sweep.planning import LOCAL
        from optrove.sweep.sweeping import engine_named, finished, swept

        for target in self.groups:
            reason = "" if target.reason is None else f": {target.reason}"
            log(f"{begin}on {target}{reason}")
        total = len(self.planned) + len(self.done)
        with case_progress(len(self.planned), what) as progress, ExitStack() as stack:
            engine = engine or stack.enter_context(engine_named(LOCAL))
            try:
                for begun in self._begin():
                    place = None if self.begun is None else self.place
                    attempts = stack.enter_context(
                        closing(swept(begun, place, engine, jobs=jobs, log=progress.log))
                    )
                    for attempted in attempts:
                        self.done.append(attempted)
                        progress.advance(passed=attempted.passed, ran=attempted.ran)
            except KeyboardInterrupt:
                self.interrupted = True
        state = RunState.INTERRUPTED if self.interrupted else RunState.COMPLETE
        self.progress = RunProgress(state, len(self.done), total)
        if self.begun is not None and self.place is not None:
            self.progress = finished(self.place, self.begun.run, self.fail_on).progress
        if self.interrupted:
            self.done += unattempted(self.groups, self.done)

    def _begin(self) -> list[SweepRun]:
        """Return what is to be executed; its plan is in the trove, if that can be written."""
        from optrove.errors import UnusableTrove
        from optrove.model.records import RunKind, Sweep
        from optrove.sweep.sweeping import begin, unstored
        from optrove.sweep.vectors import SweepPlan

        if self.begun is None and self.place is not None:
            where = {each.case_id: target for target in self.groups for each in self.groups[target]}
            plan = SweepPlan(tuple(self.planned), self.left_out, where=where)
            try:
                request = self.request or Sweep()
                self.begun = begin(self.place, request, plan, self.source, RunKind.REPLAY)
            except UnusableTrove as error:
                log(f"the results are not stored: {error}")
        if self.begun is not None:
            return [self.begun]
        return unstored(self.groups, self.source, self.request or Sweep())

    def command(self, done: AttemptedCase) -> str | None:
        """Return the command that replays a case again; None if it is not in a trove."""
        from optrove.report.attempts import is_beside, replay_command

        # Results beside other tensors are not stored, but their cases are.
        if self.place is None and not is_beside(done.attempt):
            return None
        return replay_command(done.attempt, self.store)

    def state(self) -> Iterator[Node]:
        """Yield the state of the run, unless all of it was done."""
        from optrove.report.results import state_paragraph

        if self.progress is not None:
            run = None if self.begun is None else self.begun.run
            yield from state_paragraph(self.progress, run)

    def kept(self) -> Iterator[Node]:
        """Yield the runs that were written to the trove, and the reasons of the exit code."""
        from optrove.report.document import Paragraph
        from optrove.report.results import exit_paragraph
        from optrove.report.wording import SHORT_ID

        for run in self.runs:
            yield Paragraph(f"stored as run {run[:SHORT_ID]} of {self.place}")
        yield from exit_paragraph(self.exit)

    def data(self) -> dict[str, Any]:
        """Return the facts of the execution besides its results."""
        from optrove.frameworks.installed import version_of
        from optrove.report.results import exit_data

        return {
            "runs": self.runs,
            "store": None if self.place is None else str(self.place),
            "interrupted": self.interrupted,
            "complete": self.progress is not None and self.progress.complete,
            "state": None if self.progress is None else self.progress.state.value,
            "attempted": None if self.progress is None else self.progress.done,
            "ttnn_version": version_of("ttnn"),
            **exit_data(self.exit),
        }


def _resumed(
    store: str | None,
    place: Place | None,
    request: Sweep,
    kind: str,
    fail_on: frozenset[Reason],
) -> ReplaySession | None:
    """Return the unfinished run with the same options, and its attempts; None without one."""
    from optrove.replay.planning import planned_by_id
    from optrove.report.results import results_of
    from optrove.sweep.sweeping import resumed, resumed_text
    from optrove.trove.opening import reading

    with reading(store, log_recovered) as reader:
        begun = resumed(reader, request, kind)
        done = () if begun is None else results_of(reader, begun.run).results
        known = {
            each.case_id: each
            for each in planned_by_id(reader, (one.attempt.case_id for one in done))
        }
    if begun is None:
        log(f"there is no such {kind} to resume; starting a new one")
        return None
    log(resumed_text(begun))
    groups: dict[TargetDevice, list[PlannedJob]] = {}
    for planned in begun.left.vectors:
        groups.setdefault(begun.left.where[planned.case_id], []).append(planned)
    before = [
        changed(each, recorded_on=facts.board, raised=facts.raised)
        for each in done
        if (facts := known[each.attempt.case_id])
    ]
    left_out = begun.sweep.left_out
    source = begun.run.source
    return ReplaySession(groups, source, place, store, request, begun, left_out, fail_on, before)


def _request(
    name: str | None,
    chosen: dict[str, Any],
    target: tuple[DeviceKind | None, str | None, str | None],
    values: str,
    running: Mapping[str, Any],
    *,
    every: bool = True,
) -> Sweep:
    """Return the options of the command as they are stored with the run."""
    from optrove.model.records import Sweep
    from optrove.sweep.planning import filters_of
    from optrove.trove.query import CaseFilters

    filters = filters_of(CaseFilters(**chosen))
    return Sweep(
        targets=() if name is None else (name,),
        filters=(*filters, *(() if every or name is None else (("most_called", str(True)),))),
        device_kind=target[0],
        board=target[1],
        torch=target[2],
        values=values,
        **running,
    )


@click.command()
@click.argument("name", metavar="[OP|CASE|RUN]", required=False)
@click.option("--all", "every", is_flag=True, help="All cases, not only the most called one.")
@resume_option
@click.option("--jsonl", metavar="FILE", type=_FILE, help="Take the case from a file of op lines.")
@click.option(
    "--index",
    metavar="N",
    type=click.IntRange(min=0),
    help="Number of the line, from 0  [default: 0]",
)
@sequence_options
@residency_option
@device_options()
@scale_option
@values_if_any_option
@inputs_option
@running_options
@case_filters("--recorded-on", "board")
@fail_on_option
@store_option
@json_option
def replay(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str | None,
    every: bool,
    resume: bool,
    jsonl: Path | None,
    index: int | None,
    call_range: tuple[int | None, int | None] | None,
    test_id: str | None,
    last: int | None,
    residency: bool,
    mock_board: str | None,
    scale: str | None,
    values: str | None,
    inputs: str,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    fail_on: frozenset[Reason],
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Execute recorded cases again, and show the results.

    OP (its most called case, or with --all every case), CASE and the filters are those of "optrove
    show". Without --board, OPTROVE_BOARD or --device, a case runs on the board of this machine,
    else on a mock of the board on which it was recorded. With --device shadow, sim or hw, numbers
    are compared with the golden functions. The replayed call is traced, and must be the recorded
    one. Cases of torch run on their recorded device, or on that of --device or --map, and are
    compared with the same op in float64 on the CPU. Results are stored in the trove.

    --scale small runs each op at the smallest shapes that ttnn accepts on a mock board, with the
    same layouts, dtypes, kinds of memory and kinds of program configurations. These are not the
    recorded cases: the output says what was scaled, and results are not stored.

    --values capsule uses the recorded inputs of calls that "optrove trace --capsule" kept: each
    case is executed with one after another until one does not pass.

    With --calls, --test or --last, the argument is a RUN that was traced with --flow, and the
    calls are executed as one program: outputs become inputs as recorded, and memory is freed where
    the program freed it. Numbers are compared with the golden functions of all calls so far. These
    results are not stored.

    The exit code is 0 if all cases passed, 1 if any failed or was not run, 2 if none could run. A
    case whose recording lost a value does not count; --fail-on chooses what does.

    \b
    Example:
      optrove replay matmul
      optrove replay 1f3a9c02d4e5 --device shadow
      optrove replay --all --device sim --board n150 --scale small
      optrove replay 'ttnn.experimental.*' --all --board bh-galaxy --jobs 4
      optrove replay --all
      optrove replay 5f2e81 --calls 120:135 --device shadow
      optrove replay --jsonl op_calls.jsonl --index 0
      optrove replay addmm --all --compile inductor
    """
    from optrove.model.records import Inputs
    from optrove.replay.capsules import SEED, with_values
    from optrove.replay.device_choice import check_device, group_by_device, resolve_device
    from optrove.replay.planning import cases_in_lines
    from optrove.report.replays import board_data, replay_document
    from optrove.trove.opening import located

    if call_range is not None or test_id is not None or last is not None:
        _replay_sequence(
            name,
            call_choice(call_range, test_id, last),
            (mock_board, values, store),
            chosen,
            unused=(every, resume, jsonl, index, scale, jobs, fail_on != FAIL_ON),
            running={
                "seed": seed,
                "timeout_ns": nanoseconds(timeout),
                "residency": residency,
            },
            as_json=as_json,
        )
    name = "*" if name is None and jsonl is None and every else name
    kind, torch = take_device(chosen)
    _check(name, jsonl, index, chosen, every=every, resume=resume)
    target = (*resolve_device(kind, mock_board), torch)
    running: dict[str, Any] = {"seed": seed, "timeout_ns": nanoseconds(timeout)}
    values = values or SEED
    as_recorded = jsonl is None and scale is None
    if residency and not as_recorded:
        raise click.UsageError("--residency is for cases of a trove, as they were recorded")
    if values != SEED and not as_recorded:
        raise click.UsageError("--values capsule is for cases of a trove, as they were recorded")
    # Results beside other tensors are not those of the case alone.
    place = located(store) if as_recorded and not residency else None
    request = _request(
        name, chosen, target, values, {**running, "inputs": Inputs(inputs)}, every=every
    )
    done = _resumed(store, place, request, "replay", fail_on) if resume else None
    if done is None:
        if jsonl is not None:
            cases = cases_in_lines(jsonl, None if every else index or 0, **running)
        else:
            cases = _in_trove(store, {"name": name or "*", **chosen}, every=every, **running)
        if residency:
            cases = _beside(store, cases)
        check_device(cases, *target)
        with with_values(located(store), cases, values if place is None else SEED) as valued:
            groups = _scaled(group_by_device(valued, *target), scale)
            source = f"replay {name or jsonl}"
            done = ReplaySession(groups, source, place, store, request, fail_on=fail_on)
            done.execute(jobs, "replaying")
    else:
        done.execute(jobs, "replaying")
    show(
        chain(
            done.state(),
            replay_document(done.done, done.first_case, done.command),
            # The verdict of a single case says it all.
            done.kept() if len(done.done) > 1 else (),
        ),
        lambda: {**board_data(done.done, (), done.command), **done.data()},
        as_json=as_json,
    )
    sys.exit(done.exit.code)


def _beside(store: str | None, cases: Sequence[PlannedJob]) -> tuple[PlannedJob, ...]:
    """Return cases that run beside the tensors which were in memory in a model."""
    from optrove.replay.residency import Residency
    from optrove.trove.opening import reading

    with reading(store, log_recovered) as reader:
        residency = Residency(reader)
    return tuple(residency.beside(each) for each in cases)


def _replay_sequence(  # noqa: PLR0913 - the options of the command
    name: str | None,
    choice: CallChoice,
    given: tuple[str | None, str | None, str | None],
    chosen: dict[str, Any],
    *,
    unused: tuple[object, ...],
    running: dict[str, Any],
    as_json: bool,
) -> NoReturn:
    """Execute a stretch of the calls of a run, and end the command."""
    from optrove.replay.device_choice import resolve_device
    from optrove.replay.sequence import plan_sequence, replay_sequence, with_recorded_values
    from optrove.replay.sequence_documents import sequence_data, sequence_document
    from optrove.trove.opening import located, reading

    mock_board, values, store = given
    kind, torch = take_device(chosen)
    if name is None or any(unused) or any(chosen.values()):
        raise click.UsageError(
            "--calls, --test and --last choose calls of one run: name the run, and leave out "
            "--all, --jsonl, --index, --scale, --jobs, --fail-on and filters"
        )
    target = (*resolve_device(kind, mock_board), torch)
    with reading(store, log_recovered) as reader:
        sequence = plan_sequence(reader, name, choice, **running)
    with with_recorded_values(located(store), sequence, values) as valued:
        done = replay_sequence(valued, target, log)
    show(sequence_document(done), lambda: sequence_data(done), as_json=as_json)
    sys.exit(0 if done.passed else FAILED if done.ran else COULD_NOT)


def _scaled(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]], scale: str | None
) -> Mapping[TargetDevice, Sequence[PlannedJob]]:
    """Return the cases scaled down if asked; they are then other cases, and are not stored."""
    if scale is None:
        return groups
    from optrove.model.records import DeviceKind
    from optrove.testgen.scale import scale_cases

    if any(target.device_kind is DeviceKind.HARDWARE for target in groups):
        raise click.UsageError(
            "--scale is for devices without hardware: add --device sim, mock or shadow"
        )
    return scale_cases(groups, log)


def _check(
    name: str | None,
    jsonl: Path | None,
    index: int | None,
    chosen: Mapping[str, object],
    *,
    every: bool,
    resume: bool,
) -> None:
    if resume and jsonl is not None:
        raise click.UsageError("--resume is for cases of a trove; leave out --jsonl")
    if resume and name is None:
        return
    if (name is None) == (jsonl is None):
        raise click.UsageError(
            "name an op or a case of the trove, or give --all or --jsonl FILE"
            if name is None
            else "a name means a case of the trove, and --jsonl FILE a line of a file: give one"
        )
    if index is not None and jsonl is None:
        raise click.UsageError("--index counts the lines of a file: add --jsonl FILE")
    if index is not None and every:
        raise click.UsageError("--index means one line and --all every one: give one of them")
    if jsonl is not None and any(chosen.values()):
        raise click.UsageError("filters choose cases of a trove; --jsonl has --index and --all")


def _in_trove(
    store: str | None, chosen: dict[str, Any], *, every: bool, **running: Any
) -> tuple[PlannedJob, ...]:
    from optrove.replay.planning import cases_named
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters

    with reading(store, log_recovered) as reader:
        cases, count = cases_named(reader, CaseFilters(**chosen), every=every, **running)
    if count > len(cases):
        log(f"the most called of {count:,} cases; --all replays each")
    return cases


@click.command("check-board")
@click.argument("board", metavar="BOARD")
@op_option
@model_option
@run_option
@resume_option
@click.option("--adapt", is_flag=True, help="Adapt failing cases to the board, and try again.")
@click.option(
    "--device",
    type=click.Choice(("mock", "sim")),
    default="mock",
    show_default=True,
    help="Mock board, or simulated board with real kernels (OPTROVE_SIM).",
)
@scale_option
@residency_option
@running_options
@fail_on_option
@store_option
@json_option
def check_board(  # noqa: PLR0913 - one for each option of the command
    *,
    board: str,
    resume: bool,
    adapt: bool,
    device: str,
    scale: str | None,
    residency: bool,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    fail_on: frozenset[Reason],
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Check which cases of a trove run on a board, and why others do not.

    ttnn executes every case on the mock board as recorded, and accepts it, rejects it, or runs out
    of memory. Failures are grouped by cause, with a command that replays an example. Each result
    is stored in the trove at once. --adapt tries failing cases again with DRAM shards on the banks
    of this board, as many links as it has, and on one chip if it has too few; these results are
    shown separately and not stored.

    With --device sim, the kernels run and numbers are compared with the golden functions; add
    --scale small for cases that are too large for a simulator (see "optrove replay --help").

    A case may fit into empty memory but not beside the other tensors of its model. --residency
    first allocates the tensors that were in memory when a run with --flow called it, at the time
    when they took the most L1. These results are not stored.

    The exit code is 0 if the board accepts all cases, 1 if not, 2 if none ran. A case whose
    recording lost a value does not count; --fail-on chooses what does.

    \b
    Example:
      optrove check-board bh-galaxy
      optrove check-board p150 --model llama --jobs 8 --json
    """
    from optrove.frameworks.ttnn.board.table import find_board
    from optrove.model.records import CHECK_BOARD
    from optrove.replay.capsules import SEED
    from optrove.replay.check_board import (
        adapted_data,
        adapted_document,
        chips_document,
        plan_for_board,
    )
    from optrove.replay.device_choice import resolve_device
    from optrove.report.replays import board_data, board_document
    from optrove.trove.opening import located, reading
    from optrove.trove.query import CaseFilters

    name = find_board(board).name
    kind, _ = resolve_device(device, name)
    if residency and scale is not None:
        raise click.UsageError("--residency is for cases as they were recorded: leave out --scale")
    place = located(store) if scale is None and not residency else None
    if resume and place is None:
        raise click.UsageError("--resume continues stored results: leave out --scale, --residency")
    running: dict[str, Any] = {"seed": seed, "timeout_ns": nanoseconds(timeout)}
    request = _request(None, chosen, (kind, name, None), SEED, running)
    done = _resumed(store, place, request, CHECK_BOARD, fail_on) if resume else None
    if done is None:
        with reading(store, log_recovered) as reader:
            groups, left_out = plan_for_board(reader, CaseFilters(**chosen), name, kind, **running)
        if residency:
            groups = {target: list(_beside(store, cases)) for target, cases in groups.items()}
        source = f"{CHECK_BOARD} {name}"
        done = ReplaySession(_scaled(groups, scale), source, place, store, request)
        done.left_out, done.fail_on = left_out, fail_on
    left_out = done.left_out
    done.execute(jobs, f"checking {name}")
    adapted = _adapted(done, name, jobs) if adapt and not done.interrupted else None
    show(
        chain(
            done.state(),
            board_document(done.done, left_out, done.command),
            adapted_document(*adapted) if adapted else chips_document(done.planned, name),
            done.kept(),
        ),
        lambda: {
            **board_data(done.done, left_out, done.command),
            "adapted": adapted_data(*adapted) if adapted else None,
            **done.data(),
        },
        as_json=as_json,
    )
    sys.exit(done.exit.code)


def _adapted(
    done: ReplaySession, board: str, jobs: int | None
) -> tuple[list[AttemptedCase], AdaptedPlan]:
    """Execute the cases that the board does not accept again, adapted to it."""
    from optrove.replay.check_board import plan_adapted

    failed = {each.attempt.case_id for each in done.done if not each.passed}
    (kind,) = {target.device_kind for target in done.groups}
    plan = plan_adapted((each for each in done.planned if each.case_id in failed), board, kind)
    again = ReplaySession(plan.groups, "adapted")
    if plan.groups:
        again.execute(jobs, f"adapted to {board}", "again, adapted: ")
    return again.done, plan


@click.command("check-release")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@fail_on_option
@store_option
@json_option
def check_release(
    *, a: str, b: str, fail_on: frozenset[Reason], store: str | None, as_json: bool
) -> None:
    """Compare the results of two releases of ttnn: broken, fixed and moved cases.

    A and B are each the beginning of a run's id ("optrove runs"), a trove by path or URL (its
    newest run of cases), or a file written by check-board --json or replay --json. A broken
    case passed in A and fails in B. Cases that did not run on one side say nothing about ttnn, and
    are counted separately.

    The exit code is 1 if anything is worse in B (broken, a lower PCC, or slower on the same kind of
    real board), if B is incomplete, or if its machine kept cases of A from running; 2 if no case
    ran in both. --fail-on chooses what counts.

    \b
    Example:
      optrove check-board galaxy --json > old.json
      pip install --upgrade ttnn
      optrove check-board galaxy --json > new.json
      optrove check-release old.json new.json
    """
    from optrove.report.releases import compare_named, release_data, release_document
    from optrove.report.results import exit_data, exit_paragraph

    found = compare_named((a, b), store, log_recovered)
    ending = found.exit(fail_on)
    show(
        chain(release_document(found), exit_paragraph(ending)),
        lambda: {**release_data(found), **exit_data(ending)},
        as_json=as_json,
    )
    sys.exit(ending.code)


@click.command()
@click.argument("name", metavar="[CASE|RUN|OP]", required=False)
@click.option("--good", metavar="RELEASE", required=True, help="Release with the good result.")
@click.option("--bad", metavar="RELEASE", required=True, help="Release with the bad result.")
@click.option(
    "--command", metavar="COMMAND", help="Run this command with each release; exit code 0 is good."
)
@click.option(
    "--python-package",
    "package",
    metavar="NAME",
    default="ttnn",
    show_default=True,
    help="Package whose releases are tested.",
)
@click.option("--pre", is_flag=True, help="Also test pre-releases.")
@click.option("--keep", is_flag=True, help="Keep the environments for later bisections.")
@device_options(torch=False)
@running_options
@store_option
@json_option
def bisect(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str | None,
    good: str,
    bad: str,
    command: str | None,
    package: str,
    pre: bool,
    keep: bool,
    device: str | None,
    mock_board: str | None,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Find the release of ttnn that changed the result of cases.

    This is a binary search over the releases of the package index (PIP_INDEX_URL). Each release is
    installed with uv or pip into its own environment; everything else comes from this one. RUN
    means every case of a run, OP every case of an op; cases share environments. With --command,
    the exit code of a shell command decides instead: 0 is good, 125 skips the release. Each change
    is tested twice. The environments are removed at the end, unless you pass --keep.

    The exit code is 1 if a result changed, 0 if none did, 2 if no case ran with both releases.

    \b
    Example:
      optrove bisect 1f3a9c02d4e5 --good 0.76 --bad 0.81.1
      optrove bisect matmul --good 0.78 --bad 0.81.1 --device shadow --keep
      optrove bisect --command "pytest -x tests/test_mlp.py" --good 0.78 --bad 0.81.1
    """
    from optrove.replay.bisect import (
        COMMAND,
        bisection_data,
        bisection_document,
        case_evaluation,
        check_ends,
        command_evaluation,
    )
    from optrove.replay.bisect import (
        bisect as bisect_releases,
    )
    from optrove.replay.environments import Environments, releases_between

    if (name is None) == (command is None):
        raise click.UsageError("name a case, a run or an op, or give --command COMMAND")
    environments = Environments(package, log)
    if command is None:
        groups = _groups_to_bisect(store, str(name), (device, mock_board), seed, timeout)
        ids = [planned.case_id for cases in groups.values() for planned in cases]
        evaluate = case_evaluation(groups, environments, count=jobs or 1, log=log)
    else:
        ids, evaluate = [COMMAND], command_evaluation(command, environments, seconds=timeout)
    releases = releases_between(package, good, bad, pre=pre)
    log(_download_text(releases, environments))
    try:
        versions = [each.version for each in releases]
        found = bisect_releases(package, ids, versions, evaluate, log)
        made = [{"version": each, "path": str(path)} for each, path in environments.used.items()]
    finally:
        if not keep:
            environments.remove()
    check_ends(found)
    show(
        bisection_document(found),
        lambda: {**bisection_data(found), "environments": made if keep else []},
        as_json=as_json,
    )
    sys.exit(FAILED if found.boundaries else 0)


def _groups_to_bisect(
    store: str | None,
    name: str,
    device: tuple[str | None, str | None],
    seed: int,
    timeout: float | None,
) -> Mapping[TargetDevice, Sequence[PlannedJob]]:
    from optrove.replay.bisect import cases_of
    from optrove.replay.device_choice import group_by_device, resolve_device
    from optrove.report.wording import plural
    from optrove.trove.opening import reading

    target = resolve_device(*device)
    with reading(store, log_recovered) as reader:
        cases = cases_of(reader, name, seed=seed, timeout_ns=nanoseconds(timeout))
    groups = group_by_device(cases, *target)
    for where, planned in groups.items():
        log(f"{plural(len(planned), 'case')} on {where}")
    return groups


def _download_text(releases: Sequence[Release], environments: Environments) -> str:
    """Return the size of the releases that a bisection downloads, as a sentence."""
    from math import ceil, log2

    from optrove.replay.environments import download_size

    new = [each for each in releases if not environments.has(each.version)]
    if not new:
        return f"{len(releases):,} releases, all of them in {environments.directory}"
    steps = 2 + ceil(log2(max(1, len(releases) - 1)))
    size = download_size(new[-1])
    each = "" if size is None else f" of about {size / 1e6:,.0f} MB"
    return (
        f"{len(releases):,} releases; up to {min(steps, len(new))} downloads{each}, with "
        f"dependencies, to {environments.directory}"
    )


@click.command("audit-goldens")
@click.argument("names", metavar="[OP...]", nargs=-1)
@click.option(
    "--cases",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="At most N cases of each op.",
)
@click.option(
    "--device",
    type=click.Choice(("shadow", "sim")),
    default="shadow",
    show_default=True,
    help="Mock board with torch numbers, or simulated board with real kernels.",
)
@click.option(
    "--board",
    metavar="NAME",
    help="Mock or simulated board  [default: OPTROVE_BOARD, else the recorded one]",
)
@numerics_option
@running_options
@fail_on_option
@store_option
@json_option
def audit_goldens(  # noqa: PLR0913 - one for each option of the command
    *,
    names: Sequence[str],
    cases: int,
    device: str,
    board: str | None,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    fail_on: frozenset[Reason],
    store: str | None,
    as_json: bool,
) -> None:
    """Find golden functions that are wrong, and checks against them that cannot fail.

    The most called cases of each op are executed with numbers. Then their results are perturbed
    (zeroed, negated, reversed, a tenth of them corrupted), and the check must fail each time; for
    other inputs, it must expect other numbers. Ops without a check are listed with the reason. PCC
    does not detect a result that is twice too large; --json has the measured values.

    With --device sim, the cases are scaled down (see "optrove replay --help") and the real kernels
    run: a golden function whose result differs from the kernel's is wrong.

    The exit code is 1 if a golden function is wrong or a check cannot fail, or if the machine kept
    a case from running; a case without a check does not count. --fail-on chooses what does.

    \b
    Example:
      optrove audit-goldens
      optrove audit-goldens softmax layer_norm --cases 10
      optrove audit-goldens --device sim --board n150
    """
    from optrove.frameworks.ttnn.ops import replaced_goldens
    from optrove.replay.audit import (
        audit_data,
        audit_document,
        cases_to_audit,
        run_audits,
    )
    from optrove.replay.device_choice import group_by_device, resolve_device
    from optrove.report.results import exit_data, exit_paragraph
    from optrove.trove.opening import reading

    target = resolve_device(device, board)
    with reading(store, log_recovered) as reader:
        planned = cases_to_audit(
            reader, names, most=cases, seed=seed, timeout_ns=nanoseconds(timeout)
        )
    groups = group_by_device(planned, *target)
    done = ReplaySession(_scaled(groups, "small" if device == "sim" else None), "audit-goldens")
    done.fail_on = fail_on
    done.execute(jobs, "auditing", engine=run_audits)
    replaced = replaced_goldens()
    show(
        chain(audit_document(done.done, replaced), exit_paragraph(done.exit)),
        lambda: {
            **audit_data(done.done, replaced),
            "interrupted": done.interrupted,
            **exit_data(done.exit),
        },
        as_json=as_json,
    )
    sys.exit(done.exit.code)


COMMANDS: Final = (replay, check_board, check_release, bisect, audit_goldens)
