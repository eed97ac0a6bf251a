import pytest

from attempts import attempted
from drawn import drawn_lines
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import DeviceKind, DeviceParameters, Job
from optrove.model.values import DeviceRef
from optrove.replay.check_board import (
    Adaptation,
    AdaptedPlan,
    adaptations,
    adapted,
    adapted_data,
    adapted_document,
    chips_document,
    links_between,
    plan_adapted,
)
from optrove.replay.planning import PlannedJob
from optrove.serializer.hashes import placement_hash
from trove_rows import case, memory, shard, tensor


def planned(one, **options):
    return PlannedJob(Job(one, DeviceKind.HOST, **options), placement_hash(one))


def in_dram(layout, shape, last=(11, 0), **options):
    return tensor(256, 384, where=memory(f"DRAM_{layout}_SHARDED", shard(shape, last)), **options)


def weights(*given, **options):
    return planned(case("ttnn.linear", input_tensor_b=in_dram(*given, **options)))


def test_shards_are_spread_over_the_banks_that_a_board_has():
    for layout, before, after in (
        ("WIDTH", (256, 32), (256, 64)),
        ("HEIGHT", (32, 384), (32, 384)),
    ):
        new, changes = adapted(weights(layout, before), BOARDS["p150"])
        assert changes == ("DRAM shards on 8 banks instead of 12",)
        assert new.job.case == weights(layout, after, (7, 0)).job.case
        assert new.case_id == placement_hash(new.job.case)


@pytest.mark.parametrize(
    ("layout", "before", "outputs", "after"),
    [
        ("WIDTH", (256, 32), None, (256, 64)),
        ("WIDTH", (256, 64), None, (256, 96)),
        ("HEIGHT", (64, 384), None, (96, 384)),
        ("WIDTH", (256, 64), (256, 448), (256, 64)),
    ],
)
def test_a_memory_config_that_is_an_argument_is_adapted_as_those_of_tensors_are(
    layout, before, outputs, after
):
    def placed(shape, last):
        return memory(f"DRAM_{layout}_SHARDED", shard(shape, last))

    def moved(where):
        return case("ttnn.to_device", tensor=tensor(256, 384), memory_config=where)

    recorded = placed(before, (11, 0))
    results = None if outputs is None else (tensor(*outputs, where=recorded),)
    new, changes = adapted(planned(moved(recorded), outputs=results), BOARDS["p150"])
    assert changes == ("DRAM shards on 8 banks instead of 12",)
    assert new.job.case == moved(placed(after, (7, 0)))
    assert adapted(planned(moved(memory())), BOARDS["p150"]) is None


def test_what_cannot_be_adapted_has_a_reason():
    many = DeviceParameters(mesh_shape=(4, 8))
    gather = case("ttnn.all_gather", a=tensor(32, 32, mesh=(4, 8)), cluster_axis=1)
    relu = case("ttnn.relu", a=tensor(32, 32))
    plan = plan_adapted([planned(gather, device=many), planned(relu), planned(relu)], "p150")
    assert plan.reasons == (
        ("nothing in it follows from the DRAM banks, links or chips of a board", 2),
        ("the op communicates between 32 chips, and the board has 1 chip", 1),
    )
    lines = drawn_lines(adapted_document([], plan))
    assert f"  2x cannot be adapted: {plan.reasons[0][0]}" in lines
    assert adapted_data([], plan)["unadapted_reasons"] == dict(plan.reasons)


def test_what_a_board_can_hold_stays_as_it_is():
    assert adapted(weights("WIDTH", (256, 32)), BOARDS["galaxy"]) is None
    in_l1 = case(
        "ttnn.relu", a=tensor(256, 384, where=memory("L1_WIDTH_SHARDED", shard((256, 32), (11, 0))))
    )
    assert adapted(planned(in_l1), BOARDS["p150"]) is None


