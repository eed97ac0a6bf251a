import json
from functools import partial

import pytest

import commands
from small_trove import LLAMA_IMPORT, RESNET_IMPORT, make_trove


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    path = tmp_path_factory.mktemp("trove") / "trove.db"
    return make_trove(path, LLAMA_IMPORT, RESNET_IMPORT)


@pytest.fixture
def ask(trove, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(commands.ask, "vectors", "--store", trove)


def test_the_cases_of_an_op_are_its_vectors(ask):
    answer = ask("matmul", "--json")
    assert (answer["name"], answer["planned"], answer["left_out"]) == ("matmul", 3, [])
    assert [(each["hardware"], each["vectors"]) for each in answer["groups"]] == [("n300", 3)]
    assert {each["op"] for each in answer["vectors"]} == {"ttnn.matmul"}
    lines = ask("matmul").splitlines()
    assert lines[-1] == "matmul: 3 vectors"
    assert lines[1].startswith(answer["vectors"][0]["id"][:12])


def test_filters_and_the_order_of_a_seed_apply(ask):
    ids = [each["id"] for each in ask("matmul", "--json")["vectors"]]
    other = [each["id"] for each in ask("matmul", "--randomize", "3", "--json")["vectors"]]
    assert sorted(ids) == sorted(other)
    assert ask("matmul", "--memory", "L1_WIDTH_SHARDED", "--json")["planned"] == 1
    assert ask("matmul", "--recorded-on", "n150", "--json")["planned"] == 1


def test_every_combination_of_an_op_is_made_on_request(ask):
    answer = ask("matmul", "--all-cases", "--json")
    assert answer["planned"] == 2 * 2 * 2


def test_files_are_written_and_named(ask, tmp_path):
    lines = ask("*", "--dump-file").splitlines()
    assert "vectors_export/ttnn.matmul.hw_n300.json" in "\n".join(lines)
    assert (tmp_path / "vectors_export" / "generation_manifest.json").is_file()
    ask("matmul", "-o", "one.json")
    assert len(json.loads((tmp_path / "one.json").read_text())["model_traced"]) == 3


def test_what_cannot_be_done_ends_with_2(ask, tmp_path):
    assert "the nearest: ttnn.matmul" in ask("matmull", exit_code=2)
    assert "there is no file 'no.py'" in ask("no.py", exit_code=2)
    assert "which has no suites" in ask("matmul", "--suite-name", "x", exit_code=2)
    assert "--board is for modules" in ask("matmul", "--board", "n300", exit_code=2)
    (tmp_path / "mine.py").touch()
    assert "--dtype selects recorded cases" in ask("mine.py", "--dtype", "int32", exit_code=2)
    (tmp_path / "file").touch()
    assert "cannot be written" in ask("matmul", "-o", "file/x.json", exit_code=2)
