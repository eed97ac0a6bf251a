"""The real tensors of chosen calls are kept, and cases are replayed with them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load

import optrove
from commands import ask, run
from forked_python import python
from optrove.capture.capsules import RESERVE
from optrove.journal.capsules import Budget, TensorFiles
from optrove.model.records import DeviceKind
from optrove.replay.device_choice import TargetDevice
from optrove.testgen.generate import why_not_failing
from optrove.trove.capsules import capsules_beside, capsules_of
from optrove.trove.place import place_of

pytestmark = pytest.mark.torch


def run_model(scales=(1.0, 100.0, 10.0)):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(8, 8, generator=generator)
    for scale in scales:
        x = torch.randn(4, 8, generator=generator) * scale
        torch.relu(torch.mm(x, weight).T[1:3])


def traced(path, **options):
    with optrove.trace(path, backend="torch", **options):
        run_model()
    return capsules_of(place_of(str(path)))


def values(path, capsule, key):
    ((digest,),) = [digests for name, digests in capsule.inputs if name == key]
    files = TensorFiles(capsules_beside(Path(path)))
    return load(files.read(digest))["values"]


def only_mm(path, found):
    (case,) = ask("show", "mm", "--store", path, "--json")
    return found[case["case_id"]]


@pytest.mark.parametrize(
    ("policy", "calls"), [("all", 3), ("first", 1), ("every:2", 2), ("worst", 1)]
)
def test_a_policy_chooses_among_the_calls_of_a_case(tmp_path, policy, calls):
    path = tmp_path / "trove.db"
    found = only_mm(path, traced(path, capsule=["mm", policy]))
    assert len(found) == calls
    if policy == "worst":
        assert values(path, found[0], "storage 1 torch.float32").abs().max() > 50


def test_only_the_named_op_has_capsules(tmp_path):
    found = traced(tmp_path / "trove.db", capsule=["mm"])
    assert len(found) == 1


def test_a_tensor_that_repeats_is_one_file(tmp_path):
    path = tmp_path / "trove.db"
    found = only_mm(path, traced(path, capsule=["mm"]))
    weights = {dict(each.inputs)["storage 0 torch.float32"] for each in found}
    assert len(weights) == 1


def test_views_of_one_storage_stay_views(tmp_path):
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch", capsule=["add_"]):
        whole = torch.arange(12.0)
        whole[:6].add_(whole[6:])
    (case,) = ask("show", "add_", "--store", path, "--json")
    (capsule,) = capsules_of(place_of(str(path)))[case["case_id"]]
    assert [key for key, _ in capsule.inputs] == ["storage 0 torch.float32"]
    answer = ask("replay", "add_", "--values", "capsule", "--store", path, "--json")
    assert answer["counts"] == {"passed": 1}
    assert any("values of call" in note for note in answer["cases"][0]["notes"])


def test_the_limit_is_never_exceeded_and_the_rest_is_counted(tmp_path):
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch", capsule=["all"], capsule_limit="1kB") as trace:
        run_model()
    kept, size, omitted = trace.recorded.capsules()
    assert size <= 1000
    assert sum(omitted.values()) > 0
    assert all("--capsule-limit" in reason for reason in omitted)
    held = sum(each.stat().st_size for each in capsules_beside(path).glob("*.safetensors*"))
    assert held == size
    assert kept == sum(map(len, capsules_of(place_of(str(path))).values()))


def test_a_full_disk_costs_capsules_and_not_the_trace(tmp_path, monkeypatch):
    def write(self, digest, content, suffix):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorFiles, "write", write)
    with optrove.trace(tmp_path / "trove.db", backend="torch", capsule=["mm"]) as trace:
        run_model()
    assert trace.summary().calls > 3
    assert trace.recorded.capsules() == (0, 0, {"the disk: No space left on device": 3})


def test_capsules_leave_room_on_the_disk_for_the_trace(tmp_path, monkeypatch):
    path = tmp_path / "trove.db"
    monkeypatch.setattr(Budget, "free_bytes", lambda _: RESERVE)
    with optrove.trace(path, backend="torch", capsule=["all"]) as trace:
        torch.relu(torch.ones(2))
    kept, size, omitted = trace.recorded.capsules()
    assert (kept, size) == (0, 0)
    (reason,) = omitted
    assert reason.startswith("the disk is almost full")


def test_the_results_of_the_program_are_the_same(tmp_path):
    x = torch.randn(4, 8)
    with optrove.trace(tmp_path / "trove.db", backend="torch", capsule=["all"]):
        traced_result = torch.softmax(x @ x.T, -1)
    assert torch.equal(traced_result, torch.softmax(x @ x.T, -1))


KILLED = """
import os, signal, torch

