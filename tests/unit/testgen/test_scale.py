"""Scaled cases call the same op with smaller tensors, as far as it accepts them."""

from math import prod

import pytest

from optrove.model.records import Attempt, DeviceKind, Job, Measurement, Outcome
from optrove.model.values import TensorSpec, walk
from optrove.replay.device_choice import TargetDevice
from optrove.replay.planning import PlannedJob
from optrove.serializer.hashes import placement_hash
from optrove.testgen.scale import _busy_cores, scale_cases, smallest
from trove_rows import case, memory, shard, tensor, value


def specs(one):
    return [
        part
        for _, argument in one.arguments
        for _, part in walk(argument)
        if isinstance(part, TensorSpec)
    ]


def shapes(one):
    return [spec.shape for spec in specs(one)]


def anything(_):
    return True


def test_every_size_becomes_a_tile_and_batches_one():
    one = case("ttnn.add", a=tensor(8, 12, 1024, 512), b=tensor(8, 12, 1024, 512, number=1))
    small, steps = smallest(one, anything)
    assert shapes(small) == [(1, 1, 32, 32)] * 2
    assert steps[0] == "1024 and 512 become 32"
    assert small.op == "ttnn.add"


def test_dtypes_layouts_and_other_arguments_stay():
    one = case(
        "ttnn.linear",
        input_tensor_a=tensor(1, 1, 64, 512),
        input_tensor_b=tensor(1, 1, 512, 256, dtype="bfloat8_b", number=1),
        activation=value("relu"),
    )
    small, _ = smallest(one, anything)
    assert [spec.dtype for spec in specs(small)] == [spec.dtype for spec in specs(one)]
    assert dict(small.arguments)["activation"] == dict(one.arguments)["activation"]


def test_only_what_is_accepted_is_applied():
    one = case("ttnn.softmax", a=tensor(1, 1, 1024, 256))

    def accepts(each):
        (shape,) = shapes(each)
        return shape[2] >= 128

    small, steps = smallest(one, accepts)
    assert shapes(small) == [(1, 1, 128, 32)]
    assert steps == (
        "256 becomes 32",
        "1024 becomes 512",
        "512 becomes 256",
        "256 becomes 128",
    )


def test_a_case_that_cannot_be_smaller_stays():
    one = case("ttnn.add", a=tensor(1, 1, 32, 32))
    assert smallest(one, anything) == (one, ())
    large = case("ttnn.add", a=tensor(1, 1, 64, 64))
    assert smallest(large, lambda _: False) == (large, ())


def test_shards_become_fewer_where_they_cannot_become_smaller():
    where = memory("L1_WIDTH_SHARDED", shard((32, 32), (7, 0)))
    one = case("ttnn.relu", a=tensor(1, 1, 32, 256, where=where))

    def accepts(each):
        """Accept whole shards only, as ttnn does."""
        (spec,) = specs(each)
        text = str(spec.placement.memory)
        cores = next(n for n in (8, 4, 2, 1) if f"Int(value={n - 1})" in text)
        return prod(spec.shape) == 32 * 32 * cores

    small, steps = smallest(one, accepts)
    assert shapes(small) == [(1, 1, 32, 32)]
    assert steps[0] == "256 becomes 128 on half of the cores in x"


def test_a_memory_argument_changes_like_the_tensor_that_has_the_same():
    where = memory("L1_BLOCK_SHARDED", shard((64, 64), (3, 3)))
    one = case("ttnn.layer_norm", a=tensor(1, 1, 256, 256, where=where), memory_config=where)

    def accepts(each):
        (spec,) = specs(each)
        return spec.shape >= (1, 1, 128, 128)

    small, _ = smallest(one, accepts)
    (spec,) = specs(small)
    assert spec.shape == (1, 1, 128, 128)
    assert dict(small.arguments)["memory_config"] == spec.placement.memory != where


def test_the_number_of_trials_is_limited():
    tried = []

    def accepts(each):
        tried.append(each)
        return False

    smallest(case("ttnn.add", a=tensor(64, 128, 1024, 512)), accepts, limit=3)
    assert len(tried) == 3


