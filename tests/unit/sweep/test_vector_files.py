import ast
import json
import re
from pathlib import Path

import pytest

from optrove.errors import BadData, BadTarget, NotFound, UnusableResults
from optrove.frameworks.installed import joined_tables
from optrove.model.records import DeviceKind, DeviceParameters, Job, Sweep, SweepModule
from optrove.model.values import Int, Set
from optrove.replay.device_choice import TargetDevice
from optrove.replay.planning import PlannedJob
from optrove.serializer.describe import describe
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import encode
from optrove.sweep.sweeping import portions
from optrove.sweep.vector_files import (
    HEADER,
    MANIFEST,
    export_vectors,
    read_vectors,
    vector_document,
    vectors_from_file,
    write_vectors,
)
from optrove.sweep.vectors import (
    SweepPlan,
    VectorGroup,
    file_digest,
    file_stem,
    fitting_board,
    grouped_by_hardware,
    module_device,
    module_file,
    module_vectors,
    planned_vector,
    shuffled,
)
from trove_rows import case, tensor


def planned(one, suite=None, board=None, **job):
    return PlannedJob(
        Job(one, DeviceKind.HOST, **job), placement_hash(one), suite=suite, board=board
    )


def recorded(size, board="n300", mesh=(1, 1), op="ttnn.relu"):
    return planned(case(op, input_tensor=tensor(size, 32, mesh=mesh)), board=board)


OWN_MODULE = """
from enum import Enum

class Flavor(Enum):
    SWEET = 1

parameters = {"nightly": {"size": [1, 2]}}
TIMEOUT = 9

def run(size, device, **more):
    return True, ""
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("optrove.sweep.vectors.is_importable", lambda _: False)
    file = tmp_path / "mine.py"
    file.write_text(OWN_MODULE)
    return SweepModule("mine", str(file), file_digest(file))


def own(module, *sizes, suite="nightly", **more):
    found = [
        planned(
            case(f"sweep.mine.{suite}", size=size, **more),
            suite,
            module=module.path,
            timeout_ns=9_000_000_000,
        )
        for size in sizes
    ]
    return SweepPlan(tuple(found), modules=(module,))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_recorded_cases_are_exported_by_hardware_and_mesh_and_read_back(tmp_path):
    vectors = SweepPlan(
        (
            recorded(32),
            recorded(64, "galaxy", (4, 8)),
            recorded(96, "galaxy", (4, 8)),
            recorded(32, op="ttnn.exp"),
        )
    )
    written = export_vectors(vectors, tmp_path / "out")
    assert [(each.file.name, len(each.vectors)) for each in written] == [
        ("ttnn.relu.hw_galaxy.mesh_4x8.json", 2),
        ("ttnn.relu.hw_n300.json", 1),
        ("ttnn.exp.hw_n300.json", 1),
    ]
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["vector_files"] == sorted(each.file.name for each in written)
    assert manifest["files"]["ttnn.relu.hw_galaxy.mesh_4x8.json"]["mesh"] == "4x8"
    every = vectors_from_file(tmp_path / "out", Sweep())
    assert set(every.vectors) == set(vectors.vectors)
    only = vectors_from_file(tmp_path / "out", Sweep(seed=3), "ttnn.exp")
    assert [each.job.seed for each in only.vectors] == [3]


def test_a_file_does_not_choose_which_module_is_run(tmp_path, module):
    vectors = own(
        module, 1, 2, odd=Set(frozenset({Int(3)})), shape=(1, 32), words=["relu", None], scale=1.5
    )
    write_vectors(vectors, tmp_path / "v.json")
    own_file = tmp_path / "mine.py"
    named = rf"does not choose what is run: .* optrove sweep {re.escape(str(own_file))} --file-path"
    with pytest.raises(BadTarget, match=named):
        vectors_from_file(tmp_path / "v.json", Sweep())
    found = vectors_from_file(tmp_path / "v.json", Sweep(), "mine", own_file)
    assert found.vectors == vectors.vectors
    assert [(each.name, each.digest) for each in found.modules] == [("mine", module.digest)]
    sweep = Sweep(timeout_ns=2_000_000_000)
    (tmp_path / "sweeps").mkdir()
    own_file.rename(tmp_path / "sweeps" / "mine.py")
    elsewhere = tmp_path / "sweeps" / "mine.py"
    job = vectors_from_file(tmp_path / "v.json", sweep, "mine", elsewhere).vectors[0].job
    assert (job.module, job.timeout_ns) == (str(elsewhere), 2_000_000_000)


def deserialized(data):
    """Return a value as tt-metal's runner reads it: literals in texts, as far as plain Python."""
    if isinstance(data, str):
        try:
            return ast.literal_eval(data)
        except (ValueError, SyntaxError):
            return data
    return data


