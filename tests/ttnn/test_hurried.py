"""The two hot paths, in C and in Python, record the same and let nothing go wrong.

What the quick ways and the thorough one have in common is told in test_capture_modes.py.
"""

import copy
import gc
import threading
from collections import Counter
from functools import partial

import pytest

from optrove.backends.ttnn import hurried
from optrove.backends.ttnn.fingerprints import TtnnFingerprints
from optrove.backends.ttnn.probe import TtnnProbe
from optrove.backends.watching import Form
from optrove.capture.journal import WINDOW_RECORDS
from optrove.codec.journal_reader import JournalReader, find_journals
from tracing import assert_adds_up, seen_in, start_recorder, tracing

pytestmark = pytest.mark.ttnn

WAYS = ("in C", "in Python")


def choose(way, monkeypatch):
    """Record one way or the other from now on."""
    if way == "in Python":
        monkeypatch.setattr(hurried, "_hurry", None)
    elif not hurried.is_native():
        pytest.skip("the part in C was not built")


@pytest.fixture(params=WAYS)
def either_way(request, monkeypatch):
    choose(request.param, monkeypatch)


@pytest.fixture
def make(ttnn, device):
    """Make a tensor in tiles on one chip."""

    def make(*shape, **keywords):
        given = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device} | keywords
        return ttnn.zeros(shape or (32, 32), **given)

    return make


class Watch:
    """Functions of the tests' own that are watched as ttnn's are, by a recorder of their own."""

    def __init__(self, ttnn, directory):
        self._directory = directory
        self.recorder, self.journal = start_recorder(directory)
        self._fingerprints = TtnnFingerprints(
            ttnn, self.recorder.tables, self.recorder.cache, lambda _: None
        )
        self._probe = TtnnProbe(ttnn, self.recorder, self._fingerprints)

    def __call__(self, function, op="own.op"):
        def bind(arguments, keywords):
            return {**{f"at_{i}": each for i, each in enumerate(arguments)}, **keywords}

        key = partial(self._fingerprints.call, op)
        form = Form(op, bind, key, self._fingerprints.result, composite=False)
        return self._probe._watched(form, function, frames=1)

    @property
    def calls(self):
        """What was recorded."""
        (path,) = find_journals(self._directory)
        return seen_in(JournalReader(path))

    @property
    def outcomes(self):
        return [call.outcome for call in self.calls]


@pytest.fixture
def watch(either_way, ttnn, tmp_path):
    watch = Watch(ttnn, tmp_path)
    yield watch
    watch.recorder.close()
    watch.journal.close()


