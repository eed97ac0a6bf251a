"""TorchDynamo compiles the program and nothing of the recorder."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import optrove
from optrove.capture.recorder import Recorder
from optrove.frameworks.probe_protocol import API, ATEN
from optrove.frameworks.torch.probe import TorchProbe
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from tracing import seen_in

pytestmark = pytest.mark.torch

OURS = str(Path(optrove.__file__).parent)
STEPS = 10
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


class Counted(TorchDispatchMode):
    """Counts the operations that the dispatcher runs."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.operations = Counter()

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace not in ("prim", "profiler"):
            self.operations[f"torch.ops.{func}"] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def train():
    """A training whose compiled step calls ``backward``; it returns the last loss."""

    def run(backend, *, dynamic=False, compiled_autograd=False):
        torch._dynamo.reset()
        torch.manual_seed(0)
        layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend=backend, dynamic=dynamic)
        def step(inputs, labels):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss

        rows = range(4, 4 + STEPS) if dynamic else [4] * STEPS
        with torch._dynamo.config.patch(compiled_autograd=compiled_autograd):
            losses = [step(torch.randn(n, 8), torch.randint(4, (n,))) for n in rows]
        return losses[-1].item()

    yield run
    torch._dynamo.reset()


def traced(directory, level, program):
    """Return what a program returns, its calls, and the files whose frames were compiled."""
    recorder = Recorder(Journal(directory, 0))
    probe = TorchProbe(torch, recorder, level=level)
    torch._dynamo.utils.clear_compilation_metrics()
    with probe:
        result = program()
    compiled = [each.co_filename for each in torch._dynamo.utils.get_compilation_metrics()]
    assert not recorder.faults
    assert not probe.faults
    return result, list(seen_in(JournalReader(find_journals(directory)[0]))), compiled


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("level", [ATEN, API])
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("eager", {}),
        ("eager", {"dynamic": True}),
        ("eager", {"compiled_autograd": True}),
        ("aot_eager", {}),
        pytest.param("inductor", {}, marks=needs_compiler),
    ],
)
def test_a_compiled_step_that_calls_backward(tmp_path, train, capfd, level, backend, options):
    alone = train(backend, **options)
    with Counted() as mode:
        train(backend, **options)
    capfd.readouterr()
    result, calls, compiled = traced(tmp_path, level, lambda: train(backend, **options))
    assert result == alone
    assert compiled
    assert not [file for file in compiled if str(file).startswith(OURS)]
    warnings = capfd.readouterr().err
    assert OURS not in warnings
    assert "recompile_limit" not in warnings
    if level == ATEN:
        assert Counter(call.op for call in calls) == mode.operations


def test_a_program_that_compiles_nothing_does_not_load_the_compiler(tmp_path):
    code = """
import sys, torch, optrove
with optrove.trace("trove.db", backend="torch"):
    torch.ones(2, requires_grad=True).sum().backward()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
