"""Recorded cases of torch run on any device and compiler, and wrong numbers are found."""

import re
import sys
from collections import Counter
from contextlib import nullcontext
from importlib import import_module

import pytest
import torch
from torch.nn import functional

import optrove
from commands import ask
from optrove.errors import NotReplayable
from optrove.model.case import Case
from optrove.model.records import E2E_NS, DeviceKind, Job, Outcome
from optrove.model.torch_target import TorchTarget
from optrove.model.values import Int, TensorSpec, Text, TorchPlacement, Tuple
from optrove.replay.device_choice import check_device
from optrove.replay.planning import PlannedJob, planned_cases
from optrove.replay.runner import run_jobs
from optrove.serializer.hashes import placement_hash
from optrove.trove.place import place_of
from optrove.trove.query import Query
from optrove.trove.reader import open_reader
from recorded_program import jobs_in
from tracing import tracing

pytestmark = pytest.mark.torch


def program():
    """Run operations of all kinds: views, random, in place, indexing, data-dependent, composite."""
    x = torch.randn(6, 5)
    weight = torch.randn(4, 5, requires_grad=True)
    functional.linear(x.bfloat16(), weight.bfloat16()).softmax(-1).sum().backward()
    x[torch.tensor([0, 2]), torch.tensor([1, 4])]
    functional.embedding(torch.tensor([[0, 3]]), x)
    functional.nll_loss(x.log_softmax(1), torch.tensor([0, 1, 2, 3, 4, 0]))
    functional.max_pool2d(torch.randn(1, 2, 8, 8, requires_grad=True), 2).sum().backward()
    (
        x.argmax(),
        x.sort(),
        x.topk(2),
        x.cumsum(0),
        x.neg(),
        x.var(0),
        x.int() // 2,
        x.floor_divide(0.3),
    )
    x.unique(), x.nonzero(), x[x > 0], x.sum().item(), x.tolist()
    (
        functional.dropout(x),
        torch.empty(3).uniform_(1, 2),
        x.clone().bernoulli_(0.3),
        torch.randperm(4),
    )
    torch.linalg.cholesky(torch.eye(3)), torch.fft.fft(x), x.half() @ x.half().T
    functional.batch_norm(x, torch.zeros(5), torch.ones(5), training=True)
    torch._foreach_add_([x, x.clone()], 1.0)
    x.to_sparse() @ torch.randn(5, 2)
    with torch.inference_mode():
        functional.linear(torch.ones(2, 3), torch.ones(4, 3))
    torch.set_default_dtype(torch.float64)
    torch.zeros(2), torch.arange(3.0)
    torch.set_default_dtype(torch.float32)
    torch.add(x, 2.0, alpha=3)
    x[:, ::2].sum(dim=1, keepdim=True)
    torch.cat([x, x, torch.randn(5, 6).T], dim=0)
    x.softmax(-1, dtype=torch.float64)
    x.mul_(torch.randn(5, 6).T)
    x.view(2, 15).to(torch.bfloat16)
    torch.where(x > 0, x, 0.0)
    torch.max(x, dim=1)
    functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding=1)
    torch.randn(3, 2, dtype=torch.complex64).conj() * 2
    with torch.no_grad():
        functional.linear(x, weight[:, :1].expand(4, 5), bias=torch.zeros(4))
    # As a decoder calls it for one token: a dimension of size 1 with a stride of its own.
    q, k, v = torch.randn(3, 1, 1, 4, 8).transpose(2, 3)
    functional.scaled_dot_product_attention(q, k, v)
    x.to(None, torch.float16, False)  # as Module.to does


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    with tracing(tmp_path_factory.mktemp("traced"), backend="torch") as traced:
        program()
        found = jobs_in(traced.directory)
    return [Job(job.case, DeviceKind.HOST, outputs=job.outputs) for job in found]


def of(jobs, *names):
    return [job for job in jobs if job.case.op.split(".")[3] in names]


def outcomes(attempts):
    return Counter(each.outcome for each in attempts)


