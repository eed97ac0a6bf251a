import numpy
import pytest

from observed_calls import observed
from optrove.capture.parameters import Sketches
from tracing import readers_in, start_recorder


@pytest.fixture
def lines():
    return []


@pytest.fixture
def sink(lines):
    return Sketches(lines.append)


def test_every_tensor_of_a_call_is_sketched_with_its_place(sink, lines):
    ones, pair = numpy.ones((2, 2)), [numpy.zeros(3), numpy.arange(4)]
    call = observed(ones, 2.5, pair, keywords={"mask": {"left": ones}}, result=(ones,), op_index=7)
    sink.completed(call)
    (line,) = lines
    assert line["sketch"] == 7
    assert [each["at"] for each in line["of"]] == [
        "args[0]",
        "args[2][0]",
        "args[2][1]",
        'kwargs.mask["left"]',
        "output[0]",
    ]
    assert line["of"][2] == {
        "at": "args[2][1]",
        "count": 4,
        "min": 0,
        "max": 3,
        "mean": 1.5,
        "std": pytest.approx(1.118, abs=1e-3),
        "zero_share": 0.25,
        "nan_count": 0,
    }


def test_a_tensor_without_numbers_has_the_reason_in_its_place(sink, lines):
    sink.completed(observed(numpy.array([1j])))
    (line,) = lines
    assert line["of"] == [
        {
            "at": "args[0]",
            "omitted": "an array of complex128 has no order; a sketch needs real numbers",
        }
    ]


def test_a_call_without_tensors_has_no_line(sink, lines):
    sink.completed(observed(1, "x", result=[2]))
    sink.close()
    assert lines == []


def test_a_journal_takes_the_line_and_gives_it_back(tmp_path):
    _, journal = start_recorder(tmp_path)
    Sketches(journal.write).completed(observed(numpy.array([1.0, float("inf")]), op_index=3))
    (reader,) = readers_in(tmp_path)
    assert reader.sketches[3][0]["max"] == "inf"
