import pytest

import commands
from executed_runs import ADDS, id_of, make_executed
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Query
from optrove.model.values import Int, Opaque
from optrove.replay.planning import case_to_shrink
from optrove.serializer.described import describe_case
from optrove.trove.opening import reading
from optrove.trove.query import CaseFilters
from small_trove import (
    LLAMA_IMPORT,
    LLAMA_RUN,
    RESNET_IMPORT,
    SHARDED,
    imported,
    make_trove,
    matmul,
    run_of,
)

ODD = Case("ttnn.odd", (("how", Opaque("mine.Odd", "x")),))
LOADED = [
    Case("ttnn.loaded", (("how", ODD.arguments[0][1]), ("number", Int(number))))
    for number in range(3)
]
MIXED = imported(
    run_of("ab12" + "0" * 28, "mixed.py"),
    [(ODD, 1), (matmul(how=ODD.arguments[0][1]), 2), *((each, 1) for each in LOADED)],
)


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    path = tmp_path_factory.mktemp("trove") / "trove.db"
    return make_trove(path, LLAMA_IMPORT, RESNET_IMPORT, MIXED)


@pytest.fixture
def ask(trove, tmp_path):
    def asked(*words, exit_code=0):
        output = [] if "-o" in words else ["-o", str(tmp_path / "tests")]
        return commands.ask(*words, *output, "--store", trove, exit_code=exit_code)

    return asked


class TestTestgen:
    def test_writes_a_file_per_op_and_says_so(self, ask, tmp_path):
        lines = ask("testgen", "matmul", "add", "--model", "resnet").splitlines()
        names = sorted(path.name for path in (tmp_path / "tests").iterdir())
        assert names == ["test_add.py", "test_matmul.py"]
        files = " ".join(str(tmp_path / "tests" / name) for name in reversed(names))
        tested = f"pytest --assert=plain {files}"
        assert lines[-3:] == [
            "2 files, 2 cases",
            f"run them with: {tested}",
            f"without a board: {tested} --optrove-board n300 --optrove-shadow",
        ]

    def test_names_the_directory_where_there_are_many_files(self, ask, tmp_path):
        lines = ask("testgen", "*", "--all-ops", "--nested", "--standalone").splitlines()
        run, alone, boardless = lines[-3:]
        assert run == f"run them with: pytest {tmp_path / 'tests'}"
        assert alone.startswith(f"or one alone: python {tmp_path / 'tests' / 'test_'}")
        assert f"{tmp_path / 'tests'} --optrove-board" in boardless

    def test_takes_the_filters_of_show_and_a_limit(self, ask):
        every = ask("testgen", "matmul", "--run", LLAMA_RUN[:6], "--json")
        assert every["cases"] == 3
        assert ask("testgen", "matmul", "--memory", "WIDTH_SHARDED", "--json")["cases"] == 1
        assert ask("testgen", "matmul", "--run", LLAMA_RUN, "--limit", "2", "--json")["cases"] == 2

    def test_writes_each_case_once_however_often_it_is_named(self, ask):
        name = describe_case(SHARDED).case_id[:12]
        assert ask("testgen", name, "matmul", name, "--run", LLAMA_RUN, "--json")["cases"] == 3

    def test_writes_a_standalone_file_for_a_case(self, ask, tmp_path):
        name = describe_case(SHARDED).case_id
        data = ask("testgen", name[:12], "--standalone", "--json")
        (file,) = data["files"]
        assert file == {
            "file": str(tmp_path / "tests" / f"test_matmul_{name[:8]}.py"),
            "op": "ttnn.matmul",
            "cases": 1,
            "values": None,
        }
        lines = ask("testgen", name[:12], "--standalone").splitlines()
        assert lines[-2] == f"run it with: python {file['file']}"

    def test_names_cases_that_cannot_be_written(self, ask):
        data = ask("testgen", "matmul", "--json")
        assert data["cases"] == 3
        (left,) = data["left_out"]
        assert left["op"] == "ttnn.matmul"
        assert left["path"] == "$.arguments.how"
        assert "mine.Odd" in left["reason"]
        assert "left out, since they cannot be written as tests: 1 case" in ask("testgen", "matmul")

    def test_sums_up_cases_that_cannot_be_written_for_the_same_reason(self, ask):
        text = ask("testgen", "matmul", "loaded")
        assert "left out, since they cannot be written as tests: 4 cases" in text
        assert text.count("ttnn.loaded (such as case ") == 1
        assert "  3x ttnn.loaded" in text
        assert "(--json names each)" in text
        assert (
            max(map(len, text.partition("left out")[2].partition("run them")[0].splitlines()))
            <= 100
        )

    def test_knows_the_board_of_the_recording_by_both_names(self, ask):
        for option in ("--recorded-on", "--board"):
            assert ask("testgen", "matmul", option, "n300", "--json")["cases"]
            assert "p150" in ask("testgen", "matmul", option, "p150", exit_code=2)

    def test_nothing_written_is_an_error(self, ask, tmp_path):
        error = ask("testgen", "odd", exit_code=2)
        assert "no test can be written for case " in error
        assert "for any of 3 cases, such as case " in ask("testgen", "loaded", exit_code=2)
        assert not (tmp_path / "tests").exists()

    def test_replaces_its_own_files_and_no_others(self, ask, tmp_path):
        ask("testgen", "add")
        ask("testgen", "add")
        mine = tmp_path / "tests" / "test_matmul.py"
        mine.write_text("def test_mine(): ...\n")
        error = ask("testgen", "add", "matmul", exit_code=2)
        assert "was not made by optrove testgen" in error
        assert mine.read_text() == "def test_mine(): ...\n"

    def test_a_place_that_cannot_be_written_is_an_error(self, ask, tmp_path):
        (tmp_path / "file").write_text("")
        error = ask("testgen", "add", "-o", str(tmp_path / "file" / "deep"), exit_code=2)
        assert "give another" in error

    def test_an_unknown_op_is_an_error_with_the_nearest(self, ask):
        assert "the nearest: ttnn.matmul" in ask("testgen", "matmull", exit_code=2)


