"""Shrink a failing stretch of calls to the fewest that still fail together.

The call that fails stays. First the shortest end of the stretch that fails is found: its last call,
the last two, four, and so on. Then calls are removed from it in ever smaller groups (delta
debugging), until no single one can go. Each trial runs in a new process, and its result is written
to a file, so that an interrupted search goes on where it was.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable
from optrove.replay.sequence import replay_sequence
from optrove.replay.workers import COMMAND
from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.describe import call_line
from optrove.report.document import Column, Field, Fields, Paragraph, table
from optrove.report.wording import SHORT_ID, clipped, plural
from optrove.serializer.hashes import fingerprint
from optrove.serializer.text import write
from optrove.testgen.shrink import Failure, Limits, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from optrove.model.records import Attempt, DeviceKind
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
    """The fewest calls that fail together; unless ``finished``, a limit was reached."""

    original: CallSequence
    sequence: CallSequence
    failing: SequenceCall
    attempt: Attempt
    trials: int
    finished: bool


class TrialFile:
    """The results of trials in a file; without a path they are forgotten."""

    def __init__(self, path: Path | None, key: Json) -> None:
        """Use the trials of an earlier search with the same key."""
        self._path = path
        self._key = fingerprint(key)
        self._known: dict[Calls, bool] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            data = json.loads(line)
        except ValueError:  # the last line of a search that was killed
            return
        if data.get("search") == self._key:
            self._known[tuple(data["calls"])] = bool(data["fails"])

    def get(self, calls: Calls) -> bool | None:
        """Return whether calls failed in the same way; None if that was not tried."""
        return self._known.get(calls)

    def put(self, calls: Calls, *, fails: bool) -> None:
        """Note the result of a trial."""
        self._known[calls] = fails
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(write({"search": self._key, "calls": list(calls), "fails": fails}))
                stream.write("\n")

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
        every = (*calls, self.failing)
        found = self.known.get(every)
        if found is None:
            if self.is_over():
                return False
            self.trials += 1
            done = replay_sequence(self.sequence.only(every), self.asked, command=self.command)
            found = self.same(done)
            self.known.put(every, fails=found)
            self.log(
                f"{plural(len(every), 'call')}: {'the same failure' if found else 'another end'}"
            )
        return found

    def same(self, done: ReplayedSequence) -> bool:
        failure = done.failure
        if failure is None:
            return False
        each, attempt = failure
        return each.call.op_index == self.failing and failure_of(attempt) == self.wanted

    def is_over(self) -> bool:
        late = self.limits.seconds is not None and (
            time.monotonic() - self.began > self.limits.seconds
        )
        return late or self.trials >= self.limits.trials

    def shortest_end(self, calls: Calls) -> Calls:
        """Return the shortest end of calls that fails, of those with a power of two calls."""
        length = 0
        while length < len(calls):
            end = calls[len(calls) - length :]
            if self.fails(end):
                return end
            length = max(1, 2 * length)
        return calls

    def fewest(self, calls: Calls) -> Calls:
        """Return calls of which none can be removed (delta debugging)."""
        parts = 2
        while calls and not self.is_over():
            size = -(-len(calls) // parts)
            starts = range(0, len(calls), size)
            rest = next(
                (
                    left
                    for left in ((*calls[:at], *calls[at + size :]) for at in starts)
                    if self.fails(left)
                ),
                None,
            )
            if rest is not None:
                calls, parts = rest, max(2, parts - 1)
            elif size == 1:
                break
            else:
                parts = min(len(calls), 2 * parts)
        return calls


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
    done = replay_sequence(sequence, asked, log, command=command)
    if done.failure is None:
        raise NotReplayable(
            f"the {plural(len(done.attempts), 'call')} pass on {done.target}: there is no failure "
            f"to shrink; choose the calls and the device that fail, with --calls, --device, --board"
        )
    failing, attempt = done.failure
    log(f"call {failing.call.op_index} of {failing.op} fails: {VERDICTS[attempt.outcome]}")
    before = tuple(each.call.op_index for each in sequence.calls)
    before = before[: before.index(failing.call.op_index)]
    key = [sequence.run.id, list(before), failing.call.op_index, str(done.target)]
    search = _Search(
        sequence,
        asked,
        limits,
        log,
        TrialFile(trials, key),
        command,
        failing.call.op_index,
        failure_of(attempt),
    )
    calls = search.fewest(search.shortest_end(before))
    finished = not search.is_over()
    if finished:
        search.known.remove()
    found = sequence.only((*calls, failing.call.op_index))
    return ShrunkSequence(sequence, found, failing, attempt, search.trials, finished)


def shrunk_sequence_document(shrunk: ShrunkSequence, files: Sequence[Path]) -> Iterator[Node]:
    """Yield the calls that are left, how they fail, and the reproducer."""
    cause = clipped(shrunk.attempt.cause or UNSAID, _MAX_CAUSE_CHARS)
    verdict = VERDICTS[shrunk.attempt.outcome]
    yield Fields((Field("Fails", f"call {shrunk.failing.call.op_index}: {verdict}: {cause}"),))
    yield table(
        _COLUMNS,
        (
            (str(e.call.op_index), e.op, e.planned.case_id[:SHORT_ID], call_line(e.call))
            for e in shrunk.sequence.calls
        ),
    )
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
        yield Paragraph("write it as a program: the same command with -o FILE.py")


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
        "trials": shrunk.trials,
        "finished": shrunk.finished,
        "files": list(map(str, files)),
    }