library = torch.library.Library("deadly", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: os.kill(os.getpid(), signal.SIGKILL), "CPU")
torch.ones(3).mul(2)
torch.ops.deadly.op(torch.full((5,), 7.0))
"""


def test_the_inputs_of_the_call_in_flight_survive_a_kill(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    path = tmp_path / "trove.db"
    command = [sys.executable, "-m", "optrove", "trace", str(script), "--backend", "torch"]
    done = subprocess.run(
        [*command, "--capsule", "all", "--store", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "in flight" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 128 + signal.SIGKILL
    (case,) = ask("show", "torch.ops.deadly.op", "--store", path, "--json")
    (capsule,) = capsules_of(place_of(str(path)))[case["case_id"]]
    assert torch.equal(values(path, capsule, "storage 0 torch.float32"), torch.full((5,), 7.0))


WRONG = """
import torch
library = torch.library.Library("aten", "IMPL")

def relu(x):
    right = x.dtype is torch.float64 or not (x.abs() == 5000).any()
    return torch.clamp_min(x, 0) if right else x.clone()

library.impl("relu", relu, "CPU")
"""


def test_a_kernel_that_is_wrong_for_certain_values_is_found_with_capsules_only(
    tmp_path, monkeypatch
):
    (tmp_path / "wrong_kernel.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = str(tmp_path / "trove.db")
    with optrove.trace(path, backend="torch", capsule=["relu"]):
        for scale in (1.0, 5000.0, 2.0):
            torch.relu(torch.linspace(-scale, scale, 32))
    common = ("sweep", "relu", "--import", "wrong_kernel", "--store", path, "--json")
    assert ask(*common)["counts"] == {"passed": 1}
    answer = ask(*common, "--values", "capsule", exit_code=1)
    assert answer["counts"] == {"numerics": 1}
    assert any("2 of 3 capsules" in note for note in answer["cases"][0]["notes"])


@pytest.fixture
def wrong_relu(tmp_path, monkeypatch):
    """A trove with the values with which a kernel, that ``wrong_kernel`` installs, is wrong."""
    (tmp_path / "wrong_kernel.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = str(tmp_path / "trove.db")
    with optrove.trace(path, backend="torch", capsule=["relu"]):
        for scale in (1.0, 5000.0, 2.0):
            torch.relu(torch.linspace(-scale, scale, 256).reshape(8, 32))
    return path


BARE = """
import sys
hidden = ("optrove", "safetensors")
for name in (*hidden, *(name for name in sys.modules if name.partition(".")[0] in hidden)):
    sys.modules[name] = None
