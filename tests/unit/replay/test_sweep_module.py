"""Vectors of sweep modules that need no framework, executed in this process."""

import sys

import pytest

from optrove.errors import DeviceNotOpened, NotReplayable
from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job, Outcome
from optrove.model.values import Symbol
from optrove.replay.messages import WorkerSetup
from optrove.replay.sweep_module import ModuleExecution, module_name
from optrove.serializer.hashes import placement_hash
from trove_rows import value

MODULE = """
import random
from pathlib import Path
import beside

log = Path(__file__).with_suffix(".log")
parameters = {"nightly": {"how": ["pass"]}}


def mesh_device_fixture():
    with log.open("a") as stream:
        stream.write("open\\n")
    yield beside.DEVICE, "a device"
    with log.open("a") as stream:
        stream.write("close\\n")


def run(how, *, device):
    assert device == "the device"
    if how == "raise":
        raise ValueError("no such thing")
    if how == "exit":
        raise SystemExit(4)
    if how == "random":
        return True, str(random.random())
    return [(how == "pass", "PCC 0.5"), 12]
"""


@pytest.fixture
def execution():
    made = ModuleExecution(WorkerSetup("run", DeviceKind.HOST, None))
    yield made
    made.close()


@pytest.fixture
def attempt(execution, tmp_path, monkeypatch):
    # What modules put there, which finds their neighbours.
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    stages = []

    def attempted(file, seed=0, **arguments):
        one = Case("sweep.mine.nightly", tuple((k, value(v)) for k, v in arguments.items()))
        path = None if file is None else str(tmp_path / file)
        job = Job(one, DeviceKind.HOST, seed=seed, module=path)
        return execution.attempt(job, placement_hash(one), stages.append)

    attempted.stages = stages
    return attempted


@pytest.fixture
def module(tmp_path):
    (tmp_path / "beside.py").write_text('DEVICE = "the device"\n')
    (tmp_path / "mine.py").write_text(MODULE)
    return "mine.py"


def test_a_device_is_opened_once_for_all_vectors_and_closed_at_the_end(
    attempt, module, execution, tmp_path
):
    outcomes = [attempt(module, how=how).outcome for how in ("pass", "fail", "raise", "exit")]
    assert outcomes == [Outcome.PASSED, Outcome.NUMERICS, Outcome.RAISED, Outcome.RAISED]
    assert attempt.stages[:3] == [Stage.OPENING, Stage.MAKING, Stage.CALLING]
    assert attempt.stages.count(Stage.OPENING) == 1
    (tmp_path / "other.py").write_text(
        "parameters = {}\n\n\ndef run(device):\n    return True, ''\n"
    )
    assert attempt("other.py").outcome is Outcome.PASSED
    assert (tmp_path / "mine.log").read_text() == "open\nclose\n"


def test_what_was_measured_and_raised_is_reported(attempt, module):
    passed = attempt(module, how="pass")
    assert {each.name: each.value for each in passed.measurements} == {"pcc": 0.5, "e2e_ns": 12}
    assert passed.duration_ns > 0
    raised = attempt(module, how="raise")
    assert raised.detail.splitlines()[0] == "no such thing"
    assert 'in run\n    raise ValueError("no such thing")' in raised.detail


def test_the_seed_decides_the_random_numbers(attempt, module):
    numbers = [attempt(module, how="random", seed=seed).measurements for seed in (1, 1, 2)]
    assert numbers[0] == numbers[1] != numbers[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import nowhere_to_be_found",
            "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("raise SystemExit(3)", "it ends the process with sys.exit(3)"),
        ("x = (", "SyntaxError"),
        ("run = print", "no dictionary of suites called `parameters`"),
        ("parameters = {}", "no function `run`"),
    ],
)
def test_a_module_that_cannot_be_imported_runs_nothing_and_says_why(attempt, tmp_path, text, words):
    (tmp_path / "bad.py").write_text(text)
    for _ in range(2):
        answer = attempt("bad.py")
        assert answer.outcome is Outcome.NOT_RUN
        assert words in answer.detail
        assert "bad.py" in answer.detail


def test_a_device_that_cannot_be_opened_or_closed_is_no_failure_of_the_vector(
    attempt, execution, tmp_path
):
    text = "parameters = {}\nrun = lambda device: (True, '')\ndef mesh_device_fixture():\n"
    (tmp_path / "none.py").write_text(f"{text}    return 3\n")
    # The worker reports it for all cases that need this device.
    with pytest.raises(DeviceNotOpened, match="could not open a device: TypeError") as caught:
        attempt("none.py")
    assert "mesh_device_fixture of" in str(caught.value)
    (tmp_path / "stuck.py").write_text(f"{text}    yield 3\n    raise OSError('stuck')\n")
    assert attempt("stuck.py").outcome is Outcome.PASSED
    with pytest.raises(NotReplayable, match="failed to close its device: OSError: stuck"):
        execution.close()


def test_a_vector_without_a_module_or_with_an_unknown_class_is_not_run(attempt, module):
    assert "its module is unknown" in attempt(None).detail


PASSED = """
parameters = {}
TAKEN = {}

def run(%s):
    TAKEN.update(locals())
    return True, ""
"""