def test_a_vector_in_rows_of_a_tile_shrinks_with_the_size_that_it_belongs_to():
    weights = tensor(1, 1, 16, 32, layout="ROW_MAJOR", number=1)
    one = case("ttnn.rms_norm", a=tensor(1, 1, 64, 512), weight=weights)
    small, _ = smallest(one, anything)
    assert shapes(small) == [(1, 1, 32, 32), (1, 1, 1, 32)]


def test_every_core_that_had_a_shard_keeps_one():
    sharded = memory("L1_WIDTH_SHARDED", shard((32, 64), (7, 0)))
    one = case("ttnn.relu", a=tensor(1, 1, 32, 512, where=sharded))
    small, _ = smallest(one, anything)
    # On fewer cores it may be narrower, but no core of its grid is empty.
    (spec,) = specs(small)
    assert _busy_cores(spec) == 1
    assert prod(spec.shape) < 32 * 512


@pytest.fixture
def accepting(monkeypatch):
    """Accept every call that is tried, except those of ttnn.refused."""

    def attempt(self, planned, kind=DeviceKind.MOCK):
        refused = planned.op == "ttnn.refused"
        outcome = Outcome.REJECTED if refused else Outcome.PASSED
        return Attempt("trial", planned.case_id, outcome, DeviceKind.MOCK, detail="no room")

    monkeypatch.setattr("optrove.testgen.scale._Trials.attempt", attempt)


def scaled(*cases):
    planned = [
        PlannedJob(Job(each, DeviceKind.HOST), placement_hash(each), calls=2) for each in cases
    ]
    where = TargetDevice(DeviceKind.SIMULATOR, "n150")
    return planned, scale_cases({where: planned})[where]


@pytest.mark.usefixtures("accepting")
def test_recorded_cases_that_become_equal_are_one_scaled_case():
    before, (after,) = scaled(
        case("ttnn.relu", a=tensor(1, 1, 64, 64)), case("ttnn.relu", a=tensor(1, 1, 128, 64))
    )
    assert after.scaled_from == tuple(each.case_id for each in before)
    assert after.calls == 4
    assert after.case_id not in after.scaled_from
    assert after.job.outputs is None
    assert after.notes == (f"scaled down from case {before[0].case_id[:12]}: 64 becomes 32",)


@pytest.mark.parametrize(("has_golden", "rows"), [(True, 64), (False, 32)])
def test_shapes_that_the_golden_function_refuses_are_avoided(monkeypatch, has_golden, rows):
    def attempt(self, planned, kind=DeviceKind.MOCK):
        (shape,) = shapes(planned.job.case)
        computes = kind is DeviceKind.SHADOW and has_golden and shape[2] >= 64
        measured = (Measurement("pcc", 1.0),) if computes else ()
        return Attempt("trial", planned.case_id, Outcome.PASSED, kind, measurements=measured)

    monkeypatch.setattr("optrove.testgen.scale._Trials.attempt", attempt)
    _, (after,) = scaled(case("ttnn.softmax", a=tensor(1, 1, 256, 32)))
    assert shapes(after.job.case) == [(1, 1, rows, 32)]


@pytest.mark.usefixtures("accepting")
def test_a_case_that_is_not_accepted_stays_as_recorded():
    (before,), (after,) = scaled(case("ttnn.refused", a=tensor(1, 1, 64, 64)))
    assert (after.case_id, after.scaled_from) == (before.case_id, ())
    assert after.notes == ("not scaled, since ttnn does not accept it on a mock board: no room",)


@pytest.mark.usefixtures("accepting")
def test_a_case_of_several_chips_is_moved_to_one_unless_its_op_communicates():
    _, (moved,) = scaled(case("ttnn.relu", a=tensor(1, 1, 64, 64, mesh=(1, 2))))
    assert "one chip instead of 1x2" in moved.notes[0]
    assert moved.job.device.mesh_shape == (1, 1)
    assert all(spec.placement.mesh is None for spec in specs(moved.job.case))
    _, (kept,) = scaled(
        case("ttnn.all_gather", a=tensor(1, 1, 32, 32, mesh=(1, 2)), cluster_axis=value(1))
    )
    assert kept.scaled_from == ()
