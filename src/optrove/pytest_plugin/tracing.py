"""Trace the op calls of a pytest session and summarize them at its end.

Each process that runs tests traces itself. In a session of pytest-xdist these are the workers;
their controller traces nothing, but summarizes their journals and tidies up.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optrove.capture.parameters import ParameterFiles, remove_empty
from optrove.capture.runs import new_run, with_board
from optrove.errors import OptroveError
from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.probe_protocol import muted
from optrove.model.exit_codes import INTERRUPTED
from optrove.model.ops import add_up
from optrove.model.records import Measurement, Phase, Scope, TestOutcome, TestResult, now
from optrove.pytest_plugin.items import parameters, subject
from optrove.pytest_plugin.observer import SEEN
from optrove.pytest_plugin.session import (
    BOARD_PLUGIN,
    EarlyEnd,
    TestReports,
    has_workers,
    is_worker,
    process_number,
    run_id,
)
from optrove.pytest_plugin.start import TraceRequest, journal_place
from optrove.report.listings import left_out_texts
from optrove.report.summary import TraceSummary, accounting_text, summarize
from optrove.report.wording import plural
from optrove.serializer.describe import Describer
from optrove.serializer.records import record_to_builtins
from optrove.tracing.recorded import Recorded, store_journals
from optrove.tracing.results import PLUGIN, hints
from optrove.tracing.trace import TraceOptions, parameter_place
from optrove.trove.opening import check, make_directory, read_journals, run_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.capture.tracing import Tracing
    from optrove.model.case import NamedValues
    from optrove.model.records import Counts
    from optrove.pytest_plugin.start import JournalPlace


_NO_NUMBER_OF_JSON = ("nan", "inf", "-inf")


class TestResults:
    """The test that runs in this process, until its result is passed to ``record``."""

    __test__ = False  # not a test, despite its name

    def __init__(self, run_id: str, record: Callable[[TestResult], None]) -> None:
        self._run_id = run_id
        self._record = record
        self._item: pytest.Item | None = None
        self._restart()
        self.subject: tuple[str | None, str | None] = (None, None)

    def begin(self, item: pytest.Item) -> None:
        """Expect the reports of a test."""
        self._item = item
        self.subject = (None, None)
        self._restart()

    def add(self, report: pytest.TestReport) -> None:
        """Add a report; record the result after the last one of its test."""
        if self._item is None or report.nodeid != self._item.nodeid:
            return
        # A test that is run again has a setup again, and a result for each run.
        if report.when == "setup":
            self._restart()
        self._reports.add(report, getattr(report, SEEN, None))
        if report.when == "teardown":
            self._finish(self._item, self._reports.outcome())

    def cut_short(self, reason: str) -> None:
        """Record the result of a test that has begun and will not end."""
        if self._item is not None and not self._finished:
            self._reports.errors.append(reason)
            self._finish(self._item, TestOutcome.UNFINISHED)

    def leave(self) -> None:
        """Expect no more reports of the test; one that did not end may still be recorded."""
        if self._finished:
            self._item = None

    def _restart(self) -> None:
        nodeid = "" if self._item is None else self._item.nodeid
        self._reports = TestReports(nodeid, "", time.time())
        self._started_at = now()
        self._finished = False

    def _finish(self, item: pytest.Item, outcome: TestOutcome) -> None:
        reports, (module, mode) = self._reports, self.subject
        durations = {phase: round(took * 1e9) for phase, took in reports.durations.items()}
        self._finished = True
        self._record(
            TestResult(
                run_id=self._run_id,
                test_id=item.nodeid,
                outcome=outcome,
                module=module,
                mode=mode,
                started_at=self._started_at,
                setup_ns=durations.get("setup"),
                call_ns=durations.get("call"),
                teardown_ns=durations.get("teardown"),
                parameters=_described(parameters(item)),
                metrics=tuple(_measurements(reports.seen["metrics"])),
                properties=_described(dict(item.user_properties)),
                error="\n".join(reports.errors) or None,
            )
        )


def _described(values: Mapping[str, Any]) -> NamedValues:
    with muted():
        session = Describer(loaded_tables())
        return tuple([(str(name), session.describe(value)) for name, value in values.items()])


def _measurements(metrics: Iterable[Mapping[str, Any]]) -> Iterable[Measurement]:
    """Yield the metrics that are numbers; the others are only in the file of results."""
    for metric in metrics:
        value = metric["value"]
        if value in _NO_NUMBER_OF_JSON:
            value = float(value)
        if isinstance(value, int | float):
            threshold = metric["threshold"]
            bound = float(threshold) if threshold in _NO_NUMBER_OF_JSON else threshold
            yield Measurement(metric["type"], value, bound, metric["passed"])


_MAX_REASONS = 5
NOTHING = (
    "not a single op call was traced: were all tests skipped, do they import ttnn (or torch), "
    "is --optrove-backend the right one, do --optrove-include and --optrove-exclude leave any?"
)


@dataclass(slots=True)
class WrittenFiles:
    """The number of parameter files by directory, over all processes."""

    written: Counter[str] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    """Directories that were created for them and not empty when their process ended."""
    problems: list[str] = field(default_factory=list)


def read_and_store(place: JournalPlace, made: Sequence[Path]) -> Recorded | OptroveError:
    """Summarize the journals of a session, and add them to its trove if it has one.

    Return the error if the journals cannot be read.
    """
    try:
        if place.store is not None:
            return store_journals(place.directory, place.store, made)
        journals = read_journals(place.directory)
        return Recorded(place.directory, summarize(journals), journals)
    except OptroveError as error:
        return error


def section_lines(
    recorded: Recorded | OptroveError, asked: TraceRequest, place: JournalPlace, files: WrittenFiles
) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the terminal section, and for each whether it is a warning."""
    summary = None if isinstance(recorded, OptroveError) else recorded.summary
    if summary is None:
        yield f"the journals cannot be summarized: {recorded}", True
    else:
        yield from _counted(summary)
    if asked.options.jsonl is not None:
        yield f"{_lines_written(summary)}: {asked.options.jsonl}", False
    for directory, count in files.written.items():
        kept = "" if asked.params_keep else ", removed (keep them with --trace-params-keep)"
        yield f"{plural(count, 'parameter file')}: {directory}{kept}", False
    if isinstance(recorded, OptroveError):
        yield f"journals: {place.directory}", True
    else:
        yield from _places(recorded, place)
    for problem in files.problems:
        yield problem, True


