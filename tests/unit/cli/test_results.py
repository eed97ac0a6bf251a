import json
import re
from xml.etree import ElementTree as Xml

import pytest

from commands import ask, run
from executed_runs import ADDS, CASES, HOSTILE, NEW, OLD, SWEEP, TRACE, id_of, make_executed
from small_trove import LLAMA_IMPORT, make_trove


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    return make_executed(tmp_path_factory.mktemp("executed") / "trove.db")


def test_the_newest_run_is_shown_and_all_its_cases_are_accounted_for(trove):
    data = ask("results", "--store", trove, "--json", exit_code=1)
    assert data["run_id"] == SWEEP
    assert data["counts"] == {"passed": 2, "out_of_memory": 1, "raised": 1, "not_attempted": 1}
    assert sum(data["counts"].values()) == data["planned"] == 5
    assert data["views"] == {"xfailed": 1, "xpassed": 1}
    assert (data["good"], data["ran"], data["pass_share"]) == (3, 4, 0.75)
    assert data["left_out"] == {"invalid: odd width": 4}
    (cause,) = data["causes"]
    assert cause["cause"] == "ValueError: no"
    assert cause["command"].startswith("optrove sweep sweeps/eltwise/tanh.py --vector-id ")
    assert [each["suite"] for each in data["not_attempted"]] == ["nightly"]
    assert sum(row["planned"] for row in data["ops"]) == 5


def test_an_unfinished_sweep_says_so_and_how_to_go_on(trove):
    shown = ask("results", SWEEP[:6], "--store", trove, exit_code=1)
    assert "5 cases: 2 passed, 1 out of memory, 1 raised, 1 not attempted" in shown
    assert "75.0% passed of 4 cases that ran" in shown
    assert "expected failures: 1 failed as expected, 1 passed unexpectedly" in shown
    assert "left out: 4 invalid: odd width" in shown
    assert "incomplete, 4 of 5, unknown; continue with: optrove sweep --resume" in shown


def test_runs_that_executed_cases_have_no_calls_to_compare_and_diff_says_what_does(trove):
    error = ask("diff", OLD, TRACE, "--store", trove, exit_code=2)
    assert f"optrove results {OLD[:12]} --compare RUN" in error


def test_failures_are_grouped_by_cause_with_commands(trove):
    shown = ask("results", NEW, "--store", trove, exit_code=1)
    assert "8 cases: 5 passed, 1 wrong numbers, 1 rejected, 1 not run" in shown
    assert "71.4% passed of 7 cases that ran" in shown
    assert "pcc: min 0.5, mean 0.8737, max 0.9999 (5 measured, 1 not a number)" in shown
    assert "1x TT_FATAL: no bank 8" in shown
    assert f"optrove replay {id_of(CASES[6])[:12]} --device shadow --board n150 --store" in shown


def test_two_runs_are_compared_and_what_is_worse_ends_with_one(trove):
    data = ask("results", NEW, "--compare", OLD, "--store", trove, "--json", exit_code=1)
    compare = data["compare"]
    changed = {"broken": 2, "fixed": 1, "moved": 2, "slower": 1, "same": 1, "not_run": 1}
    assert compare["counts"] == {**changed, "unlike": 0, "only_a": 0, "only_b": 0}
    assert sum(compare["counts"].values()) == len(CASES)
    # Time on a mock board is the host's, and no regression.
    assert compare["regressions"] == 4
    (slower,) = compare["slower"]
    assert (slower["case_id"], slower["change"]) == (id_of(ADDS[4]), "took 2 ms, takes 400 ms")
    shown = ask("results", OLD, "--compare", OLD, "--store", trove)
    assert "0 broken, 0 fixed, 0 moved, 0 slower, 8 the same" in shown


def test_a_file_of_results_is_compared_like_a_run(trove, tmp_path):
    older = tmp_path / "old.json"
    older.write_text(json.dumps(ask("results", OLD, "--store", trove, "--json", exit_code=1)))
    data = ask("results", NEW, "--compare", older, "--store", trove, "--json", exit_code=1)
    assert data["compare"]["counts"]["broken"] == 2


