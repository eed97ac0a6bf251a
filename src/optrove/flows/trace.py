"""Trace from within Python: ``with optrove.trace("trove.db") as t: ...``."""

from __future__ import annotations

import atexit
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.capture.oplines import OpLines
from optrove.capture.parameters import ParameterFiles, parameter_directory
from optrove.capture.tracing import Tracing, Wanted, active_tracing
from optrove.codec.journal_reader import JournalReader, find_journals
from optrove.flows.runs import filter_of, new_run, settled
from optrove.report.summary import TraceSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.capture.sinks import Sink

DEFAULT_STORE = Path(".optrove") / "trove.db"


class Trace:
    """A trace that is going on, or has ended; its journals are in ``directory``."""

    def __init__(self, tracing: Tracing) -> None:
        self.directory = tracing.directory
        self.run_id = tracing.run.id

    def summary(self) -> TraceSummary:
        """Return what has been found so far."""
        return summarize_directory(self.directory)


def journals_of(store: str | Path | None, run_id: str) -> Path:
    """Return where the journals of a run go that is meant for a store."""
    place = Path(store) if store is not None else DEFAULT_STORE
    return place.absolute().with_name(place.name + ".journals") / run_id


def summarize_directory(directory: Path) -> TraceSummary:
    """Return the sum of all journals in a directory."""
    return summarize(map(JournalReader, find_journals(directory)))


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

    The calls go to a journal beside ``store`` (default ``.optrove/trove.db``); ``jsonl`` writes
    one line per call as well. ``backend`` is ``ttnn``, ``torch``, or ``auto``: ttnn where it gets
    imported, else torch. AlreadyTracing when the process is being traced.

    >>> import optrove
    >>> with optrove.trace("trove.db", model="encoder") as t:  # doctest: +SKIP
    ...     run_the_model()
    >>> t.summary().calls  # doctest: +SKIP
    """
    run = new_run(_program(), sys.argv, model=model)
    sinks: tuple[Sink, ...] = () if jsonl is None else (OpLines(Path(jsonl)),)
    tracing = Tracing(
        journals_of(store, run.id),
        run,
        wanted=Wanted(backend, filter_of(include, exclude)),
        sinks=sinks,
        settle=settled,
    )
    tracing.start()
    try:
        yield Trace(tracing)
    finally:
        tracing.stop()


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
