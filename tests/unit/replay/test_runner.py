import os
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from optrove.errors import UnknownBoard
from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job, Outcome
from optrove.model.values import DeviceRef, Int
from optrove.replay.device_choice import device_key
from optrove.replay.runner import Workers, run_jobs
from optrove.serializer.hashes import placement_hash

ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))


def job(op, number=0, device_kind=DeviceKind.HOST, **options):
    return Job(Case(f"odd.{op}", (("a", Int(number)),)), device_kind, **options)


def run(jobs, count=1, **options):
    return list(run_jobs(jobs, workers=Workers(count, ODD), **options))


def test_every_job_gets_one_attempt():
    jobs = [job("add", number) for number in range(10)]
    attempts = run(jobs, run_id="the run")
    assert {each.case_id for each in attempts} == {placement_hash(each.case) for each in jobs}
    assert {each.outcome for each in attempts} == {Outcome.PASSED}
    assert {each.run_id for each in attempts} == {"the run"}
    assert all(each.replayed_case_id == each.case_id for each in attempts)


def test_jobs_that_are_not_begun_in_time_are_left_out_and_the_others_end_in_order():
    jobs = [job("add", number) for number in range(10)]
    over = Workers(2, ODD, until=time.monotonic())
    assert list(run_jobs(jobs, workers=over)) == []
    ample = Workers(2, ODD, until=time.monotonic() + 600)
    assert len(list(run_jobs(jobs, workers=ample))) == len(jobs)


def test_a_job_that_outlasts_the_time_of_the_run_is_interrupted():
    jobs = [job("hang"), job("hang", 1), job("add")]
    for seconds in (2, 10, 60):  # until the worker is quick enough to begin
        limited = Workers(1, ODD, until=time.monotonic() + seconds)
        attempts = list(run_jobs(jobs, workers=limited))
        if attempts:
            break
    assert [(each.outcome, each.detail) for each in attempts] == [
        (
            Outcome.NOT_RUN,
            "budget: its time was over while it was called; the process was killed",
        )
    ]


def test_one_process_executes_all_jobs_of_a_worker():
    attempts = run([job("add", number) for number in range(5)])
    assert len({each.outputs for each in attempts}) == 1


def test_a_crash_and_a_hang_among_many_cost_exactly_those_two():
    jobs = [job("add", number) for number in range(200)]
    jobs[70] = job("crash")
    jobs[130] = job("hang", timeout_ns=500_000_000)
    lines = []
    attempts = {each.case_id: each for each in run(jobs, 2, log=lines.append)}
    assert Counter(each.outcome for each in attempts.values()) == {
        Outcome.PASSED: 198,
        Outcome.CRASHED: 1,
        Outcome.HUNG: 1,
    }
    crashed = attempts[placement_hash(jobs[70].case)]
    assert crashed.outcome is Outcome.CRASHED
    assert "signal 11 (SIGSEGV) while it was called" in crashed.detail
    assert "last words" in crashed.detail
    hung = attempts[placement_hash(jobs[130].case)]
    assert hung.outcome is Outcome.HUNG
    assert "within 0.5 s while it was called" in hung.detail
    assert sorted(line.partition(":")[0] for line in lines) == ["odd.crash", "odd.hang"]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("unbuildable", "$.arguments.a: no converter knows it"),
        ("faulty", "the replay itself failed"),
        ("crash_while_made", "SIGABRT) while its arguments were made"),
        (
            "killed_while_made",
            "the host has no memory left (numbers of large tensors take it; fewer",
        ),
        ("killed", "it was killed from outside, most often because the host has no memory left"),
    ],
)
def test_what_is_not_the_operations_doing_is_not_its_failure(op, words):
    (attempt,) = run([job(op)])
    assert attempt.outcome is Outcome.NOT_RUN
    assert words in attempt.detail


@pytest.mark.parametrize(
    ("mesh", "words"), [((6, 6), "could not be opened"), ((7, 7), "while the device was opened")]
)
def test_a_device_that_does_not_open_is_not_the_operations_failure(mesh, words):
    case = Case("odd.add", (("device", DeviceRef("odd.Device", mesh)),))
    attempts = run([Job(case, DeviceKind.HOST), job("add")])
    assert sorted(each.outcome.value for each in attempts) == ["not_run", "passed"]
    (lost,) = (each for each in attempts if each.outcome is Outcome.NOT_RUN)
    assert words in lost.detail


def on_mesh(number, *mesh):
    arguments = (("a", Int(number)), ("device", DeviceRef("odd.Device", mesh)))
    return Job(Case("odd.add", arguments), DeviceKind.HOST)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_opening_costs_a_worker_and_the_cases_of_that_device_alone(workers):
    jobs = [on_mesh(number, 5, 5) for number in range(20)]
    jobs += [on_mesh(number, 2, 2) for number in range(30)]
    jobs += [on_mesh(number, 3, 3) for number in range(10)]
    attempts = {each.case_id: each for each in run(jobs, workers)}
    details = [attempts[placement_hash(each.case)].detail for each in jobs]
    assert details == ["device 1 is not active"] * 20 + [None] * 40
    # Each worker process that tried to open the device was the last to try it.
    pids = {each.outputs for each in attempts.values() if each.outcome is Outcome.PASSED}
    assert len(pids) <= 2 * workers


