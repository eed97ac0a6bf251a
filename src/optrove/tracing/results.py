"""The result of tracing one target: its text, its JSON, its error and hints."""

from __future__ import annotations

import shlex
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, OptroveError
from optrove.frameworks.ttnn.board.table import DEVICE_DIRECTORY
from optrove.interop.importing import import_all
from optrove.model.exit_codes import COULD_NOT, FAILED
from optrove.model.records import DeviceKind, TestOutcome
from optrove.replay.device_choice import has_board
from optrove.report.document import Command, paragraphs
from optrove.report.listings import source_text
from optrove.report.summary import (
    TraceSummary,
    in_flight_document,
    summarize,
    summary_data,
    summary_document,
)
from optrove.report.wording import SHORT_ID, plural
from optrove.tracing.recorded import Recorded, read_recorded, write_journal_lines
from optrove.trove.opening import located, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from optrove.model.ops import Counting
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered

TRACE: Final = "--"
PLUGIN: Final = "--optrove-"
"""The prefixes of board options: of ``optrove trace``, and of pytest."""

USAGE_ERROR: Final = 4
NO_TESTS: Final = 5
"""Exit codes of pytest for a target that it does not know, and for one without tests."""

_OF_SIGNALS: Final = 128
"""What a shell adds to the number of the signal that killed a program."""

_LAST_CALLS: Final = 20
"""How many calls the suggested replay has, with the one in flight."""

_WITHOUT_FAILURE: Final = (0, USAGE_ERROR, NO_TESTS)
"""Exit codes for which a missing board is not the cause."""


def hints(summary: TraceSummary, exit_code: int, options: str = TRACE) -> tuple[str, ...]:
    """Return hints for a traced program that failed; empty if the cause is unknown."""
    kind = None if summary.run is None else summary.run.environment.device_kind
    if kind is DeviceKind.HARDWARE and _lacks_a_board(summary, exit_code):
        found = f"no Tenstorrent device was found in this machine (none in {DEVICE_DIRECTORY})"
        mock = f"{options}board NAME, such as {options}board n150; optrove boards lists them"
        return (f"{found}. To run on a mock board, add {mock}.",)
    if kind is DeviceKind.SIMULATOR and exit_code == FAILED and summary.in_flight:
        op = summary.in_flight[0][1].op
        ends = "The simulator ends the process where a kernel does something that it lacks"
        return (f"the process ended in {op}. {ends}; its last line, [clock] ERROR, says what.",)
    if kind is DeviceKind.MOCK and summary.asserted:
        return (numbers_hint(summary.asserted, options),)
    return ()


def numbers_hint(asserted: int, options: str = TRACE) -> str:
    """Return the hint for tests whose assertions failed on a mock board without numerics."""
    failed = f"assertions failed in {plural(asserted, 'test')}"
    return (
        f"{failed}. A mock board computes no numbers, so that comparisons such as PCC fail; "
        f"{options}shadow has torch compute them."
    )


