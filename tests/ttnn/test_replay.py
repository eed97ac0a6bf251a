"""Cases that were recorded on mock boards are replayed there, in processes of their own."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from broken_cases import WRONG, heights, memory, right, tensor, unary
from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job, Outcome
from optrove.model.values import (
    Callable,
    Handle,
    Int,
    List,
    MeshPlacement,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
)
from optrove.replay.runner import run_jobs
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins

pytestmark = pytest.mark.ttnn

SUPPORT = Path(__file__).parents[1] / "support"
FILES = ("ttnn.dump_tensor", "ttnn.load_tensor")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What gives the jobs of the program that was traced on a board."""
    known = {}

    def record(board):
        if board not in known:
            directory = tmp_path_factory.mktemp(board)
            output = directory / "jobs.json"
            done = subprocess.run(
                [sys.executable, str(SUPPORT / "recorded_program.py"), board, str(output)],
                cwd=directory,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            known[board] = [
                record_from_builtins(each, Job) for each in json.loads(output.read_text())
            ]
        return known[board]

    return record


def mock(case, **options):
    return Job(case, DeviceKind.MOCK, **options)


def attempts_at(jobs, board, **options):
    return {each.case_id: each for each in run_jobs(jobs, board=board, **options)}


def attempt_at(case, board="n150", **options):
    (attempt,) = run_jobs([mock(case, **options)], board=board)
    return attempt


@pytest.mark.slow
@pytest.mark.parametrize("board", ["n150", "n300"])
def test_every_recorded_case_replays_as_itself_with_the_recorded_outputs(recorded, board):
    jobs = recorded(board)
    attempts = attempts_at(jobs, board)
    assert len(attempts) == len(jobs) > 5
    for job in jobs:
        attempt = attempts[placement_hash(job.case)]
        answer = f"{job.case.op}: {attempt.outcome} {attempt.detail}"
        assert attempt.outcome is Outcome.PASSED, answer
        assert attempt.replayed_case_id == attempt.case_id, answer
        assert attempt.outputs == job.outputs, answer
        assert attempt.detail is None, answer
        assert len(attempt.notes) == (job.case.op in FILES), answer


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("board", ["n150", "n300"])
def test_every_recorded_case_has_good_numbers_on_the_shadow(recorded, board):
    # On the shadow, what is read from one chip is a host tensor for any chip.
    apart = ("ttnn.to_device", "ttnn.dump_tensor") if board == "n300" else ()
    jobs = [
        replace(job, device_kind=DeviceKind.SHADOW)
        for job in recorded(board)
        if job.case.op not in apart
    ]
    measured = Counter()
    for attempt in run_jobs(jobs, board=board):
        assert attempt.outcome is Outcome.PASSED, attempt.detail
        assert attempt.replayed_case_id == attempt.case_id
        for each in attempt.measurements:
            measured[each.name] += 1
            assert each.name != "pcc" or each.value >= 0.99
    assert measured["pcc"] == measured["max_abs_error"] >= len(jobs) * 0.6
    # Results in blocks have no steps of their own to count in.
    assert measured["pcc"] >= measured["ulp"] >= len(jobs) * 0.5


IMPORTS = """
import sys
from contextlib import ExitStack

from broken_cases import tensor
from optrove.frameworks.installed import torch_deferred
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job
from optrove.model.values import Symbol
from optrove.replay.messages import WorkerSetup
from optrove.replay.worker import Worker

case = Case(
    "ttnn.to_torch", (("dtype", Symbol("torch.dtype", "int32")), ("tensor", tensor(0, (32, 32))))
)
loaded = []
with ExitStack() as stack:
    worker = Worker(WorkerSetup("run", DeviceKind.MOCK, "n150"), stack)
    with torch_deferred():
        worker.prepare()
    before = set(sys.modules)
    note = lambda stage: loaded.append((stage.name, set(sys.modules)))
    attempt = worker.attempt(Job(case, DeviceKind.MOCK), "id", note)
    print(attempt.outcome.name, "torch" in before)
    (making,) = [modules for name, modules in loaded if name == "MAKING"]
    print("torch" in making, "optrove.frameworks.torch.convert" in making)
"""


@pytest.mark.torch
def test_the_time_of_imports_is_not_that_of_the_case(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["PASSED False", "True True"], done.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_an_output_of_torch_is_known_by_a_worker_that_began_without_torch():
    read = Case("ttnn.to_torch", (("tensor", tensor(0, (32, 32))),))
    placement = TorchPlacement((32, 1), "strided", "cpu", requires_grad=False)
    output = TensorSpec((32, 32), "torch.bfloat16", placement, identity=1, storage=1)
    attempt = attempt_at(read, outputs=(output,))
    assert attempt.outcome is Outcome.PASSED, attempt.detail


@pytest.mark.slow
@pytest.mark.torch
def test_numbers_that_are_read_as_integers_are_compared_as_such():
    read = (("dtype", Symbol("torch.dtype", "int32")), ("tensor", tensor(0, (32, 32))))
    job = Job(Case("ttnn.to_torch", read), DeviceKind.SHADOW)
    (attempt,) = run_jobs([job], board="n150")
    assert attempt.outcome is Outcome.PASSED, attempt.detail
    assert ("max_abs_error", 0) in [(each.name, each.value) for each in attempt.measurements]


@pytest.mark.slow
def test_deliberately_broken_cases_are_rejected():
    wrong = {placement_hash(case): kind for kind, make in WRONG.items() for case in make()}
    good = {placement_hash(case): "right" for case in right()}
    jobs = [mock(case) for make in (right, *WRONG.values()) for case in make()]
    assert len(wrong) >= 300
    accepted = []
    for attempt in run_jobs(jobs, board="n150"):
        if attempt.case_id in good:
            assert attempt.outcome is Outcome.PASSED, attempt.detail
        elif attempt.outcome not in (Outcome.REJECTED, Outcome.OUT_OF_MEMORY):
            accepted.append((wrong[attempt.case_id], attempt.outcome, attempt.detail))
    assert len(accepted) <= 0.03 * len(wrong), accepted


def test_what_a_board_refuses_is_said_in_ttnns_own_words():
    jobs = {
        "rejected": unary("ttnn.relu", heights(128, 64, 4, (31, 64))),
        "out_of_memory": unary(
            "ttnn.relu", tensor(0, (1, 1, 32768, 8192), stored_in=memory("L1_INTERLEAVED"))
        ),
    }
    attempts = attempts_at([mock(case) for case in jobs.values()], "n150")
    found = {name: attempts[placement_hash(case)] for name, case in jobs.items()}
    assert {name: each.outcome.value for name, each in found.items()} == {
        name: name for name in jobs
    }
    first = {name: each.detail.splitlines()[0] for name, each in found.items()}
    assert "must be tile {32, 32} sized" in first["rejected"]
    assert first["out_of_memory"].startswith("Out of Memory: Not enough space to allocate")


def test_another_output_than_recorded_is_a_wrong_spec(ttnn_executor):
    case = unary("ttnn.relu", tensor(0, (1, 1, 32, 64)))
    (spec,) = ttnn_executor(case).outputs
    other = replace(spec, dtype="ttnn.float32")
    attempt = ttnn_executor(case, outputs=(other,))
    assert attempt.outcome is Outcome.WRONG_SPEC
    assert 'output 0 dtype: recorded "ttnn.float32"' in attempt.detail


PLAIN = tensor(0, (1, 1, 32, 64))


def loaded_from(path):
    return Case("ttnn.load_tensor", (("file_name", path),))


def added_to(**changes):
    """Return the sum of a tensor and one that is placed otherwise."""
    other = tensor(1, (1, 1, 32, 64))
    other = replace(other, placement=replace(other.placement, **changes))
    return Case("ttnn.add", (("input_tensor_a", PLAIN), ("input_tensor_b", other)))


def relu(value):
    return unary("ttnn.relu", value)


NOT_RUN = {
    "unknown object": (
        relu(Opaque("x.Y", "1")),
        "the recording lost $.arguments.input_tensor: x.Y: no converter knows",
    ),
    "unknown class": (relu(Struct("ttnn.Nothing", ())), "no converter is called 'ttnn.Nothing'"),
    "unknown recipe": (
        relu(Handle("ttnn.SubDevice", None)),
        "ttnn.SubDevice: how it was made was not observed",
    ),
    "function": (
        Case("ttnn.relu", (("input_tensor", PLAIN), ("memory_config", Callable("os:system")))),
        "$.arguments.memory_config: os:system: a function is recorded by name",
    ),
    "unknown op": (
        unary("ttnn.no_such_op", Null()),
        "the installed ttnn has no operation called ttnn.no_such_op",
    ),
    **{
        op: (unary(op, value), f"{op!r} names no operation of ttnn")
        for op, value in (
            ("ttnn.os.getcwd", Null()),
            ("ttnn.importlib.import_module", Text("os")),
            ("ttnn.operations.pool.os.getcwd", Null()),
            ("ttnn.Tensor.__class__", Null()),
            ("ttnn.ttnn.dump_tensor", Text("file")),
            ("ttnn.decorators.ttnn.load_tensor", Text("file")),
        )
    },
    "no file": (
        unary("ttnn.dump_tensor", Text("file")),
        "the recording names no file, and ttnn.dump_tensor reads or writes one",
    ),
    "unknown content of a file": (
        loaded_from(Text("a.tensorbin")),
        "the recording lacks what was in the file",
    ),
    "a file without a tensor": (
        loaded_from(Text("a.tensorbin")),
        "the recording lacks what was in the file",
        (Int(1),),
    ),
    "unknown name of a file": (
        loaded_from(Int(3)),
        "the recording does not tell which file $.arguments.file_name names",
        (tensor(0, (32, 32)),),
    ),
    "larger mesh": (
        relu(replace(PLAIN, placement=replace(PLAIN.placement, mesh_shape=(4, 8)))),
        "a 4x8 mesh with FABRIC_1D could not be opened: there is 1 chip here",
    ),
    "two devices": (added_to(device=1), "it was called on 2 devices"),
}


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_cannot_be_rebuilt_is_not_run_and_says_why(ttnn_executor, name):
    case, words, *outputs = NOT_RUN[name]
    attempt = ttnn_executor(case, outputs=outputs[0] if outputs else None)
    assert attempt.outcome is Outcome.NOT_RUN
    assert words in attempt.detail


ONE_CHIP = DeviceParameters(mesh_shape=(1, 1))


def test_ttnn_judges_the_name_of_a_file(ttnn_executor):
    attempt = ttnn_executor(
        loaded_from(Text("weights.bin")), device=ONE_CHIP, outputs=(tensor(0, (32, 32)),)
    )
    assert attempt.outcome is Outcome.RAISED
    assert ".tensorbin" in attempt.detail
    assert attempt.replayed_case_id == attempt.case_id


def test_the_file_that_a_recording_names_is_left_alone(ttnn_executor, tmp_path):
    mine = tmp_path / "mine.tensorbin"
    mine.write_text("mine")
    named = ("file_name", Struct("python.PosixPath", (("path", Text(str(mine))),)))
    dumped = ttnn_executor(Case("ttnn.dump_tensor", (named, ("tensor", tensor(0, (32, 32))))))
    loaded = ttnn_executor(Case("ttnn.load_tensor", (named,)), outputs=(tensor(0, (32, 32)),))
    assert dumped.outcome is Outcome.PASSED
    assert loaded.replayed_case_id == loaded.case_id
    assert mine.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [mine]


@pytest.fixture(scope="module")
def ttnn_executor():
    """What executes cases one after another in a worker that stays, on a mock N150."""
    from optrove.replay.messages import JobWriter, WorkerSetup
    from optrove.replay.workers import WorkerProcess

    process = WorkerProcess(WorkerSetup("run", DeviceKind.MOCK, "n150"))

    def attempt(case, **options):
        process.send(JobWriter().message(mock(case, **options)))
        return process.receive()

    yield attempt
    process.end()


def by_place(op, *values):
    return Case(op, tuple((f"arg{place}", value) for place, value in enumerate(values)))


def test_arguments_by_place_are_passed_by_place(ttnn_executor):
    attempt = ttnn_executor(
        Case(
            "ttnn.linear",
            (
                ("arg0", tensor(0, (1, 1, 32, 64))),
                ("arg1", tensor(1, (1, 1, 64, 32))),
                ("bias", tensor(2, (1, 1, 1, 32))),
            ),
        )
    )
    assert attempt.outcome is Outcome.PASSED
    assert attempt.replayed_case_id != attempt.case_id
    assert attempt.notes == (), "getting names is no difference"


BY_PLACE = {
    "places of C are matched with keyword-only parameters": (
        by_place(
            "ttnn.multiply",
            PLAIN,
            tensor(1, (1, 1, 32, 64)),
            Symbol("ttnn.DataType", "BFLOAT16"),
            memory(),
            Null(),
            Opaque("ttsl::SmallVector<BasicUnaryWithParam<float>>", "[ unsupported type , x]"),
        ),
        "activations was not recorded; left at its default",
    ),
    "printed numbers are booleans where a parameter is one": (
        by_place("ttnn.untilize", PLAIN, memory(), Int(1)),
        None,
    ),
    "a required argument that was not written is supplied": (
        by_place(
            "ttnn.reshape",
            PLAIN,
            Opaque("ttsl::SmallVector<int, 8ul> const", "[ unsupported type , x]"),
        ),
        "shape was not recorded; used instead: the shape of the input",
    ),
}


@pytest.mark.parametrize("name", BY_PLACE)
def test_arguments_by_place_are_fitted_to_the_parameters(ttnn_executor, name):
    case, note = BY_PLACE[name]
    attempt = ttnn_executor(case)
    assert attempt.outcome is Outcome.PASSED, attempt.detail
    assert note is None or note in attempt.notes


def test_a_tensor_that_was_passed_twice_is_one_again(ttnn_executor):
    one = tensor(0, (1, 1, 32, 64))
    attempt = ttnn_executor(Case("ttnn.add", (("input_tensor_a", one), ("input_tensor_b", one))))
    (first, second) = (
        attempt,
        ttnn_executor(Case("ttnn.concat", (("tensors", List((one, one))), ("dim", Int(3))))),
    )
    for each in (first, second):
        assert each.outcome is Outcome.PASSED, each.detail
        assert "identity" not in "\n".join(each.notes)


def test_views_share_their_memory_again_or_it_is_said(ttnn_executor):
    one = tensor(0, (1, 1, 64, 64))
    for shape, restored in (((64, 64), True), ((1, 1, 32, 64), False)):
        view = replace(tensor(1, shape), storage=0)
        attempt = ttnn_executor(
            Case("ttnn.concat", (("tensors", List((one, view))), ("dim", Int(0))))
        )
        said = "shared memory with another argument; here it has its own" in str(attempt.notes)
        assert said is not restored, attempt.notes


def test_a_device_is_opened_as_recorded(ttnn_executor):
    device = DeviceParameters(mesh_shape=(1, 1), l1_small_size=4096, trace_region_size=65536)
    attempt = ttnn_executor(unary("ttnn.relu", tensor(0, (1, 1, 32, 64))), device=device)
    assert attempt.outcome is Outcome.PASSED, attempt.detail


def test_semaphores_of_which_only_the_address_was_kept_are_supplied_and_said():
    def spread(number):
        spec = tensor(number, (1, 1, 32, 64))
        mesh = MeshPlacement((1, 2), (None, 3), ((0, 0), (0, 1)))
        assert isinstance(spec.placement, TtnnPlacement)
        return replace(spec, placement=replace(spec.placement, mesh_shape=(1, 2), mesh=mesh))

    case = Case(
        "ttnn.experimental.all_gather_async",
        (
            ("arg0", spread(0)),
            ("dim", Int(3)),
            (
                "multi_device_global_semaphore",
                List(
                    (
                        Handle("ttnn.GlobalSemaphore", None, 0),
                        Handle("ttnn.GlobalSemaphore", None, 1),
                    )
                ),
            ),
            ("num_links", Int(1)),
            ("topology", Symbol("ttnn.Topology", "Linear")),
        ),
    )
    attempt = attempt_at(case, "n300")
    assert attempt.outcome is Outcome.PASSED, attempt.detail
    answer = "\n".join(attempt.notes)
    assert answer.count("the semaphore in multi_device_global_semaphore was made") == 2
    assert "no fabric was recorded; the mesh was opened with FABRIC_1D" in answer


@pytest.mark.slow
def test_small_l1_is_supplied_where_it_is_missed():
    def size(*numbers):
        return List(tuple(map(Int, numbers)))

    case = Case(
        "ttnn.max_pool2d",
        (
            ("input_tensor", tensor(0, (1, 1, 1024, 32), layout="ROW_MAJOR")),
            ("batch_size", Int(1)),
            ("input_h", Int(32)),
            ("input_w", Int(32)),
            ("channels", Int(32)),
            ("kernel_size", size(3, 3)),
            ("stride", size(1, 1)),
            ("padding", size(1, 1)),
            ("dilation", size(1, 1)),
        ),
    )
    first, second = run_jobs([mock(case), mock(case, seed=1)], board="n150")
    for attempt in (first, second):
        assert attempt.outcome is Outcome.PASSED, attempt.detail
        assert "the device was opened with 24576" in str(attempt.notes)
    (answer,) = run_jobs([mock(case, device=DeviceParameters(l1_small_size=32768))], board="n150")
    assert answer.outcome is Outcome.PASSED
    assert answer.detail is None
    assert answer.notes == ()


@pytest.mark.slow
def test_a_crash_of_ttnn_itself_costs_one_case_and_slow_dispatch_helps():
    def spread(number):
        spec = tensor(number, (1, 1, 32, 64))
        return replace(spec, placement=replace(spec.placement, mesh_shape=(1, 8)))

    def chip(column):
        return Struct("ttnn.MeshCoordinate", (("coords", List((Int(0), Int(column)))),))

    # ttnn 0.81 ends with a segmentation fault in this one on mock boards with fast dispatch.
    crashing = Case(
        "ttnn.point_to_point",
        (
            ("input_tensor", spread(0)),
            ("sender_coord", chip(0)),
            ("receiver_coord", chip(1)),
            ("topology", Symbol("ttnn.Topology", "Linear")),
        ),
    )
    answer = []
    jobs = [mock(crashing), mock(unary("ttnn.relu", spread(0)))]
    attempts = attempts_at(jobs, "galaxy", log=answer.append)
    assert {each.outcome for each in attempts.values()} == {Outcome.PASSED}
    if answer:  # a later ttnn may be cured
        assert answer[0].startswith("ttnn.point_to_point: the process ended with signal 11")
        noted = str(attempts[placement_hash(crashing)].notes)
        assert "this is with TT_METAL_SLOW_DISPATCH_MODE=1" in noted
