"""``optrove sweep``: plans are kept first, results as they come, and counts add up."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import commands
from odd_worker import run_oddly
from optrove.model.case import Case
from optrove.model.records import RunKind
from optrove.model.values import Int
from optrove.sweep import sweeping
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from small_trove import imported, make_trove, run_of

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"


def odd(op, number=0):
    return Case(f"odd.{op}", (("a", Int(number)),))


CASES = (
    (odd("add"), 50),
    (odd("add", 1), 7),
    (odd("refuse"), 20),
    (odd("crash"), 3),
    (odd("unbuildable"), 2),
)
COUNTS = {"passed": 2, "rejected": 1, "crashed": 1, "not_run": 1}


@pytest.fixture
def trove(tmp_path, monkeypatch):
    """A trove of a framework that is all in the worker processes."""
    monkeypatch.setattr(sweeping, "run_jobs", run_oddly)
    monkeypatch.setenv("OPTROVE_STORE", str(tmp_path / "trove.db"))
    monkeypatch.chdir(tmp_path)
    return make_trove(tmp_path / "trove.db", imported(run_of("1f3a" * 8, "demo.py"), CASES))


ask = partial(commands.ask, "sweep")


def sweeps(trove):
    """Return the runs of sweeps, newest first, and the cases that each has attempted."""
    with open_reader(place_of(str(trove))) as reader:
        rows = [row for row in reader.runs() if row.run.kind is RunKind.SWEEP]
        return [(row, [each.case_id for each in reader.attempts(row.run.id)]) for row in rows]


def test_every_case_of_the_trove_is_attempted_once_and_the_counts_add_up(trove):
    data = ask("--json", exit_code=1)
    assert data["counts"] == COUNTS
    assert data["planned"] == sum(data["counts"].values()) == len(data["cases"]) == len(CASES)
    assert (data["resumed"], data["interrupted"], data["exported"]) == (False, False, [])
    ((row, attempted),) = sweeps(trove)
    assert row.run.id == data["run_id"]
    assert (row.planned, row.complete, row.run.exit_code) == (len(CASES), True, 1)
    assert row.run.finished_at is not None
    assert len(attempted) == len(set(attempted)) == len(CASES)


def test_the_text_tells_counts_causes_and_the_run(trove):
    text = ask("add", "refuse", exit_code=1)
    assert "3 cases: 2 passed, 1 rejected" in text
    assert "optrove replay" in text
    assert f"stored as run {sweeps(trove)[0][0].run.id[:12]} of " in text
    short = ask("add", "--summary")
    assert [line.split()[:3] for line in short.splitlines()[2:4]] == [
        ["op", "cases", "of"],
        ["odd.add", "2", "2"],
    ]
    assert "2 cases: 2 passed" in short


@pytest.mark.parametrize(("op", "code"), [("add", 0), ("refuse", 1), ("unbuildable", 2)])
def test_the_exit_code_is_kept(trove, op, code):
    assert commands.run("sweep", op).exit_code == code
    assert sweeps(trove)[0][0].run.exit_code == code


def test_a_run_is_called_by_what_was_asked_for(trove):
    ask("add", "--model", "demo.py", "--nested")
    ((row, _),) = sweeps(trove)
    assert row.run.source == "sweep add model=demo.py nested"


def test_a_sweep_of_nothing_is_an_error(trove):
    assert "no op here is called 'sub'" in ask("sub", exit_code=2)
    assert "no such case" in ask("--model", "demo.py", "--dtype", "float32", exit_code=2)
    assert "there is no file 'sub.py'" in ask("sub.py", exit_code=2)
    assert sweeps(trove) == []


def test_a_dry_run_shows_the_plan_and_executes_nothing(trove):
    data = ask("add", "--dry-run", "--json")
    assert data["counts"] == {"not_attempted": data["planned"]} == {"not_attempted": 2}
    assert [(each["op"], each["calls"], each["device"]) for each in data["cases"]] == [
        ("odd.add", 50, "host"),
        ("odd.add", 7, "host"),
    ]
    text = ask("--dry-run")
    assert f"{len(CASES)} cases planned, nothing executed" in text
    assert text.splitlines()[0].split() == ["op", "on", "cases", "calls"]
    ops = [line.split()[0] for line in text.splitlines()[1:] if line.startswith("odd.")]
    assert ops == ["odd.add", "odd.refuse", "odd.crash", "odd.unbuildable"]
    assert text == ask("*", "--dry-run")
    assert sweeps(trove) == []


def test_the_order_is_that_of_a_seed_or_of_the_calls(trove):
    def order(*words):
        return [each["case_id"] for each in ask(*words, "--dry-run", "--json")["cases"]]

    assert order("--randomize", 1) == order("--randomize", 1) != order("--randomize", 2)
    assert sorted(order("--randomize", 1)) == sorted(order())
    calls = [each["calls"] for each in ask("--budget", "1m", "--dry-run", "--json")["cases"]]
    assert calls == [50, 20, 7, 3, 2]


def test_a_budget_leaves_the_rest_unattempted_and_resume_does_it(trove):
    answer = commands.run("sweep", "--budget", "0.000001s")
    assert answer.exit_code == 2
    assert "the budget is used up, 5 cases were not attempted" in answer.stderr
    assert "5 cases: 5 not attempted" in answer.stdout
    ((row, attempted),) = sweeps(trove)
    assert (attempted, row.complete, row.run.finished_at) == ([], False, None)
    data = ask("--resume", "--json", exit_code=1)
    assert (data["resumed"], data["counts"]) == (True, COUNTS)
    ((row, _),) = sweeps(trove)
    assert row.complete
    again = commands.run("sweep", "--resume", "--json")
    assert "0 of 5 cases are left" in again.stderr
    assert json.loads(again.stdout)["counts"] == COUNTS
    assert len(sweeps(trove)) == 1


def test_resume_goes_on_with_the_sweep_that_is_meant_only(trove):
    for op in ("add", "refuse"):
        assert commands.run("sweep", op, "--budget", "0.000001s").exit_code == 2
    assert ask("add", "--resume", "--json")["counts"] == {"passed": 2}
    data = ask("crash", "--resume", "--json", exit_code=1)
    assert (data["resumed"], data["counts"]) == (False, {"crashed": 1})
    assert [row.complete for row, _ in sweeps(trove)] == [True, False, True]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--budget", "soon"), "write a time as 90s, 10m or 1.5h"),
        (("--resume", "--dry-run"), "leave out --dry-run"),
        (("--resume", "--vector-id", "ab"), "leave out --vector-id"),
        (("--file-path", ".", "--vector-source", "trove"), "--file-path is for --vector-source"),
        (("--vector-source", "file"), "add --file-path FILE"),
        (("--vector-source", "file", "--file-path", ".", "--dtype", "x"), "--dtype selects"),
        (("add", "--suite-name", "nightly"), "is an op, which has no suites"),
        (("add", "--vector-id", "zz"), "none of the 2 vectors begins with"),
        (("--device", "hw", "--board", "n300"), "give one"),
        (("mine.py", "--model", "llama"), "filters are for ops"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(trove, tmp_path, words, answer):
    (tmp_path / "mine.py").write_text("parameters = {}")
    assert answer in ask(*words, exit_code=2)
    assert sweeps(trove) == []


def test_results_are_also_written_as_files(trove, tmp_path):
    data = ask("add", "refuse", "--result-dest", "results_export", "--json", exit_code=1)
    files = [tmp_path / each for each in data["exported"]]
    assert sorted(path.name.partition("_")[0] for path in files) == ["odd.add", "odd.refuse"]
    rows = [row for path in files for row in json.loads(path.read_text())]
    assert sorted(row["status"] for row in rows) == [
        "TestStatus.FAIL_ASSERT_EXCEPTION",
        "TestStatus.PASS",
        "TestStatus.PASS",
    ]
    ask("add", "--result-dest", "out/one.json")
    assert len(json.loads((tmp_path / "out" / "one.json").read_text())) == 2
    assert "cannot be written" in ask("add", "--result-dest", "trove.db/x.json", exit_code=2)


def test_a_sweep_that_is_killed_again_and_again_attempts_every_case_exactly_once(tmp_path):
    cases = tuple((odd("add", number), 1) for number in range(400))
    path = make_trove(tmp_path / "many.db", imported(run_of("2b" * 16, "demo.py"), cases))
    words = [sys.executable, str(SUPPORT / "killed_sweep.py"), str(path), "10", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == sorted(seen)
    assert seen[0] < len(cases), "no sweep was killed before its end"
    ((row, attempted),) = sweeps(path)
    assert len(attempted) == len(set(attempted)) == len(cases)
    assert (row.planned, dict(row.attempts), row.complete) == (400, {"passed": 400}, True)