def _lines_written(summary: TraceSummary | None) -> str:
    if summary is None or summary.faults:
        # A fault may have prevented a line.
        return "one line per observed call"
    filtered = _total(summary.accounting.filtered)
    lines = summary.accounting.observed - filtered - len(summary.in_flight)
    left = ", without those filtered" if filtered else ""
    return f"{plural(lines, 'line')}, one per observed call{left}"


def _places(recorded: Recorded, place: JournalPlace) -> Iterator[tuple[str, bool]]:
    """Yield lines with the trove or the journals that have the calls."""
    stored = place.store is not None and recorded.problem is None
    if place.store is not None and recorded.summary.ops:
        if stored:
            known = f"{recorded.summary.known_cases} of the cases were in it already"
            yield f"trove: {place.store}, {known}", False
        else:
            yield f"the calls could not be added to the trove: {recorded.problem}", True
    if not stored and not (place.temporary and recorded.in_order):
        yield f"journals: {place.directory}", not recorded.in_order


def _counted(summary: TraceSummary) -> Iterator[tuple[str, bool]]:
    if summary.accounting.observed:
        yield from _sums(summary)
    else:
        yield NOTHING, True
    yield from _listed("filtered", summary.accounting.filtered, warns=False)
    yield from _listed("untraceable", summary.accounting.untraceable, warns=True)
    yield from _listed("faults of the tracer", summary.faults, warns=True)
    for call, case in summary.in_flight:
        site = "" if call.call_site is None else f" at {call.call_site.file}:{call.call_site.line}"
        test = "" if call.test_id is None else f" in {call.test_id}"
        yield f"did not end: {case.op}{test}{site}", True


def _sums(summary: TraceSummary) -> Iterator[tuple[str, bool]]:
    total = add_up(summary.ops).amount
    calls, ops = plural(total.calls, "call"), plural(total.ops, "op")
    yield f"{calls} of {ops}, {plural(total.cases, 'case')}", False
    for line in left_out_texts(summary.left, options=False):
        yield line, False
    yield accounting_text(summary.accounting), not summary.accounting.adds_up()


def _listed(title: str, counts: Counts, *, warns: bool) -> Iterator[tuple[str, bool]]:
    for text, count in counts[:_MAX_REASONS]:
        yield f"{title}: {count} x {text}", warns
    if len(counts) > _MAX_REASONS:
        yield f"{title}: {_total(counts[_MAX_REASONS:])} more for other reasons", warns


def _total(counts: Counts) -> int:
    return sum(count for _, count in counts)


_FILES = "optrove_parameter_files"


def start_tracing(config: pytest.Config, asked: TraceRequest) -> None:
    """Trace this process until its session ends, unless it is a pytest-xdist controller."""
    traced = TracedSession(config, asked)
    traced.own_journals()
    config.add_cleanup(traced.finish)
    config.pluginmanager.register(traced, "optrove-tracing")
    if not has_workers(config):
        traced.begin()
        return
    # Refuse a file that cannot be written here, before each worker does.
    for sink in TraceOptions(jsonl=asked.options.jsonl).sinks():
        sink.close()