def attempt(call):
    """Make a call that may be wrong; return what it raised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - of ttnn's many kinds, and of Python's
        return f"{type(error).__name__}: {error}"
    return None


def table_of_calls(ttnn, make, device):
    """Return calls of many forms, each of which can be made again and again."""
    a, b, target = make(), make(), make()
    view = ttnn.reshape(a, (1, 32, 32))
    wide, deep = make(1, 1, 32, 64), make(2, 32, 64)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, ttnn.BufferType.L1)
    reshape, host = ttnn.Tensor.reshape, ttnn.from_device(a)
    return [
        lambda: ttnn.relu(a),
        lambda: ttnn.relu(a, memory_config=memory),
        lambda: ttnn.add(a, b, dtype=ttnn.float32, memory_config=memory),
        lambda: ttnn.add(a, b, memory_config=memory, dtype=ttnn.float32),
        lambda: ttnn.add(input_tensor_b=b, input_tensor_a=a),
        lambda: ttnn.add(a, a),
        lambda: ttnn.add(a, view),
        lambda: ttnn.add(a, b, output_tensor=target),
        lambda: ttnn.add_(a, b),
        lambda: ttnn.add(a, 0.0),
        lambda: ttnn.add(a, -0.0),
        lambda: ttnn.add(a, 1),
        lambda: ttnn.add(a, True),
        lambda: ttnn.add(a, b, activations=[ttnn.UnaryOpType.RELU]),
        lambda: a + b,
        lambda: a[0:16],
        lambda: a.reshape([1, 1, 32, 32]),
        lambda: ttnn.Tensor.reshape(a, [1, 1, 32, 32]),
        lambda: reshape(b, [1, 1, 32, 32]),
        lambda: list(map(ttnn.Tensor.cpu, [a, b])),
        lambda: host.to(device),
        lambda: host.to_list(),
        lambda: ttnn.concat([a, b], 0),
        lambda: ttnn.concat([a, a], dim=0),
        lambda: ttnn.concat([a, view[0]], dim=0),
        lambda: ttnn.split(wide, 32, 3),
        lambda: ttnn.topk(wide, 32),
        lambda: ttnn.permute(deep, (1, 0, 2)),
        lambda: ttnn.pad(a, [(0, 32), (0, 0)], 0.0),
        lambda: ttnn.deallocate(make()),
        lambda: make().deallocate(),
        lambda: make().deallocate(force=True),
        lambda: ttnn.matmul(wide, deep),
        lambda: ttnn.add(a, "b"),
        lambda: ttnn.add(a, no_such_argument=b),
        lambda: ttnn.relu(),
        lambda: ttnn.Tensor.reshape(),
        lambda: ttnn.concat([a] * 40, 0),
        lambda: ttnn.add(a, b, activations=[ttnn.UnaryOpType.RELU] * 200),
    ]


def facts_of(call):
    """Return all that a record tells, except for the time of day."""
    return (
        call.op,
        call.kind,
        call.hash,
        (call.file, call.line),
        call.outcome,
        call.call.error,
        call.call.outputs,
        (call.call.parent, call.call.depth, call.call.op_index),
    )


def test_the_same_calls_give_the_same_records(tmp_path, ttnn, make, device, monkeypatch):
    calls = table_of_calls(ttnn, make, device)
    recorded, raised = [], []
    for way in WAYS:
        choose(way, monkeypatch)
        with tracing(tmp_path / way, backend="ttnn") as traced:
            raised.append([attempt(call) for _ in range(4) for call in calls])
        recorded.append([facts_of(call) for call in traced.calls])
    assert len(recorded[0]) > 4 * len(calls)
    assert recorded[0] == recorded[1]
    assert raised[0] == raised[1] == [attempt(call) for _ in range(4) for call in calls]


def test_repeated_calls_are_recorded_in_a_hurry(watch, make):
    a, b = make(), make()
    own = watch(lambda *arguments, **keywords: None)
    begun = []
    begin = watch.recorder.begin
    own = TtnnProbe._watched(
        watch._probe_that_tells(begun, begin), own.__wrapped__, frames=1
    ) if False else own
    for _ in range(5):
        own(a, b, 1, "x", [2, 3], name=None)
    assert watch.outcomes == ["returned"] * 5


def test_the_records_of_threads_do_not_mix(tmp_path, ttnn, make, either_way):
    shapes = [(32, 32), (32, 64), (64, 32), (64, 64)]
    tensors = [make(*shape) for shape in shapes]
    rounds = 300

    def work(a):
        for _ in range(rounds):
            ttnn.relu(a)
            attempt(lambda: ttnn.add(a, "b"))
            ttnn.deallocate(ttnn.add(a, a))

    with tracing(tmp_path) as traced:
        run_together([partial(work, a) for a in tensors])
    counted = Counter(
        (call.op, call.outcome, *[output.shape for output in call.call.outputs])
        for call in traced.calls
    )
    for shape in shapes:
        assert counted["ttnn.relu", "returned", shape] == rounds
        assert counted["ttnn.add", "returned", shape] == rounds
    assert counted["ttnn.add", "raised"] == counted["ttnn.deallocate", "returned"] == 4 * rounds
    for call in traced.of("ttnn.relu"):
        assert call["input_tensor"].shape == call.call.outputs[0].shape


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
