"""Every call of a torch program is recorded, and the program does not notice."""

import importlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from optrove.capture.recorder import Recorder
from optrove.frameworks.probe_protocol import API, muted
from optrove.frameworks.torch.probe import TorchProbe
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from optrove.model.values import TensorSpec, Tuple
from tracing import seen_in

pytestmark = pytest.mark.torch


class Trace:
    """A probe with a real recorder and journal."""

    def __init__(self, directory, level):
        self.directory = directory
        self.recorder = Recorder(Journal(directory, 0))
        self.probe = TorchProbe(torch, self.recorder, level=level)

    def __enter__(self):
        self.probe.install()
        return self

    def __exit__(self, *_):
        self.probe.remove()

    def calls(self):
        assert not self.recorder.faults
        assert not self.probe.faults
        reader = JournalReader(find_journals(self.directory)[0])
        return seen_in(reader)

    def ops(self):
        return [call.op for call in self.calls()]

    def tree(self):
        return [f"{'  ' * call.depth}{call.op}" for call in self.calls()]


@pytest.fixture
def level():
    return API


@pytest.fixture
def trace(tmp_path, level):
    trace = Trace(tmp_path, level)
    yield trace
    trace.probe.remove()
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_function_holds_the_operations_that_it_runs(trace):
    x, weight, bias = torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)
    with trace:
        functional.linear(x, weight, bias)
    assert trace.tree() == [
        "torch.nn.functional.linear",
        "  torch.ops.aten.t.default",
        "  torch.ops.aten.addmm.default",
    ]
    function, transposed, product = trace.calls()
    assert function.parent is None
    assert {transposed.parent, product.parent} == {function.op_index}
    assert [*function.arguments] == ["bias", "input", "weight"]
    assert [*product.arguments] == ["mat1", "mat2", "self"]
    assert function.arguments["weight"].shape == (4, 3)
    assert transposed.outputs[0].placement.strides == (1, 3)
    assert transposed.outputs[0].storage == transposed.arguments["self"].storage
    assert function.file == __file__


@pytest.mark.parametrize(
    ("call", "op"),
    [
        (lambda x: x + x, "torch.Tensor.add"),
        (lambda x: torch.add(x, x), "torch.add"),
        (lambda x: x.add_(1), "torch.Tensor.add_"),
        (lambda x: x @ x, "torch.Tensor.matmul"),
        (lambda x: x.T, "torch.Tensor.T"),
        (lambda x: x[0], "torch.Tensor.__getitem__"),
        (lambda x: x.item, None),
        (lambda x: x.sum().item(), "torch.Tensor.sum"),
        (lambda x: torch.split(x, 1), "torch.split"),
        (lambda x: torch.zeros(2), "torch.zeros"),
        (lambda x: x**2, "torch.Tensor.__pow__"),
        (lambda x: 2**x, "torch.Tensor.__rpow__"),
        (torch.linalg.norm, "torch.linalg.norm"),
        (lambda x: torch.ops.aten.add.Tensor(x, x), "torch.ops.aten.add.Tensor"),
    ],
)
def test_operators_methods_and_functions_have_their_names(trace, call, op):
    x = torch.ones(2, 2)
    with trace:
        call(x)
    assert [*trace.ops(), None][0] == op


def test_questions_about_a_tensor_are_no_operations(trace):
    x = torch.ones(2, 2, requires_grad=True)
    with trace:
        assert (x.shape, x.dtype, x.device, x.ndim, x.is_leaf) != ()
        assert (x.size(), x.dim(), x.stride(), x.is_contiguous(), x.numel(), len(x)) != ()
        assert (x.data_ptr(), repr(x), hash(x), x.grad, torch.is_tensor(x)) != ()
        x.requires_grad = False
        x.requires_grad_()
    assert trace.ops() == []


def test_functions_inside_of_functions_are_seen_once(trace):
    attention = torch.nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 1, 4)
    with trace:
        attention(x, x, x)
    calls = trace.calls()
    forward, *inner = calls
    assert forward.op == "torch.nn.functional.multi_head_attention_forward"
    below = [call.op for call in inner if call.parent == forward.op_index]
    assert below.count("torch.nn.functional.linear") == 2
    assert below.count("torch.nn.functional.softmax") == 1
    assert below.count("torch.bmm") == 2
    assert below.count("torch.Tensor.unflatten") == 1
    softmax = next(call for call in calls if call.op == "torch.nn.functional.softmax")
    (method,) = [call for call in calls if call.parent == softmax.op_index]
    assert method.op == "torch.Tensor.softmax"


