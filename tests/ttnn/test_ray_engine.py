"""A Ray cluster of two nodes on this machine: one has a Galaxy to offer, the other an N300."""

import os
import select
import shlex
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

# Ray reads these when it is imported: nothing leaves this machine, and nothing is reported.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

from broken_cases import tensor
from optrove.errors import UnknownBoard
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Outcome
from optrove.model.values import DeviceRef, Int, Text
from optrove.replay.ray_engine import ray_engine
from optrove.replay.runner import Workers, run_jobs
from optrove.serializer.hashes import placement_hash

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

ODD = (sys.executable, str(Path(__file__).parents[1] / "support" / "odd_worker.py"))
SMALL = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
SHORT_NS = 500_000_000


class TwoNodes:
    """The cluster, and the node that comes and goes."""

    def __init__(self, directory):
        self.board = directory / "wedged"
        head = self._node("galaxy") | {"node_ip_address": "127.0.0.1"}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.n300 = None
        self.add()

    def add(self):
        self.n300 = self.cluster.add_node(**self._node("n300"))

    def remove(self):
        self.cluster.remove_node(self.n300)

    def _node(self, board):
        variables = {
            "ODD_NODE": board,
            "ODD_BOARD": str(self.board),
            "TT_SMI_RESET_COMMAND": shlex.join(["rm", str(self.board)]),
        }
        return SMALL | {"resources": {board: 1}, "env_vars": variables}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    nodes = TwoNodes(tmp_path_factory.mktemp("cluster"))
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture(scope="module")
def engine(nodes):
    with ray_engine(nodes.cluster.address) as engine:
        yield engine


def job(op, number=0, kind=DeviceKind.MOCK, mesh=None, **options):
    device = () if mesh is None else (("device", DeviceRef("odd.Device", mesh)),)
    return Job(Case(f"odd.{op}", (("a", Int(number)), *device)), kind, **options)


def verdict(attempt):
    """What an Attempt says, apart from when and in which process it was."""
    words = (attempt.detail or "").partition("Fatal Python error")[0]
    return replace(attempt, run_id="", started_at=None, duration_ns=None, outputs=(), detail=words)


def verdicts(attempts):
    return {each.case_id: verdict(each) for each in attempts}


def test_the_same_jobs_get_the_same_verdicts_as_on_this_machine(engine):
    jobs = [job("add", number) for number in range(40)]
    jobs += [job("crash"), job("hang", timeout_ns=SHORT_NS), job("refuse"), job("unbuildable")]
    lines = []
    there = list(engine.run_jobs(jobs, board="galaxy", workers=Workers(4, ODD), log=lines.append))
    here = run_jobs(jobs, board="galaxy", workers=Workers(1, ODD))
    assert len(there) == len(jobs)
    assert verdicts(there) == verdicts(here)
    assert Counter(each.outcome for each in there)[Outcome.PASSED] == 40
    assert any("odd.hang: no end within 0.5 s" in line for line in lines)


def test_real_operations_get_the_same_verdicts_as_on_this_machine(engine):
    cases = [
        Case("ttnn.relu", (("input_tensor", tensor(0, (1, 1, 32, 64))),)),
        Case("ttnn.relu", (("input_tensor", tensor(0, (1, 1, 64, 64))),)),
        Case("ttnn.no_such_op", (("input_tensor", tensor(0, (1, 1, 32, 32))),)),
    ]
    jobs = [Job(case, DeviceKind.MOCK) for case in cases]
    there = verdicts(engine.run_jobs(jobs, board="n300"))
    assert there == verdicts(run_jobs(jobs, board="n300"))
    assert [there[placement_hash(case)].outcome for case in cases] == [
        Outcome.PASSED,
        Outcome.PASSED,
        Outcome.NOT_RUN,
    ]


