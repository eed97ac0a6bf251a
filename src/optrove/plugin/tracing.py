"""Trace the op calls of a pytest session, from before its first conftest to its end.

Each process that runs tests traces itself. In a session of pytest-xdist these are the workers;
their controller traces nothing, sums up what they wrote, and tidies up.
"""

from __future__ import annotations

import errno
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optrove.capture.numbering import Scope
from optrove.capture.parameters import ParameterFiles, remove_empty
from optrove.capture.tracing import Tracing, Wanted
from optrove.codec.records import record_to_builtins
from optrove.errors import OptroveError
from optrove.flows.hints import PLUGIN, hints
from optrove.flows.outputs import Outputs, sinks_of
from optrove.flows.runs import filter_of, new_run, settled
from optrove.flows.stores import check, make_directory, owning
from optrove.flows.trace import parameter_place
from optrove.model.records import Phase
from optrove.plugin.asked import Asked, place_of
from optrove.plugin.items import subject
from optrove.plugin.section import Files, Found, find_and_store, told
from optrove.plugin.session import BOARD, has_workers, is_worker, process_number, run_id
from optrove.plugin.testresults import TestResults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.records import TestResult

_FILES = "optrove_parameter_files"


def start_tracing(config: pytest.Config, asked: Asked) -> None:
    """Trace this process until its session ends; a controller of pytest-xdist does not."""
    traced = TracedSession(config, asked)
    config.add_cleanup(traced.finish)
    traced.own_journals()
    config.pluginmanager.register(traced, "optrove-tracing")
    if not has_workers(config):
        traced.begin()
        return
    # A file that cannot be written to is refused here, before each worker does.
    for sink in sinks_of(Outputs(jsonl=asked.jsonl)):
        sink.close()


