from optrove.journal.writer import WINDOW_RECORDS
from optrove.model.records import Scope
from optrove.tracing.launch import Follower
from tracing import fake_op, perform, start_recorder

ADD = fake_op("fake.add")


def add(a, b):
    return a + b


def test_a_trace_that_has_not_begun_has_made_no_calls(tmp_path):
    progress = Follower(tmp_path / "nothing yet").look()
    assert (progress.calls, progress.test_id) == (0, None)


def test_calls_are_counted_as_they_come(tmp_path):
    follower = Follower(tmp_path)
    recorder, _ = start_recorder(tmp_path)
    for calls in (1, 2, 3):
        perform(recorder, ADD, add, calls, 1)
        assert follower.look().calls == calls
    again = follower.look()
    assert (again.calls, again.calls_per_second) == (3, 0)


def test_the_test_that_made_the_last_call_is_reported(tmp_path):
    follower = Follower(tmp_path)
    recorder, _ = start_recorder(tmp_path)
    recorder.set_scope(Scope(test_id="test_a.py::test_one"))
    perform(recorder, ADD, add, 1, 1)
    assert follower.look().test_id == "test_a.py::test_one"
    recorder.set_scope(Scope(test_id="test_a.py::test_two"))
    assert follower.look().test_id == "test_a.py::test_one"
    perform(recorder, ADD, add, 1, 1)
    assert follower.look().test_id == "test_a.py::test_two"


def test_calls_are_counted_over_windows_and_processes(tmp_path):
    follower = Follower(tmp_path)
    recorders = [start_recorder(tmp_path)[0] for _ in range(2)]
    for _ in range(WINDOW_RECORDS + 10):
        perform(recorders[0], ADD, add, 1, 1)
    perform(recorders[1], ADD, add, 1, 1)
    progress = follower.look()
    assert progress.calls == WINDOW_RECORDS + 11