@pytest.mark.parametrize(
    ("signature", "taken"),
    [
        ("size, dim=9, *, device", {"size": 3, "dim": None}),
        (
            "size, *, device, **more",
            {"size": 3, "more": {"dim": None, "__absent_keys__": {"dim"}}},
        ),
        (
            "size, dim=9, __absent_keys__=(), device=None",
            {"size": 3, "dim": None, "__absent_keys__": {"dim"}},
        ),
        # A fact about the vector is passed where it is required, unlike an optional one.
        (
            "size, dim, tag, traced_source=0, *, device",
            {"dim": None, "tag": "me", "traced_source": 0},
        ),
    ],
)
def test_run_gets_the_arguments_that_tt_metals_runner_passes(
    attempt, tmp_path, execution, signature, taken
):
    (tmp_path / "mine.py").write_text(PASSED % signature)
    facts = {"tag": "me", "traced_source": ["demo.py"], "suite_name": "s", "validity": "VALID"}
    if "tag" not in signature:
        facts["input_hash"] = "00"
    verdict = attempt("mine.py", size=3, dim="__ABSENT__", **facts)
    assert verdict.outcome is Outcome.PASSED, verdict.detail
    found = sys.modules["sweeps.mine"].TAKEN
    assert {name: found[name] for name in taken} == taken


OWN_CLASSES = """
import enum

class Flavor(enum.Enum):
    SWEET = 1

parameters = {}

def run(flavor, *, device):
    return flavor is Flavor.SWEET, str(flavor)
"""


def test_a_member_of_a_modules_own_enum_is_that_member(attempt, tmp_path):
    (tmp_path / "mine.py").write_text(OWN_CLASSES)
    sweet = Symbol("python.enum:sweeps.mine:Flavor", "SWEET")
    assert attempt("mine.py", flavor=sweet).outcome is Outcome.PASSED
    unknown = attempt("mine.py", flavor=Symbol("python.enum:sweeps.other:Flavor", "SWEET"))
    assert unknown.outcome is Outcome.NOT_RUN
    assert "belongs to a program or framework that is not here" in unknown.detail


def test_modules_are_named_from_the_directory_of_sweeps_on(tmp_path):
    assert module_name(tmp_path / "tests" / "sweeps" / "eltwise" / "add.py") == "eltwise.add"
    assert module_name(tmp_path / "add.py") == "add"
    assert module_name(tmp_path / "sweeps.py") == "sweeps"


def test_a_checkout_of_tt_metal_comes_before_the_working_directory(attempt, tmp_path, monkeypatch):
    framework = tmp_path / "checkout" / "tests" / "sweep_framework"
    (framework / "sweeps").mkdir(parents=True)
    (framework.parent / "its_name.py").write_text("PLACE = 'the checkout'\n")
    here = tmp_path / "here"
    (here / "tests").mkdir(parents=True)
    (here / "tests" / "its_name.py").write_text("PLACE = 'elsewhere'\n")
    (framework / "sweeps" / "mine.py").write_text(
        "from tests.its_name import PLACE\nparameters = {}\nrun = lambda device: (False, PLACE)\n"
    )
    for directory in (framework.parent, here / "tests"):
        (directory / "__init__.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        monkeypatch.delitem(sys.modules, name)
    found = attempt("checkout/tests/sweep_framework/sweeps/mine.py")
    assert found.detail == "the checkout"
    for name in ("tests", "tests.its_name"):
        del sys.modules[name]


READS = """
import os

parameters = {}


def mesh_device_fixture():
    names = ("MESH_DEVICE_SHAPE", "ARCH_NAME", "TTNN_SWEEP_OP_NAME")
    yield " ".join(os.environ.get(name, "unset") for name in names), "a device"


def run(device):
    return False, device
"""


@pytest.mark.parametrize(
    ("mesh", "board", "read"),
    [
        ((1, 2), "n300", "1x2 wormhole_b0 slice"),
        ((4, 8), "n300", "unset wormhole_b0 slice"),
        (None, "p150", "unset blackhole slice"),
        ((1, 2), None, "unset unset slice"),
    ],
)
def test_a_module_reads_its_mesh_and_op_from_the_environment(
    tmp_path, monkeypatch, mesh, board, read
):
    monkeypatch.setattr("sys.path", list(sys.path))
    for name in ("MESH_DEVICE_SHAPE", "ARCH_NAME", "TTNN_SWEEP_OP_NAME"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "slice_model_traced.py"
    file.write_text(READS)
    execution = ModuleExecution(WorkerSetup("run", DeviceKind.SHADOW, board))
    one = Case("sweep.slice_model_traced.model_traced", ())
    device = None if mesh is None else DeviceParameters(mesh_shape=mesh)
    job = Job(one, DeviceKind.SHADOW, module=str(file), device=device)
    assert execution.attempt(job, placement_hash(one), lambda _: None).detail == read
    execution.close()
    monkeypatch.setenv("MESH_DEVICE_SHAPE", "1x1")
    assert execution.attempt(job, placement_hash(one), lambda _: None).detail.startswith("1x1 ")
    execution.close()