def test_every_case_passes_with_a_verdict_on_its_numbers_or_a_reason(jobs):
    attempts = list(run_jobs(jobs))
    wrong = [(each.detail, each.notes) for each in attempts if each.outcome is not Outcome.PASSED]
    assert not wrong
    assert all(each.replayed_case_id == each.case_id for each in attempts)
    with_tensors = [each for each in attempts if any(map(has_tensor, each.outputs))]
    silent = [each for each in with_tensors if not each.measurements and not each.notes]
    assert not silent
    reasons = Counter(note for each in attempts for note in each.notes)
    assert reasons["output 0 was not compared: its results are random"]
    assert reasons["output 0 was not compared: its results are not initialized"]


def has_tensor(value):
    return isinstance(value, TensorSpec)


def test_on_the_meta_device_specs_agree(jobs):
    plain = of(jobs, "addmm", "embedding", "_softmax", "cumsum", "argmax", "sort")
    attempts = list(run_jobs(plain, board=str(TorchTarget("meta"))))
    assert outcomes(attempts) == {Outcome.PASSED: len(plain)}
    (scalar,) = run_jobs(of(jobs, "_local_scalar_dense")[:1], board=str(TorchTarget("meta")))
    assert scalar.outcome is Outcome.NOT_RUN
    assert "meta tensors have none" in scalar.detail


def test_a_case_runs_through_a_compiler(jobs):
    compiled = of(jobs, "mm", "_softmax", "cumsum", "uniform_")
    attempts = list(run_jobs(compiled, board=str(TorchTarget(compiler="aot_eager"))))
    assert outcomes(attempts) == {Outcome.PASSED: len(compiled)}
    assert sum(bool(each.measurements) for each in attempts) == len(compiled) - 1


UNREACHABLE = (
    "torch.load",
    "torch.hub.load",
    "torch.os.getcwd",
    "torch.serialization.os.getcwd",
    "torch.from_file",
    "torch.ops.aten.from_file.default",
    "torch.utils.cpp_extension.load",
    "torch.Tensor.__class__",
    "torch.no_such_function",
    "torch.",
    "os.getcwd",
)


def test_nothing_but_operations_of_torch_can_be_reached_by_a_name():
    arguments = (("filename", Text("file")), ("size", Int(1)))
    jobs = [Job(Case(op, arguments), DeviceKind.HOST) for op in UNREACHABLE]
    attempts = list(run_jobs(jobs))
    assert {each.outcome for each in attempts} == {Outcome.NOT_RUN}
    files = [each.detail for each in attempts if "reads or writes a file" in each.detail]
    assert len(files) == 5


def test_an_operation_that_raises_is_reported_in_its_own_words():
    case = Case("torch.zeros", (("size", Tuple((Int(-3),))),))
    (attempt,) = run_jobs([Job(case, DeviceKind.HOST)])
    assert attempt.outcome is Outcome.RAISED
    assert "negative" in attempt.detail


WRONG_BACKEND = """
from torch._dynamo import register_backend

@register_backend
def slightly_wrong(module, inputs):
    def run(*arguments):
        return tuple(each * 1.01 for each in module(*arguments))
    return run
"""
WRONG_KERNEL = """
import torch

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("neg", lambda x: x * -1.01, "CPU")
"""


WRONG_ATTENTION = """
import torch

def zeros(query, key, value, *arguments, **keywords):
    return torch.zeros_like(query), torch.zeros(query.shape[:3])

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("_scaled_dot_product_flash_attention_for_cpu", zeros, "CPU")
"""


