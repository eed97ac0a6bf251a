"""No kernel under test reaches the inputs, the reference or the comparison."""

import sys
from dataclasses import replace

import pytest
import torch

from optrove.frameworks.torch.raw_tensors import packed, unpacked
from optrove.model.records import DeviceKind, Inputs, Job, Outcome
from optrove.model.torch_target import TorchTarget
from optrove.replay.runner import run_jobs
from recorded_program import jobs_in
from tracing import tracing

pytestmark = pytest.mark.torch

BLIND = """
import torch
LIBRARY = torch.library.Library("aten", "IMPL")

def zeros(first, *_, **__):
    return torch.zeros_like(first)

for name in ("sub.Tensor", "abs", "le.Tensor"):
    LIBRARY.impl(name, zeros, "CPU")
LIBRARY.impl("exp", lambda x: torch.full_like(x, 7), "CPU")
LIBRARY.impl("isnan", lambda x: torch.zeros_like(x, dtype=torch.bool), "CPU")
"""

RAISING = """
import torch
LIBRARY = torch.library.Library("aten", "IMPL")

def refuse(*_, **__):
    raise RuntimeError("this backend has no scalars")

for name in ("sub.Tensor", "abs", "le.Tensor", "le.Scalar", "sub.Scalar", "mul.Scalar", "normal_",
             "random_.from", "_local_scalar_dense", "equal", "where.self", "max"):
    try:
        LIBRARY.impl(name, refuse, "CPU")
    except RuntimeError:
        pass  # this torch composes it
"""


def program():
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    x.exp(), x.sigmoid(), x @ y.T, x.sum(1), x.softmax(-1), x.bfloat16().tanh()
    x.isnan(), x.sort(dim=-1), torch.sub(x, y), x.abs()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    with tracing(tmp_path_factory.mktemp("traced"), backend="torch") as traced:
        program()
        found = jobs_in(traced.directory)
    return {
        job.case.op.split(".")[3]: Job(job.case, DeviceKind.HOST, outputs=job.outputs)
        for job in found
    }


def outcomes(jobs, names, module, tmp_path, monkeypatch, **changes):
    (tmp_path / "planted.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    wanted = [replace(jobs[name], **changes) for name in names]
    attempts = run_jobs(wanted, board=str(TorchTarget(imports=("planted",))))
    by_case = {each.case_id: each for each in attempts}
    return [(each.outcome, each.detail) for each in by_case.values()]


def test_kernels_that_blind_a_comparison_are_found_and_others_pass(jobs, tmp_path, monkeypatch):
    wrong = outcomes(jobs, ("sub", "abs", "exp", "isnan"), BLIND, tmp_path, monkeypatch)
    assert [outcome for outcome, _ in wrong] == [Outcome.NUMERICS] * 4, wrong
    right = outcomes(jobs, ("sigmoid", "mm", "sum", "tanh", "sort"), BLIND, tmp_path, monkeypatch)
    assert {outcome for outcome, _ in right} == {Outcome.PASSED}, right


def test_kernels_that_raise_harm_no_other_case(jobs, tmp_path, monkeypatch):
    names = ("exp", "sigmoid", "mm", "sum", "tanh", "_softmax")
    found = outcomes(jobs, names, RAISING, tmp_path, monkeypatch)
    assert {outcome for outcome, _ in found} == {Outcome.PASSED}, found


@pytest.mark.parametrize(
    ("inputs", "outcome"),
    [
        (Inputs.RANDOM, Outcome.PASSED),
        (Inputs.EDGES, Outcome.NUMERICS),
        (Inputs.ALL, Outcome.NUMERICS),
    ],
)
def test_only_edge_inputs_show_some_faults(jobs, tmp_path, monkeypatch, inputs, outcome):
    ((found, detail),) = outcomes(jobs, ("isnan",), BLIND, tmp_path, monkeypatch, inputs=inputs)
    assert found is outcome
    if outcome is Outcome.NUMERICS:
        assert detail.startswith("with NaN and infinities: output 0: element")


def test_a_case_that_raised_passes_if_it_raises_again(jobs):
    job = jobs["mm"]
    x = job.case.arguments[0][1]
    case = replace(job.case, arguments=(("self", x), ("mat2", x)))
    raising = replace(job, case=case, outputs=None, raises="RuntimeError: shapes")
    (attempt,) = run_jobs([raising])
    assert attempt.outcome is Outcome.PASSED
    assert "as it did when it was recorded" in attempt.notes[0]
    (attempt,) = run_jobs([replace(job, raises="RuntimeError: shapes")])
    assert attempt.outcome is Outcome.WRONG_SPEC
    assert "when it was recorded, it raised" in attempt.detail


@pytest.mark.parametrize(
    "tensors",
    [
        lambda: [torch.randn(3, 4).t()],
        lambda: [torch.randn(6)[2:], torch.empty(0, 3)],
        lambda: [torch.randn(2, 3).bfloat16(), torch.tensor(True), torch.arange(4)],
        lambda: [torch.randn(3, dtype=torch.complex64).conj(), torch.ones(2).expand(3, 2)],
        lambda: (lambda x: [x[0], x[1:], x])(torch.randn(4, 2)),
        lambda: [torch.eye(3).to_sparse(), torch.randn(2, requires_grad=True)],
    ],
)
def test_tensors_are_carried_as_they_are(tensors):
    before = tensors()
    after = unpacked(torch, packed(torch, before))
    for old, new in zip(before, after, strict=True):
        assert old.dtype is new.dtype
        assert torch.equal(old.to_dense(), new.to_dense())
        if old.layout is torch.strided and old.numel():
            assert old.stride() == new.stride()
    shared = {each.untyped_storage().data_ptr() for each in before if each.layout is torch.strided}
    again = {each.untyped_storage().data_ptr() for each in after if each.layout is torch.strided}
    assert len(shared) == len(again)
