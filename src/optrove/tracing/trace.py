"""Trace from Python: ``with optrove.trace("trove.db") as t: ...``."""

from __future__ import annotations

import atexit
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.capture.parameters import ParameterFiles, Sketches, parameter_directory
from optrove.capture.runs import filter_of, new_run
from optrove.capture.sinks import OpLineWriter
from optrove.capture.tracing import Tracing, active_tracing
from optrove.errors import UnusableResults
from optrove.frameworks.probe_protocol import ATEN
from optrove.model.capsules import capsule_choice
from optrove.tracing.children import traced_children
from optrove.tracing.recorded import Recorded, store_journals, summarize_directory
from optrove.trove.opening import check, journals_beside, located, make_directory, run_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.capture.sinks import Sink
    from optrove.model.records import Run
    from optrove.report.summary import TraceSummary
    from optrove.serializer.text import Json
    from optrove.trove.place import Place


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The calls that a trace records, and the files that it writes besides the journal.

    These are the options that ``optrove trace``, its child process and the plugin have in common.
    """

    backend: str = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    model: str | None = None
    jsonl: Path | None = None
    params_dir: Path | None = None
    params_values: bool = False
    sketch: bool = False
    level: str = ATEN
    capsule: tuple[str, ...] = ()
    capsule_limit: str | None = None
    flow: bool = False

    def sinks(self) -> list[Sink]:
        """Return the sinks of these options; UnusableResults if a file cannot be opened."""
        sinks: list[Sink] = []
        if self.jsonl is not None:
            try:
                sinks.append(OpLineWriter(self.jsonl))
            except OSError as error:
                raise UnusableResults(
                    f"the lines of op calls cannot be written to {self.jsonl}: {error}; "
                    f"choose another file"
                ) from error
        directory = self.params_dir
        if directory is not None:
            sinks.append(ParameterFiles(lambda: directory, values=self.params_values))
        if self.sketch:
            sinks.append(Sketches(_write_to_journal))
        return sinks

    def tracing(
        self, directory: Path, run: Run, *, process: int = 0, sinks: Sequence[Sink] = ()
    ) -> Tracing:
        """Return a tracing with these options into journals in ``directory``."""
        return Tracing(
            directory,
            run,
            backend=self.backend,
            level=self.level,
            left_out=filter_of(self.include, self.exclude),
            sinks=(*self.sinks(), *sinks),
            process=process,
            capsules=capsule_choice(self.capsule, self.capsule_limit),
            flow=self.flow,
            meanwhile=partial(traced_children, self),
        )


def _write_to_journal(data: Json) -> None:
    tracing = active_tracing()
    # None for a call that ends in another thread just when the trace does.
    if tracing is not None:
        tracing.journal.write(data)


class Trace:
    """A trace that is running or has ended; ``store`` is the trove that its calls go to."""

    def __init__(self, tracing: Tracing, store: Place) -> None:
        self.directory = tracing.directory
        self.run_id = tracing.run.id
        self.store = store
        self.recorded: Recorded | None = None
        """The recorded calls, once the trace has ended."""

    def summary(self) -> TraceSummary:
        """Return the summary so far; it knows which cases are new when the trace has ended."""
        if self.recorded is not None:
            return self.recorded.summary
        return summarize_directory(self.directory)


@contextmanager
def trace(  # noqa: PLR0913 - the options of the command
    store: str | Path | None = None,
    *,
    model: str | None = None,
    backend: str = "auto",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    jsonl: str | Path | None = None,
    level: str = ATEN,
    capsule: Sequence[str] = (),
    capsule_limit: str | None = None,
    flow: bool = False,
) -> Iterator[Trace]:
    """Record every op call that is made inside the block, in any thread.

    The calls go to the trove ``store``, a path or a URL (default: OPTROVE_STORE, else
    ``.optrove/trove.db`` here or in a parent), through a journal beside it. ``jsonl`` also writes
    one line per call to a file. ``backend`` is ``ttnn``, ``torch``, or ``auto``: ttnn if it is
    imported, else torch. ``level`` selects the recorded calls of torch: ``aten``, the operations
    that the dispatcher runs, or ``api``, also the public functions, which disables some fast paths
    of torch.
    ``capsule`` names the calls whose tensors are kept with their values: ops, cases, ``worst``,
    ``first``, ``every:N`` or ``all``; ``capsule_limit`` is a size such as ``500MB``.
    ``flow`` records which output became which input, so that ranges of calls can be replayed.
    Raises AlreadyTracing if the process is being traced.

    >>> import optrove
    >>> with optrove.trace("trove.db", model="encoder") as t:  # doctest: +SKIP
    ...     run_the_model()
    >>> t.summary().calls  # doctest: +SKIP
    """
    lines = None if jsonl is None else Path(jsonl)
    options = TraceOptions(
        backend,
        tuple(include),
        tuple(exclude),
        model,
        lines,
        level=level,
        capsule=(capsule,) if isinstance(capsule, str) else tuple(capsule),
        capsule_limit=capsule_limit,
        flow=flow,
    )
    run = new_run(_program(), sys.argv, model=model)
    place = located(None if store is None else str(store))
    tracing = options.tracing(journals_beside(place) / run.id, run)
    check(place)
    made = make_directory(tracing.directory)
    current = Trace(tracing, place)
    with run_lock(tracing.directory):
        tracing.start()
        try:
            yield current
        finally:
            tracing.stop()
            current.recorded = store_journals(tracing.directory, place, made)
    # Not in place of an error that the block itself has raised.
    if current.recorded.problem is not None:
        raise current.recorded.problem


class _Switches:
    """The state of ``enable_tracing`` and ``enable_tensor_value_serialization``."""

    def __init__(self) -> None:
        self.values = False
        self.files: ParameterFiles | None = None


# Global to the process, as ttnn's own switches are.
_SWITCHES = _Switches()


def enable_tracing(enable: bool = True) -> None:  # noqa: FBT001, FBT002 - the form that ttnn's own tracer has
    """Write one JSON file per ttnn op call from now on, until switched off or the process ends.

    The files go to the directory that TTNN_OPERATION_TRACE_DIR names, else to
    ``{directory}/operation_parameters/``, where the directory is that of
    ``ttnn.CONFIG.operation_parameter_log_dir``, else of ``root_report_path``, else
    ``generated/ttnn``. Raises AlreadyTracing inside another trace.
    """
    if not enable:
        _stop_files()
    elif _SWITCHES.files is None:
        files = ParameterFiles(parameter_place, values=_SWITCHES.values)
        place = tempfile.TemporaryDirectory(prefix="optrove-", ignore_cleanup_errors=True)
        run = new_run(_program(), sys.argv)
        tracing = Tracing(Path(place.name), run, backend="ttnn", sinks=(files,))
        tracing.start()
        tracing.on_stop(place.cleanup)
        _SWITCHES.files = files
        atexit.register(_stop_files)


def enable_tensor_value_serialization(enable: bool = True) -> None:  # noqa: FBT001, FBT002 - as above
    """Also write tensor values to the files of ``enable_tracing``; large and slow."""
    _SWITCHES.values = enable
    if _SWITCHES.files is not None:
        _SWITCHES.files.values = enable


def is_tracing_enabled() -> bool:
    """Return whether the op calls of this process are being recorded."""
    return active_tracing() is not None


def parameter_place() -> Path:
    """Return the directory of parameter files by the current configuration of ttnn."""
    return parameter_directory(getattr(sys.modules.get("ttnn"), "CONFIG", None))


def _stop_files() -> None:
    atexit.unregister(_stop_files)
    current = active_tracing()
    if _SWITCHES.files is not None and current is not None:
        current.stop()
    _SWITCHES.files = None


def _program() -> str:
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
