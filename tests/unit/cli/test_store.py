"""The commands import, export, merge and rm, on real troves and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import masters
from optrove.cli.main import main
from optrove.trove.place import place_of
from small_trove import (
    LLAMA_IMPORT,
    LLAMA_RUN,
    RESNET_IMPORT,
    RESNET_RUN,
    make_trove,
)
from troves import content_of


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """An empty directory without a trove above it that anybody knows of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPTROVE_STORE", raising=False)
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, words)


def done(*words):
    """Run a command that is to succeed, and return what it prints for machines."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*words):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr


def held(name):
    return content_of(place_of(str(name)))


def write_master(name="master.json", **arguments):
    given = arguments or {"arg0": masters.tensor(), "dim": 3}
    Path(name).write_text(json.dumps(masters.master(masters.configuration(given))))
    return name


def test_a_master_file_is_imported_with_an_account_of_what_was_understood():
    (file,) = done("import", write_master())["files"]
    assert (file["format"], file["configurations"], file["understood"]) == ("master v2", 1, 1)
    assert (file["runs"], file["calls"], file["new_cases"]) == (1, 10, 1)
    assert Path(".optrove/trove.db").exists()
    (op,) = done("ops")
    assert (op["op"], op["calls"], op["models"]) == ("ttnn.linear", 10, ["models/demo.py"])


def test_the_account_is_readable():
    told = run("import", write_master(odd={"type": "Odd", "value": "<?>"})).stdout
    assert "1 configurations = 0 understood + 1 with parts kept verbatim + 0 refused" in told
    assert "  verbatim:\n    1x " in told
    assert "$.operations" in told
    assert f"trove: {Path('.optrove/trove.db').absolute()}" in told


def test_importing_twice_changes_nothing():
    write_master()
    done("import", "master.json", "--store", "t.db")
    before = held("t.db")
    assert "nothing new" in run("import", "master.json", "--store", "t.db").stdout
    assert held("t.db") == before


def test_strict_refuses_what_is_not_understood_and_makes_no_trove():
    write_master(odd={"type": "Odd", "value": "<?>"})
    assert "odd" in refused("import", "master.json", "--strict")
    assert not Path(".optrove").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[1, 2]",
        b'{"operations": []}',
        b'{"operations": {"ttnn.add": {"configurations": [{"arguments"',
        b"\xff\xfe\x00",
    ],
)
def test_a_bad_file_is_told_and_nothing_of_the_good_ones_is_added(content):
    make_trove("t.db", LLAMA_IMPORT)
    before = held("t.db")
    Path("bad.json").write_bytes(content)
    assert "bad.json" in refused("import", write_master(), "bad.json", "--store", "t.db")
    assert held("t.db") == before


def test_equal_hashes_of_unequal_configurations_are_refused():
    one = masters.configuration({"dim": 1})
    other = masters.configuration({"dim": 2})
    Path("master.json").write_text(json.dumps(masters.master(one, other)))
    assert "config_hash" in refused("import", "master.json", "--store", "t.db")
    assert not Path("t.db").exists()


def test_a_file_that_is_not_there_is_told():
    assert "'missing.json'" in refused("import", "missing.json")


def test_another_trove_is_imported():
    make_trove("a.db", LLAMA_IMPORT)
    (file,) = done("import", "a.db", "--store", "b.db")["files"]
    assert (file["format"], file["runs"], file["configurations"]) == ("trove", 1, None)
    assert held("b.db") == held("a.db")


@pytest.mark.parametrize("form", ["master", "text"])
def test_what_is_exported_is_imported_the_same(form):
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    told = done("export", "out", "--format", form, "--store", "a.db")
    assert told == {"file": "out", "format": form, "cases": 13, "calls": 225}
    done("import", "out", "--store", "b.db")
    assert run("diff", "a.db", "b.db", "--all-ops").exit_code == 0
    done("export", "again", "--format", form, "--store", "b.db")
    if form == "text":
        assert Path("again").read_bytes() == Path("out").read_bytes()


@pytest.mark.parametrize(
    ("chosen", "cases"),
    [
        (("--op", "matmul"), 3),
        (("--model", "llama"), 12),
        (("--run", RESNET_RUN[:6]), 2),
        (("--board", "n150"), 2),
        (("--op", "matmul", "--board", "n150"), 1),
    ],
)
def test_what_is_exported_can_be_chosen(chosen, cases):
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    assert done("export", "out", *chosen, "--store", "a.db")["cases"] == cases


def test_counts_are_those_of_what_was_chosen():
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    assert done("export", "out", "--run", RESNET_RUN, "--store", "a.db")["calls"] == 53


def test_an_export_that_would_be_empty_is_an_error_and_writes_nothing():
    make_trove("a.db", LLAMA_IMPORT)
    told = refused("export", "out", "--op", "add", "--store", "a.db")
    assert "no op here is called 'add'" in told
    assert not Path("out").exists()


def test_imports_have_no_calls_to_export_one_by_one():
    make_trove("a.db", LLAMA_IMPORT)
    assert "--format master or text" in refused(
        "export", "out", "--format", "jsonl", "--store", "a.db"
    )
    assert not Path("out").exists()


def test_an_export_goes_to_stdout_when_asked():
    make_trove("a.db", LLAMA_IMPORT)
    words = ("export", "-", "--format", "text", "--store", "a.db")
    command = [sys.executable, "-m", "optrove", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(told.stdout.splitlines()) == 13
    assert "12 cases" in told.stderr


def test_a_file_that_cannot_be_written_is_told():
    make_trove("a.db", LLAMA_IMPORT)
    Path("file").touch()
    assert "cannot be written" in refused("export", "file/out", "--store", "a.db")


def test_troves_are_merged_in_any_order():
    make_trove("a.db", LLAMA_IMPORT)
    make_trove("b.db", RESNET_IMPORT)
    told = done("merge", "a.db", "b.db", "-o", "ab.db")
    assert (told["runs"], told["cases"], told["calls"]) == (2, 13, 225)
    done("merge", "b.db", "a.db", "-o", "ba.db")
    assert held("ab.db") == held("ba.db")
    assert done("merge", "ab.db", "-o", "ba.db")["runs"] == 0


def test_a_merge_with_what_is_no_trove_makes_nothing():
    make_trove("a.db", LLAMA_IMPORT)
    Path("b.db").write_text("no trove")
    assert "b.db" in refused("merge", "a.db", "b.db", "-o", "c.db")
    assert not Path("c.db").exists()


def test_a_run_is_removed_with_what_it_alone_has():
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    (told,) = done("rm", LLAMA_RUN[:8], "--store", "a.db")
    assert (told["run"], told["cases"]) == (LLAMA_RUN, 11)
    make_trove("b.db", RESNET_IMPORT)
    assert held("a.db") == held("b.db")


def test_of_several_runs_all_are_removed_or_none():
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    before = held("a.db")
    assert "no run begins with 'nothing'" in refused("rm", LLAMA_RUN, "nothing", "--store", "a.db")
    assert held("a.db") == before


def test_where_there_is_no_trove_the_error_says_how_to_get_one():
    told = refused("ops")
    assert "optrove trace" in told
    assert not Path(".optrove").exists()


def test_the_environment_names_the_trove(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTROVE_STORE", str(tmp_path / "elsewhere.db"))
    done("import", write_master())
    assert (tmp_path / "elsewhere.db").exists()
    assert not Path(".optrove").exists()