def test_there_are_no_more_links_than_between_neighbours():
    assert [links_between(BOARDS[name]) for name in ("n150", "n300", "galaxy", "bh-galaxy")] == [
        *(None, 2, 4, 2)
    ]
    gather = case("ttnn.all_gather", a=tensor(32, 32, mesh=(4, 8)), num_links=4)
    new, changes = adapted(planned(gather), BOARDS["bh-galaxy"])
    assert new.job.case == case("ttnn.all_gather", a=tensor(32, 32, mesh=(4, 8)), num_links=2)
    assert changes == ("num_links 2 instead of 4",)
    assert adapted(planned(gather), BOARDS["galaxy"]) is None


def test_a_case_of_too_many_chips_is_done_by_one():
    add = case(
        "ttnn.add", a=tensor(32, 32, mesh=(4, 8)), device=DeviceRef("ttnn.MeshDevice", (4, 8))
    )
    opened = DeviceParameters(mesh_shape=(4, 8), fabric_config="FABRIC_1D", l1_small_size=8192)
    new, changes = adapted(planned(add, device=opened, outputs=()), BOARDS["p150"])
    assert changes == ("one chip instead of 4x8",)
    arguments = dict(new.job.case.arguments)
    assert arguments["a"].placement.mesh_shape == arguments["device"].mesh_shape == (1, 1)
    assert new.job.device == DeviceParameters(mesh_shape=(1, 1), l1_small_size=8192)
    assert new.job.outputs is None


def test_what_talks_between_chips_cannot_be_done_by_one():
    gather = case("ttnn.all_gather", a=tensor(32, 32, mesh=(4, 8)), cluster_axis=1)
    assert adapted(planned(gather), BOARDS["p150"]) is None


@pytest.mark.parametrize(
    ("board", "names", "line"),
    [
        ("p150", ["add", "gather"], "1 chip, 2 cases need more; --adapt tries 1 of them"),
        ("n300", ["add", "add"], "2 chips, 2 cases need more; --adapt tries them on one chip"),
        ("p150", ["gather"], "1 chip, 1 case needs more; none of them can run on one chip"),
        ("galaxy", ["add", "gather"], None),
    ],
)
def test_cases_of_too_many_chips_are_counted_with_what_helps(board, names, line):
    cases = {
        "add": case("ttnn.add", a=tensor(32, 32, mesh=(4, 8))),
        "gather": case("ttnn.all_gather", a=tensor(32, 32, mesh=(4, 8)), cluster_axis=1),
    }
    lines = drawn_lines(chips_document([planned(cases[name]) for name in names], board))
    assert len(lines) == (line is not None)
    assert all(each.startswith(f"{board} has {line}") for each in lines)


def test_cases_that_become_the_same_are_tried_once():
    cases = [weights("WIDTH", (256, 32)), weights("WIDTH", (256, 32), (10, 0))]
    same, other = adaptations([*cases, weights("HEIGHT", (32, 384))], BOARDS["p150"])
    assert same.recorded == tuple(each.case_id for each in cases)
    assert len(other.recorded) == 1


def test_adapted_cases_are_shown_separately():
    one = attempted()
    again = PlannedJob(Job(case("ttnn.add"), DeviceKind.MOCK), one.attempt.case_id)
    change = Adaptation(again, ("num_links 2 instead of 4",), ("a", "b"))
    plan = AdaptedPlan({}, (change,), (("ttnn.from_torch", 3),))
    lines = drawn_lines(adapted_document([one], plan))
    sums = "2 accepted, 3 cannot be adapted (ttnn.from_torch)"
    assert f"of 5 cases not accepted, after adaptation: {sums}" in lines
    assert "  2x num_links 2 instead of 4" in lines
    assert adapted_data([one], plan)["unadapted"] == 3
    rest = AdaptedPlan({}, (), (("ttnn.add", 1), ("ttnn.sub", 1)))
    last = drawn_lines(adapted_document([], rest))[-1]
    assert last.endswith("adaptation: 2 cannot be adapted (1x ttnn.add, 1x ttnn.sub)")
    assert "no case to try" in drawn_lines(adapted_document([], AdaptedPlan({}, (), ())))[-1]