@pytest.mark.parametrize(
    ("module", "compiler", "op"),
    [
        (WRONG_BACKEND, "slightly_wrong", "neg"),
        (WRONG_KERNEL, None, "neg"),
        (WRONG_ATTENTION, None, "_scaled_dot_product_flash_attention_for_cpu"),
    ],
)
def test_a_wrong_kernel_is_found(jobs, tmp_path, monkeypatch, module, compiler, op):
    (tmp_path / "wrong_numbers.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    target = TorchTarget(compiler=compiler, imports=("wrong_numbers",))
    (attempt,) = run_jobs(of(jobs, op)[:1], board=str(target))
    assert attempt.outcome is Outcome.NUMERICS, attempt.detail
    assert "elements wrong" in attempt.detail
    assert attempt.board == f"{target}"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TorchTarget("nodevice"), "device nodevice"),
        (TorchTarget(imports=("no_such_module",)), "--import no_such_module: ModuleNotFoundError"),
    ],
)
def test_a_target_that_is_not_there_runs_nothing(jobs, target, message):
    (attempt,) = run_jobs(of(jobs, "cumsum")[:1], board=str(target))
    assert attempt.outcome is Outcome.NOT_RUN
    assert message in attempt.detail


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TorchTarget("cdua:0"), "torch knows no device 'cdua:0'; did you mean cuda?"),
        (TorchTarget(None, (("cuda", "cpuu"),)), "torch knows no device 'cpuu'; did you mean cpu?"),
        (
            TorchTarget(compiler="inductr"),
            "no backend 'inductr' (--import registers more); did you mean inductor?",
        ),
        (TorchTarget("cuda", compiler="aot_eager"), None),
    ],
)
def test_a_misspelled_target_is_found_before_any_case_runs(jobs, target, message):
    planned = [PlannedJob(each, "id") for each in of(jobs, "cumsum")[:1]]
    refused = (
        nullcontext() if message is None else pytest.raises(NotReplayable, match=re.escape(message))
    )
    with refused:
        check_device(planned, None, None, target.text)


def test_public_functions_get_inputs_that_they_accept(tmp_path):
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch", level="api"):
        torch.multinomial(torch.rand(2, 5), 3)
        torch.linalg.cholesky(torch.eye(3))
    answer = ask("replay", "torch.*", "--all", "--all-ops", "--store", path, "--json")
    assert {"torch.multinomial", "torch.linalg.cholesky"} <= {
        each["op"] for each in answer["cases"]
    }
    assert answer["counts"] == {"passed": answer["planned"]}


def test_an_operation_of_another_library_needs_an_import():
    (attempt,) = run_jobs([Job(Case("torch.ops.vision.nms.default", ()), DeviceKind.HOST)])
    assert attempt.outcome is Outcome.NOT_RUN
    assert "--import MODULE" in attempt.detail


def test_inputs_are_not_views_for_autograd():
    """``detach_`` refuses views; the tensors that programs pass to it are not views."""
    tensor = TensorSpec((2, 3), "torch.float32", TorchPlacement((1, 4), "strided", "cpu", False, 2))
    case = Case("torch.ops.aten.detach_.default", (("self", tensor),))
    (attempt,) = run_jobs([Job(case, DeviceKind.HOST)])
    assert "detach views" not in (attempt.detail or "")


def test_a_higher_order_operator_is_not_run_and_says_why():
    case = Case("torch.ops.higher_order.flex_attention", ())
    (attempt,) = run_jobs([Job(case, DeviceKind.HOST)])
    assert attempt.outcome is Outcome.NOT_RUN
    assert "calls functions" in attempt.detail


