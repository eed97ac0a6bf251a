"""Shrink a failing stretch of calls to the fewest that still fail together.

The call that fails stays. The others without which it does not fail are found one after another:
the latest call from which on the stretch fails is one of them; it stays, and the search goes on
with the calls after it. So each costs about twice the binary logarithm of its distance in trials.
If memory runs out, first all calls go whose results are not in memory any more, and of the others
those with the largest results are tried first.

Then the calls that are left lose arguments that do not matter. Each trial runs in a new process,
and its result is written to a file, so that an interrupted search goes on where it was.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable
from optrove.frameworks.installed import version_of
from optrove.model.memory import DEALLOCATING, tensor_bytes
from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.model.torch_target import TorchTarget
from optrove.model.values import tensors_in
from optrove.replay.sequence import WITH_VALUES, replay_sequence, target_of
from optrove.replay.workers import COMMAND
from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.describe import call_line
from optrove.report.document import Column, Field, Fields, Paragraph, paragraphs, table
from optrove.report.wording import SHORT_ID, clipped, plural
from optrove.serializer.hashes import fingerprint, placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import write
from optrove.testgen.shrink import Failure, Limits, argument_reductions, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.sequence import CallSequence, ReplayedSequence, SequenceCall
    from optrove.report.document import Node
    from optrove.serializer.text import Json

Calls = tuple[int, ...]
_MAX_CAUSE_CHARS: Final = 300
_COLUMNS: Final = (
    Column("call", right=True),
    Column("op", flexible=True),
    Column("case"),
    Column("line", flexible=True),
)


@dataclass(frozen=True, slots=True)
class ShrunkSequence:
    """The fewest calls that fail together; unless ``finished``, a limit was reached.

    ``steps`` say how their arguments were simplified.
    """

    original: CallSequence
    sequence: CallSequence
    failing: SequenceCall
    attempt: Attempt
    target: TargetDevice
    steps: tuple[str, ...]
    trials: int
    finished: bool

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that register the operations of torch with which the calls fail."""
        of_torch = self.target.device_kind is DeviceKind.HOST
        return TorchTarget.parse(self.target.board).imports if of_torch else ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Some calls of a sequence, with changes of their arguments: op_index and words."""

    calls: Calls
    changes: tuple[tuple[int, str], ...] = ()


class TrialFile:
    """The results of trials in a file; without a path they are forgotten."""

    def __init__(self, path: Path | None, key: Json) -> None:
        """Use the trials of an earlier search with the same key."""
        self._path = path
        self._key = fingerprint(key)
        self._known: dict[Candidate, bool] = {}
        self.first: tuple[int, Attempt] | None = None
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            data = json.loads(line)
        except ValueError:  # the last line of a search that was killed
            return
        if data.get("search") != self._key:
            return
        if "first" in data:
            self.first = data["first"], record_from_builtins(data["attempt"], Attempt)
            return
        changes = tuple((call, words) for call, words in data["changes"])
        self._known[Candidate(tuple(data["calls"]), changes)] = bool(data["fails"])

    def get(self, candidate: Candidate) -> bool | None:
        """Return whether calls failed in the same way; None if that was not tried."""
        return self._known.get(candidate)

    def put(self, candidate: Candidate, *, fails: bool) -> None:
        """Note the result of a trial."""
        self._known[candidate] = fails
        changes = [list(each) for each in candidate.changes]
        self._write({"calls": list(candidate.calls), "changes": changes, "fails": fails})

    def put_first(self, attempt: Attempt, call: int) -> None:
        """Note how the whole sequence fails, and with which call."""
        self.first = call, attempt
        bare = replace(attempt, outputs=())
        self._write({"first": call, "attempt": record_to_builtins(bare)})

    def _write(self, data: dict[str, Json]) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(write({"search": self._key, **data}) + "\n")

    def remove(self) -> None:
        """Remove the file of a search that has ended."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Search:
    """One search for the fewest calls that fail like the whole sequence."""

    sequence: CallSequence
    asked: tuple[DeviceKind | None, str | None, str | None]
    limits: Limits
    log: Callable[[str], object]
    known: TrialFile
    command: Sequence[str]
    failing: int
    wanted: Failure
    trials: int = 0
    began: float = field(default_factory=time.monotonic)

    def fails(self, calls: Calls) -> bool:
        """Return whether calls, and the failing one after them, fail in the same way."""
        every = (*sorted(calls), self.failing)
        return self._fails(Candidate(every), self.sequence.only(every))

    def _fails(self, candidate: Candidate, sequence: CallSequence) -> bool:
        found = self.known.get(candidate)
        if found is None:
            if self.is_over():
                return False
            self.trials += 1
            done = replay_sequence(sequence, self.asked, to_failure=True, command=self.command)
            found = self._same(done)
            self.known.put(candidate, fails=found)
            what = [plural(len(candidate.calls), "call"), *(w for _, w in candidate.changes[-1:])]
            self.log(f"{', '.join(what)}: {'the same failure' if found else 'another end'}")
        return found

    def _same(self, done: ReplayedSequence) -> bool:
        failure = done.failure
        if failure is None:
            return False
        each, attempt = failure
        return each.call.op_index == self.failing and failure_of(attempt) == self.wanted

    def is_over(self) -> bool:
        """Return whether a limit was reached."""
        late = self.limits.seconds is not None and (
            time.monotonic() - self.began > self.limits.seconds
        )
        return late or self.trials >= self.limits.trials

    def guilty(self, calls: Calls) -> Calls:
        """Return those of some calls without which the failing one does not fail."""
        kept: Calls = ()
        while calls and not self.fails(kept):
            if self.is_over():
                return (*kept, *calls)
            at = len(calls) - self._shortest_end(kept, calls)
            kept, calls = (*kept, calls[at]), calls[at + 1 :]
        for each in kept:
            rest = tuple(other for other in kept if other != each)
            if self.fails(rest):
                kept = rest
        return kept

    def _shortest_end(self, kept: Calls, calls: Calls) -> int:
        """Return how many of the last calls fail together with those that are kept; all do."""
        passing, failing = 0, 1
        while failing < len(calls) and not self.fails((*kept, *calls[-failing:])):
            passing, failing = failing, 2 * failing
        failing = min(failing, len(calls))
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if self.fails((*kept, *calls[-middle:])):
                failing = middle
            else:
                passing = middle
        return failing

    def simplest(self, sequence: CallSequence) -> tuple[CallSequence, tuple[str, ...]]:
        """Return a sequence without the arguments that do not matter, and what was done to it."""
        indices = tuple(each.call.op_index for each in sequence.calls)
        changes: tuple[tuple[int, str], ...] = ()
        for place, each in enumerate(sequence.calls):
            for reduction in argument_reductions(each.planned.job.case):
                case = sequence.calls[place].planned.job.case
                simpler = reduction.change(case)
                if simpler == case or self.is_over():
                    continue
                tried = (*changes, (each.call.op_index, reduction.words))
                changed = _with_case(sequence, place, simpler)
                if self._fails(Candidate(indices, tried), changed):
                    sequence, changes = changed, tried
        return sequence, tuple(f"call {call}: {words}" for call, words in changes)


