import sys
import tempfile
from pathlib import Path

from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job
from optrove.model.values import Int
from optrove.replay.messages import Ground, Orders
from optrove.replay.workers import Answered, Died, WorkerProcess

ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))


def test_a_job_sent_to_a_dead_worker_does_not_hide_who_killed_it():
    orders = Orders()
    good, bad, late = (
        orders.of(Job(Case(f"odd.{op}", (("a", Int(0)),)), DeviceKind.HOST))
        for op in ("add", "crash", "add")
    )
    worker = WorkerProcess(Ground("run", DeviceKind.HOST, None), ODD)
    try:
        worker.send(good)
        worker.send(bad)
        worker._process.wait(60)
        worker.send(late)
        assert isinstance(worker.receive(), Answered)
        died = worker.receive()
        assert isinstance(died, Died)
        assert died.stage is Stage.CALLING
    finally:
        worker.end()


def test_files_of_a_replay_that_crashed_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = WorkerProcess(Ground("run", DeviceKind.HOST, None), ODD)
    try:
        jobs = [Job(Case(f"odd.{op}", ()), DeviceKind.HOST) for op in ("add", "crash")]
        assert isinstance(worker.perform(jobs[0]), Answered)
        left = tmp_path / f"optrove-replay-{worker._process.pid}-x"
        others = tmp_path / "optrove-replay-x"
        for directory in (left, others):
            directory.mkdir()
            (directory / "tensor.tensorbin").touch()
        assert isinstance(worker.perform(jobs[1]), Died)
        assert list(tmp_path.iterdir()) == [others]
    finally:
        worker.end()
