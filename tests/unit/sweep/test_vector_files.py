import json

import pytest

from optrove.errors import BadData, BadTarget, NotFound, UnusableResults
from optrove.model.records import DeviceKind, Job, SweepModule
from optrove.replay.device_choice import Where
from optrove.replay.planning import How, Planned
from optrove.serializer.hashes import placement_hash
from optrove.sweep.vector_files import (
    MANIFEST,
    FileRequest,
    export_vectors,
    vectors_from_file,
    write_vectors,
)
from optrove.sweep.vectors import (
    ModuleRequest,
    VectorSet,
    _large_enough,
    module_file,
    place_for_module,
    shuffled,
    vectors_of,
)
from trove_rows import case, tensor


def planned(one, suite=None, board=None, **job):
    return Planned(Job(one, DeviceKind.HOST, **job), placement_hash(one), suite=suite, board=board)


def recorded(size, board="n300", mesh=(1, 1), op="ttnn.relu"):
    return planned(case(op, input_tensor=tensor(size, 32, mesh=mesh)), board=board)


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "mine.py"
    file.touch()
    return SweepModule("mine", str(file), "00")


def own(module, *sizes, suite="nightly"):
    found = [
        planned(case(f"sweep.mine.{suite}", size=size), suite, module=module.path, timeout_ns=9)
        for size in sizes
    ]
    return VectorSet(tuple(found), (("invalid: odd", 2),), module)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_recorded_cases_are_exported_by_hardware_and_mesh_and_read_back(tmp_path):
    vectors = VectorSet(
        (
            recorded(32),
            recorded(64, "galaxy", (4, 8)),
            recorded(96, "galaxy", (4, 8)),
            recorded(32, op="ttnn.exp"),
        )
    )
    written = export_vectors(vectors, tmp_path / "out")
    assert [(each.file.name, each.vectors) for each in written] == [
        ("ttnn.relu.hw_galaxy.mesh_4x8.json", 2),
        ("ttnn.relu.hw_n300.json", 1),
        ("ttnn.exp.hw_n300.json", 1),
    ]
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["vector_files"] == sorted(each.file.name for each in written)
    assert manifest["files"]["ttnn.relu.hw_galaxy.mesh_4x8.json"]["mesh"] == "4x8"
    every = vectors_from_file(FileRequest(tmp_path / "out", How()))
    assert set(every.planned) == set(vectors.planned)
    only = vectors_from_file(FileRequest(tmp_path / "out", How(seed=3), name="ttnn.exp"))
    assert [each.job.seed for each in only.planned] == [3]


def test_the_vectors_of_a_module_know_their_file_and_what_was_left_out(tmp_path, module):
    vectors = own(module, 1, 2)
    write_vectors(vectors, tmp_path / "v.json")
    found = vectors_from_file(FileRequest(tmp_path / "v.json", How()))
    assert found == vectors
    elsewhere = FileRequest(tmp_path / "v.json", How(timeout=2), module=tmp_path / "moved.py")
    job = vectors_from_file(elsewhere).planned[0].job
    assert (job.module, job.timeout_ns) == (str(tmp_path / "moved.py"), 2_000_000_000)
    (tmp_path / "mine.py").unlink()
    with pytest.raises(BadTarget, match=r"belong to module mine, which was in .* name its file"):
        vectors_from_file(FileRequest(tmp_path / "v.json", How()))


def test_exporting_again_keeps_other_suites_and_removes_what_is_gone(tmp_path, module):
    export_vectors(own(module, 1, 2), tmp_path / "out")
    export_vectors(own(module, 3, suite="weekly"), tmp_path / "out")
    assert len(vectors_from_file(FileRequest(tmp_path / "out", How())).planned) == 3
    again = FileRequest(tmp_path / "out", How(), suite="weekly")
    assert [each.suite for each in vectors_from_file(again).planned] == ["weekly"]
    export_vectors(VectorSet((recorded(32), recorded(64, "galaxy"))), tmp_path / "out")
    export_vectors(VectorSet((recorded(32),)), tmp_path / "out")
    assert names(tmp_path / "out") == [MANIFEST, "mine.json", "ttnn.relu.hw_n300.json"]