def test_the_runner_of_tt_metal_reads_the_vectors_of_a_module(tmp_path, module):
    write_vectors(own(module, 7, shape=(1, 32), words=["relu", None]), tmp_path / "v.json")
    ((suite, vectors),) = json.loads((tmp_path / "v.json").read_text()).items()
    ((case_id, vector),) = vectors.items()
    assert vector["validity"].rpartition(".")[2] == "VALID"
    assert (suite, vector["suite_name"], vector["input_hash"]) == ("nightly", "nightly", case_id)
    # Its runner keeps these from ``run``.
    for name in ("sweep_name", "suite_name", "input_hash", "validity", "status", "invalid_reason"):
        del vector[name]
    del vector["tag"]
    passed = {name: deserialized(item) for name, item in vector.items()}
    assert passed == {"size": 7, "shape": (1, 32), "words": ["relu", None]}


THEIRS = {
    "nightly": {
        "0a": {
            "size": 1,
            "shape": "(1, 1, 32, 32)",
            "flavor": "Flavor.SWEET",
            "absent": "__ABSENT__",
            "traced_machine_info": {"device_series": "n300", "mesh_device_shape": "[1, 2]"},
            "traced_source": ["demo.py"],
            "config_hash": "0a",
            "timestamp": "2026-08-01_00-00-00",
            "tag": "me",
            "input_hash": "0a",
            "suite_name": "nightly",
            "sweep_name": "mine",
            "validity": "VectorValidity.VALID",
            "invalid_reason": "",
            "status": "VectorStatus.CURRENT",
        },
        "0b": {
            "size": 2,
            "sweep_name": "mine",
            "validity": "VectorValidity.INVALID",
            "invalid_reason": "too large",
        },
    }
}


def test_files_of_tt_metal_are_read(tmp_path, module, monkeypatch):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "mine.py").rename(tmp_path / "sweeps" / "mine.py")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "vectors_export" / "mine.mesh_1x2.json"
    file.parent.mkdir()
    file.write_text(json.dumps(THEIRS))
    (file.parent / MANIFEST).write_text(json.dumps({"vector_files": [file.name]}))
    (found, again) = (vectors_from_file(path, Sweep()) for path in (file, file.parent))
    assert found == again
    (vector,) = found.vectors
    assert found.left_out == (("invalid: too large", 1),)
    assert (vector.suite, vector.board, vector.job.device.mesh_shape) == ("nightly", "n300", (1, 2))
    arguments = dict(vector.job.case.arguments)
    assert "tag" not in arguments
    assert encode(arguments["shape"]) == {"$tuple": [1, 1, 32, 32]}
    assert encode(arguments["flavor"])["name"] == "SWEET"
    assert [each.suffix for each in found.groups] == [".hw_n300.mesh_1x2"]


def test_a_module_of_a_directory_that_fails_is_left_out_unless_it_is_asked_for(
    tmp_path, module, monkeypatch
):
    directory = tmp_path / "vectors_export"
    export_vectors(own(module, 1), directory)
    (tmp_path / "sweeps").mkdir()
    Path(module.path).rename(tmp_path / "sweeps" / "mine.py")
    monkeypatch.chdir(tmp_path)
    lost = {"nightly": {"0c": {"size": 3, "sweep_name": "lost"}}}
    (directory / "lost.json").write_text(json.dumps(lost))
    found = vectors_from_file(directory, Sweep())
    ((reason, count),) = found.left_out
    assert (len(found.vectors), count) == (1, 1)
    assert reason.startswith("of lost: the vectors in")
    for path, name in ((directory, "lost"), (directory / "lost.json", None)):
        with pytest.raises(BadTarget, match="belong to module lost, which is not below"):
            vectors_from_file(path, Sweep(), name)
    (directory / "mine.json").unlink()
    with pytest.raises(BadTarget, match="belong to module lost"):
        vectors_from_file(directory, Sweep())


def test_a_vector_of_an_op_has_no_module_to_run(tmp_path, module):
    document = vector_document(SweepPlan((recorded(32),)))
    (vector,) = document["model_traced"].values()
    vector["job"]["module"] = module.path
    with pytest.raises(BadData, match="does not choose what is run"):
        read_vectors(document)


