import os
import select
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from optrove.errors import BadSetting
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Outcome
from optrove.model.values import Int
from optrove.replay.resets import FRUITLESS, reset
from optrove.replay.runner import Workers, run_jobs

pytestmark = pytest.mark.slow

ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))
SHORT_NS = 300_000_000


def job(op, number=0):
    case = Case(f"odd.{op}", (("a", Int(number)),))
    timeout_ns = SHORT_NS if op in ("hang", "wedge") else None
    return Job(case, DeviceKind.HARDWARE, timeout_ns=timeout_ns)


def shell(script):
    return shlex.join(["sh", "-c", script])


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A board that does not answer while this file is there."""
    path = tmp_path / "wedged"
    monkeypatch.setenv("ODD_BOARD", str(path))
    return path


@pytest.fixture
def run(monkeypatch):
    """Run Jobs with a reset command; return the Attempts by op, and the lines for the user."""

    def with_reset(command, *jobs):
        if command is not None:
            monkeypatch.setenv("TT_SMI_RESET_COMMAND", command)
        ops = {}
        printed = []
        for attempt in run_jobs(jobs, workers=Workers(2, ODD), log=printed.append):
            ops[attempt.case_id] = attempt
        assert len(ops) == len(jobs)
        return list(ops.values()), printed

    return with_reset


def outcomes(attempts):
    return Counter(each.outcome for each in attempts)


def test_a_board_that_an_operation_has_wedged_is_reset_before_the_next_job(run, board, tmp_path):
    log = tmp_path / "resets"
    command = shell(f"echo reset >> {log}; rm {board}")
    attempts, printed = run(command, job("add", 1), job("wedge"), job("add", 2), job("add", 3))
    assert outcomes(attempts) == {Outcome.PASSED: 3, Outcome.HUNG: 1}
    assert log.read_text() == "reset\n"
    assert any(line.startswith("the board was reset, for no end within 0.3 s") for line in printed)


def test_without_a_hang_nothing_is_reset(run, tmp_path):
    log = tmp_path / "resets"
    attempts, _ = run(shell(f"echo reset >> {log}"), job("add"), job("refuse"), job("unbuildable"))
    assert len(outcomes(attempts)) == 3
    assert not log.exists()


def test_a_job_that_met_a_faulty_machine_has_its_chance_after_the_reset(run, board):
    board.touch()
    attempts, printed = run(shell(f"rm {board}"), job("add"))
    assert outcomes(attempts) == {Outcome.PASSED: 1}
    assert printed == ["the board was reset, for a fault of the machine"]


def test_a_board_that_resets_do_not_bring_back_is_given_up(run, board):
    jobs = [job("add", number) for number in range(20)]
    attempts, printed = run(shell("exit 0"), job("add", 100), job("wedge"), *jobs)
    assert outcomes(attempts) == {Outcome.PASSED: 1, Outcome.HUNG: 1, Outcome.NOT_RUN: 20}
    reasons = {each.detail.splitlines()[0] for each in attempts if each.outcome is Outcome.NOT_RUN}
    assert any("sh -c 'exit 0' does not help" in reason for reason in reasons)
    assert sum(line.startswith("the board was reset") for line in printed) == FRUITLESS
    assert "the board was given up" in printed[-1]


def test_a_reset_that_fails_is_tried_again_and_then_the_board_is_given_up(run):
    command = shell("echo no such chip; exit 3")
    attempts, printed = run(command, job("hang"), *(job("add", number) for number in range(5)))
    assert outcomes(attempts) == {Outcome.HUNG: 1, Outcome.NOT_RUN: 5}
    failed = "the reset of the board failed: it ended with exit code 3: no such chip"
    assert printed.count(failed) == FRUITLESS
    (reason,) = {each.detail for each in attempts if each.outcome is Outcome.NOT_RUN}
    assert f"{FRUITLESS} resets in a row failed: it ended with exit code 3" in reason


def test_operations_that_hang_one_after_another_do_not_condemn_a_board_that_works(run):
    hanging = [job("hang", number) for number in range(FRUITLESS + 1)]
    attempts, printed = run("true", job("add"), *hanging, job("refuse"))
    assert outcomes(attempts)[Outcome.HUNG] == len(hanging)
    assert outcomes(attempts)[Outcome.PASSED] == 1
    assert not any("given up" in line for line in printed)


def test_without_a_reset_command_a_dead_board_is_given_up_with_advice(run, board):
    board.touch()
    attempts, _ = run(None, *(job("add", number) for number in range(10)))
    assert outcomes(attempts) == {Outcome.NOT_RUN: 10}
    details = Counter(each.detail.splitlines()[0] for each in attempts)
    assert any("set TT_SMI_RESET_COMMAND" in line for line in details)
    assert "the machine failed, not the operation: the board no longer answers" in details


def test_an_interrupt_ends_the_worker_and_resets_nothing(tmp_path, monkeypatch):
    log = tmp_path / "resets"
    monkeypatch.setenv("TT_SMI_RESET_COMMAND", shell(f"echo reset >> {log}"))
    endless = replace(job("hang"), timeout_ns=None)
    attempts = run_jobs([job("add"), endless], workers=Workers(1, ODD))
    assert next(attempts).outcome is Outcome.PASSED
    attempts.close()
    assert not log.exists()


def test_a_command_that_cannot_be_taken_apart_is_an_error_at_once(monkeypatch):
    monkeypatch.setenv("TT_SMI_RESET_COMMAND", "tt-smi 'r 0")
    with pytest.raises(BadSetting, match="TT_SMI_RESET_COMMAND"):
        run_jobs([job("add")])


def test_a_reset_has_a_deadline_and_leaves_no_children(tmp_path):
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    # A reader does not notice that all writers are gone if there was never one.
    writer = os.open(held, os.O_WRONLY)
    try:
        problem = reset(["sh", "-c", f"sleep 600 > {held} & wait"], 0.5)
        os.close(writer)
        ended = select.poll()
        ended.register(reader, 0)
        assert ended.poll(60_000) == [(reader, select.POLLHUP)]
    finally:
        os.close(reader)
    assert problem == "no end within 0.5 s; it was killed"


def test_a_reset_command_that_is_not_there_is_a_failed_reset():
    assert "no-such-command" in reset(["no-such-command"])
