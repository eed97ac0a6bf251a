import sys
import tempfile
from pathlib import Path

from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Job
from optrove.model.values import Int
from optrove.replay.messages import JobWriter, WorkerSetup
from optrove.replay.workers import WorkerDied, WorkerProcess

ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))


def test_a_job_sent_to_a_dead_worker_does_not_hide_who_killed_it():
    writer = JobWriter()
    good, bad, late = (
        writer.message(Job(Case(f"odd.{op}", (("a", Int(0)),)), DeviceKind.HOST))
        for op in ("add", "crash", "add")
    )
    worker = WorkerProcess(WorkerSetup("run", DeviceKind.HOST, None), ODD)
    try:
        worker.send(good)
        worker.send(bad)
        worker._process.wait(60)
        worker.send(late)
        assert isinstance(worker.receive(), Attempt)
        died = worker.receive()
        assert isinstance(died, WorkerDied)
        assert died.stage is Stage.CALLING
    finally:
        worker.end()


def test_files_of_a_replay_that_crashed_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = WorkerProcess(WorkerSetup("run", DeviceKind.HOST, None), ODD)
    try:
        add, crash = (
            JobWriter().message(Job(Case(f"odd.{op}", ()), DeviceKind.HOST))
            for op in ("add", "crash")
        )
        worker.send(add)
        assert isinstance(worker.receive(), Attempt)
        left = tmp_path / f"optrove-replay-{worker._process.pid}-x"
        others = tmp_path / "optrove-replay-x"
        for directory in (left, others):
            directory.mkdir()
            (directory / "tensor.tensorbin").touch()
        worker.send(crash)
        assert isinstance(worker.receive(), WorkerDied)
        assert list(tmp_path.iterdir()) == [others]
    finally:
        worker.end()