def test_exporting_again_keeps_other_suites_and_removes_what_is_gone(tmp_path, module):
    export_vectors(own(module, 1, 2), tmp_path / "out")
    export_vectors(own(module, 3, suite="weekly"), tmp_path / "out")
    where = ("mine", Path(module.path))
    assert len(vectors_from_file(tmp_path / "out", Sweep(), *where).vectors) == 3
    weekly = vectors_from_file(tmp_path / "out", Sweep(suite="weekly"), *where)
    assert [each.suite for each in weekly.vectors] == ["weekly"]
    export_vectors(SweepPlan((recorded(32), recorded(64, "galaxy"))), tmp_path / "out")
    export_vectors(SweepPlan((recorded(32),)), tmp_path / "out")
    assert names(tmp_path / "out") == [MANIFEST, "mine.json", "ttnn.relu.hw_n300.json"]


def test_files_of_others_are_neither_read_nor_replaced(tmp_path, module):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.json").write_text('{"nightly": [1]}')
    with pytest.raises(UnusableResults, match="holds no vectors"):
        export_vectors(own(module, 1), tmp_path / "out")
    with pytest.raises(BadData, match=r"mine\.json: not a vector file"):
        vectors_from_file(tmp_path / "out", Sweep())
    (tmp_path / "out" / MANIFEST).write_text("[]")
    with pytest.raises(UnusableResults, match="was not made by optrove vectors"):
        export_vectors(own(module, 1), tmp_path / "out")


def test_nothing_to_read_is_an_error_that_says_what_there_is(tmp_path, module):
    with pytest.raises(BadTarget, match="cannot be read: No such file"):
        vectors_from_file(tmp_path / "no.json", Sweep())
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadTarget, match="has no vector files"):
        vectors_from_file(tmp_path / "empty", Sweep())
    write_vectors(own(module, 1), tmp_path / "v.json")
    with pytest.raises(BadTarget, match="no vector of suite 'x'; there is: mine with nightly"):
        vectors_from_file(tmp_path / "v.json", Sweep(suite="x"))


def test_a_seed_gives_one_other_order(module):
    vectors = own(module, *range(20))
    first = shuffled(vectors, 1)
    assert first == shuffled(vectors, 1) != shuffled(vectors, 2) != vectors
    assert set(first.vectors) == set(vectors.vectors)
    assert shuffled(vectors, None) is vectors


class TestModuleFile:
    def test_a_file_or_a_dotted_name_below_sweeps_is_meant(self, tmp_path, monkeypatch):
        file = tmp_path / "tests" / "sweep_framework" / "sweeps" / "eltwise" / "add.py"
        file.parent.mkdir(parents=True)
        file.touch()
        monkeypatch.chdir(file.parent)
        assert module_file("add.py") == file
        assert module_file("eltwise.add") == file
        assert module_file("ttnn.add") is None
        assert module_file("add") is None

    def test_a_file_that_is_not_there_is_an_error(self, tmp_path):
        with pytest.raises(BadTarget, match=r"there is no file 'no\.py'"):
            module_file("no.py")


def test_a_module_runs_with_numbers_where_torch_is_there(monkeypatch, tmp_path):
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("optrove.replay.device_choice.DEVICE_DIRECTORY", tmp_path)
    here = {"ttnn", "torch"}
    monkeypatch.setattr("optrove.sweep.vectors.is_importable", lambda name: name in here)
    assert module_device(None, None).device_kind is DeviceKind.SHADOW
    assert module_device(None, "T3K").board == "t3k"
    assert module_device(DeviceKind.MOCK, None).device_kind is DeviceKind.MOCK
    here.remove("torch")
    assert module_device(None, "n300").device_kind is DeviceKind.MOCK
    here.clear()
    assert module_device(None, None).device_kind is DeviceKind.HOST
    here.add("ttnn")
    (tmp_path / "0").touch()
    assert module_device(None, None).device_kind is DeviceKind.HARDWARE


def test_vectors_traced_on_a_mesh_run_on_a_board_that_has_it(module):
    name = "ttnn.relu(32x32 bfloat16 TILE DRAM_INTERLEAVED on 4x8)"
    traced = planned(case("sweep.mine.nightly", traced_config_name=name), "nightly")
    where = TargetDevice(DeviceKind.SHADOW, "n150")
    assert fitting_board(where, traced).board == "galaxy"
    assert fitting_board(where, own(module, 1).vectors[0]) == where


