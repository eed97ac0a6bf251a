import json

import pytest

from optrove.model.records import CallOutcome, DeviceParameters, Query
from optrove.replay.planning import DISAGREEING, ONE_OF_SEVERAL, planned_cases
from optrove.serializer.text import write
from optrove.serializer.wire import encode
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from small_trove import LLAMA_IMPORT, RESNET_IMPORT, make_trove
from trove_rows import case, case_row, execution, tensor

ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)
GAVE = write([encode(tensor(32, 32, number=1))])


class OneCase:
    """A trove with one case, executed as the test says."""

    def __init__(self, *executions, one=ADD):
        self.row = case_row(one, 7)
        self.rows = [execution(self.row.case_id, **each) for each in executions]

    def cases(self, query):
        return iter([self.row])

    def executions(self, ids):
        assert list(ids) == [self.row.case_id]
        return iter(self.rows)

    def runs(self, run_id):
        return ()


def planned(*executions, **how):
    (found,) = planned_cases(OneCase(*executions), Query(), **how)
    return found


def test_a_job_has_the_case_the_seed_and_the_time_that_it_may_take():
    found = planned({}, seed=3, timeout_ns=500_000_000)
    assert found.job.case == ADD
    assert found.op == "ttnn.add"
    assert found.calls == 7
    assert found.job.seed == 3
    assert found.job.timeout_ns == 500_000_000


def test_what_came_out_when_it_was_recorded_is_what_has_to_come_out():
    assert planned({"outputs": GAVE}, {"outputs": GAVE}).job.outputs == (tensor(32, 32, number=1),)
    assert planned({}).job.outputs is None


def test_recordings_that_disagree_are_compared_with_neither():
    other = write([encode(tensor(64, 32, number=1))])
    found = planned({"outputs": GAVE}, {"outputs": other})
    assert found.job.outputs is None
    assert found.notes == (DISAGREEING,)


def test_what_most_calls_have_read_from_files_of_one_name_is_read_again():
    other = write([encode(tensor(64, 32, number=1))])
    loaded = case("ttnn.load_tensor", file_name="w.tensorbin")
    rows = ({"outputs": GAVE, "count": 2}, {"outputs": other, "count": 3})
    (found,) = planned_cases(OneCase(*rows, one=loaded), Query())
    assert found.job.outputs == (tensor(64, 32, number=1),)
    assert found.notes == (ONE_OF_SEVERAL,)


def test_the_device_is_opened_as_that_of_most_calls_was():
    opened = {"mesh_shape": [1, 2], "l1_small_size": 8192}
    found = planned({"device": json.dumps(opened)}, {"device": json.dumps({"mesh_shape": [1, 1]})})
    assert found.job.device == DeviceParameters(mesh_shape=(1, 2), l1_small_size=8192)
    assert planned({}).job.device is None


def test_the_board_is_that_of_most_calls():
    found = planned(
        {"board": "n150", "count": 3}, {"board": "n300", "count": 2}, {"board": "n300", "count": 2}
    )
    assert found.board == "n300"
    assert planned({}).board is None


def test_a_case_that_raised_is_marked_unless_it_has_returned_too():
    raised = {"outcome": CallOutcome.RAISED, "error": "RuntimeError: no"}
    assert planned(raised).raised == "RuntimeError: no"
    assert planned(raised, {"outputs": GAVE}).raised is None


@pytest.mark.parametrize("query", [Query(), Query(op="ttnn.matmul"), Query(data_movement=True)])
def test_every_case_of_a_trove_becomes_a_job(tmp_path, query):
    path = make_trove(tmp_path / "trove.db", LLAMA_IMPORT, RESNET_IMPORT)
    with open_reader(place_of(str(path))) as reader:
        found = list(planned_cases(reader, query))
        assert len(found) == reader.count(query) > 0
    calls = [each.calls for each in found]
    assert calls == sorted(calls, reverse=True)
    assert {each.board for each in found} <= {"n150", "n300"}