def _with_case(sequence: CallSequence, place: int, case: Case) -> CallSequence:
    """Return a sequence with another case of one call, whose outputs are not known then."""
    calls = list(sequence.calls)
    planned = calls[place].planned
    job = replace(planned.job, case=case)
    calls[place] = replace(
        calls[place], planned=replace(planned, job=job, case_id=placement_hash(case))
    )
    unknown = [
        replace(e, planned=replace(e.planned, job=replace(e.planned.job, outputs=None)))
        for e in calls
    ]
    return replace(sequence, calls=tuple(unknown))


def _in_memory(sequence: CallSequence, failing: int) -> Calls:
    """Return the calls before the failing one whose results are in memory, the largest last."""
    made: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for each in sequence.calls:
        if each.call.op_index == failing:
            break
        step = each.step
        specs = (spec for value in each.call.outputs for spec in tensors_in(value))
        sizes[each.call.op_index] = sum(map(tensor_bytes, specs))
        made |= {number: each.call.op_index for _, number in step.outputs if number not in made}
        gone = {*step.freed, *(n for _, n in step.inputs if each.op in DEALLOCATING)}
        made = {number: call for number, call in made.items() if number not in gone}
    return tuple(sorted({*made.values()}, key=lambda call: (sizes[call], call)))


def shrink_sequence(
    sequence: CallSequence,
    asked: tuple[DeviceKind | None, str | None, str | None],
    limits: Limits,
    log: Callable[[str], object] = lambda _: None,
    *,
    trials: Path | None = None,
    command: Sequence[str] = COMMAND,
) -> ShrunkSequence:
    """Return the fewest calls of a sequence that fail as it does, on the same device.

    ``trials`` is the file of results with which an interrupted search goes on. NotReplayable if
    the sequence does not fail.
    """
    target = target_of(sequence, asked)
    indices = tuple(each.call.op_index for each in sequence.calls)
    job = sequence.calls[0].planned.job
    kept = [each.planned.job.capsules != () for each in sequence.calls]
    software = [version_of("ttnn"), version_of("torch")]
    key = [sequence.run.id, list(indices), str(target), job.seed, kept, software]
    known = TrialFile(trials, key)
    failing, attempt = _first_failure(sequence, asked, known, log, command)
    log(f"call {failing.call.op_index} of {failing.op} fails: {VERDICTS[attempt.outcome]}")
    wanted = failure_of(attempt)
    search = _Search(*(sequence, asked, limits, log, known, command, failing.call.op_index, wanted))
    before = indices[: indices.index(failing.call.op_index)]
    if attempt.outcome is Outcome.OUT_OF_MEMORY:
        full = _in_memory(sequence, failing.call.op_index)
        before = full if search.fails(full) else before
    found = sequence.only((*search.guilty(before), failing.call.op_index))
    steps: tuple[str, ...] = ()
    if attempt.outcome is not Outcome.WRONG_SPEC:
        found, steps = search.simplest(found)
    finished = not search.is_over()
    if finished:
        known.remove()
    return ShrunkSequence(
        sequence, found, failing, attempt, target, steps, search.trials, finished=finished
    )


