"""The commands import, export, merge and rm, on real troves and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import masters
from commands import ask, run
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from small_trove import (
    LLAMA_IMPORT,
    LLAMA_RUN,
    RESNET_IMPORT,
    RESNET_RUN,
    make_trove,
)
from troves import Program, content_of, run_of

pytestmark = pytest.mark.usefixtures("working_directory")


def refused(*words):
    return ask(*words, exit_code=2)


def held(name):
    return content_of(place_of(str(name)))


def write_master(name="master.json", **arguments):
    given = arguments or {"arg0": masters.tensor(), "dim": 3}
    Path(name).write_text(json.dumps(masters.master(masters.configuration(given))))
    return name


def test_a_master_file_is_imported_with_an_account_of_what_was_understood():
    (file,) = ask("import", write_master(), "--json")["files"]
    assert (file["format"], file["configurations"], file["understood"]) == ("master v2", 1, 1)
    assert (file["runs"], file["calls"], file["new_cases"]) == (1, 10, 1)
    assert Path(".optrove/trove.db").exists()
    (op,) = ask("ops", "--json")
    assert (op["op"], op["calls"], op["models"]) == ("ttnn.linear", 10, ["models/demo.py"])


def test_the_account_is_readable():
    output = run("import", write_master(odd={"type": "Odd", "value": "<?>"})).stdout
    assert "1 configuration = 0 understood + 1 with parts kept verbatim + 0 refused" in output
    assert "  verbatim:\n    1x " in output
    assert "$.operations" in output
    assert f"trove: {Path('.optrove/trove.db').absolute()}" in output


def test_importing_twice_changes_nothing():
    write_master()
    ask("import", "master.json", "--store", "t.db", "--json")
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
def test_a_bad_file_is_reported_and_nothing_of_the_good_ones_is_added(content):
    make_trove("t.db", LLAMA_IMPORT)
    before = held("t.db")
    Path("bad.json").write_bytes(content)
    assert "bad.json" in refused("import", write_master(), "bad.json", "--store", "t.db")
    assert held("t.db") == before


def test_equal_hashes_of_unequal_configurations_are_kept_and_a_bad_one_is_named():
    one = masters.configuration({"dim": 1})
    other = masters.configuration({"dim": 2})
    bad = masters.configuration(3, number=3)
    Path("master.json").write_text(json.dumps(masters.master(one, other, bad)))
    output = run("import", "master.json", "--store", "t.db").stdout
    assert "3 configurations = 2 understood + 0 with parts kept verbatim + 1 refused" in output
    assert "configurations[2].arguments: expected an object" in " ".join(output.split())
    (file,) = ask("import", "master.json", "--store", "u.db", "--json")["files"]
    assert [each["path"].rpartition(".")[2] for each in file["refusals"]] == ["arguments"]


def test_provenance_is_shown_and_exported_as_it_came():
    trace = {"source": "a.py", "machine_info": {**masters.GALAXY, "tt_kmd": "2.3"}, "count": 1}
    trace |= {"trace_uid": "t1", "pytest_args": "-k x", "trace_run_ids": [3]}
    config = masters.configuration({"dim": 1}, executions=[trace], sweep_source_hash="ab" * 32)
    Path("master.json").write_text(json.dumps(masters.master(config)))
    ask("import", "master.json", "--store", "t.db", "--json")
    (shown,) = ask("runs", "--store", "t.db", "--json")
    assert shown["provenance"] == {"trace_uid": "t1", "pytest_args": "-k x", "trace_run_ids": [3]}
    assert shown["machine"]["tt_kmd"] == "2.3"
    for options in ((), ("--scrub",)):
        ask("export", "again.json", "--store", "t.db", "--json", *options)
        written = json.loads(Path("again.json").read_text())
        (again,) = written["operations"]["ttnn.linear"]["configurations"]
        assert again["executions"] == [trace]
        assert again["sweep_source_hash"] == "ab" * 32
        assert again["arguments"] == {"dim": 1}


def test_a_file_that_is_not_there_is_reported():
    assert "'missing.json'" in refused("import", "missing.json")


def test_another_trove_is_imported():
    make_trove("a.db", LLAMA_IMPORT)
    (file,) = ask("import", "a.db", "--store", "b.db", "--json")["files"]
    assert (file["format"], file["runs"], file["configurations"]) == ("trove", 1, None)
    assert held("b.db") == held("a.db")


@pytest.mark.parametrize("form", ["master", "text"])
def test_what_is_exported_is_imported_the_same(form):
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    output = ask("export", "out.json", "--format", form, "--store", "a.db", "--json")
    assert output == {"file": "out.json", "format": form, "cases": 13, "calls": 225, "notes": []}
    ask("import", "out.json", "--store", "b.db", "--json")
    assert run("diff", "a.db", "b.db", "--all-ops").exit_code == 0
    ask("export", "again", "--format", form, "--store", "b.db", "--json")
    if form == "text":
        assert Path("again").read_bytes() == Path("out.json").read_bytes()


@pytest.mark.parametrize(
    ("chosen", "cases", "calls"),
    [
        (("--op", "matmul"), 3, 150),
        (("--model", "llama"), 12, 172),
        (("--run", RESNET_RUN[:6]), 2, 53),
        (("--board", "n150"), 2, 53),
        (("--op", "matmul", "--board", "n150"), 1, 3),
    ],
)
def test_what_is_exported_can_be_chosen(chosen, cases, calls):
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    written = ask("export", "out.json", *chosen, "--store", "a.db", "--json")
    assert (written["cases"], written["calls"]) == (cases, calls)


def test_an_export_that_would_be_empty_is_an_error_and_writes_nothing():
    make_trove("a.db", LLAMA_IMPORT)
    output = refused("export", "out.json", "--op", "add", "--store", "a.db")
    assert "no op here is called 'add'" in output
    assert not Path("out.json").exists()


def test_imports_have_no_calls_to_export_one_by_one():
    make_trove("a.db", LLAMA_IMPORT)
    assert "--format master or text" in refused(
        "export", "out.json", "--format", "jsonl", "--store", "a.db"
    )
    assert not Path("out.json").exists()


def test_an_export_goes_to_stdout_when_asked():
    make_trove("a.db", LLAMA_IMPORT)
    words = ("export", "-", "--format", "text", "--store", "a.db")
    command = [sys.executable, "-m", "optrove", *words]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(output.stdout.splitlines()) == 13
    assert "12 cases" in output.stderr


def test_a_file_that_cannot_be_written_is_reported():
    make_trove("a.db", LLAMA_IMPORT)
    Path("file").touch()
    assert "cannot be written" in refused("export", "file/out.json", "--store", "a.db")


def test_troves_are_merged_in_any_order():
    make_trove("a.db", LLAMA_IMPORT)
    make_trove("b.db", RESNET_IMPORT)
    output = ask("merge", "a.db", "b.db", "-o", "ab.db", "--json")
    assert (output["runs"], output["cases"], output["calls"]) == (2, 13, 225)
    ask("merge", "b.db", "a.db", "-o", "ba.db", "--json")
    assert held("ab.db") == held("ba.db")
    assert ask("merge", "ab.db", "-o", "ba.db", "--json")["runs"] == 0


def test_a_merge_with_what_is_no_trove_makes_nothing():
    make_trove("a.db", LLAMA_IMPORT)
    Path("b.db").write_text("no trove")
    assert "b.db" in refused("merge", "a.db", "b.db", "-o", "c.db")
    assert not Path("c.db").exists()


def test_a_run_is_removed_with_what_it_alone_has():
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    (output,) = ask("rm", LLAMA_RUN[:8], "--store", "a.db", "--json")
    assert (output["run"], output["cases"]) == (LLAMA_RUN, 11)
    make_trove("b.db", RESNET_IMPORT)
    assert held("a.db") == held("b.db")


def test_of_several_runs_all_are_removed_or_none():
    make_trove("a.db", LLAMA_IMPORT, RESNET_IMPORT)
    before = held("a.db")
    assert "no run begins with 'nothing'" in refused("rm", LLAMA_RUN, "nothing", "--store", "a.db")
    assert held("a.db") == before


def test_where_there_is_no_trove_the_error_says_how_to_get_one():
    output = refused("ops")
    assert "optrove trace" in output
    assert not Path(".optrove").exists()


def test_the_environment_names_the_trove(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTROVE_STORE", str(tmp_path / "elsewhere.db"))
    ask("import", write_master(), "--json")
    assert (tmp_path / "elsewhere.db").exists()
    assert not Path(".optrove").exists()


def test_names_that_are_no_valid_unicode_are_shown_escaped():
    traced = run_of("1f" * 16, source="demo \udc81.py", model="model \udc82")
    program = Program(Path("journal"), traced)
    program.call("fake.add", "\udc83", result=2)
    with open_trove(place_of("trove.db"), create=True) as trove:
        trove.add_journal(program.end())
    for words in (("runs",), ("models",), ("ops",), ("show", "fake.add")):
        result = run(*words, "--store", "trove.db")
        assert result.exit_code == 0, repr(result.exception)
        assert r"model \udc82" in result.stdout
    result = run("export", "calls.jsonl", "--format", "jsonl", "--store", "trove.db")
    assert result.exit_code == 0, repr(result.exception)
    assert r"\udc83" in Path("calls.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [(), ("--scrub",)])
def test_a_trace_is_exported_as_its_program_passed_the_arguments(options):
    program = Program(Path("journal"), run_of("1f" * 16))
    program.call("fake.add", 1, 2, result=3)
    with open_trove(place_of("trove.db"), create=True) as trove:
        trove.add_journal(program.end())
    ask("export", "master.json", "--store", "trove.db", "--json", *options)
    written = json.loads(Path("master.json").read_text())
    (config,) = written["operations"]["fake.add"]["configurations"]
    assert config["arguments"] == {"arg0": 1, "arg1": 2}
    assert config["optrove"]["arguments"] == {"a": 1, "b": 2}
    (execution,) = config["executions"]
    assert execution["trace_uid"] == "1f" * 16  # tt-metal's database requires one


def test_the_suffix_of_a_file_tells_its_format():
    make_trove(Path("t.db"), LLAMA_IMPORT)
    for file, form in (("a.json", "master"), ("a.txt", "text"), ("-", "master")):
        done = run("export", file, "--store", "t.db", "--json")
        assert done.exit_code == 0
        told = done.stderr if file == "-" else done.stdout
        assert json.loads(told)["format"] == form
    assert Path("a.txt").read_text() != Path("a.json").read_text()


@pytest.mark.parametrize("file", ["calls.xyz", "calls", "calls.db"])
def test_a_file_whose_suffix_tells_no_format_is_not_written(file):
    make_trove(Path("t.db"), LLAMA_IMPORT)
    refusal = refused("export", file, "--store", "t.db")
    assert f"the name {file!r} does not tell the format" in refusal
    assert "text, jsonl, op-inputs, params, op-inputs-json, master, superset" in refusal
    assert not Path(file).exists()
    assert run("export", file, "--store", "t.db", "--format", "text").exit_code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(range(256)) * 4, "a file of no known format"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "a file of no known format"),
        (b"hello\n", "a file of no known format"),
        (b"op,cases\nadd,1\n", "a file of no known format"),
        ('{"a": "\u00e4"}'.encode("latin-1"), "save it as UTF-8"),
        ('{"operations": {}}'.encode("utf-16"), "save it as UTF-8"),
        (b'{"operations": {"a": ' + bytes(range(256)), "file: a binary file and no text; is this"),
        (b'{"operations": {', "is the file complete?"),
    ],
)
def test_a_file_that_is_not_understood_is_described_as_what_it_is(content, said):
    Path("file").write_bytes(content)
    refusal = refused("import", "file")
    assert said in refusal
    assert ("import one of: " in refusal) is (said == "a file of no known format")