def test_junit_keeps_apart_what_the_op_and_what_the_machine_did(trove, tmp_path):
    path = tmp_path / "new" / "results.xml"
    ask("results", NEW, "--junit", path, "--store", trove, exit_code=1)
    root = Xml.fromstring(path.read_bytes())  # noqa: S314 - we have just written it
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "2", "errors": "1", "skipped": "0"}
    failure = next(each for each in root.iter("failure") if each.get("type") == "rejected")
    assert "has no bank <b>here</b>\\x00\\x1b[0m" in failure.text
    assert any(suite.get("name") == HOSTILE for suite in root)
    ask("results", SWEEP, "--junit", path, "--store", trove, exit_code=1)
    root = Xml.fromstring(path.read_bytes())  # noqa: S314 - likewise
    skipped = [each.get("type") for each in root.iter("skipped")]
    assert sorted(skipped) == ["not_attempted", "xfail"]


def test_markdown_sums_up_for_ci_and_shows_text_as_text(trove, tmp_path):
    path = tmp_path / "summary.md"
    words = ("results", NEW, "--compare", OLD, "--markdown", path, "--store", trove)
    ask(*words, exit_code=1)
    text = path.read_text()
    assert "8 cases: 5 passed, 1 wrong numbers, 1 rejected, 1 not run" in text
    assert (
        "**7 cases compared, 2 broken, 1 fixed, 2 moved, 1 slower, 1 the same, 1 not compared"
        in text
    )
    assert "### rejected by ttnn\n\n- **1** TT\\_FATAL: no bank 8 (`ttnn.matmul`)" in text
    # Op names are code, in which markup means nothing.
    rest = re.sub(r"``.*?``|`[^`]*`", "", text)
    assert "<script>" not in rest


def test_export_is_what_tt_metal_writes_to_results_export(trove, tmp_path):
    path = tmp_path / "results_export" / "tanh.json"
    ask("results", SWEEP, "--export", path, "--store", trove, exit_code=1)
    rows = json.loads(path.read_text())
    assert {row["sweep_name"] for row in rows} == {"eltwise.tanh"}
    answer = [(row["suite_name"], row["status"].removeprefix("TestStatus.")) for row in rows]
    assert sorted(answer) == [
        ("nightly", "FAIL_ASSERT_EXCEPTION"),
        ("nightly", "NOT_RUN"),
        ("nightly", "PASS"),
        ("xfail_big", "XFAIL"),
        ("xfail_big", "XPASS"),
    ]
    passed = next(row for row in rows if row["status"] == "TestStatus.PASS")
    assert passed["e2e_perf"] == 2.0
    assert passed["original_vector_data"] == {"input_shape": [32, 0]}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("results", "ffff"), "no run begins with 'ffff'"),
        (("results", TRACE), "nothing was executed in run d4d4d4d4d4d4"),
        (("results", NEW, "--compare", SWEEP), "have no case in common"),
        (("results", NEW, "--compare", "nothing.json"), "no run begins with"),
        (("report", TRACE, "--compare", OLD), "has no results to compare"),
    ],
)
def test_what_has_no_results_is_an_error_with_advice(trove, words, answer, tmp_path):
    shown = ask(*words, "--store", trove, exit_code=2)
    assert answer in shown


def test_a_trove_in_which_nothing_was_executed_has_no_results_but_a_report(tmp_path):
    path = make_trove(tmp_path / "trove.db", LLAMA_IMPORT)
    assert "make one with optrove sweep" in ask("results", "--store", path, exit_code=2)
    ask("report", "--store", path, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "ttnn.experimental.paged_fill_cache" in text
    assert ">163<" in text
    assert "9 more are left out" in text


def test_a_report_is_replaced_by_the_next_and_other_files_only_on_demand(
    trove, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.html"

    def answer(*words, exit_code=0):
        done = run("report", "--store", trove, *words)
        assert done.exit_code == exit_code, done.output
        return done.stderr

    first = answer()
    assert first.startswith("report.html: ")
    assert first.endswith("of run c3c3c3c3c3c3: sweep eltwise.tanh\n")
    assert "replaced" in answer()
    report.write_text("<html>mine</html>")
    assert "not a report of optrove; choose a file with -o FILE" in answer(exit_code=2)
    assert report.read_text() == "<html>mine</html>"
    assert "replaced" in answer("-o", "report.html")
    assert "optrove" in report.read_text()


def test_a_report_that_cannot_be_written_is_an_error(trove, tmp_path):
    (tmp_path / "file").write_text("")
    shown = ask("report", "--store", trove, "-o", tmp_path / "file" / "r.html", exit_code=2)
    assert "cannot be written" in shown
