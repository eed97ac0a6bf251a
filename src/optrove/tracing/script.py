"""Run a Python script under a trace: ``python -m optrove.tracing.script --journal DIR SCRIPT ...``.

The process that ``optrove trace`` starts for a script. The script finds ``sys.argv``, ``sys.path``
and ``__main__`` as if Python had been started on it; its exit code and tracebacks are its own.
Tracing ends last of all, after the script's threads and its handlers of ``atexit``.
"""

from __future__ import annotations

import argparse
import atexit
import sys
from contextlib import ExitStack
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from optrove.capture.runs import new_run, with_board
from optrove.capture.tracing import BACKENDS
from optrove.errors import OptroveError
from optrove.frameworks.installed import FRAMEWORKS
from optrove.frameworks.probe_protocol import ATEN, LEVELS
from optrove.model.exit_codes import COULD_NOT, INTERRUPTED
from optrove.tracing.trace import TraceOptions

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

_WATCHING = "optrove.frameworks."
"""The prefix of the modules with functions between a script and a framework."""

_HOOKS = "optrove.frameworks.import_hooks"
_MACHINERY = "<frozen importlib"


def main(arguments: Sequence[str]) -> int | str | None:
    """Trace a script as the arguments say; return the argument of ``sys.exit``."""
    options = _parser().parse_args(arguments)
    exit_codes: list[int] = []
    try:
        _prepare(options, exit_codes)
    except OptroveError as error:
        sys.stderr.write(f"Error: {error}\n")
        return COULD_NOT
    code = _run(options.script, options.arguments)
    exit_codes.append(code if isinstance(code, int) else int(code is not None))
    return code


def _prepare(options: Namespace, exit_codes: Sequence[int]) -> None:
    """Start the mock or simulated board and the trace, which end with the process.

    ``exit_codes`` has that of the script by then, unless the script ended the process at once.
    """
    stack = ExitStack()
    # Registered before the script can register anything, so that it is run last.
    atexit.register(stack.close)
    if options.board:
        from optrove.frameworks.ttnn.board.mock import mock_board

        stack.enter_context(mock_board(options.board, shadow=options.shadow))
    elif options.sim:
        from optrove.frameworks.ttnn.board.simulator import sim_board

        stack.enter_context(sim_board(options.sim))
    command_line = [options.script, *options.arguments]
    run = new_run(options.script, command_line, run_id=options.run_id, model=options.model)
    asked = TraceOptions(
        backend=options.backend,
        level=options.level,
        include=tuple(options.include),
        exclude=tuple(options.exclude),
        jsonl=options.ops_jsonl,
        params_dir=options.params_dir,
        params_values=options.params_values,
        sketch=options.sketch,
        capsule=tuple(options.capsule),
        capsule_limit=options.capsule_limit,
        flow=options.flow,
    )
    tracing = asked.tracing(options.journal, with_board(run))
    tracing.start()
    stack.callback(lambda: tracing.stop(*exit_codes))


def _run(script: str, arguments: Sequence[str]) -> int | str | None:
    path = str(Path(script).absolute())
    sys.argv[:] = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # Where `python -m` has put the working directory, Python puts that of the script.
        sys.path[0] = str(Path(path).resolve().parent)
    loader = _ScriptLoader("__main__", path)
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __loader__=loader, __cached__=None)
    sys.modules["__main__"] = module
    try:
        loader.exec_module(module)
    except SystemExit as leaving:
        return leaving.code
    except BaseException as error:  # noqa: BLE001 - shown as Python shows uncaught exceptions; sets the exit code
        entries = _entries_within(path, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            entries = _without_import(entries)
        error.__traceback__ = _joined(entries)
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


class _ScriptLoader(SourceFileLoader):
    """Loads a script as Python does: without leaving compiled code beside it.

    ``runpy.run_path`` is not used, since scripts see it: in ``sys.argv[0]`` or ``__file__``, one of
    which differs from that of Python, and in a ``__main__`` that is gone at exit.
    """

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, by which a loader prevents caching."""
        raise OSError(f"{path} is not cached")


def _entries_within(path: str, traceback: TracebackType | None) -> list[TracebackType]:
    """Return the entries of a traceback from the script's first frame on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != path:
        traceback = traceback.tb_next
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries


def _without_import(entries: list[TracebackType]) -> list[TracebackType]:
    """Return the entries up to the import of a framework, which was interrupted anywhere in it."""
    for number, entry in enumerate(entries):
        module = entry.tb_frame.f_globals.get("__name__")
        is_imported = entry.tb_frame.f_code.co_name == "<module>" and module in FRAMEWORKS
        if is_imported or module == _HOOKS:
            before = entries[:number]
            while before and before[-1].tb_frame.f_code.co_filename.startswith(_MACHINERY):
                before.pop()
            return before
    return entries


def _joined(entries: list[TracebackType]) -> TracebackType | None:
    """Return the traceback of entries, without the frames of probes."""
    traceback: TracebackType | None = None
    for each in reversed(entries):
        if not str(each.tb_frame.f_globals.get("__name__")).startswith(_WATCHING):
            traceback = TracebackType(traceback, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return traceback


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m optrove.tracing.script", allow_abbrev=False)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--run-id", default=None)
    parser.add_argument("--board", default=None)
    parser.add_argument("--shadow", action="store_true")
    parser.add_argument("--sim", default=None)
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--level", choices=LEVELS, default=ATEN)
    parser.add_argument("--model", default=None)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--ops-jsonl", type=Path, default=None)
    parser.add_argument("--params-dir", type=Path, default=None)
    parser.add_argument("--params-values", action="store_true")
    parser.add_argument("--sketch", action="store_true")
    parser.add_argument("--capsule", action="append", default=[])
    parser.add_argument("--capsule-limit")
    parser.add_argument("--flow", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