def _lacks_a_board(summary: TraceSummary, exit_code: int) -> bool:
    """Return whether something failed that needs a board."""
    if has_board() or exit_code in _WITHOUT_FAILURE:
        return False
    tests = dict(summary.tests)
    failed = sum(tests.get(each.value, 0) for each in (TestOutcome.FAILED, TestOutcome.ERROR))
    return not tests or failed > summary.asserted


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How the process of a target ended; ``returncode`` is minus the signal that killed it.

    ``interrupted`` is the signal by which optrove was asked to end, and passed on; 0 if none was.
    """

    returncode: int
    timeout: float | None = None
    interrupted: int = 0

    @property
    def signal(self) -> int | None:
        """The signal that killed the process."""
        return -self.returncode if self.returncode < 0 else None

    @property
    def exit_code(self) -> int:
        """The exit code to pass on: the target's own, 1 after a timeout.

        A target that failed because it was interrupted has that of the signal.
        """
        if self.timeout is not None:
            return FAILED
        if self.interrupted and self.returncode:
            return _OF_SIGNALS + self.interrupted
        return self.returncode if self.returncode >= 0 else _OF_SIGNALS - self.returncode

    def __str__(self) -> str:
        if self.timeout is not None:
            return f"stopped after {self.timeout:g} s (--timeout)"
        how = f"exit code {self.returncode}"
        if self.signal is not None:
            known = {each.value: f" ({each.name})" for each in signal.Signals}
            how = f"killed by signal {self.signal}{known.get(self.signal, '')}"
        return f"interrupted, {how}" if self.interrupted else how


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The result for one target; ``ended`` is None where nothing was run."""

    target: str
    kind: str | None
    recorded: Recorded | None
    source: str | None = None
    run_id: str | None = None
    model: str | None = None
    board: str | None = None
    device: str | None = None
    ended: ProcessEnd | None = None
    seconds: float | None = None
    store: str | None = None
    journals: Path | None = None
    jsonl: Path | None = None
    params_dir: Path | None = None
    error: str | None = None
    hints: tuple[str, ...] = ()

    @property
    def summary(self) -> TraceSummary:
        """The summary of the recorded calls."""
        return summarize(()) if self.recorded is None else self.recorded.summary

    @property
    def exit_code(self) -> int:
        """The exit code of optrove for this result."""
        code = 0 if self.ended is None else self.ended.exit_code
        if self.error is None or (self.interrupted and code):
            return code
        return COULD_NOT

    @property
    def interrupted(self) -> bool:
        """Whether the user interrupted the process."""
        return self.ended is not None and bool(self.ended.interrupted)

    def document(self, counting: Counting | None = None) -> Iterator[Node]:
        """Yield the result of a target: its summary, the paths of its files, calls in flight."""
        observed = self.summary.accounting.observed
        if not observed and self.ended is None:
            return
        yield from paragraphs(self._head())
        if observed:
            yield from summary_document(self.summary, counting)
        yield from paragraphs(self._sketches())
        yield from paragraphs(self._capsules())
        kept = {
            "trove": self.store,
            "journal": self.journals,
            "lines": self.jsonl,
            "params": self.params_dir,
        }
        yield from paragraphs(f"{name}: {path}" for name, path in kept.items() if path is not None)
        ended, calls = self.ended, self.summary.in_flight
        died = ended is not None and (ended.signal is not None or ended.timeout is not None)
        if died and observed and not calls:
            yield from paragraphs(("in flight: nothing, all calls had ended",))
        yield from in_flight_document(calls)
        if self.replay_command is not None:
            yield Command(f"replay the last calls as one program: {self.replay_command}")

    @property
    def replay_command(self) -> str | None:
        """The command that replays the last calls up to the one in flight, if there is one."""
        if self.recorded is None or self.run_id is None or not self.summary.in_flight:
            return None
        if not any(journal.has_flow for journal in self.recorded.journals):
            return None
        words = ["optrove", "replay", self.run_id[:SHORT_ID], "--last", str(_LAST_CALLS)]
        words += ["--device", self.device] if self.device in ("shadow", "sim") else []
        words += [] if self.store is None else ["--store", self.store]
        return shlex.join(words)

    def data(self, counting: Counting | None = None) -> dict[str, Json]:
        """Return the result for machines; ``docs/command-line.md`` describes the keys."""
        ended = self.ended
        calls, tensors, omitted = (0, 0, {}) if self.recorded is None else self.recorded.sketches()
        return {
            "target": self.target,
            "kind": self.kind,
            "source": self.source,
            "run_id": self.run_id,
            "model": self.model,
            "board": self.board,
            "device": self.device,
            "exit_code": self.exit_code,
            "ending": None if ended is None else str(ended),
            "signal": None if ended is None else ended.signal,
            "timed_out": ended is not None and ended.timeout is not None,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            **summary_data(self.summary, counting),
            "sketches": {"calls": calls, "tensors": tensors, "omitted": _sorted(omitted)},
            "capsules": self._capsule_counts(),
            "replay": self.replay_command,
            "store": self.store,
            "journals": _text(self.journals),
            "jsonl": _text(self.jsonl),
            "params_dir": _text(self.params_dir),
            "error": self.error,
            "hints": list(self.hints),
        }

    def _head(self) -> list[str]:
        board = ""
        if self.board is not None:
            board = f" on {'' if self.device in (None, 'hw') else f'{self.device} '}{self.board}"
        tests = self.summary.tests
        facts = [plural(n, name) if name == "error" else f"{n} {name}" for name, n in tests]
        if self.ended is not None:
            facts.insert(0, str(self.ended))
        if self.seconds is not None:
            facts.append(f"{self.seconds:.1f} s")
        name = source_text(self.source or self.target)
        head = f"{name}{',' if self.model and board else ''}{board}"
        return [head, ", ".join(facts)] if facts else [head]

    def _sketches(self) -> list[str]:
        calls, tensors, omitted = (0, 0, {}) if self.recorded is None else self.recorded.sketches()
        if not calls:
            return []
        sketched = f"{plural(tensors, 'tensor')} of {plural(calls, 'call')}"
        reasons = _sorted(omitted).items()
        without = [f"without a sketch: {count:,}x {reason}" for reason, count in reasons]
        return [f"sketches: {sketched}", *without]

    def _capsule_counts(self) -> dict[str, Json]:
        if self.recorded is None:
            return {"kept": 0, "bytes": 0, "omitted": {}}
        kept, size, omitted = self.recorded.capsules()
        return {"kept": kept, "bytes": size, "omitted": _sorted(omitted)}

    def _capsules(self) -> list[str]:
        counts = self._capsule_counts()
        if not counts["kept"] and not counts["omitted"]:
            return []
        # After a crash, the size is unknown.
        size = f", {counts['bytes']:,} bytes of tensors" if counts["bytes"] else ""
        kept = f"capsules: {plural(counts['kept'], 'call')}{size}"
        reasons = counts["omitted"].items()
        return [kept, *(f"without a capsule: {count:,}x {reason}" for reason, count in reasons)]


