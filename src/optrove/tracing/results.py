"""What ``optrove trace`` prints about a target: summary, hints, op lines.

A journal keeps arguments by the names of their parameters, so all of them are in ``kwargs`` and
``inputs`` is empty. Calls that were filtered or could not be described have no line. A call that
was in flight when its process died has the error ``Unfinished``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, OptroveError, UnusableResults
from optrove.frameworks.ttnn.board.table import DEVICE_DIRECTORY
from optrove.interop.importing import import_all
from optrove.interop.op_lines import write_call_lines
from optrove.journal import format as layout
from optrove.journal.reader import JournalReader
from optrove.model.records import DeviceKind, TestOutcome
from optrove.replay.device_choice import has_board
from optrove.report.document import paragraphs
from optrove.report.listings import source_text
from optrove.report.summary import TraceSummary, summarize
from optrove.report.trace import in_flight_document, summary_data, summary_document
from optrove.report.wording import plural
from optrove.serializer.hashes import placement_hash
from optrove.settings import model_name
from optrove.tracing.launch import NO_TESTS, USAGE_ERROR, Recorded, Sketched, read_recorded
from optrove.tracing.targets import TargetKind
from optrove.trove.opening import known_cases, located

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.model.ops import Counting
    from optrove.model.records import Call
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.tracing.launch import Ended, Request, Traced
    from optrove.trove.opening import Recovered


TRACE: Final = "--"
PLUGIN: Final = "--optrove-"
"""How the options for boards begin: of ``optrove trace``, and of pytest."""

_WITHOUT_FAILURE: Final = (0, USAGE_ERROR, NO_TESTS)
"""Exit codes of programs and of pytest for which no missing board is to blame."""


def hints(summary: TraceSummary, exit_code: int, options: str = TRACE) -> tuple[str, ...]:
    """Return what to try after a traced program has failed; nothing if there is no telling."""
    kind = None if summary.run is None else summary.run.environment.device_kind
    if kind is DeviceKind.HARDWARE and _lacks_a_board(summary, exit_code):
        found = f"no Tenstorrent device was found in this machine (none in {DEVICE_DIRECTORY})"
        mock = f"{options}board NAME, such as {options}board n150; optrove boards lists them"
        return (f"{found}. To run on a mock board, add {mock}.",)
    if kind is DeviceKind.MOCK and summary.asserted:
        return (numbers_hint(summary.asserted, options),)
    return ()


def numbers_hint(asserted: int, options: str = TRACE) -> str:
    """Return the hint for tests in which assertions failed on a mock board without numbers."""
    failed = f"assertions failed in {plural(asserted, 'test')}"
    return (
        f"{failed}. A mock board computes no numbers, so that comparisons such as PCC fail; "
        f"{options}shadow has torch compute them."
    )


def _lacks_a_board(summary: TraceSummary, exit_code: int) -> bool:
    """Tell whether something has failed that a board would have been needed for."""
    if has_board() or exit_code in _WITHOUT_FAILURE:
        return False
    tests = dict(summary.tests)
    failed = sum(tests.get(each.value, 0) for each in (TestOutcome.FAILED, TestOutcome.ERROR))
    return not tests or failed > summary.asserted


def write_journal_lines(journals: Iterable[Path], path: Path) -> int:
    """Append a line for each call of these journals to a file; return how many there are."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            return write_call_lines(stream, _recorded_calls(journals)).calls
    except OSError as error:
        raise UnusableResults(
            f"the lines of op calls cannot be written to {path}: {error}; choose another file"
        ) from error


def _recorded_calls(journals: Iterable[Path]) -> Iterator[tuple[Call, Case]]:
    """Yield the calls of journals with their cases, in the order in which they began."""
    for journal in journals:
        reader = JournalReader(journal)
        run_id = "unknown" if reader.run is None else reader.run.id
        ids: dict[int, str] = {}
        for raw in reader.raw_calls():
            if raw.kind not in (layout.CASE, layout.OPAQUE):
                continue
            case = reader.case(raw.number)
            if raw.number not in ids:
                ids[raw.number] = placement_hash(case)
            yield reader.call(raw, run_id, ids[raw.number]), case


COULD_NOT: Final = 2


