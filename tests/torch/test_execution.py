"""Cases of torch that were recorded are replayed on the host, in processes of their own."""

import pytest
import torch

from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Outcome
from optrove.model.values import Int, Text, Tuple
from optrove.replay.runner import run_jobs
from optrove.serializer.hashes import placement_hash
from recorded_program import jobs_in
from tracing import tracing

pytestmark = pytest.mark.torch


def program():
    """Call functions, methods, operators and getters, with views and numbers of many kinds."""
    a, b = torch.randn(4, 6), torch.randn(6, 4)
    torch.add(a, 2.0, alpha=3)
    torch.nn.functional.linear(a, b.T, bias=torch.zeros(4))
    a @ b
    a[:, ::2].sum(dim=1, keepdim=True)
    torch.cat([a, a, b.T], dim=0)
    torch.nn.functional.softmax(a, dim=-1, dtype=torch.float64)
    torch.nn.functional.embedding(torch.tensor([[0, 3], [2, 1]]), a)
    a.mul_(b.T)
    a.view(2, 12).to(torch.bfloat16)
    torch.where(a > 0, a, 0.0)
    torch.max(a, dim=1)
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding=1)
    torch.randn(3, 2, dtype=torch.complex64).conj() * 2
    weight = torch.randn(4, 4, requires_grad=True)
    (weight * 2).relu().sum().backward()
    with torch.no_grad():
        torch.nn.functional.linear(a, weight[:, :1].expand(4, 6))
    a.to(None, torch.float16, False)  # as Module.to does


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    with tracing(tmp_path_factory.mktemp("traced"), backend="torch") as traced:
        program()
        found = jobs_in(traced.directory)
    return [Job(job.case, DeviceKind.HOST, outputs=job.outputs) for job in found]


def test_every_recorded_case_replays_as_itself_with_the_recorded_outputs(jobs):
    ops = {placement_hash(job.case): job.case.op for job in jobs}
    assert len(ops) > 20
    wrong = [
        (ops[each.case_id], each.outcome, each.detail)
        for each in run_jobs(jobs)
        if each.outcome is not Outcome.PASSED or each.replayed_case_id != each.case_id
    ]
    assert not wrong, "\n".join(map(str, wrong))


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


def test_an_operation_that_raises_is_reported_in_its_own_words(jobs):
    case = Case("torch.zeros", (("size", Tuple((Int(-3),))),))
    (attempt,) = run_jobs([Job(case, DeviceKind.HOST)])
    assert attempt.outcome is Outcome.RAISED
    assert "negative" in attempt.detail
