"""Generated tests of torch's operations pass with torch and pytest only, and find wrong kernels."""

import os
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from forked_python import python
from optrove.frameworks.torch.reference import NOT_RANDOM_IF
from optrove.model.case import Case
from optrove.model.torch_target import TorchTarget
from optrove.model.values import Opaque
from optrove.testgen.cases import RecordedCase
from optrove.testgen.files import MARK, generate
from optrove.testgen.torch_files import template_text
from recorded_program import jobs_in
from tracing import tracing

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def program():
    x = torch.randn(6, 5)
    weight = torch.randn(4, 5, requires_grad=True)
    functional.linear(x.bfloat16(), weight.bfloat16()).softmax(-1).sum().backward()
    x[torch.tensor([0, 2]), torch.tensor([1, 4])]
    functional.embedding(torch.tensor([[0, 3]]), x)
    x.mul(x), torch.cat([x, x.T.T, x[1:]]), x.sort(), x.argmax(), x.nonzero(), x.sum().item()
    functional.dropout(x), torch.empty(3), x.add_(1), x[:, ::2].neg(), torch.fft.fft(x).conj() * 2
    functional.batch_norm(x, torch.zeros(5), torch.ones(5), training=True)
    torch.set_default_dtype(torch.float64)
    torch.zeros(2)
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    with tracing(tmp_path_factory.mktemp("traced"), backend="torch") as traced:
        program()
        jobs = jobs_in(traced.directory)
    return [
        RecordedCase(f"{number:064x}", job.case, 1, job.outputs) for number, job in enumerate(jobs)
    ]


def write(directory, generated):
    for file in generated.files:
        assert MARK in file.text
        (directory / file.name).write_text(file.text)


def run(directory, *words):
    """Run Python without optrove in its path."""
    environment = {key: each for key, each in os.environ.items() if key != "PYTHONPATH"}
    return python(*words, cwd=directory, env=environment)


PYTEST = ("-m", "pytest", "-q", "-p", "no:optrove", "-p", "no:cacheprovider", "--rootdir=.")


def test_the_tests_of_a_program_pass(tmp_path, recorded):
    foreign = RecordedCase("f" * 64, Case("torch.ops.no_such_library.twice.default", ()))
    generated = generate([*recorded, foreign])
    assert not generated.left_out
    assert sum(file.cases for file in generated.files) == len(recorded) + 1
    write(tmp_path, generated)
    assert all("optrove" not in file.text.replace(MARK, "") for file in generated.files)
    done = run(tmp_path, *PYTEST)
    assert done.returncode == 0, done.stdout
    assert f"{len(recorded)} passed, 1 skipped" in done.stdout


def test_a_wrong_result_is_found(tmp_path, recorded):
    cases = [each for each in recorded if each.case.op == "torch.ops.aten.neg.default"]
    (file,) = generate(cases).files
    wrong = file.text.replace(
        "result = (run or op)(*args, **kwargs)",
        "result = (run or op)(*args, **kwargs)\n        result = result * (1 if dtypes else 1.01)",
    )
    (tmp_path / file.name).write_text(wrong)
    done = run(tmp_path, *PYTEST)
    assert done.returncode == 1
    assert "elements wrong" in done.stdout


def test_one_case_is_a_file_of_its_own_that_needs_no_pytest(tmp_path, recorded):
    cases = [each for each in recorded if each.case.op == "torch.ops.aten.embedding.default"]
    generated = generate(cases, standalone=True)
    write(tmp_path, generated)
    assert [file.cases for file in generated.files] == [1] * len(cases)
    assert "import pytest" not in generated.files[0].text
    for words in ((), PYTEST):
        done = run(tmp_path, *words, generated.files[0].name)
        assert done.returncode == 0, done.stdout


WRONG = """
import torch
from torch._dynamo import register_backend

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("neg", lambda x: x * -1.01, "CPU")
LIBRARY.impl("argmax", lambda x, dim=None, keepdim=False: torch.tensor(-1), "CPU")

@register_backend
def slightly_wrong(module, inputs):
    return lambda *given: tuple(each * 1.01 for each in module(*given))
"""


@pytest.mark.parametrize(
    ("op", "target"),
    [
        ("neg", TorchTarget(imports=("wrong_numbers",))),
        ("argmax", TorchTarget(imports=("wrong_numbers",))),
        ("mul", TorchTarget(compiler="slightly_wrong", imports=("wrong_numbers",))),
        ("mul", TorchTarget(compiler="no_such_backend")),
        ("mul", TorchTarget(device="cuda:77")),
    ],
)
def test_a_shrunk_case_fails_where_it_failed_and_only_there(tmp_path, recorded, op, target):
    (tmp_path / "wrong_numbers.py").write_text(WRONG)
    case = next(each for each in recorded if each.case.op.split(".")[3] == op)
    shrunk = replace(case, shrunk_from="5" * 64, outputs=None)
    for each, code in ((shrunk, 0), (replace(shrunk, target=target), 1)):
        (file,) = generate([each], standalone=True).files
        (tmp_path / file.name).write_text(file.text)
        assert "shrunk from case 555555555555." in file.text
        done = run(tmp_path, *PYTEST, file.name)
        assert done.returncode == code, done.stdout
    assert ("find the module wrong_numbers" in file.text) == bool(target.imports)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("torch.nn.functional.relu", ()), "--level aten"),
        (Case("torch.ops.aten.neg.default", (("self", Opaque("odd.Kind", "1")),)), "odd.Kind"),
    ],
)
def test_a_case_that_no_python_makes_is_left_out_with_the_reason(case, reason):
    (left_out,) = generate([RecordedCase("0" * 64, case)]).left_out
    assert reason in left_out.reason


@pytest.mark.parametrize(
    ("given", "verdict"),
    [((), "1 passed"), (None, "it returned; when it was recorded, it raised RuntimeError")],
)
def test_a_case_that_raised_has_to_raise(tmp_path, recorded, given, verdict):
    (one, *_) = [each for each in recorded if each.case.op == "torch.ops.aten.neg.default"]
    case = one.case if given is None else Case(one.case.op, given)
    generated = generate([RecordedCase("0" * 64, case, 1, raised="RuntimeError: no")])
    write(tmp_path, generated)
    assert verdict in run(tmp_path, *PYTEST).stdout


def test_replays_and_written_tests_agree_about_what_is_random():
    assert f"off = {NOT_RANDOM_IF}".replace("'", '"') in template_text("torch_comparing")
