"""Sessions that are traced straight into a trove."""

import signal
import sys
from pathlib import Path

import pytest

from optrove.model.records import CallOutcome, TestOutcome
from optrove.model.trove import RunState
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

SUPPORT = Path(__file__).parents[1] / "support"

TESTS = """
import pytest
from traced_program import add

@pytest.fixture
def number():
    return add(1, 1)

@pytest.mark.parametrize("other", range(16))
def test_add(number, other):
    for _ in range(3):
        assert add(number, other) == number + other
"""


DEADLY = f"""{TESTS}
    if other == 7:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    for name in ("OPTROVE_BOARD", "OPTROVE_STORE", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV"):
        monkeypatch.delenv(name, raising=False)


def run(pytester, *options, source=TESTS):
    pytester.makepyfile(test_model=source)
    return pytester.runpytest_subprocess("--optrove-store", "trove.db", *options)


@pytest.fixture
def trove(pytester):
    """Opens the trove of the session that was run."""
    readers = []

    def opened():
        readers.append(open_reader(place_of(str(pytester.path / "trove.db"))))
        return readers[-1].__enter__()

    yield opened
    for reader in readers:
        reader.__exit__(None, None, None)


@pytest.mark.parametrize("processes", [(), ("-n", "4")], ids=["alone", "four workers"])
def test_no_call_and_no_result_of_a_session_is_lost(pytester, trove, processes):
    result = run(pytester, *processes)
    result.assert_outcomes(passed=16)
    result.stdout.fnmatch_lines(
        ["optrove: tracing op calls, into *trove.db", "trove: *trove.db, *"]
    )
    reader = trove()
    (row,) = reader.runs()
    assert (row.calls, row.cases, row.complete) == (16 * 4, 17, True)
    assert dict(row.tests) == {"passed": 16}
    calls = list(reader.calls(row.run.id))
    assert len(calls) == row.calls
    by_test = {call.test_id for call in calls}
    assert by_test == {f"test_model.py::test_add[{number}]" for number in range(16)}
    assert not (pytester.path / "trove.db.journals").exists()


def test_sessions_one_after_another_are_runs_of_one_trove(pytester, trove):
    run(pytester)
    result = run(pytester, "-k", "add[3]")
    result.stdout.fnmatch_lines(["trove: *trove.db, 2 of the cases were in it already"])
    assert [row.calls for row in trove().runs()] == [4, 64]


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("raise KeyboardInterrupt", RunState.INTERRUPTED),
        ("pytest.exit('enough')", RunState.INTERRUPTED),
        ("assert False", RunState.COMPLETE),
    ],
)
def test_a_session_that_is_interrupted_is_not_complete(pytester, trove, end, state):
    result = run(pytester, source=f"{TESTS}\n    if other == 7:\n        {end}\n")
    (row,) = trove().runs()
    assert row.progress.state is state
    # The exit code of pytest itself is its own.
    assert result.ret == (2 if state is RunState.INTERRUPTED else 1)


def test_an_error_of_collection_is_no_interrupt(pytester, trove):
    result = run(pytester, source=f"{TESTS}\nadd(1, 1)\nimport no_such_module\n")
    (row,) = trove().runs()
    assert (result.ret, row.run.exit_code) == (2, 2)
    assert row.progress.state is RunState.COMPLETE


def test_a_worker_that_crashes_costs_no_other_call(pytester, trove):
    result = run(pytester, "-n", "2", source=DEADLY)
    result.assert_outcomes(passed=15, failed=1)
    reader = trove()
    (row,) = reader.runs()
    assert row.calls == 16 * 4
    assert not row.complete
    assert {call.outcome for call in reader.calls(row.run.id)} == {CallOutcome.RETURNED}


def test_a_session_that_is_killed_is_recovered_by_the_next_command(pytester, trove):
    result = run(pytester, source=DEADLY)
    assert result.ret == -signal.SIGKILL
    command = (sys.executable, "-m", "optrove", "runs", "--store", "trove.db")
    pytester.run(*command).stderr.fnmatch_lines(["optrove: recovered run *: 32 calls, 9 new cases"])
    reader = trove()
    (row,) = reader.runs()
    assert row.calls == 8 * 4
    outcomes = [test.outcome for test in reader.tests(row.run.id)]
    assert outcomes == [TestOutcome.PASSED] * 7


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_trove_that_cannot_be_used_is_a_usage_error(pytester, processes):
    (pytester.path / "trove.db").write_text("dear to somebody")
    result = run(pytester, *processes)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*trove.db*"])
    assert (pytester.path / "trove.db").read_text() == "dear to somebody"


def test_a_session_without_calls_leaves_no_trove(pytester):
    result = run(pytester, source="def test_one(): pass")
    result.stdout.fnmatch_lines(["not a single op call was traced: *"])
    assert [path.name for path in pytester.path.iterdir() if "trove" in path.name] == []