def test_a_device_that_a_used_process_cannot_open_is_opened_by_a_new_one():
    jobs = [on_mesh(number, 2, 2) for number in range(5)] + [on_mesh(0, 4, 4), on_mesh(1, 4, 4)]
    attempts = run(jobs)
    assert Counter(each.outcome for each in attempts) == {Outcome.PASSED: len(jobs)}
    assert len({each.outputs for each in attempts}) == 2


def test_an_operation_that_refuses_is_rejected_in_its_own_words():
    (attempt,) = run([job("refuse")])
    assert attempt.outcome is Outcome.REJECTED
    assert attempt.detail.splitlines()[0] == "no"
    assert "TT_FATAL @ x:1: y" in attempt.detail


def test_a_crash_on_a_mock_board_is_tried_again_with_slow_dispatch():
    jobs = [job(op, device_kind=DeviceKind.MOCK) for op in ("crash_unless_slow", "add")]
    attempts = run(jobs, board="galaxy")
    assert {each.outcome for each in attempts} == {Outcome.PASSED}
    (retried,) = (each for each in attempts if each.notes)
    assert retried.notes[0].startswith("with fast dispatch the process ended with signal 11")
    assert retried.notes[0].endswith("TT_METAL_SLOW_DISPATCH_MODE=1")


def test_a_crash_with_slow_dispatch_too_is_a_crash():
    (attempt,) = run([job("crash", device_kind=DeviceKind.MOCK)], board="galaxy")
    assert attempt.outcome is Outcome.CRASHED
    assert "with fast dispatch" in attempt.notes[0]


def test_a_board_that_has_slow_dispatch_anyway_is_not_tried_twice():
    (attempt,) = run([job("crash", device_kind=DeviceKind.MOCK)], board="n300")
    assert attempt.outcome is Outcome.CRASHED
    assert attempt.notes == ()


def test_a_worker_that_cannot_be_set_up_answers_for_all_jobs(monkeypatch):
    monkeypatch.setenv("ODD_UNABLE", "1")
    attempts = run([job("add", number) for number in range(20)])
    assert {(each.outcome, each.detail) for each in attempts} == {
        (Outcome.NOT_RUN, "this machine is not for odd things")
    }


KILLED_ONCE = """
import os, signal, sys
from pathlib import Path

marker, *worker = sys.argv[1:]
if not Path(marker).exists():
    Path(marker).touch()
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(worker[0], worker)
"""


def test_a_worker_that_is_killed_while_it_starts_costs_nothing(tmp_path):
    command = (sys.executable, "-c", KILLED_ONCE, str(tmp_path / "killed"), *ODD)
    attempts = list(run_jobs([job("add"), job("refuse")], workers=Workers(1, command)))
    assert [each.outcome for each in attempts] == [Outcome.PASSED, Outcome.REJECTED]
    assert (tmp_path / "killed").exists()


def test_a_command_that_is_no_worker_answers_for_all_jobs():
    broken = Workers(1, (sys.executable, "-c", "raise SystemExit('not a worker')"))
    (attempt,) = run_jobs([job("add")], workers=broken)
    assert attempt.outcome is Outcome.NOT_RUN
    assert "not a worker" in attempt.detail


def test_workers_close_what_they_have_opened(tmp_path, monkeypatch):
    marker = tmp_path / "closed"
    monkeypatch.setenv("ODD_CLOSED", str(marker))
    run([job("add", number) for number in range(4)], 2)
    assert set(marker.read_text().split()) == {"closed"}


def test_closing_the_iterator_early_ends_the_workers():
    jobs = [job("add"), *(job("hang", number) for number in range(4))]
    attempts = run_jobs(jobs, workers=Workers(2, ODD))
    first = next(attempts)
    attempts.close()
    (pid,) = (part.value for part in first.outputs)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_jobs_give_no_attempts():
    assert run([]) == []


def test_an_unknown_board_is_an_error_at_once():
    with pytest.raises(UnknownBoard, match="galaxy"):
        run_jobs([], board="galaxi")


def test_jobs_of_one_device_come_one_after_another():
    shapes = [(1, 1), (2, 2)] * 5
    jobs = [
        Job(
            Case("odd.add", (("a", Int(number)), ("device", DeviceRef("odd.Device", shape)))),
            DeviceKind.HOST,
            device=DeviceParameters(fabric_config="DISABLED"),
        )
        for number, shape in enumerate(shapes)
    ]
    by_id = {placement_hash(each.case): each for each in jobs}
    order = [device_key(by_id[each.case_id], None) for each in run(jobs)]
    changes = sum(one != other for one, other in pairwise(order))
    assert changes == 1