def test_files_of_others_are_neither_read_nor_replaced(tmp_path, module):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.json").write_text('{"nightly": {}}')
    with pytest.raises(UnusableResults, match="holds no vectors"):
        export_vectors(own(module, 1), tmp_path / "out")
    with pytest.raises(BadData, match=r"mine\.json: \$: no file of vectors"):
        vectors_from_file(FileRequest(tmp_path / "out", How()))
    (tmp_path / "out" / MANIFEST).write_text("[]")
    with pytest.raises(UnusableResults, match="was not made by optrove vectors"):
        export_vectors(own(module, 1), tmp_path / "out")


def test_nothing_to_read_is_an_error_that_says_what_there_is(tmp_path, module):
    with pytest.raises(BadTarget, match="cannot be read: No such file"):
        vectors_from_file(FileRequest(tmp_path / "no.json", How()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadTarget, match="has no files of vectors"):
        vectors_from_file(FileRequest(tmp_path / "empty", How()))
    write_vectors(own(module, 1), tmp_path / "v.json")
    with pytest.raises(BadTarget, match="no vector of suite 'x'; there is: mine with nightly"):
        vectors_from_file(FileRequest(tmp_path / "v.json", How(), suite="x"))


def test_a_seed_gives_one_other_order(module):
    vectors = own(module, *range(20))
    first = shuffled(vectors, 1)
    assert first == shuffled(vectors, 1) != shuffled(vectors, 2) != vectors
    assert set(first.planned) == set(vectors.planned)
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
    assert place_for_module(None, None).device_kind is DeviceKind.SHADOW
    assert place_for_module(None, "T3K").board == "t3k"
    assert place_for_module("mock", None).device_kind is DeviceKind.MOCK
    here.remove("torch")
    assert place_for_module(None, "n300").device_kind is DeviceKind.MOCK
    here.clear()
    assert place_for_module(None, None).device_kind is DeviceKind.HOST
    here.add("ttnn")
    (tmp_path / "0").touch()
    assert place_for_module(None, None).device_kind is DeviceKind.HARDWARE


def test_vectors_traced_on_a_mesh_run_on_a_board_that_has_it(module):
    name = "ttnn.relu(32x32 bfloat16 TILE DRAM_INTERLEAVED on 4x8)"
    traced = planned(case("sweep.mine.nightly", traced_config_name=name), "nightly")
    where = Where(DeviceKind.SHADOW, "n150")
    assert _large_enough(where, VectorSet((traced,))).board == "galaxy"
    assert _large_enough(where, own(module, 1)) == where


def test_a_module_that_kills_its_process_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("OPTROVE_BOARD", raising=False)
    monkeypatch.setattr("optrove.sweep.vectors.is_importable", lambda _: False)
    file = tmp_path / "deadly.py"
    file.write_text("import os\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(BadTarget, match=r"deadly\.py ended with signal 9 \(SIGKILL\)"):
        vectors_of(ModuleRequest(file))
    file.write_text("parameters = {'s': {'a': [1, 2]}}\nrun = lambda a, device: (True, '')\n")
    found = vectors_of(ModuleRequest(file, how=How(seed=4, timeout=3)))
    assert [(each.suite, each.job.seed) for each in found.planned] == [("s", 4), ("s", 4)]
    assert (found.module.name, found.where.device_kind) == ("deadly", DeviceKind.HOST)
    file.write_text("parameters = {'s': {}}\nrun = lambda device: (True, '')\n")
    with pytest.raises(NotFound, match=r"not a single vector in .* suite s has no vectors"):
        vectors_of(ModuleRequest(file))
