import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Job
from optrove.model.values import Int
from optrove.replay.fork_server import is_forked
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


SETUP = WorkerSetup("run", DeviceKind.HOST, None)
linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


def unknown():
    """A Job that ends at once, whether torch is installed or not."""
    return JobWriter().message(Job(Case("torch.no_such_function", ()), DeviceKind.HOST))


def execute(worker):
    worker.send(unknown())
    return worker.receive()


def parent_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


@linux
def test_workers_of_one_kind_are_forked_from_one_process():
    workers = [WorkerProcess(SETUP), WorkerProcess(SETUP)]
    try:
        assert [type(execute(worker)) for worker in workers] == [Attempt, Attempt]
        one, other = (worker._process.pid for worker in workers)
        assert one != other
        assert parent_of(one) == parent_of(other) != os.getpid()
    finally:
        for worker in workers:
            worker.end()


@linux
def test_the_signal_that_killed_a_forked_worker_is_known_and_the_next_job_gets_another():
    worker = WorkerProcess(SETUP)
    try:
        execute(worker)
        first = worker._process.pid
        os.kill(first, signal.SIGSEGV)
        died = execute(worker)
        assert isinstance(died, WorkerDied)
        assert died.exit_code == -signal.SIGSEGV
        assert isinstance(execute(worker), Attempt)
        assert parent_of(worker._process.pid) > 1
        assert worker._process.pid != first
    finally:
        worker.end()


@linux
def test_a_forked_worker_works_in_the_directory_of_its_parent(tmp_path, monkeypatch):
    workers = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        workers.append(WorkerProcess(SETUP))
        execute(workers[-1])
    try:
        places = [Path(f"/proc/{each._process.pid}/cwd").readlink() for each in workers]
        assert [place.name for place in places] == ["one", "other"]
    finally:
        for worker in workers:
            worker.end()


@linux
def test_an_interrupt_while_servers_end_kills_them_and_shows_nothing():
    script = f"""
import signal, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from optrove.replay import fork_server
from test_workers import SETUP, WorkerProcess, execute
worker = WorkerProcess(SETUP)
execute(worker)
def has_ended(server, seconds=0):
    if seconds:
        signal.raise_signal(signal.SIGINT)
    return False
fork_server.ForkServer.has_ended = has_ended
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def torch_that_does(code, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(f"import os\n{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@linux
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), 11)", "the process ended with signal 11 (SIGSEGV) before it began"),
        ("os.kill(os.getpid(), 6)", "the process ended with signal 6 (SIGABRT) before it began"),
        ("os._exit(7)", "the process ended with exit code 7 before it began"),
        ("raise OSError('libcudart.so.13: no such file')", "libcudart.so.13: no such file"),
    ],
)
def test_a_framework_that_ends_the_fork_server_is_named_by_what_it_did(
    code, reason, tmp_path, monkeypatch
):
    torch_that_does(code, tmp_path, monkeypatch)
    worker = WorkerProcess(SETUP)
    try:
        assert reason in str(execute(worker))
    finally:
        worker.end()


@linux
def test_forked_workers_end_with_the_process_that_asked_for_them():
    script = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from test_workers import SETUP, WorkerProcess, execute, parent_of
worker = WorkerProcess(SETUP)
execute(worker)
print(worker._process.pid, parent_of(worker._process.pid), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = [Path(f"/proc/{pid}") for pid in ended.stdout.split()]
    deadline = time.monotonic() + 60
    while any(process.exists() for process in left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(process.exists() for process in left)


@linux
@pytest.mark.parametrize(
    ("kind", "board", "op", "forked"),
    [
        (DeviceKind.HOST, None, "torch.ops.aten.add.Tensor", True),
        (DeviceKind.HOST, "cuda:1", "torch.ops.aten.add.Tensor", True),
        (DeviceKind.HOST, "npu", "torch.ops.aten.add.Tensor", False),
        (DeviceKind.HOST, "as recorded, mapped cuda=xpu:0", "torch.ops.aten.add.Tensor", False),
        (DeviceKind.SHADOW, "n150", "ttnn.add", True),
        (DeviceKind.MOCK, "n150", "sweep.module.suite", True),
        (DeviceKind.HOST, None, "sweep.module.suite", False),
        (DeviceKind.HARDWARE, None, "ttnn.add", False),
        (DeviceKind.SIMULATOR, "n150", "ttnn.add", False),
    ],
)
def test_processes_that_may_open_hardware_are_not_forked(kind, board, op, forked):
    assert is_forked(WorkerSetup("run", kind, board), op) is forked
