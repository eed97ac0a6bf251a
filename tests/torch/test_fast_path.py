"""At level aten the program runs as without tracing, and C and Python record the same."""

import gc
import threading
import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from optrove.capture.recorder import Recorder
from optrove.frameworks.probe_protocol import ATEN, CURRENT, muted
from optrove.frameworks.torch import fast_path
from optrove.frameworks.torch.probe import TorchProbe
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import WINDOW_RECORDS, Journal
from optrove.model.records import CallOutcome
from parts import C_EXTENSION, leave_out
from tracing import seen_in

pytestmark = pytest.mark.torch

if not fast_path.is_native():
    leave_out(C_EXTENSION, "it was not built")


class Counting(TorchDispatchMode):
    """The plainest dispatch mode: counts the operations that the dispatcher runs."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def record(directory, program, *, native=True):
    """Run a program under the probe; return its result and its calls."""
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(fast_path, "_extension", None)
        recorder = Recorder(Journal(directory, 0))
        probe = TorchProbe(torch, recorder, level=ATEN)
        assert (probe._switch.native is not None) is native
        with probe:
            result = program()
    assert not recorder.faults
    assert not probe.faults
    return result, list(seen_in(JournalReader(find_journals(directory)[0])))


def comparable(seen):
    """Return the facts that do not depend on how a call was recorded."""
    call = seen.call
    site = call.call_site
    return (
        *(seen.op, seen.case, call.op_index, call.parent, call.depth),
        *(call.outcome, call.error, call.outputs, site and (site.file, site.line)),
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(functional.gelu(self.first(x), approximate="tanh").mean((2, 3)))


def train():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(net(torch.randn(2, 3, 8, 8)), torch.tensor([0, 1])).backward()
        optimizer.step()
    return [each.detach() for each in net.parameters()]


def attention():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        return [encoder(torch.ones(2, 5, 8)) for _ in range(3)]


def sharing():
    x, y = torch.ones(2), torch.ones(2)
    base = torch.ones(2, 1)
    out = torch.empty(2)
    results = []
    for _ in range(3):
        for first, second in ((x, y), (x, x), (base[:, 0], base[:, 0]), (y, x)):
            results.append(torch.mul(first, second))
        results += [x.add_(1), torch.add(x, x, out=out), x.contiguous(), torch.cat([x, x, y])]
        results += x.split(1)
    return results


def kinds():
    x = torch.arange(4.0).reshape(2, 2)
    c = torch.ones(2, 2, dtype=torch.complex64)
    others = [
        x, x.T, x.double(), x.clone().requires_grad_(), torch.ones(6)[2:].view(2, 2), c.conj(),
        c.conj().imag, torch.ones(2, 2, device="meta"), torch.nn.Parameter(x), x.to_sparse(),
        torch.empty(0, 2), torch.tensor(3.0),
    ]  # fmt: skip
    for _ in range(3):
        for each in others:
            torch.neg(each)
    torch.full((2,), float("nan"))
    torch.full((2,), -0.0)
    torch.full((2,), 0.0)
    torch.full((2,), 2)
    torch.full((2,), True)
    torch.full((2,), 1 + 2j)
    torch.zeros(2, dtype=torch.int8, device=torch.device("cpu"))
    return x.topk(1), x.sum().item(), x.tolist()


def inference():
    with torch.inference_mode():
        x = torch.ones(2, 3)
        return [functional.linear(x, torch.ones(4, 3)) for _ in range(3)]


def failing():
    for _ in range(3):
        with pytest.raises(RuntimeError, match="size mismatch"):
            torch.mv(torch.ones(2, 3), torch.ones(2))


def in_threads():
    def work():
        for _ in range(50):
            torch.relu(torch.ones(2))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def mapped():
    return torch.vmap(lambda x: x.sin() * 2)(torch.ones(3, 2))


def many_tensors():
    tensors = [torch.ones(2) for _ in range(200)]
    for _ in range(3):
        torch._foreach_add_(tensors, tensors)
        torch.cat(tensors)
    return tensors


PROGRAMS = [
    train, attention, sharing, kinds, inference, failing, mapped, many_tensors,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_results_and_operations_are_those_of_the_plainest_mode(tmp_path, program):
    counting = Counting()
    with counting:
        expected = program()
    found, calls = record(tmp_path, program)
    pairs = zip(leaves(found), leaves(expected), strict=True)
    assert all(same(first, second) for first, second in pairs)
    ours = Counter(seen.op.removeprefix("torch.ops.") for seen in calls)
    assert ours == Counter(
        {op: n for op, n in counting.seen.items() if not op.startswith(("prim", "profiler"))}
    )
    assert {seen.call.depth for seen in calls} == {0}


def leaves(live):
    if isinstance(live, list | tuple):
        return [leaf for each in live for leaf in leaves(each)]
    return [live]


def same(first, second):
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    return first == second


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_c_and_python_record_the_same(tmp_path, program):
    _, native = record(tmp_path / "c", program)
    _, python = record(tmp_path / "python", program, native=False)
    assert len(native) == len(python)
    for ours, theirs in zip(native, python, strict=True):
        assert comparable(ours) == comparable(theirs)


def test_a_fast_path_of_a_module_stays(tmp_path):
    _, calls = record(tmp_path, attention)
    ops = Counter(seen.op for seen in calls)
    assert ops["torch.ops.aten._transformer_encoder_layer_fwd.default"] == 6
    assert ops["torch.ops.aten.addmm.default"] == 0


def test_calls_from_all_threads_are_recorded(tmp_path):
    _, calls = record(tmp_path, in_threads)
    ops = Counter(seen.op for seen in calls)
    assert ops["torch.ops.aten.relu.default"] == 200
    assert len({seen.call.op_index for seen in calls}) == len(calls)


def test_more_calls_than_a_window_holds_are_recorded(tmp_path):
    def program():
        x = torch.ones(2)
        for _ in range(WINDOW_RECORDS + 10):
            x.neg_()

    _, calls = record(tmp_path, program)
    assert len(calls) == WINDOW_RECORDS + 11


def test_a_call_that_raises_is_recorded_with_its_error(tmp_path):
    _, calls = record(tmp_path, failing)
    raised = [seen.call for seen in calls if seen.op == "torch.ops.aten.mv.default"]
    assert [each.outcome for each in raised] == [CallOutcome.RAISED] * 3
    assert len({each.error for each in raised}) == 1


class Functions(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_a_function_mode_of_the_program_does_not_notice(tmp_path):
    def program():
        functions = Functions()
        with functions:
            for _ in range(3):
                functional.linear(torch.ones(2, 3), torch.ones(4, 3)).sum()
        return functions.seen

    alone = program()
    found, calls = record(tmp_path, program)
    assert found == alone
    assert "torch.ops.aten.mm.default" in {seen.op for seen in calls}


def test_what_is_muted_is_not_recorded(tmp_path):
    def program():
        x = torch.ones(2)
        for _ in range(3):
            torch.relu(x)
        with muted():
            torch.relu(x)
            torch.neg(x)

    _, calls = record(tmp_path, program)
    assert [seen.op for seen in calls].count("torch.ops.aten.relu.default") == 3
    assert "torch.ops.aten.neg.default" not in {seen.op for seen in calls}


def test_a_call_below_another_has_that_as_its_parent(tmp_path):
    def program():
        x = torch.ones(2)
        for _ in range(3):
            torch.relu(x)
        token = CURRENT.set((3, 2))
        torch.relu(x)
        CURRENT.reset(token)

    _, calls = record(tmp_path, program)
    assert [(seen.call.parent, seen.call.depth) for seen in calls[1:]] == [(None, 0)] * 3 + [(2, 2)]


def test_a_paused_probe_passes_calls_on(tmp_path):
    recorder = Recorder(Journal(tmp_path, 0))
    probe = TorchProbe(torch, recorder)
    with probe:
        torch.ones(2)
        probe.pause()
        torch.ones(2)
        probe.resume()
        torch.ones(2)
    assert len(list(seen_in(JournalReader(find_journals(tmp_path)[0])))) == 2


def test_nothing_of_the_program_is_kept_alive(tmp_path):
    recorder = Recorder(Journal(tmp_path, 0))
    probe = TorchProbe(torch, recorder)
    with probe:
        x = torch.ones(2)
        for _ in range(3):
            y = torch.relu(x)
        references = [weakref.ref(x), weakref.ref(y)]
        del x, y
    gc.collect()
    assert [each() for each in references] == [None, None]
    reference = weakref.ref(probe)
    del probe
    gc.collect()
    assert reference() is None


def test_a_compiled_function_runs_as_it_was_compiled(tmp_path):
    twice = torch.compile(lambda x: (x * 2).relu(), backend="eager", fullgraph=True)
    found, _ = record(tmp_path, lambda: [twice(torch.ones(3)) for _ in range(3)])
    assert [each.tolist() for each in found] == [[2.0] * 3] * 3


def test_an_unknown_layout_of_tensors_is_recorded_in_python(tmp_path, monkeypatch, caplog):
    right = fast_path.TensorLayout.of(torch)
    wrong = replace(right, keys=right.storage)
    monkeypatch.setattr(fast_path.TensorLayout, "of", lambda _: wrong)
    probe = TorchProbe(torch, Recorder(Journal(tmp_path, 0)))
    assert probe._switch.native is None
    assert "recorded in Python" in caplog.text