@pytest.mark.parametrize(
    ("machine", "board"),
    [
        ({"device_series": "n300", "card_count": 1, "mesh_device_shape": [1, 2]}, "n300"),
        ([{"device_series": ["n300"], "card_count": 4, "mesh_device_shape": [2, 4]}], "t3k"),
        ({"device_series": "tt-galaxy-wh", "device_count": 32}, "galaxy"),
        ({"device_series": "n150", "mesh_device_shape": [1, 8]}, "t3k"),
        ({"device_series": "unheard-of", "mesh_device_shape": [4, 8]}, "galaxy"),
        ({}, "n150"),
        ("__ABSENT__", "n150"),
    ],
)
def test_a_traced_vector_runs_on_the_board_that_fits_its_machine(machine, board):
    described = describe(machine, joined_tables(()))
    one = case("sweep.mine.model_traced", traced_machine_info=described)
    vector = planned_vector(placement_hash(one), "model_traced", Job(one, DeviceKind.MOCK))
    assert fitting_board(TargetDevice(DeviceKind.MOCK, "n150"), vector).board == board


def test_a_module_that_kills_its_process_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("OPTROVE_BOARD", raising=False)
    monkeypatch.setattr("optrove.sweep.vectors.is_importable", lambda _: False)
    file = tmp_path / "deadly.py"
    file.write_text("import os\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(BadTarget, match=r"deadly\.py ended with signal 9 \(SIGKILL\)"):
        module_vectors(file, Sweep())
    file.write_text("parameters = {'s': {'a': [1, 2]}}\nrun = lambda a, device: (True, '')\n")
    found = module_vectors(file, Sweep(seed=4, timeout_ns=3))
    assert [(each.suite, each.job.seed) for each in found.vectors] == [("s", 4), ("s", 4)]
    assert [each.name for each in found.modules] == ["deadly"]
    assert {where.device_kind for where in found.where.values()} == {DeviceKind.HOST}
    file.write_text("parameters = {'s': {}}\nrun = lambda device: (True, '')\n")
    with pytest.raises(NotFound, match=r"there are no vectors in .* suite s has no vectors"):
        module_vectors(file, Sweep())


ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)
RECORDED = PlannedJob(
    Job(ADD, DeviceKind.HOST, device=DeviceParameters((1, 1)), outputs=(tensor(32, 32),)),
    placement_hash(ADD),
    calls=7,
    board="n150",
    raised="RuntimeError: no",
    notes=("a note",),
)


@pytest.mark.parametrize("content", [SweepPlan((RECORDED,), (("odd", 4),)), SweepPlan()])
def test_what_is_written_is_read_back(content):
    text = json.dumps(vector_document(content))
    assert read_vectors(json.loads(text)) == content


def changed(change):
    document = json.loads(json.dumps(vector_document(SweepPlan((RECORDED,)))))
    change(document)
    return document


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "not a vector file"),
        ({"nightly": {}}, "not a vector file"),
        (changed(lambda d: d[HEADER].update(version=9)), r"\$.\$optrove.version: version 9"),
        (changed(lambda d: d[HEADER].update(left_out=[[1, 2]])), "left_out: expected a list"),
        (changed(lambda d: d.update(more=[])), r"\$.more: expected an object of vectors"),
        (changed(lambda d: d["model_traced"].update(x=3)), r"model_traced.x: expected an object"),
        (changed(lambda d: d["model_traced"].update(x={"job": {}})), r"model_traced.x.job"),
        (
            changed(lambda d: d["model_traced"].update(x=d["model_traced"][RECORDED.case_id])),
            "its arguments do not have this id",
        ),
        (
            changed(lambda d: d["model_traced"][RECORDED.case_id].update(calls="7", notes=3)),
            "calls: expected int(.|\n)*notes: expected a list of texts",
        ),
    ],
)
def test_faults_are_named_with_their_paths(document, problem):
    with pytest.raises(BadData, match=problem):
        read_vectors(document)


def test_groups_are_named_as_files_are_and_the_largest_comes_first():
    vectors = [recorded(1, "galaxy", (4, 8)), recorded(2), recorded(3, "galaxy", (4, 8))]
    groups = grouped_by_hardware([*vectors, recorded(4, None)])
    assert [len(each.vectors) for each in groups] == [2, 1, 1]
    assert [each.suffix for each in groups] == [".hw_galaxy.mesh_4x8", "", ".hw_n300"]


def test_names_from_data_stay_within_the_directory():
    assert "/" not in file_stem("../../etc/passwd")
    assert "/" not in VectorGroup("../up", None, ()).suffix


def test_portions_grow_and_are_all_of_it():
    items = list(range(100))
    found = list(portions(items, first=5))
    assert [len(each) for each in found] == [5, 20, 75]
    assert [item for each in found for item in each] == items
    assert list(portions([])) == []
