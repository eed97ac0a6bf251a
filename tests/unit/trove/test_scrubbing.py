"""What is exported with --scrub tells of nobody and no machine, in any format."""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from optrove.cli.main import main
from optrove.model.records import DeviceKind, Outcome, Sweep, SweepModule, TestOutcome
from optrove.model.trove import PlannedCase
from optrove.model.values import Bytes, Text
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import ENVIRONMENT, Program, attempt_of, imported, run_of

USER, HOST = "mallory", "crunch-12"
HOME = f"/home/{USER}"
HERE = str(Path(__file__).parents[3])
TEST = f"tests/test_x.py::test_a[{HOME}/weights]"
WORDS = f"{USER}@{HOST}: {HOME}/src/x.cpp:12 in {USER.title()}Model, see http://{HOST}/log"
LOADED = case("ttnn.load_tensor", file_name=Text(f"{HOME}/my weights/w.bin"), x=tensor(32, 32))
PLAIN = case("ttnn.add", a=tensor(32, 32), b=Bytes(WORDS.encode()))
HOSTED = replace(
    ENVIRONMENT,
    host=f"{HOST}.corp.example",
    command_line=("python", f"{HOME}/run.py", "--token", "hunter2"),
)


def told_of(run_id, **facts):
    return run_of(run_id, environment=HOSTED, source=f"{HOME}/proj x/{TEST}", **facts)


def make(place, directory):
    """Make a trove in which everything that can tell of somebody does."""
    program = Program(directory / "journals", told_of("traced", model=f"{HOME}/models/llama"))
    program.within(TEST, device=None, module=f"{USER}.layers")
    program.call("fake.open", f"{HOME}/my weights/w.bin", result=f"{HOME}/out")
    program.call("fake.div", 1, result=ZeroDivisionError(WORDS))
    facts = {"parameters": (("file", Text(HOME)),), "module": f"{HOME}/test_x.py"}
    program.test(TEST, TestOutcome.FAILED, error=WORDS, **facts)
    ids = [describe_case(each).case_id for each in (LOADED, PLAIN)]
    asked = Sweep(
        targets=(f"{HOME}/sweep.py",),
        file=f"{HOME}/vectors.json",
        filters=(("model", USER),),
        modules=(SweepModule("m", f"{HOME}/sweeps/m.py", "0"),),
    )
    planned = [PlannedCase(each, DeviceKind.MOCK, "n300", None) for each in ids]
    with open_trove(place, create=True) as trove:
        trove.add_journal(program.end())
        source = f"{HOME}/a/demo.py [HF_MODEL:{HOME}/llama]"
        trove.add_imported(imported("import", (LOADED, 3), PLAIN, source=source))
        trove.add_sweep(told_of("sweep"), asked, planned)
        tried = [attempt_of(each, "sweep", Outcome.RAISED, detail=WORDS) for each in ids]
        trove.add_attempts(told_of("sweep"), [replace(each, notes=(WORDS,)) for each in tried])


def nowhere(content):
    found = content.lower()
    return not [name for name in (USER, HOST, HOME, HERE, "hunter2") if name.encode() in found]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The path of that trove."""
    monkeypatch.chdir(tmp_path)
    make(place_of("trove.db"), tmp_path)
    assert not nowhere(Path("trove.db").read_bytes())
    return "trove.db"


def run(*words):
    result = CliRunner().invoke(main, [*words, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("form", ["master", "jsonl", "text", "params"])
def test_no_export_tells_of_anybody(store, form):
    whole = run("export", "whole", "--format", form, "--store", store)
    scrubbed = run("export", "scrubbed", "--format", form, "--scrub", "--store", store)
    assert (scrubbed["cases"], scrubbed["calls"]) == (whole["cases"], whole["calls"])
    path = Path("scrubbed")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    assert files
    assert all(nowhere(file.read_bytes()) for file in files)
    assert form != "jsonl" or b'"<path>/troves.py:' in path.read_bytes()


def test_a_scrubbed_trove_tells_of_nobody_and_is_as_good_as_the_whole_one(store):
    sent = run("push", "public.db", "--scrub", "--store", store)
    assert (sent["runs"], sent["attempts"]) == (3, 2)
    assert run("push", "public.db", "--scrub", "--store", store)["runs"] == 0
    assert nowhere(Path("public.db").read_bytes())
    with open_reader(place_of("public.db")) as public, open_reader(place_of(store)) as whole:
        packed = public.connection.rows("SELECT dictionary FROM recordings", {})
        assert all(nowhere(zlib.decompress(each)) for (each,) in packed if each)
        calls = list(public.calls("traced"))
        assert [call.op_index for call in calls] == [
            call.op_index for call in whole.calls("traced")
        ]
        assert {call.test_id for call in calls} == {"tests/test_x.py::test_a[<path>/weights]"}
        assert {call.call_site.file for call in calls} == {"<path>/troves.py"}
        known = public.known(call.case_id for call in calls)
        assert len(known) == len({call.case_id for call in calls}) == 2
        (traced,) = public.runs("traced")
        assert traced.run.source == "<path>/test_x.py::test_a[<path>/weights]"
        assert traced.run.model == "<path>/llama"
        assert traced.run.environment == replace(HOSTED, host=None, command_line=())
        assert {row.run.model or row.run.source for row in public.runs("import")} == {
            "<path>/demo.py [HF_MODEL:<path>/llama]"
        }
        for attempt in public.attempts("sweep"):
            assert attempt.detail == "<user>@<host>: <path>/x.cpp:12 in <user>Model, see <url>"
            assert public.known([attempt.case_id])


def test_a_scrubbed_export_still_selects_by_model(store):
    wanted = ("--model", f"{HOME}/models/llama", "--scrub", "--store", store)
    assert run("export", "some.txt", "--format", "text", *wanted)["cases"] == 2
