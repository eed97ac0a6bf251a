"""Trace from Python: ``with optrove.trace("trove.db") as t: ...``."""

from __future__ import annotations

import atexit
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.capture.op_lines import OpLines
from optrove.capture.parameters import ParameterFiles, Sketches, parameter_directory
from optrove.capture.runs import filter_of, new_run, settled
from optrove.capture.tracing import Tracing, Wanted, active_tracing
from optrove.errors import OptroveError, UnusableResults
from optrove.journal.reader import JournalReader, find_journals
from optrove.report.summary import TraceSummary, summarize
from optrove.trove.opening import (
    check,
    journals_beside,
    journals_in,
    known_cases,
    located,
    make_directory,
    owning,
    remove_made,
    take_in,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from optrove.capture.sinks import Sink
    from optrove.serializer.text import Json
    from optrove.trove.place import Place


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is asked for: lines, one file per call (with values or not), sketches."""

    jsonl: Path | None = None
    params_dir: Path | None = None
    values: bool = False
    sketch: bool = False


def sinks_of(outputs: Outputs) -> tuple[Sink, ...]:
    """Return the sinks that write ``outputs``; UnusableResults when a file cannot be opened."""
    sinks: list[Sink] = []
    if outputs.jsonl is not None:
        try:
            sinks.append(OpLines(outputs.jsonl))
        except OSError as error:
            raise UnusableResults(
                f"the lines of op calls cannot be written to {outputs.jsonl}: {error}; "
                f"choose another file"
            ) from error
    directory = outputs.params_dir
    if directory is not None:
        sinks.append(ParameterFiles(lambda: directory, values=outputs.values))
    if outputs.sketch:
        sinks.append(Sketches(_write_to_journal))
    return tuple(sinks)


def _write_to_journal(data: Json) -> None:
    tracing = active_tracing()
    # None for a call that ends in another thread just when the trace does.
    if tracing is not None:
        tracing.journal.write(data)


class Trace:
    """A trace that is going on, or has ended; ``store`` is the trove that its calls go to."""

    def __init__(self, tracing: Tracing, store: Place) -> None:
        self.directory = tracing.directory
        self.run_id = tracing.run.id
        self.store = store
        self._summary: TraceSummary | None = None
        self._problem: OptroveError | None = None

    def summary(self) -> TraceSummary:
        """Return what has been found so far; which cases are new is known when it has ended."""
        return self._summary or summarize_directory(self.directory)

    def take_in(self, made: Sequence[Path]) -> None:
        """Add the calls to the trove; what keeps them from it is kept for ``check``."""
        self._summary = summarize_directory(self.directory)
        if not self._summary.calls:
            remove_made(self.directory, made)
            return
        try:
            known = known_cases(self.store, journals_in(self.directory))
            self._summary = summarize_directory(self.directory, known)
            take_in(self.store, self.directory)
        except OptroveError as error:
            self._problem = error

    def check(self) -> None:
        """Raise what has kept the calls from the trove, if anything has."""
        if self._problem is not None:
            raise self._problem


def summarize_directory(directory: Path, known: Container[str] = ()) -> TraceSummary:
    """Return the sum of all journals in a directory; ``known`` are cases of before."""
    return summarize(map(JournalReader, find_journals(directory)), known)


@contextmanager
def trace(
    store: str | Path | None = None,
    *,
    model: str | None = None,
    backend: str = "auto",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    jsonl: str | Path | None = None,
) -> Iterator[Trace]:
    """Record every op call that is made inside the block, in any thread.

    The calls go to the trove ``store``, a path or a URL (default: that of OPTROVE_STORE, else
    ``.optrove/trove.db`` here or above), by way of a journal beside it. ``jsonl`` writes one line
    per call as well. ``backend`` is ``ttnn``, ``torch``, or ``auto``: ttnn where it gets
    imported, else torch. AlreadyTracing when the process is being traced.

    >>> import optrove
    >>> with optrove.trace("trove.db", model="encoder") as t:  # doctest: +SKIP
    ...     run_the_model()
    >>> t.summary().calls  # doctest: +SKIP
    """
    run = new_run(_program(), sys.argv, model=model)
    place = located(None if store is None else str(store))
    sinks: tuple[Sink, ...] = () if jsonl is None else (OpLines(Path(jsonl)),)
    tracing = Tracing(
        journals_beside(place) / run.id,
        run,
        wanted=Wanted(backend, filter_of(include, exclude)),
        sinks=sinks,
        settle=settled,
    )
    check(place)
    made = make_directory(tracing.directory)
    current = Trace(tracing, place)
    with owning(tracing.directory):
        tracing.start()
        try:
            yield current
        finally:
            tracing.stop()
            current.take_in(made)
    # Not in place of what the block itself has raised.
    current.check()


class _Switches:
    """What ``enable_tracing`` and ``enable_tensor_value_serialization`` have switched on."""

    def __init__(self) -> None:
        self.values = False
        self.files: ParameterFiles | None = None


# Of the process, as ttnn's own switches are.
_SWITCHES = _Switches()


def enable_tracing(enable: bool = True) -> None:  # noqa: FBT001, FBT002 - the form that ttnn's own tracer has
    """Write one JSON file per ttnn op call from now on, until switched off or the process ends.

    The files go to ``{directory}/operation_parameters/``, where the directory is that of
    ``ttnn.CONFIG.operation_parameter_log_dir``, else of ``root_report_path``, else
    ``generated/ttnn``. Inside another trace this is refused (AlreadyTracing).
    """
    if not enable:
        _stop_files()
    elif _SWITCHES.files is None:
        files = ParameterFiles(parameter_place, values=_SWITCHES.values)
        place = tempfile.TemporaryDirectory(prefix="optrove-", ignore_cleanup_errors=True)
        run = new_run(_program(), sys.argv)
        tracing = Tracing(Path(place.name), run, wanted=Wanted("ttnn"), sinks=(files,))
        tracing.start()
        tracing.on_stop(place.cleanup)
        _SWITCHES.files = files
        atexit.register(_stop_files)


def enable_tensor_value_serialization(enable: bool = True) -> None:  # noqa: FBT001, FBT002 - as above
    """Write the values of tensors into those files too, from now on; large and slow."""
    _SWITCHES.values = enable
    if _SWITCHES.files is not None:
        _SWITCHES.files.values = enable


def is_tracing_enabled() -> bool:
    """Tell whether the op calls of this process are being recorded."""
    return active_tracing() is not None


def parameter_place() -> Path:
    """Return where parameter files go, by the configuration of ttnn as it is now."""
    return parameter_directory(getattr(sys.modules.get("ttnn"), "CONFIG", None))


def _stop_files() -> None:
    atexit.unregister(_stop_files)
    current = active_tracing()
    if _SWITCHES.files is not None and current is not None:
        current.stop()
    _SWITCHES.files = None


def _program() -> str:
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
