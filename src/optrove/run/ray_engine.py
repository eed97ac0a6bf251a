"""Execute many Jobs on the nodes of a Ray cluster, as ``run_jobs`` does on this machine."""

from __future__ import annotations

import logging
import socket
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.ttnn.boards import find_board
from optrove.errors import FrameworkMissing, UnusableCluster
from optrove.model.records import DeviceKind
from optrove.run.channel import Ground
from optrove.run.orders import Orders
from optrove.run.ray_places import by_place
from optrove.run.ray_pool import Pool, Wanted
from optrove.run.runner import Workers
from optrove.run.tasks import Sent, attempt_of, listed, tasks_of
from optrove.run.workers import COMMAND, Unable
from optrove.settings import RAY, environment, ray_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.records import Attempt, Job, Plan
    from optrove.run.ray_places import Place
    from optrove.run.runner import Tell
    from optrove.run.tasks import Task

WAIT_SECONDS: Final = 600.0
"""How long Jobs wait for a node with their board, at first and after the last one was lost."""

_QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_server_port_wait_time_s": "1",
}
"""What keeps Ray from sending reports, from warning about its own plans, and from asking twenty
times where a cluster was that is gone."""

_THIS_MACHINE: Final = ("localhost", "127.0.0.1")
_KNOCK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster that this process is connected to."""

    ray: Any
    wait_seconds: float = WAIT_SECONDS

    def run_jobs(
        self,
        jobs: Plan | Iterable[Job],
        *,
        board: str | None = None,
        device_kind: DeviceKind | None = None,
        workers: int | Workers | None = None,
        tell: Tell = lambda _: None,
        run_id: str | None = None,
    ) -> Iterator[Attempt]:
        """Yield an Attempt for each Job, in the order in which they end.

        As ``run_jobs`` of this machine, with workers on the nodes that offer the board of the
        Jobs: as many as there is room for, or fewer if ``workers`` says so.
        """
        if board is not None:
            board = find_board(board).name
        ground = Ground(run_id or uuid.uuid4().hex, DeviceKind.HOST, board)
        tasks = tasks_of(listed(jobs, device_kind), ground)
        wanted = workers if isinstance(workers, Workers) else Workers(workers or len(tasks))
        return self._attempts(tasks, wanted, tell)

    def _attempts(self, tasks: list[Task], workers: Workers, tell: Tell) -> Iterator[Attempt]:
        offered = self.ray.cluster_resources()
        placed, unplaced = by_place(tasks, offered)
        orders = Orders()
        for task, reason in unplaced:
            yield attempt_of(Sent(task, orders.of(task.job)), Unable(reason))
        with ExitStack() as stack:
            pools = []
            for place, some in placed.items():
                room = max(1, place.capacity(offered))
                pools.append(self._pool(place, some, workers, room))
                stack.callback(pools[-1].end)
            while pools := [pool for pool in pools if pool.is_busy()]:
                yield from self._step(pools, tell)

    def _pool(self, place: Place, tasks: list[Task], workers: Workers, room: int) -> Pool:
        count = min(workers.count, room, len(tasks))
        command = None if workers.command == COMMAND else tuple(workers.command)
        until = inf if workers.until is None else workers.until
        return Pool(self.ray, place, tasks, Wanted(count, self.wait_seconds, command, until))

    def _step(self, pools: list[Pool], tell: Tell) -> Iterator[Attempt]:
        """Yield what has come within a second."""
        awaited = {ref: (pool, actor) for pool in pools for ref, actor in pool.awaited().items()}
        if awaited:
            ready, _ = self.ray.wait(list(awaited), num_returns=1, timeout=_LOOK_SECONDS)
            for ref in ready:
                pool, actor = awaited[ref]
                yield from pool.ready(actor, tell)
        for pool in pools:
            yield from pool.impatient(tell)


@contextmanager
def ray_engine(
    address: str | None = None, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator[RayEngine]:
    """Connect to a Ray cluster: at an address, at RAY_ADDRESS, or the one of this machine.

    FrameworkMissing without Ray, UnusableCluster when no cluster can be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise FrameworkMissing(
            "--engine ray needs Ray, which is not installed; pip install 'optrove[ray]'"
        ) from error
    if ray.is_initialized():
        yield RayEngine(ray, wait_seconds)
        return
    with environment(_QUIET):
        _connect(ray, address or ray_address())
        try:
            yield RayEngine(ray, wait_seconds)
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address is not None:
            _knock(ray, address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise UnusableCluster(
            f"no Ray cluster can be used {where} ({error}); start one with `ray start --head`, or "
            f"set {RAY.name} to the HOST:PORT of one that this machine belongs to"
        ) from error


def _knock(ray: Any, address: str) -> None:
    """Raise OSError if nobody is at an address: Ray itself would ask there for minutes."""
    host, _, port = address.rpartition(":")
    if "/" in host:
        raise ValueError("nodes have to be reached directly, not through Ray's client")
    here = ray.util.get_node_ip_address() if host in _THIS_MACHINE else host
    with socket.create_connection((here, int(port)), _KNOCK_SECONDS):
        pass