def test_the_backward_pass_is_recorded(trace):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 2), torch.nn.ReLU(), torch.nn.Flatten())
    with trace:
        net(torch.ones(1, 1, 3, 3)).sum().backward()
    ops = trace.ops()
    assert "torch.nn.functional.conv2d" in ops
    assert "torch.ops.aten.convolution.default" in ops
    assert "torch.ops.aten.convolution_backward.default" in ops
    calls = trace.calls()
    (backward,) = [call for call in calls if call.op == "torch.Tensor.backward"]
    (gradient,) = [call for call in calls if call.op.endswith("convolution_backward.default")]
    assert gradient.depth > backward.depth


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_an_operation_without_a_function_above_it_is_outermost(trace):
    twice = torch.jit.trace(lambda x: x * 2, torch.ones(2))
    with trace:
        twice(torch.ones(2))
    assert [call.op for call in trace.calls() if call.depth == 0] == [
        "torch.ones",
        "torch.ops.aten.mul.Scalar",
    ]


def test_results_in_place_and_out_are_the_argument_itself(trace):
    x, out = torch.ones(2), torch.empty(2)
    with trace:
        x.add_(1)
        torch.add(x, x, out=out)
    in_place, _, into, _ = trace.calls()
    assert in_place.outputs[0].identity == in_place.arguments["self"].identity
    assert into.outputs[0].identity == into.arguments["out"].identity
    assert into.arguments["input"].identity == into.arguments["other"].identity


def test_several_results_are_recorded(trace):
    x = torch.arange(6.0).reshape(2, 3)
    with trace:
        x.topk(2)
        x.split(1)
    by_op = {call.op: call for call in trace.calls()}
    found = dict(by_op["torch.Tensor.topk"].outputs[0].fields)
    assert found["values"].shape == (2, 2)
    assert found["indices"].dtype == "torch.int64"
    (pieces,) = by_op["torch.Tensor.split"].outputs
    assert [piece.storage for piece in pieces.items] == [0, 0]


def test_a_call_that_raises_is_recorded_with_its_error(trace):
    with trace, pytest.raises(RuntimeError, match="size mismatch"):
        torch.ones(2, 3) @ torch.ones(2)
    product = next(call for call in trace.calls() if call.op == "torch.Tensor.matmul")
    assert product.outcome == "raised"
    assert product.error.startswith("RuntimeError: size mismatch")


def test_one_call_has_one_case_however_its_arguments_are_passed(trace):
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    with trace:
        torch.add(x, y)
        torch.add(input=x, other=y)
        torch.add(x, other=y)
        x.view(3, 2)
        x.view((3, 2))
        x.view(size=(3, 2))
        x.to(torch.float64)
        x.to(dtype=torch.float64)
    functions = [call for call in trace.calls() if call.depth == 0]
    assert [call.case for call in functions] == [
        *[functions[0].case] * 3,
        *[functions[3].case] * 3,
        *[functions[6].case] * 2,
    ]
    assert isinstance(functions[3].arguments["size"], Tuple)


def test_repeated_calls_have_one_case_and_one_output(trace):
    with trace:
        for _ in range(5):
            torch.relu(torch.ones(2, 2))
    calls = [call for call in trace.calls() if call.op == "torch.relu"]
    assert len(calls) == 5
    assert len({call.number for call in calls}) == 1
    assert len({call.outputs for call in calls}) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.T,
        lambda x: torch.ones(3, 2)[1:].T.contiguous().new_ones(2, 2),
        lambda x: x.double(),
        lambda x: x.clone().requires_grad_(),
        lambda x: torch.ones(4)[2:].expand(2, 2),
        lambda x: torch.ones(6)[2:].view(2, 2),
        lambda x: torch.ones(2, 2, device="meta"),
        lambda x: torch.ones(2, 2, dtype=torch.complex64).conj(),
        lambda x: torch.ones(2, 2, dtype=torch.complex64).conj().imag,
    ],
    ids=["strides", "alike", "dtype", "grad", "expanded", "offset", "device", "conj", "neg"],
)
def test_what_differs_in_the_description_is_another_case(trace, other, request):
    x = torch.ones(2, 2)
    y = other(x)
    with trace:
        torch.neg(x)
        torch.neg(y)
    first, second = [call for call in trace.calls() if call.op == "torch.neg"]
    alike = request.node.callspec.id == "alike"
    assert (first.number == second.number) is alike
    assert (first.case == second.case) is alike


