"""Fork worker processes from one that has imported the frameworks.

Importing ttnn and torch takes seconds, forking a process that has done so milliseconds. A fork
server imports what the workers of one kind of device need, and then forks a worker for each
request. It never asks for devices, since a process must not fork after that: each worker does so
for itself. Boards and the simulator get processes of their own instead.

    parent  the directory to work in, with descriptors of the pipe, the stages, the log, the status
    server  writes the worker's process id to the status, and its exit code when it has ended
    parent  a message without descriptors: the server ends when its last worker has ended

If the parent ends, so does the server, and with it all of its workers.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import OrderedDict
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from optrove.frameworks.installed import torch_deferred
from optrove.model.ops import VECTORS
from optrove.model.records import DeviceKind
from optrove.model.torch_target import TorchTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.replay.messages import WorkerSetup

Work: TypeAlias = "Callable[[int, int], int]"
"""The work of a worker with the descriptors of its pipe and stages; returns its exit code."""

_ON_A_BOARD: Final = ("ttnn", VECTORS.rstrip("."))
_FRAMEWORKS: Final = {
    DeviceKind.HOST: ("torch",),
    DeviceKind.MOCK: _ON_A_BOARD,
    DeviceKind.SHADOW: _ON_A_BOARD,
}
_TORCH_DEVICES: Final = ("cpu", "cuda", "meta")
"""Devices that ``import torch`` leaves alone; backends of others may open theirs."""


def is_forked(setup: WorkerSetup, op: str) -> bool:
    """Return whether a worker whose first Job is of this operation is forked."""
    if sys.platform != "linux" or setup.slow_dispatch:
        return False
    if op.partition(".")[0] not in _FRAMEWORKS.get(setup.device_kind, ()):
        return False
    if setup.device_kind is not DeviceKind.HOST:
        return True
    target = TorchTarget.parse(setup.board)
    devices = (target.device or "cpu", *(new for _, new in target.mapped))
    return all(each.partition(":")[0] in _TORCH_DEVICES for each in devices)


_COMMAND: Final = (sys.executable, "-m", "optrove.replay.worker", "--fork-server")
_NUMBER: Final = struct.Struct("=q")
_NUMBERS: Final = 2
_END_SECONDS: Final = 10.0
_OF_ONE_TEST: Final = "PYTEST_CURRENT_TEST"
"""A variable that differs between the tests of a process, and means nothing to workers."""

_MOST_SERVERS: Final = 3
"""Servers kept by a process; each holds the memory of its frameworks."""


class ForkedProcess:
    """A worker that a fork server has forked or will fork, like a ``subprocess.Popen``."""

    def __init__(self, status: int, server: subprocess.Popen[bytes]) -> None:
        self._status = status
        self._server = server
        self._numbers: list[int] = []
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id; zero if the process was not forked yet."""
        self._read(0)
        return self._numbers[0] if self._numbers else 0

    def kill(self) -> None:
        """Kill the process if it runs; one that is not forked yet will find its pipe closed."""
        self._read(0)
        if len(self._numbers) == 1:
            with suppress(ProcessLookupError):
                os.kill(self._numbers[0], signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Return the exit code; ``subprocess.TimeoutExpired`` if it does not end in time."""
        self._read(timeout)
        if len(self._numbers) < _NUMBERS:
            raise subprocess.TimeoutExpired(_COMMAND, timeout)
        return self._numbers[1]

    def _read(self, seconds: float) -> None:
        """Read the numbers that come within a time: the process id, then the exit code."""
        deadline = time.monotonic() + seconds
        while len(self._numbers) < _NUMBERS:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._status], [], [], left)[0]:
                return
            with self._lock:
                self._read_number()

    def _read_number(self) -> None:
        if len(self._numbers) == _NUMBERS or not select.select([self._status], [], [], 0)[0]:
            return  # another thread has read it
        number = os.read(self._status, _NUMBER.size)
        if number:
            self._numbers += _NUMBER.unpack(number)
        else:  # the server has ended, and its workers with it
            self._numbers += [0, self._server.wait()][len(self._numbers) :]
        if len(self._numbers) == _NUMBERS:
            os.close(self._status)


class _Kind(NamedTuple):
    """What the workers of one server have in common."""

    device_kind: DeviceKind
    board: str | None
    environment: tuple[tuple[str, str], ...]


class ForkServer:
    """The parent's end of a server process, which ends with it."""

    def __init__(self, kind: _Kind) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and words of ours
                [*_COMMAND, str(theirs.fileno()), kind.device_kind.value, kind.board or ""],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=dict(kind.environment),
                start_new_session=True,
            )

    def fork(self, pipe: int, stages: int, log: int) -> ForkedProcess:
        """Have a worker forked as soon as the server is ready; OSError if the server is gone."""
        status, theirs = os.pipe()
        directory = os.fsencode(os.getcwd())  # noqa: PTH109 - as bytes
        try:
            socket.send_fds(self._socket, [directory], [pipe, stages, log, theirs])
        except OSError:
            os.close(status)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(status, self._process)

    def close(self) -> None:
        """Let the server end when its last worker has ended."""
        with suppress(OSError):  # it has ended
            self._socket.send(b"close")

    def has_ended(self, seconds: float = 0) -> bool:
        """Return whether a closed server has ended, after at most that time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self._socket.close()
        return self._process.returncode is not None

    def kill(self) -> None:
        """Kill the server with its workers."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


