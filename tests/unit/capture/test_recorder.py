import contextlib
import gc
import resource
import sys
import threading
import weakref
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy
import pytest

from optrove.capture import recorder as recorder_module
from optrove.frameworks.probe_protocol import CURRENT, muted
from optrove.journal import writer as journal_module
from optrove.model.records import CallOutcome, DeviceParameters, Phase, Scope
from optrove.serializer.wire import encode
from tracing import fake_op, perform, readers_in, seen_in, start_recorder, summary_of


@pytest.fixture
def recorder(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    yield recorder
    journal.close()


def calls_in(directory):
    (reader,) = readers_in(directory)
    return seen_in(reader)


def arguments_of(seen):
    return {name: encode(value) for name, value in seen.case.arguments}


class Thing:
    """Of no known class."""


class Spiteful(Exception):
    """An exception that cannot be printed."""

    def __str__(self):
        raise Spiteful

    __repr__ = __str__


def test_calls_are_recorded_once_in_their_order_with_their_case_and_line(recorder, tmp_path):
    observed = fake_op()
    for number in (1, 2, 1):
        perform(recorder, observed, lambda a: a * 2, number)
        line = sys._getframe().f_lineno - 1
    calls = calls_in(tmp_path)
    assert [arguments_of(call) for call in calls] == [{"a": 1}, {"a": 2}, {"a": 1}]
    assert [call.call.op_index for call in calls] == [0, 1, 2]
    assert [[*map(encode, call.call.outputs)] for call in calls] == [[2], [4], [2]]
    assert {(call.file, call.line) for call in calls} == {(__file__, line)}
    assert calls[0].number == calls[2].number != calls[1].number
    assert all(call.call.duration_ns >= 0 for call in calls)


def test_a_call_is_in_the_journal_before_it_is_made(recorder, tmp_path):
    def look(a):
        (call,) = calls_in(tmp_path)
        assert call.call.outcome is CallOutcome.UNFINISHED
        assert call.call.duration_ns is None
        assert arguments_of(call) == {"a": "now"}
        ((flying, case),) = summary_of(tmp_path).in_flight
        assert (case.op, flying.op_index, case) == ("fake.add", 0, call.case)

    perform(recorder, fake_op(), look, "now")
    assert calls_in(tmp_path)[0].outcome == "returned"
    assert summary_of(tmp_path).in_flight == ()


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("no such thing"), "ValueError: no such thing"), (Spiteful(), None)],
    ids=["printable", "not printable"],
)
def test_an_exception_is_recorded_with_its_text_and_goes_on_unchanged(
    recorder, tmp_path, error, text
):
    def fail(a):
        raise error

    with pytest.raises(type(error)) as raised:
        perform(recorder, fake_op(), fail, 1)
    assert raised.value is error
    (call,) = calls_in(tmp_path)
    assert (call.outcome, call.error, call.outputs) == ("raised", text, ())


def test_what_a_composite_op_calls_are_its_children(recorder, tmp_path):
    inner, outer = fake_op("fake.inner"), fake_op("fake.outer", composite=True)

    def nest(a):
        perform(recorder, inner, abs, a)
        if a > 1:
            perform(recorder, outer, nest, a - 1)
        with pytest.raises(TypeError):
            perform(recorder, inner, abs, "text")

    perform(recorder, outer, nest, 2)
    perform(recorder, inner, abs, 5)
    tree = [(call.op, call.call.parent, call.call.depth) for call in calls_in(tmp_path)]
    assert tree == [
        ("fake.outer", None, 0),
        ("fake.inner", 0, 1),
        ("fake.outer", 0, 1),
        ("fake.inner", 2, 2),
        ("fake.inner", 2, 2),
        ("fake.inner", 0, 1),
        ("fake.inner", None, 0),
    ]
    assert CURRENT.get() is None


def test_a_composite_op_that_raises_is_nobodys_parent_afterwards(recorder, tmp_path):
    def fail(a):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(recorder, fake_op(composite=True), fail, 1)
    perform(recorder, fake_op(), abs, 1)
    assert [call.call.parent for call in calls_in(tmp_path)] == [None, None]


