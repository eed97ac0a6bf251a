import json
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from commands import ask, run
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Outcome, RunKind
from optrove.model.values import Int
from optrove.replay.runner import Workers, run_jobs
from optrove.serializer.hashes import placement_hash
from optrove.sweep import sweeping
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from small_trove import imported, make_trove, run_of

pytestmark = pytest.mark.slow

ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))


def odd(op, number=0):
    return Case(f"odd.{op}", (("a", Int(number)),))


CASES = (
    (odd("add"), 50),
    (odd("add", 1), 7),
    (odd("refuse"), 20),
    (odd("crash"), 3),
    (odd("unbuildable"), 2),
)


@pytest.fixture
def trove(tmp_path, monkeypatch):
    """A trove of a framework that is all in the worker processes."""

    def run_oddly(jobs, *, workers, **options):
        return run_jobs(jobs, workers=replace(workers, command=ODD), **options)

    monkeypatch.setattr(sweeping, "run_jobs", run_oddly)
    monkeypatch.setenv("OPTROVE_STORE", str(tmp_path / "trove.db"))
    return make_trove(tmp_path / "trove.db", imported(run_of("1f3a" * 8, "demo.py"), CASES))


def replays(trove):
    with open_reader(place_of(str(trove))) as reader:
        runs = [row.run for row in reader.runs() if row.run.kind is RunKind.REPLAY]
        return [(run, list(reader.attempts(run.id))) for run in runs]


def test_an_op_is_replayed_by_its_most_called_case(trove):
    shown = ask("replay", "add")
    assert placement_hash(odd("add"))[:12] in shown
    assert "50 calls recorded" in shown
    assert "verdict: passed" in shown
    assert "pcc: 1 (at least 0.99)" in shown
    assert "the traced replay is the recorded case: equal hash" in shown


def test_results_are_kept_as_a_run(trove):
    ask("replay", "add", "--seed", "7")
    ((run, (attempt,)),) = replays(trove)
    assert run.source == "replay add"
    assert run.exit_code == 0
    assert run.finished_at is not None
    assert (attempt.outcome, attempt.seed) == (Outcome.PASSED, 7)
    assert attempt.device_kind is DeviceKind.HOST


def test_replays_are_no_models_and_can_be_removed(trove):
    ask("replay", "add")
    ((run, _),) = replays(trove)
    assert [row["model"] for row in ask("models", "--json")] == ["demo.py"]
    ask("rm", run.id)
    assert replays(trove) == []
    assert len(ask("show", "*", "--json")) == len(CASES)


def test_many_cases_are_a_table_and_what_fails_ends_with_one(trove):
    shown = ask("replay", "odd.*", "--all", exit_code=1)
    assert "5 cases: 2 passed, 1 rejected, 1 crashed, 1 not run" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("odd.refuse")]
    assert line.endswith("no")
    ((run, _),) = replays(trove)
    stored = f"\nstored as run {run.id[:12]} of {trove}\n"
    assert shown.endswith(f"{stored}exit code 1: 2 failed, 1 not run\n")


def test_the_counts_add_up_to_what_was_planned(trove):
    data = ask("replay", "*", "--all", "--json", exit_code=1)
    assert data["counts"] == {"passed": 2, "rejected": 1, "crashed": 1, "not_run": 1}
    assert sum(data["counts"].values()) == data["planned"] == len(data["cases"]) == len(CASES)
    assert {each["op"]: each["outcome"] for each in data["cases"]}["odd.crash"] == "crashed"
    ((run, attempts),) = replays(trove)
    assert data["runs"] == [run.id]
    assert len(attempts) == len(CASES)
    assert run.exit_code == 1


def test_a_replay_that_never_ran_could_not_be_done(trove):
    result = run("replay", "unbuildable")
    assert result.exit_code == 2
    assert "verdict: not run" in result.stdout
    assert "because: $.arguments.a: no converter knows it" in result.stdout
    ((kept, _),) = replays(trove)
    assert kept.exit_code == 2


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        (("failed",), 1, "exit code 1: 2 failed"),
        (("not-run",), 1, "exit code 1: 1 not run"),
        (("worse,lost",), 0, "exit code 0; not counted by --fail-on: 2 failed, 1 not run"),
    ],
)
def test_fail_on_chooses_what_makes_the_exit_code(trove, words, code, last):
    shown = ask("replay", "*", "--all", "--fail-on", *words, exit_code=code)
    assert shown.splitlines()[-1] == last
    ((run, _),) = replays(trove)
    assert run.exit_code == code
    shown = ask("results", "--fail-on", *words, exit_code=code)
    assert shown.splitlines()[-1] == last