def of_recorded(recorded: Recorded, target: str, kind: str) -> TraceResult:
    """Return the result with the recorded calls."""
    result = TraceResult(target, kind, recorded)
    run = recorded.summary.run
    if run is None:
        return result
    return replace(
        result,
        source=run.source,
        run_id=run.id,
        model=run.model,
        board=run.environment.board,
        device=run.environment.device_kind.value,
        journals=recorded.place,
    )


def from_failure(target: str, error: OptroveError) -> TraceResult:
    """Return the result for a target that could not be traced."""
    return TraceResult(target, None, None, error=str(error))


def from_place(
    place: Path, jsonl: Path | None, store: str | None, on_recovered: Callable[[Recovered], object]
) -> Iterator[TraceResult]:
    """Add the recorded calls at a place to a trove, and yield the results, one run at a time.

    Op lines are written to ``jsonl`` if it is given.
    """
    trove_place = located(store)
    found = tuple(read_recorded(place, trove_place))
    journals = [journal for recorded in found for journal in recorded.journals]
    if jsonl is not None and not journals:
        raise BadTarget(
            f"{str(place)!r} is a file of op lines already; --jsonl makes lines from journals"
        )
    if any(recorded.summary.accounting.observed for recorded in found):
        if journals:
            with writing(store, on_recovered) as trove, trove.together():
                for journal in journals:
                    trove.add_journal(journal)
        else:
            import_all(store, [str(place)], on_recovered)
    for recorded in found:
        kind = "journals" if recorded.journals else "lines"
        result = of_recorded(recorded, str(recorded.place), kind)
        if jsonl is not None:
            write_journal_lines(recorded.journals, jsonl)
            result = replace(result, jsonl=jsonl)
        if recorded.summary.accounting.observed:
            yield replace(result, store=str(trove_place))
        else:
            yield replace(result, error=f"there is not a single call in {str(recorded.place)!r}")


def _sorted(counts: dict[str, int]) -> dict[str, int]:
    """Return counts with the largest first."""
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