def test_the_same_tensor_twice_is_another_case_than_two_alike(trace):
    x, y = torch.ones(2), torch.ones(2)
    base = torch.ones(2, 1)
    with trace:
        for first, second in ((x, y), (x, x), (base[:, 0], base[:, 0]), (y, x)):
            torch.mul(first, second)
    calls = [call for call in trace.calls() if call.op == "torch.mul"]
    pattern = [
        tuple(
            (call.arguments[name].identity, call.arguments[name].storage) for name in call.arguments
        )
        for call in calls
    ]
    assert pattern == [((0, 0), (1, 1)), ((0, 0), (0, 0)), ((0, 0), (1, 0)), ((0, 0), (1, 1))]
    assert calls[0].number == calls[3].number


def test_a_result_that_is_the_argument_is_not_taken_for_a_new_tensor(trace):
    x = torch.ones(2, 2)
    with trace:
        for _ in range(2):
            x.contiguous()
            x.clone()
    calls = trace.calls()
    same = [call.outputs[0].identity for call in calls if call.op == "torch.Tensor.contiguous"]
    new = [call.outputs[0].identity for call in calls if call.op == "torch.Tensor.clone"]
    assert (same, new) == ([0, 0], [1, 1])


def work(x):
    return torch.relu(x) * 2


class Subclassed(threading.Thread):
    def run(self):
        work(torch.ones(2))


def test_threads_that_start_meanwhile_are_covered(trace):
    with trace:
        own = Subclassed()
        own.start()
        own.join()
        plain = threading.Thread(target=work, args=(torch.ones(2),))
        plain.start()
        plain.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, [torch.ones(2)] * 3))
    relu = [call for call in trace.calls() if call.op == "torch.relu"]
    assert len(relu) == 5
    assert {call.depth for call in relu} == {0}


def test_a_thread_that_outlives_the_probe_goes_on_unseen(trace):
    begun, go_on = threading.Event(), threading.Event()
    results = []

    def waiting():
        begun.set()
        go_on.wait()
        results.append(work(torch.ones(2)))

    thread = threading.Thread(target=waiting)
    with trace:
        thread.start()
        begun.wait()
    go_on.set()
    thread.join()
    assert torch.equal(results[0], torch.full((2,), 2.0))
    assert trace.ops() == []


def test_everything_is_restored(trace):
    before = vars(threading.Thread)["_bootstrap_inner"]
    with trace:
        assert vars(threading.Thread)["_bootstrap_inner"] is not before
    assert vars(threading.Thread)["_bootstrap_inner"] is before
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0
    torch.ones(2)
    assert trace.ops() == []