def test_fail_on_names_the_reasons_that_exist(trove):
    shown = ask("replay", "*", "--all", "--fail-on", "failed,bad", exit_code=2)
    assert "'bad' is none of failed, not-run, incomplete" in " ".join(shown.split())


def test_an_interrupt_loses_nothing_and_the_rest_was_not_attempted(trove, monkeypatch):
    def interrupted(jobs, *, workers, **options):
        attempts = run_jobs(jobs, workers=Workers(1, ODD), **options)
        yield next(attempts)
        attempts.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "run_jobs", interrupted)
    data = ask("replay", "*", "--all", "--json", exit_code=130)
    assert data["interrupted"]
    assert data["counts"]["not_attempted"] == len(CASES) - 1
    assert sum(data["counts"].values()) == len(CASES)
    ((run, attempts),) = replays(trove)
    assert run.finished_at is None
    assert len(attempts) == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "name an op or a case of the trove, or give --all or --jsonl FILE"),
        (("add", "--jsonl", "calls.jsonl"), "a line of a file: give one"),
        (("add", "--index", "0"), "add --jsonl FILE"),
        (("--jsonl", "calls.jsonl", "--index", "0", "--all"), "give one of them"),
        (("--jsonl", "calls.jsonl", "--dtype", "x"), "--jsonl has --index and --all"),
        (("ad",), "no op here is called 'ad'"),
        (("add", "--dtype", "bfloat4_b"), "bfloat4_b"),
        (("odd.*",), "name one, or add --all"),
        (("add", "--board", "n151"), "Did you mean 'n150'"),
        (("add", "--jobs", "0"), "0 is not in the range"),
        (("add", "--timeout", "0"), "0.0 is not in the range"),
    ],
)
def test_what_cannot_be_replayed_is_an_error_with_advice(trove, words, answer, monkeypatch):
    monkeypatch.chdir(trove.parent)
    Path("calls.jsonl").touch()
    assert answer in ask("replay", *words, exit_code=2)
    assert replays(trove) == []


@pytest.fixture
def lines(trove, tmp_path):
    path = tmp_path / "calls.jsonl"
    facts = {"run_id": "run", "test_nodeid": None, "module": None}
    calls = [("odd.add", 0), ("odd.refuse", 0), ("odd.add", 0)]
    rows = [
        {
            **facts,
            "op_index": place,
            "op_name": op,
            "inputs": [],
            "kwargs": {"a": a},
            "output": None,
        }
        for place, (op, a) in enumerate(calls)
    ]
    # Its result is recorded by a number here, which differs between processes.
    path.write_text(
        "".join(json.dumps({**row, "error": {"type": "E", "message": "m"}}) + "\n" for row in rows)
    )
    return path


def test_a_line_is_replayed_by_its_index_and_nothing_is_kept(trove, lines):
    assert "odd.add: case" in ask("replay", "--jsonl", lines)
    assert "verdict: rejected" in ask("replay", "--jsonl", lines, "--index", "1", exit_code=1)
    assert "when it was recorded, it raised: E: m" in ask("replay", "--jsonl", lines)
    assert replays(trove) == []


def test_all_lines_are_replayed_each_case_once(lines):
    data = ask("replay", "--jsonl", lines, "--all", "--json", exit_code=1)
    assert data["counts"] == {"passed": 1, "rejected": 1}
    assert data["store"] is None
    assert data["runs"] == []


def test_lines_that_are_not_there_or_not_lines_are_errors(lines):
    assert "3 calls, none with index 3" in ask(
        "replay", "--jsonl", lines, "--index", "3", exit_code=2
    )
    lines.write_text("{}\n")
    assert "line 1: missing run_id" in ask("replay", "--jsonl", lines, exit_code=2)
    lines.write_text("")
    assert "does not contain a call" in ask("replay", "--jsonl", lines, exit_code=2)


