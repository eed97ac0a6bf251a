"""The two hot paths, in C and in Python, record the same and let nothing go wrong.

test_capture_modes.py tests what the fast path and the slow one have in common.
"""

import _thread
import copy
import gc
import sys
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from types import FunctionType

import pytest

from optrove.capture.tracing import active_tracing
from optrove.frameworks.probe_protocol import ObservedOp
from optrove.frameworks.ttnn.probe import fast_path
from optrove.frameworks.ttnn.probe.fingerprints import TtnnFingerprints
from optrove.frameworks.ttnn.probe.probe import TtnnProbe
from optrove.journal import format as layout
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import WINDOW_RECORDS, Journal
from tracing import seen_in, start_recorder, tracing
from ttnn_calls import table_of_calls

pytestmark = pytest.mark.ttnn


class Watch:
    """Functions of the tests' own that are watched as ttnn's are, by a recorder of their own."""

    def __init__(self, ttnn, directory):
        self._directory = directory
        self.native = fast_path.is_native()
        self.recorder, self.journal = start_recorder(directory)
        self.begun = []
        begin = self.recorder.begin

        def counted(*parts):
            self.begun.append(parts[0].op)
            return begin(*parts)

        self.recorder.begin = counted
        self.asked = []
        site = self.recorder.site

        def noted(frame):
            self.asked.append(frame.f_code.co_name)
            return site(frame)

        self.recorder.site = noted
        self.fingerprints = TtnnFingerprints(
            ttnn, self.recorder.tables, self.recorder.cache, lambda _: None
        )
        self._probe = TtnnProbe(ttnn, self.recorder, self.fingerprints)

    def __call__(self, function, op="own.op"):
        def bind(arguments, keywords):
            return {**{f"at_{i}": each for i, each in enumerate(arguments)}, **keywords}

        key = partial(self.fingerprints.call, op)
        observed = ObservedOp(op, bind, key, self.fingerprints.result, composite=False)
        return self._probe._replacement(observed, function, frames=1)

    @property
    def reader(self):
        """What reads the journal as it is now."""
        (path,) = find_journals(self._directory)
        return JournalReader(path)

    @property
    def calls(self):
        """What was recorded."""
        return seen_in(self.reader)

    @property
    def outcomes(self):
        return [call.outcome for call in self.calls]


@pytest.fixture
def watch(either_way, ttnn, tmp_path):
    watch = Watch(ttnn, tmp_path)
    yield watch
    watch.recorder.close()
    watch.journal.close()


def again(function, *arguments):
    """Call a function from one and the same line, as only such calls are repeated ones."""
    return function(*arguments)


def call_from_nowhere(function, *arguments):
    """Call a function in a thread of its own with no Python code above it, and wait for its end."""
    call = partial(function, *arguments)
    # The thread lets go of what it was to call when that has returned.
    going_on = weakref.ref(call)
    _thread.start_new_thread(call, ())
    del call
    until = time.monotonic() + 60
    while going_on() is not None:
        assert time.monotonic() < until
        time.sleep(0.001)