@dataclass(frozen=True, slots=True)
class Shown:
    """One result; ``ended`` is None where nothing was run, ``error`` where all is well."""

    target: str
    kind: str | None
    summary: TraceSummary
    sketched: Sketched = field(default_factory=Sketched)
    source: str | None = None
    run_id: str | None = None
    model: str | None = None
    board: str | None = None
    device: str | None = None
    ended: Ended | None = None
    seconds: float | None = None
    store: str | None = None
    journals: Path | None = None
    jsonl: Path | None = None
    params_dir: Path | None = None
    error: str | None = None
    hints: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What optrove ends with for this result."""
        if self.error is not None:
            return COULD_NOT
        return 0 if self.ended is None else self.ended.exit_code

    @property
    def interrupted(self) -> bool:
        """Tell whether the user wanted to end it."""
        return self.ended is not None and self.ended.interrupted

    def document(self, counting: Counting | None = None) -> Iterator[Node]:
        """Yield the result of a target: its summary, the paths of its files, calls in flight."""
        observed = self.summary.accounting.observed
        if not observed and self.ended is None:
            return
        yield from paragraphs(self._head())
        if observed:
            yield from summary_document(self.summary, counting)
        yield from paragraphs(self._sketches())
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

    def data(self) -> dict[str, Json]:
        """Return the result for machines; ``optrove.cli.record`` tells the keys."""
        ended = self.ended
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
            **summary_data(self.summary),
            "sketches": {
                "calls": self.sketched.calls,
                "tensors": self.sketched.tensors,
                "omitted": dict(self.sketched.omitted),
            },
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
        return [f"{name}{',' if self.model and board else ''}{board}", *_joined(facts)]

    def _sketches(self) -> list[str]:
        found = self.sketched
        if not found.calls:
            return []
        reasons = [f"without a sketch: {count:,}x {reason}" for reason, count in found.omitted]
        sketched = f"{plural(found.tensors, 'tensor')} of {plural(found.calls, 'call')}"
        return [f"sketches: {sketched}", *reasons]


def from_traced(traced: Traced, request: Request) -> Shown:
    """Return what is shown of a target that was traced."""
    summary, outputs = traced.recorded.summary, request.outputs
    shown = _of_recorded(traced.recorded, traced.target.name, traced.target.kind.value)
    model = request.model or model_name()
    name = traced.target.name
    return replace(
        shown,
        source=f"{name} [HF_MODEL:{model}]" if model else name,
        model=model,
        run_id=traced.run_id,
        board=shown.board or request.board,
        ended=traced.ended,
        seconds=round(traced.seconds, 3),
        store=None if traced.store is None else str(traced.store),
        journals=traced.journals,
        jsonl=outputs.jsonl if outputs.jsonl and outputs.jsonl.exists() else None,
        params_dir=outputs.params_dir if outputs.params_dir and summary.ops else None,
        error=_error(traced, request) or traced.problem,
        hints=hints(summary, traced.ended.exit_code),
    )


def from_failure(target: str, error: OptroveError) -> Shown:
    """Return what is shown of a target that could not be traced."""
    return Shown(target, None, summarize(()), error=str(error))


def from_place(
    place: Path, jsonl: Path | None, store: str | None, tell: Callable[[Recovered], object]
) -> Iterator[Shown]:
    """Add what was recorded at a place to a trove, and yield it, a run at a time.

    Lines are written to ``jsonl`` if given; ``tell`` hears of runs that were recovered.
    """
    trove_place = located(store)
    found = read_recorded(place, lambda journals: known_cases(trove_place, journals))
    if jsonl is not None and not all(recorded.journals for recorded in found):
        raise BadTarget(
            f"{str(place)!r} is a file of op lines already; --jsonl makes lines from journals"
        )
    if any(recorded.summary.accounting.observed for recorded in found):
        import_all(store, [str(place)], tell)
    for recorded in found:
        kind = "journals" if recorded.journals else "lines"
        shown = _of_recorded(recorded, str(recorded.place), kind)
        if jsonl is not None:
            write_journal_lines(recorded.journals, jsonl)
            shown = replace(shown, jsonl=jsonl)
        observed = recorded.summary.accounting.observed
        if not observed:
            shown = replace(shown, error=f"there is not a single call in {str(recorded.place)!r}")
        yield replace(shown, store=str(trove_place) if observed else None)


def _of_recorded(recorded: Recorded, target: str, kind: str) -> Shown:
    run = recorded.summary.run
    shown = Shown(target, kind, recorded.summary, recorded.sketched)
    if run is None:
        return shown
    environment = run.environment
    return replace(
        shown,
        source=run.source,
        run_id=run.id,
        model=run.model,
        board=environment.board,
        device=environment.device_kind.value,
        journals=recorded.place,
    )


def _error(traced: Traced, request: Request) -> str | None:
    """Return why a target counts as not traced, with what to do about it; None if it does."""
    summary, name = traced.recorded.summary, traced.target.name
    if summary.ops:
        return None
    code = traced.ended.returncode
    if traced.target.kind is TargetKind.PYTEST and code in (USAGE_ERROR, NO_TESTS):
        file = name.partition("::")[0]
        return (
            f"pytest found no test for {name!r}, see its own words above; list what there is "
            f"with: pytest --collect-only -q {file}"
        )
    accounting = summary.accounting
    if accounting.untraceable:
        return f"no call of {name!r} could be recorded: {accounting.untraceable[0][0]}"
    if accounting.filtered:
        return (
            f"all {accounting.observed:,} calls of {name!r} were filtered; widen --include or drop "
            f"--exclude"
        )
    return f"not a single op call was seen in {name!r} ({traced.ended}). {_advice(traced, request)}"


def _advice(traced: Traced, request: Request) -> str:
    tests = dict(traced.recorded.summary.tests)
    if tests and set(tests) <= {"skipped"}:
        return "All of its tests were skipped: run pytest -rs to see why."
    if traced.recorded.summary.faults:
        return f"The tracer could not attach: {traced.recorded.summary.faults[0][0]}"
    if traced.ended.exit_code:
        return "It failed before its first call: see its own words above."
    wanted = "ttnn or torch" if request.backend == "auto" else request.backend
    return (
        f"Does it import {wanted} and call its ops, in this process? Was the part that does "
        f"skipped? Is --backend {request.backend} what it uses?"
    )


def _joined(facts: Sequence[str]) -> list[str]:
    return [", ".join(facts)] if facts else []


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
