"""Trace the processes that a traced program starts through ``multiprocessing``.

A forked process is traced from its first moment (capture/tracing.py). A spawned process, or one of
a fork server, is a new interpreter: it unpickles its preparation data before anything else, so the
trace puts an object into these data whose unpickling starts a trace there. Both end their journals
in order when ``multiprocessing`` ends the process. This covers the workers of a ``DataLoader`` and
``torch.multiprocessing.spawn``. Processes that are started in other ways are not traced.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.capture.tracing import Tracing, active_tracing
from optrove.frameworks.import_hooks import when_imported
from optrove.model.records import Run
from optrove.serializer.records import record_from_builtins, record_to_builtins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from optrove.tracing.trace import TraceOptions

_BOOTSTRAP: Final = Path(__file__).with_name("spawned.py")
_PATHS: Final = ("jsonl", "params_dir")
_LAST: Final = -1_000_000
"""The priority of a finalizer that runs after all others, which may still call operations."""


class StartOfTrace:
    """An object that starts a trace in the process that unpickles it.

    It is unpickled before that process has its ``sys.path``, so a file is run that finds optrove.
    """

    def __init__(self, options: TraceOptions, tracing: Tracing) -> None:
        plain = asdict(options)
        plain.update({name: plain[name] and str(plain[name]) for name in _PATHS})
        self._given = (plain, str(tracing.directory), record_to_builtins(tracing.run))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that starts the trace."""
        return runpy.run_path, (str(_BOOTSTRAP), {"GIVEN": self._given}, "optrove_spawned")


def begin_spawned(given: tuple[dict[str, Any], str, Any]) -> None:
    """Trace this process, which was spawned; say so if that is not possible, and never raise."""
    from optrove.tracing.trace import TraceOptions

    plain, directory, run = given
    try:
        plain |= {name: plain[name] and Path(plain[name]) for name in _PATHS}
        plain |= {name: tuple(plain[name]) for name in ("include", "exclude", "capsule")}
        tracing = TraceOptions(**plain).tracing(
            Path(directory), record_from_builtins(run, Run), process=os.getpid()
        )
        tracing.start()
        atexit.register(tracing.stop)
    except Exception as error:  # noqa: BLE001 - the program must not meet our faults
        sys.stderr.write(f"optrove: the calls of process {os.getpid()} are not recorded: {error}\n")


@contextmanager
def traced_children(options: TraceOptions, tracing: Tracing) -> Iterator[None]:
    """Trace the processes that ``multiprocessing`` starts while the block runs."""
    with ExitStack() as undo:

        def attach_spawn(spawn: ModuleType) -> None:
            prepare = spawn.get_preparation_data

            def get_preparation_data(name: str) -> dict[str, Any]:
                data: dict[str, Any] = prepare(name)
                if active_tracing() is tracing:
                    data["optrove"] = StartOfTrace(options, tracing)
                return data

            spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]  # a function of the module

            def detach() -> None:
                if spawn.get_preparation_data is get_preparation_data:
                    spawn.get_preparation_data = prepare  # type: ignore[attr-defined]  # as above

            undo.callback(detach)

        def attach_util(util: ModuleType) -> None:
            # Called in a process of multiprocessing when it begins, before its own code.
            util.register_after_fork(tracing, _stop_with_process)

        for name, attach in (
            ("multiprocessing.spawn", attach_spawn),
            ("multiprocessing.util", attach_util),
        ):
            on_fault = _fault_of(tracing, name)
            undo.callback(when_imported(name, attach, on_fault=on_fault))
        yield


def _fault_of(tracing: Tracing, name: str) -> Any:
    return lambda error: tracing.recorder.fault(f"attaching to {name}", error)


def _stop_with_process(tracing: Tracing) -> None:
    from multiprocessing.util import Finalize

    if active_tracing() is tracing:
        Finalize(None, tracing.stop, exitpriority=_LAST)
