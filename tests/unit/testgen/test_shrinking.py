"""Failing cases are shrunk, here with a picky worker process in the place of ttnn."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from optrove.errors import NotReplayable
from optrove.model.records import Attempt, DeviceKind, Job, Outcome
from optrove.model.values import Int
from optrove.replay.device_choice import TargetDevice
from optrove.replay.planning import PlannedJob
from optrove.replay.runner import Workers
from optrove.serializer.hashes import placement_hash
from optrove.testgen.shrink import Failure, Limits, failure_of, shrink
from trove_rows import case, memory, shard, tensor

pytestmark = pytest.mark.slow

WORKER = str(Path(__file__).parents[2] / "support" / "picky_worker.py")
PICKY = Workers(1, (sys.executable, WORKER))
HERE = TargetDevice(DeviceKind.HOST)
SHARDED = memory("L1_WIDTH_SHARDED", shard((32, 64), (7, 0)))


def planned(one, outputs=None):
    return PlannedJob(Job(one, DeviceKind.HOST, outputs=outputs), placement_hash(one))


def take(*shape, where=None, scale=2, **more):
    return case("picky.take", input=tensor(*shape, where=where), scale=scale, **more)


def shrunk(one, limits=None, log=lambda _: None):
    return shrink(planned(one), HERE, limits or Limits(), log, PICKY)


def attempt(outcome, detail):
    return Attempt("run", "case", outcome, DeviceKind.MOCK, detail=detail)


def test_all_goes_that_does_not_matter_and_what_matters_stays():
    lines = []
    found = shrunk(take(2, 8, 64, 512, where=SHARDED, alpha=1, beta=True), log=lines.append)
    arguments = dict(found.case.arguments)
    assert sorted(arguments) == ["input", "scale"]
    assert arguments["input"].placement.memory == memory()
    assert arguments["input"].shape == (32, 32)
    assert found.finished
    assert found.attempt.outcome is Outcome.REJECTED
    assert found.attempt.case_id == placement_hash(found.case)
    assert "without alpha, beta" in found.steps or {"without alpha", "without beta"} <= {
        *found.steps
    }
    assert lines


def test_a_case_that_cannot_be_simpler_stays():
    found = shrunk(take(32, 32))
    assert found.case == found.original
    assert found.steps == ()
    assert found.finished


def test_a_crash_is_shrunk_like_any_other_failure():
    found = shrunk(take(1, 1, 64, 64, note="crash", alpha=1))
    assert sorted(dict(found.case.arguments)) == ["input", "note"]
    assert dict(found.case.arguments)["input"].shape == (32, 32)
    assert found.attempt.outcome is Outcome.CRASHED


def test_limits_end_the_search_with_what_was_found():
    large = take(4, 8, 256, 512, where=SHARDED, alpha=1, beta=2)
    few = shrunk(large, Limits(trials=9))
    assert few.trials <= 9
    assert not few.finished
    late = shrunk(large, Limits(seconds=1e-9))
    assert late.case == large
    assert not late.finished


@pytest.mark.parametrize(
    ("one", "outputs", "advice"),
    [
        (take(1, 32), None, "passes on the recorded devices: there is no failure to shrink"),
        (take(1, 32, note="unbuildable"), None, "could not be run on the recorded devices"),
        (take(1, 32), (Int(2),), "returns another output than recorded"),
    ],
)
def test_what_does_not_fail_by_itself_is_an_error_with_advice(one, outputs, advice):
    with pytest.raises(NotReplayable, match=advice):
        shrink(planned(one, outputs), HERE, Limits(), workers=PICKY)


class TestFailures:
    def test_are_the_same_whatever_the_numbers_and_ranks(self):
        one = attempt(Outcome.REJECTED, "no room for [1, 1, 32] of 0x1f at 3.5\nmore")
        other = attempt(Outcome.REJECTED, "no room for [64, 32] of 12 at 7\nother")
        assert failure_of(one) == failure_of(other)
        assert failure_of(one) == Failure(Outcome.REJECTED, "no room for [N] of N at N")

    def test_differ_by_outcome_and_by_words(self):
        one = attempt(Outcome.REJECTED, "no room")
        assert failure_of(one) != failure_of(replace(one, outcome=Outcome.OUT_OF_MEMORY))
        assert failure_of(one) != failure_of(replace(one, detail="no rooms"))