def _first_failure(
    sequence: CallSequence,
    asked: tuple[DeviceKind | None, str | None, str | None],
    known: TrialFile,
    log: Callable[[str], object],
    command: Sequence[str],
) -> tuple[SequenceCall, Attempt]:
    """Return the call with which a sequence fails, as an earlier search has found it, or anew."""
    if known.first is None:
        done = replay_sequence(sequence, asked, log, to_failure=True, command=command)
        if done.failure is None:
            has_values = any(each.planned.job.capsules for each in sequence.calls)
            raise NotReplayable(
                f"the {plural(len(done.attempts), 'call')} pass on {done.target}: there is no "
                f"failure to shrink; choose the calls and the device that fail, with --calls, "
                f"--device, --board"
                + ("" if has_values else f", or record real inputs: {WITH_VALUES}")
            )
        failing, attempt = done.failure
        known.put_first(attempt, failing.call.op_index)
        return failing, attempt
    call, attempt = known.first
    log("an interrupted search goes on")
    return next(each for each in sequence.calls if each.call.op_index == call), attempt


def shrunk_sequence_document(shrunk: ShrunkSequence, files: Sequence[Path]) -> Iterator[Node]:
    """Yield the calls that are left, how they fail, and the reproducer."""
    cause = clipped(shrunk.attempt.cause or UNSAID, _MAX_CAUSE_CHARS)
    verdict = VERDICTS[shrunk.attempt.outcome]
    yield Fields((Field("Fails", f"call {shrunk.failing.call.op_index}: {verdict}: {cause}"),))
    yield table(
        _COLUMNS,
        (
            (str(e.call.op_index), e.op, e.call.case_id[:SHORT_ID], call_line(e.call))
            for e in shrunk.sequence.calls
        ),
    )
    yield from paragraphs(shrunk.steps)
    total = plural(len(shrunk.original.calls), "call")
    limit = (
        ""
        if shrunk.finished
        else "; a limit was reached, more may be possible (--trials, --timeout)"
    )
    trials = plural(shrunk.trials, "sequence")
    yield Paragraph(f"{len(shrunk.sequence.calls):,} of {total}; {trials} tried{limit}")
    if files:
        yield Paragraph(f"reproducer: {', '.join(map(str, files))}")
    else:
        yield Paragraph("write it as a program: the same command with -o FILE.py or FILE.zip")


def shrunk_sequence_data(shrunk: ShrunkSequence, files: Sequence[Path]) -> dict[str, Json]:
    """Return a shrunk sequence; ``docs/command-line.md`` describes the keys."""
    return {
        "run": shrunk.original.run.id,
        "outcome": shrunk.attempt.outcome.value,
        "cause": shrunk.attempt.cause,
        "failing": shrunk.failing.call.op_index,
        "calls": [
            {"call": e.call.op_index, "op": e.op, "case_id": e.planned.case_id}
            for e in shrunk.sequence.calls
        ],
        "of": len(shrunk.original.calls),
        "steps": list(shrunk.steps),
        "trials": shrunk.trials,
        "finished": shrunk.finished,
        "files": list(map(str, files)),
    }
