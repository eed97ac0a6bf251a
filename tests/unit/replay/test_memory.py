"""Jobs are admitted by the memory that they need."""

import threading

import pytest

from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job
from optrove.model.values import MeshPlacement, TensorSpec, TtnnPlacement
from optrove.replay.memory import BYTES_PER_NUMBER, MemoryBudget, needed_memory


def job(*specs, outputs=(), kind=DeviceKind.SHADOW):
    arguments = tuple((f"arg{place}", spec) for place, spec in enumerate(specs))
    return Job(Case("ttnn.add", arguments), kind, outputs=outputs)


def spec(storage, dims=(None, None)):
    chips = tuple((0, chip) for chip in range(4))
    mesh = MeshPlacement((1, 4), dims, chips)
    placement = TtnnPlacement((64, 64), "TILE", None, "device", None, (1, 4), mesh)
    return TensorSpec((64, 64), "ttnn.bfloat16", placement, storage=storage)


def test_all_different_numbers_of_a_case_count_once():
    one = 64 * 64 * BYTES_PER_NUMBER
    assert needed_memory(job(spec(0), spec(1), outputs=(spec(2),))) == 3 * one
    assert needed_memory(job(spec(0), spec(0), outputs=(spec(0),))) == one
    assert needed_memory(job(spec(0, dims=(None, 0)))) == 4 * one
    assert needed_memory(job(spec(0), kind=DeviceKind.MOCK)) == 0


def test_a_job_waits_until_others_have_ended():
    budget, stopping = MemoryBudget(1000), threading.Event()
    assert budget.admits(0, 500)
    assert not budget.admits(1, 400)
    assert budget.admits(1, 300)
    budget.release(1)
    waiting = threading.Thread(target=budget.wait, args=(1, 700, stopping))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    budget.release(0)
    waiting.join(10)
    assert not waiting.is_alive()
    assert not budget.admits(0, 200)


@pytest.mark.parametrize("available", [100, None])
def test_a_job_that_never_fits_runs_alone(available):
    budget = MemoryBudget(available)
    assert budget.admits(0, 10**6)
    assert budget.admits(1, 10**6) is (available is None)