class Counting(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Dispatching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_removed_under_other_modes_the_probe_passes_everything_on(trace):
    functions, operations = Counting(), Dispatching()
    trace.probe.install()
    with functions, operations:
        trace.probe.remove()
        x = torch.ones(2) + 1
    assert x.tolist() == [2, 2]
    assert torch.add in functions.seen or torch.Tensor.add in functions.seen
    assert torch.ops.aten.add.Tensor in operations.seen
    assert trace.ops() == []
    torch.ones(2)
    assert trace.ops() == []
    # What the probe had to leave behind, as nobody else will take it away.
    torch._C._pop_torch_function_stack()
    torch._C._pop_torch_dispatch_stack(None)


def test_other_modes_see_what_they_would_see_alone(trace):
    def program():
        x = torch.Tensor([1.0, 2.0]).requires_grad_()
        functional.linear(x, torch.ones(3, 2)).sum().backward()

    alone, alone_below = Counting(), Dispatching()
    with alone, alone_below:
        program()
    within, within_below = Counting(), Dispatching()
    with trace, within, within_below:
        program()
    beneath, beneath_below = Counting(), Dispatching()
    with beneath, beneath_below, trace:
        program()
    assert within.seen == alone.seen
    assert within_below.seen == alone_below.seen
    assert beneath.seen == alone.seen
    assert beneath_below.seen == alone_below.seen


def test_contexts_of_the_program_stay_in_force(trace):
    with trace:
        with torch.device("meta"):
            assert torch.ones(2).device.type == "meta"
        with torch.no_grad():
            assert not (torch.ones(2, requires_grad=True) * 2).requires_grad
        with torch.inference_mode():
            assert functional.linear(torch.ones(1, 2), torch.ones(1, 2)).is_inference()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
        with FakeTensorMode():
            fake = torch.ones(2, 2) @ torch.ones(2, 3)
        assert fake.shape == (2, 3)
    ops = trace.ops()
    assert "torch.ops.aten.linear.default" in ops
    assert ops.count("torch.Tensor.matmul") == 2


def test_a_default_device_below_the_probe_stays_in_force(trace):
    with torch.device("meta"), trace:
        assert torch.nn.Linear(2, 2).weight.device.type == "meta"
        assert torch.full((2,), 1.0).device.type == "meta"
    assert "torch.full" in trace.ops()


def test_transforms_give_what_they_give_alone(trace):
    x = torch.arange(6.0).reshape(2, 3)
    per_row = torch.vmap(lambda row: torch.sin(row).sum())
    slope = torch.func.grad(lambda t: torch.sin(t).sum())
    expected = per_row(x), slope(x)
    with trace:
        found = per_row(x), slope(x)
    assert torch.equal(expected[0], found[0])
    assert torch.equal(expected[1], found[1])
    assert "torch.ops.aten.sin.default" in trace.ops()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_function_works(trace, fullgraph):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.relu(x @ x) + 1, backend="eager", fullgraph=fullgraph)
    x = torch.ones(2, 2, requires_grad=True)
    with trace:
        y = compiled(x)
        y.sum().backward()
        compiled(x)
    assert torch.equal(y, torch.full((2, 2), 3.0))
    assert x.grad is not None
    assert trace.ops()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_symbols_and_nested_tensors_are_no_fault(trace):
    shapes = ShapeEnv()
    with trace:
        with FakeTensorMode(shape_env=shapes) as mode:
            dynamic = mode.from_tensor(torch.ones(5, 3))
            torch.relu(dynamic) @ torch.ones(3, 2)
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged) * 2
        torch.ones(2, 2).to_sparse().to_dense()
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).dequantize()
    assert "torch.Tensor.dequantize" in trace.ops()


class Tagged(torch.Tensor):
    """A class that keeps itself in results."""


def test_tensor_classes_keep_their_ways(trace):
    x = torch.ones(2).as_subclass(Tagged)
    with trace:
        y = functional.softmax(x, dim=0)
        assert type(y) is Tagged
        assert (x == object()) is False
    assert "torch.nn.functional.softmax" in trace.ops()


def test_muted_calls_are_not_recorded(trace):
    with trace, muted():
        torch.ones(2) + 1
    assert trace.ops() == []


def test_a_paused_probe_reports_nothing(trace):
    with trace:
        trace.probe.pause()
        torch.ones(2)
        trace.probe.resume()
        torch.zeros(2)
    assert trace.ops() == ["torch.zeros", "torch.ops.aten.zeros.default"]


def test_calls_of_a_module_that_is_being_imported_are_recorded(trace, tmp_path, monkeypatch):
    (tmp_path / "table_at_import.py").write_text("import torch\nTABLE = torch.arange(4) * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with trace:
        importlib.import_module("table_at_import")
    del sys.modules["table_at_import"]
    calls = trace.calls()
    assert [call.op for call in calls if call.depth == 0] == ["torch.arange", "torch.Tensor.mul"]
    assert {call.line for call in calls} == {2}


def test_a_loader_of_data_is_covered(trace):
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    with trace:
        batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=2)]
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert trace.ops().count("torch.stack") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_is_not_recorded(trace):
    with trace:
        child = os.fork()
        if child == 0:
            torch.ones(3)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert trace.ops() == []


def test_a_program_gives_the_same_numbers_with_and_without_the_probe(trace):
    def train():
        torch.manual_seed(7)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
        for _ in range(3):
            loss = functional.cross_entropy(
                layer(torch.randn(4, 2, 8)).flatten(0, 1), torch.arange(8)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [loss.detach(), *(each.detach() for each in layer.parameters())]

    expected = train()
    with trace:
        found = train()
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert len(trace.calls()) > 300


def test_what_a_function_returns_is_described(trace):
    with trace:
        total = torch.ones(2, 2).sum().item()
    assert total == 4.0
    item = next(call for call in trace.calls() if call.op == "torch.Tensor.item")
    assert item.outputs[0].value == 4.0
    assert isinstance(item.arguments["self"], TensorSpec)