class TracedSession(EarlyEnd):
    """The part of the plugin that traces, and summarizes the trace."""

    def __init__(self, config: pytest.Config, asked: TraceRequest) -> None:
        self._config = config
        self._asked = asked
        self._run_id = run_id(config)
        self._place = journal_place(asked, self._run_id)
        self._tracing: Tracing | None = None
        self._parameters: ParameterFiles | None = None
        self._files = WrittenFiles()
        self._tests = TestResults(self._run_id, self._record)
        self._made: list[Path] = []
        self._recorded: Recorded | OptroveError | None = None
        self._finished = False
        self._owned = ExitStack()

    def own_journals(self) -> None:
        """Keep other processes from adding the journals of this session to the trove.

        OptroveError if the trove would refuse them.
        """
        if self._place.store is not None and not is_worker(self._config):
            check(self._place.store)
            self._made = make_directory(self._place.directory)
            self._owned.enter_context(run_lock(self._place.directory))

    def begin(self) -> None:
        """Start tracing; OptroveError if that is not possible."""
        options, config = self._asked.options, self._config
        sinks = []
        if self._asked.params:
            # As in ttnn's own tracer: no files for torch calls, unless only torch is traced.
            of = "" if options.backend == "torch" else "ttnn."
            values = options.params_values
            self._parameters = ParameterFiles(parameter_place, values=values, of=of)
            sinks.append(self._parameters)
        source = " ".join(config.known_args_namespace.file_or_dir) or "pytest"
        command_line = ("pytest", *map(str, config.invocation_params.args))
        tracing = options.tracing(
            self._place.directory,
            new_run(source, command_line, run_id=self._run_id, model=options.model),
            process=process_number(config),
            sinks=sinks,
        )
        tracing.start()
        self._tracing = tracing

    def finish(self, exit_code: int | None = None) -> None:
        """End the trace, summarize it and tidy up; does nothing the second time."""
        if self._finished:
            return
        self._finished = True
        if self._tracing is not None:
            self._tests.cut_short(self.reason)
            self._tracing.stop(exit_code)
            # Its caches hold objects of ttnn, which complains about objects that outlive it.
            self._tracing = None
        self._tidy_parameters()
        # With --optrove-journal, the caller summarizes the journals.
        if not is_worker(self._config) and self._asked.journal is None:
            with self._owned:
                recorded = self._recorded = read_and_store(self._place, self._made)
            if self._place.temporary and isinstance(recorded, Recorded) and recorded.in_order:
                self._remove_journals()

    def pytest_report_header(self) -> str:
        """Show the trove or the journals that calls are recorded in."""
        store = self._place.store
        where = f"journals in {self._place.directory}" if store is None else f"into {store}"
        return f"optrove: tracing op calls, {where}"

    def pytest_configure(self, config: pytest.Config) -> None:
        """Start tracing now if there are no workers after all, as with ``-n auto --pdb``."""
        idle = self._tracing is None and not self._finished
        if idle and config.getoption("dist", "no") == "no":
            try:
                self.begin()
            except OptroveError as error:
                raise pytest.UsageError(str(error)) from error

    def pytest_collection_finish(self) -> None:
        """Record the board in case of a crash; ttnn has been imported by now."""
        tracing = self._tracing
        if tracing is not None:
            try:
                tracing.journal.write({"run": record_to_builtins(with_board(tracing.run))})
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
        """Add a report; record the result after the last one of its test."""
        self._tests.add(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the trace; a pytest-xdist worker sends its numbers of files to the controller."""
        stopped = self.interrupted and session.exitstatus == pytest.ExitCode.INTERRUPTED
        self.finish(INTERRUPTED if stopped else int(session.exitstatus))
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            files = self._files
            output[_FILES] = [dict(files.written), sorted(files.left), files.problems]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the numbers of a pytest-xdist worker; a worker that crashed has none."""
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        written, left, problems = output.get(_FILES, ({}, (), ()))
        self._files.written.update(written)
        self._files.left.update(left)
        self._files.problems.extend(problems)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Show the summary of the trace; warn if there is nothing in it."""
        recorded = self._recorded
        if recorded is None or self._config.option.collectonly:
            return
        terminalreporter.section("optrove: op calls")
        for line, warns in section_lines(recorded, self._asked, self._place, self._files):
            terminalreporter.line(line, yellow=warns)
        # A mock board prints its own hints.
        if isinstance(recorded, Recorded) and not self._config.pluginmanager.has_plugin(
            BOARD_PLUGIN
        ):
            for hint in hints(recorded.summary, int(exitstatus), PLUGIN):
                terminalreporter.line(f"hint: {hint}", yellow=True)

    def _enter(self, item: pytest.Item, phase: Phase) -> None:
        tracing = self._tracing
        if tracing is not None:
            module, mode = self._tests.subject = subject(
                item, lambda error: tracing.recorder.fault(f"the module of {item.nodeid}", error)
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
                # Directories that workers shared.
                remove_empty(map(Path, files.left))
        except OSError as error:
            files.problems.append(f"parameter files could not be removed: {error}")

    def _remove_journals(self) -> None:
        directory = self._place.directory
        try:
            if directory.exists():
                shutil.rmtree(directory)
            if self._asked.options.jsonl is not None:
                directory.parent.rmdir()
        except OSError as error:
            # The directory has journals of another session, or that session removed it.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                self._files.problems.append(f"journals could not be removed: {error}")
