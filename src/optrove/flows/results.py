"""What ``optrove trace`` shows of a target or of something recorded, as text and as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, OptroveError
from optrove.flows.hints import hints
from optrove.flows.importing import import_all
from optrove.flows.journal_lines import write_journal_lines
from optrove.flows.launch import NO_TESTS, USAGE_ERROR
from optrove.flows.recorded import Recorded, Sketched, read_recorded
from optrove.flows.stores import known_cases, located
from optrove.flows.targets import TargetKind
from optrove.report.runs_text import source_text
from optrove.report.summary import TraceSummary, summarize
from optrove.report.tables import plural
from optrove.report.trace_text import in_flight_lines, summary_data, summary_lines
from optrove.settings import model_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from optrove.codec.text import Json
    from optrove.flows.launch import Ended, Request, Traced
    from optrove.flows.stores import Recovered
    from optrove.model.counted import Counting

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

    def lines(self, counting: Counting | None = None) -> list[str]:
        """Return the result as text of 80 columns; only paths and names may be longer."""
        observed = self.summary.accounting.observed
        if not observed and self.ended is None:
            return []
        kept = {
            "trove": self.store,
            "journal": self.journals,
            "lines": self.jsonl,
            "params": self.params_dir,
        }
        return [
            "",
            *self._head(),
            *(summary_lines(self.summary, counting) if observed else ()),
            *self._sketches(),
            *(f"{name}: {path}" for name, path in kept.items() if path is not None),
            *self._in_flight(),
        ]

    def data(self) -> dict[str, Json]:
        """Return the result for machines; ``optrove.cli_trace`` tells the keys."""
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

    def _in_flight(self) -> list[str]:
        ended, calls = self.ended, self.summary.in_flight
        died = ended is not None and (ended.signal is not None or ended.timeout is not None)
        if died and self.summary.accounting.observed and not calls:
            return ["in flight: nothing, all calls had ended"]
        return in_flight_lines(calls)

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