class ForkServers:
    """The servers of this process, at most one for each kind of worker."""

    def __init__(self) -> None:
        self._servers: OrderedDict[_Kind, ForkServer] = OrderedDict()
        self._closed: list[ForkServer] = []
        self._lock = threading.Lock()

    def fork(
        self, setup: WorkerSetup, environment: Mapping[str, str], pipe: int, stages: int, log: int
    ) -> ForkedProcess:
        """Have a worker forked by the server of its kind; OSError if that is gone."""
        kept = ((name, value) for name, value in environment.items() if name != _OF_ONE_TEST)
        board = None if setup.device_kind is DeviceKind.HOST else setup.board
        kind = _Kind(setup.device_kind, board, tuple(sorted(kept)))
        with self._lock:
            server = self._servers.get(kind)
            if server is None:
                server = self._servers[kind] = ForkServer(kind)
            self._servers.move_to_end(kind)
            try:
                return server.fork(pipe, stages, log)
            except OSError:
                self._retire(kind)
                raise
            finally:
                while len(self._servers) > _MOST_SERVERS:
                    self._retire(next(iter(self._servers)))

    def close(self) -> None:
        """End all servers."""
        with self._lock:
            for kind in list(self._servers):
                self._retire(kind)
            try:
                for server in self._closed:
                    if not server.has_ended(_END_SECONDS):
                        server.kill()
            except KeyboardInterrupt:  # the results are complete: only the servers are in the way
                for server in self._closed:
                    server.kill()
            self._closed.clear()

    def _retire(self, kind: _Kind) -> None:
        server = self._servers.pop(kind)
        server.close()
        self._closed = [each for each in (*self._closed, server) if not each.has_ended()]


@cache
def fork_servers() -> ForkServers:
    """Return the servers of this process, which are kept until it ends."""
    servers = ForkServers()
    atexit.register(servers.close)
    return servers


def serve(channel: int, device_kind: DeviceKind, board: str | None, work: Work) -> int:
    """Import what workers need, then fork one for each request until the parent has ended."""
    # A worker tells about problems: it will have the same ones, whatever a broken import raises.
    with suppress(Exception):
        _preload(device_kind, board)
    running: dict[int, int] = {}
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests = socket.socket(fileno=channel)
    is_open = True
    while is_open or running:
        ready, _, _ = select.select([wake, channel], [], [])
        if wake in ready:
            os.read(wake, 512)
            _report_ended(running)
        if channel in ready:
            directory, descriptors, _, _ = socket.recv_fds(requests, 4096, 4)
            if not directory:  # the parent has ended; the workers end with this process
                return 1
            is_open = bool(descriptors)
            if is_open:
                _fork(directory, descriptors, running, (channel, wake, waker), work)
    return 0


def _preload(device_kind: DeviceKind, board: str | None) -> None:
    if device_kind is DeviceKind.HOST:
        import_module("torch")
        return
    from optrove.frameworks.ttnn.board.mock import preload_board

    # A plain mock board computes no numbers.
    with torch_deferred() if device_kind is DeviceKind.MOCK else nullcontext():
        preload_board(board or "")


def _fork(
    directory: bytes,
    descriptors: list[int],
    running: dict[int, int],
    own: tuple[int, ...],
    work: Work,
) -> None:
    pipe, stages, log, status = descriptors
    with warnings.catch_warnings():
        # The only other threads are those of numpy's linear algebra, which survives a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _become_worker(directory, log, (status, *own, *running.values()))
            code = work(pipe, stages)
        except Exception:  # noqa: BLE001 - the border of the process: shown in its log
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            # Nothing that the server has registered for its own end may run here.
            os._exit(code)
    os.write(status, _NUMBER.pack(pid))
    running[pid] = status
    for descriptor in (pipe, stages, log):
        os.close(descriptor)


def _become_worker(directory: bytes, log: int, own: tuple[int, ...]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in own:
        os.close(descriptor)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(directory)
    # Where a process that is started there looks for modules.
    sys.path[0] = os.fsdecode(directory)


def _report_ended(running: dict[int, int]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            descriptor = running.pop(pid)
            with suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(descriptor, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(descriptor)