def test_threads_at_once_lose_nothing_and_keep_their_own_parents(recorder, tmp_path):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    outer, inner = fake_op("fake.outer", composite=True), fake_op("fake.inner")
    rounds, count = 700, 4

    def work(who):
        def body(number, name):
            perform(recorder, inner, lambda *_: name, number, name)

        for number in range(rounds):
            perform(recorder, outer, body, number % 50, who)

    threads = [threading.Thread(target=work, args=(f"thread {who}",)) for who in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    calls = calls_in(tmp_path)
    assert len(calls) == 2 * rounds * count
    by_index = {call.call.op_index: call for call in calls}
    assert sorted(by_index) == [*range(len(calls))]
    for call in calls:
        if call.op == "fake.inner":
            parent = by_index[call.call.parent]
            assert (parent.op, call.call.depth) == ("fake.outer", 1)
            assert arguments_of(parent) == arguments_of(call)
            assert [*map(encode, call.call.outputs)] == [arguments_of(call)["b"]]
    summary = summary_of(tmp_path)
    assert summary.cases == summary.left.nested.cases == 50 * count
    assert recorder.faults == {}


def test_many_windows_are_filled_by_many_threads(tmp_path, monkeypatch):
    page = journal_module.mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(journal_module, "WINDOW_RECORDS", page)
    monkeypatch.setattr(journal_module, "WINDOW_SIZE", page * journal_module.RECORD_SIZE)
    recorder, journal = start_recorder(tmp_path)
    tidied = []
    recorder.tidy.append(lambda: tidied.append(1))
    observed = fake_op()

    def work():
        for number in range(page):
            perform(recorder, observed, abs, number % 3)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    journal.close()
    assert summary_of(tmp_path).calls == 4 * page
    assert len(tidied) >= 3
    (reader,) = readers_in(tmp_path)
    calls = [*reader.calls_with_case()]
    assert {call.op_index for call in calls} == {*range(4 * page)}
    assert all(call.outcome is CallOutcome.RETURNED for call in calls)


def test_an_argument_of_unknown_class_is_counted_and_never_merged(recorder, tmp_path):
    observed = fake_op(key=lambda arguments, keywords: None)
    for _ in range(3):
        perform(recorder, observed, lambda a: None, Thing())
    calls = calls_in(tmp_path)
    assert [call.kind for call in calls] == ["opaque"] * 3
    assert len({call.hash for call in calls}) == 3
    summary = summary_of(tmp_path)
    assert (summary.accounting.observed, summary.cases, summary.known_cases) == (3, 3, 0)
    ((reason, count),) = summary.accounting.untraceable
    assert "Thing" in reason
    assert count == 3


def test_what_goes_wrong_in_the_tracing_reaches_the_summary_and_not_the_program(recorder, tmp_path):
    def spiteful(*_):
        raise Spiteful

    results = [
        perform(recorder, fake_op("fake.key", key=spiteful), abs, -1),
        perform(recorder, fake_op("fake.bind", bind=spiteful), abs, -2),
        perform(recorder, fake_op("fake.result", result_key=spiteful), abs, -3),
    ]
    assert results == [1, 2, 3]
    calls = calls_in(tmp_path)
    assert [call.kind for call in calls] == ["untraceable", "untraceable", "case"]
    assert [call.outcome for call in calls] == ["returned"] * 3
    assert "fake.bind: Spiteful" in calls[1].reason
    assert len(recorder.faults) == 3
    assert summary_of(tmp_path).accounting.observed == 3


def test_ops_that_are_not_wanted_are_counted_by_reason(tmp_path):
    recorder, journal = start_recorder(
        tmp_path, left_out=lambda op: "not wanted" if op == "fake.b" else None
    )
    for _ in range(3):
        perform(recorder, fake_op("fake.a"), abs, 1)
        perform(recorder, fake_op("fake.b"), abs, 1)
    journal.close()
    summary = summary_of(tmp_path)
    assert summary.accounting.filtered == (("not wanted", 3),)
    assert (summary.accounting.observed, summary.accounting.stored, summary.cases) == (6, 1, 1)


def test_calls_of_an_installed_library_at_its_import_are_counted_apart(
    recorder, tmp_path, monkeypatch
):
    library = tmp_path / "site-packages" / "fakevision"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("from fakevision_calls import ask\n\nask()\n")
    (tmp_path / "own_model.py").write_text("from fakevision_calls import ask\n\nask()\n")
    calls = ModuleType("fakevision_calls")
    calls.ask = lambda: perform(recorder, fake_op("fake.version"), abs, 1)
    monkeypatch.setitem(sys.modules, "fakevision_calls", calls)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(library.parent), *sys.path])
    import_module("fakevision")
    calls.ask()
    import_module("own_model")
    for name in ("fakevision", "own_model"):
        del sys.modules[name]
    summary = summary_of(tmp_path)
    assert summary.accounting.filtered == (("made by fakevision at its import", 1),)
    assert [(each.op, each.calls) for each in summary.ops] == [("fake.version", 2)]


def test_calls_that_are_not_the_programs_own_are_not_recorded_as_parents(recorder, tmp_path):
    with muted():
        pass
    perform(recorder, fake_op(), abs, 1)
    assert [call.call.parent for call in calls_in(tmp_path)] == [None]


def test_calls_belong_to_the_scope_in_which_they_begin(recorder, tmp_path):
    observed = fake_op()
    device = DeviceParameters(mesh_shape=(4, 8), fabric_config="FABRIC_1D")
    perform(recorder, observed, abs, 1)
    recorder.set_scope(Scope("t.py::a", Phase.SETUP))
    perform(recorder, observed, abs, 1)
    recorder.set_scope(Scope("t.py::a", Phase.CALL, "mlp", "decode", device))
    perform(recorder, observed, abs, 1)
    recorder.set_scope(Scope("t.py::a", Phase.SETUP))
    perform(recorder, observed, abs, 1)
    calls = [call.call for call in calls_in(tmp_path)]
    assert [(call.test_id, call.phase, call.module, call.mode, call.device) for call in calls] == [
        (None, None, None, None, None),
        ("t.py::a", Phase.SETUP, None, None, None),
        ("t.py::a", Phase.CALL, "mlp", "decode", device),
        ("t.py::a", Phase.SETUP, None, None, None),
    ]