def attempt(call):
    """Make a call that may be wrong; return what it raised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - of ttnn's many kinds, and of Python's
        return first_lines(f"{type(error).__name__}: {error}")
    return None


def first_lines(text):
    """Return the text of an error, without the addresses that ttnn adds."""
    return text and text.partition("backtrace:")[0]


def facts_of(call):
    """Return all that a record tells, except for the time of day."""
    return (
        call.op,
        call.kind,
        call.hash,
        (call.file, call.line),
        call.outcome,
        first_lines(call.call.error),
        call.call.outputs,
        (call.call.parent, call.call.depth, call.call.op_index),
    )


def test_the_same_calls_give_the_same_records(tmp_path, ttnn, make, device, record_by):
    calls = list(table_of_calls(ttnn, make, device).values())
    recorded, raised = [], []
    for way in ("in C", "in Python"):
        record_by(way)
        with tracing(tmp_path / way, backend="ttnn") as traced:
            raised.append([attempt(call) for _ in range(4) for call in calls])
        recorded.append([facts_of(call) for call in traced.calls])
    assert len(recorded[0]) > 4 * len(calls)
    assert recorded[0] == recorded[1]
    assert raised[0] == raised[1] == [attempt(call) for _ in range(4) for call in calls]


def test_a_repeated_call_is_not_described_again(watch, make):
    a, b = make(), make()
    own = watch(lambda *arguments, **keywords: a)
    for _ in range(5):
        own(a, b, 1, "x", [2, 3], 0.5, name=None)
    assert watch.outcomes == ["returned"] * 5
    assert len(watch.begun) == 1


CALLS = [
    ((1,), {}),
    ((1.0,), {}),
    ((True,), {}),
    (("1",), {}),
    ((b"1",), {}),
    ((None,), {}),
    ((-1,), {}),
    ((2**63,), {}),
    ((-(2**63),), {}),
    ((2**70,), {}),
    ((0,), {}),
    ((0.0,), {}),
    ((-0.0,), {}),
    ((float("inf"),), {}),
    ((), {}),
    (((),), {}),
    (([],), {}),
    (((1, 2),), {}),
    (([1, 2],), {}),
    ((1, 2), {}),
    (((1,), 2), {}),
    (((1, 2.0),), {}),
    (((1, True),), {}),
    (((1, (2,)),), {}),
    (((1, 2**70),), {}),
    (("a", "x"), {}),
    (("a",), {"x": "x"}),
    ((), {"a": 1, "b": 2}),
    ((), {"b": 1, "a": 2}),
    ((), {"a": (1, 2), "b": 1}),
    (tuple(range(11)), {}),
    (tuple(range(12)), {}),
    (tuple(range(13)), {}),
    ((*range(12), 13), {}),
    ((tuple(range(11)),), {}),
    ((tuple(range(12)),), {}),
    ((tuple(range(40)),), {}),
]


def test_calls_that_differ_in_anything_are_distinguished(watch):
    own = watch(lambda *arguments, **keywords: None)
    for _ in range(4):
        for arguments, keywords in CALLS:
            own(*arguments, **keywords)
    hashes = [call.hash for call in watch.calls]
    assert len(hashes) == 4 * len(CALLS)
    assert len({*hashes}) == len(watch.begun) == len(CALLS)
    for number in range(len(CALLS)):
        assert len({*hashes[number :: len(CALLS)]}) == 1


def test_new_but_equal_texts_are_recognized(watch):
    own = watch(lambda text: None)
    for number in range(20):
        own(f"text {number % 2}")
    assert [call["at_0"].value for call in watch.calls] == ["text 0", "text 1"] * 10
    assert len(watch.begun) == 2


def test_any_number_of_different_calls_is_distinguished(watch):
    own = watch(lambda number, text: None)
    numbers = [*range(3000)]
    for _ in range(3):
        for number in numbers:
            own(number, "text")
    assert [call["at_0"].value for call in watch.calls] == numbers * 3
    assert len(watch.begun) == len(numbers)


def test_the_line_of_a_call_by_a_framework_is_the_line_of_the_user(watch):
    own = watch(lambda: None)
    inner = FunctionType((lambda function: function()).__code__, {"__name__": "ttnn.inner"})
    outer = FunctionType(inner.__code__, {"__name__": "torch.outer"})
    for _ in range(5):
        inner(lambda: outer(own))  # a user's function between two of the frameworks
        inner(own)
    first = watch.calls[0].line
    assert [call.line for call in watch.calls] == [first, first + 1] * 5
    assert {call.file for call in watch.calls} == {__file__}
    if watch.native:
        # Once it is known whose code that is, nobody is asked any more.
        assert len(watch.asked) <= 2


def test_what_was_known_holds_until_it_is_forgotten(watch):
    own = watch(lambda number: None)
    for _ in range(3):
        again(own, 1)
    assert len(watch.begun) == 1
    watch.recorder.fast_path_state.forget()
    for _ in range(3):
        again(own, 1)
    assert len(watch.begun) == 2
    watch.recorder.close()
    for _ in range(3):
        again(own, 1)
    assert watch.outcomes == ["returned"] * 6


def test_another_journal_has_its_own_numbers(watch, tmp_path, make):
    own = watch(lambda *arguments: None)
    a = make()
    for number in (1, 2, 3):
        again(own, number)
        again(own, a, number)
    journal = Journal(tmp_path / "another", 1)
    watch.recorder.continue_in(journal)
    for _ in range(3):
        again(own, a, 3)
        again(own, 2)
    watch.recorder.close()
    journal.close()
    assert len(watch.calls) == 6
    (path,) = find_journals(tmp_path / "another")
    calls = seen_in(JournalReader(path))
    assert [call[f"at_{place}"].value for call, place in zip(calls, [1, 0] * 3, strict=True)] == [
        3,
        2,
    ] * 3
    assert {(call.file, call.line) for call in calls} == {
        (__file__, again.__code__.co_firstlineno + 2)
    }


def test_arguments_and_results_are_let_go(watch, make):
    a = make()
    # Made here, so that nothing else holds them.
    given = (a, (a, "x"), object(), float("2.5"), str(object()), {"name": [a]})
    result = [a]
    own = watch(lambda *arguments, **keywords: result)
    wrong = watch(lambda *arguments, **keywords: int(arguments[3] and "no number"), "own.wrong")

    def count():
        gc.collect()  # what goes sooner or later is not kept
        return [sys.getrefcount(each) for each in (*given, result)]

    def make_calls():
        for size in range(len(given) + 1):
            own(*given[:size])
            own(*given[:size], named=a)
            attempt(lambda: wrong(*given))

    make_calls()
    before = count()
    for _ in range(50):
        make_calls()
    assert count() == before


def test_a_call_may_outlast_its_window(watch):
    def outer(depth):
        for _ in range(WINDOW_RECORDS + 10):
            inner(1)
        if depth:
            watched(depth - 1)

    inner = watch(lambda number: None, "own.inner")
    watched = watch(outer, "own.outer")
    watched(0)
    watched(0)
    watched(1)
    reader = watch.reader
    counts = Counter()
    for (word, *_, outcome), tally in reader.tallies.items():
        counts[reader.op(layout.number_of(word)), outcome] += tally.calls
    assert counts == {
        ("own.outer", layout.RETURNED): 4,
        ("own.inner", layout.RETURNED): 4 * (WINDOW_RECORDS + 10),
    }


@dataclass
class Fragile:
    """An object that interrupts its description, once, when it is armed."""

    value: int

    def __getattribute__(self, name):
        if name == "value" and vars(self).pop("armed", False):
            raise KeyboardInterrupt
        return object.__getattribute__(self, name)

    def arm(self):
        vars(self)["armed"] = True


def test_an_interrupt_while_an_argument_is_described_reaches_the_program(watch):
    own = watch(lambda given: None)
    given = Fragile(1)
    again(own, given)
    again(own, given)
    assert len(watch.begun) == 1
    given.arm()
    with pytest.raises(KeyboardInterrupt):
        again(own, given)
    again(own, given)
    assert watch.outcomes == ["returned"] * 3
    assert len(watch.begun) == 1


def test_an_interrupt_while_a_result_is_described_reaches_the_program(watch):
    given = Fragile(1)
    own = watch(lambda: given)
    again(own)
    again(own)
    given.arm()
    with pytest.raises(KeyboardInterrupt):
        again(own)
    again(own)
    assert watch.outcomes == ["returned"] * 4
    assert [len(call.call.outputs) for call in watch.calls] == [1, 1, 0, 1]
    assert len(watch.begun) == 1


class Interrupting(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def test_an_interrupt_while_an_error_is_recorded_reaches_the_program(watch):
    def fail(given):
        raise given

    failing = [ValueError("first"), ValueError("second"), Interrupting()]
    own = watch(lambda: fail(failing.pop(0)))
    for kind in (ValueError, ValueError, KeyboardInterrupt):
        with pytest.raises(kind):
            own()
    assert watch.outcomes == ["raised"] * 3
    assert [call.call.error for call in watch.calls] == [
        "ValueError: first",
        "ValueError: second",
        None,
    ]


def test_errors_that_cannot_be_printed_stay_the_same(watch):
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    errors = [Unspeakable() for _ in range(3)]

    def fail():
        raise errors[len(watch.outcomes) - 1]

    own = watch(fail)
    for error in errors:
        with pytest.raises(Unspeakable) as caught:
            own()
        assert caught.value is error
    assert watch.outcomes == ["raised"] * 3


def test_a_call_by_no_python_code_is_recorded_without_a_line(watch):
    own = watch(lambda: None)
    for _ in range(3):
        call_from_nowhere(own)
    own()
    assert watch.outcomes == ["returned"] * 4
    assert [call.file for call in watch.calls] == [None, None, None, __file__]


def test_operations_may_be_called_by_no_python_code(tmp_path, ttnn, make, either_way):
    a = make()
    with tracing(tmp_path) as traced:
        for operation in (ttnn.relu, ttnn.Tensor.cpu, ttnn.reallocate, ttnn.Tensor.deallocate):
            call_from_nowhere(operation, a)
    assert [call.op for call in traced.calls if call.call.parent is None] == [
        "ttnn.relu",
        "ttnn.Tensor.cpu",
        "ttnn.reallocate",
        "ttnn.Tensor.deallocate",
    ]
    assert {(call.outcome, call.file) for call in traced.calls} == {("returned", None)}


def test_what_stands_in_for_a_function_has_its_names(tmp_path, ttnn, make, either_way):
    a = make()
    names = ("__name__", "__qualname__", "__module__", "__doc__")

    def counts():
        places = (ttnn.Tensor.reshape, a.reshape, ttnn.deallocate.function)
        return [getattr(place, name) for place in places for name in names]

    before = counts()
    with tracing(tmp_path):
        assert counts() == before
        assert copy.copy(ttnn.Tensor.reshape) is ttnn.Tensor.reshape
        assert copy.deepcopy(ttnn.Tensor.reshape) is ttnn.Tensor.reshape
        with pytest.raises(AttributeError, match="no_such_name"):
            ttnn.Tensor.reshape.no_such_name  # noqa: B018 - that it raises is the point


def test_what_is_kept_of_a_trace_still_works_after_it(tmp_path, ttnn, make, either_way):
    a = make()
    with tracing(tmp_path) as traced:
        kept = ttnn.Tensor.reshape
        bound = a.reshape
        function = ttnn.relu.function
        for _ in range(3):
            kept(a, [1, 32, 32])
    for _ in range(3):
        assert tuple(kept(a, [1, 32, 32]).shape) == (1, 32, 32)
        assert tuple(bound([16, 64]).shape) == (16, 64)
        assert tuple(function(a).shape) == (32, 32)
        with pytest.raises(TypeError):
            kept(a, "no shape")
    assert len(traced.calls) == 3
    with tracing(tmp_path / "another") as traced:
        assert tuple(kept(a, [1, 32, 32]).shape) == (1, 32, 32)
        ttnn.relu(a)
    assert traced.ops == ["ttnn.relu"]


def test_nothing_is_left_of_a_trace_that_has_ended(tmp_path, ttnn, make, either_way):
    a = make()
    with tracing(tmp_path):
        for _ in range(3):
            ttnn.relu(a)
            a.cpu()
        mapped = weakref.ref(active_tracing().journal.window.memory)
    gc.collect()
    assert mapped() is None


def run_together(works):
    """Do all of these in threads, and raise what went wrong in any."""
    wrong = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - to be raised in the test's own thread
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def test_tables_may_be_emptied_while_threads_record(watch, make):
    tensors = [make(*shape) for shape in ((32, 32), (32, 64), (64, 32), (64, 64))]
    plain = (None, 1, "text", 0.5, [1, 2], ["a", 0.5], b"bytes")
    rounds = 1000
    own = watch(lambda a, number, **keywords: None if number % 3 else a)
    finished = threading.Event()

    def work(a):
        random = Random(a.tensor_id)  # noqa: S311 - which calls are made is no secret
        for count in range(rounds):
            number = random.randrange(5)
            own(a, number, other=random.choice(plain), more=[a, a] if count % 7 == 0 else a)

    def interfere():
        known = watch.fingerprints
        tables = (
            watch.recorder.fast_path_state.cached_cases.clear,
            known.tensor_parts.clear,
            known.release,
            known.tidy,
        )
        while not finished.wait(0.001):
            for empty in tables:
                empty()
            gc.collect(0)

    disturber = threading.Thread(target=interfere)
    disturber.start()
    try:
        run_together([partial(work, a) for a in tensors])
    finally:
        finished.set()
        disturber.join()
    calls = watch.calls
    assert len(calls) == len(tensors) * rounds
    assert {(call.kind, call.outcome) for call in calls} == {("case", "returned")}
    for call in calls:
        shape = call["at_0"].shape
        assert [each.shape for each in call.call.outputs] == (
            [] if call["at_1"].value % 3 else [shape]
        )
    assert set(Counter(call["at_0"].shape for call in calls).values()) == {rounds}
    assert watch.recorder.faults == {}