@pytest.fixture
def executed(tmp_path):
    path = make_executed(tmp_path / "executed.db")
    with reading(str(path), print) as reader:
        yield lambda *target: case_to_shrink(reader, CaseFilters(name="add"), *target)[0].case_id


class TestShrink:
    def test_takes_the_most_called_case_that_is_known_to_fail(self, executed):
        # In its last run the third one had wrong numbers; the fourth did not run.
        assert executed(DeviceKind.SHADOW, "n150") == id_of(ADDS[2])
        assert executed(DeviceKind.MOCK, "p150") == id_of(ADDS[2])
        assert executed(None, None) == id_of(ADDS[2])

    def test_takes_the_most_called_case_if_none_is_known_to_fail(self, trove):
        with reading(str(trove), print) as reader:
            (planned,) = case_to_shrink(reader, CaseFilters(name="matmul"), None, "n150")
            first = next(reader.cases(Query(op="ttnn.matmul")))
        assert planned.case_id == first.case_id

    def test_options_for_torch_are_refused_for_ttnn_by_their_names(self, trove):
        for words in (["--import", "mine"], ["--compile", "inductor"], ["--map", "cuda=cpu"]):
            for command in ("replay", "shrink"):
                named = (command, "matmul", "--board", "n150", *words, "--store", trove)
                error = commands.ask(*named, exit_code=2)
                assert f"{words[0]}: only for cases of torch" in error

    def test_an_unknown_board_or_case_is_an_error(self, ask):
        assert "n150" in ask("shrink", "matmul", "--board", "n151", exit_code=2)
        error = ask("shrink", "0123456789ab", "--board", "n150", exit_code=2)
        assert "no case begins with" in error

    def test_several_ops_are_an_error_with_advice_that_shrink_can_follow(self, ask):
        error = ask("shrink", "*", "--board", "n150", exit_code=2)
        assert "one case by its id" in error
        assert "--all" not in error