import wrong_kernel
"""


def run_bare(directory, file, *, wrong):
    """Run a test with torch and pytest only, in another directory; with the kernel or without."""
    (directory / "conftest.py").write_text(BARE if wrong else BARE.replace("import wrong_k", "#"))
    words = ("-m", "pytest", "-q", "-p", "no:optrove", "-p", "no:cacheprovider", file)
    return python(*words, cwd=directory)


def test_generated_tests_have_the_recorded_values(tmp_path, wrong_relu):
    out = tmp_path / "out"
    common = ("testgen", "relu", "--store", wrong_relu, "--json", "-o", out)
    ask(*common, "--with-values")
    answer = ask(*common, "--with-values")
    assert answer["files"][0]["values"] == str(out / "test_torch_aten_relu_default.safetensors")
    done = run_bare(out, "test_torch_aten_relu_default.py", wrong=True)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "call_" in done.stdout
    assert "3 passed" in run_bare(out, "test_torch_aten_relu_default.py", wrong=False).stdout
    plain = ask(*common)
    assert plain["files"][0]["values"] is None
    assert "1 passed" in run_bare(out, "test_torch_aten_relu_default.py", wrong=True).stdout
    refused = ask(*common, "--with-values", "--values", "seed", exit_code=2)
    assert "contradict" in refused


def test_a_file_of_the_user_is_not_replaced_by_values(tmp_path, wrong_relu):
    out = tmp_path / "out"
    out.mkdir()
    mine = out / "test_torch_aten_relu_default.safetensors"
    mine.write_bytes(b"mine")
    words = ("testgen", "relu", "--with-values", "--store", wrong_relu, "-o", out)
    assert "was not made by optrove testgen" in ask(*words, exit_code=2)
    assert mine.read_bytes() == b"mine"


def test_a_shrunk_case_travels_as_a_zip_with_its_values(tmp_path, wrong_relu):
    made = tmp_path / "relu.zip"
    words = ("shrink", "relu", "--import", "wrong_kernel", "--store", wrong_relu, "--json")
    assert "there is no failure to shrink" in ask(*words, exit_code=2)
    answer = ask(*words, "--values", "capsule", "-o", made)
    assert (answer["outcome"], answer["values"]) == ("numerics", "capsule")
    assert answer["file"] == str(made)
    shape = answer["shrunk"]["arguments"]["self"]["$tensor"]["shape"]
    assert max(shape) == 1
    there = tmp_path / "there"
    with ZipFile(made) as archive:
        names = archive.namelist()
        archive.extractall(there)
    assert len(names) == 3
    about = (there / "environment.txt").read_text()
    assert "wrong numbers" in about
    assert f"torch {torch.__version__.partition('+')[0]}" in about
    (test,) = [name for name in names if name.endswith(".py")]
    assert "1 failed" in run_bare(there, test, wrong=True).stdout
    assert "1 failed" in run_bare(there, test, wrong=False).stdout  # it imports the kernel itself
    again = run(*words, "--values", "capsule", "-o", made)
    assert again.exit_code == 0
    assert "the written test" not in again.stderr
    made.write_bytes(b"mine")
    refused = run(*words, "--values", "capsule", "-o", made)
    assert refused.exit_code == 2
    assert "was not made by optrove shrink" in refused.stderr


DROPS_NAN = """
import torch
library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: x.clamp_min(0).nan_to_num(0.0, float("inf"), 0.0), "CPU")
"""


def test_a_written_test_of_a_fault_that_edge_inputs_show_says_that_it_passes(tmp_path, monkeypatch):
    (tmp_path / "wrong_kernel.py").write_text(DROPS_NAN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = str(tmp_path / "trove.db")
    with optrove.trace(path, backend="torch"):
        torch.relu(torch.randn(4))
    shrunk = run("shrink", "relu", "--import", "wrong_kernel", "--store", path, "-o", tmp_path)
    assert shrunk.exit_code == 0
    assert "the written test passes here" in shrunk.stderr
    assert "optrove replay --inputs edges shows the failure" in shrunk.stderr


def test_a_written_test_that_does_not_fail_is_not_called_a_reproducer(tmp_path):
    host = TargetDevice(DeviceKind.HOST)
    file = tmp_path / "test_it.py"
    for body, answer in (("pass", "passes here: 1 passed"), ("assert False", None)):
        file.write_text(f"def test_it():\n    {body}\n")
        found = why_not_failing(file, host)
        assert found is None if answer is None else answer in found
    file.write_text("import no_such_module\n")
    assert "cannot be run here" in why_not_failing(file, host)


def test_values_without_a_capsule_are_an_error_that_says_how_to_get_one(tmp_path):
    path = str(tmp_path / "trove.db")
    with optrove.trace(path, backend="torch"):
        torch.ones(2).neg()
    refusal = ask("replay", "neg", "--values", "capsule", "--store", path, exit_code=2)
    assert "optrove trace --capsule" in refusal