def fail(a):
    raise ValueError


@pytest.mark.parametrize("function", [lambda a: 1, lambda a: None, lambda a: a, fail])
def test_the_tensors_of_an_ended_call_are_not_kept_alive(recorder, function):
    tensor = numpy.zeros(3)
    alive = weakref.ref(tensor)
    observed = fake_op(
        key=lambda arguments, keywords: "always the same",
        result_key=lambda known, result, call: None,
    )
    with contextlib.suppress(ValueError):
        perform(recorder, observed, function, tensor)
    assert [*recorder.fast_path_state.cached_cases] == ["always the same"]
    del tensor
    gc.collect()
    assert alive() is None


def test_a_call_within_one_of_the_same_case_has_outputs_of_its_own(recorder, tmp_path):
    observed = fake_op(
        composite=True,
        key=lambda arguments, keywords: "always the same",
        result_key=lambda known, result, call: ("the argument", result is call[0][0]),
    )

    def once_more(a):
        if depth:
            depth.pop()
            perform(recorder, observed, once_more, numpy.zeros(3))
        return a

    depth = [1]
    perform(recorder, observed, once_more, numpy.zeros(3))
    outer, inner = calls_in(tmp_path)
    assert outer.number == inner.number
    for call in (outer, inner):
        (output,) = call.call.outputs
        assert output.identity == call["a"].identity


def test_numbers_that_an_op_reads_are_not_recorded(recorder, tmp_path):
    observed = fake_op("fake.item")
    observed.reads = True
    perform(recorder, observed, lambda a: 41, 1)
    (call,) = calls_in(tmp_path)
    assert (call.outcome, call.call.outputs) == ("returned", ())


def test_results_that_always_differ_do_not_pile_up(recorder, tmp_path):
    observed = fake_op()
    results = iter(range(1000))
    for _ in range(1000):
        perform(recorder, observed, lambda a: next(results), 1)
    (known,) = recorder.fast_path_state.cached_cases.values()
    assert len(known.outputs) <= recorder_module.MAX_RESULTS
    assert [encode(call.call.outputs[0]) for call in calls_in(tmp_path)] == [*range(1000)]


def test_after_its_end_a_recorder_records_nothing(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    observed = fake_op()
    perform(recorder, observed, abs, 1)
    recorder.close()
    journal.close()
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert perform(recorder, observed, abs, -1) == 1
    assert perform(recorder, observed, abs, -2) == 2
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before


def test_what_is_known_stays_bounded_and_forgetting_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_KNOWN", 10)
    recorder, journal = start_recorder(tmp_path)
    observed = fake_op()
    for _ in range(2):
        for number in range(35):
            perform(recorder, observed, abs, number)
            assert len(recorder.fast_path_state.cached_cases) <= 10
    journal.close()
    summary = summary_of(tmp_path)
    assert (summary.accounting.observed, summary.cases) == (70, 35)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_calls(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    observed = fake_op()
    before = resident_bytes()
    most = 0
    for number in range(200_000):
        perform(recorder, observed, abs, number % 10_000)
        if number % 10_000 == 0:
            most = max(most, resident_bytes())
    journal.close()
    assert most - before < 40_000_000
    (reader,) = readers_in(tmp_path)
    assert reader.calls == 200_000
    assert len(reader.case_ids()) >= 10_000


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_calls_with_unknown_things_are_counted_when_there_are_too_many_cases(
    recorder, tmp_path, monkeypatch
):
    monkeypatch.setattr("optrove.journal.writer.MAX_OPAQUE", 2)
    for _ in range(5):
        perform(recorder, fake_op(), lambda _: None, Thing())
    summary = summary_of(tmp_path)
    assert summary.accounting.observed == 5
    assert (summary.cases, summary.calls) == (2, 5)
    assert [count for _, count in summary.accounting.untraceable] == [5]


def test_a_call_with_unknown_things_counts_as_none_that_differs_otherwise(
    recorder, tmp_path, monkeypatch
):
    monkeypatch.setattr("optrove.journal.writer.MAX_OPAQUE", 2)
    for number in (1, 2, 3, 2):
        perform(recorder, fake_op(), lambda *_: None, Thing(), number)
    summary = summary_of(tmp_path)
    assert summary.accounting.observed == 4
    assert (summary.cases, summary.calls) == (2, 3)


def test_an_error_that_is_raised_again_is_written_once(recorder, tmp_path):
    for _ in range(3):
        with contextlib.suppress(ValueError):
            perform(recorder, fake_op(), lambda a: int("x"), 1)
    (reader,) = readers_in(tmp_path)
    assert len({ending for _, _, ending, _ in reader.tallies}) == 1
