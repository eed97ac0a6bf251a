"""Vectors of sweep modules that need no framework, executed in this process."""

import pytest

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Outcome
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


def test_what_was_measured_and_raised_is_told(attempt, module):
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
        told = attempt("bad.py")
        assert told.outcome is Outcome.NOT_RUN
        assert words in told.detail
        assert "bad.py" in told.detail


def test_a_device_that_cannot_be_opened_or_closed_is_no_failure_of_the_vector(
    attempt, execution, tmp_path
):
    text = "parameters = {}\nrun = lambda device: (True, '')\ndef mesh_device_fixture():\n"
    (tmp_path / "none.py").write_text(f"{text}    return 3\n")
    told = attempt("none.py")
    assert told.outcome is Outcome.NOT_RUN
    assert "mesh_device_fixture of" in told.detail
    assert "could not open a device: TypeError" in told.detail
    (tmp_path / "stuck.py").write_text(f"{text}    yield 3\n    raise OSError('stuck')\n")
    assert attempt("stuck.py").outcome is Outcome.PASSED
    with pytest.raises(NotReplayable, match="failed to close its device: OSError: stuck"):
        execution.close()


def test_a_vector_without_a_module_or_with_an_unknown_class_is_not_run(attempt, module):
    assert "its module is unknown" in attempt(None).detail


def test_modules_are_named_from_the_directory_of_sweeps_on(tmp_path):
    assert module_name(tmp_path / "tests" / "sweeps" / "eltwise" / "add.py") == "eltwise.add"
    assert module_name(tmp_path / "add.py") == "add"
    assert module_name(tmp_path / "sweeps.py") == "sweeps"
