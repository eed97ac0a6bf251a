import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from optrove.cli.main import main
from optrove.model.records import Query
from optrove.serializer.op_lines import read_op_lines
from optrove.tracing import launch
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from tracing import assert_adds_up

SUPPORT = Path(__file__).parents[1] / "support"
LIMIT_SECONDS = 60

SCRIPT = """
from traced_program import add

for _ in range(4):
    add(1, 2)
add(1, b=3)
"""

KEYS = {
    *("target", "kind", "source", "run_id", "model", "board", "device", "exit_code", "ending"),
    *("signal", "timed_out", "interrupted", "seconds", "calls", "cases", "new_cases"),
    *("known_cases", "left_out", "tests", "accounting", "ops", "in_flight", "faults", "lost"),
    *("processes", "unclosed", "sketches", "capsules", "store", "journals", "jsonl", "params_dir"),
    *("replay", "error", "errors", "hints", "not_compared", "not_modeled"),
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """An empty directory, and an environment in which programs find the fake operations."""
    directory = tmp_path / "working"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    for name in (
        "OPTROVE_BOARD",
        "OPTROVE_SHADOW",
        "OPTROVE_STORE",
        "HF_MODEL",
        "TT_OP_RESULTS_JSONL",
    ):
        monkeypatch.delenv(name, raising=False)
    return directory


def write(name, text):
    Path(name).write_text(text)
    return name


def command(*words):
    return [sys.executable, "-m", "optrove", "trace", *words]


def trace(*words):
    return subprocess.run(
        command(*words),
        env=os.environ,  # without what readline, which pytest imports, has added to it
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def traced(*words):
    """Trace from within this process; return the exit code and the JSON."""
    done = CliRunner().invoke(main, ["trace", "--json", *words])
    assert done.stdout, done.stderr
    data = json.loads(done.stdout)
    for each in data if isinstance(data, list) else [data]:
        assert_adds_up(each)
    return done.exit_code, data


def refused(*words):
    """Ask for what cannot be done; return what is said about it."""
    done = CliRunner().invoke(main, ["trace", *words])
    assert done.exit_code == 2
    assert done.stdout == ""
    return done.stderr


def plain_python(*words):
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )


def cases_in(store):
    with open_reader(place_of(store)) as reader:
        return reader.count(Query(data_movement=True, outermost_only=False))


def runs_in(store):
    with open_reader(place_of(store)) as reader:
        return {row.run.id: row for row in reader.runs()}


def test_a_script_is_summed_up_for_people():
    done = trace(write("model.py", SCRIPT), "--model", "tiny")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "model.py, model tiny" in lines
    assert "5 calls, 2 cases (2 new, 0 known)" in lines
    assert "fake.add      2      5" in lines
    assert "5 observed = 2 new + 3 repeated + 0 filtered + 0 untraceable" in lines
    (trove,) = [line for line in lines if line.startswith("trove: ")]
    assert cases_in(trove.removeprefix("trove: ")) == 2
    assert all(len(line) <= 80 for line in lines if line != trove)


def test_a_script_is_summed_up_for_machines(monkeypatch):
    monkeypatch.setenv("HF_MODEL", "other/one")
    code, data = traced(write("model.py", SCRIPT + 'print("its own words")'))
    assert code == 0
    assert set(data) == KEYS
    assert data["kind"] == "script"
    assert data["source"] == "model.py [HF_MODEL:other/one]"
    assert data["ending"] == "exit code 0"
    counts = {
        "op": "fake.add",
        "unique": 2,
        "executed": 5,
        "nested": 0,
        "raised": 0,
        "hidden": False,
    }
    assert data["ops"] == [counts]
    assert data["journals"] is None
    assert runs_in(data["store"])[data["run_id"]].calls == 5


def test_the_output_of_the_target_stays_apart_from_the_data():
    done = trace("--json", write("model.py", SCRIPT + 'print("its own words")'))
    assert "its own words" in done.stderr
    done = trace(write("model.py", SCRIPT + 'print("its own words")'))
    assert done.stdout.startswith("its own words\n")


FACTS = """
import sys, pickle
from traced_program import add
add(1, 2)
class Thing: pass
pickle.loads(pickle.dumps(Thing()))
print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__, Thing)
"""


def test_a_script_finds_all_as_python_makes_it():
    Path("below").mkdir()
    script = write("below/model.py", FACTS)
    words = ["--json", "-x", "--", "last one"]
    done = trace(script, "--", *words)
    assert done.stdout.splitlines()[0] == plain_python(script, *words).stdout.strip()
    assert not (Path("below") / "__pycache__").exists()


@pytest.mark.parametrize(
    "ending",
    [
        "divide(1, 0)",
        "raise SystemExit(3)",
        "raise SystemExit('a last word')",
        "raise SystemExit",
        "divide(1, 0) if",
        "import sys; sys.excepthook = lambda *_: print('caught')\ndivide(1, 0)",
    ],
)
def test_a_script_ends_as_it_does_under_python(ending):
    script = write("model.py", "from traced_program import add, divide\nadd(1, 2)\n" + ending)
    done, plain = trace(script), plain_python(script)
    traced_anything = not ending.endswith("if")
    assert done.returncode == (plain.returncode if traced_anything else 2)
    ours = str(SUPPORT / "traced_program.py")
    if ours not in plain.stderr:
        assert done.stderr.startswith(plain.stderr)
    else:
        # The frames of the operations differ, since only a traced call is observed.
        assert done.stderr.splitlines()[:3] == plain.stderr.splitlines()[:3]
        assert done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert "tracing/script.py" not in done.stderr
    assert plain.stdout in done.stdout


def test_calls_of_threads_and_at_the_very_end_are_seen():
    script = """
        import atexit, threading
        from traced_program import add
        atexit.register(lambda: add(1, 2))
        def later():
            threading.main_thread().join()
            add(3, 4)
        threading.Thread(target=later).start()
    """
    code, data = traced(write("model.py", "if True:" + script))
    assert (code, data["calls"], data["unclosed"]) == (0, 2, 0)


CRASH = """
import os, time
from traced_program import add, apply
add(1, 2)
apply(lambda: ENDING)
"""


def test_after_a_crash_the_call_in_flight_is_named():
    script = write("model.py", CRASH.replace("ENDING", "os.abort()"))
    code, data = traced(script, "--jsonl", "calls.jsonl")
    assert code == 128 + signal.SIGABRT
    assert data["signal"] == signal.SIGABRT
    assert data["ending"] == "killed by signal 6 (SIGABRT)"
    (call,) = data["in_flight"]
    assert call["op"] == "fake.apply"
    assert call["call_site"] == f"{Path('model.py').absolute()}:5"
    assert "a" in call["arguments"]
    run = runs_in(data["store"])[data["run_id"]]
    assert (run.calls, run.complete) == (data["calls"], False)
    assert (data["processes"], data["unclosed"]) == (1, 1)


class ClockOfCalls:
    """A clock that stands still until a program has made its last call."""

    @staticmethod
    def monotonic():
        return 600.0 if Path("ready").exists() else 0.0


HANG = CRASH.replace("ENDING", "(open('ready', 'w').close(), time.sleep(600))")


def test_a_call_that_hangs_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(launch, "time", ClockOfCalls)
    done = CliRunner().invoke(main, ["trace", write("model.py", HANG), "--timeout", "3"])
    assert done.exit_code == 1, done.stderr
    assert "stopped after 3 s (--timeout)" in done.stdout
    assert "in flight: fake.apply" in done.stdout


def test_a_kill_between_two_calls_names_none():
    done = trace(write("model.py", SCRIPT + "import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by signal 9 (SIGKILL)" in done.stdout
    assert "in flight: nothing, all calls had ended" in done.stdout


def interrupted(*words):
    """Trace, and interrupt it as soon as the target has made the file ``ready``."""
    process = subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + LIMIT_SECONDS
    while not Path("ready").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 128 + signal.SIGINT
    return stdout, stderr


WAIT = "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(600)\n"


def test_an_interrupted_import_of_a_framework_shows_nothing_of_the_framework():
    write("torch.py", f"def begin():\n    {'; '.join(WAIT.splitlines())}\nbegin()\n")
    _, stderr = interrupted(write("model.py", "import torch\n"))
    lines = stderr.splitlines()
    begin = lines.index("Traceback (most recent call last):")
    assert "model.py" in lines[begin + 1]
    assert lines[begin + 2 : begin + 4] == ["    import torch", "KeyboardInterrupt"]
    assert lines[-1] == "Error: 'model.py' was interrupted before its first op call"


def test_interrupted_tests_have_the_exit_code_of_the_signal():
    stdout, _ = interrupted(write("test_model.py", f"{SCRIPT}\ndef test_it(): ...\n{WAIT}"))
    assert "interrupted, exit code 2" in stdout
    assert "5 calls" in stdout


def test_an_interrupt_reaches_the_target_and_ends_the_rest():
    write("model.py", HANG)
    write("other.py", SCRIPT)
    stdout, stderr = interrupted("model.py", "other.py")
    assert "KeyboardInterrupt" in stderr
    assert "interrupted, exit code 130" in stdout
    assert "2 calls" in stdout
    assert "other.py" not in stdout


def test_a_trace_without_calls_is_an_error_with_advice(working_directory):
    done = trace(write("model.py", "print('hello')"))
    assert done.returncode == 2
    assert "no op call was observed in 'model.py'" in done.stderr
    assert "Does it import ttnn or torch" in done.stderr
    assert [path.name for path in working_directory.iterdir()] == ["model.py"]


def test_several_targets_run_one_after_another_whatever_becomes_of_each():
    write("bad.py", SCRIPT + "raise SystemExit(1)")
    write("good.py", SCRIPT)
    code, data = traced("bad.py", "missing.py", "good.py", "--store", "here/trove.db")
    assert code == 2
    assert [each["target"] for each in data] == ["bad.py", "missing.py", "good.py"]
    assert [each["exit_code"] for each in data] == [1, 2, 0]
    assert "there is no file 'missing.py'" in data[1]["error"]
    assert set(data[1]) == KEYS
    assert len({each["run_id"] for each in data}) == 3
    assert set(runs_in("here/trove.db")) == {data[0]["run_id"], data[2]["run_id"]}
    assert not Path("here/trove.db.journals").exists()


TWO_OPS = SCRIPT + "from traced_program import divide\ndivide(8, 2)\n"


def lines_in(path):
    with Path(path).open("rb") as stream:
        return list(read_op_lines(stream))


def test_what_is_filtered_is_counted_and_written_nowhere():
    code, data = traced(
        write("model.py", TWO_OPS), "--exclude", "fake::add,nothing", "--jsonl", "calls.jsonl"
    )
    assert code == 0
    assert data["accounting"]["filtered"] == {"in --exclude fake::add,nothing": 5}
    assert [count["op"] for count in data["ops"]] == ["fake.divide"]
    assert [line.op for line in lines_in("calls.jsonl")] == ["fake.divide"]


def test_a_filter_that_leaves_nothing_is_an_error():
    code, data = traced(write("model.py", TWO_OPS), "--include", "fake.multiply")
    assert code == 2
    assert "all 6 calls of 'model.py' were filtered" in data["error"]


def test_journals_go_when_the_trove_has_the_calls(working_directory):
    code, data = traced(write("model.py", SCRIPT), "--jsonl", "out/calls.jsonl")
    assert code == 0
    assert data["journals"] is None
    assert len(lines_in(data["jsonl"])) == 5
    assert {path.name for path in working_directory.iterdir()} == {"model.py", "out", ".optrove"}
    assert [path.name for path in Path(".optrove").iterdir()] == ["trove.db"]


def test_journals_that_are_wanted_stay_and_are_added_once():
    _, data = traced(write("model.py", SCRIPT), "--keep")
    assert list(Path(data["journals"]).glob("*.calls"))
    _, again = traced("model.py", "--keep")
    assert {run_id: row.calls for run_id, row in runs_in(data["store"]).items()} == {
        data["run_id"]: 5,
        again["run_id"]: 5,
    }


def test_what_is_in_the_trove_already_is_known():
    write("model.py", SCRIPT)
    _, first = traced("model.py")
    _, second = traced("model.py")
    assert (first["new_cases"], first["known_cases"]) == (2, 0)
    assert (second["new_cases"], second["known_cases"]) == (0, 2)
    assert second["accounting"]["new"] == 0
    assert cases_in(second["store"]) == 2


def test_the_trove_of_a_directory_above_is_found(working_directory, monkeypatch):
    _, first = traced(write("model.py", SCRIPT))
    inner = working_directory / "some" / "where"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    _, second = traced(str(working_directory / "model.py"))
    assert second["store"] == first["store"]


def test_a_trove_that_cannot_be_used_is_reported_before_anything_runs():
    write("trove.db", "not a trove, but dear to somebody")
    write("model.py", SCRIPT + 'open("ran", "w")')
    assert "trove.db" in refused("model.py", "--store", "trove.db")
    assert not Path("ran").exists()
    assert Path("trove.db").read_text() == "not a trove, but dear to somebody"
    assert not Path("trove.db.journals").exists()


def test_a_run_that_was_killed_with_its_tracer_is_recovered_by_the_next_command():
    write("model.py", SCRIPT + "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    done = trace("model.py", "--store", "trove.db")
    assert done.returncode == -signal.SIGKILL
    (left,) = Path("trove.db.journals").iterdir()
    asked = plain_python("-m", "optrove", "runs", "--store", "trove.db")
    assert f"recovered run {left.name[:12]}" in asked.stderr
    assert left.name[:12] in asked.stdout
    assert runs_in("trove.db")[left.name].calls == 5
    assert not left.exists()
    assert "recovered" not in plain_python("-m", "optrove", "runs", "--store", "trove.db").stderr


def test_one_file_per_call_goes_straight_into_the_directory():
    _, data = traced(write("model.py", SCRIPT), "--params-dir", "files")
    assert data["journals"] is None
    files = list(Path("files").glob("*_fake_add_*.json"))
    assert len(files) == 5


def test_journals_can_be_summed_up_elsewhere_and_made_into_lines():
    code, first = traced(
        write("model.py", TWO_OPS + "divide(1, 0)"), "--keep", "--jsonl", "calls.jsonl"
    )
    assert code == 1
    moved = Path(first["journals"]).rename("elsewhere")
    code, again = traced("--from", str(moved), "--jsonl", "again.jsonl", "--store", "other.db")
    assert code == 0
    same = ("source", "run_id", "calls", "cases", "accounting", "ops", "tests", "processes")
    assert {name: again[name] for name in same} == {name: first[name] for name in same}
    live, made = lines_in("calls.jsonl"), lines_in("again.jsonl")
    facts = ("op", "case_id", "op_index", "parent", "depth", "output", "call_site", "run_id")
    for one, other in zip(live, made, strict=True):
        assert [getattr(one, name) for name in facts] == [getattr(other, name) for name in facts]
    assert made[-1].error.type == "ZeroDivisionError"
    assert set(runs_in("other.db")) == {first["run_id"]}
    assert moved.exists()
    assert made[0].inputs == ()
    assert [name for name, _ in made[0].keywords] == ["a", "b"]


def test_one_journal_and_one_file_of_lines_are_summed_up_alike():
    _, first = traced(write("model.py", SCRIPT), "--keep", "--jsonl", "calls.jsonl")
    (journal,) = Path(first["journals"]).glob("*.lines")
    _, of_journal = traced("--from", str(journal), "--store", "one.db")
    _, of_lines = traced("--from", "calls.jsonl", "--store", "two.db")
    assert cases_in("one.db") == cases_in("two.db") == 2
    assert of_journal["kind"] == "journals"
    assert of_lines["kind"] == "lines"
    for name in ("calls", "cases", "accounting", "ops"):
        assert of_journal[name] == of_lines[name] == first[name]


def test_the_journals_of_all_runs_are_summed_up_a_run_at_a_time():
    write("one.py", SCRIPT)
    _, runs = traced("one.py", "one.py", "--store", "trove.db", "--keep")
    code, data = traced("--from", "trove.db.journals")
    assert code == 0
    assert {each["run_id"] for each in data} == {each["run_id"] for each in runs}


def test_a_last_line_that_was_cut_off_is_counted():
    traced(write("model.py", SCRIPT), "--jsonl", "calls.jsonl")
    with Path("calls.jsonl").open("a") as stream:
        stream.write('{"torn')
    code, data = traced("--from", "calls.jsonl")
    assert code == 0
    assert data["accounting"]["untraceable"] == {"a line that cannot be read": 1}
    assert (data["calls"], data["accounting"]["observed"]) == (5, 6)


def test_lines_that_are_wrong_are_refused_and_nothing_is_added():
    traced(write("model.py", SCRIPT), "--jsonl", "calls.jsonl")
    with Path("calls.jsonl").open("a") as stream:
        stream.write('{"op_name": "fake.add"}\n')
    assert "line 6" in refused("--from", "calls.jsonl", "--store", "other.db")
    assert not Path("other.db").exists()


@pytest.mark.parametrize("content", ["", "hello\n", "[]\n", '{"format": "optrove-journal"}\n'])
def test_what_is_no_record_is_refused(content):
    message = refused("--from", write("calls.jsonl", content))
    assert "'calls.jsonl' does not begin as a file of op calls does" in message


def test_a_place_without_journals_is_refused(tmp_path):
    assert "there are no journals" in refused("--from", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name what to trace"),
        (("model.py", "--with-values"), "--with-values writes into the files of --params-dir"),
        (("model.py", "--shadow"), "--shadow needs a mock board"),
        (("model.py", "--board", "n3000"), "no board is called 'n3000'"),
        (("model.py", "--store", "ftp://x/y"), "is not a kind of place for a trove"),
        (("--from", "x", "--board", "n150"), "--from runs nothing"),
        (("--from", "x", "model.py"), "--from runs nothing"),
        (("nothing.py",), "there is no file 'nothing.py'"),
        (("model.py", "--store", "model.py/trove.db"), "no journals can be kept"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(words, message):
    write("model.py", SCRIPT)
    assert message in refused(*words)


TESTS = """
import pytest
from traced_program import add

add(0, 0)

@pytest.fixture
def number():
    return add(1, 1)

@pytest.mark.parametrize("other", [1, 2])
def test_add(number, other):
    assert add(number, other) == number + other

def test_fails():
    assert add(1, 1) == 3
"""


def test_a_test_file_is_traced_by_pytest():
    code, data = traced(write("test_model.py", TESTS), "--", "-q", "-p", "no:cacheprovider")
    assert code == 1
    assert data["kind"] == "pytest"
    assert data["source"] == "test_model.py"
    assert data["tests"] == {"passed": 2, "failed": 1}
    assert data["calls"] == 6
    assert data["cases"] == 4


def test_a_node_is_traced_by_pytest_in_several_processes():
    write("test_model.py", TESTS)
    code, data = traced("test_model.py::test_add", "--jsonl", "calls.jsonl", "--", "-n", "2")
    assert code == 0
    assert data["tests"] == {"passed": 2}
    assert data["journals"] is None
    of_tests = [line for line in lines_in("calls.jsonl") if line.test_id]
    assert {line.test_id for line in of_tests} == {f"test_model.py::test_add[{n}]" for n in (1, 2)}
    assert len(of_tests) == 4


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("test_model.py::test_nothing", "pytest --collect-only -q test_model.py"),
        ("test_empty.py", "pytest --collect-only -q test_empty.py"),
        ("test_skipped.py", "All of its tests were skipped"),
    ],
)
def test_tests_that_are_not_there_are_an_error_with_advice(target, advice):
    write("test_model.py", TESTS)
    write("test_empty.py", "")
    write("test_skipped.py", "import pytest\n@pytest.mark.skip\ndef test_a(): ...\n")
    code, data = traced(target, "--", "-p", "no:cacheprovider")
    # The model's own call at its import was seen; there is no test for it all the same.
    assert code == (4 if data["calls"] else 2)
    assert data["calls"] or advice in data["error"]


def test_another_error_of_pytest_is_not_called_a_missing_test():
    write("test_model.py", TESTS)
    code, data = traced("test_model.py", "--", "--no-such-option")
    assert code == 2
    assert data["error"] == "pytest ran no test of 'test_model.py': see its error above"


def test_the_environment_of_the_user_is_not_changed():
    script = SCRIPT + "import os, sys; print(sorted(os.environ), file=sys.stderr)"
    done = trace(write("model.py", script))
    assert str(sorted(os.environ)) in done.stderr