def test_the_run_names_the_module_of_another_library(tmp_path, monkeypatch):
    (tmp_path / "doubling.py").write_text(
        "import torch\n\n"
        "library = torch.library.Library('doubling_ops', 'DEF')\n"
        "library.define('twice(Tensor x) -> Tensor')\n"
        "library.impl('twice', lambda x: x * 2, 'CompositeExplicitAutograd')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import_module("doubling")
    with optrove.trace(tmp_path / "trove.db", backend="torch"):
        torch.ops.doubling_ops.twice(torch.ones(2))
    with open_reader(place_of(str(tmp_path / "trove.db"))) as reader:
        planned = {each.op: each.notes for each in planned_cases(reader, Query(data_movement=True))}
    assert planned.pop("torch.ops.doubling_ops.twice.default") == (
        "doubling_ops was registered by doubling: --import doubling",
    )
    assert not any(planned.values())


@pytest.mark.filterwarnings("ignore:Sparse BSR tensor support")
def test_operations_whose_arguments_need_care_run_again(tmp_path):
    with optrove.trace(tmp_path / "trove.db", backend="torch"):
        sparse = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
        (sparse + sparse).coalesce().values()
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(4, 2, 3), [4, 2])
        torch.nn.GRU(3, 5)(packed)
        torch.nn.LSTM(3, 5)(torch.ones(4, 2, 3))
        torch.ones(2, 3).view(torch.int16)
        torch.zeros(9, 5)[torch.arange(9)] = torch.ones(9, 5)
        torch.zeros(9, 5).scatter_(0, torch.arange(9)[:, None].expand(9, 5), torch.ones(9, 5))
        torch.zeros(9, 5).index_copy_(1, torch.arange(5), torch.ones(9, 5))
        torch.linalg.eig(torch.randn(5, 5)), torch.linalg.svd(torch.randn(5, 4))
        torch.randn(8, 8).to_sparse_bsr((4, 4)) @ torch.ones(8, 2)
    with open_reader(place_of(str(tmp_path / "trove.db"))) as reader:
        jobs = [each.job for each in planned_cases(reader, Query(data_movement=True))]
    attempts = [*run_jobs(jobs, workers=1)]
    assert [each.detail for each in attempts if each.outcome is not Outcome.PASSED] == []
    assert all(each.measurements or each.notes for each in attempts)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantized_and_nested_tensors_run_again_with_numbers(tmp_path):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    with optrove.trace(tmp_path / "trove.db", backend="torch"):
        x = torch.randn(4, 6)
        quantized = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        (quantized.t().dequantize(), quantized[1].int_repr(), torch.cat([quantized, quantized]))
        zeros = torch.zeros(4, dtype=torch.long)
        torch.quantize_per_channel(x, torch.rand(4) + 0.1, zeros, 0, torch.qint8).dequantize()
        (torch.nested.nested_tensor(parts) * 2).to_padded_tensor(0.0)
        jagged.to_padded_tensor(0.0)
        functional.linear(jagged + jagged.sin(), torch.randn(5, 3))
    with open_reader(place_of(str(tmp_path / "trove.db"))) as reader:
        jobs = [each.job for each in planned_cases(reader, Query(data_movement=True))]
    attempts = [*run_jobs(jobs, workers=1)]
    assert [each.detail for each in attempts if each.outcome is not Outcome.PASSED] == []
    ops = ("dequantize", "int_repr", "to_padded_tensor", "linear", "add", "mul", "cat")
    measured = {each.case_id for each in attempts if each.measurements}
    assert all(placement_hash(job.case) in measured for job in of(jobs, *ops))


def test_a_warm_call_is_timed_without_the_tracer(jobs):
    (job,) = of(jobs, "mm")[:1]
    timed = Job(job.case, DeviceKind.HOST, outputs=job.outputs, metrics=("pcc", E2E_NS))
    (attempt,) = run_jobs([timed])
    measured = {each.name: each.value for each in attempt.measurements}
    first, second = (each.shape for name, each in job.case.arguments if name in ("self", "mat2"))
    rows, inner = first if first[1] == second[0] else second
    assert measured[E2E_NS] > 0
    assert measured["flops"] > 2 * rows * inner
    assert measured["bytes"] > 0


LOG = """\
Operator: aten.addmm.default
cnt: 2, ((T([2], f32), T([4, 3], f32), T([3, 2], f32)), {})
Operator: aten.embedding.default
cnt: 1, ((T([9, 3], f32), T([2, 4], i64)), {})
Operator: aten.nll_loss_forward.default
cnt: 1, ((T([5, 3], f32), T([5], i64), None, 1, -100), {})
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), "recorded devices"),
        (("--device", "meta"), "(meta,"),
        (("--map", "cpu=meta"), "mapped cpu=meta"),
        (("--compile", "aot_eager"), "compiled by aot_eager"),
    ],
)
def test_operator_inputs_run_by_the_command(tmp_path, monkeypatch, options, shown):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text(LOG)
    ask("import", "log.txt", "--store", "t.db")
    answer = ask("sweep", "--store", "t.db", *options)
    assert "3 cases: 3 passed" in answer
    assert shown in answer


def test_a_target_of_torch_without_a_case_of_torch_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text(LOG)
    ask("import", "log.txt", "--store", "t.db")
    words = ("sweep", "addmm", "--store", "t.db", "--device", "CUDA")
    assert "neither hw, mock" in ask(*words, exit_code=2)
    words = ("sweep", "addmm", "--store", "t.db", "--map", "cuda")
    assert "cuda=cpu" in ask(*words, exit_code=2)