def test_a_board_has_nothing_to_say_about_other_frameworks(trove):
    answer = ask("check-board", "n150", exit_code=2)
    assert "none of the 5 selected cases is a call of ttnn" in answer
    assert "Did you mean 'n150'" in ask("check-board", "n151", exit_code=2)


def test_there_is_nothing_to_audit_in_other_frameworks(trove):
    assert "no case of a ttnn op" in ask("audit-goldens", exit_code=2)
    assert "no op here is called" in ask("audit-goldens", "softmx", exit_code=2)


@pytest.fixture
def two_runs(trove):
    """Two runs of all cases; in the second one, the one that was refused passed, and so on."""
    for _ in range(2):
        ask("replay", "*", "--all", exit_code=1)
    newer, older = (run.id for run, _ in replays(trove))
    good, refused = placement_hash(odd("add")), placement_hash(odd("refuse"))
    with sqlite3.connect(trove) as connection:
        for case_id, outcome in ((good, "rejected"), (refused, "passed")):
            connection.execute(
                "UPDATE attempts SET content = json_set(content, '$.outcome', ?) WHERE run_key = "
                "(SELECT key FROM runs WHERE run_id = ?) AND case_key = "
                "(SELECT key FROM cases WHERE case_id = ?)",
                (outcome, newer, case_id),
            )
    connection.close()
    return older, newer


def test_two_runs_are_compared(two_runs):
    older, newer = two_runs
    data = ask("check-release", older, newer, "--json", exit_code=1)
    counts = data["counts"]
    assert (counts["broken"], counts["fixed"], counts["not_run"]) == (1, 1, 1)
    assert sum(counts.values()) == len(CASES)
    assert "4 cases compared, 1 broken, 1 fixed" in ask("check-release", older, newer, exit_code=1)


def test_nothing_broke_between_a_run_and_itself(two_runs):
    older, _ = two_runs
    assert "0 broken, 0 fixed" in ask("check-release", older, f"run:{older}")


def test_files_and_troves_are_compared_like_runs(two_runs, trove, tmp_path):
    data = ask("replay", "*", "--all", "--json", exit_code=1)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    found = ask("check-release", path, trove, "--json")
    assert found["a"]["name"] == str(path)
    assert found["b"]["cases"] == len(CASES)
    assert found["counts"]["broken"] == 0


def test_what_are_no_results_is_an_error(two_runs, trove, tmp_path):
    older, _ = two_runs
    bad = tmp_path / "bad.json"
    for text in (
        "{",
        "[]",
        '{"cases": 1}',
        '{"cases": [{"case_id": "a", "op": "b", "outcome": "c"}]}',
    ):
        bad.write_text(text)
        assert "is not what optrove check-board --json prints" in ask(
            "check-release", bad, older, exit_code=2
        )
    assert "no run begins with" in ask("check-release", "zzz", older, exit_code=2)
    assert "nothing was executed in run 1f3a" in ask("check-release", "1f3a", older, exit_code=2)
    empty = make_trove(tmp_path / "empty.db")
    assert "has no run in which cases were executed" in ask(
        "check-release", empty, older, exit_code=2
    )


def test_results_without_a_common_case_cannot_be_compared(two_runs, tmp_path):
    older, _ = two_runs
    path = tmp_path / "other.json"
    path.write_text(
        json.dumps({"cases": [{"case_id": "a", "op": "ttnn.add", "outcome": "passed"}]})
    )
    assert "no case in common" in ask("check-release", path, older, exit_code=2)


def test_results_of_another_kind_of_device_are_named_as_such(two_runs, tmp_path):
    older, _ = two_runs
    data = ask("results", older, "--json", exit_code=1)
    path = tmp_path / "other.json"
    cases = [{**each, "device": "hw", "board": "p150"} for each in data["cases"]]
    path.write_text(json.dumps({**data, "cases": cases}))
    answer = ask("check-release", path, older, exit_code=2)
    assert "hw p150" in answer
    assert f"have {len(CASES)} cases in common, but ran them on other kinds of devices" in answer