def test_each_job_lands_where_its_mesh_is_and_what_is_nowhere_is_not_run(engine):
    hardware = {"kind": DeviceKind.HARDWARE}
    jobs = [
        job("where", 1, mesh=(1, 2), **hardware),
        job("where", 2, mesh=(4, 8), **hardware),
        job("where", 3, mesh=(8, 8), **hardware),
    ]
    found = {each.case_id: each for each in engine.run_jobs(jobs, workers=Workers(9, ODD))}
    small, large, nowhere = (found[placement_hash(each.case)] for each in jobs)
    assert small.outputs == (Text("n300"),)
    assert large.outputs == (Text("galaxy"),)
    assert nowhere.outcome is Outcome.NOT_RUN
    assert "board with 64 chips (boards offered: n300, galaxy)" in nowhere.detail


def test_a_board_is_reset_on_the_node_that_has_it(engine, nodes):
    lines = []
    jobs = [job("wedge", kind=DeviceKind.HARDWARE, timeout_ns=SHORT_NS)]
    jobs += [job("add", number, kind=DeviceKind.HARDWARE) for number in range(3)]
    attempts = engine.run_jobs(jobs, board="n300", workers=Workers(1, ODD), log=lines.append)
    assert Counter(each.outcome for each in attempts) == {Outcome.HUNG: 1, Outcome.PASSED: 3}
    assert sum("the board was reset" in line for line in lines) == 1
    assert not nodes.board.exists()


def test_a_node_that_cannot_work_is_the_reason_of_all_that_was_not_run(engine):
    broken = Workers(2, (sys.executable, "-c", "raise SystemExit('not a worker')"))
    attempts = list(engine.run_jobs([job("add", 1), job("add", 2)], board="n300", workers=broken))
    assert [each.outcome for each in attempts] == [Outcome.NOT_RUN] * 2
    assert all("not a worker" in each.detail for each in attempts)


def test_a_lost_node_costs_nothing_but_time(engine, nodes):
    jobs = [job("add", number) for number in range(60)]
    lines = []
    attempts = []
    run = engine.run_jobs(jobs, board="n300", workers=Workers(1, ODD), log=lines.append)
    with closing(run):
        for attempt in run:
            attempts.append(attempt)
            if len(attempts) == 5:
                nodes.remove()
                nodes.add()
    assert Counter(each.case_id for each in attempts) == {
        placement_hash(each.case): 1 for each in jobs
    }
    assert {each.outcome for each in attempts} == {Outcome.PASSED}
    assert len({each.outputs for each in attempts}) == 2, "two processes, one after the other"
    assert any("was lost; its" in line for line in lines)


def test_a_node_that_does_not_come_back_is_waited_for_and_then_reported(engine, nodes):
    jobs = [job("add", number) for number in range(60)]
    impatient = replace(engine, wait_seconds=1.0)
    attempts = []
    run = impatient.run_jobs(jobs, board="n300", workers=Workers(1, ODD))
    with closing(run):
        for attempt in run:
            attempts.append(attempt)
            if len(attempts) == 5:
                nodes.remove()
    nodes.add()
    assert len(attempts) == 60
    lost = [each for each in attempts if each.outcome is Outcome.NOT_RUN]
    assert {each.detail for each in lost} == {
        "no node of the Ray cluster with the resource n300 was there within 1 s"
    }


def test_closing_the_iterator_early_ends_the_workers(engine):
    jobs = [job("add"), *(job("hang", number) for number in range(4))]
    run = engine.run_jobs(jobs, board="galaxy", workers=Workers(1, ODD))
    (pid,) = (part.value for part in next(run).outputs)
    descriptor = os.pidfd_open(pid)
    try:
        run.close()
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        assert ended.poll(60_000)
    finally:
        os.close(descriptor)


def test_no_jobs_and_an_unknown_board(engine):
    assert list(engine.run_jobs([])) == []
    with pytest.raises(UnknownBoard, match="galaxy"):
        engine.run_jobs([], board="galaxi")