class TracedSession:
    """The part of the plugin that traces, and says what was traced."""

    def __init__(self, config: pytest.Config, asked: Asked) -> None:
        self._config = config
        self._asked = asked
        self._run_id = run_id(config)
        self._place = place_of(asked, self._run_id)
        self._tracing: Tracing | None = None
        self._parameters: ParameterFiles | None = None
        self._files = Files()
        self._tests = TestResults(self._run_id, self._record)
        self._found: Found | None = None
        self._finished = False
        self._owned = ExitStack()

    def own_journals(self) -> None:
        """Keep others from taking in the journals that this session is going to.

        OptroveError when the trove is going to refuse them.
        """
        if self._place.store is not None and not is_worker(self._config):
            check(self._place.store)
            make_directory(self._place.directory)
            self._owned.enter_context(owning(self._place.directory))

    def begin(self) -> None:
        """Begin to trace; OptroveError when that cannot be."""
        asked, config = self._asked, self._config
        outputs = Outputs(asked.jsonl, asked.params_dir, asked.values, asked.sketch)
        sinks = list(sinks_of(outputs))
        if asked.params:
            # As ttnn's own tracer: no files of torch's calls, unless these are what is traced.
            of = "" if asked.backend == "torch" else "ttnn."
            self._parameters = ParameterFiles(parameter_place, values=asked.values, of=of)
            sinks.append(self._parameters)
        source = " ".join(config.known_args_namespace.file_or_dir) or "pytest"
        command_line = ("pytest", *map(str, config.invocation_params.args))
        tracing = Tracing(
            self._place.directory,
            new_run(source, command_line, run_id=self._run_id, model=asked.model),
            wanted=Wanted(asked.backend, filter_of(asked.include, asked.exclude)),
            sinks=sinks,
            process=process_number(config),
            settle=settled,
        )
        tracing.start()
        self._tracing = tracing

    def finish(self, exit_code: int | None = None) -> None:
        """End the trace, sum it up and tidy up; does nothing the second time."""
        if self._finished:
            return
        self._finished = True
        if self._tracing is not None:
            self._tests.cut_short()
            self._tracing.stop(exit_code)
            # Its caches hold objects of ttnn, which complains of those that outlive it.
            self._tracing = None
        self._tidy_parameters()
        # One that was told where to keep its journals is summed up by whoever told it.
        if not is_worker(self._config) and self._asked.journal is None:
            with self._owned:
                self._found = find_and_store(self._place)
            if self._place.temporary and self._found.in_order:
                self._remove_journals()

    def pytest_report_header(self) -> str:
        """Say where the calls go."""
        store = self._place.store
        where = f"journals in {self._place.directory}" if store is None else f"into {store}"
        return f"optrove: tracing op calls, {where}"

    def pytest_configure(self, config: pytest.Config) -> None:
        """Begin now if there are no workers after all, as with ``-n auto --pdb``."""
        idle = self._tracing is None and not self._finished
        if idle and config.getoption("dist", "no") == "no":
            try:
                self.begin()
            except OptroveError as error:
                raise pytest.UsageError(str(error)) from error

    def pytest_collection_finish(self) -> None:
        """Note on which board ttnn runs, as it has been imported by now, in case of a crash."""
        tracing = self._tracing
        if tracing is not None:
            try:
                tracing.journal.write({"run": record_to_builtins(settled(tracing.run))})
            except OSError as error:
                tracing.recorder.fault("the record of the run", error)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute calls to the test until it has ended."""
        self._tests.begin(item)
        yield
        self._tests.leave()
        if self._tracing is not None:
            self._tracing.enter(Scope())

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Attribute calls to the test's setup."""
        self._enter(item, Phase.SETUP)
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Attribute calls to the test itself."""
        self._enter(item, Phase.CALL)
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Attribute calls to the test's teardown."""
        self._enter(item, Phase.TEARDOWN)
        yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report; with the last one of a test its result is recorded."""
        self._tests.add(report)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self._tests.end = f"the session was interrupted: {excinfo.exconly()}"

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self._tests.end = f"pytest failed: {excinfo.exconly()}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the trace; a worker of pytest-xdist tells its controller what it has written."""
        self.finish(int(session.exitstatus))
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            files = self._files
            output[_FILES] = [dict(files.written), sorted(files.left), files.problems]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist has told; one that crashed has not."""
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        written, left, problems = output.get(_FILES, ({}, (), ()))
        self._files.written.update(written)
        self._files.left.update(left)
        self._files.problems.extend(problems)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Say what was traced and where it is, and warn when it is nothing."""
        if self._found is None or self._config.option.collectonly:
            return
        terminalreporter.section("optrove: op calls")
        for line, warns in told(self._found, self._asked, self._place, self._files):
            terminalreporter.line(line, yellow=warns)
        # What a mock board says for itself is not said again.
        if self._found.summary is not None and not self._config.pluginmanager.has_plugin(BOARD):
            for hint in hints(self._found.summary, int(exitstatus), PLUGIN):
                terminalreporter.line(f"hint: {hint}", yellow=True)

    def _enter(self, item: pytest.Item, phase: Phase) -> None:
        tracing = self._tracing
        if tracing is not None:
            module, mode = self._tests.subject = subject(
                item, lambda error: tracing.recorder.fault(f"what {item.nodeid} tests", error)
            )
            tracing.enter(Scope(item.nodeid, phase, module, mode))

    def _record(self, result: TestResult) -> None:
        if self._tracing is not None:
            self._tracing.record_test(result)

    def _tidy_parameters(self) -> None:
        files = self._files
        try:
            if self._parameters is not None:
                written = self._parameters.written()
                files.written.update({str(place): count for place, count in written.items()})
                if not self._asked.params_keep:
                    files.left.update(map(str, self._parameters.remove()))
            elif files.left:
                # What workers have left to one another.
                remove_empty(map(Path, files.left))
        except OSError as error:
            files.problems.append(f"parameter files could not be removed: {error}")

    def _remove_journals(self) -> None:
        directory = self._place.directory
        try:
            if directory.exists():
                shutil.rmtree(directory)
            if self._asked.jsonl is not None:
                directory.parent.rmdir()
        except OSError as error:
            # Another session's journals are there, or it was faster.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                self._files.problems.append(f"journals could not be removed: {error}")
